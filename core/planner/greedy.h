/* First fit by a given order (first-fit decreasing by size is one): each item at the lowest offset
 * that is free throughout its life.
 *
 * An index finds that offset without visiting every neighbour. It is a segment tree over the
 * sections. Each node keeps two sets of taken addresses, as spans that never touch: `cover`, of
 * items that live through all of the node's sections, and `touch`, of those that live in any of
 * them. An item is inserted into the cover sets of the O(log n) nodes that make up its life, and
 * into the touch sets of these and of their ancestors. A search uses the touch sets of the same
 * nodes and the cover sets of their ancestors. A node that makes up no item's life has no touch
 * set. */
#ifndef GC_PLANNER_GREEDY_H
#define GC_PLANNER_GREEDY_H

#include "core/base/region.h"
#include "core/planner/order.h"
#include "core/planner/place.h"

#include <stdbool.h>
#include <stdint.h>

/* Two addresses of 48 bits: the spans are most of the solver's memory. */
struct gc_place_span {
    uint32_t begin_low;
    uint32_t end_low;
    uint16_t begin_high;
    uint16_t end_high;
};

#define GC_PLACE_SPAN_MAX ((UINT64_C(1) << 48) - 1)

struct gc_place_set {
    struct gc_place_span *spans; /* by address, disjoint */
    uint32_t count;
    uint32_t room_class;
};

#define GC_PLACE_ROOM_CLASSES 64 /* 1, 2, 3, 4, 6, 8, 12 … spans */

struct gc_place_index {
    struct gc_region *region;
    struct gc_place_set *cover; /* node 1 is the root, n has 2n and 2n + 1; of a leaf it is touch */
    struct gc_place_set *touch;
    uint64_t *is_whole;  /* bits: the node is part of an item's life, so its touch set is kept */
    uint32_t leaf_count; /* sections; the leaves come last */
    struct gc_place_span *free[GC_PLACE_ROOM_CLASSES]; /* outgrown arrays, for reuse */
    struct gc_place_block *blocks;
    struct gc_place_block *block; /* the one in use */
};

/* First fit: one pass over the items in an order. */

struct gc_place_greedy {
    struct gc_place_run *run;
    struct gc_place_component *component;
    struct gc_place_index index;
    struct gc_place_sorter sorter;
    uint32_t *order;   /* item numbers; fixed items go first wherever they stand */
    uint64_t *offsets; /* of the latest pass */
};

/* Prepares for any component of the run. */
enum gc_status gc_greedy_init(struct gc_place_greedy *greedy, struct gc_place_run *run) GC_CHECKED;
/* Selects the component for the next passes. */
void gc_greedy_select(struct gc_place_greedy *greedy, struct gc_place_component *component);
/* One pass in greedy->order. It stops when the peak would exceed `limit` or GC_PLACE_SPAN_MAX, or
 * time is up: *peak is then UINT64_MAX. */
enum gc_status gc_greedy_pass(struct gc_place_greedy *greedy, uint64_t limit,
                              uint64_t *peak) GC_CHECKED;
/* Keeps the latest pass if it is better than the component's placement. */
bool gc_greedy_save(struct gc_place_greedy *greedy, uint64_t peak);

/* improve.c: local search on the peak, first fit again and again, each time moving forward the
 * items that ended too high (Joslin and Clements, "Squeaky wheel optimization", JAIR 10, 1999).
 * Starts from greedy->order; ends when the component is good enough, the run stops, or `rounds`
 * passes in a row bring no gain. The component's placement is replaced only by a better one. */
enum gc_status gc_improve(struct gc_place_greedy *greedy, unsigned rounds) GC_CHECKED;

#endif
