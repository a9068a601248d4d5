#include "core/estimator/tally.h"
#include "core/bits.h"

void gc_tally_init(struct gc_tally *tally, uint64_t limit_bytes)
{
    tally->limit_bytes = limit_bytes;
    gc_tally_reset(tally);
}

void gc_tally_reset(struct gc_tally *tally)
{
    atomic_store_explicit(&tally->current_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&tally->peak_bytes, 0, memory_order_relaxed);
}

static void raise_peak(struct gc_tally *tally, uint64_t bytes)
{
    uint_fast64_t peak = atomic_load_explicit(&tally->peak_bytes, memory_order_relaxed);
    while (peak < bytes &&
           !atomic_compare_exchange_weak_explicit(&tally->peak_bytes, &peak, bytes,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

enum gc_status gc_tally_allocate(struct gc_tally *tally, uint64_t bytes)
{
    uint_fast64_t current = atomic_load_explicit(&tally->current_bytes, memory_order_relaxed);
    uint64_t sum;
    do {
        if (!gc_add_u64(current, bytes, &sum) || sum > tally->limit_bytes)
            return GC_OUT_OF_MEMORY;
    } while (!atomic_compare_exchange_weak_explicit(&tally->current_bytes, &current, sum,
                                                    memory_order_relaxed, memory_order_relaxed));
    raise_peak(tally, sum);
    return GC_OK;
}

enum gc_status gc_tally_free(struct gc_tally *tally, uint64_t bytes)
{
    uint_fast64_t current = atomic_load_explicit(&tally->current_bytes, memory_order_relaxed);
    do {
        if (bytes > current)
            return GC_INVALID_ARGUMENT;
    } while (!atomic_compare_exchange_weak_explicit(&tally->current_bytes, &current,
                                                    current - bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return GC_OK;
}

bool gc_tally_would_fit(const struct gc_tally *tally, uint64_t bytes)
{
    uint64_t sum;
    return gc_add_u64(gc_tally_current(tally), bytes, &sum) && sum <= tally->limit_bytes;
}

uint64_t gc_tally_current(const struct gc_tally *tally)
{
    return atomic_load_explicit(&tally->current_bytes, memory_order_relaxed);
}

uint64_t gc_tally_peak(const struct gc_tally *tally)
{
    return atomic_load_explicit(&tally->peak_bytes, memory_order_relaxed);
}
