/* Pinned host memory, and copies of swapped memory, over the real driver. Each context has a
 * non-blocking stream for each direction, created for the first copy and destroyed with the
 * context; the program never sees them. The calls go to the driver itself, so they are none of the
 * program's work. */
#include "shim/driver/driver.h"
#include "shim/driver/stream_list.h"
#include "shim/real/resolve.h"

static int host_pin(void *self, uint64_t context, void *memory, uint64_t bytes)
{
    (void)self;
    return GC_CALL_IF_ENTERED(
        context, GC_USE(cuMemHostRegister_v2, memory, (size_t)bytes, CU_MEMHOSTREGISTER_PORTABLE));
}

static int host_unpin(void *self, uint64_t context, void *memory)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context, GC_USE(cuMemHostUnregister, memory));
}

/* A full device may have no memory left for a stream: the copy is synchronous then. */
static CUresult start_out(uint64_t context, uint64_t address, uint64_t bytes, void *to)
{
    CUstream stream = gc_stream_copy(context, true);

    if (stream == NULL)
        return GC_USE(cuMemcpyDtoH_v2, to, (CUdeviceptr)address, (size_t)bytes);
    return GC_USE(cuMemcpyDtoHAsync_v2, to, (CUdeviceptr)address, (size_t)bytes, stream);
}

static CUresult start_in(uint64_t context, uint64_t address, uint64_t bytes, const void *from)
{
    CUstream stream = gc_stream_copy(context, false);

    if (stream != NULL)
        return GC_USE(cuMemcpyHtoDAsync_v2, (CUdeviceptr)address, from, (size_t)bytes, stream);
    CUresult result = GC_USE(cuMemcpyHtoD_v2, (CUdeviceptr)address, from, (size_t)bytes);
    return result == CUDA_SUCCESS ? GC_CALL(gc_driver_device(context), cuCtxSynchronize) : result;
}

/* A copy between device addresses returns before it is complete. */
static CUresult start_across(uint64_t context, uint64_t from, uint64_t to, uint64_t bytes)
{
    CUstream stream = gc_stream_copy(context, true);

    if (stream != NULL)
        return GC_USE(cuMemcpyDtoDAsync_v2, (CUdeviceptr)to, (CUdeviceptr)from, (size_t)bytes,
                      stream);
    CUresult result = GC_USE(cuMemcpyDtoD_v2, (CUdeviceptr)to, (CUdeviceptr)from, (size_t)bytes);
    return result == CUDA_SUCCESS ? GC_CALL(gc_driver_device(context), cuCtxSynchronize) : result;
}

static int copy_out(void *self, uint64_t context, uint64_t address, uint64_t bytes, void *to)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context, start_out(context, address, bytes, to));
}

static int copy_in(void *self, uint64_t context, uint64_t address, uint64_t bytes, const void *from)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context, start_in(context, address, bytes, from));
}

static int copy_across(void *self, uint64_t context, uint64_t from, uint64_t to, uint64_t bytes)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context, start_across(context, from, to, bytes));
}

/* Waits for the library's own stream alone. No stream: no copy is under way. */
static CUresult wait_for(uint64_t context, bool is_out)
{
    CUstream stream = gc_stream_copy(context, is_out);

    return stream == NULL ? CUDA_SUCCESS : GC_USE(cuStreamSynchronize, stream);
}

static int copy_wait(void *self, uint64_t context, bool is_out)
{
    (void)self;
    return GC_CALL_IF_ENTERED(context, wait_for(context, is_out));
}

void gc_driver_copy_init(struct gc_driver *driver)
{
    driver->host_pin = host_pin;
    driver->host_unpin = host_unpin;
    driver->copy_out = copy_out;
    driver->copy_in = copy_in;
    driver->copy_across = copy_across;
    driver->copy_wait = copy_wait;
}
