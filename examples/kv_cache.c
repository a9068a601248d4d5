/* A cache of keys and values that lays out its own memory: each sequence has a fixed place for its
 * longest length, and physical memory only for the tokens it has. Sequences grow page by page; what
 * a finished one leaves serves the next. */
/* link: -lgpucache -l:libcuda.so.1 */
#include "gpucache.h"

#include <cuda.h>
#include <stdio.h>

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)
#define SEQUENCES 8
#define PAGES_EACH 64 /* room for the longest sequence */
#define TOKEN_BYTES (64 * 1024)
#define TOKENS_A_PAGE (PAGE / TOKEN_BYTES)

struct kv_cache {
    gpucache_elastic pool;
    char *base;
    unsigned tokens[SEQUENCES];
    unsigned pages[SEQUENCES];
};

static uint64_t offset_of(unsigned sequence, unsigned page)
{
    return ((uint64_t)sequence * PAGES_EACH + page) * PAGE;
}

/* Room for one token more; a page is mapped where a new one begins. */
static gpucache_status append(struct kv_cache *cache, unsigned sequence, CUstream stream)
{
    unsigned token = cache->tokens[sequence];

    if (token / TOKENS_A_PAGE == cache->pages[sequence]) {
        gpucache_status status = gpucache_elastic_allocate(
            cache->pool, offset_of(sequence, cache->pages[sequence]), PAGE);
        if (status != GPUCACHE_OK)
            return status;
        cache->pages[sequence]++;
    }
    cuMemsetD8Async((CUdeviceptr)(cache->base + offset_of(sequence, 0) + token * TOKEN_BYTES), 1,
                    TOKEN_BYTES, stream);
    cache->tokens[sequence]++;
    return GPUCACHE_OK;
}

/* All of a sequence goes; only `stream` has used it. */
static gpucache_status finish(struct kv_cache *cache, unsigned sequence, CUstream stream)
{
    gpucache_status status =
        gpucache_elastic_deallocate(cache->pool, offset_of(sequence, 0),
                                    cache->pages[sequence] * PAGE, GPUCACHE_WAIT_STREAM, stream);

    cache->tokens[sequence] = 0;
    cache->pages[sequence] = 0;
    return status;
}

static int run(struct kv_cache *cache, CUstream stream)
{
    struct gpucache_elastic_statistics now;
    unsigned round, sequence, i;
    uint64_t given = 0;
    int is_mapped = 0;

    for (round = 0; round < 4; round++) {
        for (sequence = 0; sequence < SEQUENCES; sequence++)
            for (i = 0; i < 20 * (sequence + 1); i++)
                if (append(cache, sequence, stream) != GPUCACHE_OK)
                    return 1;
        for (sequence = 0; sequence < SEQUENCES; sequence++)
            if (sequence != round && finish(cache, sequence, stream) != GPUCACHE_OK)
                return 1;
        if (finish(cache, round, stream) != GPUCACHE_OK)
            return 1;
    }
    if (append(cache, 0, stream) != GPUCACHE_OK ||
        gpucache_elastic_is_mapped(cache->pool, 0, TOKEN_BYTES, &is_mapped) != GPUCACHE_OK)
        return 1;
    now.struct_bytes = sizeof(now);
    if (gpucache_elastic_get_statistics(cache->pool, &now) != GPUCACHE_OK)
        return 1;
    printf("capacity %llu MiB, peak %llu MiB; %llu pages created, %llu mapped by the driver\n",
           (unsigned long long)(now.capacity_bytes / MIB),
           (unsigned long long)(now.mapped_peak_bytes / MIB), (unsigned long long)now.create_count,
           (unsigned long long)now.map_count);
    if (gpucache_elastic_compact(cache->pool, &given) != GPUCACHE_OK)
        return 1;
    printf("compaction gave back %llu MiB of %llu\n", (unsigned long long)(given / MIB),
           (unsigned long long)(now.warm_bytes / MIB));
    return is_mapped && given == now.warm_bytes && now.mapped_bytes == PAGE ? 0 : 1;
}

int main(void)
{
    struct kv_cache cache = {0, NULL, {0}, {0}};
    gpucache_status status;
    CUcontext context;
    CUstream stream;
    void *base;
    int result;

    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return 1;
    status = gpucache_elastic_create(0, (uint64_t)SEQUENCES * PAGES_EACH * PAGE, PAGE, 0,
                                     &cache.pool, &base);
    if (status != GPUCACHE_OK) {
        printf("no elastic pool: %s\n", gpucache_status_text(status));
        return status == GPUCACHE_NOT_SUPPORTED ? 77 : 1;
    }
    cache.base = base;
    result = run(&cache, stream);
    return gpucache_elastic_destroy(cache.pool) == GPUCACHE_OK ? result : 1;
}
