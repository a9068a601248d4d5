/* First fit by a given order, the order being what decides (first-fit decreasing by size is one):
 * each item at the lowest place that is free throughout its life.
 *
 * An index finds that place without a look at every neighbour. It is a segment tree over the
 * sections. Each node keeps two sets of taken addresses, as spans that never touch: `cover`, of
 * items that live through all of the node's sections, and `touch`, of those that live in any of
 * them. An item is written to the O(log n) nodes that make up its life and, as touch, to the nodes
 * above; a search joins the touch sets of the same nodes with the cover sets above. */
#ifndef GC_PLANNER_GREEDY_H
#define GC_PLANNER_GREEDY_H

#include "core/base/region.h"
#include "core/planner/order.h"
#include "core/planner/place.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_place_span {
    uint64_t begin;
    uint64_t end;
};

struct gc_place_set {
    struct gc_place_span *spans; /* by address, apart from each other */
    uint32_t count;
    uint32_t room_log2;
};

#define GC_PLACE_ROOM_LOG2_MAX 32

struct gc_place_index {
    struct gc_region *region;
    struct gc_place_set *cover; /* node 1 is the root, n has 2n and 2n + 1 */
    struct gc_place_set *touch;
    uint32_t leaf_count;                                /* a power of two */
    struct gc_place_span *free[GC_PLACE_ROOM_LOG2_MAX]; /* outgrown ones, for others */
    struct gc_place_block *blocks;
    struct gc_place_block *block; /* the one in use */
};

/* One pass over the items in some order, each put at the lowest place that is free throughout its
 * life (first fit). */

struct gc_place_greedy {
    struct gc_place_run *run;
    struct gc_place_component *component;
    struct gc_place_index index;
    struct gc_place_sorter sorter;
    uint32_t *order;   /* item numbers; fixed ones come first whatever it says */
    uint64_t *offsets; /* of the latest pass */
};

/* For any component of the run. */
enum gc_status gc_place_greedy_init(struct gc_place_greedy *greedy,
                                    struct gc_place_run *run) GC_CHECKED;
/* The component it works on from here. */
void gc_place_greedy_select(struct gc_place_greedy *greedy, struct gc_place_component *component);
/* One pass in greedy->order, given up once the peak would exceed `limit` or it is late: *peak is
 * then UINT64_MAX. A component that has no placement yet gets one all the same: when it is late
 * what is left is put on top. */
enum gc_status gc_place_greedy_pass(struct gc_place_greedy *greedy, uint64_t limit,
                                    uint64_t *peak) GC_CHECKED;
/* Keeps the latest pass if it is better than what the component has. */
bool gc_place_greedy_save(struct gc_place_greedy *greedy, uint64_t peak);

#endif
