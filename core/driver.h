/* The platform under core: a table of functions and a clock. Core reaches hardware through this and
 * nothing else. Two implementations: the real driver (shim/driver_cuda.c) and a simulated one for
 * unit tests (tests/unit/sim_driver.c).
 *
 * Conventions: `self` is the implementation's own state. A context is an opaque handle. An int
 * result is the driver's own code, 0 for success; core compares it with `out_of_memory` and
 * otherwise only passes it on. Every function may be called from any thread, may block, and is
 * never called under a lock. */
#ifndef GC_DRIVER_H
#define GC_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

struct gc_driver {
    void *self;
    int out_of_memory; /* the code that says memory ran out */

    /* Takes `bytes` of device memory in `context`. Sets *address (aligned to 512 at least) on
     * success. */
    int (*mem_alloc)(void *self, uint64_t context, uint64_t bytes, uint64_t *address);
    /* Gives back what mem_alloc returned. The memory is idle, except in mode `track`, where the
     * driver's own waiting must do. */
    int (*mem_free)(void *self, uint64_t context, uint64_t address);
    /* The device's own free and total bytes, as seen from `context`. */
    int (*mem_info)(void *self, uint64_t context, uint64_t *free_bytes, uint64_t *total_bytes);
    /* Returns once all work submitted to `context` before the call is done. Illegal while one of
     * its streams captures: core never asks then. */
    int (*synchronize)(void *self, uint64_t context);
    /* Memory ran out for `bytes`: gives back what the driver itself keeps idle (stream-ordered
     * pools). True if something went back, so that trying again may help. NULL: there is no such
     * memory. */
    bool (*relieve)(void *self, uint64_t context, uint64_t bytes);
    /* Monotonic nanoseconds. */
    uint64_t (*clock_ns)(void *self);
};

#endif
