/* Managed memory and page-locked host memory. Where managed pages live is unknown: they are
 * recorded, and by GPUCACHE_MANAGED charged or refused. Host memory is not the device's: recorded
 * alone. */
#include "shim/account/direct.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"

GC_EXPORT
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned flags)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemAllocManaged, dptr, bytes, flags);
    struct gc_direct_request request;
    GC_SET_CALLER();
    gc_direct_begin(&request, GC_API_cuMemAllocManaged);
    if (gc_direct_denies_managed(GC_API_cuMemAllocManaged))
        return gc_direct_end(&request, CUDA_ERROR_NOT_SUPPORTED);
    CUresult result = gc_direct_charge_managed(&request, bytes);
    if (result == CUDA_SUCCESS)
        result = GC_DIRECT_CALL(&request, bytes, cuMemAllocManaged, dptr, bytes, flags);
    if (result == CUDA_SUCCESS && dptr != NULL)
        if (!gc_direct_record(&request, GC_DIRECT_MANAGED, *dptr, bytes))
            result = GC_DIRECT_GIVE_BACK(&request, cuMemFree_v2, *dptr);
    return gc_direct_end(&request, result);
}

#define ALLOC_HOST(symbol, ...)                                                                    \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        struct gc_direct_request request;                                                          \
        gc_direct_begin(&request, GC_API_##symbol);                                                \
        CUresult result = GC_CALL_RELIEVED(request.device, symbol, __VA_ARGS__);                   \
        if (result == CUDA_SUCCESS && pointer != NULL)                                             \
            gc_direct_record(&request, GC_DIRECT_HOST, (uintptr_t)*pointer, bytes);                \
        gc_direct_end(&request, CUDA_SUCCESS);                                                     \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    ALLOC_HOST(cuMemHostAlloc, pointer, bytes, flags);
}

GC_EXPORT
CUresult cuMemAllocHost(void **pointer, unsigned bytes)
{
    ALLOC_HOST(cuMemAllocHost, pointer, bytes);
}

GC_EXPORT
CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    ALLOC_HOST(cuMemAllocHost_v2, pointer, bytes);
}

GC_EXPORT
CUresult cuMemFreeHost(void *pointer)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemFreeHost, pointer);
    struct gc_direct_request request;
    struct gc_direct_release release;
    gc_direct_begin(&request, GC_API_cuMemFreeHost);
    gc_direct_release_begin(&release, GC_DIRECT_HOST, (uintptr_t)pointer);
    CUresult result = GC_CALL_RELIEVED(request.device, cuMemFreeHost, pointer);
    gc_direct_release_end(&release, result == CUDA_SUCCESS);
    return gc_direct_end(&request, result);
}
