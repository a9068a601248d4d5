/* What leaves a thread's magazine: its figures for the device and the tenant's share of it, its
 * blocks for the pool. */
#include "core/reclaim/tcache_flush.h"

#include "core/base/bits.h"
#include "core/device/context.h"
#include "core/device/registry.h"

#include <stddef.h>

#define BATCH_MAX 64 /* blocks handed over under one lock */

/* ---- figures, within the thread ---- */

static void shift(struct gc_tally *tally, int64_t delta, int64_t peak)
{
    if (tally->delta + peak > tally->peak)
        tally->peak = tally->delta + peak;
    tally->delta += delta;
}

static void merge_count(gc_counter *counter, uint64_t *count)
{
    if (*count != 0)
        gc_counter_add(counter, *count);
    *count = 0;
}

static void merge_gauge(struct gc_gauge_cell *gauge, struct gc_tally *tally)
{
    if (tally->delta == 0 && tally->peak == 0)
        return;
    gc_gauge_merge(gauge, tally->delta, tally->peak);
    *tally = (struct gc_tally){0, 0};
}

static void merge_api(struct gc_device *device, struct gc_api_tally *tally)
{
    struct gc_api_cell *cell = &device->apis[tally->api];
    if (tally->api >= device->core->api_count)
        return;
    merge_count(&cell->count, &tally->count);
    merge_count(&cell->bytes, &tally->bytes);
    merge_gauge(&cell->live, &tally->live);
}

/* The one of that entry point. */
static struct gc_api_tally *tally_of(struct gc_magazine *magazine, uint16_t api)
{
    struct gc_api_tally *tally = &magazine->apis[api % GC_MAGAZINE_APIS];
    if (tally->api != api) {
        merge_api(magazine->context->device, tally);
        tally->api = api;
    }
    return tally;
}

/* What the run counted is in the sums. */
static void end_run(struct gc_magazine *magazine)
{
    struct gc_run *run = &magazine->run;
    if (run->count == 0 && run->given_bytes == 0)
        return;
    struct gc_api_tally *tally = tally_of(magazine, run->api);
    const int64_t delta = (int64_t)(run->taken_bytes - run->given_bytes);
    magazine->api_mask |= 1U << run->api % GC_MAGAZINE_APIS;
    magazine->alloc_count += run->count;
    tally->count += run->count;
    tally->bytes += run->taken_bytes;
    shift(&magazine->requested, delta, run->peak);
    shift(&tally->live, delta, run->peak);
    *run = (struct gc_run){.api = run->api};
}

void gc_tally_turn(struct gc_magazine *magazine, uint16_t api)
{
    if (GC_LIKELY(magazine->run.api == api))
        return;
    end_run(magazine);
    magazine->run.api = api;
}

/* ---- figures, into the device's ---- */

/* Before the device's, which empties the tallies. */
static void merge_share(const struct gc_magazine *magazine, const struct gc_tally *allocated,
                        struct gc_share *share)
{
    if (magazine->alloc_count != 0) {
        gc_counter_add(&share->alloc_count, magazine->alloc_count);
        gc_counter_add(&share->hit_count, magazine->alloc_count);
    }
    if (magazine->free_count != 0)
        gc_counter_add(&share->free_count, magazine->free_count);
    if (magazine->requested.delta != 0 || magazine->requested.peak != 0)
        gc_gauge_merge(&share->requested, magazine->requested.delta, magazine->requested.peak);
    if (allocated->delta != 0 || allocated->peak != 0)
        gc_gauge_merge(&share->allocated, allocated->delta, allocated->peak);
}

/* What was allocated and freed since this was asked last. */
static struct gc_tally take_allocated(struct gc_magazine *magazine)
{
    const int64_t cached_bytes = (int64_t)gc_magazine_cached_bytes(magazine);
    const struct gc_tally allocated = {magazine->stock_bytes - cached_bytes,
                                       magazine->stock_bytes - magazine->least_bytes};
    magazine->stock_bytes = cached_bytes;
    magazine->least_bytes = cached_bytes;
    return allocated;
}

static void merge_pending(struct gc_magazine *magazine, struct gc_gauge_cell *pending)
{
    if (magazine->pending_bytes > magazine->merged_pending_bytes)
        gc_gauge_add(pending, magazine->pending_bytes - magazine->merged_pending_bytes);
    else if (magazine->pending_bytes < magazine->merged_pending_bytes)
        gc_gauge_sub(pending, magazine->merged_pending_bytes - magazine->pending_bytes);
    magazine->merged_pending_bytes = magazine->pending_bytes;
}

void gc_magazine_merge(struct gc_magazine *magazine)
{
    if (magazine->context == NULL)
        return;
    struct gc_device *device = magazine->context->device;
    struct gc_stats *stats = &device->stats;
    end_run(magazine);
    struct gc_tally allocated = take_allocated(magazine);
    if (magazine->context->share != NULL)
        merge_share(magazine, &allocated, magazine->context->share);
    if (magazine->alloc_count != 0)
        gc_counter_add(&stats->hit_count, magazine->alloc_count);
    merge_count(&stats->alloc_count, &magazine->alloc_count);
    merge_count(&stats->free_count, &magazine->free_count);
    merge_gauge(&stats->requested, &magazine->requested);
    merge_gauge(&stats->allocated, &allocated);
    merge_pending(magazine, &stats->pending);
    for (; magazine->api_mask != 0; magazine->api_mask &= magazine->api_mask - 1)
        merge_api(device, &magazine->apis[__builtin_ctz(magazine->api_mask)]);
}

/* ---- blocks, to the pool ---- */

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
