/* Pages for slots that need them, step by step: for map.c and for pause/swap_in.c. A change is
 * begun; slots are GC_SLOT_PENDING, with a page that is planned for them or without: then one is
 * created, whose budget is reserved. */
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
    struct gc_segment_failure *refusal;
    struct gc_block *block;
    struct gc_arena *arena;
    uint64_t first; /* slots of the block: [first, end) */
    uint64_t end;
    uint64_t create_count; /* pages that are to be created; their budget is reserved */
    struct gc_charge held; /* of the budget, to be confirmed */
    bool must_unmap;
    bool is_device_full; /* the driver had no page more */
    bool may_be_thrifty; /* and idle pages were left */
};

static inline struct gc_slot *gc_map_slot(const struct gc_map_op *map_op, uint64_t i)
{
    return &map_op->arena->slots[i];
}

/* Creates, unmaps what is in the way, maps, gives access. No lock. What the driver did shows in the
 * stages of the slots. */
enum gc_status gc_map_call_driver(struct gc_map_op *map_op) GC_CHECKED;
/* After a failure: pages that were created go back, as far as the driver takes them. Returns how
 * many went, with those that never came. No lock. */
uint64_t gc_map_undo_create(struct gc_map_op *map_op);

/* Pages and slots say what the driver did; no slot is changing any more. */
void gc_map_commit_locked(struct gc_map_op *map_op, bool is_done);

#endif
