/* link: -l:libcuda.so.1 */
/* What freeing costs while work is queued. usage: reuse_cost free BYTES | loop ITERATIONS BYTES
 *
 * free: two streams work on blocks for a long time (SIMCUDA_WORK_US); freeing them and taking as
 * much again must not wait for it. Prints the nanoseconds of each, and checks what the blocks held.
 * loop: allocation, launch, free on two streams by turns, between two calls of cuDriverGetVersion
 * that mark it in the driver's journal. */
#include "program.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

#define BLOCKS 8
#define KEEPING_UP 500

static const char kernel_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                  ".visible .entry touch(.param .u64 block)\n{\n    ret;\n}\n";

static CUstream streams[2];

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What `value` was written with, read by the same stream behind it. */
static void expect(const unsigned char *bytes, unsigned char value, size_t count, const char *when)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value) {
            fprintf(stderr, "%s: byte %zu is %u, not %u\n", when, i, bytes[i], value);
            exit(EXIT_FAILURE);
        }
}

static int free_while_busy(size_t bytes)
{
    CUdeviceptr old[BLOCKS], new[BLOCKS];
    unsigned char *seen;
    uint64_t start, longest_free = 0, alloc_ns;
    const size_t sample = bytes < 4096 ? bytes : 4096;

    CHECK(cuMemHostAlloc((void **)&seen, 2 * BLOCKS * sample, 0));
    for (unsigned i = 0; i < BLOCKS; i++) {
        old[i] = program_alloc(bytes);
        CHECK(cuMemsetD8Async(old[i], (unsigned char)(i + 1), bytes, streams[i % 2]));
        CHECK(cuMemcpyDtoHAsync(seen + i * sample, old[i], sample, streams[i % 2]));
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        start = now_ns();
        CHECK(cuMemFree(old[i]));
        if (now_ns() - start > longest_free)
            longest_free = now_ns() - start;
    }
    start = now_ns();
    for (unsigned i = 0; i < BLOCKS; i++)
        new[i] = program_alloc(bytes);
    alloc_ns = now_ns() - start;
    for (unsigned i = 0; i < BLOCKS; i++) { /* the other stream: not behind the old block's work */
        CHECK(cuMemsetD8Async(new[i], (unsigned char)(i + 101), bytes, streams[(i + 1) % 2]));
        CHECK(
            cuMemcpyDtoHAsync(seen + (BLOCKS + i) * sample, new[i], sample, streams[(i + 1) % 2]));
    }
    const CUresult busy = cuStreamQuery(streams[0]);
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < BLOCKS; i++) {
        expect(seen + i * sample, (unsigned char)(i + 1), sample, "a freed block");
        expect(seen + (BLOCKS + i) * sample, (unsigned char)(i + 101), sample, "a new block");
        CHECK(cuMemFree(new[i]));
    }
    printf("free_ns %llu\nalloc_ns %llu\nbusy %d\n", (unsigned long long)longest_free,
           (unsigned long long)alloc_ns, busy == CUDA_ERROR_NOT_READY);
    return EXIT_SUCCESS;
}

static int loop(unsigned long iterations, size_t bytes)
{
    CUfunction kernel;
    CUmodule module;
    int version;

    CHECK(cuModuleLoadData(&module, kernel_text));
    CHECK(cuModuleGetFunction(&kernel, module, "touch"));
    for (unsigned long i = 0; i < 4 * iterations; i++) {
        CUdeviceptr block;
        void *parameters[] = {&block};

        if (i == 3 * iterations) /* what came before was to get used to it */
            CHECK(cuDriverGetVersion(&version));
        block = program_alloc(bytes);
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, streams[i % 2], parameters, NULL));
        CHECK(cuMemFree(block));
        if (i % KEEPING_UP == 0) /* the simulated device may be slower than the program */
            for (unsigned k = 0; k < 2; k++)
                CHECK(cuStreamSynchronize(streams[k]));
    }
    CHECK(cuDriverGetVersion(&version));
    CHECK(cuCtxSynchronize());
    return EXIT_SUCCESS;
}

int main(int argument_count, char **arguments)
{
    if (argument_count < 3)
        return 2;
    program_start();
    for (unsigned i = 0; i < 2; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    if (strcmp(arguments[1], "free") == 0)
        return free_while_busy(strtoull(arguments[2], NULL, 10));
    return argument_count == 4
               ? loop(strtoul(arguments[2], NULL, 10), strtoull(arguments[3], NULL, 10))
               : 2;
}
