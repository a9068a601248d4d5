/* A swap from inside: what swap.c and swap_in.c share. */
#ifndef GC_SWAP_RECORD_H
#define GC_SWAP_RECORD_H

#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/pause/swap.h"

/* A slot whose page is away. */
struct gc_away {
    struct gc_slot *slot;
    struct gc_arena *arena;
    uint64_t number; /* of its copy */
};

struct gc_swap {
    struct gc_change change;
    uint8_t *copy; /* NULL: the content was dropped */
    uint64_t copy_bytes;
    uint64_t host_bytes; /* of this record with the list */
    uint64_t count;      /* in the list, by arena and slot; their slots are GC_SLOT_NEEDS */
    bool is_coming;      /* one thread swaps it in */
    struct gc_segment_refusal refusal; /* its attempts */
    struct gc_away list[];
};

/* The context in which contents are copied: of memory of the device, one of the device. */
struct gc_context *gc_swap_worker(struct gc_context *context);
/* The address of its slot. */
uint64_t gc_swap_address(const struct gc_pool *pool, const struct gc_away *away);
/* The end of the run of neighbours that starts at `i`. */
uint64_t gc_swap_run_end(const struct gc_swap *swap, uint64_t i);
/* The page is the slot's again. One that is not in use after all, or whose block was freed
 * meanwhile, is idle. */
void gc_swap_settle_locked(struct gc_pool *pool, struct gc_slot *slot, struct gc_page *page);

#endif
