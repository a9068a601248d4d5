/* Content of device memory in host memory: a list of pieces of the host store (host.h), in order.
 * Copies start in large pieces and run beside each other; the caller waits once. No lock may be
 * held, and the caller ensures that nobody uses the memory. */
#ifndef GC_COPY_H
#define GC_COPY_H

#include "core/backing/host.h"
#include "core/device/context.h"

struct gc_copy {
    struct gc_copy *next;
    struct gc_device *device; /* whose `swapped` counts it, or `kept` */
    uint64_t address;         /* of the memory */
    struct gc_host_piece piece;
    bool is_complete; /* the content is there already */
    bool is_kept;     /* beside the resident memory: kept.h */
};

/* Room for `bytes` of memory at `address`, whole pages, beside the copies `had` of some of it, in
 * order, which become part of the list. NULL: no host memory, or the bound is reached; `had` are
 * freed. */
struct gc_copy *gc_copy_create(struct gc_context *worker, uint64_t address, uint64_t bytes,
                               struct gc_copy *had);
/* Cuts a copy of which `next` is NULL after its first `bytes`, whole pages. The rest; NULL: no host
 * memory for its record, and the copy stays whole. */
struct gc_copy *gc_copy_cut(struct gc_core *core, struct gc_copy *copy, uint64_t bytes);
/* The device's figures count it as kept, or as swapped. */
void gc_copy_set_kept(struct gc_copy *copy, bool is_kept);
/* Joins two lists. */
struct gc_copy *gc_copy_join(struct gc_copy *a, struct gc_copy *b);
/* Ignores NULL. */
void gc_copy_free(struct gc_core *core, struct gc_copy *copy);
/* Starts copies from the device, but for complete ones, or to it; returns the driver's code. The
 * content is complete after gc_copy_wait. */
int gc_copy_start(struct gc_context *worker, const struct gc_copy *copy, bool is_out) GC_CHECKED;
/* Starts a copy from one device address to another; it is complete after gc_copy_wait, as one from
 * the device. Requires driver.copy_across. */
int gc_copy_across(struct gc_context *worker, uint64_t from, uint64_t to,
                   uint64_t bytes) GC_CHECKED;
/* Waits for all copies of the direction that were started. Returns the driver's code; after a
 * failure they have ended, too, but for what the driver refuses to wait for. */
int gc_copy_wait(struct gc_context *worker, bool is_out) GC_CHECKED;

#endif
