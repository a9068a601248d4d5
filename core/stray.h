/* A request that departs from a plan, between the plan's places.
 *
 * With mapped memory what counts is how many pages come into use: at the end of a hole that lies
 * within a page its neighbour uses, that page costs nothing. Of the holes that cost least it is one
 * that the plan does not come to for longest, and of those the one that is filled best. The pool's
 * own best fit serves where it costs less; with blocks of a page and more, less only: what is at
 * hand between the places is better filled. With plain memory all of the segment is there and costs
 * nothing.
 *
 * It is a hole like any: free, idle and not known to be wanted. Looks at STRAY_HOLES of them. */
#ifndef GC_STRAY_H
#define GC_STRAY_H

#include "core/planner/run_match.h"
#include "core/pool.h"

/* A place of class planned for a block of `bytes`, which may need the driver. False: the pool
 * serves it better, or there is none. There is a planned segment; the match is its plan's. */
bool gc_stray_find_locked(const struct gc_pool *pool, const struct gc_run_match *match,
                          uint64_t bytes, struct gc_place *place);

#endif
