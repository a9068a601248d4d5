/* Idle memory, which can go back to the driver at once, and whether it is worth looking for some
 * again. Of a device, and of a tenant's share of it. Relaxed but where it says more. */
#ifndef GC_SUPPLY_H
#define GC_SUPPLY_H

#include <stdatomic.h>
#include <stdint.h>

struct gc_supply {
    atomic_uint_fast64_t idle_bytes; /* wholly free segments and idle pages */
    atomic_uint_fast64_t generation; /* rises when budget is released or memory becomes idle */
};

/* Release: pairs with the acquire in gc_supply_generation; who sees the new one sees the room. */
static inline void gc_supply_renew(struct gc_supply *supply)
{
    atomic_fetch_add_explicit(&supply->generation, 1, memory_order_release);
}

static inline uint64_t gc_supply_generation(const struct gc_supply *supply)
{
    return atomic_load_explicit(&supply->generation, memory_order_acquire);
}

/* Who went over the pools for idle memory may have passed this already: it looks again. */
static inline void gc_supply_add(struct gc_supply *supply, uint64_t bytes)
{
    atomic_fetch_add_explicit(&supply->idle_bytes, bytes, memory_order_relaxed);
    gc_supply_renew(supply);
}

static inline void gc_supply_sub(struct gc_supply *supply, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&supply->idle_bytes, bytes, memory_order_relaxed);
}

static inline uint64_t gc_supply_idle_bytes(const struct gc_supply *supply)
{
    return atomic_load_explicit(&supply->idle_bytes, memory_order_relaxed);
}

#endif
