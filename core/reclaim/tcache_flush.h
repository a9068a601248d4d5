/* Flushes a magazine's figures and blocks. The owner counts without atomics and merges into the
 * device's figures when it flushes: the unmerged part is bounded by the bytes a magazine may hold.
 * The caller is the busy owner, or stopped the caches. */
#ifndef GC_TCACHE_FLUSH_H
#define GC_TCACHE_FLUSH_H

#include "core/base/bits.h"
#include "core/device/device.h"
#include "core/pool/block.h"
#include "core/reclaim/tcache.h"

/* Flushes up to one batch of blocks from a bin to the pool. */
void gc_tcache_flush_batch(struct gc_tcache_context *tctx, struct gc_block **bin);
/* Flushes all pending blocks to the pool's list. */
void gc_tcache_flush_pending(struct gc_tcache_context *tctx);

/* Another magazine of the context may hold a large block from now on. */
static inline void gc_tcache_release_large(struct gc_tcache_context *tctx)
{
    _Atomic(struct gc_tcache_context *) *holder = &tctx->context->large_holder;
    if (atomic_load_explicit(holder, memory_order_relaxed) == tctx)
        atomic_store_explicit(holder, NULL, memory_order_relaxed);
}

static inline void gc_tcache_set_cached_bytes(struct gc_tcache_context *tctx, uint64_t bytes)
{
    atomic_store_explicit(&tctx->cached_bytes, bytes, memory_order_relaxed);
}

static inline uint64_t gc_tcache_cached_bytes(const struct gc_tcache_context *tctx)
{
    return atomic_load_explicit(&tctx->cached_bytes, memory_order_relaxed);
}

/* Pops the block with the lowest epoch; the list is not empty. */
static inline struct gc_block *gc_tcache_pop_pending(struct gc_tcache_context *tctx)
{
    struct gc_block *block = tctx->pending_first;
    tctx->pending_first = block->pending.next;
    if (tctx->pending_first == NULL)
        tctx->pending_last = NULL;
    tctx->pending_count--;
    tctx->pending_bytes -= block->bytes;
    return block;
}

/* Starts a streak of entry point `api`, if the current one is another's. */
void gc_tcache_begin_streak(struct gc_tcache_context *tctx, uint16_t api);

/* Count one allocation, one free, of the streak's entry point. */
static inline void gc_tcache_count_alloc(struct gc_tcache_context *tctx, uint64_t requested_bytes,
                                         uint64_t bytes)
{
    struct gc_streak *streak = &tctx->streak;
    const uint64_t cached_bytes = gc_tcache_cached_bytes(tctx) - bytes;
    streak->count++;
    streak->alloc_bytes += requested_bytes;
    const int64_t live_bytes = (int64_t)(streak->alloc_bytes - streak->freed_bytes);
    if (!GC_LIKELY(live_bytes <= streak->peak))
        streak->peak = live_bytes;
    gc_tcache_set_cached_bytes(tctx, cached_bytes);
    if (!GC_LIKELY((int64_t)cached_bytes >= tctx->min_bytes))
        tctx->min_bytes = (int64_t)cached_bytes;
}

static inline void gc_tcache_count_free(struct gc_tcache_context *tctx, uint64_t requested_bytes,
                                        uint64_t bytes)
{
    tctx->free_count++;
    tctx->streak.freed_bytes += requested_bytes;
    gc_tcache_set_cached_bytes(tctx, gc_tcache_cached_bytes(tctx) + bytes);
}

/* Blocks were flushed to the pool. */
static inline void gc_tcache_count_flushed(struct gc_tcache_context *tctx, uint64_t bytes)
{
    gc_tcache_set_cached_bytes(tctx, gc_tcache_cached_bytes(tctx) - bytes);
    tctx->base_bytes -= (int64_t)bytes;
    tctx->min_bytes -= (int64_t)bytes;
}

#endif
