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
/* For a device with too little free memory: idle memory is known to be spare after a while without
 * need of it. Reads the clock. */
void gc_leave_observe(struct gc_device *device);
/* Idle memory was released: as much less is spare. `least_bytes`: device->idle.least_bytes before.
 */
void gc_leave_note_release(struct gc_device *device, uint64_t least_bytes, uint64_t bytes);

#endif
