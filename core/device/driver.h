/* The platform under core: a table of functions and a clock. Core reaches hardware through this and
 * nothing else. Two implementations: the real driver (shim/driver/driver_cuda.c) and a simulated
 * one for unit tests (tests/unit/sim_driver.c).
 *
 * Conventions: `self` is the implementation's own state. A context is an opaque handle. An int
 * result is the driver's own code, 0 for success; core compares it with `out_of_memory` and
 * otherwise only passes it on. Every function may be called from any thread, may block, and is
 * never called under a lock. */
#ifndef GC_DRIVER_H
#define GC_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#define GC_FOREVER UINT64_MAX

struct gc_driver {
    void *self;
    int out_of_memory;   /* the code that says memory ran out */
    int context_is_gone; /* core's own answer instead of a call, where the context has ended */

    /* Takes `bytes` of device memory in `context`. Sets *address (aligned to 512 at least) on
     * success. */
    int (*mem_alloc)(void *self, uint64_t context, uint64_t bytes, uint64_t *address);
    /* The program's free of what mem_alloc returned: waits for work that may use it. */
    int (*mem_free)(void *self, uint64_t context, uint64_t address);
    /* The same for memory that is known to be idle: waits for nothing. NULL: as mem_free. */
    int (*mem_free_idle)(void *self, uint64_t context, uint64_t address);
    /* The program's free in the order of `stream`, a handle of its own, without a wait. */
    int (*mem_free_ordered)(void *self, uint64_t context, uint64_t address, uint64_t stream);
    /* The device's own free and total bytes, as seen from `context`. */
    int (*mem_info)(void *self, uint64_t context, uint64_t *free_bytes, uint64_t *total_bytes);
    /* Returns once all work submitted to `context` before the call is done. Illegal while one of
     * its streams captures: core never asks then. */
    int (*synchronize)(void *self, uint64_t context);
    /* Memory ran out for `bytes`: gives back what the driver itself keeps idle (stream-ordered
     * pools). True if something went back, so that trying again may help. NULL: there is no such
     * memory. */
    bool (*reclaim)(void *self, uint64_t context, uint64_t bytes);
    /* Monotonic nanoseconds. */
    uint64_t (*clock_ns)(void *self);

    /* ---- fences: NULL where there are none, core then synchronises ---- */

    int not_ready;     /* fence_query's code for work that is still under way */
    int not_supported; /* fence_record's code where it cannot mark all work of the context */
    /* Marks the end of all work submitted to `context` so far, by whatever stream. Illegal while
     * one of its streams captures. *fence is given back by fence_release. */
    int (*fence_record)(void *self, uint64_t context, uint64_t *fence);
    /* 0 once everything before the mark is done. Captures, of whatever thread, take no harm; nor by
     * fence_wait, in which one may begin. */
    int (*fence_query)(void *self, uint64_t context, uint64_t fence);
    /* Returns 0 once everything before the mark is done, not_ready where that takes longer than
     * about limit_ns. GC_FOREVER: no end. */
    int (*fence_wait)(void *self, uint64_t context, uint64_t fence, uint64_t limit_ns);
    /* The mark is used no more; its event serves another. May be called while something captures.
     */
    void (*fence_release)(void *self, uint64_t context, uint64_t fence);

    /* ---- the order of one stream, named as in work.h; NULL where there are no fences ---- */

    /* Marks the end of the work that `stream`, one of the context's, has so far. *fence: 0, or a
     * mark of the same context that is used anew. Not while the stream captures: an error. */
    int (*stream_record)(void *self, uint64_t context, uint64_t stream, uint64_t *fence);
    /* Work submitted to `stream`, of whichever context, starts after the mark from now on. Does not
     * wait. Nothing is done to a stream that captures: its work runs later, in others. */
    int (*stream_wait)(void *self, uint64_t stream, uint64_t fence);

    /* ---- mapped memory: used for devices whose info says has_mapping. It outlives contexts:
     * unmap, release and free are asked of a context that is gone, too. ---- */

    /* A range of addresses, backed by nothing; `bytes` and `alignment` are multiples of the
     * device's page. */
    int (*address_reserve)(void *self, uint64_t context, uint64_t bytes, uint64_t alignment,
                           uint64_t *address);
    int (*address_free)(void *self, uint64_t context, uint64_t address, uint64_t bytes);
    /* One page of physical memory of the context's device. */
    int (*page_create)(void *self, uint64_t context, uint64_t bytes, uint64_t *handle);
    /* Gives it back to the device once nothing maps it. */
    int (*page_release)(void *self, uint64_t context, uint64_t handle);
    /* A page may be mapped at several addresses at once. */
    int (*page_map)(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                    uint64_t handle);
    /* Makes a range of mapped pages usable by the context's device and by `peers`. */
    int (*page_set_access)(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                           const int *peers, uint32_t peer_count);
    /* Unmaps a range that consists of whole mapped pages. No work may use it any more. */
    int (*page_unmap)(void *self, uint64_t context, uint64_t address, uint64_t bytes);

    /* ---- contents: complete when they return; never asked while something captures ---- */

    int (*fill)(void *self, uint64_t context, uint64_t address, uint64_t bytes, uint8_t value);
    /* Copies `bytes` of device memory to `to`. */
    int (*read)(void *self, uint64_t context, uint64_t address, uint64_t bytes, void *to);
    /* And from there to the device. */
    int (*write)(void *self, uint64_t context, uint64_t address, uint64_t bytes, const void *from);
};

#endif
