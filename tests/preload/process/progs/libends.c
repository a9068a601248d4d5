/* link: -l:libcuda.so.1 */
/* A library whose destructor frees device memory and takes more: for `ends object`, and before or
 * behind ours in a preload. Or whose destructor ends threads that have freed memory of several
 * sizes, and free and take some once more: for `ends object-threads`. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

__attribute__((visibility("default"))) void ends_hold(CUdeviceptr block);

__attribute__((visibility("default"))) void ends_start_threads(CUcontext context);

#define THREADS 4
#define SIZES 12

static CUdeviceptr held;
static pthread_t threads[THREADS];
static sem_t ready, over;
static bool has_threads;

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
