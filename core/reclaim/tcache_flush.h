/* What leaves a magazine. Its figures are kept without atomics at each allocation and free, and
 * merged into the device's when the magazine is: at most what a magazine may hold is not merged.
 * The owner is inside, or the caches are stopped. */
#ifndef GC_TCACHE_FLUSH_H
#define GC_TCACHE_FLUSH_H

#include "core/base/bits.h"
#include "core/device/device.h"
#include "core/pool/block.h"
#include "core/reclaim/tcache.h"

/* Takes some blocks off a bin and gives them to the pool. */
void gc_magazine_give_batch(struct gc_magazine *magazine, struct gc_block **bin);
/* Gives all pending blocks to the pool's list. */
void gc_magazine_hand_over_pending(struct gc_magazine *magazine);

static inline void gc_magazine_set_cached_bytes(struct gc_magazine *magazine, uint64_t bytes)
{
    atomic_store_explicit(&magazine->cached_bytes, bytes, memory_order_relaxed);
}

static inline uint64_t gc_magazine_cached_bytes(const struct gc_magazine *magazine)
{
    return atomic_load_explicit(&magazine->cached_bytes, memory_order_relaxed);
}

/* The one with the lowest stamp; there is one. */
static inline struct gc_block *gc_magazine_pop_pending(struct gc_magazine *magazine)
{
    struct gc_block *block = magazine->pending_first;
    magazine->pending_first = block->pending.next;
    if (magazine->pending_first == NULL)
        magazine->pending_last = NULL;
    magazine->pending_count--;
    magazine->pending_bytes -= block->bytes;
    return block;
}

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
