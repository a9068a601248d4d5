/* The platform below core: a table of functions and a clock, core's only way to the hardware. Two
 * implementations: the CUDA driver (shim/driver/driver_cuda.c) and a simulated one for unit tests
 * (tests/unit/sim_driver.c).
 *
 * Conventions: `self` is the implementation's state. A context is an opaque handle. An int result
 * is the driver's own code, 0 for success; core compares it with the codes below and otherwise
 * passes it on. Any thread may call any function; it may block, and no lock is held. */
#ifndef GC_DRIVER_H
#define GC_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#define GC_FOREVER UINT64_MAX

struct gc_driver {
    void *self;
    int out_of_memory;   /* the code for out of memory */
    int context_is_gone; /* the code for a destroyed context; core returns it as well */

    /* Allocates `bytes` of device memory in `context`. Sets *address (aligned to at least 512) on
     * success. */
    int (*mem_alloc)(void *self, uint64_t context, uint64_t bytes, uint64_t *address);
    /* The program's free of an address from mem_alloc: waits for work that may use it. */
    int (*mem_free)(void *self, uint64_t context, uint64_t address);
    /* Frees idle memory, without a wait. NULL: as mem_free. */
    int (*mem_free_idle)(void *self, uint64_t context, uint64_t address);
    /* The program's free in stream order, without a wait. `stream` is the driver's handle. */
    int (*mem_free_ordered)(void *self, uint64_t context, uint64_t address, uint64_t stream);
    /* The free and total bytes of the device, as seen from `context`. */
    int (*mem_info)(void *self, uint64_t context, uint64_t *free_bytes, uint64_t *total_bytes);
    /* The bytes of the device that this process has, of whatever kind, as the system counts them.
     * False: not known. May take milliseconds. NULL: never known. */
    bool (*process_bytes)(void *self, int ordinal, uint64_t *bytes);
    /* Has gc_reconcile_compare called soon by a thread of the platform's own, if the figure can be
     * known, and returns. NULL: the calling thread calls it. */
    void (*compare_soon)(void *self, int ordinal);
    /* Returns once all work submitted to `context` before the call is completed. Illegal during a
     * capture of one of its streams: core never calls it then. */
    int (*synchronize)(void *self, uint64_t context);
    /* Out of memory for `bytes`: releases the idle memory of the driver's own pools. True if memory
     * was released, so that a retry may succeed. NULL: there is no such memory. */
    bool (*reclaim)(void *self, uint64_t context, uint64_t bytes);
    /* Whether the driver has shut down, at the end of the process: it refuses every call from then
     * on. NULL: never. */
    bool (*is_shut_down)(void *self);
    /* Monotonic nanoseconds. */
    uint64_t (*clock_ns)(void *self);

    /* ---- fences: NULL where there are none; core synchronises then ---- */

    int not_ready;     /* fence_query's code for work under way */
    int not_supported; /* fence_record's code where it cannot cover all work of the context */
    /* Records a fence of all work submitted to `context` so far, in all streams. Illegal during a
     * capture of one of its streams. *fence is released with fence_release. */
    int (*fence_record)(void *self, uint64_t context, uint64_t *fence);
    /* 0 once all work before the fence is completed. Does not disturb a capture of any thread; nor
     * does fence_wait, during which a capture may begin. */
    int (*fence_query)(void *self, uint64_t context, uint64_t fence);
    /* Returns 0 once all work before the fence is completed, not_ready after about limit_ns.
     * GC_FOREVER: unbounded. */
    int (*fence_wait)(void *self, uint64_t context, uint64_t fence, uint64_t limit_ns);
    /* The fence is unused from now on; its event may be reused. Allowed during a capture. */
    void (*fence_release)(void *self, uint64_t context, uint64_t fence);

    /* ---- stream order: streams are named as in submit.h; NULL where there are no fences ---- */

    /* Records a fence of the work submitted so far to `stream`, one of the context's. *fence: 0, or
     * a fence of the same context to reuse. An error during a capture of the stream. */
    int (*stream_record)(void *self, uint64_t context, uint64_t stream, uint64_t *fence);
    /* Later work of `stream`, a stream of any context, starts after the fence. Does not wait.
     * Without effect if the stream captures: captured work runs in the stream of a graph launch. */
    int (*stream_wait)(void *self, uint64_t stream, uint64_t fence);

    /* ---- mapped memory: for devices whose info has has_mapping. Such memory outlives contexts:
     * unmap, release and free are called with a destroyed context too. ---- */

    /* Reserves a range of addresses without memory; `bytes` and `alignment` are multiples of the
     * device's page. */
    int (*address_reserve)(void *self, uint64_t context, uint64_t bytes, uint64_t alignment,
                           uint64_t *address);
    int (*address_free)(void *self, uint64_t context, uint64_t address, uint64_t bytes);
    /* Creates one page of physical memory of the context's device. */
    int (*page_create)(void *self, uint64_t context, uint64_t bytes, uint64_t *handle);
    /* Releases a page to the device once it is mapped nowhere. */
    int (*page_release)(void *self, uint64_t context, uint64_t handle);
    /* Maps a page; it may be mapped at several addresses at once. */
    int (*page_map)(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                    uint64_t handle);
    /* Grants the context's device and `peers` access to a range of mapped pages. */
    int (*page_set_access)(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                           const int *peers, uint32_t peer_count);
    /* Unmaps a range of whole mapped pages that no work uses any more. */
    int (*page_unmap)(void *self, uint64_t context, uint64_t address, uint64_t bytes);

    /* ---- host memory that the device reaches; NULL where there is none ---- */

    /* As page_create, of page-locked host memory. not_supported: the driver has no such pages. */
    int (*page_create_host)(void *self, uint64_t context, uint64_t bytes, uint64_t *handle);
    /* Allocates page-locked host memory at an address that the devices of all contexts reach. It is
     * destroyed with the context. */
    int (*host_alloc)(void *self, uint64_t context, uint64_t bytes, uint64_t *address);
    int (*host_free)(void *self, uint64_t context, uint64_t address);

    /* ---- mapped memory between processes: NULL where there is none ---- */

    /* A descriptor of a created page, for the caller to close: another process imports it. */
    int (*page_export)(void *self, uint64_t context, uint64_t handle, int *fd);
    /* A page of another process, by a descriptor of it, which stays the caller's: to be mapped and
     * released as one of this process. */
    int (*page_import)(void *self, uint64_t context, int fd, uint64_t *handle);
    /* The devices that this process sees, used or not: their ordinals are those below. */
    uint32_t (*count_devices)(void *self);

    /* ---- contents: complete when the call returns; never called during a capture ---- */

    int (*fill)(void *self, uint64_t context, uint64_t address, uint64_t bytes, uint8_t value);
    /* Copies from the device to host memory `to`. */
    int (*read)(void *self, uint64_t context, uint64_t address, uint64_t bytes, void *to);
    /* Copies from host memory `from` to the device. */
    int (*write)(void *self, uint64_t context, uint64_t address, uint64_t bytes, const void *from);

    /* ---- copies of swapped memory: NULL where there are none; read and write serve then. Never
     * called during a capture ---- */

    /* Pins host memory for copies in every context, at the link's full speed; until it is unpinned
     * or `context` is destroyed. */
    int (*host_pin)(void *self, uint64_t context, void *memory, uint64_t bytes);
    int (*host_unpin)(void *self, uint64_t context, void *memory);
    /* Starts a copy from the device to host memory `to`, which need not be pinned. Copies of one
     * direction complete in their order; the two directions overlap. No order with the program's
     * work. */
    int (*copy_out)(void *self, uint64_t context, uint64_t address, uint64_t bytes, void *to);
    /* Starts a copy from host memory `from` to the device. */
    int (*copy_in)(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                   const void *from);
    /* Starts a copy between device addresses, in the order of those from the device. */
    int (*copy_across)(void *self, uint64_t context, uint64_t from, uint64_t to, uint64_t bytes);
    /* Returns 0 once all copies of the direction that were started before the call are complete. */
    int (*copy_wait)(void *self, uint64_t context, bool is_out);
};

#endif
