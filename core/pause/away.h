/* The end of a turn in the memory of a group: of a process, the gate for its work is closed; of a
 * tenant in it, the gate is guarded, and its threads wait. Memory leaves the device as others need
 * it, a part after the other; for the next turn all of it comes back, and the gate opens
 * (core/turns decides when). Memory of paused tenants is not concerned. A process that leaves takes
 * the rest of tenants that are away along, and comes back without them.
 *
 * `tenant` is NULL for the process.
 *
 * For one thread, the helper, but gc_away_missing. They exclude pauses and resumes: GC_SWAP_BUSY
 * while one is under way. No lock may be held. */
#ifndef GC_AWAY_H
#define GC_AWAY_H

#include "core/pause/scope.h"
#include "core/pause/swap.h"

/* Closes the gate and waits for the work under way. False: it could not or would not end in time;
 * the process goes on, and the result has the reason. */
bool gc_away_begin(struct gc_core *core, struct gc_tenant *tenant, uint64_t timeout_ms,
                   void (*waiting)(void *argument), void *argument,
                   struct gc_swap_result *result) GC_CHECKED;
/* Swaps out as `spec` says from the pools of the device, until spec->wanted_bytes have left.
 * result->moved_bytes: what left, also after a failure. */
bool gc_away_give(struct gc_device *device, const struct gc_tenant *tenant,
                  const struct gc_swap_spec *spec, struct gc_swap_result *result);
/* Swaps in while the group's account has room. True: all memory of the device is resident. */
bool gc_away_return(struct gc_device *device, const struct gc_tenant *tenant,
                    const struct gc_swap_spec *spec, struct gc_swap_result *result);
/* Bytes of the device that have to come back. */
uint64_t gc_away_missing(struct gc_device *device, const struct gc_tenant *tenant);
/* Opens the gate, once all memory is resident. False: it is not. */
bool gc_away_end(struct gc_core *core, struct gc_tenant *tenant);

#endif
