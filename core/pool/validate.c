/* The pool's walker: checks every invariant that pool.h names. */
#include "core/pool/pool.h"

#include <stddef.h>

/* Leaves the walker at the first thing that is wrong. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return false;                                                                          \
    } while (0)

/* What a walk over the segments adds up. */
struct sums {
    uint64_t free_count[GC_CLASS_COUNT];
    uint64_t free_bytes[GC_CLASS_COUNT];
    uint64_t idle_count;
    uint64_t pending_count;
    uint64_t pending_bytes;
};

static bool check_segment(const struct gc_pool *pool, const struct gc_segment *segment,
                          struct sums *sums)
{
    uint64_t address = segment->address;
    const struct gc_block *previous = NULL;
    REQUIRE(segment->first != NULL);
    REQUIRE(atomic_load(&segment->pool) == pool);
    for (const struct gc_block *block = segment->first; block != NULL; block = block->next) {
        const bool is_free = block->state == GC_BLOCK_FREE;
        REQUIRE(block->previous == previous);
        REQUIRE(block->address == address);
        REQUIRE(block->bytes > 0 && block->bytes % GC_GRANULE == 0);
        REQUIRE(atomic_load(&block->segment) == segment);
        REQUIRE(gc_pagemap_get(pool->shared.pagemap, address) == block);
        REQUIRE(!is_free || previous == NULL || previous->state != GC_BLOCK_FREE);
        if (is_free) {
            sums->free_count[segment->size_class]++;
            sums->free_bytes[segment->size_class] += block->bytes;
        }
        if (block->state == GC_BLOCK_PENDING) {
            sums->pending_count++;
            sums->pending_bytes += block->bytes;
        }
        address += block->bytes;
        previous = block;
    }
    REQUIRE(segment->first != NULL && address == segment->address + segment->bytes);
    REQUIRE(segment->is_idle == (segment->first->state == GC_BLOCK_FREE &&
                                 segment->first->next == NULL && segment->arena == NULL));
    if (segment->is_idle)
        sums->idle_count++;
    return true;
}

/* A list of pending blocks, by stamp. */
static bool check_pending(const struct gc_block *first, const struct gc_block *last,
                          struct sums *sums)
{
    for (const struct gc_block *block = first; block != NULL; block = block->pending.next) {
        REQUIRE(block->state == GC_BLOCK_PENDING && sums->pending_count > 0);
        REQUIRE(block->pending.next != NULL
                    ? block->pending.epoch <= block->pending.next->pending.epoch
                    : block == last);
        sums->pending_count--;
    }
    return true;
}

static bool validate_locked(const struct gc_pool *pool)
{
    struct sums sums = {0};
    const struct gc_segment *previous = NULL;
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        REQUIRE(segment->previous == previous);
        REQUIRE(check_segment(pool, segment, &sums));
        previous = segment;
    }
    for (unsigned size_class = 0; size_class < GC_CLASS_COUNT; size_class++) {
        REQUIRE(gc_bins_validate(&pool->content.bins[size_class]));
        REQUIRE(pool->content.bins[size_class].count == sums.free_count[size_class]);
        REQUIRE(pool->content.bins[size_class].bytes == sums.free_bytes[size_class]);
    }
    for (const struct gc_segment *segment = pool->content.idle_oldest; segment != NULL;
         segment = segment->idle_next) {
        REQUIRE(segment->is_idle && sums.idle_count > 0);
        sums.idle_count--;
    }
    REQUIRE(sums.idle_count == 0);
    REQUIRE(gc_pages_validate_locked(pool));
    REQUIRE(check_pending(pool->content.pending_first, pool->content.pending_last, &sums));
    for (unsigned i = 0; i < pool->stream_count; i++) {
        const struct gc_stream_list *list = &pool->streams[i];
        REQUIRE((list->stream == 0) == (list->first == NULL));
        REQUIRE(check_pending(list->first, list->last, &sums));
    }
    REQUIRE(sums.pending_count == 0 && sums.pending_bytes == pool->content.pending_bytes);
    return true;
}

bool gc_pool_validate(struct gc_pool *pool)
{
    gc_pool_acquire_plain(pool);
    const bool is_valid = validate_locked(pool);
    gc_pool_release(pool);
    return is_valid;
}
