/* What magazine.c and magazine_pool.c share. The owner is inside, or the caches are stopped. */
#ifndef GC_MAGAZINE_POOL_H
#define GC_MAGAZINE_POOL_H

#include "core/device/device.h"
#include "core/pool/block.h"
#include "core/reclaim/tcache.h"

/* Takes some blocks off a bin and gives them to the pool. */
void gc_magazine_give_batch(struct gc_magazine *magazine, struct gc_block **bin);
/* Gives all pending blocks to the pool's list. */
void gc_magazine_hand_over_pending(struct gc_magazine *magazine);

static inline void gc_magazine_set_cached_bytes(struct gc_magazine *magazine, uint64_t bytes)
{
    atomic_store_explicit(&magazine->cached_bytes, bytes, memory_order_relaxed);
}

static inline uint64_t gc_magazine_cached_bytes(const struct gc_magazine *magazine)
{
    return atomic_load_explicit(&magazine->cached_bytes, memory_order_relaxed);
}

/* The one with the lowest stamp; there is one. */
static inline struct gc_block *gc_magazine_pop_pending(struct gc_magazine *magazine)
{
    struct gc_block *block = magazine->pending_first;
    magazine->pending_first = block->pending.next;
    if (magazine->pending_first == NULL)
        magazine->pending_last = NULL;
    magazine->pending_count--;
    magazine->pending_bytes -= block->bytes;
    return block;
}

#endif
