/* Places the allocations of a recorded run's repeating step: dynamic storage allocation on a
 * circle, where a life that crosses the step's end is two intervals with one offset.
 *
 * The solver places intervals of a line. So the offsets of crossing allocations are chosen first
 * and fixed, both parts alike, and the solver places the rest. All that crosses is alive at the
 * step's end, so any offsets without overlap there are possible. Candidates: the offsets that the
 * solver gives the parts when it may place the two apart (a relaxation); stacks in several orders
 * above what lasts; and a place of their own for the whole step. Each gets a short search, the best
 * one the rest of the time. The bound is that of the circle: the most bytes alive at one time. */
#ifndef GC_SCHEDULE_RUN_PLACE_H
#define GC_SCHEDULE_RUN_PLACE_H

#include "core/schedule/run_problem.h"

/* Solves a problem on the line, as gc_solve_placement. */
typedef enum gc_status gc_run_solve(void *argument, struct gc_region *region,
                                    const struct gc_placement_problem *problem,
                                    const struct gc_placement_options *options,
                                    struct gc_placement *placement);

/* placement->offsets are those of the entries. Memory from `region`. `options->watch` bounds the
 * time of all searches together. Errors of gc_solve_placement. */
enum gc_status gc_run_place(struct gc_region *region, const struct gc_run_problem *problem,
                            uint64_t capacity_bytes, const struct gc_placement_options *options,
                            gc_run_solve *solve, void *argument,
                            struct gc_placement *placement) GC_CHECKED;

#endif
