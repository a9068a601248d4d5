/* link: -l:libcuda.so.1 -lpthread */
/* Pools come and go in some threads while others run short, so that the idle memory of every pool
 * is trimmed and its figures are read. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <stdatomic.h>

#define MIB ((size_t)1 << 20)
#define ROUNDS 300
#define POOL_THREADS 4

static CUcontext context;
static atomic_int running = POOL_THREADS;

static void *make_pools(void *unused)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    cuuint64_t keep = 64 * MIB;
    CUstream stream;

    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr block;
        CUmemoryPool pool;
        CHECK(cuMemPoolCreate(&pool, &props));
        CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
        if (cuMemAllocFromPoolAsync(&block, 2 * MIB, pool, stream) == CUDA_SUCCESS)
            CHECK(cuMemFreeAsync(block, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemPoolDestroy(pool));
    }
    atomic_fetch_sub(&running, 1);
    return unused;
}

int main(void)
{
    pthread_t threads[POOL_THREADS];
    CUdeviceptr block;

    context = program_start();
    for (int i = 0; i < POOL_THREADS; i++)
        pthread_create(&threads[i], NULL, make_pools, NULL);
    while (atomic_load(&running) > 0)
        if (cuMemAlloc(&block, 64 * MIB) != CUDA_ERROR_OUT_OF_MEMORY)
            return EXIT_FAILURE;
    for (int i = 0; i < POOL_THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("done\n");
    return EXIT_SUCCESS;
}
