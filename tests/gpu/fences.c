/* The price of fences where many streams work at once. usage: fences STREAMS blocking|others
 * [frees|conservative]
 *
 * Each stream gets kernels of 200 microseconds one behind another, and between two of them a block
 * is allocated and freed: with `frees`. `conservative`: the same after a library was loaded that
 * reaches the driver past the preload, so that the library waits for work that it has not seen.
 * Prints the time of a round over all streams, how many kernels ran at once on average, what an
 * allocation and its free take of the host, and under the library the fences of a round and the
 * host's time in allocations and frees for each. */
#define _GNU_SOURCE
#include "core/gpucache.h"
#include "tests/gpu/gpu.h"

#define STREAMS_MAX 256
#define KERNEL_NS 200000
#define BLOCK MIB

/* Fences so far; 0 without the library. */
static uint64_t fence_count(void)
{
    gpucache_status (*get)(int, struct gpucache_statistics *) = NULL;
    struct gpucache_statistics figures;

    *(void **)&get = dlsym(RTLD_DEFAULT, "gpucache_get_statistics");
    memset(&figures, 0, sizeof(figures));
    figures.struct_bytes = sizeof(figures);
    return get != NULL && get(0, &figures) == 0 ? figures.fence_count : 0;
}

/* Beside the program. */
static void load_aside(void)
{
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);

    if (length < 0)
        exit(EXIT_FAILURE);
    path[length] = '\0';
    strcpy(strrchr(path, '/'), "/libaside.so");
    if (dlopen(path, RTLD_NOW | RTLD_DEEPBIND) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
}

int main(int argument_count, char **arguments)
{
    static CUstream streams[STREAMS_MAX];
    const int count = argument_count > 2 ? atoi(arguments[1]) : 0;
    const bool is_blocking = argument_count > 2 && strcmp(arguments[2], "blocking") == 0;
    const bool has_frees = argument_count > 3;
    uint64_t pairs_ns = 0, fences = 0;

    if (count < 1 || count > STREAMS_MAX)
        return 2;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    gpu_open();
    if (has_frees && strcmp(arguments[3], "conservative") == 0)
        load_aside();
    const int turns = gpu.is_short ? 3 : 40;
    for (int i = 0; i < count; i++)
        CU(cuStreamCreate, &streams[i], is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    for (int turn = -1; turn < turns; turn++) {
        static uint64_t start_ns;
        if (turn == 0) { /* the first turn warms up */
            CU(cuCtxSynchronize);
            fences = fence_count();
            pairs_ns = 0;
            start_ns = now_ns();
        }
        for (int i = 0; i < count; i++) {
            CUdeviceptr block = 0;
            const uint64_t alloc_ns = now_ns();
            if (has_frees)
                CU(cuMemAlloc, &block, BLOCK);
            pairs_ns += now_ns() - alloc_ns;
            gpu_spin(streams[i], KERNEL_NS);
            const uint64_t free_ns = now_ns();
            if (has_frees)
                CU(cuMemFree, block);
            pairs_ns += now_ns() - free_ns;
        }
        if (turn == turns - 1) {
            CU(cuCtxSynchronize);
            const double us = us_since(start_ns) / turns;
            row(us, "us", "round");
            row(count * (KERNEL_NS / 1000.0) / us, "kernels", "overlap");
            fences = fence_count() - fences;
            if (has_frees)
                row((double)pairs_ns / 1e3 / turns / count, "us", "pair");
            if (fences > 0) {
                row((double)fences / turns, "fences", "fences");
                row((double)pairs_ns / 1e3 / (double)fences, "us", "pairs_per_fence");
            }
        }
    }
    return EXIT_SUCCESS;
}
