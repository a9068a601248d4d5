/* Exact searches of one component in rounds of growing slices (a portfolio): one search for each
 * order at the capacity that would be best, one that restarts with an order by failures (as in
 * TelaMalloc and squeaky wheel optimisation), and one that lowers the best known peak. */
#ifndef GC_PLANNER_EXACT_H
#define GC_PLANNER_EXACT_H

#include "core/planner/greedy.h"
#include "core/planner/search.h"

struct gc_place_exact;

/* The most memory of the searches of a problem of that many buffers. */
uint64_t gc_exact_bytes(uint32_t buffers);
/* In `memory`, which is `full` if less than all was created; the memo too, once. NULL: the
 * component is too large for exact search, or there is no memory. */
struct gc_place_exact *gc_exact_create(struct gc_place_greedy *greedy, struct gc_region *memory,
                                       struct gc_place_memo *memo);
/* Runs another round, longer than the one before. A placement lowers component->peak, a refutation
 * raises component->bound. False: the searches have nothing left to try. */
bool gc_exact_round(struct gc_place_exact *exact);

#endif
