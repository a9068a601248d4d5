/* Runs of handles: the cost of taking, mapping and giving back a large amount of device memory in
 * handles of one size, and of the process's exit with it.
 * usage: runs grid | failing | exit | slab
 *
 * grid: handles of 2, 20, 64 and 512 MiB, 2, 32 and 120 GiB together, without and with the RDMA
 * flag; one SetAccess over the whole run. failing: 120 GiB asked for with 30 GiB free. exit: from a
 * process's call of exit to its end, with as much. slab: the kernel's own memory. */
#include "tests/gpu/gpu.h"

#include <sys/wait.h>

#define NOT_FREE 3              /* status of a child */
#define RUN_NS_MAX (20000 * MS) /* for the creations of one run; it is then measured as it is */

struct run {
    CUmemGenericAllocationHandle *handles;
    uint64_t count, handle_bytes;
    CUdeviceptr range;
    uint64_t range_bytes;
};

static size_t free_bytes(void)
{
    size_t available = 0, total;

    CU(cuMemGetInfo, &available, &total);
    return available;
}

/* Creates handles until there are enough, the driver refuses, or time is over. The last result. */
static CUresult create(struct run *run, uint64_t handle_bytes, uint64_t bytes, bool has_rdma)
{
    const CUmemAllocationProp properties = memory_of(has_rdma);
    const uint64_t start_ns = now_ns(), wanted = bytes / handle_bytes;
    CUresult result = CUDA_SUCCESS;

    *run = (struct run){.handle_bytes = handle_bytes};
    run->handles = calloc(wanted, sizeof(*run->handles));
    while (run->count < wanted && result == CUDA_SUCCESS && now_ns() - start_ns < RUN_NS_MAX) {
        result = cu.cuMemCreate(&run->handles[run->count], handle_bytes, &properties, 0);
        run->count += result == CUDA_SUCCESS;
    }
    return result;
}

static void map(struct run *run)
{
    run->range_bytes = run->count * run->handle_bytes;
    CU(cuMemAddressReserve, &run->range, run->range_bytes, 0, 0, 0);
    for (uint64_t i = 0; i < run->count; i++)
        CU(cuMemMap, run->range + i * run->handle_bytes, run->handle_bytes, 0, run->handles[i], 0);
}

static void release(struct run *run)
{
    for (uint64_t i = 0; i < run->count; i++)
        CU(cuMemRelease, run->handles[i]);
    free(run->handles);
}

static void measure(uint64_t handle_bytes, uint64_t bytes, bool has_rdma)
{
    struct run run;
    double us[5];
    static const char *const steps[5] = {"create", "map", "access", "unmap", "release"};
    uint64_t start_ns = now_ns();
    CUresult result = create(&run, handle_bytes, bytes, has_rdma);

    us[0] = us_since(start_ns);
    if (run.count == 0) {
        row(result, "code", "%s.%s.rdma%d.create", size_name(handle_bytes), size_name(bytes),
            has_rdma);
        free(run.handles);
        return;
    }
    start_ns = now_ns();
    map(&run);
    us[1] = us_since(start_ns);
    start_ns = now_ns();
    result = open_access(run.range, run.range_bytes);
    us[2] = us_since(start_ns);
    row(result, "code", "%s.%s.rdma%d.access", size_name(handle_bytes), size_name(bytes), has_rdma);
    start_ns = now_ns();
    CU(cuMemUnmap, run.range, run.range_bytes);
    us[3] = us_since(start_ns);
    CU(cuMemAddressFree, run.range, run.range_bytes);
    start_ns = now_ns();
    const uint64_t count = run.count;
    release(&run);
    us[4] = us_since(start_ns);
    for (unsigned i = 0; i < 5; i++)
        row(us[i] / (double)count, "us", "%s.%s.rdma%d.%s.handle", size_name(handle_bytes),
            size_name(bytes), has_rdma, steps[i]);
    row((us[0] + us[1] + us[2] + us[3] + us[4]) / 1e6 * (double)bytes /
            (double)(count * handle_bytes),
        "s", "%s.%s.rdma%d.all", size_name(handle_bytes), size_name(bytes), has_rdma);
}

static void skip_run(uint64_t handle_bytes, uint64_t bytes, int flag)
{
    char name[64];

    snprintf(name, sizeof(name), "%s.%s.rdma%d.*", size_name(handle_bytes), size_name(bytes), flag);
    skip(name, "the device has not as much free");
}

static void measure_grid(void)
{
    static const uint64_t handles[] = {512 * MIB, 64 * MIB, 20 * MIB, 2 * MIB};
    static const uint64_t totals[] = {2 * GIB, 32 * GIB, 120 * GIB};
    const bool has_rdma =
        gpu_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) == 1;

    if (!has_rdma)
        skip("*.rdma1.*", "the device has no RDMA of mapped memory");
    for (unsigned t = 0; t < 3; t++)
        for (unsigned h = 0; h < 4; h++)
            for (int flag = 0; flag <= has_rdma; flag++) {
                if (totals[t] + GIB > free_bytes())
                    skip_run(handles[h], totals[t], flag);
                else if (!gpu.is_short || totals[t] / handles[h] <= 1024)
                    measure(handles[h], totals[t], flag != 0);
            }
}

/* A request that fails, made by the driver, in handles of 2 MiB, and of 512 MiB. Under the library
 * the first two are the library's. */
static void measure_failing(void)
{
    static const uint64_t sizes[] = {512 * MIB, 2 * MIB};
    const uint64_t wanted = gpu.is_short ? 8 * GIB : 120 * GIB;
    const uint64_t left = wanted / 4;
    const size_t available = free_bytes();
    struct run filler, run;
    CUdeviceptr block = 0;

    (void)create(&filler, 512 * MIB, available > left ? available - left : 0, false);
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t start_ns = now_ns();
        const CUresult result = cu.cuMemAlloc(&block, wanted);
        row(us_since(start_ns), "us", "alloc.%u", i);
        row(result, "code", "alloc.%u.code", i);
    }
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t start_ns = now_ns();
        const CUresult result = create(&run, sizes[i], wanted, false);
        row(us_since(start_ns), "us", "handles.%s.create", size_name(sizes[i]));
        row(result, "code", "handles.%s.code", size_name(sizes[i]));
        const uint64_t release_ns = now_ns();
        release(&run);
        row(us_since(release_ns), "us", "handles.%s.release", size_name(sizes[i]));
    }
    uint64_t start_ns = now_ns();
    const CUmemAllocationProp properties = memory_of(false);
    CUmemGenericAllocationHandle handle;
    row_code(cu.cuMemCreate(&handle, wanted, &properties, 0), "handle.whole.code");
    row(us_since(start_ns), "us", "handle.whole");
    release(&filler);
}

/* A process that has taken memory this way ends. */
static void measure_exit(const char *how, uint64_t handle_bytes, uint64_t bytes)
{
    const char *size = size_name(bytes);
    int ends[2];
    uint64_t begun_ns = 0;
    int status = 0;

    if (pipe(ends) != 0)
        exit(EXIT_FAILURE);
    fflush(stdout);
    const pid_t child = fork(); /* before CUDA */
    if (child == 0) {
        struct run run = {.count = 0};
        CUdeviceptr block;
        gpu_open();
        if (bytes + GIB > free_bytes())
            _exit(NOT_FREE);
        if (handle_bytes != 0) {
            (void)create(&run, handle_bytes, bytes, false);
            map(&run);
            gpu_check(open_access(run.range, run.range_bytes), "cuMemSetAccess", __FILE__,
                      __LINE__);
        } else {
            CU(cuMemAlloc, &block, bytes);
        }
        begun_ns = now_ns();
        if (write(ends[1], &begun_ns, sizeof(begun_ns)) < 0)
            _exit(EXIT_FAILURE);
        exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], &begun_ns, sizeof(begun_ns));
    close(ends[0]);
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FREE) {
        char name[64];
        snprintf(name, sizeof(name), "exit.%s.%s*", how, size);
        skip(name, "the device has not as much free");
        return;
    }
    if (got == sizeof(begun_ns))
        row((double)(now_ns() - begun_ns) / 1e6, "ms", "exit.%s.%s", how, size);
    row(status, "status", "exit.%s.%s.status", how, size);
}

static double slab_bytes(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *stream = fopen("/proc/meminfo", "r");

    while (stream != NULL && fgets(line, sizeof(line), stream) != NULL)
        if (sscanf(line, "Slab: %llu kB", &kib) == 1)
            break;
    if (stream != NULL)
        fclose(stream);
    return (double)kib * 1024;
}

static void measure_slab(void)
{
    const uint64_t bytes = gpu.is_short ? 2 * GIB : 32 * GIB;
    struct run run;
    const double before = slab_bytes();

    (void)create(&run, 2 * MIB, bytes, false);
    map(&run);
    gpu_check(open_access(run.range, run.range_bytes), "cuMemSetAccess", __FILE__, __LINE__);
    row((slab_bytes() - before) / (double)run.count, "bytes", "slab.handle");
    CU(cuMemUnmap, run.range, run.range_bytes);
    CU(cuMemAddressFree, run.range, run.range_bytes);
    release(&run);
    row((slab_bytes() - before) / 1024, "KiB", "slab.kept");
}

int main(int argument_count, char **arguments)
{
    const char *what = argument_count > 1 ? arguments[1] : "";
    const bool is_short = gpu_is_set("GPU_SHORT");

    if (strcmp(what, "exit") == 0) {
        for (unsigned i = 0; i < 3; i++) {
            static const uint64_t totals[] = {2 * GIB, 32 * GIB, 120 * GIB};
            const uint64_t bytes = is_short ? 512 * MIB << i : totals[i];
            measure_exit("plain", 0, bytes);
            measure_exit("handles.2MiB", 2 * MIB, bytes);
            measure_exit("handles.512MiB", 512 * MIB, bytes);
        }
        return EXIT_SUCCESS;
    }
    gpu_open();
    if (strcmp(what, "grid") == 0)
        measure_grid();
    else if (strcmp(what, "failing") == 0)
        measure_failing();
    else if (strcmp(what, "slab") == 0)
        measure_slab();
    else
        return 2;
    return EXIT_SUCCESS;
}
