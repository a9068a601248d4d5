/* Segments of driver memory: charge and allocate, release and uncharge. */
#ifndef GC_BACKING_SEGMENT_H
#define GC_BACKING_SEGMENT_H

#include "core/device/quota.h"
#include "core/pool/segment.h"

struct gc_context;
struct gc_entry;

/* Why an attempt failed. */
struct gc_segment_failure {
    int driver_code;
    struct gc_charge_failure charge_failure;
};

/* Charges the budget, allocates from the driver, adds the segment to the context's pool and splits
 * a live block off it. GC_OUT_OF_MEMORY: budget or driver; GC_DRIVER with failure->driver_code;
 * GC_INVALID_ARGUMENT: the context was dropped meanwhile; GC_NO_HOST_MEMORY. A failure leaves
 * nothing allocated or charged. No lock may be held. */
enum gc_status gc_segment_create(struct gc_context *context,
                                 const struct gc_segment_spec *segment_spec,
                                 const struct gc_alloc_spec *spec, uint64_t *address,
                                 struct gc_segment_failure *failure) GC_CHECKED;

/* As gc_segment_create, without a live block: all of the segment is free. For class planned. */
enum gc_status gc_segment_create_free(struct gc_context *context,
                                      const struct gc_segment_spec *segment_spec,
                                      struct gc_segment_failure *failure) GC_CHECKED;

/* Releases an idle segment that was removed from its pool. Returns the driver's code, or -1 if the
 * memory was not idle after all. On failure the segment is in the pool again. Its one block is then
 * live if `freed` is the entry of the program's own free, or free if `freed` is NULL. No lock may
 * be held; the caller is in gc_device_release_begin. */
int gc_segment_release(struct gc_context *context, struct gc_segment *segment,
                       struct gc_block *block, const struct gc_entry *freed);

#endif
