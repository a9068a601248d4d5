/* The pool's walker: checks every invariant that pool.h names. */
#include "core/pool.h"

#include "core/check.h"

#include <stddef.h>

#ifdef GC_CHECK

/* What a walk over the segments adds up. */
struct sums {
    uint64_t free_count[GC_CLASS_COUNT];
    uint64_t free_bytes[GC_CLASS_COUNT];
    uint64_t idle_count;
    uint64_t pending_count;
};

static void check_segment(const struct gc_pool *pool, const struct gc_segment *segment, struct sums *sums)
{
    uint64_t address = segment->address;
    const struct gc_block *previous = NULL;
    GC_ASSERT(segment->first != NULL);
    GC_ASSERT(atomic_load(&segment->pool) == pool);
    for (const struct gc_block *block = segment->first; block != NULL; block = block->next) {
        const bool is_free = block->state == GC_BLOCK_FREE;
        GC_ASSERT(block->previous == previous);
        GC_ASSERT(block->address == address);
        GC_ASSERT(block->bytes > 0 && block->bytes % GC_GRANULE == 0);
        GC_ASSERT(atomic_load(&block->segment) == segment);
        GC_ASSERT(gc_pagemap_get(pool->shared.pagemap, address) == block);
        GC_ASSERT(!is_free || previous == NULL || previous->state != GC_BLOCK_FREE);
        if (is_free) {
            sums->free_count[segment->class]++;
            sums->free_bytes[segment->class] += block->bytes;
        }
        if (block->state == GC_BLOCK_PENDING)
            sums->pending_count++;
        address += block->bytes;
        previous = block;
    }
    GC_ASSERT(address == segment->address + segment->bytes);
    GC_ASSERT(segment->is_idle == (segment->first->state == GC_BLOCK_FREE && segment->first->next == NULL));
    if (segment->is_idle)
        sums->idle_count++;
}

void gc_pool_validate_locked(const struct gc_pool *pool)
{
    struct sums sums = {0};
    const struct gc_segment *previous = NULL;
    for (const struct gc_segment *segment = pool->segments; segment != NULL; segment = segment->next) {
        GC_ASSERT(segment->previous == previous);
        check_segment(pool, segment, &sums);
        previous = segment;
    }
    for (unsigned class = 0; class < GC_CLASS_COUNT; class++) {
        GC_ASSERT(gc_bins_validate(&pool->bins[class]));
        GC_ASSERT(pool->bins[class].count == sums.free_count[class]);
        GC_ASSERT(pool->bins[class].bytes == sums.free_bytes[class]);
    }
    for (const struct gc_segment *segment = pool->idle_oldest; segment != NULL; segment = segment->idle_next) {
        GC_ASSERT(segment->is_idle && sums.idle_count > 0);
        sums.idle_count--;
    }
    GC_ASSERT(sums.idle_count == 0);
    /* Some may be in the hands of a thread that waits for them. */
    for (const struct gc_block *block = pool->pending_first; block != NULL; block = block->pending.next) {
        GC_ASSERT(block->state == GC_BLOCK_PENDING && sums.pending_count > 0);
        GC_ASSERT(block->pending.next != NULL || block == pool->pending_last);
        sums.pending_count--;
    }
}

void gc_pool_validate(struct gc_pool *pool)
{
    gc_pool_acquire_plain(pool);
    gc_pool_validate_locked(pool);
    gc_pool_release(pool);
}

#else

void gc_pool_validate_locked(const struct gc_pool *pool)
{
    (void)pool;
}

void gc_pool_validate(struct gc_pool *pool)
{
    (void)pool;
}

#endif
