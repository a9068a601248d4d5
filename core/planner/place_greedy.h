/* One pass over the items in some order, each put at the lowest place that is free throughout its
 * life (first fit). */
#ifndef GC_PLANNER_PLACE_GREEDY_H
#define GC_PLANNER_PLACE_GREEDY_H

#include "core/planner/place_index.h"
#include "core/planner/place_order.h"
#include "core/planner/place_run.h"

struct gc_place_greedy {
    struct gc_place_run *run;
    struct gc_place_part *part;
    struct gc_place_index index;
    struct gc_place_sorter sorter;
    uint32_t *order;   /* item numbers; fixed ones come first whatever it says */
    uint64_t *offsets; /* of the latest pass */
};

/* For any part of the run. */
enum gc_status gc_place_greedy_init(struct gc_place_greedy *greedy,
                                    struct gc_place_run *run) GC_CHECKED;
/* The part it works on from here. */
void gc_place_greedy_use(struct gc_place_greedy *greedy, struct gc_place_part *part);
/* One pass in greedy->order, given up once the peak would exceed `limit` or it is late: *peak is
 * then UINT64_MAX. A part that has no placement yet gets one all the same: when it is late what is
 * left is put on top. */
enum gc_status gc_place_greedy_pass(struct gc_place_greedy *greedy, uint64_t limit,
                                    uint64_t *peak) GC_CHECKED;
/* Keeps the latest pass if it is better than what the part has. */
bool gc_place_greedy_keep(struct gc_place_greedy *greedy, uint64_t peak);

#endif
