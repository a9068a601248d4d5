/* Measures the memory that a call takes from a device by the free memory before and after it, for
 * calls that report no size.
 *
 * The driver is queried in a context of that device that cannot be destroyed meanwhile (the current
 * one, or the primary one while it is retained for the query). Otherwise NVML is queried if it is
 * loaded already, a limit is in force or a model is named; NVML is started before and stopped
 * after. Devices are matched by UUID, never by ordinal. Where other processes use the device,
 * NVML's figure for this process is preferred. Changes of the account itself in the meantime are
 * subtracted. Changes by other processes can be excluded only with NVML's figure; without it they
 * are not. No lock is held. */
#ifndef GC_MEASURE_H
#define GC_MEASURE_H

#include "shim/shim.h"

enum gc_measure_source { GC_MEASURE_NONE, GC_MEASURE_DRIVER, GC_MEASURE_NVML };

struct gc_measure {
    struct gc_device *device;
    enum gc_measure_source source; /* NONE: it cannot be measured */
    uint64_t free_bytes;
    uint64_t reserved_bytes;
    bool is_shared;         /* NVML's figure for this process is read: others may use the device */
    bool is_exact;          /* set at the end: the result has no memory of other processes */
    uint64_t process_bytes; /* NVML's figure for this process */
};

/* Before the call. `device` NULL measures nothing. An end must follow, however the call went. */
void gc_measure_begin(struct gc_measure *measure, struct gc_device *device);
/* As gc_measure_begin, but queries only the calling thread's current context: for calls that need
 * one anyway. */
void gc_measure_begin_current(struct gc_measure *measure);
/* Sets the functions of core's driver table by which the process's own figure is known: NVML's,
 * where a limit is in force or a model is named. Call it after gc_driver_cuda_init. */
void gc_measure_driver_init(struct gc_driver *driver);
/* After the call: bytes taken, negative if released; 0 if they could not be measured. */
int64_t gc_measure_end(struct gc_measure *measure);

#endif
