/* Flushes a magazine: its figures into those of the device and of the tenant's quota, its blocks
 * into the pool, BATCH_MAX under one lock. */
#include "core/reclaim/tcache_flush.h"

#include "core/base/bits.h"
#include "core/device/context.h"
#include "core/device/registry.h"

#include <stddef.h>

#define BATCH_MAX 64 /* blocks flushed under one lock */
/* A thread's figures may lie behind by this, or by a fraction of the device's allocated bytes. */
#define UNMERGED_MIN GC_MIB(16)
#define UNMERGED_DIVISOR 64
#define UNMERGED_MAX GC_MIB(512)

/* ---- figures of the thread ---- */

static void shift(struct gc_local_gauge *local, int64_t delta, int64_t peak)
{
    if (local->delta + peak > local->peak)
        local->peak = local->delta + peak;
    local->delta += delta;
}

static void merge_count(gc_counter *counter, uint64_t *count)
{
    if (*count != 0)
        gc_counter_add(counter, *count);
    *count = 0;
}

static void merge_gauge(struct gc_gauge_cell *gauge, struct gc_local_gauge *local)
{
    if (local->delta == 0 && local->peak == 0)
        return;
    gc_stats_merge_gauge(gauge, local->delta, local->peak);
    *local = (struct gc_local_gauge){0, 0};
}

static void merge_api(struct gc_device *device, struct gc_local_api *local)
{
    struct gc_api_cell *cell = &device->apis[local->api];
    if (local->api >= device->core->api_count)
        return;
    merge_count(&cell->count, &local->count);
    merge_count(&cell->bytes, &local->bytes);
    merge_gauge(&cell->live, &local->live);
}

/* The local figures of that entry point; a colliding entry point's are merged first. */
static struct gc_local_api *local_api_of(struct gc_tcache_context *tctx, uint16_t api)
{
    struct gc_local_api *local = &tctx->apis[api % GC_TCACHE_APIS];
    if (local->api != api) {
        merge_api(tctx->context->device, local);
        local->api = api;
    }
    return local;
}

/* Adds the streak to the sums. */
static void end_streak(struct gc_tcache_context *tctx)
{
    struct gc_streak *streak = &tctx->streak;
    if (streak->count == 0 && streak->freed_bytes == 0)
        return;
    struct gc_local_api *local = local_api_of(tctx, streak->api);
    const int64_t delta = (int64_t)(streak->alloc_bytes - streak->freed_bytes);
    tctx->api_mask |= 1U << streak->api % GC_TCACHE_APIS;
    tctx->alloc_count += streak->count;
    local->count += streak->count;
    local->bytes += streak->alloc_bytes;
    shift(&tctx->requested, delta, streak->peak);
    shift(&local->live, delta, streak->peak);
    *streak = (struct gc_streak){.api = streak->api};
}

void gc_tcache_begin_streak(struct gc_tcache_context *tctx, uint16_t api)
{
    if (GC_LIKELY(tctx->streak.api == api))
        return;
    end_streak(tctx);
    tctx->streak.api = api;
}

/* ---- figures of the device ---- */

/* Before the device's merge, which resets the local figures. */
static void merge_quota(const struct gc_tcache_context *tctx,
                        const struct gc_local_gauge *allocated, struct gc_quota *quota)
{
    if (tctx->alloc_count != 0) {
        gc_counter_add(&quota->alloc_count, tctx->alloc_count);
        gc_counter_add(&quota->hit_count, tctx->alloc_count);
    }
    if (tctx->free_count != 0)
        gc_counter_add(&quota->free_count, tctx->free_count);
    if (tctx->requested.delta != 0 || tctx->requested.peak != 0)
        gc_stats_merge_gauge(&quota->requested, tctx->requested.delta, tctx->requested.peak);
    if (allocated->delta != 0 || allocated->peak != 0)
        gc_stats_merge_gauge(&quota->allocated, allocated->delta, allocated->peak);
}

/* The change of `allocated` since the last call. */
static struct gc_local_gauge reset_allocated(struct gc_tcache_context *tctx)
{
    const int64_t cached_bytes = (int64_t)gc_tcache_cached_bytes(tctx);
    const struct gc_local_gauge allocated = {tctx->base_bytes - cached_bytes,
                                             tctx->base_bytes - tctx->min_bytes};
    tctx->base_bytes = cached_bytes;
    tctx->min_bytes = cached_bytes;
    return allocated;
}

static void merge_pending(struct gc_tcache_context *tctx, struct gc_gauge_cell *pending)
{
    if (tctx->pending_bytes > tctx->merged_pending_bytes)
        gc_stats_add_gauge(pending, tctx->pending_bytes - tctx->merged_pending_bytes);
    else if (tctx->pending_bytes < tctx->merged_pending_bytes)
        gc_stats_sub_gauge(pending, tctx->merged_pending_bytes - tctx->pending_bytes);
    tctx->merged_pending_bytes = tctx->pending_bytes;
}

/* Each change since the last merge is in one of these. */
static bool is_merged(const struct gc_tcache_context *tctx)
{
    return (tctx->streak.count | tctx->streak.freed_bytes | tctx->alloc_count | tctx->free_count |
            tctx->api_mask) == 0 &&
           tctx->base_bytes == (int64_t)gc_tcache_cached_bytes(tctx) &&
           tctx->pending_bytes == tctx->merged_pending_bytes;
}

void gc_tcache_merge_stats(struct gc_tcache_context *tctx)
{
    if (tctx->context == NULL || is_merged(tctx))
        return;
    struct gc_device *device = tctx->context->device;
    struct gc_stats *stats = &device->stats;
    end_streak(tctx);
    struct gc_local_gauge allocated = reset_allocated(tctx);
    if (tctx->context->quota != NULL)
        merge_quota(tctx, &allocated, tctx->context->quota);
    if (tctx->alloc_count != 0)
        gc_counter_add(&stats->hit_count, tctx->alloc_count);
    merge_count(&stats->alloc_count, &tctx->alloc_count);
    merge_count(&stats->free_count, &tctx->free_count);
    merge_gauge(&stats->requested, &tctx->requested);
    merge_gauge(&stats->allocated, &allocated);
    merge_pending(tctx, &stats->pending);
    for (; tctx->api_mask != 0; tctx->api_mask &= tctx->api_mask - 1)
        merge_api(device, &tctx->apis[__builtin_ctz(tctx->api_mask)]);
    uint64_t now = atomic_load_explicit(&stats->allocated.current, memory_order_relaxed);
    if (gc_stats_gauge_is_negative(now))
        now = 0;
    tctx->unmerged_max = gc_min_u64(UNMERGED_MAX, gc_max_u64(UNMERGED_MIN, now / UNMERGED_DIVISOR));
}

/* ---- blocks ---- */

void gc_tcache_flush_batch(struct gc_tcache_context *tctx, struct gc_block **bin)
{
    struct gc_pool *pool = &tctx->context->pool;
    uint64_t bytes = 0;
    gc_pool_acquire_plain(pool);
    for (unsigned i = 0; i < BATCH_MAX && *bin != NULL; i++) {
        struct gc_block *block = *bin;
        *bin = block->ready.next;
        bytes += block->bytes;
        if (!pool->is_dropped)
            gc_pool_free_locked(pool, block);
    }
    gc_pool_release(pool);
    gc_tcache_count_flushed(tctx, bytes);
}

void gc_tcache_flush_pending(struct gc_tcache_context *tctx)
{
    struct gc_pool *pool = &tctx->context->pool;
    uint64_t bytes = 0;
    if (tctx->pending_first == NULL)
        return;
    if (tctx->merged_pending_bytes > 0)
        gc_stats_sub_gauge(&tctx->context->device->stats.pending, tctx->merged_pending_bytes);
    tctx->merged_pending_bytes = 0;
    gc_pool_acquire_plain(pool);
    while (tctx->pending_first != NULL) {
        struct gc_block *block = gc_tcache_pop_pending(tctx);
        bytes += block->bytes;
        if (!pool->is_dropped)
            gc_pending_push_locked(pool, block, block->pending.epoch);
    }
    gc_pool_release(pool);
    gc_tcache_count_flushed(tctx, bytes);
}

bool gc_tcache_flush(struct gc_tcache_context *tctx)
{
    const bool any = tctx->context != NULL && gc_tcache_cached_bytes(tctx) != 0;
    if (tctx->context == NULL)
        return false;
    gc_tcache_merge_stats(tctx);
    gc_tcache_flush_pending(tctx);
    for (unsigned i = 0; i < GC_TCACHE_BINS; i++)
        while (tctx->bins[i] != NULL)
            gc_tcache_flush_batch(tctx, &tctx->bins[i]);
    gc_tcache_release_large(tctx);
    tctx->context = NULL;
    tctx->number = GC_TCACHE_UNUSED;
    return any;
}
