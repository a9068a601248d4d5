/* What is held beyond a limit goes back: see limit.c. No lock may be held by a caller of any
 * function here; all may call the driver. */
#ifndef GC_LIMIT_H
#define GC_LIMIT_H

#include "core/device/context.h"

/* Gives idle memory back where more is held than the limit allows, waiting for what is pending if
 * it must; false if more still is. Cheap where it is not. */
bool gc_limit_enforce_device(struct gc_device *device);
/* As gc_limit_enforce_device. */
bool gc_limit_enforce_quota(struct gc_quota *quota);
/* gc_limit_enforce_device, and gc_limit_enforce_quota where the context has a share. */
bool gc_reclaim_enforce_limit(struct gc_context *context);
/* On each device. Idle memory beyond it goes back, what is live stays, and new requests fail until
 * less is held. May call the driver; no lock may be held. */
void gc_tenant_set_limit(struct gc_tenant *tenant, uint64_t limit_bytes);

#endif
