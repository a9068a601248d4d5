/* Figures of a magazine's owner: kept without atomics at each allocation and free, and merged into
 * the device's when the magazine is. What was not merged yet is at most what a magazine may hold.
 */
#ifndef GC_MAGAZINE_TALLY_H
#define GC_MAGAZINE_TALLY_H

#include "core/base/bits.h"
#include "core/reclaim/tcache_pool.h"

/* The run is of that entry point from now on. */
void gc_tally_turn(struct gc_magazine *magazine, uint16_t api);

/* The next two: of the run's entry point. */
static inline void gc_tally_note_alloc(struct gc_magazine *magazine, uint64_t requested_bytes,
                                       uint64_t bytes)
{
    struct gc_run *run = &magazine->run;
    const uint64_t cached_bytes = gc_magazine_cached_bytes(magazine) - bytes;
    run->count++;
    run->taken_bytes += requested_bytes;
    const int64_t live_bytes = (int64_t)(run->taken_bytes - run->given_bytes);
    if (!GC_LIKELY(live_bytes <= run->peak))
        run->peak = live_bytes;
    gc_magazine_set_cached_bytes(magazine, cached_bytes);
    if (!GC_LIKELY((int64_t)cached_bytes >= magazine->least_bytes))
        magazine->least_bytes = (int64_t)cached_bytes;
}

static inline void gc_tally_note_free(struct gc_magazine *magazine, uint64_t requested_bytes,
                                      uint64_t bytes)
{
    magazine->free_count++;
    magazine->run.given_bytes += requested_bytes;
    gc_magazine_set_cached_bytes(magazine, gc_magazine_cached_bytes(magazine) + bytes);
}

/* Blocks went to the pool. */
static inline void gc_tally_note_handed(struct gc_magazine *magazine, uint64_t bytes)
{
    gc_magazine_set_cached_bytes(magazine, gc_magazine_cached_bytes(magazine) - bytes);
    magazine->stock_bytes -= (int64_t)bytes;
    magazine->least_bytes -= (int64_t)bytes;
}

#endif
