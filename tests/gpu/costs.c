/* The cost of the driver's memory calls, in microseconds: median and 99th percentile of many calls,
 * each timed alone on the host. The latency profile of the simulated device is made from its rows
 * (scripts/gpu.sh collect). On the simulated device it shows only that the program works.
 *
 * Takes at most a few GiB at once. Every series frees what it took. Entry points the driver lacks
 * are left out. */
#include "tests/gpu/gpu.h"

static void measure_plain(uint64_t bytes)
{
    struct series alloc = {.seen = 0}, release = {.seen = 0}, busy = {.seen = 0};
    CUdeviceptr block = 0;

    for (unsigned i = 0; i < rounds(ROUNDS); i++) {
        TIMED(&alloc, CU(cuMemAlloc, &block, bytes));
        TIMED(&release, CU(cuMemFree, block));
    }
    /* A free with work queued: how long it waits. */
    for (unsigned i = 0; i < rounds(ROUNDS / 4); i++) {
        CU(cuMemAlloc, &block, bytes);
        CU(cuMemsetD8Async, block, 1, bytes, NULL);
        TIMED(&busy, CU(cuMemFree, block));
    }
    series_report(&alloc, "cuMemAlloc", bytes);
    series_report(&release, "cuMemFree", bytes);
    series_report(&busy, "cuMemFree.busy", bytes);
}

static void measure_pitch_and_host(uint64_t bytes)
{
    struct series pitched = {.seen = 0}, host = {.seen = 0}, host_free = {.seen = 0};
    CUdeviceptr block = 0;
    size_t pitch;
    void *memory;

    for (unsigned i = 0; i < rounds(ROUNDS / 4); i++) {
        TIMED(&pitched, CU(cuMemAllocPitch, &block, &pitch, bytes / 1024, 1024, 4));
        CU(cuMemFree, block);
        TIMED(&host, CU(cuMemHostAlloc, &memory, bytes, 0));
        TIMED(&host_free, CU(cuMemFreeHost, memory));
    }
    series_report(&pitched, "cuMemAllocPitch", bytes);
    series_report(&host, "cuMemHostAlloc", bytes);
    series_report(&host_free, "cuMemFreeHost", bytes);
}

static void measure_async(uint64_t bytes, CUstream stream)
{
    struct series alloc = {.seen = 0}, release = {.seen = 0}, cold = {.seen = 0};
    CUdeviceptr block = 0;

    if (cu.cuMemAllocAsync == NULL || cu.cuMemFreeAsync == NULL)
        return;
    /* Without a synchronisation the pool keeps its memory; after one it has released it. */
    for (unsigned i = 0; i < rounds(ROUNDS); i++) {
        TIMED(&alloc, CU(cuMemAllocAsync, &block, bytes, stream));
        TIMED(&release, CU(cuMemFreeAsync, block, stream));
    }
    CU(cuStreamSynchronize, stream);
    for (unsigned i = 0; i < rounds(ROUNDS / 4); i++) {
        TIMED(&cold, CU(cuMemAllocAsync, &block, bytes, stream));
        CU(cuMemFreeAsync, block, stream);
        CU(cuStreamSynchronize, stream);
    }
    series_report(&alloc, "cuMemAllocAsync", bytes);
    series_report(&release, "cuMemFreeAsync", bytes);
    series_report(&cold, "cuMemAllocAsync.after_sync", bytes);
}

/* One handle, mapped at one address. */
static void measure_handle(uint64_t bytes, bool has_rdma)
{
    enum { RESERVE, CREATE, MAP, ACCESS, UNMAP, RELEASE, GIVE_BACK, CALLS };
    static const char *const names[CALLS] = {"cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                             "cuMemSetAccess",      "cuMemUnmap",  "cuMemRelease",
                                             "cuMemAddressFree"};
    const CUmemAllocationProp properties = memory_of(has_rdma);
    struct series series[CALLS] = {{.seen = 0}};

    for (unsigned i = 0; i < rounds(ROUNDS / 2); i++) {
        CUmemGenericAllocationHandle handle = 0;
        CUdeviceptr range = 0;
        TIMED(&series[RESERVE], CU(cuMemAddressReserve, &range, bytes, 0, 0, 0));
        TIMED(&series[CREATE], CU(cuMemCreate, &handle, bytes, &properties, 0));
        TIMED(&series[MAP], CU(cuMemMap, range, bytes, 0, handle, 0));
        TIMED(&series[ACCESS],
              gpu_check(open_access(range, bytes), "cuMemSetAccess", __FILE__, __LINE__));
        TIMED(&series[UNMAP], CU(cuMemUnmap, range, bytes));
        TIMED(&series[RELEASE], CU(cuMemRelease, handle));
        TIMED(&series[GIVE_BACK], CU(cuMemAddressFree, range, bytes));
    }
    for (unsigned i = 0; i < CALLS; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s%s", names[i], has_rdma ? ".rdma" : "");
        series_report(&series[i], name, bytes);
    }
}

/* A page that is mapped already, mapped once more at another address. */
static void measure_alias(uint64_t bytes)
{
    const CUmemAllocationProp properties = memory_of(false);
    struct series map = {.seen = 0}, access = {.seen = 0}, unmap = {.seen = 0};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr range = 0;

    CU(cuMemAddressReserve, &range, 2 * bytes, 0, 0, 0);
    CU(cuMemCreate, &handle, bytes, &properties, 0);
    CU(cuMemMap, range, bytes, 0, handle, 0);
    gpu_check(open_access(range, bytes), "cuMemSetAccess", __FILE__, __LINE__);
    for (unsigned i = 0; i < rounds(ROUNDS / 2); i++) {
        TIMED(&map, CU(cuMemMap, range + bytes, bytes, 0, handle, 0));
        TIMED(&access,
              gpu_check(open_access(range + bytes, bytes), "cuMemSetAccess", __FILE__, __LINE__));
        TIMED(&unmap, CU(cuMemUnmap, range + bytes, bytes));
    }
    CU(cuMemUnmap, range, bytes);
    CU(cuMemRelease, handle);
    CU(cuMemAddressFree, range, 2 * bytes);
    series_report(&map, "cuMemMap.alias", bytes);
    series_report(&access, "cuMemSetAccess.alias", bytes);
    series_report(&unmap, "cuMemUnmap.alias", bytes);
}

static void measure_virtual_memory(void)
{
    static const uint64_t sizes[] = {2 * MIB, 20 * MIB, 64 * MIB, 256 * MIB, GIB};

    if (cu.cuMemCreate == NULL || cu.cuMemMap == NULL)
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        measure_handle(sizes[i], false);
    if (gpu_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) == 1)
        measure_handle(2 * MIB, true);
    else
        skip("cuMem*.rdma.*", "the device has no RDMA of mapped memory");
    measure_alias(2 * MIB);
}

static void measure_events(CUstream stream)
{
    struct series record = {.seen = 0}, query = {.seen = 0}, busy = {.seen = 0},
                  whole = {.seen = 0};
    struct series sync = {.seen = 0}, info = {.seen = 0};
    size_t free_bytes, total_bytes;
    CUevent event = NULL;
    CUdeviceptr block = 0;

    CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    CU(cuMemAlloc, &block, 256 * MIB);
    for (unsigned i = 0; i < rounds(ROUNDS); i++) {
        TIMED(&record, CU(cuEventRecord, event, stream));
        CU(cuEventSynchronize, event);
        TIMED(&query, CU(cuEventQuery, event));
        CU(cuMemsetD8Async, block, 1, 256 * MIB, stream);
        CU(cuEventRecord, event, stream);
        TIMED(&busy, (void)cu.cuEventQuery(event)); /* CUDA_ERROR_NOT_READY */
        CU(cuStreamSynchronize, stream);
        TIMED(&sync, CU(cuCtxSynchronize));
        TIMED(&info, CU(cuMemGetInfo, &free_bytes, &total_bytes));
        if (cu.cuCtxRecordEvent != NULL) {
            const uint64_t start_ns = now_ns();
            if (cu.cuCtxRecordEvent(gpu.context, event) == CUDA_SUCCESS)
                series_add(&whole, start_ns);
            CU(cuCtxSynchronize);
        }
    }
    series_report(&record, "cuEventRecord", 0);
    series_report(&query, "cuEventQuery.done", 0);
    series_report(&busy, "cuEventQuery.busy", 0);
    series_report(&whole, "cuCtxRecordEvent", 0);
    series_report(&sync, "cuCtxSynchronize.idle", 0);
    series_report(&info, "cuMemGetInfo", 0);
    CU(cuMemFree, block);
}

static void measure_launches(CUstream stream)
{
    CUfunction kernel = gpu_kernel("spin");
    struct series launch = {.seen = 0};
    uint64_t ns = 0;
    void *parameters[] = {&ns};

    for (unsigned i = 0; i < rounds(ROUNDS); i++) {
        TIMED(&launch, gpu_launch(kernel, 1, 1, stream, parameters));
        CU(cuStreamSynchronize, stream);
    }
    series_report(&launch, "cuLaunchKernel", 0);
}

int main(void)
{
    static const uint64_t sizes[] = {512, 64 * KIB, MIB, 2 * MIB, 20 * MIB, 256 * MIB, GIB};
    CUstream stream = NULL;

    gpu_open();
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    measure_launches(stream);
    measure_events(stream);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (gpu.is_rehearsal && sizes[i] > 64 * MIB)
            continue; /* the simulated device fills them on the processor */
        measure_plain(sizes[i]);
        measure_async(sizes[i], stream);
    }
    measure_pitch_and_host(2 * MIB);
    measure_virtual_memory();
    return EXIT_SUCCESS;
}
