/* The budget of host memory for what has no room on the devices: swapped memory (of turns and
 * pauses) and spilled memory, of this process, or of all processes of its group together. Host
 * memory is charged before it is taken and uncharged once it is released.
 *
 * Bound: GPUCACHE_HOST_LIMIT; by default half of what would be free on the machine or in the
 * control group without this memory. Nor may one charge take most of what is free. Each process of
 * a group checks the group's sum against its own limit; bytes of dead processes are reaped.
 *
 * Where processes take turns the last part of it is for memory that leaves so that other memory can
 * come back: else nothing could, once all is taken.
 *
 * Thread-safe; no lock. */
#ifndef GC_HOST_BUDGET_H
#define GC_HOST_BUDGET_H

#include "core/base/status.h"
#include "core/ledger/account.h"

struct gc_host_budget {
    uint64_t given_bytes;            /* GPUCACHE_HOST_LIMIT; UINT64_MAX: none given */
    atomic_uint_fast64_t held_bytes; /* by this process */
    bool is_shared;                  /* by the processes of the group: `account` */
    bool has_reserve;                /* set before the first charge */
    struct gc_account account;
};

void gc_host_budget_init(struct gc_host_budget *budget, uint64_t given_bytes);
/* The group's processes share the budget from now on. Call before the first charge. */
void gc_host_budget_join(struct gc_host_budget *budget, struct gc_ledger *ledger,
                         const char *group);
/* False, with nothing charged: there would be more than the limit, or too little is free.
 * `is_exchange`: the reserve may be used. Reads files of /proc and /sys. */
bool gc_host_budget_try_charge(struct gc_host_budget *budget, uint64_t bytes,
                               bool is_exchange) GC_CHECKED;
void gc_host_budget_uncharge(struct gc_host_budget *budget, uint64_t bytes);
/* What this process has, and all that share the budget. */
uint64_t gc_host_budget_held(const struct gc_host_budget *budget);
uint64_t gc_host_budget_sum(struct gc_host_budget *budget);
/* What that sum may be now. */
uint64_t gc_host_budget_limit(struct gc_host_budget *budget);
/* Whether less than the reserve is left. */
bool gc_host_budget_is_tight(struct gc_host_budget *budget);

#endif
