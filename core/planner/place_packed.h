/* The sweep as one of the ways to solve a part: begun, gone on with, and its result taken. */
#ifndef GC_PLANNER_PLACE_PACKED_H
#define GC_PLANNER_PLACE_PACKED_H

#include "core/planner/place_greedy.h"

/* Goes on with the sweep of greedy->part by about `nodes` steps, 0: for a first try; begins it if
 * need be. *goes_on: it is not over. */
enum gc_status gc_place_packed_try(struct gc_place_greedy *greedy, uint64_t nodes,
                                   bool *goes_on) GC_CHECKED;
/* Ends what is still going on in any part. */
void gc_place_packed_end(struct gc_place_run *run);

#endif
