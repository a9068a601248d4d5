/* Reclaim: idle memory goes back to the driver before a request fails, and where a limit is
 * exceeded. */
#ifndef GC_RECLAIM_H
#define GC_RECLAIM_H

#include "core/device/context.h"

/* `share`, here and below: only what is its own is asked and waited for; NULL: all of the device.
 */

/* Gives back what is wanted of what is idle, or is so by now; waits for nothing. True if anything
 * went back. */
bool gc_shortage_give_idle(struct gc_device *device, struct gc_share *share, uint64_t wanted_bytes);

/* What is freed becomes free: the threads' magazines are emptied, and what is pending is waited for
 * where no capture forbids it. True if anything became free. */
bool gc_shortage_resolve(struct gc_device *device, struct gc_share *share, uint64_t limit_ns);

/* State of one request that is short. */
struct gc_shortage {
    struct gc_device *device;
    struct gc_share *share; /* that pays first; may be NULL, as the next */
    struct gc_pool *pool;   /* where the request would be served */
    unsigned attempts;
    uint64_t end_ns; /* until when is waited, in all attempts together */
    uint64_t device_generation;
    uint64_t share_generation;
    uint64_t pool_generation;
    struct gc_decline seen; /* the request's own rollbacks: no room that it did not have before */
};
void gc_shortage_begin(struct gc_shortage *shortage, struct gc_device *device,
                       struct gc_share *share, struct gc_pool *pool);
/* After an attempt found no room for `wanted_bytes`: true if something changed, so that another
 * attempt is worth while. `decline` is how the last one ended: where the share alone is short only
 * what is its own is given back and waited for. False for good once nothing idle is left and
 * nothing is under way. */
bool gc_shortage_relieve(struct gc_shortage *shortage, uint64_t wanted_bytes,
                         const struct gc_decline *decline);

#endif
