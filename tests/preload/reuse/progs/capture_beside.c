/* link: -l:libcuda.so.1 -lpthread */
/* Calls that must go on beside captures. usage: capture_beside
 * abandoned|reborn|elsewhere|context|spread|held
 *
 * abandoned: threads end that have begun to capture in their own default stream; reborn: and a
 *            later thread captures in its own. Then memory comes and goes many times over.
 * elsewhere: a thread captures for as long as another one's memory comes and goes, on every device;
 *            when it begins most of the device is idle, or just freed.
 * context:   another context captures while this one's memory comes and goes, waited for.
 * spread:    a capture takes a stream of a second context in, of the last device, where memory
 * comes and goes; and it comes and goes in both once the capture is over. held:      memory of
 * cuMemAlloc is freed in a stream that waits for the host. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define BLOCK_BYTES ((size_t)64 << 20)
#define LAPS 100 /* several times the device */

static CUdevice device;
static CUcontext context;
static CUstream stream, second;

/* Memory of several devices in all; `is_waited`: with a wait for the context each time. */
static void come_and_go(bool is_waited)
{
    for (int i = 0; i < LAPS; i++) {
        const CUdeviceptr block = program_alloc(BLOCK_BYTES);

        CHECK(cuMemsetD8Async(block, 1, 4096, i % 2 == 0 ? stream : second));
        CHECK(is_waited ? cuCtxSynchronize() : cuStreamSynchronize(i % 2 == 0 ? stream : second));
        CHECK(cuMemFree(block));
    }
}

static void *abandon(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    return NULL;
}

static void *capture(void *unused)
{
    CUgraph graph;

    (void)abandon(unused);
    CHECK(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    CHECK(cuGraphDestroy(graph));
    return NULL;
}

static void run_thread(void *(*body)(void *))
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, body, NULL) != 0)
        exit(EXIT_FAILURE);
    pthread_join(thread, NULL);
}

/* Memory of sizes up to most of the device, used and freed in streams of all kinds. */
static void come_and_go_in_all_ways(void)
{
    CUstream streams[] = {NULL, NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    const size_t sizes[] = {1000, BLOCK_BYTES, 5 * BLOCK_BYTES, 24 * BLOCK_BYTES};

    CHECK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    for (unsigned i = 0; i < 2 * LAPS; i++) {
        const size_t bytes = sizes[i / 2 % 4];
        const CUdeviceptr block = program_alloc(bytes);

        CHECK(cuMemsetD8Async(block, 1, 1000, streams[i / 8 % 4]));
        if (i % 3 == 0)
            CHECK(cuStreamSynchronize(streams[i / 8 % 4]));
        CHECK(i % 2 == 0 ? cuMemFree(block) : cuMemFreeAsync(block, streams[i / 8 % 4]));
        if (i % 2 != 0)
            CHECK(cuStreamSynchronize(streams[i / 8 % 4]));
    }
    CHECK(cuStreamDestroy(streams[0]));
    CHECK(cuStreamDestroy(streams[1]));
}

/* Most of the device. */
static void fill_and_free(bool is_busy)
{
    CUdeviceptr blocks[28];

    for (int i = 0; i < 28; i++) {
        blocks[i] = program_alloc(BLOCK_BYTES);
        CHECK(cuMemsetD8Async(blocks[i], 1, 4096, i % 2 == 0 ? stream : second));
    }
    if (!is_busy)
        CHECK(cuCtxSynchronize());
    for (int i = 0; i < 28; i++)
        CHECK(cuMemFree(blocks[i]));
}

static pthread_barrier_t begun, ended;

static void *capture_for_long(void *unused)
{
    CUstream captured;
    CUgraph graph;

    (void)unused;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&ended);
    CHECK(cuStreamEndCapture(captured, &graph));
    CHECK(cuGraphDestroy(graph));
    return NULL;
}

static void come_and_go_on_all_devices(void)
{
    int count;

    CHECK(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++) {
        CUcontext own = NULL;

        if (i > 0)
            CHECK(cuDevicePrimaryCtxRetain(&own, i));
        CHECK(cuCtxSetCurrent(i > 0 ? own : context));
        come_and_go_in_all_ways();
    }
    CHECK(cuCtxSetCurrent(context));
}

static void beside_long_capture(bool is_busy)
{
    pthread_t thread;

    fill_and_free(is_busy);
    pthread_barrier_init(&begun, NULL, 2);
    pthread_barrier_init(&ended, NULL, 2);
    if (pthread_create(&thread, NULL, capture_for_long, NULL) != 0)
        exit(EXIT_FAILURE);
    pthread_barrier_wait(&begun);
    come_and_go(false);
    come_and_go_on_all_devices();
    pthread_barrier_wait(&ended);
    pthread_join(thread, NULL);
    come_and_go(false);
}

static CUdevice last_device(void)
{
    CUdevice last;
    int count;

    CHECK(cuDeviceGetCount(&count));
    CHECK(cuDeviceGet(&last, count - 1));
    return last;
}

/* In the current context. */
static void come_and_go_in_new_streams(void)
{
    CUstream streams[] = {stream, second};

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_DEFAULT));
    come_and_go(false);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuStreamDestroy(second));
    stream = streams[0];
    second = streams[1];
}

static void spread(bool is_joined)
{
    CUcontext other;
    CUstream joined;
    CUevent fork, join;
    CUgraph graph;
    CUdeviceptr blocks[8];

    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuCtxCreate(&other, NULL, 0, last_device()));
    CHECK(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    if (is_joined) {
        CHECK(cuEventRecord(fork, stream));
        CHECK(cuStreamWaitEvent(joined, fork, 0));
    }
    CHECK(cuCtxSetCurrent(other));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    if (is_joined) {
        /* An eighth of the device and more is pending, and memory is wanted. */
        for (int i = 0; i < 8; i++) {
            blocks[i] = program_alloc(BLOCK_BYTES);
            CHECK(cuMemsetD8Async(blocks[i], 1, 4096, second));
        }
        for (int i = 0; i < 8; i++)
            CHECK(cuMemFree(blocks[i]));
        CHECK(cuMemFree(program_alloc(BLOCK_BYTES)));
        come_and_go_in_new_streams();
        CHECK(cuEventRecord(join, joined));
    } else {
        CUstream streams[] = {stream, second};

        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        come_and_go(true);
        stream = streams[0];
    }
    CHECK(cuCtxSetCurrent(context));
    if (is_joined)
        CHECK(cuStreamWaitEvent(stream, join, 0));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    come_and_go_in_new_streams();
    CHECK(cuCtxSetCurrent(other));
    come_and_go_in_new_streams();
    CHECK(cuCtxSetCurrent(context));
}

static atomic_bool is_let_go;

static void CUDA_CB hold(void *unused)
{
    const struct timespec pause = {0, 1000000};

    (void)unused;
    while (!atomic_load(&is_let_go))
        nanosleep(&pause, NULL);
}

static void free_held(void)
{
    CUstream streams[] = {stream, second, CU_STREAM_PER_THREAD};
    CUdeviceptr blocks[3];
    size_t free_bytes[2], total;

    CHECK(cuMemGetInfo(&free_bytes[0], &total));
    for (int i = 0; i < 3; i++) {
        blocks[i] = program_alloc(BLOCK_BYTES);
        CHECK(cuMemsetD8Async(blocks[i], 1, 4096, streams[i]));
        CHECK(cuLaunchHostFunc(streams[i], hold, NULL));
    }
    for (int i = 0; i < 3; i++)
        CHECK(cuMemFreeAsync(blocks[i], streams[i]));
    (void)program_alloc(4096);
    atomic_store(&is_let_go, true);
    CHECK(cuCtxSynchronize());
    blocks[0] = program_alloc(BLOCK_BYTES); /* looks what has become idle */
    CHECK(cuMemFree(blocks[0]));
    CHECK(cuMemGetInfo(&free_bytes[1], &total));
    printf("free again: %d\n", free_bytes[0] - free_bytes[1] < BLOCK_BYTES);
}

int main(int argument_count, char **arguments)
{
    const char *what = argument_count > 1 ? arguments[1] : "";

    context = program_start();
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    if (strcmp(what, "abandoned") == 0 || strcmp(what, "reborn") == 0) {
        for (int i = 0; i < 3; i++)
            run_thread(abandon);
        if (strcmp(what, "reborn") == 0)
            run_thread(capture);
        come_and_go(false);
    } else if (strcmp(what, "elsewhere") == 0) {
        beside_long_capture(true);
        beside_long_capture(false);
    } else if (strcmp(what, "context") == 0 || strcmp(what, "spread") == 0) {
        spread(strcmp(what, "spread") == 0);
    } else if (strcmp(what, "held") == 0) {
        free_held();
    } else {
        return 2;
    }
    printf("done\n");
    return EXIT_SUCCESS;
}
