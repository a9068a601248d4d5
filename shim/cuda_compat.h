/* cuda.h and cuda_runtime_api.h with every ABI visible, and the declarations that older headers
 * lack.
 *
 * __CUDA_API_VERSION_INTERNAL keeps the headers from renaming cuMemAlloc to cuMemAlloc_v2 and so
 * on: a name here is always the exported symbol. The library builds with toolkits 11.8 to 13 and
 * then covers the same entry points with any of them: types and constants newer than 11.8 that a
 * row of api.def or a wrapper uses are declared below, under the version that brought them. Opaque
 * handles suffice: the shim passes them on and never reads inside. */
#ifndef GC_CUDA_COMPAT_H
#define GC_CUDA_COMPAT_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>

#if CUDA_VERSION < 12000
/* cuGetProcAddress_v2's last argument. */
typedef int CUdriverProcAddressQueryResult;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef int CUlibraryOption;
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st CUDA_GRAPH_INSTANTIATE_PARAMS;
typedef struct CUgraphExecUpdateResultInfo_st CUgraphExecUpdateResultInfo;
#define CU_POINTER_ATTRIBUTE_MAPPING_SIZE ((CUpointer_attribute)18)
#define CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR ((CUpointer_attribute)19)
#define CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID ((CUpointer_attribute)20)
#endif

#if CUDA_VERSION < 12010
typedef struct CUmulticastObjectProp_st CUmulticastObjectProp;
#endif

#if CUDA_VERSION < 12020
/* Read to find memory nodes, and the memory that other nodes name. */
typedef struct CUgraphNodeParams_st {
    CUgraphNodeType type;
    int reserved0[3];
    union {
        long long reserved1[29];
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        struct {
            int flags[2];
            CUcontext copyCtx;
            CUDA_MEMCPY3D copyParams;
        } memcpy;
        struct {
            CUdeviceptr dst;
            size_t pitch;
            unsigned value[2];
            size_t width, height;
            CUcontext ctx;
        } memset;
        CUDA_BATCH_MEM_OP_NODE_PARAMS memOp;
    };
    long long reserved2;
} CUgraphNodeParams;
#endif

#if CUDA_VERSION < 12030
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
#endif

#if CUDA_VERSION < 12040
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
#endif

#if CUDA_VERSION < 12050
typedef struct CUctxCreateParams_st CUctxCreateParams;
#endif

#if CUDA_VERSION < 12060
typedef struct CUmemDecompressParams_st {
    size_t bytes[2];
    cuuint32_t *dstActBytes;
    const void *src;
    void *dst;
    int algo;
    unsigned char padding[20];
} CUmemDecompressParams;
#endif

#if CUDA_VERSION < 12080
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;
/* Read only for the operand's address. */
#define CU_MEMCPY_OPERAND_TYPE_POINTER 1
typedef struct CUmemcpy3DOperand_st {
    int type;
    union {
        struct {
            CUdeviceptr ptr;
            size_t row_and_layer[2];
            CUmemLocation location;
        } ptr;
        struct {
            CUarray array;
            size_t offset[3];
        } array;
    } op;
} CUmemcpy3DOperand;
typedef struct CUDA_MEMCPY3D_BATCH_OP_st {
    CUmemcpy3DOperand src;
    CUmemcpy3DOperand dst;
    size_t extent[3];
    int access_order;
    unsigned flags;
} CUDA_MEMCPY3D_BATCH_OP;
#endif

#if CUDA_VERSION < 13000
#define CUDA_ERROR_CONTAINED 226
#define CUDA_ERROR_TENSOR_MEMORY_LEAK 721
#endif

#if CUDA_VERSION < 13010
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
#endif

/* CU_CTX_SYNC_MEMOPS of newer headers. */
#define GC_CTX_SYNC_MEMOPS 0x80u

/* CUeglFrame, passed on by value: cudaEGL.h needs headers that few systems have. */
struct gc_egl_frame {
    void *planes[3];
    unsigned shape[6];
    int formats[3];
};
_Static_assert(sizeof(struct gc_egl_frame) == 64, "as large as CUeglFrame");

#endif
