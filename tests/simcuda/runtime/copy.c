/* Copies of linear memory: plain, two- and three-dimensional, between devices, and to and from
 * symbols. */
#include "runtime.h"

#include <string.h>

static CUdeviceptr device(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static cudaError_t copy(bool per_thread, void *dst, const void *src, size_t count,
                        enum cudaMemcpyKind kind)
{
    CUmemorytype from, to;

    RT_TRY(rt_memory_types(kind, &from, &to));
    if (!count)
        return cudaSuccess;
    if (from == CU_MEMORYTYPE_HOST && to == CU_MEMORYTYPE_DEVICE)
        return rt_result(RT_PICK(cuMemcpyHtoD_v2, ptds)(device(dst), src, count));
    if (from == CU_MEMORYTYPE_DEVICE && to == CU_MEMORYTYPE_HOST)
        return rt_result(RT_PICK(cuMemcpyDtoH_v2, ptds)(dst, device(src), count));
    if (from == CU_MEMORYTYPE_DEVICE)
        return rt_result(RT_PICK(cuMemcpyDtoD_v2, ptds)(device(dst), device(src), count));
    return rt_result(RT_PICK(cuMemcpy, ptds)(device(dst), device(src), count));
}

static cudaError_t copy_async(bool per_thread, void *dst, const void *src, size_t count,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUmemorytype from, to;

    RT_TRY(rt_memory_types(kind, &from, &to));
    if (!count)
        return cudaSuccess;
    if (from == CU_MEMORYTYPE_HOST && to == CU_MEMORYTYPE_DEVICE)
        return rt_result(RT_PICK(cuMemcpyHtoDAsync_v2, ptsz)(device(dst), src, count, stream));
    if (from == CU_MEMORYTYPE_DEVICE && to == CU_MEMORYTYPE_HOST)
        return rt_result(RT_PICK(cuMemcpyDtoHAsync_v2, ptsz)(dst, device(src), count, stream));
    if (from == CU_MEMORYTYPE_DEVICE)
        return rt_result(
            RT_PICK(cuMemcpyDtoDAsync_v2, ptsz)(device(dst), device(src), count, stream));
    return rt_result(RT_PICK(cuMemcpyAsync, ptsz)(device(dst), device(src), count, stream));
}

RT_API_PT(context, cudaMemcpy, ptds,
          (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
          (dst, src, count, kind))
{
    return copy(per_thread, dst, src, count, kind);
}

RT_API_PT(context, cudaMemcpyAsync, ptsz,
          (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
          (dst, src, count, kind, stream))
{
    return copy_async(per_thread, dst, src, count, kind, stream);
}

/* ---- two dimensions ---- */

static cudaError_t plane(CUDA_MEMCPY2D *shape, void *dst, size_t dpitch, const void *src,
                         size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
    memset(shape, 0, sizeof(*shape));
    RT_TRY(rt_memory_types(kind, &shape->srcMemoryType, &shape->dstMemoryType));
    if (width > dpitch || width > spitch)
        return cudaErrorInvalidPitchValue;
    shape->srcHost = src;
    shape->srcDevice = device(src);
    shape->srcPitch = spitch;
    shape->dstHost = dst;
    shape->dstDevice = device(dst);
    shape->dstPitch = dpitch;
    shape->WidthInBytes = width;
    shape->Height = height;
    return cudaSuccess;
}

RT_API_PT(context, cudaMemcpy2D, ptds,
          (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
           enum cudaMemcpyKind kind),
          (dst, dpitch, src, spitch, width, height, kind))
{
    CUDA_MEMCPY2D shape;

    RT_TRY(plane(&shape, dst, dpitch, src, spitch, width, height, kind));
    if (!width || !height)
        return cudaSuccess;
    return rt_result(RT_PICK(cuMemcpy2DUnaligned_v2, ptds)(&shape));
}

RT_API_PT(context, cudaMemcpy2DAsync, ptsz,
          (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
           enum cudaMemcpyKind kind, cudaStream_t stream),
          (dst, dpitch, src, spitch, width, height, kind, stream))
{
    CUDA_MEMCPY2D shape;

    RT_TRY(plane(&shape, dst, dpitch, src, spitch, width, height, kind));
    if (!width || !height)
        return cudaSuccess;
    return rt_result(RT_PICK(cuMemcpy2DAsync_v2, ptsz)(&shape, stream));
}

/* ---- three dimensions ---- */

static bool is_empty(const CUDA_MEMCPY3D *shape)
{
    return !shape->WidthInBytes || !shape->Height || !shape->Depth;
}

RT_API_PT(context, cudaMemcpy3D, ptds, (const struct cudaMemcpy3DParms *p), (p))
{
    CUDA_MEMCPY3D shape;

    if (!p)
        return cudaErrorInvalidValue;
    RT_TRY(rt_copy_3d(p, &shape));
    return is_empty(&shape) ? cudaSuccess : rt_result(RT_PICK(cuMemcpy3D_v2, ptds)(&shape));
}

RT_API_PT(context, cudaMemcpy3DAsync, ptsz,
          (const struct cudaMemcpy3DParms *p, cudaStream_t stream), (p, stream))
{
    CUDA_MEMCPY3D shape;

    if (!p)
        return cudaErrorInvalidValue;
    RT_TRY(rt_copy_3d(p, &shape));
    return is_empty(&shape) ? cudaSuccess
                            : rt_result(RT_PICK(cuMemcpy3DAsync_v2, ptsz)(&shape, stream));
}

/* ---- between devices ---- */

static cudaError_t copy_3d_peer(const struct cudaMemcpy3DPeerParms *p, CUDA_MEMCPY3D_PEER *peer)
{
    const struct cudaMemcpy3DParms one = {
        .srcArray = p->srcArray,
        .srcPos = p->srcPos,
        .srcPtr = p->srcPtr,
        .dstArray = p->dstArray,
        .dstPos = p->dstPos,
        .dstPtr = p->dstPtr,
        .extent = p->extent,
        .kind = cudaMemcpyDeviceToDevice,
    };
    CUDA_MEMCPY3D shape;

    RT_TRY(rt_copy_3d(&one, &shape));
    memset(peer, 0, sizeof(*peer));
    RT_TRY(rt_primary(p->srcDevice, &peer->srcContext));
    RT_TRY(rt_primary(p->dstDevice, &peer->dstContext));
    peer->srcXInBytes = shape.srcXInBytes;
    peer->srcY = shape.srcY;
    peer->srcZ = shape.srcZ;
    peer->srcMemoryType = shape.srcMemoryType;
    peer->srcDevice = shape.srcDevice;
    peer->srcArray = shape.srcArray;
    peer->srcPitch = shape.srcPitch;
    peer->srcHeight = shape.srcHeight;
    peer->dstXInBytes = shape.dstXInBytes;
    peer->dstY = shape.dstY;
    peer->dstZ = shape.dstZ;
    peer->dstMemoryType = shape.dstMemoryType;
    peer->dstDevice = shape.dstDevice;
    peer->dstArray = shape.dstArray;
    peer->dstPitch = shape.dstPitch;
    peer->dstHeight = shape.dstHeight;
    peer->WidthInBytes = shape.WidthInBytes;
    peer->Height = shape.Height;
    peer->Depth = shape.Depth;
    return cudaSuccess;
}

RT_API_PT(context, cudaMemcpy3DPeer, ptds, (const struct cudaMemcpy3DPeerParms *p), (p))
{
    CUDA_MEMCPY3D_PEER peer;

    if (!p)
        return cudaErrorInvalidValue;
    RT_TRY(copy_3d_peer(p, &peer));
    return rt_result(RT_PICK(cuMemcpy3DPeer, ptds)(&peer));
}

RT_API_PT(context, cudaMemcpy3DPeerAsync, ptsz,
          (const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream), (p, stream))
{
    CUDA_MEMCPY3D_PEER peer;

    if (!p)
        return cudaErrorInvalidValue;
    RT_TRY(copy_3d_peer(p, &peer));
    return rt_result(RT_PICK(cuMemcpy3DPeerAsync, ptsz)(&peer, stream));
}

RT_API(context, cudaMemcpyPeer,
       (void *dst, int dstDevice, const void *src, int srcDevice, size_t count),
       (dst, dstDevice, src, srcDevice, count))
{
    CUcontext to, from;

    RT_TRY(rt_primary(dstDevice, &to));
    RT_TRY(rt_primary(srcDevice, &from));
    if (!count)
        return cudaSuccess;
    return rt_result(rt_cu.cuMemcpyPeer(device(dst), to, device(src), from, count));
}

RT_API(context, cudaMemcpyPeerAsync,
       (void *dst, int dstDevice, const void *src, int srcDevice, size_t count,
        cudaStream_t stream),
       (dst, dstDevice, src, srcDevice, count, stream))
{
    CUcontext to, from;

    RT_TRY(rt_primary(dstDevice, &to));
    RT_TRY(rt_primary(srcDevice, &from));
    if (!count)
        return cudaSuccess;
    return rt_result(rt_cu.cuMemcpyPeerAsync(device(dst), to, device(src), from, count, stream));
}

/* ---- many at once ---- */

_Static_assert(sizeof(struct cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes),
               "attributes are passed on");
_Static_assert(sizeof(struct cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP),
               "operations are passed on");
_Static_assert(sizeof(CUdeviceptr) == sizeof(void *), "lists of pointers are passed on");

RT_API_PT(context, cudaMemcpyBatchAsync, ptsz,
          (void *const *dsts, const void *const *srcs, const size_t *sizes, size_t count,
           struct cudaMemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
           cudaStream_t stream),
          (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, stream))
{
    return rt_result(RT_PICK(cuMemcpyBatchAsync_v2, ptsz)(
        (CUdeviceptr *)(uintptr_t)dsts, (CUdeviceptr *)(uintptr_t)srcs, (size_t *)(uintptr_t)sizes,
        count, (CUmemcpyAttributes *)attrs, attrsIdxs, numAttrs, stream));
}

RT_API_PT(context, cudaMemcpy3DBatchAsync, ptsz,
          (size_t numOps, struct cudaMemcpy3DBatchOp *opList, unsigned long long flags,
           cudaStream_t stream),
          (numOps, opList, flags, stream))
{
    return rt_result(RT_PICK(cuMemcpy3DBatchAsync_v2,
                             ptsz)(numOps, (CUDA_MEMCPY3D_BATCH_OP *)opList, flags, stream));
}

/* ---- symbols ---- */

static cudaError_t symbol_range(const void *symbol, size_t count, size_t offset, void **address)
{
    CUdeviceptr base;
    size_t bytes;

    RT_TRY(rt_symbol_find(symbol, &base, &bytes));
    if (offset > bytes || count > bytes - offset)
        return cudaErrorInvalidValue;
    *address = (void *)(uintptr_t)(base + offset);
    return cudaSuccess;
}

static cudaError_t check_to_symbol(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
                   kind == cudaMemcpyDefault
               ? cudaSuccess
               : cudaErrorInvalidMemcpyDirection;
}

static cudaError_t check_from_symbol(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
                   kind == cudaMemcpyDefault
               ? cudaSuccess
               : cudaErrorInvalidMemcpyDirection;
}

RT_API_PT(context, cudaMemcpyToSymbol, ptds,
          (const void *symbol, const void *src, size_t count, size_t offset,
           enum cudaMemcpyKind kind),
          (symbol, src, count, offset, kind))
{
    void *address;

    RT_TRY(check_to_symbol(kind));
    RT_TRY(symbol_range(symbol, count, offset, &address));
    return copy(per_thread, address, src, count, kind);
}

RT_API_PT(context, cudaMemcpyFromSymbol, ptds,
          (void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind),
          (dst, symbol, count, offset, kind))
{
    void *address;

    RT_TRY(check_from_symbol(kind));
    RT_TRY(symbol_range(symbol, count, offset, &address));
    return copy(per_thread, dst, address, count, kind);
}

RT_API_PT(context, cudaMemcpyToSymbolAsync, ptsz,
          (const void *symbol, const void *src, size_t count, size_t offset,
           enum cudaMemcpyKind kind, cudaStream_t stream),
          (symbol, src, count, offset, kind, stream))
{
    void *address;

    RT_TRY(check_to_symbol(kind));
    RT_TRY(symbol_range(symbol, count, offset, &address));
    return copy_async(per_thread, address, src, count, kind, stream);
}

RT_API_PT(context, cudaMemcpyFromSymbolAsync, ptsz,
          (void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
           cudaStream_t stream),
          (dst, symbol, count, offset, kind, stream))
{
    void *address;

    RT_TRY(check_from_symbol(kind));
    RT_TRY(symbol_range(symbol, count, offset, &address));
    return copy_async(per_thread, dst, address, count, kind, stream);
}
