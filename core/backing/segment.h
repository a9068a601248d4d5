/* Segments and the driver: how one is allocated, budget included, and how it goes back. */
#ifndef GC_BACKING_SEGMENT_H
#define GC_BACKING_SEGMENT_H

#include "core/device/quota.h"
#include "core/pool/segment.h"

struct gc_context;
struct gc_entry;

/* What an attempt that failed leaves to say. */
struct gc_segment_failure {
    int driver_code;
    struct gc_charge_failure charge_failure;
};

/* Reserves, asks the driver, adds the segment to the context's pool and carves a live block from it
 * at once. GC_OUT_OF_MEMORY: budget or driver; GC_DRIVER with refusal->driver_code;
 * GC_INVALID_ARGUMENT: the context was dropped meanwhile; GC_NO_HOST_MEMORY. Nothing is held after
 * a failure. No lock may be held. */
enum gc_status gc_segment_create(struct gc_context *context,
                                 const struct gc_segment_spec *segment_spec,
                                 const struct gc_alloc_spec *spec, uint64_t *address,
                                 struct gc_segment_failure *refusal) GC_CHECKED;

/* The same without a block: all of it is free. For class planned. */
enum gc_status gc_segment_create_free(struct gc_context *context,
                                      const struct gc_segment_spec *segment_spec,
                                      struct gc_segment_failure *refusal) GC_CHECKED;

/* Gives a segment that was removed from its pool, and whose memory is idle, back to the driver.
 * Returns the driver's code, or -1 where the memory turned out not to be idle; on refusal the
 * segment is in the pool again, its one block live as it was if `noted` says what was, else free.
 * No lock may be held; the caller has begun a give-back of the device. */
int gc_segment_release(struct gc_context *context, struct gc_segment *segment,
                       struct gc_block *block, const struct gc_entry *noted);

#endif
