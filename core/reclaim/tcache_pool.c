/* Magazines, what is not on the hot path: what goes back to the pool. */
#include "core/reclaim/tcache_pool.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/tcache_count.h"

#include <stddef.h>

#define BATCH_MAX 64 /* blocks handed over under one lock */

void gc_magazine_give_batch(struct gc_magazine *magazine, struct gc_block **bin)
{
    struct gc_pool *pool = &magazine->context->pool;
    uint64_t bytes = 0;
    gc_pool_acquire_plain(pool);
    for (unsigned i = 0; i < BATCH_MAX && *bin != NULL; i++) {
        struct gc_block *block = *bin;
        *bin = block->ready.next;
        bytes += block->bytes;
        if (!pool->is_dropped)
            gc_pool_give_locked(pool, block);
    }
    gc_pool_release(pool);
    gc_tally_note_handed(magazine, bytes);
}

void gc_magazine_hand_over_pending(struct gc_magazine *magazine)
{
    struct gc_pool *pool = &magazine->context->pool;
    uint64_t bytes = 0;
    if (magazine->pending_first == NULL)
        return;
    if (magazine->merged_pending_bytes > 0)
        gc_gauge_sub(&magazine->context->device->stats.pending, magazine->merged_pending_bytes);
    magazine->merged_pending_bytes = 0;
    gc_pool_acquire_plain(pool);
    while (magazine->pending_first != NULL) {
        struct gc_block *block = gc_magazine_pop_pending(magazine);
        bytes += block->bytes;
        if (!pool->is_dropped)
            gc_pool_push_pending_locked(pool, block, block->pending.stamp);
    }
    gc_pool_release(pool);
    gc_tally_note_handed(magazine, bytes);
}

bool gc_magazine_empty(struct gc_magazine *magazine)
{
    const bool any = magazine->context != NULL && gc_magazine_cached_bytes(magazine) != 0;
    if (magazine->context == NULL)
        return false;
    gc_magazine_merge(magazine);
    gc_magazine_hand_over_pending(magazine);
    for (unsigned i = 0; i < GC_MAGAZINE_BINS; i++)
        while (magazine->bins[i] != NULL)
            gc_magazine_give_batch(magazine, &magazine->bins[i]);
    magazine->context = NULL;
    magazine->number = GC_MAGAZINE_UNUSED;
    return any;
}
