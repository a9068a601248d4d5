#include "core/observe/stats.h"

#include "core/base/assert.h"
#include "core/base/bits.h"

void gc_stats_sub_gauge_saturating(struct gc_gauge_cell *gauge, uint64_t bytes)
{
    uint64_t current = atomic_load_explicit(&gauge->current, memory_order_relaxed);
    uint64_t lower;
    do {
        lower = gc_sub_or_zero_u64(current, bytes);
    } while (!atomic_compare_exchange_weak_explicit(&gauge->current, &current, lower,
                                                    memory_order_relaxed, memory_order_relaxed));
}

void gc_stats_sub_gauge(struct gc_gauge_cell *gauge, uint64_t bytes)
{
    GC_ASSERT(atomic_load_explicit(&gauge->current, memory_order_relaxed) >= bytes);
    gc_stats_sub_gauge_saturating(gauge, bytes);
}

void gc_stats_reset_gauge_peak(struct gc_gauge_cell *gauge)
{
    atomic_store_explicit(&gauge->peak, 0, memory_order_relaxed);
    gc_stats_raise_gauge_peak(gauge, atomic_load_explicit(&gauge->current, memory_order_relaxed));
}

void gc_stats_merge_gauge(struct gc_gauge_cell *gauge, int64_t delta, int64_t peak)
{
    const uint64_t before =
        atomic_fetch_add_explicit(&gauge->current, (uint64_t)delta, memory_order_relaxed);
    const uint64_t highest = before + (uint64_t)peak;
    if (!gc_stats_gauge_is_negative(highest))
        gc_stats_raise_gauge_peak(gauge, highest);
}

void gc_stats_read_gauge(const struct gc_gauge_cell *cell, struct gc_gauge *gauge)
{
    gauge->current = atomic_load_explicit(&cell->current, memory_order_relaxed);
    if (gc_stats_gauge_is_negative(gauge->current))
        gauge->current = 0;
    gauge->peak =
        gc_max_u64(atomic_load_explicit(&cell->peak, memory_order_relaxed), gauge->current);
}

void gc_stats_read_api_cell(const struct gc_api_cell *cell, struct gc_api_figures *figures)
{
    struct gc_gauge live;
    gc_stats_read_gauge(&cell->live, &live);
    *figures = (struct gc_api_figures){
        .count = gc_counter_read(&cell->count),
        .bytes = gc_counter_read(&cell->bytes),
        .current_bytes = live.current,
        .peak_bytes = live.peak,
        .driver_calls = gc_counter_read(&cell->driver_calls),
    };
}
