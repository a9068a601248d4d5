/* Placement on several threads: each solves the whole problem in memory of its own, with a seed and
 * a share of the orders of its own. The first that ends with what is wanted, a proof or a plan that
 * fits, stops the others; else the best of all is taken. */
#ifndef GC_PLAN_THREADS_H
#define GC_PLAN_THREADS_H

#include "core/plan/placement.h"

#define PLAN_THREADS_MAX 64

/* As gc_placement_solve, on `threads` threads, 1 to PLAN_THREADS_MAX. The watch is called from one
 * thread at a time. With more than one thread it depends on their speed which of several plans of
 * one peak is found. */
enum gc_status plan_threads_solve(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_placement_options *options, unsigned threads,
                                  struct gc_placement *placement) GC_CHECKED;

#endif
