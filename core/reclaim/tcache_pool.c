/* Magazines, what is not on the hot path: what may enter, and what goes back to the pool. */
#include "core/reclaim/tcache_pool.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/tcache_count.h"

#include <stddef.h>

#define CAP_MAX GC_MIB(16)
#define CAP_SHARE 256 /* of what the device may hold */
#define TRIM_SHARE 8  /* of what may stay idle */
#define BATCH_MAX 64  /* blocks handed over under one lock */

/* ---- what may enter ---- */

void gc_magazine_size(struct gc_context *context)
{
    const struct gc_device *device = context->device;
    const struct gc_share *share = context->share;
    uint64_t cap = gc_min_u64(gc_share_total_bytes(device, share) / CAP_SHARE, CAP_MAX);
    cap = gc_min_u64(cap, device->trim_bytes / TRIM_SHARE);
    if (atomic_load_explicit(&device->is_over_limit, memory_order_relaxed) ||
        (share != NULL && atomic_load_explicit(&share->is_over_limit, memory_order_relaxed)))
        cap = 0;
    if (atomic_load_explicit(&context->follows_plan, memory_order_relaxed) ||
        gc_context_is_fenceless(context))
        cap = 0; /* every request, or free, is to be seen */
    atomic_store_explicit(&context->magazine_bytes, cap, memory_order_relaxed);
    atomic_store_explicit(&context->pool.magazine_block_bytes,
                          gc_min_u64(cap / 2, GC_MAGAZINE_BLOCK_MAX), memory_order_relaxed);
}

void gc_magazine_size_all(struct gc_device *device)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        gc_magazine_size(context);
}

/* ---- handing over ---- */

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
