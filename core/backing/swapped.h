/* Swapped-out memory of a pool: the record of a change that lasts until all of it is swapped in. */
#ifndef GC_SWAPPED_H
#define GC_SWAPPED_H

#include "core/backing/change.h"
#include "core/backing/segment.h"

struct gc_swap {
    struct gc_change change;
    uint64_t host_bytes; /* of this record */
    /* All `is_away`, linked by `next`, each with one mapping, the user, in stage GC_MAPPING_TO_MAP.
     * `copy`: its content; NULL: the content was dropped. A driver that did not release an extent
     * still has it. */
    struct gc_extent *extents;
    bool is_moving;                    /* one thread swaps more out, or in */
    struct gc_segment_failure failure; /* of the attempts to swap in */
};

/* Frees host memory only; ignores NULL. No lock may be held. Defined in change.c. */
void gc_change_free_swapped(struct gc_context *context, struct gc_swap *swap);

#endif
