/* Accounts of a group, on a device or of host memory: one word for each process in the ledger; the
 * sum over the processes is the group's usage. The charge is memcg-style, without a lock: a process
 * first announces its bytes, then sums all words, in one total order. If two charges together
 * exceed the limit at least one sees the other. So the sum of committed charges never exceeds the
 * limit, wherever a process dies.
 *
 * An announcement stays in `tentative`, beside the word, until it is decided. Two processes that
 * make each other fail thus know that the limit itself is not exhausted, and try again, the lower
 * slot first.
 *
 * A process may have a guarantee. A charge that takes its process beyond its own guarantee counts
 * each other process with at least its guarantee: what these may have still stays free. Charges
 * within the own guarantee need room in the limit alone. A process's word in that sum only grows
 * with its bytes, so the order above holds. Where processes take turns nothing is kept free: pages
 * can be had back (turn.h). */
#ifndef GC_ACCOUNT_H
#define GC_ACCOUNT_H

#include "core/ledger/ledger.h"

/* A process's own account in its group, on one device or of host memory. The tables are small, so a
 * process may take over a device's or group's row that no live process seems to use. If a process's
 * row has another key, the process looks its row up again or adds it. If the group's row has no
 * limit, the process restores the limit that it last read. */
struct gc_account {
    struct gc_ledger *ledger;
    struct gc_ledger_device device;
    uint64_t device_key;
    uint64_t group_key;
    char group[GC_LEDGER_NAME_BYTES];
    uint32_t generation;
    _Atomic uint32_t device_row; /* GC_LEDGER_HOST: host memory, which no row describes */
    _Atomic uint32_t group_row;
    _Atomic uint64_t limit_seen;      /* 0: none */
    _Atomic uint64_t guarantee_bytes; /* what this process may always have */
    bool takes_turns; /* no charge succeeds before one of an earlier ticket (turn.h) */
};

/* Requires a claimed slot whose element of group_keys is set. False: a table is full, or there is
 * no memory. */
bool gc_account_open(struct gc_account *account, struct gc_ledger *ledger,
                     const struct gc_ledger_device *device, const char *group);

/* The group's account of host memory: what its processes have there of swapped and spilled memory.
 * It has no limit of its own, see gc_account_try_charge_host. */
void gc_account_open_host(struct gc_account *account, struct gc_ledger *ledger, const char *group);

static inline uint32_t gc_account_row(const struct gc_account *account)
{
    return atomic_load_explicit(&account->device_row, memory_order_relaxed);
}

/* Whether the slot is of the group and not this process's own. */
static inline bool gc_account_is_other(const struct gc_account *account, uint32_t slot)
{
    return slot != account->ledger->own &&
           atomic_load_explicit(&account->ledger->file->group_keys[slot], memory_order_seq_cst) ==
               account->group_key;
}

/* The group's limit on the device; UINT64_MAX: none. */
uint64_t gc_account_limit(struct gc_account *account);
/* False, with nothing changed, if the group's limit has no room. Takes no lock. While another
 * process's charge is under way that would take the room, waits until that is decided, for a second
 * at most. */
bool gc_account_try_charge(struct gc_account *account, uint64_t bytes);
/* As that, of host memory, below the caller's limit. Reaps dead processes before it fails. */
bool gc_account_try_charge_host(struct gc_account *account, uint64_t bytes, uint64_t limit);
/* Charges even beyond the limit. */
void gc_account_force_charge(struct gc_account *account, uint64_t bytes);
void gc_account_uncharge(struct gc_account *account, uint64_t bytes);
/* Whether a charge would succeed now. */
bool gc_account_has_room(struct gc_account *account, uint64_t bytes);
/* The bytes of all processes of the group, announcements included. */
uint64_t gc_account_held(struct gc_account *account);

/* The bytes of the process in a slot. */
uint64_t gc_account_of(const struct gc_account *account, uint32_t slot);
/* The part of them that this process could be charged with, if they were released: a process that
 * is beyond its own guarantee gets nothing of what is within another one's. */
uint64_t gc_account_spare(const struct gc_account *account, uint32_t slot);
/* UINT64_MAX: none. */
void gc_account_set_limit(struct gc_account *account, uint64_t limit);
/* One thread at a time. */
void gc_account_set_guarantee(struct gc_account *account, uint64_t bytes);
/* Of all processes of the group. */
uint64_t gc_account_guarantees(const struct gc_account *account);
/* What a charge of so many bytes more must leave free for the guarantees of other processes. */
uint64_t gc_account_kept(const struct gc_account *account, uint64_t bytes);
/* Sets the limit if the group has none so far. False: it has one. */
bool gc_account_set_first_limit(struct gc_account *account, uint64_t limit);

/* ---- accounts of any group ---- */

uint64_t gc_account_sum(const struct gc_ledger *ledger, uint32_t device, uint64_t group_key);
/* Subtracts the bytes of dead processes from the accounts; returns their sum. The bytes of a dying
 * process stay until its device memory is free; *has_dying: whether there is one. */
uint64_t gc_account_reap(const struct gc_ledger *ledger, uint32_t device, uint64_t group_key,
                         bool *has_dying);

#endif
