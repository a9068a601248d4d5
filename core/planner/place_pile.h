/* The height of what lies over each section, as one max over ranges: for placing on top. A segment
 * tree whose nodes hold what was put over all of them; O(log n) each. */
#ifndef GC_PLANNER_PLACE_PILE_H
#define GC_PLANNER_PLACE_PILE_H

#include "core/base/region.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_place_pile {
    uint64_t *whole; /* over all of a node; node 1 is the root, n has 2n and 2n + 1 */
    uint64_t *most;  /* over any of it */
    uint32_t leaf_count;
};

bool gc_place_pile_init(struct gc_place_pile *pile, struct gc_region *region,
                        uint32_t section_count);
uint64_t gc_place_pile_height(const struct gc_place_pile *pile, uint32_t first, uint32_t last);
void gc_place_pile_raise(struct gc_place_pile *pile, uint32_t first, uint32_t last,
                         uint64_t height);

#endif
