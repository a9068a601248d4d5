/* Releases idle memory to the driver: see release.c. The functions here may call the driver; their
 * callers hold no lock. `quota`: only its own memory; NULL: all of the device. */
#ifndef GC_RELEASE_H
#define GC_RELEASE_H

#include "core/device/context.h"
#include "core/device/registry.h"

/* Registers a function that releases idle memory outside the pools, after theirs. During
 * gc_core_create only; at most GC_SHRINKER_MAX. */
void gc_release_add_shrinker(struct gc_core *core, gc_shrink_function *shrink);

/* Releases idle segments and pages, the longest idle of each pool first, until at most `keep_bytes`
 * are idle or `enough_bytes` are released. Returns the bytes released. */
uint64_t gc_release_idle(struct gc_device *device, struct gc_quota *quota, uint64_t keep_bytes,
                         uint64_t enough_bytes);

/* Releases all idle memory of one record. */
void gc_release_pool(struct gc_context *context);

/* Releases idle memory above the limit, or above the permitted idle bytes. */
void gc_release_excess(struct gc_device *device, struct gc_quota *quota);
/* After a free: gc_release_excess for the context's device and its quota. Cheap without excess. */
void gc_release_trim(struct gc_context *context);

#endif
