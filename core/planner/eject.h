/* Local search by ejection: the items that end above a capacity are taken out and placed again
 * below it, one at a time; an item without a gap takes the place of those that cost the least,
 * which are then out. An item costs its area, and more each time it found no gap (guided local
 * search: Nagata and Bräysy, "A powerful route minimization heuristic", Operations Research Letters
 * 37, 2009). A step looks at the neighbours of one item alone, so it is fast at every size.
 *
 * The capacity falls from the peak by a part of its distance to the target, halved after each
 * failure. */
#ifndef GC_PLANNER_EJECT_H
#define GC_PLANNER_EJECT_H

#include "core/planner/greedy.h"

struct gc_place_eject;

/* For the selected component of `greedy`, whose sorter it borrows; NULL: no memory. */
struct gc_place_eject *gc_eject_create(struct gc_place_greedy *greedy);
/* Lowers the component's peak, for about `nodes` steps or until another has a higher one. A
 * capacity takes at most `most` steps. */
void gc_eject_run(struct gc_place_eject *eject, uint64_t nodes, uint64_t most);
/* One capacity below the component's peak, from the placement of the last pass of `greedy`. */
void gc_eject_pass(struct gc_place_eject *eject, uint64_t most);

#endif
