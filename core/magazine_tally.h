/* Figures of a magazine's owner: kept without atomics at each allocation and free, and merged into
 * the device's when the magazine is (magazine_tally.c). */
#ifndef GC_MAGAZINE_TALLY_H
#define GC_MAGAZINE_TALLY_H

#include "core/bits.h"
#include "core/block.h"
#include "core/device.h"
#include "core/instance.h"
#include "core/magazine.h"

/* Gauges of others are off by at most this much for each thread. */
#define GC_UNMERGED_MAX ((int64_t)GC_MIB(16))

static inline void gc_tally_gain(struct gc_tally *tally, uint64_t bytes)
{
    tally->delta += (int64_t)bytes;
    if (tally->delta > tally->peak)
        tally->peak = tally->delta;
}

static inline void gc_tally_lose(struct gc_tally *tally, uint64_t bytes)
{
    tally->delta -= (int64_t)bytes;
}

/* One entry point's figures go to the device. */
void gc_tally_merge_api(struct gc_device *device, struct gc_api_tally *tally);

/* The one of that entry point. */
static inline struct gc_api_tally *gc_tally_of(struct gc_magazine *magazine, uint16_t api)
{
    struct gc_api_tally *tally = &magazine->apis[api % GC_MAGAZINE_APIS];
    if (!GC_LIKELY(tally->api == api)) {
        gc_tally_merge_api(magazine->context->device, tally);
        tally->api = api;
    }
    return tally;
}

static inline void gc_tally_note_alloc(struct gc_magazine *magazine, uint64_t requested_bytes,
                                       uint64_t bytes, uint16_t api)
{
    struct gc_api_tally *tally = gc_tally_of(magazine, api);
    magazine->alloc_count++;
    gc_tally_gain(&magazine->requested, requested_bytes);
    gc_tally_gain(&magazine->allocated, bytes);
    tally->count++;
    tally->bytes += requested_bytes;
    gc_tally_gain(&tally->live, requested_bytes);
    if (!GC_LIKELY(magazine->allocated.delta < GC_UNMERGED_MAX))
        gc_magazine_merge(magazine);
}

static inline void gc_tally_note_free(struct gc_magazine *magazine, const struct gc_block *block)
{
    magazine->free_count++;
    gc_tally_lose(&magazine->requested, block->live.requested_bytes);
    gc_tally_lose(&magazine->allocated, block->bytes);
    gc_tally_lose(&gc_tally_of(magazine, block->api)->live, block->live.requested_bytes);
    if (!GC_LIKELY(magazine->allocated.delta > -GC_UNMERGED_MAX))
        gc_magazine_merge(magazine);
}

#endif
