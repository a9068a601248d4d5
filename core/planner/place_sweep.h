/* Placements that fill every moment to the brim, found by a sweep over time.
 *
 * What ends leaves gaps, and what begins must fill them exactly: what leaves a gap lies next to
 * each other. So each gap narrows down the orders in which what is alive may lie, which a PQ-tree
 * holds, as a planar drawing is found vertex by vertex (Lempel, Even and Cederbaum 1967; that a
 * rectangle cut to rectangles is a planar flow: Brooks, Smith, Stone and Tutte 1940). Where it is
 * not clear who fills which gap the ways are tried depth first, back to those that may be to blame
 * (Prosser 1993) and, after many failures, further and further, by other ways. At the end the sweep
 * runs back and gives each its offset. */
#ifndef GC_PLANNER_PLACE_SWEEP_H
#define GC_PLANNER_PLACE_SWEEP_H

#include "core/planner/place_run.h"
#include "core/planner/place_search.h"

struct gc_place_sweep;

/* NULL: the part is not of that kind, or there is no memory. */
struct gc_place_sweep *gc_place_sweep_create(struct gc_place_run *run,
                                             const struct gc_place_part *part);
void gc_place_sweep_destroy(struct gc_place_sweep *sweep);
/* Goes on for about `nodes` steps, less if the run is to stop. */
enum gc_place_verdict gc_place_sweep_slice(struct gc_place_sweep *sweep, uint64_t nodes);
/* After FOUND, until it goes on: where each item of the part lies. First fit in the order of these
 * offsets ends no higher and keeps what the sweep does not look at: alignments and fixed offsets.
 */
const uint64_t *gc_place_sweep_offsets(const struct gc_place_sweep *sweep);

#endif
