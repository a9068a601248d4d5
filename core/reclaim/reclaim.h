/* Reclaim: idle memory goes back to the driver before a request fails, and where a limit is
 * exceeded. */
#ifndef GC_RECLAIM_H
#define GC_RECLAIM_H

#include "core/device/context.h"

/* `share`, here and below: only what is its own is asked and waited for; NULL: all of the device.
 */

/* Gives back what is wanted of what is idle, or is so by now; waits for nothing. True if anything
 * went back. */
bool gc_reclaim_release_wanted(struct gc_device *device, struct gc_quota *quota,
                               uint64_t wanted_bytes);

/* What is freed becomes free: the threads' magazines are emptied, and what is pending is waited for
 * where no capture forbids it. True if anything became free. */
bool gc_reclaim_collect(struct gc_device *device, struct gc_quota *quota, uint64_t limit_ns);

/* State of one request that is short. */
struct gc_reclaim {
    struct gc_device *device;
    struct gc_quota *quota; /* that pays first; may be NULL, as the next */
    struct gc_pool *pool;   /* where the request would be served */
    unsigned attempts;
    uint64_t end_ns; /* until when is waited, in all attempts together */
    uint64_t device_generation;
    uint64_t quota_generation;
    uint64_t pool_generation;
    struct gc_charge_failure
        seen; /* the request's own rollbacks: no room that it did not have before */
};
void gc_reclaim_begin(struct gc_reclaim *reclaim, struct gc_device *device, struct gc_quota *quota,
                      struct gc_pool *pool);
/* After an attempt found no room for `wanted_bytes`: true if something changed, so that another
 * attempt is worth while. `decline` is how the last one ended: where the share alone is short only
 * what is its own is given back and waited for. False for good once nothing idle is left and
 * nothing is under way. */
bool gc_reclaim_step(struct gc_reclaim *reclaim, uint64_t wanted_bytes,
                     const struct gc_charge_failure *charge_failure);

#endif
