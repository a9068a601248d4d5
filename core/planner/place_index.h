/* Which addresses are taken when: first fit without a look at every neighbour.
 *
 * A segment tree over the sections. Each node keeps two sets of taken addresses, as spans that
 * never touch: `cover`, of items that live through all of the node's sections, and `touch`, of
 * those that live in any of them. An item is written to the O(log n) nodes that make up its life
 * and, as touch, to the nodes above; a search joins the touch sets of the same nodes with the cover
 * sets above. */
#ifndef GC_PLANNER_PLACE_INDEX_H
#define GC_PLANNER_PLACE_INDEX_H

#include "core/base/region.h"

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

bool gc_place_index_init(struct gc_place_index *index, struct gc_region *region,
                         uint32_t section_count);
/* Empties it, for as many sections, at most those it was made for. */
void gc_place_index_clear(struct gc_place_index *index, uint32_t section_count);
/* The lowest offset, a multiple of `alignment`, at which `bytes` are free in all of the sections.
 */
uint64_t gc_place_index_find(const struct gc_place_index *index, uint32_t first, uint32_t last,
                             uint64_t bytes, uint64_t alignment);
/* False: no memory. */
bool gc_place_index_add(struct gc_place_index *index, uint32_t first, uint32_t last,
                        uint64_t offset, uint64_t bytes);

#endif
