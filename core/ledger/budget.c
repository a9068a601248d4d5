#include "core/ledger/budget.h"

#include "core/base/bits.h"

#include <stddef.h>

void gc_budget_init(struct gc_budget *budget, struct gc_gauge_cell *held, uint64_t limit)
{
    atomic_init(&budget->limit, limit);
    budget->held = held;
    budget->account = NULL;
}

void gc_budget_set_limit(struct gc_budget *budget, uint64_t limit)
{
    atomic_store_explicit(&budget->limit, limit, memory_order_relaxed);
}

uint64_t gc_budget_limit(const struct gc_budget *budget)
{
    return atomic_load_explicit(&budget->limit, memory_order_relaxed);
}

uint64_t gc_budget_held(const struct gc_budget *budget)
{
    return atomic_load_explicit(&budget->held->current, memory_order_relaxed);
}

bool gc_budget_try_charge(struct gc_budget *budget, uint64_t bytes, uint64_t *sum)
{
    uint64_t held = gc_budget_held(budget);
    uint64_t raised;
    do {
        if (!gc_add_u64(held, bytes, &raised) || (bytes > 0 && raised > gc_budget_limit(budget)))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->held->current, &held, raised,
                                                    memory_order_relaxed, memory_order_relaxed));
    if (budget->account != NULL && bytes > 0 && !gc_account_try_charge(budget->account, bytes)) {
        gc_stats_sub_gauge(budget->held, bytes);
        return false;
    }
    if (sum != NULL)
        *sum = raised;
    return true;
}

void gc_budget_commit(struct gc_budget *budget, uint64_t held)
{
    gc_stats_raise_gauge_peak(budget->held, gc_max_u64(held, gc_budget_held(budget)));
}

void gc_budget_uncharge(struct gc_budget *budget, uint64_t bytes)
{
    gc_stats_sub_gauge(budget->held, bytes);
    if (budget->account != NULL)
        gc_account_uncharge(budget->account, bytes);
}

void gc_budget_uncharge_measured(struct gc_budget *budget, uint64_t bytes)
{
    uint64_t held = gc_budget_held(budget);
    uint64_t lower;
    do {
        lower = gc_sub_or_zero_u64(held, bytes);
    } while (!atomic_compare_exchange_weak_explicit(&budget->held->current, &held, lower,
                                                    memory_order_relaxed, memory_order_relaxed));
    if (budget->account != NULL)
        gc_account_uncharge(budget->account, held - lower);
}

void gc_budget_force_charge(struct gc_budget *budget, uint64_t bytes)
{
    uint64_t held = gc_budget_held(budget);
    uint64_t raised;
    do {
        if (!gc_add_u64(held, bytes, &raised))
            raised = UINT64_MAX;
    } while (!atomic_compare_exchange_weak_explicit(&budget->held->current, &held, raised,
                                                    memory_order_relaxed, memory_order_relaxed));
    gc_stats_raise_gauge_peak(budget->held, raised);
    if (budget->account != NULL)
        gc_account_force_charge(budget->account, raised - held);
}

uint64_t gc_budget_free_bytes(const struct gc_budget *budget)
{
    return gc_sub_or_zero_u64(gc_budget_limit(budget), gc_budget_held(budget));
}
