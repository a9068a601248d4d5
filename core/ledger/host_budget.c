#include "core/ledger/host_budget.h"

#include "core/base/bits.h"
#include "core/io/meminfo.h"

#define CHARGE_PERCENT 90 /* of what is free, for one charge */
#define DEFAULT_DIVISOR 2 /* the part of what would be free that is the default limit */
/* The reserve: twice what moves at once at most (GC_EXTENT_TURN_BYTES), or this part of the limit.
 */
#define RESERVE_BYTES (UINT64_C(512) << 20)
#define RESERVE_DIVISOR 2

void gc_host_budget_init(struct gc_host_budget *budget, uint64_t given_bytes)
{
    *budget = (struct gc_host_budget){.given_bytes = given_bytes};
}

void gc_host_budget_join(struct gc_host_budget *budget, struct gc_ledger *ledger, const char *group)
{
    gc_account_open_host(&budget->account, ledger, group);
    budget->is_shared = true;
}

uint64_t gc_host_budget_held(const struct gc_host_budget *budget)
{
    return atomic_load_explicit(&budget->held_bytes, memory_order_relaxed);
}

uint64_t gc_host_budget_sum(struct gc_host_budget *budget)
{
    return budget->is_shared ? gc_account_held(&budget->account) : gc_host_budget_held(budget);
}

static uint64_t limit_with(struct gc_host_budget *budget, uint64_t free_bytes)
{
    uint64_t most;
    if (budget->given_bytes != UINT64_MAX)
        return budget->given_bytes;
    return gc_add_u64(free_bytes, gc_host_budget_sum(budget), &most) ? most / DEFAULT_DIVISOR
                                                                     : UINT64_MAX;
}

uint64_t gc_host_budget_limit(struct gc_host_budget *budget)
{
    return limit_with(budget, gc_meminfo_available_bytes());
}

static uint64_t reserve_of(const struct gc_host_budget *budget, uint64_t limit)
{
    return budget->has_reserve ? gc_min_u64(RESERVE_BYTES, limit / RESERVE_DIVISOR) : 0;
}

bool gc_host_budget_is_tight(struct gc_host_budget *budget)
{
    const uint64_t limit = gc_host_budget_limit(budget);
    return gc_host_budget_sum(budget) > limit - reserve_of(budget, limit);
}

/* ---- charges ---- */

static bool try_charge_alone(struct gc_host_budget *budget, uint64_t bytes, uint64_t limit)
{
    uint64_t held = gc_host_budget_held(budget);
    do {
        if (bytes > limit || held > limit - bytes)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->held_bytes, &held, held + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

bool gc_host_budget_try_charge(struct gc_host_budget *budget, uint64_t bytes, bool is_exchange)
{
    const uint64_t free_bytes = gc_meminfo_available_bytes();
    const uint64_t whole = limit_with(budget, free_bytes);
    const uint64_t limit = is_exchange ? whole : whole - reserve_of(budget, whole);
    if (bytes > free_bytes / 100 * CHARGE_PERCENT)
        return false;
    if (!budget->is_shared)
        return try_charge_alone(budget, bytes, limit);
    if (!gc_account_try_charge_host(&budget->account, bytes, limit))
        return false;
    atomic_fetch_add_explicit(&budget->held_bytes, bytes, memory_order_relaxed);
    return true;
}

void gc_host_budget_uncharge(struct gc_host_budget *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->held_bytes, bytes, memory_order_relaxed);
    if (budget->is_shared)
        gc_account_uncharge(&budget->account, bytes);
}
