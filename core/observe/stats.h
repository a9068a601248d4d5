/* Counters and gauges of one device, declared in stats.def. All are relaxed atomics: each is exact,
 * and none orders anything else. */
#ifndef GC_STATS_H
#define GC_STATS_H

#include "core/io/gauge.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_api_figures {
    uint64_t count; /* successful allocations */
    uint64_t bytes; /* sum of the requested bytes */
    uint64_t current_bytes;
    uint64_t peak_bytes;
    uint64_t driver_calls; /* calls of this entry point that reached the driver */
};

typedef atomic_uint_fast64_t gc_counter;

struct gc_gauge_cell {
    atomic_uint_fast64_t current;
    atomic_uint_fast64_t peak;
};

/* The two peaks of stream-ordered memory that a program may read and reset. */
enum gc_ordered_peak { GC_ORDERED_USED, GC_ORDERED_RESERVED, GC_ORDERED_PEAK_COUNT };

struct gc_stats {
#define GC_GAUGE(field, text) struct gc_gauge_cell field;
#define GC_COUNTER(field, text) gc_counter field;
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    /* The largest request that was refused, and the least limit that had room for each one. */
    atomic_uint_fast64_t refused_bytes;
    atomic_uint_fast64_t sufficient_bytes;
};

/* Figures of one entry point on one device; a cache line of its own. */
struct gc_api_cell {
    gc_counter count;
    gc_counter bytes;
    struct gc_gauge_cell live;
    gc_counter driver_calls;
    uint64_t unused[3];
};
_Static_assert(sizeof(struct gc_api_cell) == 64, "one cache line");

static inline void gc_counter_add(gc_counter *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline uint64_t gc_counter_read(const gc_counter *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* A gauge to which threads merge their gains and losses at different times may be below 0 in
 * between, as a word that wraps. */
static inline bool gc_stats_gauge_is_negative(uint64_t value)
{
    /* UINT64_MAX is a saturated account, not a negative gauge. */
    return value >> 63 != 0 && value != UINT64_MAX;
}

static inline void gc_stats_raise(atomic_uint_fast64_t *most, uint64_t value)
{
    uint64_t before = atomic_load_explicit(most, memory_order_relaxed);
    while (value > before && !atomic_compare_exchange_weak_explicit(
                                 most, &before, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Each value of the gauge is seen by the thread that sets it, so the peak is exact. */
static inline void gc_stats_raise_gauge_peak(struct gc_gauge_cell *gauge, uint64_t value)
{
    gc_stats_raise(&gauge->peak, value);
}

static inline void gc_stats_add_gauge(struct gc_gauge_cell *gauge, uint64_t bytes)
{
    const uint64_t value =
        atomic_fetch_add_explicit(&gauge->current, bytes, memory_order_relaxed) + bytes;
    if (!gc_stats_gauge_is_negative(value))
        gc_stats_raise_gauge_peak(gauge, value);
}

/* For gauges that get some changes late (thread caches): may pass below 0 for a while. */
static inline void gc_stats_sub_gauge_unchecked(struct gc_gauge_cell *gauge, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&gauge->current, bytes, memory_order_relaxed);
}

/* Merges changes that were counted locally: `delta` in all, at most `peak` above their start. */
void gc_stats_merge_gauge(struct gc_gauge_cell *gauge, int64_t delta, int64_t peak);

/* Stops at 0 and asserts: a wrapped gauge would corrupt the report. */
void gc_stats_sub_gauge(struct gc_gauge_cell *gauge, uint64_t bytes);
/* Like gc_stats_sub_gauge for amounts measured by difference, which may exceed the gauge. */
void gc_stats_sub_gauge_saturating(struct gc_gauge_cell *gauge, uint64_t bytes);
/* Sets the peak to the current value; a concurrent higher value is not lost. */
void gc_stats_reset_gauge_peak(struct gc_gauge_cell *gauge);
void gc_stats_read_gauge(const struct gc_gauge_cell *cell, struct gc_gauge *gauge);

void gc_stats_read_api_cell(const struct gc_api_cell *cell, struct gc_api_figures *figures);

#endif
