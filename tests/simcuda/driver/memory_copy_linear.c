/* The linear copies: cuMemcpy, HtoD, DtoH, DtoD, peer, and between linear memory and
 * one-dimensional arrays. */
#include "memory.h"

#define ASYNC SIM_ASYNC(per_thread, hStream)
#define SYNC SIM_SYNC(per_thread)
#define SYNC_V1 SIM_SYNC(false)

/* ---- unified addresses ---- */

SIM_API_THREAD(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
               (dst, src, ByteCount), "0x%llx 0x%llx %zu", dst, src, ByteCount)
{
    return sim_copy_linear(SIM_MEMORY(dst), SIM_MEMORY(src), ByteCount, SYNC);
}

SIM_API_THREAD(cuMemcpyAsync, _ptsz,
               (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
               (dst, src, ByteCount, hStream), "0x%llx 0x%llx %zu %p", dst, src, ByteCount,
               (void *)hStream)
{
    return sim_copy_linear(SIM_MEMORY(dst), SIM_MEMORY(src), ByteCount, ASYNC);
}

/* ---- between devices: each side as its context reaches it ---- */

static CUresult copy_peer(uint64_t to, CUcontext to_context, uint64_t from, CUcontext from_context,
                          uint64_t bytes, struct sim_order order)
{
    struct sim_side to_side = SIM_MEMORY(to), from_side = SIM_MEMORY(from);
    struct sim_context *context;
    CUresult result = sim_current(&context);

    if (result == CUDA_SUCCESS)
        result = sim_context_check(to_context, &to_side.context);
    if (result == CUDA_SUCCESS)
        result = sim_context_check(from_context, &from_side.context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_copy_linear(to_side, from_side, bytes, order);
}

SIM_API_THREAD(cuMemcpyPeer, _ptds,
               (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                CUcontext srcContext, size_t ByteCount),
               (dstDevice, dstContext, srcDevice, srcContext, ByteCount), "0x%llx 0x%llx %zu",
               dstDevice, srcDevice, ByteCount)
{
    return copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, SYNC);
}

SIM_API_THREAD(cuMemcpyPeerAsync, _ptsz,
               (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                CUcontext srcContext, size_t ByteCount, CUstream hStream),
               (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream),
               "0x%llx 0x%llx %zu %p", dstDevice, srcDevice, ByteCount, (void *)hStream)
{
    return copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, ASYNC);
}

/* ---- host and device ---- */

SIM_API_THREAD(cuMemcpyHtoD_v2, _ptds,
               (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
               (dstDevice, srcHost, ByteCount), "0x%llx %p %zu", dstDevice, srcHost, ByteCount)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_HOST_MEMORY(srcHost), ByteCount, SYNC);
}

SIM_API(cuMemcpyHtoD, (CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned ByteCount),
        (dstDevice, srcHost, ByteCount), "0x%x %p %u", dstDevice, srcHost, ByteCount)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_HOST_MEMORY(srcHost), ByteCount, SYNC_V1);
}

SIM_API_THREAD(cuMemcpyDtoH_v2, _ptds, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
               (dstHost, srcDevice, ByteCount), "%p 0x%llx %zu", dstHost, srcDevice, ByteCount)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_MEMORY(srcDevice), ByteCount, SYNC);
}

SIM_API(cuMemcpyDtoH, (void *dstHost, CUdeviceptr_v1 srcDevice, unsigned ByteCount),
        (dstHost, srcDevice, ByteCount), "%p 0x%x %u", dstHost, srcDevice, ByteCount)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_MEMORY(srcDevice), ByteCount, SYNC_V1);
}

/* As cuMemcpyDtoH_v2, under a name that CUDA does not have: for tests of what a tool does about
 * calls that it does not know. */
CUresult cuSimcudaRead(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount);
SIM_API(cuSimcudaRead, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
        (dstHost, srcDevice, ByteCount), "%p 0x%llx %zu", dstHost, srcDevice, ByteCount)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_MEMORY(srcDevice), ByteCount, SYNC_V1);
}

SIM_API_THREAD(cuMemcpyDtoD_v2, _ptds,
               (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
               (dstDevice, srcDevice, ByteCount), "0x%llx 0x%llx %zu", dstDevice, srcDevice,
               ByteCount)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_MEMORY(srcDevice), ByteCount, SYNC);
}

SIM_API(cuMemcpyDtoD, (CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned ByteCount),
        (dstDevice, srcDevice, ByteCount), "0x%x 0x%x %u", dstDevice, srcDevice, ByteCount)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_MEMORY(srcDevice), ByteCount, SYNC_V1);
}

SIM_API_THREAD(cuMemcpyHtoDAsync_v2, _ptsz,
               (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
               (dstDevice, srcHost, ByteCount, hStream), "0x%llx %p %zu %p", dstDevice, srcHost,
               ByteCount, (void *)hStream)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_HOST_MEMORY(srcHost), ByteCount, ASYNC);
}

SIM_API(cuMemcpyHtoDAsync,
        (CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned ByteCount, CUstream hStream),
        (dstDevice, srcHost, ByteCount, hStream), "0x%x %p %u %p", dstDevice, srcHost, ByteCount,
        (void *)hStream)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_HOST_MEMORY(srcHost), ByteCount,
                           SIM_ASYNC(false, hStream));
}

SIM_API_THREAD(cuMemcpyDtoHAsync_v2, _ptsz,
               (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
               (dstHost, srcDevice, ByteCount, hStream), "%p 0x%llx %zu %p", dstHost, srcDevice,
               ByteCount, (void *)hStream)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_MEMORY(srcDevice), ByteCount, ASYNC);
}

SIM_API(cuMemcpyDtoHAsync,
        (void *dstHost, CUdeviceptr_v1 srcDevice, unsigned ByteCount, CUstream hStream),
        (dstHost, srcDevice, ByteCount, hStream), "%p 0x%x %u %p", dstHost, srcDevice, ByteCount,
        (void *)hStream)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_MEMORY(srcDevice), ByteCount,
                           SIM_ASYNC(false, hStream));
}

SIM_API_THREAD(cuMemcpyDtoDAsync_v2, _ptsz,
               (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
               (dstDevice, srcDevice, ByteCount, hStream), "0x%llx 0x%llx %zu %p", dstDevice,
               srcDevice, ByteCount, (void *)hStream)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_MEMORY(srcDevice), ByteCount, ASYNC);
}

SIM_API(cuMemcpyDtoDAsync,
        (CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned ByteCount, CUstream hStream),
        (dstDevice, srcDevice, ByteCount, hStream), "0x%x 0x%x %u %p", dstDevice, srcDevice,
        ByteCount, (void *)hStream)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_MEMORY(srcDevice), ByteCount,
                           SIM_ASYNC(false, hStream));
}

/* ---- one-dimensional arrays: offsets are in bytes ---- */

SIM_API_THREAD(cuMemcpyDtoA_v2, _ptds,
               (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount),
               (dstArray, dstOffset, srcDevice, ByteCount), "%p %zu 0x%llx %zu", (void *)dstArray,
               dstOffset, srcDevice, ByteCount)
{
    return sim_copy_linear(SIM_TEXELS(dstArray, dstOffset), SIM_MEMORY(srcDevice), ByteCount, SYNC);
}

SIM_API(cuMemcpyDtoA,
        (CUarray dstArray, unsigned dstOffset, CUdeviceptr_v1 srcDevice, unsigned ByteCount),
        (dstArray, dstOffset, srcDevice, ByteCount), "%p %u 0x%x %u", (void *)dstArray, dstOffset,
        srcDevice, ByteCount)
{
    return sim_copy_linear(SIM_TEXELS(dstArray, dstOffset), SIM_MEMORY(srcDevice), ByteCount,
                           SYNC_V1);
}

SIM_API_THREAD(cuMemcpyAtoD_v2, _ptds,
               (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount),
               (dstDevice, srcArray, srcOffset, ByteCount), "0x%llx %p %zu %zu", dstDevice,
               (void *)srcArray, srcOffset, ByteCount)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_TEXELS(srcArray, srcOffset), ByteCount, SYNC);
}

SIM_API(cuMemcpyAtoD,
        (CUdeviceptr_v1 dstDevice, CUarray srcArray, unsigned srcOffset, unsigned ByteCount),
        (dstDevice, srcArray, srcOffset, ByteCount), "0x%x %p %u %u", dstDevice, (void *)srcArray,
        srcOffset, ByteCount)
{
    return sim_copy_linear(SIM_MEMORY(dstDevice), SIM_TEXELS(srcArray, srcOffset), ByteCount,
                           SYNC_V1);
}

SIM_API_THREAD(cuMemcpyHtoA_v2, _ptds,
               (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount),
               (dstArray, dstOffset, srcHost, ByteCount), "%p %zu %p %zu", (void *)dstArray,
               dstOffset, srcHost, ByteCount)
{
    return sim_copy_linear(SIM_TEXELS(dstArray, dstOffset), SIM_HOST_MEMORY(srcHost), ByteCount,
                           SYNC);
}

SIM_API(cuMemcpyHtoA,
        (CUarray dstArray, unsigned dstOffset, const void *srcHost, unsigned ByteCount),
        (dstArray, dstOffset, srcHost, ByteCount), "%p %u %p %u", (void *)dstArray, dstOffset,
        srcHost, ByteCount)
{
    return sim_copy_linear(SIM_TEXELS(dstArray, dstOffset), SIM_HOST_MEMORY(srcHost), ByteCount,
                           SYNC_V1);
}

SIM_API_THREAD(cuMemcpyAtoH_v2, _ptds,
               (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount),
               (dstHost, srcArray, srcOffset, ByteCount), "%p %p %zu %zu", dstHost,
               (void *)srcArray, srcOffset, ByteCount)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_TEXELS(srcArray, srcOffset), ByteCount,
                           SYNC);
}

SIM_API(cuMemcpyAtoH, (void *dstHost, CUarray srcArray, unsigned srcOffset, unsigned ByteCount),
        (dstHost, srcArray, srcOffset, ByteCount), "%p %p %u %u", dstHost, (void *)srcArray,
        srcOffset, ByteCount)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_TEXELS(srcArray, srcOffset), ByteCount,
                           SYNC_V1);
}

SIM_API_THREAD(cuMemcpyAtoA_v2, _ptds,
               (CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                size_t ByteCount),
               (dstArray, dstOffset, srcArray, srcOffset, ByteCount), "%p %zu %p %zu %zu",
               (void *)dstArray, dstOffset, (void *)srcArray, srcOffset, ByteCount)
{
    return sim_copy_linear(SIM_TEXELS(dstArray, dstOffset), SIM_TEXELS(srcArray, srcOffset),
                           ByteCount, SYNC);
}

SIM_API(cuMemcpyAtoA,
        (CUarray dstArray, unsigned dstOffset, CUarray srcArray, unsigned srcOffset,
         unsigned ByteCount),
        (dstArray, dstOffset, srcArray, srcOffset, ByteCount), "%p %u %p %u %u", (void *)dstArray,
        dstOffset, (void *)srcArray, srcOffset, ByteCount)
{
    return sim_copy_linear(SIM_TEXELS(dstArray, dstOffset), SIM_TEXELS(srcArray, srcOffset),
                           ByteCount, SYNC_V1);
}

SIM_API_THREAD(cuMemcpyHtoAAsync_v2, _ptsz,
               (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                CUstream hStream),
               (dstArray, dstOffset, srcHost, ByteCount, hStream), "%p %zu %p %zu %p",
               (void *)dstArray, dstOffset, srcHost, ByteCount, (void *)hStream)
{
    return sim_copy_linear(SIM_TEXELS(dstArray, dstOffset), SIM_HOST_MEMORY(srcHost), ByteCount,
                           ASYNC);
}

SIM_API(cuMemcpyHtoAAsync,
        (CUarray dstArray, unsigned dstOffset, const void *srcHost, unsigned ByteCount,
         CUstream hStream),
        (dstArray, dstOffset, srcHost, ByteCount, hStream), "%p %u %p %u %p", (void *)dstArray,
        dstOffset, srcHost, ByteCount, (void *)hStream)
{
    return sim_copy_linear(SIM_TEXELS(dstArray, dstOffset), SIM_HOST_MEMORY(srcHost), ByteCount,
                           SIM_ASYNC(false, hStream));
}

SIM_API_THREAD(cuMemcpyAtoHAsync_v2, _ptsz,
               (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                CUstream hStream),
               (dstHost, srcArray, srcOffset, ByteCount, hStream), "%p %p %zu %zu %p", dstHost,
               (void *)srcArray, srcOffset, ByteCount, (void *)hStream)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_TEXELS(srcArray, srcOffset), ByteCount,
                           ASYNC);
}

SIM_API(cuMemcpyAtoHAsync,
        (void *dstHost, CUarray srcArray, unsigned srcOffset, unsigned ByteCount, CUstream hStream),
        (dstHost, srcArray, srcOffset, ByteCount, hStream), "%p %p %u %u %p", dstHost,
        (void *)srcArray, srcOffset, ByteCount, (void *)hStream)
{
    return sim_copy_linear(SIM_HOST_MEMORY(dstHost), SIM_TEXELS(srcArray, srcOffset), ByteCount,
                           SIM_ASYNC(false, hStream));
}
