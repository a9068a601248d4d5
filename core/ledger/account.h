/* Accounts of a group on a device: one word for each member in the ledger, and the sum over the
 * members is what the group holds. No lock: who reserves announces first and sums afterwards, all
 * in one order, so of two that together would pass the limit one at least sees the other. The sum
 * of what was agreed to therefore never exceeds the limit, whoever dies wherever.
 *
 * An announcement stands beside the word in `tentative` until it is decided: two that refuse each
 * other can tell that from a real shortage, and try again, the lower slot first. */
#ifndef GC_ACCOUNT_H
#define GC_ACCOUNT_H

#include "core/ledger/ledger.h"

/* A process's own account in its group on one device. Rows may be taken away from who does not use
 * them (the tables are small): whoever finds another's key in its row takes one again, and brings
 * the limit it saw last. */
struct gc_account {
    struct gc_ledger *ledger;
    struct gc_ledger_device device;
    uint64_t device_key;
    uint64_t group_key;
    char group[GC_LEDGER_NAME_BYTES];
    uint32_t generation;
    _Atomic uint32_t device_row;
    _Atomic uint32_t group_row;
    _Atomic uint64_t limit_seen; /* 0: none */
};

/* The own slot is claimed, and group_keys has its group. False: a table is full, or memory is. */
bool gc_account_open(struct gc_account *account, struct gc_ledger *ledger,
                     const struct gc_ledger_device *device, const char *group);

/* The group's limit on the device; UINT64_MAX: none. */
uint64_t gc_account_limit(struct gc_account *account);
/* False, with nothing changed, if the group has no room; takes no lock and never sleeps. */
bool gc_account_try_charge(struct gc_account *account, uint64_t bytes);
/* Room or not. */
void gc_account_force_charge(struct gc_account *account, uint64_t bytes);
void gc_account_uncharge(struct gc_account *account, uint64_t bytes);
/* What all members hold, announcements included. */
uint64_t gc_account_held(struct gc_account *account);
/* What of it is this process's. */
uint64_t gc_account_own(struct gc_account *account);

/* What the member in a slot holds. */
uint64_t gc_account_of(const struct gc_account *account, uint32_t slot);
/* UINT64_MAX: none. */
void gc_account_set_limit(struct gc_account *account, uint64_t limit);
/* The same, if the group has none so far; false: it has. */
bool gc_account_set_first_limit(struct gc_account *account, uint64_t limit);

/* ---- of any group ---- */

uint64_t gc_account_sum(const struct gc_ledger *ledger, uint32_t device, uint64_t group_key);
/* Takes what dead members held out of the accounts; returns those bytes. What a process holds that
 * is dying this moment stays for a while, for its device memory may; *has_dying says so. */
uint64_t gc_account_reap(const struct gc_ledger *ledger, uint32_t device, uint64_t group_key,
                         bool *has_dying);

#endif
