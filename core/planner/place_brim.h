/* A part as a sweep over time sees it: every moment full to the brim. What a moment lacks to be as
 * full as the fullest is filled by holes, items made up for it, each as large as one step down of
 * what is alive where there is such a step. */
#ifndef GC_PLANNER_PLACE_BRIM_H
#define GC_PLANNER_PLACE_BRIM_H

#include "core/base/region.h"
#include "core/plan/placement.h"
#include "core/planner/place.h"

struct gc_place_brim_leaf {
    uint64_t bytes;
    uint32_t first; /* alive in moments first … last */
    uint32_t last;
};

struct gc_place_brim {
    struct gc_place_brim_leaf *leaves; /* the items of the part, then the holes */
    uint32_t item_count;
    uint32_t leaf_count;
    uint32_t moment_count;
    uint32_t *start_begin; /* moment_count + 1 of them */
    uint32_t *starts;      /* who begins with each moment */
    uint32_t *end_begin;
    uint32_t *ends; /* for whom it is the last */
};

/* GC_TOO_MANY: there are so many holes that filling them exactly is not to be hoped for. */
enum gc_status gc_place_brim_init(struct gc_place_brim *brim, struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_place_part *part) GC_CHECKED;
/* The same with time running backwards. */
void gc_place_brim_turn(struct gc_place_brim *brim);

#endif
