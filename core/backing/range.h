/* Address ranges that stay reserved after their release; change.h declares the rest of range.c. */
#ifndef GC_RANGE_H
#define GC_RANGE_H

#include <stdint.h>

struct gc_context;
struct gc_core;

/* A range that stays reserved with nothing mapped: see gc_range_release_kept. */
struct gc_range {
    struct gc_range *next;
    uint64_t address;
    uint64_t bytes;
};

/* Frees the ranges that were kept for graphs, which are destroyed with the driver's context. Call
 * once all records of `head` are dropped. No lock may be held. */
void gc_range_release_kept(struct gc_context *head);

/* For gc_core_create and gc_core_destroy. */
void gc_ranges_init(struct gc_core *core);
void gc_ranges_fini(struct gc_core *core);

#endif
