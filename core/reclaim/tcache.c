/* The hot path: see magazine.h; its other side is tcache_flush.c. Everything between enter and
 * leave belongs to the owner alone.
 *
 * gc_core_take and gc_core_try_free serve what is plain: the magazine and the entry point of the
 * time before, the size at hand, a block that is idle. They call nothing, so that they save no
 * registers, and ask everything before they change anything; what is not plain goes to a function
 * that does the same without hurry, as does what is traced and what is timed. */
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache_flush.h"

#include <stddef.h>

#define LARGE_STREAK 2 /* times in a row that a large block goes to the pool before it may stay */
/* What may wait here for its stamp before the pool takes it over and fences it. */
#define PENDING_MAX 64
#define PENDING_SHARE 4 /* of the magazine's bytes */
#define SEARCH_MAX 8    /* blocks looked at in one bin */
#define DRAIN_MAX 64
#define SAMPLE_EVERY 256 /* hits of which one is timed */

/* ---- in and out ---- */

/* The owner's half where there is no membarrier. */
static bool enter_fenced(struct gc_cache *cache)
{
    if (atomic_load_explicit(&cache->gate, memory_order_relaxed) == GC_CACHE_FENCED) {
        atomic_store_explicit(&cache->is_busy, true, memory_order_seq_cst);
        if (atomic_load_explicit(&cache->gate, memory_order_seq_cst) == GC_CACHE_FENCED)
            return true;
    }
    atomic_store_explicit(&cache->is_busy, false, memory_order_release);
    return false;
}

/* False: another thread has stopped the caches, or a signal handler came in between. */
static inline bool enter(struct gc_cache *cache)
{
    if (!GC_LIKELY(!atomic_load_explicit(&cache->is_busy, memory_order_relaxed)))
        return false;
    atomic_store_explicit(&cache->is_busy, true, memory_order_relaxed);
    /* The processor's part is the membarrier in gc_caches_stop. */
    atomic_signal_fence(memory_order_seq_cst);
    /* Acquire: pairs with the release in gc_caches_resume. */
    return GC_LIKELY(atomic_load_explicit(&cache->gate, memory_order_acquire) == GC_CACHE_OPEN) ||
           enter_fenced(cache);
}

static inline void leave(struct gc_cache *cache)
{
    /* Release: pairs with the acquire in cache.c's await_owner. */
    atomic_store_explicit(&cache->is_busy, false, memory_order_release);
}

/* What must be left to the pool for the moment, or for good. */
static inline bool is_closed(const struct gc_context *context)
{
    return ((unsigned)atomic_load_explicit(&context->is_dropped, memory_order_acquire) |
            (unsigned)atomic_load_explicit(&context->is_suspect, memory_order_relaxed) |
            atomic_load_explicit(&context->capture_count, memory_order_relaxed)) != 0;
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

void gc_core_cache_settle(struct gc_cache *cache)
{
    if (cache == NULL || !enter(cache))
        return;
    for (unsigned i = 0; i < GC_CACHE_MAGAZINES; i++)
        gc_magazine_merge(&cache->magazines[i]);
    leave(cache);
}

static uint64_t sample_begin(struct gc_cache *cache)
{
    const struct gc_driver *driver = &cache->core->driver;
    cache->until_sample = SAMPLE_EVERY + 1; /* this one counts itself once more */
    return driver->clock_ns(driver->self);
}

static void sample_end(const struct gc_cache *cache, struct gc_hist *hist, uint64_t start_ns)
{
    const struct gc_driver *driver = &cache->core->driver;
    gc_hist_add_many(hist, driver->clock_ns(driver->self) - start_ns, SAMPLE_EVERY);
}

/* For other processes to read. */
static void show_figures(struct gc_cache *cache, struct gc_context *context, uint64_t now_ns)
{
    if (cache->core->ledger == NULL)
        return;
    gc_core_cache_settle(cache);
    gc_member_write(context->device, now_ns);
    gc_member_write_record(context);
}

/* ---- bins ---- */

static inline unsigned bin_of(uint64_t bytes)
{
    if (!GC_LIKELY(bytes <= GC_SMALL_MAX))
        return GC_MAGAZINE_LARGE;
    /* Fibonacci hashing: neighbouring sizes, and powers of two, are spread. */
    return (unsigned)((bytes >> GC_GRANULE_BITS) * UINT64_C(0x9E3779B97F4A7C15) >> 57);
}
_Static_assert(GC_MAGAZINE_LARGE == 1U << (64 - 57), "bin_of's shift");

/* What its bin finds a block by, the rounded size it was last asked for: it may be longer by a
 * remainder too short to split. A live block of a magazine never is by more than that. */
static inline uint64_t size_of_live(const struct gc_block *block)
{
    return (block->live.requested_bytes + GC_GRANULE - 1) & ~(GC_GRANULE - 1);
}

static inline void push_ready(struct gc_magazine *magazine, struct gc_block *block, uint64_t size)
{
    struct gc_block **bin = &magazine->bins[bin_of(size)];
    block->ready.next = *bin;
    block->ready.size = size;
    *bin = block;
}

static struct gc_block *pop_ready(struct gc_magazine *magazine, uint64_t size)
{
    struct gc_block **link = &magazine->bins[bin_of(size)];
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

static void push_pending(struct gc_magazine *magazine, struct gc_block *block, uint64_t size,
                         uint64_t stamp)
{
    block->slack = (uint8_t)((block->bytes - size) >> GC_GRANULE_BITS);
    block->pending.next = NULL;
    block->pending.stamp = stamp;
    if (magazine->pending_last != NULL)
        magazine->pending_last->pending.next = block;
    else
        magazine->pending_first = block;
    magazine->pending_last = block;
    magazine->pending_count++;
    magazine->pending_bytes += block->bytes;
}

/* What has become idle is ready. True if anything has. */
static bool drain(struct gc_magazine *magazine)
{
    unsigned count = 0;
    while (magazine->pending_first != NULL && count < DRAIN_MAX &&
           gc_context_is_retired(magazine->context, magazine->pending_first->pending.stamp)) {
        struct gc_block *block = gc_magazine_pop_pending(magazine);
        push_ready(magazine, block, block->bytes - ((uint64_t)block->slack << GC_GRANULE_BITS));
        count++;
    }
    return count > 0;
}

/* ---- handing over ---- */

static inline uint64_t cap_of(const struct gc_context *context)
{
    return atomic_load_explicit(&context->magazine_bytes, memory_order_relaxed);
}

static inline bool is_over(const struct gc_magazine *magazine)
{
    return gc_magazine_cached_bytes(magazine) - magazine->pending_bytes > cap_of(magazine->context);
}

/* Hands ready blocks over until the magazine is within its bytes. True if it was not. */
static bool shrink(struct gc_magazine *magazine)
{
    if (!is_over(magazine))
        return false;
    gc_magazine_merge(magazine);
    do {
        struct gc_block **bin = &magazine->bins[magazine->victim++ % GC_MAGAZINE_BINS];
        if (*bin != NULL)
            gc_magazine_give_batch(magazine, bin);
    } while (is_over(magazine));
    return true;
}

/* ---- allocation ---- */

static inline void make_live(struct gc_cache *cache, struct gc_magazine *magazine,
                             struct gc_block *block, uint64_t requested_bytes)
{
    gc_tally_note_alloc(magazine, requested_bytes, block->bytes);
    block->live.requested_bytes = requested_bytes;
    block->live.id = cache->ids.next++;
    block->api = magazine->run.api;
    block->is_shared = false;
    /* Release: pairs with the exchange of who frees it. */
    atomic_store_explicit(&block->state, GC_BLOCK_LIVE, memory_order_release);
}

static struct gc_block *take(struct gc_magazine *magazine, uint64_t size)
{
    struct gc_block *block = pop_ready(magazine, size);
    if (block == NULL && magazine->pending_first != NULL && drain(magazine))
        block = pop_ready(magazine, size);
    return block;
}

/* Gives the large blocks to the pool. True if there were any. */
static bool hand_over_large(struct gc_magazine *magazine)
{
    const uint64_t before = gc_magazine_cached_bytes(magazine);
    if (magazine->pending_bytes > GC_SMALL_MAX) {
        drain(magazine);
        gc_magazine_hand_over_pending(magazine);
    }
    while (magazine->bins[GC_MAGAZINE_LARGE] != NULL)
        gc_magazine_give_batch(magazine, &magazine->bins[GC_MAGAZINE_LARGE]);
    return gc_magazine_cached_bytes(magazine) != before;
}

/* The pool's turn: it finds this thread's figures complete. */
static void leave_to_pool(struct gc_cache *cache, struct gc_magazine *magazine,
                          struct gc_context *context, uint64_t size)
{
    gc_magazine_merge(magazine);
    const bool handed_over =
        size > GC_SMALL_MAX && magazine->context == context && hand_over_large(magazine);
    leave(cache);
    if (handed_over)
        gc_reuse_note_handed(context);
}

/* An allocation that is not plain; inside, and outside when it returns. */
static __attribute__((noinline)) uint64_t take_inside(struct gc_cache *cache,
                                                      struct gc_context *context, uint64_t bytes,
                                                      uint16_t api)
{
    const uint64_t size = (bytes + GC_GRANULE - 1) & ~(GC_GRANULE - 1);
    struct gc_magazine *magazine = &cache->magazines[context->pool.number % GC_CACHE_MAGAZINES];
    struct gc_block *block = NULL;
    if (magazine->context == context && !is_closed(context))
        block = take(magazine, size);
    if (block == NULL) {
        leave_to_pool(cache, magazine, context, size);
        return GC_ADDRESS_NONE;
    }
    const uint64_t address = block->address;
    const uint64_t block_bytes = block->bytes;
    cache->last = magazine;
    gc_block_renew_ids(&cache->ids, &cache->core->next_block_id);
    gc_tally_turn(magazine, api);
    make_live(cache, magazine, block, bytes);
    leave(cache);
    if (cache->is_observed)
        trace_alloc(context, address, bytes, block_bytes, api);
    return address;
}

static __attribute__((noinline)) uint64_t take_timed(struct gc_cache *cache,
                                                     struct gc_context *context, uint64_t bytes,
                                                     uint16_t api)
{
    const uint64_t start_ns = sample_begin(cache);
    const uint64_t address = gc_core_take(cache, context, bytes, api);
    if (address == GC_ADDRESS_NONE)
        return address;
    sample_end(cache, &cache->core->alloc_ns, start_ns);
    show_figures(cache, context, start_ns);
    return address;
}

uint64_t gc_core_take(struct gc_cache *cache, struct gc_context *context, uint64_t bytes,
                      uint16_t api)
{
    const uint64_t size = (bytes + GC_GRANULE - 1) & ~(GC_GRANULE - 1);
    /* No bytes wrap to more than there may be. */
    if (!GC_LIKELY(bytes - 1 < GC_MAGAZINE_BLOCK_MAX))
        return GC_ADDRESS_NONE;
    if (!GC_LIKELY(--cache->until_sample != 0))
        return take_timed(cache, context, bytes, api);
    if (!GC_LIKELY(enter(cache)))
        return GC_ADDRESS_NONE;
    struct gc_magazine *magazine = cache->last;
    struct gc_block **bin = &magazine->bins[bin_of(size)];
    struct gc_block *block = *bin;
    if (!GC_LIKELY(magazine->context == context && !is_closed(context) && block != NULL &&
                   block->ready.size == size && magazine->run.api == api &&
                   cache->ids.next != cache->ids.end && !cache->is_observed))
        return take_inside(cache, context, bytes, api);
    *bin = block->ready.next;
    make_live(cache, magazine, block, bytes);
    const uint64_t address = block->address;
    leave(cache);
    return address;
}

bool gc_core_try_alloc(struct gc_cache *cache, struct gc_context *context,
                       const struct gc_request *request, uint64_t *address)
{
    if (cache == NULL || request->stream != 0 || request->is_whole)
        return false;
    *address = gc_core_take(cache, context, request->bytes, request->api);
    return *address != GC_ADDRESS_NONE;
}

/* ---- free ---- */

static inline bool claim(struct gc_block *block)
{
    uint8_t expected = GC_BLOCK_LIVE;
    return atomic_compare_exchange_strong_explicit(&block->state, &expected, GC_BLOCK_CACHED,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static void unclaim(struct gc_block *block)
{
    atomic_store_explicit(&block->state, GC_BLOCK_LIVE, memory_order_release);
}

/* The magazine for a claimed block, empty if it was another context's; NULL: the block is not for
 * one, or not the one that was meant. No context is dropped while the caller is inside, so what the
 * address leads to, and is live, stays a record. */
static struct gc_magazine *magazine_for(struct gc_cache *cache, const struct gc_block *block,
                                        uint64_t address)
{
    const uint16_t number = atomic_load_explicit(&block->magazine, memory_order_relaxed);
    struct gc_magazine *magazine = &cache->magazines[number % GC_CACHE_MAGAZINES];
    if (number == 0 || block->address != address)
        return NULL;
    if (magazine->number != number) {
        gc_magazine_empty(magazine);
        magazine->context = gc_block_pool(block)->context;
        magazine->number = number;
    }
    return is_closed(magazine->context) ? NULL : magazine;
}

/* Whether a block that is freed may stay. A large one only if it comes again and again: then it is
 * what the pool would choose, too. Any other large one is better placed by the pool, which must
 * know all that is free: a program that repeats itself then finds its pages where they were. */
static bool may_keep(struct gc_magazine *magazine, const struct gc_block *block)
{
    if (block->bytes <= GC_SMALL_MAX)
        return true;
    if (magazine->large_address != block->address) {
        magazine->large_address = block->address;
        magazine->large_streak = 0;
    }
    return ++magazine->large_streak > LARGE_STREAK;
}

/* Puts it into the thread's magazine. True if blocks went to the pool: what that calls for must not
 * be done in here. */
static bool keep(struct gc_magazine *magazine, struct gc_block *block)
{
    struct gc_context *context = magazine->context;
    struct gc_work *work = &context->core->work;
    const uint64_t size = size_of_live(block);
    gc_tally_turn(magazine, block->api);
    gc_tally_note_free(magazine, block->live.requested_bytes, block->bytes);
    if (context->core->is_observed)
        trace_free(context, block);
    const uint64_t stamp = gc_work_stamp(work);
    if (gc_context_may_reuse(context, work, stamp)) {
        push_ready(magazine, block, size);
        return shrink(magazine);
    }
    push_pending(magazine, block, size, stamp);
    if (magazine->pending_count < PENDING_MAX &&
        magazine->pending_bytes <= cap_of(context) / PENDING_SHARE)
        return false;
    gc_magazine_merge(magazine);
    drain(magazine);
    shrink(magazine);
    gc_magazine_hand_over_pending(magazine);
    return true;
}

/* A free that is not plain, of a claimed block; inside, and outside when it returns. */
static __attribute__((noinline)) bool free_inside(struct gc_cache *cache, struct gc_block *block,
                                                  uint64_t address)
{
    struct gc_magazine *magazine = magazine_for(cache, block, address);
    struct gc_context *context = magazine != NULL ? magazine->context : NULL;
    const bool is_kept = magazine != NULL && may_keep(magazine, block);
    bool handed_over = false;
    if (is_kept) {
        cache->last = magazine;
        handed_over = keep(magazine, block);
    } else {
        handed_over = magazine != NULL && hand_over_large(magazine);
        unclaim(block);
    }
    leave(cache);
    if (handed_over)
        gc_reuse_note_handed(context);
    if (!is_kept)
        gc_core_cache_settle(cache);
    return is_kept;
}

/* It is no block's, or not live. */
static __attribute__((noinline)) bool decline(struct gc_cache *cache)
{
    leave(cache);
    gc_core_cache_settle(cache);
    return false;
}

static __attribute__((noinline)) bool free_timed(struct gc_core *core, struct gc_cache *cache,
                                                 uint64_t address)
{
    const uint64_t start_ns = sample_begin(cache);
    if (!gc_core_try_free(core, cache, address))
        return false;
    sample_end(cache, &core->free_ns, start_ns);
    return true;
}

bool gc_core_try_free(struct gc_core *core, struct gc_cache *cache, uint64_t address)
{
    if (!GC_LIKELY(cache != NULL))
        return false;
    if (!GC_LIKELY(--cache->until_sample != 0))
        return free_timed(core, cache, address);
    if (!GC_LIKELY(enter(cache)))
        return false;
    struct gc_block *block = gc_pagemap_get(&core->pagemap, address);
    if (!GC_LIKELY(block != NULL && claim(block)))
        return decline(cache);
    /* Nobody else changes the record now. It may have come to be another block's just before. */
    struct gc_magazine *magazine = cache->last;
    struct gc_context *context = magazine->context;
    if (!GC_LIKELY(block->address == address &&
                   atomic_load_explicit(&block->magazine, memory_order_relaxed) ==
                       magazine->number &&
                   !is_closed(context) && block->bytes <= GC_SMALL_MAX &&
                   block->api == magazine->run.api && !cache->is_observed))
        return free_inside(cache, block, address);
    const uint64_t ready_bytes =
        gc_magazine_cached_bytes(magazine) - magazine->pending_bytes + block->bytes;
    if (!GC_LIKELY(gc_context_is_retired(context, gc_work_stamp(&core->work)) &&
                   ready_bytes <= cap_of(context)))
        return free_inside(cache, block, address);
    const uint64_t size = size_of_live(block);
    gc_tally_note_free(magazine, block->live.requested_bytes, block->bytes);
    push_ready(magazine, block, size);
    leave(cache);
    return true;
}
