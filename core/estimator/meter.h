/* A count of bytes with a limit: what a plan would hold at once. Nothing is allocated.
 *
 * Thread-safe and without locks: a reservation checks and adds in one step, so the sum never passes
 * the limit, and the peak is exact. */
#ifndef GC_METER_H
#define GC_METER_H

#include "core/base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_meter {
    uint64_t limit_bytes;
    atomic_uint_fast64_t current_bytes;
    atomic_uint_fast64_t peak_bytes;
};

/* UINT64_MAX: no limit. */
void gc_meter_init(struct gc_meter *meter, uint64_t limit_bytes);
/* GC_OUT_OF_MEMORY, with nothing counted, if the sum would pass the limit or 64 bits. */
enum gc_status gc_meter_allocate(struct gc_meter *meter, uint64_t bytes) GC_CHECKED;
/* GC_INVALID_ARGUMENT, with nothing counted, for more than is held. */
enum gc_status gc_meter_free(struct gc_meter *meter, uint64_t bytes) GC_CHECKED;
/* Whether it would fit now; another thread may take the room before it is asked for. */
bool gc_meter_would_fit(const struct gc_meter *meter, uint64_t bytes);
uint64_t gc_meter_current(const struct gc_meter *meter);
uint64_t gc_meter_peak(const struct gc_meter *meter);
/* Nothing held, no peak; the limit stays. Not while others count. */
void gc_meter_reset(struct gc_meter *meter);

#endif
