/* The line that explains a refused request: the bound that had no room, the figures, and a value
 * that would have sufficed. */
#ifndef GC_REFUSAL_H
#define GC_REFUSAL_H

#include "core/device/quota.h"

/* Counts and traces an out-of-memory for entry->requested_bytes, and logs why: the device's first
 * one, then at most one a minute. `charge_bytes`: the least that a success would have charged.
 * `failure`: of the last attempt; nothing in it: a limit had no room. Call it under no lock, after
 * all reclaim; it may call the driver. Thread-safe. */
void gc_refusal_count(struct gc_device *device, struct gc_quota *quota,
                      const struct gc_entry *entry, uint64_t charge_bytes,
                      const struct gc_charge_failure *failure);

#endif
