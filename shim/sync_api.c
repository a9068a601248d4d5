/* Waits of the program that prove freed memory idle. What other threads free while the wait runs is
 * not covered by it, so the mark is taken first. */
#include "shim/mempool.h"

static CUresult retire(struct gc_context *context, uint64_t epoch, CUresult result)
{
    if (result != CUDA_SUCCESS)
        return result;
    if (context != NULL)
        gc_core_retire(gc_shim.core, context, epoch);
    gc_mempool_refresh(NULL); /* the driver trims its pools when it synchronises */
    return result;
}

GC_EXPORT
CUresult cuCtxSynchronize(void)
{
    struct gc_context *context;
    uint64_t epoch;
    CUresult result;

    if (!gc_shim_ready())
        return GC_FORWARD(cuCtxSynchronize);
    gc_shim_enter(GC_API_cuCtxSynchronize);
    context = gc_shim_current_context();
    epoch = context == NULL ? 0 : gc_context_epoch(context);
    result = retire(context, epoch,
                    GC_CALL(context == NULL ? NULL : gc_context_device(context), cuCtxSynchronize));
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    struct gc_context *context;
    uint64_t epoch;
    CUresult result;

    if (!gc_shim_ready())
        return GC_FORWARD(cuCtxSynchronize_v2, handle);
    gc_shim_enter(GC_API_cuCtxSynchronize_v2);
    context = handle == NULL ? gc_shim_current_context()
                             : gc_core_find_context(gc_shim.core, (uint64_t)(uintptr_t)handle);
    epoch = context == NULL ? 0 : gc_context_epoch(context);
    result = retire(
        context, epoch,
        GC_CALL(context == NULL ? NULL : gc_context_device(context), cuCtxSynchronize_v2, handle));
    gc_shim_leave();
    return result;
}
