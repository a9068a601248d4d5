/* A driver call of the library in a context that may not be the thread's current one: it is pushed
 * for the duration of the call. */
#include "shim/driver/capture_guard.h"
#include "shim/driver/driver.h"
#include "shim/real/resolve.h"

CUresult gc_driver_enter_context(uint64_t context, bool *pushed)
{
    CUcontext wanted = (CUcontext)(uintptr_t)context,
              current = NULL; /* NOLINT: handles travel as integers */
    CUresult result;

    *pushed = false;
    if (gc_context_handle_is_of_device(context))
        return CUDA_SUCCESS; /* a device's own record: only maps memory, without a context */
    result = GC_USE(cuCtxGetCurrent, &current);
    if (result != CUDA_SUCCESS || current == wanted)
        return result;
    result = GC_USE(cuCtxPushCurrent_v2, wanted);
    *pushed = result == CUDA_SUCCESS;
    return result;
}

void gc_driver_leave_context(bool pushed)
{
    CUcontext popped;

    if (pushed && GC_USE(cuCtxPopCurrent_v2, &popped) != CUDA_SUCCESS)
        gc_log_write(
            &gc_shim.log, GC_LOG_WARN,
            "cuCtxPopCurrent failed: a context of the library's may stay current in this thread");
}

CUresult gc_driver_enter(uint64_t context, struct gc_driver_visit *visit)
{
    CUresult result = gc_driver_enter_context(context, &visit->is_pushed);

    if (result == CUDA_SUCCESS)
        gc_capture_relax(&visit->guard);
    return result;
}

void gc_driver_leave(struct gc_driver_visit *visit)
{
    gc_capture_restore(&visit->guard);
    gc_driver_leave_context(visit->is_pushed);
}

struct gc_device *gc_driver_device(uint64_t handle)
{
    struct gc_context *context = gc_context_find(gc_shim.core, handle);

    return context == NULL ? NULL : gc_context_device(context);
}
