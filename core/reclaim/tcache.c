/* The hot path of the thread caches (tcache.h). Between enter and leave only the owner uses the
 * cache.
 *
 * gc_tcache_alloc_bytes and gc_tcache_free are the fast path: same magazine and entry point as the
 * last call, exact size at the head of its bin, block already reusable. They call nothing, so that
 * they save no registers, and check everything before they change anything. Everything else, traced
 * and timed calls included, takes the slow path: *_inside, *_timed. */
#include "core/base/assert.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache_flush.h"

#include <stddef.h>

#define LARGE_STREAK 2 /* consecutive frees of a large block to the pool before it is cached */
/* Pending blocks of a magazine, before they are flushed to the pool; then a fence may be due. */
#define PENDING_MAX 64
#define PENDING_DIVISOR 4 /* fraction of the magazine's bytes */
#define SEARCH_MAX 8      /* blocks compared in one bin */
#define DRAIN_MAX 64
#define SAMPLE_EVERY 256              /* one hit of so many is timed */
#define LARGE_MAX (UINT64_C(1) << 48) /* more than any device has */

bool gc_tcache_enter_fenced(struct gc_tcache *tcache)
{
    if (atomic_load_explicit(&tcache->mode, memory_order_relaxed) == GC_TCACHE_FENCED) {
        atomic_store_explicit(&tcache->is_busy, true, memory_order_seq_cst);
        if (atomic_load_explicit(&tcache->mode, memory_order_seq_cst) == GC_TCACHE_FENCED)
            return true;
    }
    atomic_store_explicit(&tcache->is_busy, false, memory_order_release);
    return false;
}

/* ---- observation ---- */

static __attribute__((noinline)) void trace_alloc(const struct gc_context *context,
                                                  uint64_t address, uint64_t requested_bytes,
                                                  uint64_t bytes, uint16_t api)
{
    const struct gc_entry entry = {address, requested_bytes, bytes, 0, api};
    gc_device_observe(context->device, GC_TRACE_ALLOC, &entry);
}

static __attribute__((noinline)) void trace_free(const struct gc_context *context,
                                                 const struct gc_block *block)
{
    const struct gc_entry entry = {block->address, block->live.requested_bytes, block->bytes, 0,
                                   block->api};
    gc_device_observe(context->device, GC_TRACE_FREE, &entry);
}

void gc_tcache_flush_stats(struct gc_tcache *tcache)
{
    if (tcache == NULL || !gc_tcache_enter(tcache))
        return;
    gc_tcache_merge_stats(tcache->last);
    gc_tcache_leave(tcache);
}

static uint64_t sample_begin(struct gc_tcache *tcache)
{
    const struct gc_driver *driver = &tcache->core->driver;
    tcache->until_sample = SAMPLE_EVERY + 1; /* the timed call decrements it again */
    return driver->clock_ns(driver->self);
}

static void sample_end(const struct gc_tcache *tcache, struct gc_histogram *histogram,
                       uint64_t start_ns)
{
    const struct gc_driver *driver = &tcache->core->driver;
    gc_histogram_add_many(histogram, driver->clock_ns(driver->self) - start_ns, SAMPLE_EVERY);
}

void gc_tcache_publish(struct gc_tcache *tcache, struct gc_context *context, uint64_t now_ns)
{
    if (tcache->core->ledger == NULL)
        return;
    gc_tcache_flush_stats(tcache);
    gc_publish_device(context->device, now_ns);
    gc_publish_record(context);
}

/* ---- bins ---- */

static inline unsigned bin_of(uint64_t bytes)
{
    if (!GC_LIKELY(bytes <= GC_SMALL_MAX))
        return GC_TCACHE_LARGE;
    /* Fibonacci hashing: neighbouring sizes, and powers of two, are spread. */
    return (unsigned)((bytes >> GC_GRANULE_BITS) * UINT64_C(0x9E3779B97F4A7C15) >> 57);
}
_Static_assert(GC_TCACHE_LARGE == 1U << (64 - 57), "bin_of's shift");

/* The key of a block in its bin: the last requested size, rounded. The block may be longer than its
 * key by a remainder too small to split; a block with an excess above SLACK_MAX (core/pool/pool.c)
 * never enters a magazine. */
static inline uint64_t size_of_live(const struct gc_block *block)
{
    return (block->live.requested_bytes + GC_GRANULE - 1) & ~(GC_GRANULE - 1);
}

static inline void push_ready(struct gc_tcache_context *tctx, struct gc_block *block, uint64_t size)
{
    struct gc_block **bin = &tctx->bins[bin_of(size)];
    block->ready.next = *bin;
    block->ready.size = size;
    *bin = block;
}

static struct gc_block *pop_ready(struct gc_tcache_context *tctx, uint64_t size)
{
    struct gc_block **link = &tctx->bins[bin_of(size)];
    for (unsigned i = 0; i < SEARCH_MAX && *link != NULL; i++) {
        struct gc_block *block = *link;
        if (block->ready.size == size) {
            *link = block->ready.next;
            return block;
        }
        link = &block->ready.next;
    }
    return NULL;
}

static void push_pending(struct gc_tcache_context *tctx, struct gc_block *block, uint64_t size,
                         uint64_t epoch)
{
    block->slack = (uint8_t)((block->bytes - size) >> GC_GRANULE_BITS);
    block->pending.next = NULL;
    block->pending.epoch = epoch;
    if (tctx->pending_last != NULL)
        tctx->pending_last->pending.next = block;
    else
        tctx->pending_first = block;
    tctx->pending_last = block;
    tctx->pending_count++;
    tctx->pending_bytes += block->bytes;
}

/* Moves pending blocks with a completed epoch to the bins. True if there were any. */
static bool drain(struct gc_tcache_context *tctx)
{
    unsigned count = 0;
    while (tctx->pending_first != NULL && count < DRAIN_MAX &&
           gc_context_has_completed(tctx->context, tctx->pending_first->pending.epoch)) {
        struct gc_block *block = gc_tcache_pop_pending(tctx);
        push_ready(tctx, block, block->bytes - ((uint64_t)block->slack << GC_GRANULE_BITS));
        count++;
    }
    return count > 0;
}

/* ---- flushing ---- */

static inline uint64_t cap_of(const struct gc_context *context)
{
    return atomic_load_explicit(&context->tcache_bytes, memory_order_relaxed);
}

/* The ready block that does not count; 0: there is none. */
static uint64_t uncounted_bytes(const struct gc_tcache_context *tctx)
{
    const struct gc_block *block = tctx->bins[GC_TCACHE_LARGE];
    return block != NULL && block->bytes > GC_SMALL_MAX ? block->bytes : 0;
}

static inline bool is_over(const struct gc_tcache_context *tctx)
{
    return gc_tcache_cached_bytes(tctx) - tctx->pending_bytes - uncounted_bytes(tctx) >
           cap_of(tctx->context);
}

/* Flushes ready blocks until the rest is within the capacity: those of the last bin if nothing else
 * is left. True if blocks were flushed. */
static bool shrink(struct gc_tcache_context *tctx)
{
    struct gc_block **large = &tctx->bins[GC_TCACHE_LARGE];
    if (!is_over(tctx))
        return false;
    gc_tcache_merge_stats(tctx);
    for (unsigned idle_bins = 0; is_over(tctx) && idle_bins < 2 * GC_TCACHE_BINS; idle_bins++) {
        struct gc_block **bin = &tctx->bins[tctx->victim++ % GC_TCACHE_BINS];
        if (*bin == NULL || (bin == large && idle_bins < GC_TCACHE_BINS))
            continue;
        gc_tcache_flush_batch(tctx, bin);
        idle_bins = 0;
    }
    return true;
}

bool gc_tcache_flush_large(struct gc_tcache_context *tctx)
{
    const uint64_t before = gc_tcache_cached_bytes(tctx);
    if (tctx->pending_bytes > GC_SMALL_MAX) {
        (void)drain(tctx);
        gc_tcache_flush_pending(tctx);
    }
    while (tctx->bins[GC_TCACHE_LARGE] != NULL)
        gc_tcache_flush_batch(tctx, &tctx->bins[GC_TCACHE_LARGE]);
    gc_tcache_release_large(tctx);
    return gc_tcache_cached_bytes(tctx) != before;
}

/* ---- allocation ---- */

static inline void make_live(struct gc_tcache *tcache, struct gc_tcache_context *tctx,
                             struct gc_block *block, uint64_t requested_bytes)
{
    gc_tcache_count_alloc(tctx, requested_bytes, block->bytes);
    block->live.requested_bytes = requested_bytes;
    block->live.id = tcache->ids.next++;
    block->api = tctx->streak.api;
    block->is_shared = false;
    /* Release: pairs with the exchange of the thread that frees the block. */
    atomic_store_explicit(&block->state, GC_BLOCK_LIVE, memory_order_release);
}

static struct gc_block *pop_block(struct gc_tcache_context *tctx, uint64_t size)
{
    struct gc_block *block = pop_ready(tctx, size);
    if (block == NULL && tctx->pending_first != NULL && drain(tctx))
        block = pop_ready(tctx, size);
    return block;
}

/* The slow path of an allocation. Called after enter; ends with leave. */
static __attribute__((noinline)) uint64_t alloc_inside(struct gc_tcache *tcache,
                                                       struct gc_context *context, uint64_t bytes,
                                                       uint16_t api)
{
    const uint64_t size = (bytes + GC_GRANULE - 1) & ~(GC_GRANULE - 1);
    struct gc_tcache_context *tctx = gc_tcache_find(tcache, context);
    struct gc_block *block = tctx == NULL ? NULL : pop_block(tctx, size);
    if (block == NULL) {
        gc_tcache_leave(tcache);
        return GC_ADDRESS_NONE;
    }
    const uint64_t address = block->address;
    const uint64_t block_bytes = block->bytes;
    gc_block_refill_ids(&tcache->ids, &tcache->core->next_block_id);
    gc_tcache_begin_streak(tctx, api);
    make_live(tcache, tctx, block, bytes);
    gc_tcache_bound_stats(tctx);
    gc_tcache_leave(tcache);
    if (tcache->is_observed)
        trace_alloc(context, address, bytes, block_bytes, api);
    return address;
}

static __attribute__((noinline)) uint64_t alloc_timed(struct gc_tcache *tcache,
                                                      struct gc_context *context, uint64_t bytes,
                                                      uint16_t api)
{
    const uint64_t start_ns = sample_begin(tcache);
    const uint64_t address = gc_tcache_alloc_bytes(tcache, context, bytes, api);
    if (address == GC_ADDRESS_NONE)
        return address;
    sample_end(tcache, &tcache->core->alloc_ns, start_ns);
    gc_tcache_publish(tcache, context, start_ns);
    return address;
}

/* A block above GC_SMALL_MAX, or a request of 0 bytes. */
static __attribute__((noinline)) uint64_t alloc_large(struct gc_tcache *tcache,
                                                      struct gc_context *context, uint64_t bytes,
                                                      uint16_t api)
{
    /* 0 bytes wrap to more than the maximum. */
    if (bytes - 1 >= LARGE_MAX)
        return GC_ADDRESS_NONE;
    if (--tcache->until_sample == 0)
        return alloc_timed(tcache, context, bytes, api);
    return gc_tcache_enter(tcache) ? alloc_inside(tcache, context, bytes, api) : GC_ADDRESS_NONE;
}

uint64_t gc_tcache_alloc_bytes(struct gc_tcache *tcache, struct gc_context *context, uint64_t bytes,
                               uint16_t api)
{
    const uint64_t size = (bytes + GC_GRANULE - 1) & ~(GC_GRANULE - 1);
    if (!GC_LIKELY(bytes - 1 < GC_SMALL_MAX))
        return alloc_large(tcache, context, bytes, api);
    if (!GC_LIKELY(--tcache->until_sample != 0))
        return alloc_timed(tcache, context, bytes, api);
    if (!GC_LIKELY(gc_tcache_enter(tcache)))
        return GC_ADDRESS_NONE;
    struct gc_tcache_context *tctx = tcache->last;
    struct gc_block **bin = &tctx->bins[bin_of(size)];
    struct gc_block *block = *bin;
    if (!GC_LIKELY(tctx->context == context && !gc_tcache_is_closed(context) && block != NULL &&
                   block->ready.size == size && tctx->streak.api == api &&
                   tcache->ids.next != tcache->ids.end && !tcache->is_observed))
        return alloc_inside(tcache, context, bytes, api);
    *bin = block->ready.next;
    make_live(tcache, tctx, block, bytes);
    const uint64_t address = block->address;
    gc_tcache_leave(tcache);
    return address;
}

bool gc_tcache_alloc(struct gc_tcache *tcache, struct gc_context *context,
                     const struct gc_request *request, uint64_t *address)
{
    *address = GC_ADDRESS_NONE;
    if (tcache != NULL && request->stream == 0 && !request->is_dedicated)
        *address = gc_tcache_alloc_bytes(tcache, context, request->bytes, request->api);
    if (*address == GC_ADDRESS_NONE)
        gc_tcache_flush_stats(tcache);
    return *address != GC_ADDRESS_NONE;
}

/* ---- free ---- */

struct gc_tcache_context *gc_tcache_context_of(struct gc_tcache *tcache, struct gc_context *context)
{
    const uint16_t number = context->pool.number;
    GC_ASSERT(number != 0); /* 0 is the number of blocks that no cache may take */
    struct gc_tcache_context *tctx = &tcache->contexts[number % GC_TCACHE_CONTEXTS];
    if (!GC_LIKELY(tctx->context == context)) {
        gc_tcache_flush(tctx);
        tctx->context = context;
        tctx->number = number;
    }
    gc_tcache_turn_to(tcache, tctx);
    return tctx;
}

struct gc_tcache_context *gc_tcache_context_for(struct gc_tcache *tcache,
                                                const struct gc_block *block, uint64_t address)
{
    const uint16_t number = atomic_load_explicit(&block->tcache_number, memory_order_relaxed);
    if (number == 0 || block->address != address)
        return NULL;
    struct gc_context *context = gc_block_pool(block)->context;
    return context->pool.number == 0 || gc_tcache_is_closed(context)
               ? NULL
               : gc_tcache_context_of(tcache, context);
}

/* Whether the magazine is the one of its context that may hold a block above GC_SMALL_MAX.
 * It is so until it flushes its large blocks. */
static bool hold_large(struct gc_tcache_context *tctx)
{
    _Atomic(struct gc_tcache_context *) *holder = &tctx->context->large_holder;
    struct gc_tcache_context *none = NULL;
    return atomic_load_explicit(holder, memory_order_relaxed) == tctx ||
           atomic_compare_exchange_strong_explicit(holder, &none, tctx, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* Whether a large block may be cached: after LARGE_STREAK consecutive frees of the same block. Then
 * the pool would return it as well, and no other large block is in this cache. Other large blocks
 * are placed by the pool, which must know all free memory so that a program that repeats itself
 * finds its pages mapped. */
static bool may_cache_large(struct gc_tcache *tcache, uint16_t number, uint64_t address)
{
    struct gc_tcache_context *tctx = &tcache->contexts[number % GC_TCACHE_CONTEXTS];
    if (tctx->number != number)
        return false;
    if (tctx->large_address != address) {
        tctx->large_address = address;
        tctx->large_streak = 0;
    }
    return ++tctx->large_streak > LARGE_STREAK && hold_large(tctx);
}

/* Inserts the block into the magazine. True if blocks were flushed to the pool: then the caller
 * calls gc_defer_on_flush after leave. */
static bool cache_block(struct gc_tcache_context *tctx, struct gc_block *block)
{
    struct gc_context *context = tctx->context;
    struct gc_submissions *work = &context->core->work;
    const uint64_t size = size_of_live(block);
    gc_tcache_begin_streak(tctx, block->api);
    gc_tcache_count_free(tctx, block->live.requested_bytes, block->bytes);
    if (context->core->is_observed)
        trace_free(context, block);
    const uint64_t epoch = gc_submit_epoch_of_free(work);
    if (gc_context_may_reuse(context, work, epoch)) {
        push_ready(tctx, block, size);
        gc_tcache_bound_stats(tctx);
        return shrink(tctx);
    }
    push_pending(tctx, block, size, epoch);
    if (tctx->pending_count < PENDING_MAX &&
        tctx->pending_bytes <= cap_of(context) / PENDING_DIVISOR)
        return false;
    gc_tcache_merge_stats(tctx);
    (void)drain(tctx);
    shrink(tctx);
    gc_tcache_flush_pending(tctx);
    return true;
}

/* The slow path of a free. Called after enter; ends with leave. */
static __attribute__((noinline)) bool free_inside(struct gc_tcache *tcache, struct gc_block *block,
                                                  uint64_t address)
{
    struct gc_context *context = NULL;
    struct gc_tcache_context *tctx = gc_tcache_context_for(tcache, block, address);
    bool has_flushed = false;
    if (tctx != NULL) {
        context = tctx->context;
        has_flushed = cache_block(tctx, block);
    } else {
        gc_tcache_unclaim(block);
    }
    gc_tcache_leave(tcache);
    if (has_flushed)
        gc_defer_on_flush(context);
    return tctx != NULL;
}

/* The block is of another magazine than the last one, or large, or may not be cached. */
static __attribute__((noinline)) bool free_other(struct gc_tcache *tcache, struct gc_block *block,
                                                 uint64_t address, uint16_t number)
{
    const bool is_large = (number & GC_BLOCK_LARGE) != 0;
    const uint16_t context_number = number & (uint16_t)~GC_BLOCK_LARGE;
    if (number != 0 && (!is_large || may_cache_large(tcache, context_number, address)) &&
        gc_tcache_claim(block))
        return free_inside(tcache, block, address);
    gc_tcache_leave(tcache);
    return false;
}

static __attribute__((noinline)) bool free_timed(struct gc_core *core, struct gc_tcache *tcache,
                                                 uint64_t address)
{
    const uint64_t start_ns = sample_begin(tcache);
    if (!gc_tcache_free(core, tcache, address))
        return false;
    sample_end(tcache, &core->free_ns, start_ns);
    return true;
}

bool gc_tcache_free(struct gc_core *core, struct gc_tcache *tcache, uint64_t address)
{
    if (!GC_LIKELY(tcache != NULL))
        return false;
    if (!GC_LIKELY(--tcache->until_sample != 0))
        return free_timed(core, tcache, address);
    if (!GC_LIKELY(gc_tcache_enter(tcache)))
        return false;
    struct gc_block *block = gc_pagemap_get(&core->pagemap, address);
    struct gc_tcache_context *tctx = tcache->last;
    struct gc_context *context = tctx->context;
    if (!GC_LIKELY(block != NULL)) {
        gc_tcache_leave(tcache);
        return false;
    }
    const uint16_t number = atomic_load_explicit(&block->tcache_number, memory_order_relaxed);
    if (!GC_LIKELY(number == tctx->number))
        return free_other(tcache, block, address, number);
    if (!GC_LIKELY(gc_tcache_claim(block))) {
        gc_tcache_leave(tcache); /* it is not live */
        return false;
    }
    /* No other thread changes the claimed record. It may have been reused just before the claim. */
    if (!GC_LIKELY(block->address == address &&
                   atomic_load_explicit(&block->tcache_number, memory_order_relaxed) == number &&
                   !gc_tcache_is_closed(context) && block->api == tctx->streak.api &&
                   !tcache->is_observed))
        return free_inside(tcache, block, address);
    const uint64_t ready_bytes = gc_tcache_cached_bytes(tctx) - tctx->pending_bytes + block->bytes;
    if (!GC_LIKELY(gc_context_has_completed(context, gc_submit_epoch_of_free(&core->work)) &&
                   ready_bytes <= cap_of(context)))
        return free_inside(tcache, block, address);
    const uint64_t size = size_of_live(block);
    gc_tcache_count_free(tctx, block->live.requested_bytes, block->bytes);
    push_ready(tctx, block, size);
    gc_tcache_leave(tcache);
    return true;
}
