/* Devices and processes that reach device memory outside all streams: network cards, storage, other
 * processes. The order of the single stream (core/device/submit.h) does not cover them. */
#ifndef GC_OUTSIDE_H
#define GC_OUTSIDE_H

#include "shim/shim.h"

/* Call before the driver makes memory accessible in this way, inside the wrapper. Any result but
 * CUDA_SUCCESS: memory is not known to be idle, and must not be made accessible. */
CUresult gc_outside_expect(void);

/* The calling thread is about to load objects, `path` and its dependencies; NULL: none. `caller`:
 * the code that loads them. */
void gc_outside_begin_load(const char *path, const void *caller);
/* Scans the loaded objects; at the start. */
void gc_outside_scan(void);
/* The calling thread has loaded them. */
void gc_outside_end_load(void);
/* The thread makes another call, or ends: its load is over. */
static inline void gc_outside_check_thread(void)
{
    if (__builtin_expect(gc_thread.is_loading, 0))
        gc_outside_end_load();
}

#endif
