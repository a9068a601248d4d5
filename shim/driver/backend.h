/* The possible sources of a device's pool memory: queried from the driver and the system once per
 * device. */
#ifndef GC_BACKEND_H
#define GC_BACKEND_H

#include "shim/shim.h"

/* Fills in has_mapping, page_bytes and backend_reason. */
void gc_backend_describe(struct gc_device_info *info);
/* Whether the device may access the peer's memory. */
bool gc_backend_can_access(CUdevice device, CUdevice peer);
/* Creates a page for the pool: one that other processes can import, with the flags for network
 * cards and for the decompression engine, where the device has these and accepts such a page. A
 * context of the device is current. */
CUresult gc_backend_create_page(struct gc_device *device, CUdevice ordinal, uint64_t bytes,
                                CUmemGenericAllocationHandle *handle);
/* Whether other processes can import the device's pages; false while it has none. */
bool gc_backend_is_shareable(CUdevice ordinal);

#endif
