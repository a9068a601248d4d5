/* Idle memory goes back to the driver: see release.c. No lock may be held by a caller of any
 * function here; all may call the driver. `share`: only what is its own; NULL: all of the device.
 */
#ifndef GC_RELEASE_H
#define GC_RELEASE_H

#include "core/device/context.h"
#include "core/device/registry.h"

/* Memory that is idle outside the pools: `shrink` is asked for it after them. At creation only;
 * GC_SHRINKER_MAX of them. */
void gc_core_add_shrinker(struct gc_core *core, gc_shrink_function *shrink);

/* Gives idle segments back, the longest idle of each pool first, until at most `keep_bytes` are
 * idle or `enough_bytes` went back. Returns bytes given back. */
uint64_t gc_reclaim_release(struct gc_device *device, struct gc_quota *quota, uint64_t keep_bytes,
                            uint64_t enough_bytes);

/* Gives everything idle of one record back. */
void gc_reclaim_empty_pool(struct gc_context *context);

/* Gives idle memory back where more is held than the limit allows, or more is idle than may be. */
void gc_release_excess(struct gc_device *device, struct gc_quota *quota);
/* The same for the device of the context and for its share; after a free. Cheap where there is
 * nothing. */
void gc_reclaim_trim(struct gc_context *context);

#endif
