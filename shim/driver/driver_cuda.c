/* core/device/driver.h over the real CUDA driver. A call for a context that is not the thread's
 * current one pushes it for the duration of the call. A capture under way survives the library's
 * own calls: they are made in relaxed mode, and core requests no synchronisation then. Core calls
 * from inside a wrapper, so nothing here is wrapped again. */
#include "core/base/clock.h"
#include "shim/driver/driver.h"
#include "shim/driver/stream_list.h"
#include "shim/real/resolve.h"

static int mem_alloc(void *self, uint64_t context, uint64_t bytes, uint64_t *address)
{
    CUdeviceptr dptr = 0;

    (void)self;
    int code = GC_CALL_IF_ENTERED(
        context, GC_CALL(gc_driver_device(context), cuMemAlloc_v2, &dptr, (size_t)bytes));
    if (code == 0)
        *address = dptr;
    return code;
}

static CUresult free_waiting(uint64_t context, CUdeviceptr address)
{
    return GC_CALL(gc_driver_device(context), cuMemFree_v2, address);
}

/* cuMemFree waits for all work of the device, which may itself wait for the program. An idle block
 * is freed in a stream that has no work to wait for. */
static CUresult free_idle(uint64_t context, CUdeviceptr address)
{
    struct gc_device *device = gc_driver_device(context);
    CUstream stream = GC_HAVE(cuMemFreeAsync) ? gc_stream_idle(context) : NULL;

    if (stream == NULL || GC_CALL(device, cuMemFreeAsync, address, stream) != CUDA_SUCCESS)
        return free_waiting(context, address);
    (void)GC_CALL(device, cuStreamSynchronize, stream); /* then the memory is free */
    return CUDA_SUCCESS;
}

static int mem_free(void *self, uint64_t context, uint64_t address)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context, free_waiting(context, (CUdeviceptr)address));
}

static int mem_free_idle(void *self, uint64_t context, uint64_t address)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context, free_idle(context, (CUdeviceptr)address));
}

/* In the thread's own current context, like a call of the program: the stream implies its
 * context. */
static int mem_free_ordered(void *self, uint64_t context, uint64_t address, uint64_t stream)
{
    (void)self;
    return (int)GC_CALL(gc_driver_device(context), cuMemFreeAsync, (CUdeviceptr)address,
                        (CUstream)(uintptr_t)stream); /* NOLINT: handles travel as integers */
}

static int mem_info(void *self, uint64_t context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t available = 0, total = 0;

    (void)self;
    int code = GC_CALL_IF_ENTERED(
        context, GC_CALL(gc_driver_device(context), cuMemGetInfo_v2, &available, &total));
    *free_bytes = available;
    *total_bytes = total;
    return code;
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

static bool is_shut_down(void *self)
{
    CUresult (*get_current)(CUcontext *) = GC_REAL(cuCtxGetCurrent);
    CUcontext context;

    (void)self;
    return get_current != NULL && get_current(&context) == CUDA_ERROR_DEINITIALIZED;
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
        .is_shut_down = is_shut_down,
        .clock_ns = clock_ns,
    };
    gc_driver_fence_init(driver);
    gc_driver_map_init(driver);
    gc_driver_copy_init(driver);
}
