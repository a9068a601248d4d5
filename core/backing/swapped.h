/* Swapped-out memory of a pool: the record of a change that lasts until all of it is swapped in. */
#ifndef GC_SWAPPED_H
#define GC_SWAPPED_H

#include "core/backing/change.h"
#include "core/backing/segment.h"

/* A slot whose page is swapped out. */
struct gc_swapped_slot {
    struct gc_slot *slot;
    struct gc_arena *arena;
    uint64_t number; /* of the page in the copy */
};

struct gc_swap {
    struct gc_change change;
    uint8_t *copy; /* NULL: the content was dropped */
    uint64_t copy_bytes;
    uint64_t host_bytes; /* of this record with the list */
    uint64_t count;      /* entries, sorted by arena and slot; all slots are GC_SLOT_PENDING */
    bool is_swapping_in; /* one thread swaps it in */
    struct gc_segment_failure failure; /* of the attempts to swap in */
    struct gc_swapped_slot list[];
};

/* Frees host memory only; ignores NULL. No lock may be held. Defined in change.c. */
void gc_change_free_swapped(struct gc_context *context, struct gc_swap *swap);

#endif
