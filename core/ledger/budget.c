#include "core/ledger/budget.h"

#include "core/base/bits.h"

#include <stddef.h>

void gc_budget_init(struct gc_budget *budget, struct gc_gauge_cell *held, uint64_t limit)
{
    atomic_init(&budget->limit, limit);
    atomic_init(&budget->owed, 0);
    atomic_init(&budget->away, 0);
    atomic_init(&budget->highest, 0);
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

void gc_budget_set_away(struct gc_budget *budget, uint64_t bytes)
{
    atomic_store_explicit(&budget->away, bytes, memory_order_relaxed);
}

uint64_t gc_budget_room(const struct gc_budget *budget)
{
    const uint64_t owed = atomic_load_explicit(&budget->owed, memory_order_relaxed);
    const uint64_t away = atomic_load_explicit(&budget->away, memory_order_relaxed);
    return gc_sub_or_zero_u64(gc_sub_or_zero_u64(gc_budget_limit(budget), owed), away);
}

uint64_t gc_budget_held(const struct gc_budget *budget)
{
    return atomic_load_explicit(&budget->held->current, memory_order_relaxed);
}

/* ---- the most held ---- */

static void raise_highest(struct gc_budget *budget, uint64_t held)
{
    uint64_t highest = atomic_load_explicit(&budget->highest, memory_order_relaxed);
    while (held > highest &&
           !atomic_compare_exchange_weak_explicit(&budget->highest, &highest, held,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* A charge that the first store hides is in the bytes held, read after it: sequentially consistent
 * with the charge's exchange of them and its look at `highest`. */
void gc_budget_watch(struct gc_budget *budget)
{
    atomic_store_explicit(&budget->highest, 0, memory_order_seq_cst);
    raise_highest(budget, atomic_load_explicit(&budget->held->current, memory_order_seq_cst));
}

uint64_t gc_budget_highest(const struct gc_budget *budget)
{
    return gc_max_u64(atomic_load_explicit(&budget->highest, memory_order_relaxed),
                      gc_budget_held(budget));
}

/* ---- charges ---- */

/* Charges up to `room`. */
static bool try_charge(struct gc_budget *budget, uint64_t bytes, uint64_t room, uint64_t *sum)
{
    uint64_t held = gc_budget_held(budget);
    uint64_t raised;
    do {
        if (!gc_add_u64(held, bytes, &raised) || (bytes > 0 && raised > room))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->held->current, &held, raised,
                                                    memory_order_seq_cst, memory_order_relaxed));
    raise_highest(budget, raised);
    if (budget->account != NULL && bytes > 0 && !gc_account_try_charge(budget->account, bytes)) {
        gc_stats_sub_gauge(budget->held, bytes);
        return false;
    }
    if (sum != NULL)
        *sum = raised;
    return true;
}

bool gc_budget_try_charge(struct gc_budget *budget, uint64_t bytes, uint64_t *sum)
{
    return try_charge(budget, bytes, gc_budget_room(budget), sum);
}

bool gc_budget_try_charge_return(struct gc_budget *budget, uint64_t bytes, uint64_t *sum)
{
    return try_charge(budget, bytes, UINT64_MAX, sum);
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

/* Other threads may take the room meanwhile: the rest is tried once more, then owed. */
uint64_t gc_budget_charge_found(struct gc_budget *budget, uint64_t bytes)
{
    uint64_t charged = 0;
    atomic_store_explicit(&budget->owed, 0, memory_order_relaxed);
    if (budget->account != NULL && bytes > 0) {
        gc_budget_force_charge(budget, bytes);
        return bytes;
    }
    for (int i = 0; i < 2 && charged < bytes; i++) {
        const uint64_t part = gc_min_u64(bytes - charged, gc_budget_free_bytes(budget));
        if (gc_budget_try_charge(budget, part, NULL))
            charged += part;
    }
    gc_budget_commit(budget, 0);
    atomic_store_explicit(&budget->owed, bytes - charged, memory_order_relaxed);
    return charged;
}

uint64_t gc_budget_free_bytes(const struct gc_budget *budget)
{
    return gc_sub_or_zero_u64(gc_budget_room(budget), gc_budget_held(budget));
}
