/* The quota of a tenant on one device: a budget in front of the device's, figures, and the idle
 * memory of its pools. All memory is charged by the functions here (charge, commit, uncharge, as in
 * the kernel's memcg): to the quota, if there is one, and to the device. `quota` may be NULL
 * everywhere.
 *
 * A charge is made in the quota first, then in the device; it is rolled back in the quota if the
 * device's budget refuses it. Bytes are uncharged from the device first. So no charge takes a quota
 * above its limit, and a quota holds at least its part of the device's account; a charge that the
 * device refuses appears in `reserved` for a moment, but not in its peak.
 *
 * A quota lives as long as the core. */
#ifndef GC_QUOTA_H
#define GC_QUOTA_H

#include "core/device/device.h"

struct gc_quota {
    struct gc_device *device;
    struct gc_budget budget;
    struct gc_gauge_cell requested;
    struct gc_gauge_cell allocated;
    struct gc_gauge_cell reserved; /* the charge of the budget */
    gc_counter alloc_count;
    gc_counter free_count;
    gc_counter hit_count;
    gc_counter miss_count;
    gc_counter oom_count;
    struct gc_idle idle;               /* of its pools and elastic pools */
    atomic_uint_fast64_t mapped_bytes; /* physical pages of its pools */
    atomic_uint_fast64_t most_needed;
    atomic_bool is_over_limit;
    uint64_t capacity_bytes;     /* addresses of its tenant on the device, fixed */
    atomic_uint elastic_count;   /* elastic pools charged to it */
    atomic_uint ledger_index;    /* of its row in the process's slot, plus one; 0: none */
    atomic_uint release_count;   /* releases under way */
    atomic_uint_fast64_t wanted; /* bytes of pages that threads wait for: core/turns */
};

void gc_quota_init(struct gc_quota *quota, struct gc_device *device, uint64_t limit_bytes);

/* ---- budget ---- */

/* The held bytes with this charge included, for gc_quota_commit. */
struct gc_charge {
    uint64_t device;
    uint64_t quota;
};

/* Why a charge failed, for gc_reclaim_step. The two counts add up over attempts. */
struct gc_charge_failure {
    bool is_quota_short;           /* the last failure was the quota's; else the device's */
    bool is_range_short;           /* of addresses, not of its limit; then is_quota_short too */
    bool is_driver_short;          /* the driver refused what all limits had room for */
    uint64_t rollback_count;       /* charges rolled back because the driver refused */
    uint64_t quota_rollback_count; /* in the quota alone, because the device's charge failed */
};

/* False: a limit has no room; only *charge_failure has changed. */
bool gc_quota_charge(struct gc_device *device, struct gc_quota *quota, uint64_t bytes,
                     struct gc_charge *held, struct gc_charge_failure *charge_failure);
/* The driver succeeded: updates the peaks with `held` and with the bytes held now. */
/* As gc_quota_charge, for memory that the process had and that comes back: only the group's limit
 * applies. */
bool gc_quota_charge_return(struct gc_device *device, struct gc_quota *quota, uint64_t bytes,
                            struct gc_charge *held);
void gc_quota_commit(struct gc_device *device, struct gc_quota *quota,
                     const struct gc_charge *held);
/* Uncharges and wakes requests that wait for budget. */
void gc_quota_uncharge(struct gc_device *device, struct gc_quota *quota, uint64_t bytes);

/* The effective limit: the lowest of quota, process and group; UINT64_MAX: none. */
uint64_t gc_quota_limit_bytes(const struct gc_device *device, const struct gc_quota *quota);
/* The effective limit, at most the device's memory. */
uint64_t gc_quota_total_bytes(const struct gc_device *device, const struct gc_quota *quota);
/* What may be charged still, whatever the charges are for: of the quota, and of the process on the
 * device. 0 where a group has a limit: its other members may take it. */
uint64_t gc_quota_left_bytes(const struct gc_device *device, const struct gc_quota *quota);
/* The bytes held above the limit. */
uint64_t gc_quota_excess_bytes(const struct gc_quota *quota);
uint64_t gc_quota_idle_bytes(const struct gc_device *device, const struct gc_quota *quota);
/* The highest sum of live allocations of the quota (without one, of the device) ever, with `bytes`
 * more now. A reset of peaks by the program does not affect it. */
uint64_t gc_quota_peak_with(struct gc_device *device, struct gc_quota *quota, uint64_t bytes);
/* Bytes of physical pages in the pools of the quota; without one, of the device. */
uint64_t gc_quota_mapped_bytes(const struct gc_device *device, const struct gc_quota *quota);

/* ---- figures of one allocation ---- */

/* Counts an allocation. Called under the pool's lock when the block becomes live, so that a context
 * that is dropped finds every live block in the figures. */
void gc_quota_count_alloc(struct gc_device *device, struct gc_quota *quota,
                          const struct gc_entry *entry);
/* Counts a hit or a miss. */
void gc_quota_count_hit(struct gc_device *device, struct gc_quota *quota, bool is_hit);
/* Counts and traces a free, under no lock, before the memory can be reused. */
void gc_quota_count_free(struct gc_device *device, struct gc_quota *quota,
                         const struct gc_entry *entry);
/* Counts a free where nothing is observed: under the pool's lock. */
void gc_quota_count_unobserved_free(struct gc_device *device, struct gc_quota *quota,
                                    const struct gc_entry *entry);
/* Undoes gc_quota_count_free: the driver refused, the allocation is live as before. Under the
 * pool's lock. */
void gc_quota_uncount_free(struct gc_device *device, struct gc_quota *quota,
                           const struct gc_entry *entry);
/* The allocation was destroyed with its context: no free is counted. gc_quota_count_destroyed
 * traces a free, under no lock. gc_quota_drop_live may be called under a lock: its caller traces
 * the free. */
void gc_quota_count_destroyed(struct gc_device *device, struct gc_quota *quota,
                              const struct gc_entry *entry);
void gc_quota_drop_live(struct gc_device *device, struct gc_quota *quota,
                        const struct gc_entry *entry);
/* Counts and traces an out-of-memory for entry->requested_bytes. */
void gc_quota_count_oom(struct gc_device *device, struct gc_quota *quota,
                        const struct gc_entry *entry);

#endif
