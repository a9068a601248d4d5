/* link: -l:libcuda.so.1 */
/* Works in many ways and goes on where there is no memory; what it was given must hold what was
 * written. usage: scarce. Ends with 0 whatever failed, prints how many calls did. */
#include "tests/preload/progs/public.h"

#include <string.h>

#define ROUNDS 8
#define SLOTS 16
#define FILLED 64 /* bytes of each */

static unsigned failed;

static bool succeeded(CUresult result)
{
    failed += result != CUDA_SUCCESS;
    return result == CUDA_SUCCESS;
}

static void look_at(CUdeviceptr block, unsigned char value)
{
    unsigned char seen[64];
    if (succeeded(cuMemcpyDtoH(seen, block, sizeof(seen))))
        for (size_t i = 0; i < sizeof(seen); i++)
            EXPECT(seen[i] == value);
}

static void allocate(int round, CUstream stream)
{
    CUdeviceptr blocks[SLOTS] = {0};

    for (int i = 0; i < SLOTS; i++) {
        const size_t bytes = (size_t)64 << (i + round % 6);
        CUresult result =
            i % 4 == 3 ? cuMemAllocAsync(&blocks[i], bytes, stream) : cuMemAlloc(&blocks[i], bytes);
        if (!succeeded(result) ||
            !succeeded(cuMemsetD8Async(blocks[i], (unsigned char)i, FILLED, stream)))
            continue;
        (void)succeeded(cuStreamSynchronize(stream));
        look_at(blocks[i], (unsigned char)i);
    }
    for (int i = 0; i < SLOTS; i++)
        if (blocks[i] != 0)
            (void)succeeded(i % 4 == 3 ? cuMemFreeAsync(blocks[i], stream) : cuMemFree(blocks[i]));
}

static void own_calls(void)
{
    gpucache_elastic pool;
    gpucache_tenant tenant;
    void *base;

    if (gpucache_load(NULL, &gc) != GPUCACHE_OK)
        return;
    if (gc.gpucache_elastic_create(0, 8 << 20, 0, 0, &pool, &base) == GPUCACHE_OK) {
        (void)gc.gpucache_elastic_allocate(pool, 0, 4 << 20);
        (void)gc.gpucache_elastic_destroy(pool);
    }
    if (gc.gpucache_tenant_register("some", 0, GPUCACHE_NO_LIMIT, &tenant) == GPUCACHE_OK)
        (void)gc.gpucache_tenant_unregister(tenant);
    if (gc.gpucache_pause(1, 1000, NULL) == GPUCACHE_OK)
        while (gc.gpucache_resume(NULL) != GPUCACHE_OK)
            ;
    (void)gc.gpucache_empty_cache(GPUCACHE_ALL_DEVICES, NULL);
}

int main(void)
{
    CUcontext context, other;
    CUstream stream = NULL;

    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        printf("did not start\n");
        return EXIT_SUCCESS;
    }
    (void)succeeded(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < ROUNDS; round++)
        allocate(round, stream);
    if (succeeded(cuCtxCreate(&other, NULL, 0, 0))) {
        allocate(0, NULL);
        (void)succeeded(cuCtxDestroy(other));
        (void)succeeded(cuCtxSetCurrent(context));
    }
    own_calls();
    printf("%u calls failed\n", failed);
    return EXIT_SUCCESS;
}
