/* link: -l:libcuda.so.1 */
/* A library whose destructor frees device memory and takes more: for `ends object`, and before or
 * behind ours in a preload. Or whose destructor ends threads that have freed memory of several
 * sizes, and free and take some once more: for `ends object-threads`. Or whose destructor reads,
 * fills and takes memory: for `ends object-work`. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

__attribute__((visibility("default"))) void ends_hold(CUdeviceptr block);

__attribute__((visibility("default"))) void ends_start_threads(CUcontext context);

__attribute__((visibility("default"))) void ends_work(CUcontext context, CUdeviceptr block,
                                                      size_t bytes, bool has_thread);

#define THREADS 4
#define SIZES 12

static CUdeviceptr held;
static pthread_t threads[THREADS];
static sem_t ready, over;
static bool has_threads;
static CUdeviceptr worked;
static size_t worked_bytes;
static atomic_bool is_worker_over;
static pthread_t worker;
static bool has_worker;

void ends_hold(CUdeviceptr block)
{
    held = block;
}

/* The driver may be done by then. */
static bool is_expected(CUresult result)
{
    return result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED;
}

static void *use_and_wait(void *context)
{
    CUdeviceptr blocks[SIZES], other = 0;

    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < SIZES; i++)
        CHECK(cuMemAlloc(&blocks[i], (size_t)512 << i));
    for (int i = 1; i < SIZES; i++)
        CHECK(cuMemFree(blocks[i])); /* the thread keeps them */
    sem_post(&ready);
    sem_wait(&over);
    if (!is_expected(cuMemFree(blocks[0])) || !is_expected(cuMemAlloc(&other, 1 << 20)))
        printf("a late call failed\n");
    return NULL;
}

void ends_start_threads(CUcontext context)
{
    sem_init(&ready, 0, 0);
    sem_init(&over, 0, 0);
    has_threads = true;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, use_and_wait, context) != 0)
            exit(EXIT_FAILURE);
    for (int i = 0; i < THREADS; i++)
        sem_wait(&ready);
}

/* "ok", "wrong", or that the driver refuses. */
static const char *look(CUdeviceptr block, unsigned char want)
{
    unsigned char *seen = malloc(worked_bytes);
    const CUresult result = cuMemcpyDtoH(seen, block, worked_bytes);
    const bool is_right =
        result == CUDA_SUCCESS && seen[0] == want && memcmp(seen, seen + 1, worked_bytes - 1) == 0;
    free(seen);
    return is_right ? "ok" : result == CUDA_SUCCESS ? "wrong" : "refused";
}

/* Until the destructor ends it. */
static void *keep_looking(void *context)
{
    const char *seen = "ok";
    CHECK(cuCtxSetCurrent(context));
    while (!atomic_load(&is_worker_over) && strcmp(seen, "ok") == 0)
        seen = look(worked, 0x5a);
    printf("the thread's content: %s\n", seen);
    return NULL;
}

void ends_work(CUcontext context, CUdeviceptr block, size_t bytes, bool has_thread)
{
    worked = block;
    worked_bytes = bytes;
    has_worker = has_thread;
    if (has_worker && pthread_create(&worker, NULL, keep_looking, context) != 0)
        exit(EXIT_FAILURE);
}

__attribute__((destructor)) static void work_late(void)
{
    CUdeviceptr other = 0;

    if (worked == 0)
        return;
    atomic_store(&is_worker_over, true);
    if (has_worker)
        pthread_join(worker, NULL);
    printf("the destructor's content: %s\n", look(worked, 0x5a));
    CHECK(cuMemsetD8(worked, 0xa5, worked_bytes));
    printf("its fill: %s\n", look(worked, 0xa5));
    CHECK(cuMemAlloc(&other, worked_bytes));
    CHECK(cuMemsetD8(other, 0x3c, worked_bytes));
    printf("its allocation: %s\n", look(other, 0x3c));
}

__attribute__((destructor)) static void end_threads(void)
{
    for (int i = 0; has_threads && i < THREADS; i++)
        sem_post(&over);
    for (int i = 0; has_threads && i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (has_threads)
        printf("the threads ended\n");
}

__attribute__((destructor)) static void let_go(void)
{
    CUdeviceptr other = 0;

    if (held == 0)
        return;
    printf("the destructor's free: %s\n", is_expected(cuMemFree(held)) ? "ok" : "failed");
    printf("its allocation: %s\n", is_expected(cuMemAlloc(&other, 1 << 20)) ? "ok" : "failed");
}
