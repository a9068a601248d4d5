/* Counters of the idle memory of a device, or of a tenant's quota: how much can be released to the
 * driver at once, and whether a new search for idle memory is worthwhile. Relaxed unless a function
 * names its order. */
#ifndef GC_IDLE_H
#define GC_IDLE_H

#include <stdatomic.h>
#include <stdint.h>

struct gc_idle {
    atomic_uint_fast64_t idle_bytes; /* wholly free segments and idle pages */
    /* The least since gc_idle_start_period: so much was in no use all the time. */
    atomic_uint_fast64_t least_bytes;
    atomic_uint_fast64_t generation; /* rises when budget is released or memory becomes idle */
};

/* Release: pairs with the acquire in gc_idle_generation. A thread that reads the new generation
 * sees the released memory. */
static inline void gc_idle_advance(struct gc_idle *idle)
{
    atomic_fetch_add_explicit(&idle->generation, 1, memory_order_release);
}

static inline uint64_t gc_idle_generation(const struct gc_idle *idle)
{
    return atomic_load_explicit(&idle->generation, memory_order_acquire);
}

/* Advances the generation: a thread that searched the pools may have passed this memory already,
 * and searches again. */
static inline void gc_idle_add(struct gc_idle *idle, uint64_t bytes)
{
    atomic_fetch_add_explicit(&idle->idle_bytes, bytes, memory_order_relaxed);
    gc_idle_advance(idle);
}

static inline void gc_idle_sub(struct gc_idle *idle, uint64_t bytes)
{
    const uint64_t rest =
        atomic_fetch_sub_explicit(&idle->idle_bytes, bytes, memory_order_relaxed) - bytes;
    uint64_t least = atomic_load_explicit(&idle->least_bytes, memory_order_relaxed);
    while (rest < least &&
           !atomic_compare_exchange_weak_explicit(&idle->least_bytes, &least, rest,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static inline uint64_t gc_idle_bytes(const struct gc_idle *idle)
{
    return atomic_load_explicit(&idle->idle_bytes, memory_order_relaxed);
}

/* Returns the least of the period that ends. */
static inline uint64_t gc_idle_start_period(struct gc_idle *idle)
{
    return atomic_exchange_explicit(&idle->least_bytes, gc_idle_bytes(idle), memory_order_relaxed);
}

#endif
