/* link: -l:libcuda.so.1 */
/* The cost of frees while work is queued. usage: reuse_cost free BYTES | loop ITERATIONS BYTES
 *
 * free: two streams stand still with work on blocks; freeing them and taking as much again must not
 * wait for it: the streams go on afterwards only, so waiting would never end, and an alarm ends it.
 * Checks what the blocks held.
 * loop: allocation, launch, free on two streams by turns, between two calls of cuDriverGetVersion
 * that mark it in the driver's journal. The program waits for the simulated device now and then, in
 * a way that the library does not see, so that the device keeps up on a machine of any speed. */
#include "tests/preload/progs/program.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 8
#define KEEPING_UP 16
#define ALARM_SECONDS 60

static const char kernel_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                  ".visible .entry touch(.param .u64 block)\n{\n    ret;\n}\n";

static CUstream streams[2];

static atomic_bool is_open;
static atomic_ulong arrived;

static void hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_open))
        usleep(200);
}

static void arrive(void *unused)
{
    (void)unused;
    atomic_fetch_add(&arrived, 1);
}

/* Until both streams have done all they were given. */
static void await_streams(void)
{
    const unsigned long wanted = atomic_load(&arrived) + 2;

    for (unsigned i = 0; i < 2; i++)
        CHECK(cuLaunchHostFunc(streams[i], arrive, NULL));
    while (atomic_load(&arrived) < wanted)
        sched_yield();
}

/* The content after the write of `value`, read behind it in the same stream. */
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
    const size_t sample = bytes < 4096 ? bytes : 4096;

    CHECK(cuMemHostAlloc((void **)&seen, 2 * BLOCKS * sample, 0));
    alarm(ALARM_SECONDS);
    for (unsigned i = 0; i < 2; i++)
        CHECK(cuLaunchHostFunc(streams[i], hold, NULL));
    for (unsigned i = 0; i < BLOCKS; i++) {
        old[i] = program_alloc(bytes);
        CHECK(cuMemsetD8Async(old[i], (unsigned char)(i + 1), bytes, streams[i % 2]));
        CHECK(cuMemcpyDtoHAsync(seen + i * sample, old[i], sample, streams[i % 2]));
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        CHECK(cuMemFree(old[i]));
    for (unsigned i = 0; i < BLOCKS; i++)
        new[i] = program_alloc(bytes);
    for (unsigned i = 0; i < BLOCKS; i++) { /* the other stream: not behind the old block's work */
        CHECK(cuMemsetD8Async(new[i], (unsigned char)(i + 101), bytes, streams[(i + 1) % 2]));
        CHECK(
            cuMemcpyDtoHAsync(seen + (BLOCKS + i) * sample, new[i], sample, streams[(i + 1) % 2]));
    }
    const CUresult busy = cuStreamQuery(streams[0]);
    atomic_store(&is_open, true);
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < BLOCKS; i++) {
        expect(seen + i * sample, (unsigned char)(i + 1), sample, "a freed block");
        expect(seen + (BLOCKS + i) * sample, (unsigned char)(i + 101), sample, "a new block");
        CHECK(cuMemFree(new[i]));
    }
    printf("busy %d\n", busy == CUDA_ERROR_NOT_READY);
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
        if (i % KEEPING_UP == 0)
            await_streams();
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
