/* The driver's calls while the device is busy: their time, and whether they wait for the work.
 * Under a kernel that runs for three seconds, then under one that runs until the host ends it:
 * where a call waits for the second, the host must not be the thread that calls, so a helper thread
 * ends the kernel when a call has taken a second.
 *
 * The calls are made one after another beside the same kernel, as long as it runs and has half of
 * its time left; so its whole time is spent only on calls that wait. */
#include "tests/gpu/gpu.h"

#define SPIN_NS (gpu.is_short ? 400 * MS : 3000 * MS)
#define CALL_NS_MAX (gpu.is_short ? 300 * MS : 1000 * MS)
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

/* ---- the work ---- */

static struct {
    struct hold hold;
    uint64_t spin_began_ns;         /* 0: nothing runs */
    _Atomic uint64_t call_began_ns; /* 0: no call is under way */
} work;

static void *end_hold_in_time(void *unused)
{
    for (;;) {
        const uint64_t began_ns = atomic_load(&work.call_began_ns);
        if (began_ns != 0 && now_ns() - began_ns > CALL_NS_MAX)
            hold_end(&work.hold);
        pause_ns(MS);
    }
    return unused;
}

static bool is_busy(void)
{
    return cu.cuStreamQuery(on.busy) == CUDA_ERROR_NOT_READY;
}

static void end_work(bool is_held)
{
    if (is_held)
        hold_end(&work.hold);
    CU(cuStreamSynchronize, on.busy);
    work.spin_began_ns = 0;
}

/* So that the kernel runs, and still for a while. */
static void begin_work(bool is_held)
{
    const uint64_t left_ns = is_held ? HOLD_NS_MAX : SPIN_NS;

    if (work.spin_began_ns != 0 && is_busy() && now_ns() - work.spin_began_ns < left_ns / 2)
        return;
    end_work(is_held);
    if (is_held)
        hold_begin(&work.hold, on.busy);
    else
        gpu_spin(on.busy, SPIN_NS);
    work.spin_began_ns = now_ns();
    pause_ns(2 * MS); /* the kernel has begun */
}

static void measure(unsigned which, bool is_held)
{
    const char *variant = is_held ? "host" : "kernel";

    begin_work(is_held);
    const uint64_t start_ns = now_ns();
    if (is_held)
        atomic_store(&work.call_began_ns, start_ns);
    const CUresult result = calls[which].run();
    const double us = us_since(start_ns);
    const bool is_over = !is_busy();
    atomic_store(&work.call_began_ns, 0);
    row(us, "us", "%s.%s", variant, calls[which].name);
    row(is_over, "waits", "%s.%s.waits", variant, calls[which].name);
    row(result, "code", "%s.%s.code", variant, calls[which].name);
}

int main(void)
{
    pthread_t helper;

    gpu_open();
    work.hold = hold_open();
    CU(cuStreamCreate, &on.busy, CU_STREAM_NON_BLOCKING);
    CU(cuStreamCreate, &on.stream, CU_STREAM_NON_BLOCKING);
    CU(cuEventCreate, &on.event, CU_EVENT_DISABLE_TIMING);
    for (unsigned i = 0; i < CALL_COUNT; i++) /* the first use of each */
        gpu_check(calls[i].run(), calls[i].name, __FILE__, __LINE__);
    gpu_spin(on.busy, MS);
    hold_begin(&work.hold, on.busy);
    hold_end(&work.hold);
    CU(cuCtxSynchronize);
    if (pthread_create(&helper, NULL, end_hold_in_time, NULL) != 0)
        return EXIT_FAILURE;
    for (unsigned held = 0; held < 2; held++) {
        for (unsigned i = 0; i < CALL_COUNT; i++)
            measure(i, held != 0);
        end_work(held != 0);
    }
    return EXIT_SUCCESS;
}
