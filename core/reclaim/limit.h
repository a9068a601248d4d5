/* Enforces limits: see limit.c. The functions here may call the driver; their callers hold no lock.
 */
#ifndef GC_LIMIT_H
#define GC_LIMIT_H

#include "core/device/context.h"

/* Releases idle memory while the device is over its limit, and waits for pending blocks if idle
 * memory is not enough. False: the device is still over the limit. Cheap while it is not. */
bool gc_limit_enforce_device(struct gc_device *device);
/* As gc_limit_enforce_device, and for the context's quota, if it has one. */
bool gc_limit_enforce(struct gc_context *context);
/* Sets the tenant's limit on each device. Idle memory above it is released, live memory stays, and
 * new requests fail until the tenant holds less. */
void gc_limit_set_tenant(struct gc_tenant *tenant, uint64_t limit_bytes);

#endif
