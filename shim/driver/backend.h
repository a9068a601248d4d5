/* The possible sources of a device's pool memory: queried from the driver and the system once per
 * device. */
#ifndef GC_BACKEND_H
#define GC_BACKEND_H

#include "shim/shim.h"

/* Fills in has_mapping, page_bytes and backend_reason. */
void gc_backend_describe(struct gc_device_info *info);
/* Whether network cards may reach mapped memory of the device. */
bool gc_backend_has_rdma(CUdevice ordinal);

#endif
