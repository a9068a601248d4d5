/* What a call takes from a device when nothing says so but the free memory before and after it.
 *
 * Asked of the driver in a context of that device that is certain to live (the current one, or the
 * primary one while it is retained for the question), else of NVML: if it is loaded already, a
 * limit is in force or a model is named; NVML is started before and stopped after. By UUID, never
 * by ordinal. Where other processes use the device, NVML's figure for this process goes before.
 * What the account itself changed meanwhile is taken out; what other processes did can only be
 * where that figure is not to be had, and then is not. No lock is held. */
#ifndef GC_MEASURE_H
#define GC_MEASURE_H

#include "shim/shim.h"

enum gc_measure_source { GC_MEASURE_NONE, GC_MEASURE_DRIVER, GC_MEASURE_NVML };

struct gc_measure {
    struct gc_device *device;
    enum gc_measure_source source; /* NONE: it cannot be measured */
    uint64_t free_bytes;
    uint64_t reserved_bytes;
    bool is_shared;         /* NVML's figure for this process is asked: others may use the device */
    bool is_exact;          /* of the end: nobody else's memory is in it */
    uint64_t process_bytes; /* what NVML says this process uses */
};

/* Before the call. `device` NULL measures nothing. An end must follow, however the call went. */
void gc_measure_begin(struct gc_measure *measure, struct gc_device *device);
/* The same where only the calling thread's current context may be asked: for what needs one anyway.
 */
void gc_measure_begin_current(struct gc_measure *measure);
/* After the call: bytes taken, negative if given back; 0 where it could not be measured. */
int64_t gc_measure_end(struct gc_measure *measure);

#endif
