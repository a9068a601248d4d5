/* The possible sources of a device's pool memory: queried from the driver and the system once per
 * device. */
#ifndef GC_BACKEND_H
#define GC_BACKEND_H

#include "shim/shim.h"

/* Fills in has_mapping, page_bytes and backend_reason. */
void gc_backend_describe(struct gc_device_info *info);
/* Whether the device may access the peer's memory. */
bool gc_backend_can_access(CUdevice device, CUdevice peer);
/* Sets the flags of a page of prop's device, a place for network cards and for the decompression
 * engine where the device has them. */
void gc_backend_set_flags(CUmemAllocationProp *prop);
/* Whether the pool may use the new page. False: the device refuses pages with these flags; they are
 * set again without the one that it refuses. A context of the device is current. */
bool gc_backend_accepts_page(const CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle,
                             uint64_t bytes);

#endif
