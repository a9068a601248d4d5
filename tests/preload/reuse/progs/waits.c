/* link: -l:libcuda.so.1 -ldl */
/* The waits of the library, beside other threads that capture or end a stream: plain CUDA runs each
 * to its end, no capture is harmed, and no memory has what another's work wrote.
 *
 * usage: waits CASE. Prints what the capture's calls and the request answered.
 *
 * - destroy: a stream with work is being destroyed while another thread takes memory that it uses
 * - load: a library is loaded behind memory that serves again; another thread captures
 * - pool, global, local: a request waits for memory that a pool's stream, or plain work, still
 * uses; another thread begins a capture, global or its own
 * - free: a free waits for work; another thread begins a capture
 * - foreign: memory freed in a stream of another context serves again beside an endless one
 * - mutex: a function that the host runs in a stream waits for the mutex of the thread that makes a
 *   stream and a request, which find no memory
 * - long- before a case with a capture: the work lasts 5 s, and the capture begins within 3 s */
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BYTES (4 * MIB)
#define MANY (600 * MIB)
#define MORE (700 * MIB) /* not beside MANY on a device of 1 GiB */
#define ROUNDS 20
#define OLD 0xAA

static CUcontext context;
static CUstream streams[2];
static sem_t gate;
static int answer;
static useconds_t nap_us = 700000;

static void start(pthread_t *thread, void *(*function)(void *), void *argument)
{
    if (pthread_create(thread, NULL, function, argument) != 0)
        exit(EXIT_FAILURE);
}

static void nap(void *argument)
{
    (void)argument;
    usleep(nap_us);
}

static void wait_at_gate(void *argument)
{
    (void)argument;
    sem_wait(&gate);
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, bytes));
    return address;
}

/* ---- a stream ends ---- */

static void *take_and_fill(void *argument)
{
    CUdeviceptr *blocks = argument;
    CHECK(cuCtxSetCurrent(context));
    usleep(100000);
    for (int i = 0; i < ROUNDS; i++) {
        blocks[i] = take(BYTES);
        CHECK(cuMemsetD8Async(blocks[i], 0, BYTES, streams[1]));
        CHECK(cuStreamSynchronize(streams[1]));
        usleep(3000);
    }
    return NULL;
}

static void destroy(void)
{
    static CUdeviceptr blocks[ROUNDS];
    static unsigned char bytes[BYTES];
    pthread_t thread;
    unsigned wrong = 0;
    const CUdeviceptr before = take(BYTES), used = take(BYTES);
    CHECK(cuMemsetD8Async(before, 0, BYTES, streams[0]));
    CHECK(cuMemsetD8Async(used, 0, BYTES, streams[1]));
    CHECK(cuMemFree(before)); /* events that this needs need not be made later */
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(take(BYTES)));
    for (int i = 0; i < 3; i++) /* so that what is freed next is wanted */
        CHECK(cuMemsetD8Async(take(BYTES), 0, BYTES, streams[1]));
    CHECK(cuCtxSynchronize());
    CHECK(cuLaunchHostFunc(streams[0], nap, NULL));
    CHECK(cuMemsetD8Async(used, OLD, BYTES, streams[0]));
    start(&thread, take_and_fill, blocks);
    CHECK(cuMemFree(used));
    CHECK(cuStreamDestroy(streams[0]));
    pthread_join(thread, NULL);
    usleep(1000000);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(cuMemcpyDtoH(bytes, blocks[i], BYTES));
        wrong += memchr(bytes, OLD, BYTES) != NULL;
    }
    printf("wrong %u\n", wrong);
}

/* ---- a capture begins ---- */

static void *load(void *argument)
{
    (void)argument;
    CHECK(cuCtxSetCurrent(context));
    answer = dlopen("libutil.so.1", RTLD_NOW) == NULL;
    return NULL;
}

static void *request(void *argument)
{
    CUdeviceptr address;
    (void)argument;
    CHECK(cuCtxSetCurrent(context));
    answer = (int)cuMemAlloc(&address, MORE);
    return NULL;
}

static void capture_beside(void *(*wait)(void *), void *argument, CUstreamCaptureMode mode)
{
    const CUdeviceptr memory = take(BYTES);
    struct timespec before, after;
    pthread_t thread;
    CUgraph graph;
    int results[3];
    start(&thread, wait, argument);
    usleep(300000);
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK(cuStreamBeginCapture(streams[1], mode));
    clock_gettime(CLOCK_MONOTONIC, &after);
    if (after.tv_sec - before.tv_sec > 3)
        printf("begun after %d s\n", (int)(after.tv_sec - before.tv_sec));
    results[0] = (int)cuMemsetD8Async(memory, 1, MIB, streams[1]);
    usleep(300000);
    results[1] = (int)cuMemsetD8Async(memory, 1, MIB, streams[1]);
    results[2] = (int)cuStreamEndCapture(streams[1], &graph);
    pthread_join(thread, NULL);
    printf("capture %d %d %d\n", results[0], results[1], results[2]);
}

static void load_beside_capture(void)
{
    const CUdeviceptr first = take(BYTES);
    CHECK(cuLaunchHostFunc(streams[0], nap, NULL));
    CHECK(cuMemsetD8Async(first, 1, BYTES, streams[0]));
    CHECK(cuMemFree(first));
    CHECK(cuMemsetD8Async(take(BYTES), 1, BYTES, streams[0]));
    capture_beside(load, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* What is freed is still in use: the free waits, with GPUCACHE_REUSE=sync. */
static void *free_used(void *argument)
{
    const CUdeviceptr *used = argument;
    CHECK(cuCtxSetCurrent(context));
    answer = (int)cuMemFree(*used);
    return NULL;
}

static void free_beside_capture(void)
{
    static CUdeviceptr used;
    used = take(BYTES);
    CHECK(cuMemsetD8Async(take(BYTES), 1, MIB, streams[1])); /* there are several streams */
    CHECK(cuLaunchHostFunc(streams[0], nap, NULL));
    CHECK(cuMemsetD8Async(used, 1, MIB, streams[0]));
    capture_beside(free_used, &used, CU_STREAM_CAPTURE_MODE_RELAXED);
    printf("answer %d\n", answer);
}

static void request_beside_capture(bool is_of_pool, CUstreamCaptureMode mode)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUdeviceptr memory;
    CHECK(cuMemsetD8Async(take(BYTES), 1, MIB, streams[1])); /* there are several streams */
    CHECK(cuMemPoolCreate(&pool, &props));
    if (is_of_pool)
        CHECK(cuMemAllocFromPoolAsync(&memory, MANY, pool, streams[0]));
    else
        memory = take(MANY);
    CHECK(cuLaunchHostFunc(streams[0], nap, NULL));
    CHECK(cuMemsetD8Async(memory, 1, MIB, streams[0]));
    if (is_of_pool)
        CHECK(cuMemFreeAsync(memory, streams[0]));
    else
        CHECK(cuMemFree(memory));
    capture_beside(request, NULL, mode);
    if (!is_of_pool) /* which a driver may do better */
        printf("answer %d\n", answer);
}

/* ---- streams of another context ---- */

static void foreign(void)
{
    CUcontext other;
    CUstream stream;
    int refused = 0;
    CHECK(cuCtxCreate(&other, NULL, 0, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuLaunchHostFunc(streams[0], wait_at_gate, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr memory;
        if (cuMemAlloc(&memory, 100 * MIB) != CUDA_SUCCESS) {
            refused++;
            continue;
        }
        CHECK(cuMemsetD8Async(memory, 1, MIB, stream));
        CHECK(cuMemFreeAsync(memory, stream));
        CHECK(cuStreamSynchronize(stream));
    }
    sem_post(&gate);
    printf("refused %d\n", refused);
}

/* ---- a mutex ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_mutex(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static int seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int)(now.tv_sec - start->tv_sec);
}

/* The driver has no memory for the stream (SIMCUDA_FAIL), and none for the request. */
static void hold_mutex(void)
{
    struct timespec start;
    CUdeviceptr address;
    CUstream stream;
    (void)take(MANY);
    CHECK(cuMemsetD8Async(take(BYTES), 1, MIB, streams[1])); /* there are several streams */
    for (int i = 0; i < 2; i++) {                            /* a fence covers the first alone */
        const CUdeviceptr used = take(BYTES);
        CHECK(cuLaunchHostFunc(streams[0], nap, NULL));
        CHECK(cuMemsetD8Async(used, 1, BYTES, streams[0]));
        CHECK(cuMemFree(used));
    }
    pthread_mutex_lock(&mutex);
    CHECK(cuLaunchHostFunc(streams[0], wait_for_mutex, NULL));
    clock_gettime(CLOCK_MONOTONIC, &start);
    const int of_stream = (int)cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (seconds_since(&start) > 3)
        printf("stream after %d s\n", seconds_since(&start));
    clock_gettime(CLOCK_MONOTONIC, &start);
    const int of_request = (int)cuMemAlloc(&address, MORE);
    if (seconds_since(&start) > 40)
        printf("request after %d s\n", seconds_since(&start));
    pthread_mutex_unlock(&mutex);
    printf("stream %d, request %d\n", of_stream, of_request);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (strncmp(how, "long-", 5) == 0) {
        how += 5;
        nap_us = 5000000;
    }
    sem_init(&gate, 0, 0);
    context = program_start();
    for (int i = 0; i < 2; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    if (strcmp(how, "destroy") == 0)
        destroy();
    else if (strcmp(how, "load") == 0)
        load_beside_capture();
    else if (strcmp(how, "free") == 0)
        free_beside_capture();
    else if (strcmp(how, "mutex") == 0)
        hold_mutex();
    else if (strcmp(how, "foreign") == 0)
        foreign();
    else
        request_beside_capture(strcmp(how, "pool") == 0, strcmp(how, "local") == 0
                                                             ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                                             : CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(cuCtxSynchronize());
    return EXIT_SUCCESS;
}
