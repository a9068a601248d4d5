/* link: -l:libcuda.so.1 */
/* Contexts come and go in several threads while others take memory, release idle memory, pause, and
 * make elastic pools. usage: context_ends SECONDS SEED THREADS [reckless]
 *
 * Each thread is right by CUDA's rules: nobody uses a context that another destroys, the primary
 * one is used while it is retained, and reset while nobody does. The content of each block is
 * checked when its work is done. So any error but a lack of memory is a fault, and so is a wrong
 * byte.
 *
 * reckless: besides, threads use each other's contexts without asking. Then calls may fail, and
 * what a block holds is not looked at; the program must go on. */
#include "tests/preload/progs/public.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define BLOCKS 6
#define SHARED 4
#define LONGEST_MS 500

static struct {
    time_t end_time;
    bool is_reckless;
    CUcontext lasting;
    _Atomic(CUcontext) shared[SHARED]; /* of a reckless run */
    pthread_rwlock_t primary;          /* written: it is reset */
    pthread_rwlock_t pause;            /* written: the process is paused */
    atomic_uint counts[8];
} world = {.primary = PTHREAD_RWLOCK_INITIALIZER, .pause = PTHREAD_RWLOCK_INITIALIZER};

static __thread uint64_t state;
static __thread unsigned char *host;

static uint64_t pick(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

/* Whether it was done; a right program's call fails for want of memory only. */
static bool done(CUresult result, const char *call, int line)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && !world.is_reckless)
        program_check(result, call, line);
    return result == CUDA_SUCCESS;
}
#define DONE(call) done((call), #call, __LINE__)

/* ---- memory ---- */

/* Work on each block is queued, some blocks are freed behind it; what they held is read back. */
static void use_memory(void)
{
    const unsigned char first = (unsigned char)(1 + pick(200));
    CUdeviceptr blocks[BLOCKS];
    size_t bytes[BLOCKS];
    unsigned count = 0;
    CUstream stream = NULL;

    if (pick(2) == 0 && !DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
        return;
    while (count < BLOCKS) {
        bytes[count] = 1 + pick((size_t)1 << (8 + pick(17)));
        if (!DONE(cuMemAlloc(&blocks[count], bytes[count])))
            break;
        (void)DONE(
            cuMemsetD8Async(blocks[count], (unsigned char)(first + count), bytes[count], stream));
        (void)DONE(cuMemcpyDtoHAsync(&host[2 * count], blocks[count], 1, stream));
        (void)DONE(
            cuMemcpyDtoHAsync(&host[2 * count + 1], blocks[count] + bytes[count] - 1, 1, stream));
        count++;
    }
    for (unsigned i = 0; i < count; i++)
        if (pick(3) != 0)
            (void)DONE(cuMemFree(blocks[i]));
    const bool is_read = DONE(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 2 * count && is_read && !world.is_reckless; i++)
        EXPECT(host[i] == (unsigned char)(first + i / 2));
    if (stream != NULL)
        (void)DONE(cuStreamDestroy(stream));
}

/* In the context that lasts nothing may be left behind. */
static void use_lasting(void)
{
    const unsigned char value = (unsigned char)pick(256);
    const size_t bytes = 1 + pick((size_t)16 << 20);
    CUdeviceptr block;

    (void)DONE(cuCtxPushCurrent(world.lasting));
    if (DONE(cuMemAlloc(&block, bytes))) {
        (void)DONE(cuMemsetD8Async(block, value, bytes, NULL));
        (void)DONE(cuMemcpyDtoH(host, block + bytes - 1, 1));
        EXPECT(host[0] == value || world.is_reckless);
        (void)DONE(cuMemFree(block));
    }
    (void)DONE(cuCtxPopCurrent(NULL));
}

/* ---- contexts ---- */

static void use_shared(void)
{
    const CUcontext context = atomic_load(&world.shared[pick(SHARED)]);
    if (context == NULL || cuCtxPushCurrent(context) != CUDA_SUCCESS)
        return;
    use_memory();
    (void)cuCtxPopCurrent(NULL);
}

static void use_created(void)
{
    CUcontext context;

    if (!DONE(cuCtxCreate(&context, NULL, 0, 0)))
        return;
    if (world.is_reckless)
        atomic_store(&world.shared[pick(SHARED)], context);
    for (uint64_t i = pick(4); i > 0; i--)
        use_memory();
    (void)DONE(cuCtxDestroy(context));
}

static void use_primary(void)
{
    CUcontext context;

    if (!world.is_reckless)
        pthread_rwlock_rdlock(&world.primary);
    if (DONE(cuDevicePrimaryCtxRetain(&context, 0))) {
        (void)DONE(cuCtxPushCurrent(context));
        for (uint64_t i = pick(3); i > 0; i--)
            use_memory();
        (void)DONE(cuCtxPopCurrent(NULL));
        (void)DONE(cuDevicePrimaryCtxRelease(0));
    }
    if (!world.is_reckless)
        pthread_rwlock_unlock(&world.primary);
}

static void reset_primary(void)
{
    if (!world.is_reckless && pthread_rwlock_trywrlock(&world.primary) != 0)
        return;
    (void)DONE(cuDevicePrimaryCtxReset(0));
    if (!world.is_reckless)
        pthread_rwlock_unlock(&world.primary);
}

/* ---- what the library is asked ---- */

static void is_one_of(gpucache_status status, gpucache_status other, const char *call, int line)
{
    if (status != other && !world.is_reckless)
        expect_status(status, GPUCACHE_OK, call, line);
}
#define OK_OR(other, call) is_one_of((call), (other), #call, __LINE__)

static void use_elastic(void)
{
    gpucache_elastic pool;

    (void)DONE(cuCtxPushCurrent(world.lasting));
    const gpucache_status status = gc.gpucache_elastic_create(0, 8 << 20, 0, 0, &pool, NULL);
    if (status == GPUCACHE_OK) {
        OK_OR(GPUCACHE_OUT_OF_MEMORY, gc.gpucache_elastic_allocate(pool, 0, 4 << 20));
        EXPECT_STATUS(gc.gpucache_elastic_destroy(pool), GPUCACHE_OK);
    } else {
        OK_OR(GPUCACHE_OUT_OF_MEMORY, status);
    }
    (void)DONE(cuCtxPopCurrent(NULL));
}

static void release_memory(void)
{
    uint64_t given;

    (void)DONE(cuCtxPushCurrent(world.lasting));
    if (pick(2) == 0)
        EXPECT_STATUS(gc.gpucache_empty_cache(0, &given), GPUCACHE_OK);
    else
        EXPECT_STATUS(gc.gpucache_trim(0, pick(64 << 20), &given), GPUCACHE_OK);
    (void)DONE(cuCtxPopCurrent(NULL));
}

/* Work waits meanwhile, contexts end and begin. Prints a line where it cannot be done. */
static void pause(void)
{
    const struct timespec moment = {0, 1000000};

    if (pthread_rwlock_trywrlock(&world.pause) != 0)
        return;
    if (gc.gpucache_pause(1, LONGEST_MS, NULL) == GPUCACHE_OK) {
        nanosleep(&moment, NULL);
        while (gc.gpucache_resume(NULL) != GPUCACHE_OK)
            nanosleep(&moment, NULL);
        atomic_fetch_add(&world.counts[7], 1);
    }
    pthread_rwlock_unlock(&world.pause);
}

/* ---- threads ---- */

static void *work(void *argument)
{
    static void (*const steps[])(void) = {use_created, use_primary,    use_lasting,
                                          use_elastic, release_memory, reset_primary};
    static const unsigned char thresholds[] = {30, 60, 85, 92, 97, 98};

    state = (uint64_t)(uintptr_t)argument * UINT64_C(0x9e3779b97f4a7c15) | 1;
    CHECK(cuCtxSetCurrent(world.lasting));
    CHECK(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
    while (time(NULL) < world.end_time) {
        const uint64_t percent = pick(100);
        unsigned i = 0;
        while (i < sizeof(thresholds) && percent >= thresholds[i])
            i++;
        if (i < sizeof(thresholds)) {
            steps[i]();
            atomic_fetch_add(&world.counts[i], 1);
        } else if (world.is_reckless) {
            use_shared();
        } else {
            pause();
        }
    }
    return NULL;
}

int main(int argument_count, char **arguments)
{
    pthread_t threads[16];

    if (argument_count < 4 || atoi(arguments[3]) < 1 || atoi(arguments[3]) > 16)
        return 2;
    const uintptr_t thread_count = (uintptr_t)atoi(arguments[3]);
    world.end_time = time(NULL) + atoi(arguments[1]);
    world.is_reckless = argument_count > 4;
    CHECK(cuInit(0));
    CHECK(cuCtxCreate(&world.lasting, NULL, 0, 0));
    EXPECT_STATUS(gpucache_load(NULL, &gc), GPUCACHE_OK);
    for (uintptr_t i = 0; i < thread_count; i++)
        EXPECT(pthread_create(&threads[i], NULL, work,
                              (void *)(strtoull(arguments[2], NULL, 10) * 16 + i)) == 0);
    for (uintptr_t i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
    (void)DONE(cuCtxDestroy(world.lasting));
    printf("created %u primary %u lasting %u elastic %u given back %u reset %u paused %u\n",
           world.counts[0], world.counts[1], world.counts[2], world.counts[3], world.counts[4],
           world.counts[5], world.counts[7]);
    return EXIT_SUCCESS;
}
