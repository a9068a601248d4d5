/* link: -l:libcuda.so.1 */
/* A block is freed while work that uses it is held up on one stream, of each kind in turn, and all
 * other streams are idle: however often memory is requested, it is not reused before that stream
 * goes on, and is soon after. One line for each kind that went wrong; prints how many kinds were
 * looked at. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)
#define ATTEMPTS 12 /* and as many more for each kind before, which left them free */

enum kind { LEGACY, BLOCKING, NON_BLOCKING, WITH_PRIORITY, DESTROYED, OF_THREAD, KIND_COUNT };

static atomic_bool is_open;

static void hold(void *argument)
{
    (void)argument;
    while (!atomic_load(&is_open))
        usleep(200);
}

static void *create_in_thread(void *argument)
{
    CUcontext context;

    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(argument, CU_STREAM_NON_BLOCKING));
    return NULL;
}

static CUstream create(enum kind kind)
{
    CUstream stream = NULL;
    pthread_t thread;

    if (kind == WITH_PRIORITY)
        CHECK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    else if (kind == OF_THREAD && pthread_create(&thread, NULL, create_in_thread, &stream) == 0)
        pthread_join(thread, NULL);
    else if (kind != LEGACY)
        CHECK(
            cuStreamCreate(&stream, kind == BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    return stream;
}

/* Whether one of some new blocks is the old one. */
static bool comes_back(CUdeviceptr old, int count)
{
    CUdeviceptr blocks[ATTEMPTS * KIND_COUNT];
    bool is_back = false;

    for (int i = 0; i < count; i++) {
        CHECK(cuMemAlloc(&blocks[i], BYTES));
        usleep(300); /* for events to be seen */
        is_back |= blocks[i] < old + BYTES && old < blocks[i] + BYTES;
    }
    for (int i = 0; i < count; i++)
        CHECK(cuMemFree(blocks[i]));
    return is_back;
}

static bool is_fenced(enum kind kind)
{
    CUstream stream = create(kind);
    CUdeviceptr block;

    atomic_store(&is_open, false);
    CHECK(cuMemAlloc(&block, BYTES));
    CHECK(cuLaunchHostFunc(stream, hold, NULL));
    CHECK(cuMemsetD8Async(block, 1, BYTES, stream));
    if (kind == DESTROYED)
        CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(block));
    const int attempts = ATTEMPTS * ((int)kind + 1);
    bool is_early = comes_back(block, attempts);
    atomic_store(&is_open, true);
    bool is_late = true;
    for (int i = 0; is_late && i < 200; i++) {
        usleep(2000);
        is_late = !comes_back(block, attempts);
    }
    if (stream != NULL && kind != DESTROYED)
        CHECK(cuStreamDestroy(stream));
    CHECK(cuCtxSynchronize());
    if (is_early || is_late)
        printf("kind %d: %s\n", kind, is_early ? "reused too early" : "never reused");
    return !is_early && !is_late;
}

int main(void)
{
    CUcontext context;
    CUstream idle[2];
    CUdeviceptr block;
    int right = 0;

    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&block, BYTES));
    for (int i = 0; i < 2; i++) {
        CHECK(cuStreamCreate(&idle[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemsetD8Async(block, 1, BYTES, idle[i]));
    }
    CHECK(cuCtxSynchronize());
    for (int kind = 0; kind < KIND_COUNT; kind++)
        right += is_fenced((enum kind)kind);
    printf("%d of %d\n", right, KIND_COUNT);
    return 0;
}
