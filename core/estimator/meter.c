#include "core/estimator/meter.h"
#include "core/base/bits.h"

void gc_meter_init(struct gc_meter *meter, uint64_t limit_bytes)
{
    meter->limit_bytes = limit_bytes;
    gc_meter_reset(meter);
}

void gc_meter_reset(struct gc_meter *meter)
{
    atomic_store_explicit(&meter->current_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&meter->peak_bytes, 0, memory_order_relaxed);
}

static void raise_peak(struct gc_meter *meter, uint64_t bytes)
{
    uint_fast64_t peak = atomic_load_explicit(&meter->peak_bytes, memory_order_relaxed);
    while (peak < bytes &&
           !atomic_compare_exchange_weak_explicit(&meter->peak_bytes, &peak, bytes,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

enum gc_status gc_meter_allocate(struct gc_meter *meter, uint64_t bytes)
{
    uint_fast64_t current = atomic_load_explicit(&meter->current_bytes, memory_order_relaxed);
    uint64_t sum;
    do {
        if (!gc_add_u64(current, bytes, &sum) || sum > meter->limit_bytes)
            return GC_OUT_OF_MEMORY;
    } while (!atomic_compare_exchange_weak_explicit(&meter->current_bytes, &current, sum,
                                                    memory_order_relaxed, memory_order_relaxed));
    raise_peak(meter, sum);
    return GC_OK;
}

enum gc_status gc_meter_free(struct gc_meter *meter, uint64_t bytes)
{
    uint_fast64_t current = atomic_load_explicit(&meter->current_bytes, memory_order_relaxed);
    do {
        if (bytes > current)
            return GC_INVALID_ARGUMENT;
    } while (!atomic_compare_exchange_weak_explicit(&meter->current_bytes, &current,
                                                    current - bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return GC_OK;
}

bool gc_meter_would_fit(const struct gc_meter *meter, uint64_t bytes)
{
    uint64_t sum;
    return gc_add_u64(gc_meter_current(meter), bytes, &sum) && sum <= meter->limit_bytes;
}

uint64_t gc_meter_current(const struct gc_meter *meter)
{
    return atomic_load_explicit(&meter->current_bytes, memory_order_relaxed);
}

uint64_t gc_meter_peak(const struct gc_meter *meter)
{
    return atomic_load_explicit(&meter->peak_bytes, memory_order_relaxed);
}
