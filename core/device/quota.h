/* A share: what a tenant has of one device. A budget of its own in front of the device's, figures,
 * and the idle memory of its pools. All memory is charged by the functions here, to the share it
 * belongs to, if there is one, and to the device; `share` may be NULL everywhere.
 *
 * A reservation is made in the share first, then in the device, and rolled back in the share where
 * the device declines; bytes leave the device first. So what a share holds never exceeds its limit,
 * and it is at least what it has of the device's account; one that the device declines is seen in
 * `reserved` for a moment, not in its peak.
 *
 * A share lives as long as the core. */
#ifndef GC_QUOTA_H
#define GC_QUOTA_H

#include "core/device/device.h"

struct gc_quota {
    struct gc_device *device;
    struct gc_budget budget;
    struct gc_gauge_cell requested;
    struct gc_gauge_cell allocated;
    struct gc_gauge_cell reserved; /* what the budget holds */
    gc_counter alloc_count;
    gc_counter free_count;
    gc_counter hit_count;
    gc_counter miss_count;
    gc_counter oom_count;
    struct gc_idle idle;               /* of its pools and elastic pools */
    atomic_uint_fast64_t mapped_bytes; /* as the device's */
    atomic_uint_fast64_t most_needed;
    atomic_bool is_over_limit;
    uint64_t capacity_bytes;   /* addresses of its tenant there, for good */
    atomic_uint elastic_count; /* elastic pools that are charged to it */
    atomic_uint ledger_index;  /* of its row in the process's slot, plus one; 0: none */
    uint32_t release_count;    /* guarded by the device's release_lock */
};

void gc_quota_init(struct gc_quota *quota, struct gc_device *device, uint64_t limit_bytes);

/* ---- budget ---- */

/* What is held with a reservation, to be confirmed. */
struct gc_charge {
    uint64_t device;
    uint64_t quota;
};

/* Why there was no room, for who makes some: see gc_reclaim_step. Adds up over attempts. */
struct gc_charge_failure {
    bool is_quota_short;           /* the last time; else the device was */
    uint64_t rollback_count;       /* reservations given back because the driver refused */
    uint64_t quota_rollback_count; /* because the device declined: the share alone saw them */
};

/* False, with nothing changed but *decline, if there is no room. */
bool gc_quota_charge(struct gc_device *device, struct gc_quota *quota, uint64_t bytes,
                     struct gc_charge *held, struct gc_charge_failure *charge_failure);
/* The driver agreed: `held` counts for the peaks, and so does what is held now. */
void gc_quota_commit(struct gc_device *device, struct gc_quota *quota,
                     const struct gc_charge *held);
/* Releases budget and makes those look again who found none. */
void gc_quota_uncharge(struct gc_device *device, struct gc_quota *quota, uint64_t bytes);

/* What holds: the share's own limit, the process's or the group's; UINT64_MAX: none. */
uint64_t gc_quota_limit_bytes(const struct gc_device *device, const struct gc_quota *quota);
/* The same, or what the device has. */
uint64_t gc_quota_total_bytes(const struct gc_device *device, const struct gc_quota *quota);
/* By how much more is held than the limit allows. */
uint64_t gc_quota_excess_bytes(const struct gc_quota *quota);
uint64_t gc_quota_idle_bytes(const struct gc_device *device, const struct gc_quota *quota);
/* The most that allocations of the share, or of the device without one, ever had at once, with
 * `bytes` more now, whatever the program resets. */
uint64_t gc_quota_peak_with(struct gc_device *device, struct gc_quota *quota, uint64_t bytes);
/* Its physical pages. */
uint64_t gc_quota_mapped_bytes(const struct gc_device *device, const struct gc_quota *quota);

/* ---- accounts of one allocation ---- */

/* Counts it. Called under the pool's lock when a block becomes live, so that a context that is
 * dropped finds every live block in the accounts. */
void gc_quota_count_alloc(struct gc_device *device, struct gc_quota *quota,
                          const struct gc_entry *entry);
/* Where it came from. */
void gc_quota_count_hit(struct gc_device *device, struct gc_quota *quota, bool is_hit);
/* Counts and traces it, under no lock, before its memory can be handed out again. */
void gc_quota_count_free(struct gc_device *device, struct gc_quota *quota,
                         const struct gc_entry *entry);
/* The driver refused after all: live as before. Under the pool's lock, as gc_quota_count_alloc. */
void gc_quota_uncount_free(struct gc_device *device, struct gc_quota *quota,
                           const struct gc_entry *entry);
/* It vanished with its context: no free is counted. Traced as one, under no lock. */
void gc_quota_count_destroyed(struct gc_device *device, struct gc_quota *quota,
                              const struct gc_entry *entry);
/* The first half of that, where a lock is held; the caller traces it once it is not. */
void gc_quota_uncount_destroyed(struct gc_device *device, struct gc_quota *quota,
                                const struct gc_entry *entry);
/* No memory for `entry->requested_bytes`. */
void gc_quota_count_oom(struct gc_device *device, struct gc_quota *quota,
                        const struct gc_entry *entry);

#endif
