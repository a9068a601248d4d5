/* Flushes a magazine's figures and blocks. The owner counts without atomics and merges into the
 * device's figures when it flushes: the unmerged part is bounded by the bytes a magazine may hold.
 * The caller is the busy owner, or stopped the caches. */
#ifndef GC_TCACHE_FLUSH_H
#define GC_TCACHE_FLUSH_H

#include "core/base/bits.h"
#include "core/device/device.h"
#include "core/pool/block.h"
#include "core/reclaim/tcache.h"

/* Between enter and leave only the owner uses the cache. False: another thread has stopped the
 * caches, or this is a signal handler inside its own thread's cache. */
static inline bool gc_tcache_enter(struct gc_tcache *tcache)
{
    if (!GC_LIKELY(!atomic_load_explicit(&tcache->is_busy, memory_order_relaxed)))
        return false;
    atomic_store_explicit(&tcache->is_busy, true, memory_order_relaxed);
    /* For the compiler only; the processor's barrier is the membarrier in gc_tcache_stop_all. */
    atomic_signal_fence(memory_order_seq_cst);
    /* Acquire: pairs with the release in gc_tcache_resume_all. */
    return GC_LIKELY(atomic_load_explicit(&tcache->mode, memory_order_acquire) == GC_TCACHE_OPEN) ||
           gc_tcache_enter_fenced(tcache);
}

static inline void gc_tcache_leave(struct gc_tcache *tcache)
{
    /* Release: pairs with the load in tcache_all.c's wait_owner. */
    atomic_store_explicit(&tcache->is_busy, false, memory_order_release);
}

/* Whether the context must use the whole path, for now or permanently. */
static inline bool gc_tcache_is_closed(const struct gc_context *context)
{
    return ((unsigned)atomic_load_explicit(&context->is_dropped, memory_order_acquire) |
            (unsigned)atomic_load_explicit(&context->is_faulted, memory_order_relaxed) |
            atomic_load_explicit(&context->capture_count, memory_order_relaxed)) != 0;
}

/* Takes the live block for this thread, and gives it back. */
static inline bool gc_tcache_claim(struct gc_block *block)
{
    uint8_t expected = GC_BLOCK_LIVE;
    return atomic_compare_exchange_strong_explicit(&block->state, &expected, GC_BLOCK_CACHED,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static inline void gc_tcache_unclaim(struct gc_block *block)
{
    atomic_store_explicit(&block->state, GC_BLOCK_LIVE, memory_order_release);
}

/* Publishes the figures for other processes. The owner is outside. */
void gc_tcache_publish(struct gc_tcache *tcache, struct gc_context *context, uint64_t now_ns);
/* The magazine serves now. The figures of the one before are merged, so that peaks over several
 * contexts of a device are exact while one thread allocates. */
static inline void gc_tcache_turn_to(struct gc_tcache *tcache, struct gc_tcache_context *tctx)
{
    if (GC_LIKELY(tcache->last == tctx))
        return;
    gc_tcache_merge_stats(tcache->last);
    tcache->last = tctx;
}

/* The magazine that is the context's already, which serves now. NULL: none, or the context must use
 * the whole path. */
static inline struct gc_tcache_context *gc_tcache_find(struct gc_tcache *tcache,
                                                       const struct gc_context *context)
{
    struct gc_tcache_context *tctx = &tcache->contexts[context->pool.number % GC_TCACHE_CONTEXTS];
    if (tctx->context != context || gc_tcache_is_closed(context))
        return NULL;
    gc_tcache_turn_to(tcache, tctx);
    return tctx;
}

/* The magazine of a context with a number, which serves now; another context's blocks and figures
 * in it are flushed first. */
struct gc_tcache_context *gc_tcache_context_of(struct gc_tcache *tcache,
                                               struct gc_context *context);
/* The magazine for a claimed block. NULL: the block may not be cached, or its record was reused for
 * another address. No context is dropped between enter and leave, so a live block that the pagemap
 * names stays a valid record. */
struct gc_tcache_context *gc_tcache_context_for(struct gc_tcache *tcache,
                                                const struct gc_block *block, uint64_t address);
/* Flushes the large blocks to the pool. True if there were any. */
bool gc_tcache_flush_large(struct gc_tcache_context *tctx);
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

/* The pool serves the allocation: as a block that came into the magazine just before. */
static inline void gc_tcache_count_pool_alloc(struct gc_tcache_context *tctx,
                                              uint64_t requested_bytes, uint64_t bytes)
{
    gc_tcache_set_cached_bytes(tctx, gc_tcache_cached_bytes(tctx) + bytes);
    tctx->base_bytes += (int64_t)bytes;
    tctx->min_bytes += (int64_t)bytes;
    gc_tcache_count_alloc(tctx, requested_bytes, bytes);
}

/* Merges the figures if they changed by much: other threads read the device's. */
static inline void gc_tcache_bound_stats(struct gc_tcache_context *tctx)
{
    const int64_t change = tctx->base_bytes - (int64_t)gc_tcache_cached_bytes(tctx);
    if ((uint64_t)(change < 0 ? -change : change) > tctx->unmerged_max)
        gc_tcache_merge_stats(tctx);
}

#endif
