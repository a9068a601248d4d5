/* The driver calls of a map operation, for map.c and pause/swap_in.c. The caller has the change and
 * has set the slots to GC_SLOT_PENDING. A slot without a planned idle page gets a new page, which
 * is charged already. */
#ifndef GC_MAP_H
#define GC_MAP_H

#include "core/backing/change.h"
#include "core/backing/segment.h"

struct gc_map_op {
    struct gc_change change;
    struct gc_context *context;
    struct gc_pool *pool;
    const struct gc_segment_spec *segment_spec;
    const struct gc_alloc_spec *spec;
    struct gc_segment_failure *failure;
    struct gc_block *block;
    struct gc_arena *arena;
    uint64_t first; /* the block's slots: [first, end) */
    uint64_t end;
    uint64_t create_count; /* pages to create; charged */
    struct gc_charge held; /* the charge of these pages, until it is committed */
    bool must_unmap;
    bool is_device_full; /* the driver was out of memory */
    bool may_be_thrifty; /* is_device_full, idle pages exist: retry, which remaps these first */
};

static inline struct gc_slot *gc_map_slot(const struct gc_map_op *map_op, uint64_t i)
{
    return &map_op->arena->slots[i];
}

/* Creates pages, unmaps the slots' old pages, maps, grants access. No lock may be held. The stage
 * of each slot records how far the driver got. */
enum gc_status gc_map_call_driver(struct gc_map_op *map_op) GC_CHECKED;
/* After a failure: releases the created pages unless the driver refuses. Returns the number of
 * pages to uncharge: released or never created. No lock may be held. */
uint64_t gc_map_undo_create(struct gc_map_op *map_op);

/* Makes the records of pages and slots match the driver; no slot is changing any more. */
void gc_map_commit_locked(struct gc_map_op *map_op, bool is_done);

#endif
