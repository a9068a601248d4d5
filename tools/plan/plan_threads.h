/* Placement on several threads, as a portfolio: each solves the whole problem in its own memory
 * with its own seed. The first SHARES_MAX threads divide the search orders; a later thread has the
 * part of an earlier one. The first that ends with the goal, a proof or a plan that fits, stops the
 * others; else the best plan of all is used. */
#ifndef GC_PLAN_THREADS_H
#define GC_PLAN_THREADS_H

#include "core/plan/placement.h"

#define PLAN_THREADS_MAX 64

/* As gc_solve_placement, on `threads` threads, 1 to PLAN_THREADS_MAX. The watch is called from
 * one thread at a time. With more than one thread, timing decides which of several plans with an
 * equal peak is found. */
enum gc_status plan_threads_solve(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_placement_options *options, unsigned threads,
                                  struct gc_placement *placement) GC_CHECKED;

#endif
