/* Who fills which gap: the ways in which some of what begins at one time fits exactly into some of
 * the gaps left by what ends then. */
#ifndef GC_PLANNER_PLACE_FILL_H
#define GC_PLANNER_PLACE_FILL_H

#include "core/base/region.h"
#include "core/planner/place.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_PLACE_FILL_MAX 64U     /* gaps, and items for them, of which some may be chosen */
#define GC_PLACE_FILL_WAYS_MAX 64 /* the best that are kept */

/* Sets of gaps and items, by bits; all of them where there are more than bits. */
struct gc_place_fill_way {
    uint64_t gaps;
    uint64_t items;
    int32_t cost; /* how unlikely, in sixteenths of a bit, beside all at once */
};

struct gc_place_fill_subset {
    uint64_t bytes;
    uint64_t members;
};

/* The larger gap first; each item's end; what speaks for an item in a gap. */
struct gc_place_fill {
    uint64_t *gap_bytes;
    uint64_t *item_bytes;
    uint32_t *item_ends;
    uint64_t *partners; /* of each item: gaps beside which something lives as long as it */
    uint32_t gap_count;
    uint32_t item_count;
    struct gc_place_fill_way ways[GC_PLACE_FILL_WAYS_MAX];
    uint32_t way_count;
    struct gc_place_fill_subset *subsets[2]; /* of gaps with the first, and of items */
    uint32_t subset_counts[2];
    struct gc_place_sorter sorter;
    uint32_t *order;
    uint64_t noise; /* varies what is about as likely; 0: no */
};

bool gc_place_fill_init(struct gc_place_fill *fill, struct gc_region *region, uint32_t most);
/* The ways for the first gap, the likeliest first; at least one: all at once. */
void gc_place_fill_find(struct gc_place_fill *fill);

#endif
