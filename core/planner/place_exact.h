/* Exact searches of one part, taking turns: one for each order at the capacity that would be best,
 * and one that brings the best known down on the way there. */
#ifndef GC_PLANNER_PLACE_EXACT_H
#define GC_PLANNER_PLACE_EXACT_H

#include "core/planner/place_greedy.h"
#include "core/planner/place_search.h"

struct gc_place_exact;

/* NULL: the part is too large for it, or there is no memory. */
struct gc_place_exact *gc_place_exact_create(struct gc_place_greedy *greedy,
                                             struct gc_place_memo *memo);
/* Another round, longer than the one before. Lowers part->peak and raises part->bound as it finds
 * and refutes; false: it has nothing left to try. */
bool gc_place_exact_round(struct gc_place_exact *exact);

#endif
