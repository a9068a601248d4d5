/* The driver's calls while the device is busy: their time, and whether they wait for the work.
 * Under a kernel that runs for a time, then under one that runs until the host ends it: where a
 * call waits for the second, the host must not be the thread that calls. */
#include "tests/gpu/gpu.h"

#define BUSY_NS (gpu.is_short ? 60 * MS : 300 * MS)
#define BLOCK (2 * MIB)

/* Objects that the calls work on; each call leaves them as its neighbours need them. */
static struct {
    CUdeviceptr block, large, async, range, other;
    CUmemGenericAllocationHandle handle;
    CUstream busy, stream, made;
    CUevent event;
    CUmodule module;
    void *host;
} on;

static CUresult create_handle(void)
{
    const CUmemAllocationProp properties = memory_of(false);

    return cu.cuMemCreate(&on.handle, BLOCK, &properties, 0);
}

static CUresult load_module(void)
{
    on.module = gpu_load_module("kernels.ptx");
    return CUDA_SUCCESS;
}

static CUresult get_info(void)
{
    size_t available, total;

    return cu.cuMemGetInfo(&available, &total);
}

#define CALLS(X)                                                                                   \
    X(alloc_small, "cuMemAlloc.2MiB", cu.cuMemAlloc(&on.block, BLOCK))                             \
    X(free_small, "cuMemFree.2MiB", cu.cuMemFree(on.block))                                        \
    X(alloc_large, "cuMemAlloc.64MiB", cu.cuMemAlloc(&on.large, 64 * MIB))                         \
    X(free_large, "cuMemFree.64MiB", cu.cuMemFree(on.large))                                       \
    X(reserve, "cuMemAddressReserve", cu.cuMemAddressReserve(&on.range, BLOCK, 0, 0, 0))           \
    X(create, "cuMemCreate", create_handle())                                                      \
    X(map, "cuMemMap", cu.cuMemMap(on.range, BLOCK, 0, on.handle, 0))                              \
    X(access, "cuMemSetAccess", open_access(on.range, BLOCK))                                      \
    X(unmap, "cuMemUnmap", cu.cuMemUnmap(on.range, BLOCK))                                         \
    X(release, "cuMemRelease", cu.cuMemRelease(on.handle))                                         \
    X(address_free, "cuMemAddressFree", cu.cuMemAddressFree(on.range, BLOCK))                      \
    X(alloc_async, "cuMemAllocAsync", cu.cuMemAllocAsync(&on.async, BLOCK, on.stream))             \
    X(free_async, "cuMemFreeAsync", cu.cuMemFreeAsync(on.async, on.stream))                        \
    X(context_event, "cuCtxRecordEvent", cu.cuCtxRecordEvent(gpu.context, on.event))               \
    X(event, "cuEventRecord", cu.cuEventRecord(on.event, on.stream))                               \
    X(stream_create, "cuStreamCreate", cu.cuStreamCreate(&on.made, CU_STREAM_NON_BLOCKING))        \
    X(stream_destroy, "cuStreamDestroy", cu.cuStreamDestroy(on.made))                              \
    X(load, "cuModuleLoadData", load_module())                                                     \
    X(unload, "cuModuleUnload", cu.cuModuleUnload(on.module))                                      \
    X(host_alloc, "cuMemHostAlloc", cu.cuMemHostAlloc(&on.host, BLOCK, 0))                         \
    X(host_free, "cuMemFreeHost", cu.cuMemFreeHost(on.host))                                       \
    X(info, "cuMemGetInfo", get_info())

#define FUNCTION(id, name, expression)                                                             \
    static CUresult call_##id(void)                                                                \
    {                                                                                              \
        return expression;                                                                         \
    }
CALLS(FUNCTION)

static const struct {
    const char *name;
    CUresult (*run)(void);
} calls[] = {
#define CALL(id, name, expression) {name, call_##id},
    CALLS(CALL)};
#define CALL_COUNT (sizeof(calls) / sizeof(calls[0]))

static void *end_hold(void *hold)
{
    pause_ns(BUSY_NS);
    hold_end(hold);
    return NULL;
}

static void measure(unsigned which, struct hold *hold, const char *variant)
{
    pthread_t helper;

    if (hold != NULL) {
        hold_begin(hold, on.busy);
        if (pthread_create(&helper, NULL, end_hold, hold) != 0)
            exit(EXIT_FAILURE);
    } else {
        gpu_spin(on.busy, BUSY_NS);
    }
    pause_ns(2 * MS); /* the kernel has begun */
    const uint64_t start_ns = now_ns();
    const CUresult result = calls[which].run();
    const double us = us_since(start_ns);
    const bool is_over = cu.cuStreamQuery(on.busy) == CUDA_SUCCESS;
    row(us, "us", "%s.%s", variant, calls[which].name);
    row(is_over, "waits", "%s.%s.waits", variant, calls[which].name);
    row(result, "code", "%s.%s.code", variant, calls[which].name);
    if (hold != NULL)
        pthread_join(helper, NULL);
    CU(cuStreamSynchronize, on.busy);
}

int main(void)
{
    gpu_open();
    struct hold hold = hold_open();
    CU(cuStreamCreate, &on.busy, CU_STREAM_NON_BLOCKING);
    CU(cuStreamCreate, &on.stream, CU_STREAM_NON_BLOCKING);
    CU(cuEventCreate, &on.event, CU_EVENT_DISABLE_TIMING);
    for (unsigned i = 0; i < CALL_COUNT; i++) /* the first use of each */
        gpu_check(calls[i].run(), calls[i].name, __FILE__, __LINE__);
    gpu_spin(on.busy, MS);
    hold_begin(&hold, on.busy);
    hold_end(&hold);
    CU(cuCtxSynchronize);
    for (unsigned i = 0; i < CALL_COUNT; i++)
        measure(i, NULL, "kernel");
    for (unsigned i = 0; i < CALL_COUNT; i++)
        measure(i, &hold, "host");
    return EXIT_SUCCESS;
}
