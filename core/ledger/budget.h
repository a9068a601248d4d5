/* A device's budget: its limit and the bytes held. Charging is memcg-style: bytes are charged
 * before the driver is asked, and uncharged if it fails or after it has freed the memory, so no
 * charge but a forced one takes the held bytes above the limit. A charge counts for the peak once
 * the driver has succeeded (commit): a failed one leaves no trace.
 *
 * One atomic word is the account. A charge is a compare-and-swap that fails where the sum would
 * exceed the limit or wrap. The limit may change at any time: a lower one makes new charges fail
 * and removes nothing. In a group the group's account is charged next; if that fails the charge
 * here is rolled back. */
#ifndef GC_BUDGET_H
#define GC_BUDGET_H

#include "core/ledger/account.h"
#include "core/observe/stats.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_BUDGET_UNLIMITED UINT64_MAX

struct gc_budget {
    atomic_uint_fast64_t limit;
    atomic_uint_fast64_t owed;  /* see gc_budget_charge_found */
    atomic_uint_fast64_t away;  /* in host memory, and comes back */
    struct gc_gauge_cell *held; /* the device's `reserved` gauge */
    /* The most held since gc_budget_watch, by charges that were not committed too. */
    atomic_uint_fast64_t highest;
    struct gc_account *account; /* the account in the group; NULL: no group */
};

void gc_budget_init(struct gc_budget *budget, struct gc_gauge_cell *held, uint64_t limit);
void gc_budget_set_limit(struct gc_budget *budget, uint64_t limit);
uint64_t gc_budget_limit(const struct gc_budget *budget);
uint64_t gc_budget_held(const struct gc_budget *budget);
/* False, with nothing changed, if the limit has no room. Does not change the peak. *sum (may be
 * NULL) is the held bytes with this charge, to be committed. */
bool gc_budget_try_charge(struct gc_budget *budget, uint64_t bytes, uint64_t *sum);
/* As that, for memory that the process had and that comes back: the budget's own limit does not
 * apply, the group's does. */
bool gc_budget_try_charge_return(struct gc_budget *budget, uint64_t bytes, uint64_t *sum);
/* The driver succeeded: raises the peak to `held`, and to the bytes held now. */
void gc_budget_commit(struct gc_budget *budget, uint64_t held);
void gc_budget_uncharge(struct gc_budget *budget, uint64_t bytes);
/* Like gc_budget_uncharge for an amount that may exceed the held bytes. */
void gc_budget_uncharge_measured(struct gc_budget *budget, uint64_t bytes);
/* Charges memory that exists already, even beyond the limit. Saturates. */
void gc_budget_force_charge(struct gc_budget *budget, uint64_t bytes);
/* Charges what the limit has room for of memory that was found to exist. The rest is owed, until
 * the next call: it lowers the limit for all charges. In a group all of it is charged, room or not,
 * since what is owed would not concern the others. Returns the bytes charged. One thread at a time.
 */
uint64_t gc_budget_charge_found(struct gc_budget *budget, uint64_t bytes);
/* Memory of the device that is in host memory and comes back lowers the limit for charges, but not
 * for returns. */
void gc_budget_set_away(struct gc_budget *budget, uint64_t bytes);
/* The most that may be held: the limit without what is owed or away. */
uint64_t gc_budget_room(const struct gc_budget *budget);
/* From now on the most bytes held are noted; one thread at a time watches. */
void gc_budget_watch(struct gc_budget *budget);
/* The most bytes held at any time since then. */
uint64_t gc_budget_highest(const struct gc_budget *budget);
/* The bytes that could be charged now. */
uint64_t gc_budget_free_bytes(const struct gc_budget *budget);

#endif
