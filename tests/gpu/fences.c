/* The price of fences where many streams work at once. usage: fences STREAMS blocking|others
 * [frees]
 *
 * Each stream gets kernels of 200 microseconds one behind another, and between two of them a block
 * is allocated and freed: with `frees`. Prints the time of a round over all streams, and how many
 * kernels ran at once on average. */
#include "tests/gpu/gpu.h"

#define STREAMS_MAX 256
#define KERNEL_NS 200000
#define BLOCK MIB

int main(int argument_count, char **arguments)
{
    static CUstream streams[STREAMS_MAX];
    const int count = argument_count > 2 ? atoi(arguments[1]) : 0;
    const bool is_blocking = argument_count > 2 && strcmp(arguments[2], "blocking") == 0;
    const bool has_frees = argument_count > 3;

    if (count < 1 || count > STREAMS_MAX)
        return 2;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    gpu_open();
    const int turns = gpu.is_short ? 3 : 40;
    for (int i = 0; i < count; i++)
        CU(cuStreamCreate, &streams[i], is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    for (int turn = -1; turn < turns; turn++) {
        static uint64_t start_ns;
        if (turn == 0) { /* the first turn warms up */
            CU(cuCtxSynchronize);
            start_ns = now_ns();
        }
        for (int i = 0; i < count; i++) {
            CUdeviceptr block = 0;
            if (has_frees)
                CU(cuMemAlloc, &block, BLOCK);
            gpu_spin(streams[i], KERNEL_NS);
            if (has_frees)
                CU(cuMemFree, block);
        }
        if (turn == turns - 1) {
            CU(cuCtxSynchronize);
            const double us = us_since(start_ns) / turns;
            row(us, "us", "round");
            row(count * (KERNEL_NS / 1000.0) / us, "kernels", "overlap");
        }
    }
    return EXIT_SUCCESS;
}
