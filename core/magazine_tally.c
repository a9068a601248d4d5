/* Figures of a magazine's owner on their way to the device and to the tenant's share of it. */
#include "core/magazine_tally.h"

#include <stddef.h>

/* Misses merge, so what has not changed must cost nothing. */
static void merge_count(gc_counter *counter, uint64_t *count)
{
    if (*count != 0)
        gc_counter_add(counter, *count);
    *count = 0;
}

static void merge(struct gc_gauge_cell *gauge, struct gc_tally *tally)
{
    if (tally->delta == 0 && tally->peak == 0)
        return;
    gc_gauge_merge(gauge, tally->delta, tally->peak);
    *tally = (struct gc_tally){0, 0};
}

void gc_tally_merge_api(struct gc_device *device, struct gc_api_tally *tally)
{
    struct gc_api_cell *cell = &device->apis[tally->api];
    if (tally->api >= device->core->api_count)
        return;
    merge_count(&cell->count, &tally->count);
    merge_count(&cell->bytes, &tally->bytes);
    merge(&cell->live, &tally->live);
}

/* Before the device's, which empties the tallies. */
static void merge_share(const struct gc_magazine *magazine, struct gc_share *share)
{
    if (magazine->alloc_count != 0) {
        gc_counter_add(&share->alloc_count, magazine->alloc_count);
        gc_counter_add(&share->hit_count, magazine->alloc_count);
    }
    if (magazine->free_count != 0)
        gc_counter_add(&share->free_count, magazine->free_count);
    if (magazine->requested.delta != 0 || magazine->requested.peak != 0)
        gc_gauge_merge(&share->requested, magazine->requested.delta, magazine->requested.peak);
    if (magazine->allocated.delta != 0 || magazine->allocated.peak != 0)
        gc_gauge_merge(&share->allocated, magazine->allocated.delta, magazine->allocated.peak);
}

void gc_magazine_merge(struct gc_magazine *magazine)
{
    if (magazine->context == NULL)
        return;
    struct gc_device *device = magazine->context->device;
    struct gc_stats *stats = &device->stats;
    if (magazine->context->share != NULL)
        merge_share(magazine, magazine->context->share);
    if (magazine->alloc_count != 0)
        gc_counter_add(&stats->hit_count, magazine->alloc_count);
    merge_count(&stats->alloc_count, &magazine->alloc_count);
    merge_count(&stats->free_count, &magazine->free_count);
    merge(&stats->requested, &magazine->requested);
    merge(&stats->allocated, &magazine->allocated);
    if (magazine->pending_bytes > magazine->merged_pending_bytes)
        gc_gauge_add(&stats->pending, magazine->pending_bytes - magazine->merged_pending_bytes);
    else if (magazine->pending_bytes < magazine->merged_pending_bytes)
        gc_gauge_sub(&stats->pending, magazine->merged_pending_bytes - magazine->pending_bytes);
    magazine->merged_pending_bytes = magazine->pending_bytes;
    for (unsigned i = 0; i < GC_MAGAZINE_APIS; i++) {
        if (magazine->apis[i].count != 0 || magazine->apis[i].live.delta != 0 ||
            magazine->apis[i].live.peak != 0)
            gc_tally_merge_api(device, &magazine->apis[i]);
    }
}
