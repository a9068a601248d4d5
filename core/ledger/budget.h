/* A device's budget: how much may be held, how much is. Bytes are reserved before the driver is
 * asked and released if it refuses or when it has them back, so what is held never exceeds the
 * limit. A reservation counts for the peak once the driver has agreed to it: one that it refuses
 * leaves no mark.
 *
 * One atomic word carries the account; reserving is a compare-and-swap that declines where the sum
 * would pass the limit or wrap. The limit may change at any time: a lower one makes new
 * reservations fail and takes nothing away. In a group its account is reserved after this one, and
 * this one rolled back where the group declines. */
#ifndef GC_BUDGET_H
#define GC_BUDGET_H

#include "core/ledger/account.h"
#include "core/observe/stats.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_BUDGET_UNLIMITED UINT64_MAX

struct gc_budget {
    atomic_uint_fast64_t limit;
    struct gc_gauge_cell *held; /* the device's `reserved` gauge */
    struct gc_account *account; /* in the group; NULL: there is none */
};

void gc_budget_init(struct gc_budget *budget, struct gc_gauge_cell *held, uint64_t limit);
void gc_budget_set_limit(struct gc_budget *budget, uint64_t limit);
uint64_t gc_budget_limit(const struct gc_budget *budget);
uint64_t gc_budget_held(const struct gc_budget *budget);
/* False, with nothing changed, if there is no room. Does not touch the peak; *sum (may be NULL) is
 * what is held with this reservation, to be confirmed. */
bool gc_budget_try_charge(struct gc_budget *budget, uint64_t bytes, uint64_t *sum);
/* The driver agreed: `held` counts for the peak, and so does what is held now. */
void gc_budget_commit(struct gc_budget *budget, uint64_t held);
void gc_budget_uncharge(struct gc_budget *budget, uint64_t bytes);
/* The same for an amount that may be more than is held. */
void gc_budget_uncharge_measured(struct gc_budget *budget, uint64_t bytes);
/* Takes note of what the driver did already, room or not. Saturates. */
void gc_budget_force_charge(struct gc_budget *budget, uint64_t bytes);
/* What could be reserved now. */
uint64_t gc_budget_free_bytes(const struct gc_budget *budget);

#endif
