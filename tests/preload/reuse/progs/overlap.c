/* link: -l:libcuda.so.1 */
/* Blocking streams overlap though memory is freed and wanted meanwhile, and only streams with new
 * work are asked for an event. usage: overlap held|quiet|legacy|own
 *
 * held:   a blocking stream stands still with work on freed memory; another one's work, on memory
 *         that comes and goes, must get done meanwhile. An alarm ends a program that waits.
 * quiet:  many streams have had work and are idle; memory comes and goes with work on one of them,
 *         between two calls of cuDriverGetVersion that mark it in the driver's journal.
 * legacy: the same, and one operation in the legacy stream.
 * own:    the same, and one operation in the thread's own default stream. */
#include "tests/preload/progs/program.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define BYTES ((size_t)64 << 10)
#define STREAMS 24
/* Several fences, one for 512 frees and more; less than the share of the device that may be pending
 * before an allocation waits. */
#define LAPS 1000
#define ALARM_SECONDS 30

static CUstream streams[STREAMS];
static atomic_bool is_open;

static void hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_open))
        usleep(200);
}

static void come_and_go(CUstream stream)
{
    for (int i = 0; i < LAPS; i++) {
        const CUdeviceptr block = program_alloc(BYTES);

        CHECK(cuMemsetD8Async(block, 1, 16, stream));
        CHECK(cuMemFree(block));
        if (i % 16 == 0) /* the device keeps up */
            CHECK(cuStreamSynchronize(stream));
    }
    CHECK(cuStreamSynchronize(stream));
}

static void mark(void)
{
    int version;

    CHECK(cuDriverGetVersion(&version));
}

/* Work in several streams: from now on no stream's order counts. */
static void use_all_streams(CUdeviceptr block)
{
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuMemsetD8Async(block, 1, BYTES, streams[i]));
    come_and_go(streams[1]);
    CHECK(cuCtxSynchronize());
}

static void beside_held(void)
{
    const CUdeviceptr block = program_alloc(BYTES);

    use_all_streams(block);
    CHECK(cuLaunchHostFunc(streams[0], hold, NULL));
    CHECK(cuMemsetD8Async(block, 1, BYTES, streams[0]));
    CHECK(cuMemFree(block));
    come_and_go(streams[1]);
    atomic_store(&is_open, true);
}

static void beside_quiet(const char *what)
{
    const CUdeviceptr block = program_alloc(BYTES);

    use_all_streams(block);
    mark();
    if (strcmp(what, "legacy") == 0)
        CHECK(cuMemsetD8Async(block, 1, BYTES, CU_STREAM_LEGACY));
    if (strcmp(what, "own") == 0)
        CHECK(cuMemsetD8Async(block, 1, BYTES, CU_STREAM_PER_THREAD));
    come_and_go(streams[1]);
    mark();
    CHECK(cuMemFree(block));
}

int main(int argument_count, char **arguments)
{
    const char *what = argument_count > 1 ? arguments[1] : "";

    (void)program_start();
    alarm(ALARM_SECONDS);
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
    if (strcmp(what, "held") == 0)
        beside_held();
    else
        beside_quiet(what);
    CHECK(cuCtxSynchronize());
    printf("done\n");
    return EXIT_SUCCESS;
}
