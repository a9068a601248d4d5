/* link: -l:libcuda.so.1 */
/* A program that runs ahead of its device. usage: run_ahead STREAMS
 *
 * Each stream is held up while blocks of 4 KiB to 8 MiB are allocated, used and freed in its order.
 * Then the streams go on, and what each block held at its free is checked. Prints the most bytes
 * that were live at once. */
#include "tests/preload/progs/program.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define STEPS 3000
#define STREAMS_MAX 4
#define LIVE_MAX 256
#define LIVE_BYTES ((size_t)256 << 20)

struct live {
    CUdeviceptr block;
    size_t bytes;
    uint32_t mark;
    unsigned stream;
};

static struct {
    CUstream streams[STREAMS_MAX];
    unsigned stream_count;
    struct live live[LIVE_MAX];
    unsigned count;
    size_t live_bytes;
    size_t live_peak;
    uint32_t *seen; /* of each mark: the block's start and end at its free */
    uint64_t random;
} program = {.random = 88172645463325252U};

static atomic_bool is_open;

static void hold(void *argument)
{
    (void)argument;
    while (!atomic_load(&is_open))
        usleep(200);
}

static uint64_t draw(uint64_t below)
{
    program.random ^= program.random << 13;
    program.random ^= program.random >> 7;
    program.random ^= program.random << 17;
    return (program.random >> 32) * below >> 32;
}

static CUdeviceptr end_of(const struct live *live)
{
    return live->block + live->bytes - sizeof(uint32_t);
}

static void take(size_t bytes, uint32_t mark)
{
    struct live *live = &program.live[program.count++];
    *live =
        (struct live){.bytes = bytes, .mark = mark, .stream = (unsigned)draw(program.stream_count)};
    CUstream stream = program.streams[live->stream];
    CHECK(cuMemAllocAsync(&live->block, bytes, stream));
    CHECK(cuMemsetD32Async(live->block, mark, 1, stream));
    CHECK(cuMemsetD32Async(end_of(live), mark, 1, stream));
    program.live_bytes += bytes;
    if (program.live_bytes > program.live_peak)
        program.live_peak = program.live_bytes;
}

static void give(unsigned i)
{
    const struct live live = program.live[i];
    uint32_t *seen = &program.seen[2 * live.mark];
    CUstream stream = program.streams[live.stream];
    program.live[i] = program.live[--program.count];
    program.live_bytes -= live.bytes;
    CHECK(cuMemcpyDtoHAsync(&seen[0], live.block, sizeof(uint32_t), stream));
    CHECK(cuMemcpyDtoHAsync(&seen[1], end_of(&live), sizeof(uint32_t), stream));
    CHECK(cuMemFreeAsync(live.block, stream));
}

static void step(uint32_t mark)
{
    const size_t power = (size_t)4096 << draw(11);
    const size_t bytes = (power + draw(power)) & ~(size_t)3;
    while (program.count == LIVE_MAX ||
           (program.count > 0 && program.live_bytes + bytes > LIVE_BYTES))
        give((unsigned)draw(program.count));
    take(bytes, mark);
    if (draw(3) == 0)
        give((unsigned)draw(program.count));
}

int main(int argument_count, char **arguments)
{
    void *seen;
    program_start();
    if (argument_count != 2 || atoi(arguments[1]) < 1 || atoi(arguments[1]) > STREAMS_MAX)
        return EXIT_FAILURE;
    program.stream_count = (unsigned)atoi(arguments[1]);
    CHECK(cuMemHostAlloc(&seen, 2 * STEPS * sizeof(uint32_t), 0));
    program.seen = seen;
    for (unsigned i = 0; i < program.stream_count; i++) {
        CHECK(cuStreamCreate(&program.streams[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuLaunchHostFunc(program.streams[i], hold, NULL));
    }
    for (uint32_t mark = 0; mark < STEPS; mark++)
        step(mark);
    while (program.count > 0)
        give(program.count - 1);
    atomic_store(&is_open, true);
    CHECK(cuCtxSynchronize());
    for (uint32_t i = 0; i < 2 * STEPS; i++)
        if (program.seen[i] != i / 2) {
            fprintf(stderr, "block %u held %u\n", i / 2, program.seen[i]);
            return EXIT_FAILURE;
        }
    printf("%zu\n", program.live_peak);
    return EXIT_SUCCESS;
}
