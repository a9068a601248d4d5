/* Copies that name their memory by address alone. Under unified addressing the driver finds out
 * whose memory it is, and needs no peer access: a stream of one context may read or write the
 * memory of another. A free in the owner then has to wait for that stream's context too.
 *
 * Costs one load in a program with one context, and a look at both addresses in one with several.
 */
#include "shim/peer.h"

/* Whether there may be anything to note; readies the real pointers either way. */
static bool may_cross_contexts(void)
{
    return gc_shim_ready() && gc_core_has_several_contexts(gc_shim.core);
}

static void note_address(uint64_t address, struct gc_context *current)
{
    struct gc_block_info block;

    if (address != 0 && gc_core_find_block(gc_shim.core, address, &block) == GC_OK)
        gc_peer_note(gc_core_find_context(gc_shim.core, block.context), current);
}

static void note_copy(uint64_t to, uint64_t from)
{
    struct gc_context *current = gc_shim_current_context();

    note_address(to, current);
    note_address(from, current);
}

#define ADDRESS(copy, type, device)                                                                \
    ((copy)->type == CU_MEMORYTYPE_DEVICE || (copy)->type == CU_MEMORYTYPE_UNIFIED                 \
         ? (copy)->device                                                                          \
         : 0)
#define TO(copy) ((copy) == NULL ? 0 : ADDRESS(copy, dstMemoryType, dstDevice))
#define FROM(copy) ((copy) == NULL ? 0 : ADDRESS(copy, srcMemoryType, srcDevice))

#define COPY(symbol, to, from, ...)                                                                \
    do {                                                                                           \
        if (may_cross_contexts()) {                                                                \
            gc_shim_enter(GC_API_##symbol);                                                        \
            note_copy(to, from);                                                                   \
            gc_shim_leave();                                                                       \
        }                                                                                          \
        return GC_FORWARD(symbol, __VA_ARGS__);                                                    \
    } while (0)

GC_EXPORT
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    COPY(cuMemcpy, to, from, to, from, bytes);
}

GC_EXPORT
CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    COPY(cuMemcpy_ptds, to, from, to, from, bytes);
}

GC_EXPORT
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    COPY(cuMemcpyAsync, to, from, to, from, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    COPY(cuMemcpyAsync_ptsz, to, from, to, from, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    COPY(cuMemcpyDtoD_v2, to, from, to, from, bytes);
}

GC_EXPORT
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    COPY(cuMemcpyDtoD_v2_ptds, to, from, to, from, bytes);
}

GC_EXPORT
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    COPY(cuMemcpyDtoDAsync_v2, to, from, to, from, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    COPY(cuMemcpyDtoDAsync_v2_ptsz, to, from, to, from, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    COPY(cuMemcpyHtoD_v2, to, 0, to, from, bytes);
}

GC_EXPORT
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
    COPY(cuMemcpyHtoD_v2_ptds, to, 0, to, from, bytes);
}

GC_EXPORT
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    COPY(cuMemcpyHtoDAsync_v2, to, 0, to, from, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    COPY(cuMemcpyHtoDAsync_v2_ptsz, to, 0, to, from, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    COPY(cuMemcpyDtoHAsync_v2, 0, from, to, from, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    COPY(cuMemcpyDtoHAsync_v2_ptsz, 0, from, to, from, bytes, stream);
}

GC_EXPORT
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    COPY(cuMemcpy2D_v2, TO(copy), FROM(copy), copy);
}

GC_EXPORT
CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy)
{
    COPY(cuMemcpy2D_v2_ptds, TO(copy), FROM(copy), copy);
}

GC_EXPORT
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    COPY(cuMemcpy2DUnaligned_v2, TO(copy), FROM(copy), copy);
}

GC_EXPORT
CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *copy)
{
    COPY(cuMemcpy2DUnaligned_v2_ptds, TO(copy), FROM(copy), copy);
}

GC_EXPORT
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy)
{
    COPY(cuMemcpy3D_v2, TO(copy), FROM(copy), copy);
}

GC_EXPORT
CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy)
{
    COPY(cuMemcpy3D_v2_ptds, TO(copy), FROM(copy), copy);
}

GC_EXPORT
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    COPY(cuMemcpy2DAsync_v2, TO(copy), FROM(copy), copy, stream);
}

GC_EXPORT
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    COPY(cuMemcpy2DAsync_v2_ptsz, TO(copy), FROM(copy), copy, stream);
}

GC_EXPORT
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    COPY(cuMemcpy3DAsync_v2, TO(copy), FROM(copy), copy, stream);
}

GC_EXPORT
CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    COPY(cuMemcpy3DAsync_v2_ptsz, TO(copy), FROM(copy), copy, stream);
}
