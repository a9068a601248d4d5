/* Does memory in handles of 2 MiB read as fast as the driver's own allocations? A whole read, and
 * words at random places, of 64 GiB each time: cuMemAlloc, handles of 2 MiB, of 512 MiB, and
 * cuMemAlloc again, for the spread. */
#include "tests/gpu/gpu.h"

#define REPEATS 5
#define GATHER_BLOCKS 2112
#define GATHER_TIMES 512

static CUevent begun, ended;
static CUdeviceptr sum;
static double plain_read, plain_gather; /* of the first memory */

static double ms_of(CUfunction kernel, unsigned blocks, void **parameters)
{
    double times[REPEATS];

    for (unsigned i = 0; i < REPEATS; i++) {
        float ms = 0;
        CU(cuEventRecord, begun, NULL);
        gpu_launch(kernel, blocks, 256, NULL, parameters);
        CU(cuEventRecord, ended, NULL);
        CU(cuEventSynchronize, ended);
        CU(cuEventElapsedTime, &ms, begun, ended);
        times[i] = (double)ms;
    }
    qsort(times, REPEATS, sizeof(times[0]), compare_us);
    return times[REPEATS / 2] > 0 ? times[REPEATS / 2] : 1e-9;
}

static void measure(const char *name, CUdeviceptr memory, uint64_t bytes)
{
    uint64_t words = bytes / 16;
    uint32_t bits = (uint32_t)(63 - __builtin_clzll(bytes / 4)), times = GATHER_TIMES;
    void *reads[] = {&memory, &words, &sum};
    void *gathers[] = {&memory, &bits, &times, &sum};

    CU(cuMemsetD8Async, memory, 1, bytes, NULL);
    const double read = (double)bytes / 1e6 / ms_of(gpu_kernel("read"), GATHER_BLOCKS, reads);
    const double gather = (double)GATHER_BLOCKS * 256 * GATHER_TIMES / 1e6 /
                          ms_of(gpu_kernel("gather"), GATHER_BLOCKS, gathers);
    row(read, "GB/s", "%s.read", name);
    row(gather, "G/s", "%s.gather", name);
    if (plain_read == 0) {
        plain_read = read;
        plain_gather = gather;
    } else if (!gpu.is_rehearsal) {
        row(read / plain_read, "ratio", "%s.read_to_plain", name);
        row(gather / plain_gather, "ratio", "%s.gather_to_plain", name);
    }
}

static void measure_plain(const char *name, uint64_t bytes)
{
    CUdeviceptr memory;

    CU(cuMemAlloc, &memory, bytes);
    measure(name, memory, bytes);
    CU(cuMemFree, memory);
}

static void measure_handles(const char *name, uint64_t handle_bytes, uint64_t bytes)
{
    const CUmemAllocationProp properties = memory_of(false);
    CUdeviceptr range;

    CU(cuMemAddressReserve, &range, bytes, 0, 0, 0);
    for (uint64_t at = 0; at < bytes; at += handle_bytes) {
        CUmemGenericAllocationHandle handle;
        CU(cuMemCreate, &handle, handle_bytes, &properties, 0);
        CU(cuMemMap, range + at, handle_bytes, 0, handle, 0);
        CU(cuMemRelease, handle); /* lives as long as its mapping */
    }
    gpu_check(open_access(range, bytes), "cuMemSetAccess", __FILE__, __LINE__);
    measure(name, range, bytes);
    CU(cuMemUnmap, range, bytes);
    CU(cuMemAddressFree, range, bytes);
}

int main(void)
{
    gpu_open();
    const uint64_t bytes = gpu.is_rehearsal ? 512 * MIB : 64 * GIB;
    if (gpu.is_rehearsal)
        skip("*_to_plain", "the simulated device's kernels compute nothing");
    CU(cuEventCreate, &begun, CU_EVENT_DEFAULT);
    CU(cuEventCreate, &ended, CU_EVENT_DEFAULT);
    CU(cuMemAlloc, &sum, 4096);
    measure_plain("plain", bytes);
    measure_handles("handles.2MiB", 2 * MIB, bytes);
    measure_handles("handles.512MiB", 512 * MIB, bytes);
    measure_plain("plain_again", bytes);
    return EXIT_SUCCESS;
}
