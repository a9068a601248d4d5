/* core/device/driver.h over the real CUDA driver. A call for a context that is not the thread's
 * current one pushes it for the moment of the call. A capture under way survives our own calls:
 * they are made in relaxed mode, and core asks for no synchronisation then. Core calls from inside
 * a wrapper, so nothing here is wrapped again. */
#include "core/base/clock.h"
#include "shim/account/direct.h"
#include "shim/account/stream_list.h"

CUresult gc_driver_enter_context(uint64_t context, bool *pushed)
{
    CUcontext wanted = (CUcontext)(uintptr_t)context,
              current = NULL; /* NOLINT: handles travel as integers */
    CUresult result;

    *pushed = false;
    if (gc_core_is_of_device(context))
        return CUDA_SUCCESS; /* mapping needs no context, and nothing else is asked of a device */
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
        gc_log_write(&gc_shim.log, GC_LOG_WARN, "the driver did not take a context back");
}

struct gc_device *gc_driver_device(uint64_t handle)
{
    struct gc_context *context = gc_core_find_context(gc_shim.core, handle);

    return context == NULL ? NULL : gc_context_device(context);
}

static int mem_alloc(void *self, uint64_t context, uint64_t bytes, uint64_t *address)
{
    CUdeviceptr dptr = 0;
    struct gc_capture_guard guard;
    CUresult result;
    bool pushed;

    (void)self;
    result = gc_driver_enter_context(context, &pushed);
    if (result != CUDA_SUCCESS)
        return (int)result;
    gc_capture_relax(&guard);
    result = GC_CALL(gc_driver_device(context), cuMemAlloc_v2, &dptr, (size_t)bytes);
    gc_capture_restore(&guard);
    gc_driver_leave_context(pushed);
    if (result == CUDA_SUCCESS)
        *address = dptr;
    return (int)result;
}

static CUresult free_waiting(uint64_t context, CUdeviceptr address)
{
    return GC_CALL(gc_driver_device(context), cuMemFree_v2, address);
}

/* cuMemFree waits for whatever the device is doing, and that may be waiting for the program. What
 * is idle is freed in a stream that has nothing to wait for. */
static CUresult free_idle(uint64_t context, CUdeviceptr address)
{
    struct gc_device *device = gc_driver_device(context);
    CUstream stream = GC_HAVE(cuMemFreeAsync) ? gc_stream_idle(context) : NULL;

    if (stream == NULL || GC_CALL(device, cuMemFreeAsync, address, stream) != CUDA_SUCCESS)
        return free_waiting(context, address);
    (void)GC_CALL(device, cuStreamSynchronize, stream); /* then the memory is there again */
    return CUDA_SUCCESS;
}

static int free_by(CUresult (*way)(uint64_t, CUdeviceptr), uint64_t context, uint64_t address)
{
    struct gc_capture_guard guard;
    CUresult result;
    bool pushed;

    result = gc_driver_enter_context(context, &pushed);
    if (result != CUDA_SUCCESS)
        return (int)result;
    gc_capture_relax(&guard);
    result = way(context, (CUdeviceptr)address);
    gc_capture_restore(&guard);
    gc_driver_leave_context(pushed);
    return (int)result;
}

static int mem_free(void *self, uint64_t context, uint64_t address)
{
    (void)self;
    return free_by(free_waiting, context, address);
}

static int mem_free_idle(void *self, uint64_t context, uint64_t address)
{
    (void)self;
    return free_by(free_idle, context, address);
}

/* Of the thread's own current context, as the program's call: the stream says where it belongs. */
static int mem_free_ordered(void *self, uint64_t context, uint64_t address, uint64_t stream)
{
    (void)self;
    return (int)GC_CALL(gc_driver_device(context), cuMemFreeAsync, (CUdeviceptr)address,
                        (CUstream)(uintptr_t)stream); /* NOLINT: handles travel as integers */
}

static int mem_info(void *self, uint64_t context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t available = 0, total = 0;
    struct gc_capture_guard guard;
    CUresult result;
    bool pushed;

    (void)self;
    result = gc_driver_enter_context(context, &pushed);
    if (result != CUDA_SUCCESS)
        return (int)result;
    gc_capture_relax(&guard);
    result = GC_CALL(gc_driver_device(context), cuMemGetInfo_v2, &available, &total);
    gc_capture_restore(&guard);
    gc_driver_leave_context(pushed);
    *free_bytes = available;
    *total_bytes = total;
    return (int)result;
}

static int synchronize(void *self, uint64_t context)
{
    CUresult result;
    bool pushed;

    (void)self;
    result = gc_driver_enter_context(context, &pushed);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = GC_CALL(gc_driver_device(context), cuCtxSynchronize);
    gc_driver_leave_context(pushed);
    return (int)result;
}

static bool relieve(void *self, uint64_t context, uint64_t bytes)
{
    struct gc_device *device = gc_driver_device(context);

    (void)self;
    (void)bytes;
    return device != NULL && gc_direct_make_room(device);
}

static uint64_t clock_ns(void *self)
{
    (void)self;
    return gc_clock_ns();
}

void gc_driver_cuda_init(struct gc_driver *driver)
{
    *driver = (struct gc_driver){
        .out_of_memory = CUDA_ERROR_OUT_OF_MEMORY,
        .context_is_gone = CUDA_ERROR_CONTEXT_IS_DESTROYED,
        .mem_alloc = mem_alloc,
        .mem_free = mem_free,
        .mem_free_idle = mem_free_idle,
        .mem_free_ordered = mem_free_ordered,
        .mem_info = mem_info,
        .synchronize = synchronize,
        .relieve = relieve,
        .clock_ns = clock_ns,
    };
    gc_driver_fence_init(driver);
    gc_driver_map_init(driver);
}
