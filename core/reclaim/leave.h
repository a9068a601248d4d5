/* GPUCACHE_LEAVE: keeps the reading of a device's free memory recent (core/device/device.c). */
#ifndef GC_LEAVE_H
#define GC_LEAVE_H

#include "core/device/context.h"

/* Queries the driver in a context of the device. False: no context answers; *code is 0 then, or the
 * driver's. */
bool gc_leave_read(struct gc_device *device, uint64_t *free_bytes, uint64_t *total_bytes,
                   int *code);
/* Reads if there is no reading yet, or, where the clock may be read, if the last one is old. */
void gc_leave_update(struct gc_device *device, bool may_read_clock);

#endif
