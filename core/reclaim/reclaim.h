/* Reclaim: before a request fails, idle memory is released and pending blocks are waited for. */
#ifndef GC_RECLAIM_H
#define GC_RECLAIM_H

#include "core/device/context.h"

/* `quota`, here and below: only its own memory is released and waited for; NULL: the device's. */

/* Releases up to `wanted_bytes` of memory that is idle, or pending and completed; waits for
 * nothing. True if anything was released. */
bool gc_reclaim_release_wanted(struct gc_device *device, struct gc_quota *quota,
                               uint64_t wanted_bytes);

/* The driver ran out of memory: releases as gc_reclaim_release_wanted, and if there was nothing,
 * waits for pending blocks, for about limit_ns, and releases everything. True if anything changed.
 */
bool gc_reclaim_relieve(struct gc_device *device, uint64_t wanted_bytes, uint64_t limit_ns);

/* Flushes the thread caches and waits for pending blocks, where no capture forbids it, for about
 * limit_ns. True if anything became free. */
bool gc_reclaim_collect(struct gc_device *device, struct gc_quota *quota, uint64_t limit_ns);

/* State of one request that is out of memory. */
struct gc_reclaim {
    struct gc_device *device;
    struct gc_quota *quota; /* charged first; may be NULL, as `pool` */
    struct gc_pool *pool;   /* that would serve the request */
    unsigned attempts;
    uint64_t end_ns; /* of all waits of all attempts */
    bool is_brief;   /* the end of the wait says nothing to other requests */
    uint64_t device_generation;
    uint64_t quota_generation;
    uint64_t pool_generation;
    /* Rollbacks of this request's own charges: they raise the generations but free no memory. */
    struct gc_charge_failure seen;
};
void gc_reclaim_begin(struct gc_reclaim *reclaim, struct gc_device *device, struct gc_quota *quota,
                      struct gc_pool *pool);
/* One step, after an attempt failed for `wanted_bytes`. True: something changed, try again.
 * `charge_failure` is of that attempt: if the quota alone was exhausted, only its own memory is
 * released and waited for. False: nothing idle is left and nothing is under way, the request fails.
 */
bool gc_reclaim_step(struct gc_reclaim *reclaim, uint64_t wanted_bytes,
                     const struct gc_charge_failure *charge_failure);

#endif
