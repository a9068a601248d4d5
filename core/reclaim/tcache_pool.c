/* Hits in the pool's bins: requests and frees that the thread's cache does not serve and the pool
 * serves at once, under its lock alone, counted in the thread's own figures. A wrapper calls these
 * before it asks the runtime or the driver anything. What is not plain (a tenant's gate, a plan, a
 * trace, an excess over a limit, a capture, a fault) is left to gc_alloc and gc_free, with nothing
 * changed but the figures merged.
 *
 * Times and the figures of other processes are samples: a clock costs as much as a hit. */
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache_flush.h"

#include <stddef.h>

/* One call in so many is timed: gc_histogram_sample. */
struct sample {
    uint64_t calls; /* that this one stands for; 0: it is not timed */
    uint64_t start_ns;
};

static inline struct sample sample_begin(const struct gc_core *core)
{
    const uint64_t calls = gc_histogram_sample();
    return (struct sample){calls, calls == 0 ? 0 : gc_core_now_ns(core)};
}

static void sample_end(struct gc_tcache *tcache, struct gc_context *context,
                       struct gc_histogram *histogram, const struct sample *sample)
{
    if (GC_LIKELY(sample->calls == 0))
        return;
    const uint64_t end_ns = gc_core_now_ns(context->core);
    gc_histogram_add_many(histogram, end_ns - sample->start_ns, sample->calls);
    gc_tcache_publish(tcache, context, end_ns);
}

static inline bool may_alloc(const struct gc_tcache *tcache, const struct gc_context *context)
{
    const struct gc_device *device = context->device;
    return !tcache->is_observed && context->core->follow == NULL && context->tenant == NULL &&
           context->pool.number != 0 && !device->info.is_dedicated &&
           !atomic_load_explicit(&device->is_over_limit, memory_order_relaxed) &&
           gc_device_excess_bytes(device) == 0;
}

static struct gc_block *take_block(struct gc_pool *pool, enum gc_size_class size_class,
                                   const struct gc_alloc_spec *spec)
{
    struct gc_block *block = NULL;
    if (gc_pool_acquire(pool) != GC_OK)
        return NULL;
    if (!pool->is_dropped && !pool->is_closed)
        block = gc_pool_alloc_locked(pool, size_class, spec);
    gc_pool_release(pool);
    return block;
}

/* The owner is inside. Whoever places a large block, this file or gc_alloc, must know all free
 * memory: a traced program has the same places as an untraced one. */
static bool flush_large_of(struct gc_tcache *tcache, const struct gc_context *context)
{
    struct gc_tcache_context *tctx = gc_tcache_find(tcache, context);
    return tctx != NULL && gc_tcache_flush_large(tctx);
}

/* The owner is inside. The address, or GC_ADDRESS_NONE. */
static uint64_t alloc_inside(struct gc_tcache *tcache, struct gc_context *context,
                             enum gc_size_class size_class, const struct gc_alloc_spec *spec)
{
    if (gc_tcache_is_closed(context))
        return GC_ADDRESS_NONE;
    struct gc_tcache_context *tctx = gc_tcache_context_of(tcache, context);
    const struct gc_block *block = take_block(&context->pool, size_class, spec);
    if (block == NULL)
        return GC_ADDRESS_NONE;
    const uint64_t address = block->address;
    gc_tcache_begin_streak(tctx, spec->api);
    gc_tcache_count_pool_alloc(tctx, spec->requested_bytes, block->bytes);
    gc_tcache_bound_stats(tctx);
    return address;
}

uint64_t gc_tcache_alloc_from_pool(struct gc_tcache *tcache, struct gc_context *context,
                                   uint64_t bytes, uint16_t api)
{
    struct gc_alloc_spec spec = {.requested_bytes = bytes, .api = api};
    struct gc_segment_spec segment_spec;
    uint64_t address = GC_ADDRESS_NONE;
    if (tcache == NULL || bytes == 0)
        return GC_ADDRESS_NONE;
    const struct sample sample = sample_begin(context->core);
    if (!gc_tcache_enter(tcache))
        return GC_ADDRESS_NONE;
    const bool has_flushed = bytes > GC_SMALL_MAX && flush_large_of(tcache, context);
    if (may_alloc(tcache, context) && gc_pool_specify(bytes, &spec.bytes, &segment_spec))
        address = alloc_inside(tcache, context, segment_spec.size_class, &spec);
    if (address == GC_ADDRESS_NONE)
        gc_tcache_merge_stats(tcache->last);
    gc_tcache_leave(tcache);
    if (has_flushed)
        gc_defer_on_flush(context);
    if (address != GC_ADDRESS_NONE)
        sample_end(tcache, context, &context->core->alloc_ns, &sample);
    return address;
}

/* Whether the free of the claimed block is short: it waits for nothing. */
static bool may_free(const struct gc_tcache *tcache, const struct gc_context *context,
                     const struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
    return !tcache->is_observed && !context->is_device && !gc_context_is_fenceless(context) &&
           segment->size_class != GC_CLASS_UNCACHED && !segment->is_plain && !block->is_ordered;
}

/* Where a freed block went. */
enum place { NOWHERE, BINS, PENDING };

/* The owner is inside. Nowhere: the block is live as before. *has_flushed: large blocks of *context
 * went to the pool. */
static enum place free_inside(struct gc_tcache *tcache, struct gc_block *block, uint64_t address,
                              struct gc_context **context, bool *has_flushed)
{
    struct gc_tcache_context *tctx = gc_tcache_context_for(tcache, block, address);
    *has_flushed = tctx != NULL && block->bytes > GC_SMALL_MAX && gc_tcache_flush_large(tctx);
    *context = tctx == NULL ? NULL : tctx->context;
    if (tctx == NULL || !may_free(tcache, tctx->context, block)) {
        gc_tcache_unclaim(block);
        return NOWHERE;
    }
    struct gc_submissions *work = &tctx->context->core->work;
    struct gc_pool *pool = &tctx->context->pool;
    const uint64_t epoch = gc_submit_epoch_of_free(work);
    const enum place place = gc_context_may_reuse(tctx->context, work, epoch) ? BINS : PENDING;
    const uint64_t bytes = block->bytes;
    gc_tcache_begin_streak(tctx, block->api);
    gc_tcache_count_free(tctx, block->live.requested_bytes, bytes);
    gc_pool_acquire_plain(pool);
    if (place == BINS)
        gc_pool_free_locked(pool, block);
    else
        gc_pending_push_locked(pool, block, epoch);
    gc_pool_release(pool);
    gc_tcache_count_flushed(tctx, bytes);
    gc_tcache_bound_stats(tctx);
    return place;
}

bool gc_tcache_free_to_pool(struct gc_core *core, struct gc_tcache *tcache, uint64_t address)
{
    enum place place = NOWHERE;
    struct gc_context *context = NULL;
    bool has_flushed = false;
    if (tcache == NULL)
        return false;
    const struct sample sample = sample_begin(core);
    if (!gc_tcache_enter(tcache))
        return false;
    struct gc_block *block = gc_pagemap_get(&core->pagemap, address);
    if (block != NULL && atomic_load_explicit(&block->tcache_number, memory_order_relaxed) != 0 &&
        gc_tcache_claim(block))
        place = free_inside(tcache, block, address, &context, &has_flushed);
    if (place == NOWHERE)
        gc_tcache_merge_stats(tcache->last);
    gc_tcache_leave(tcache);
    if (has_flushed || place == PENDING)
        gc_defer_on_flush(context);
    else if (place == BINS)
        gc_release_trim(context);
    if (place == NOWHERE)
        return false;
    sample_end(tcache, context, &core->free_ns, &sample);
    return true;
}
