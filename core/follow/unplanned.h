/* A request that departs from a plan, or comes after others did: a hole of class planned.
 *
 * With mapped memory what counts is how many pages come into use: at the end of a hole that lies
 * within a page its neighbour uses, that page costs nothing. With plain memory all of the segment
 * is there and costs nothing. It is a hole like any: free, idle. HOLES of them are looked at.
 *
 * Between the places: of the holes that cost least one that the plan does not come to for
 * longest, and of those the one that is filled best. The pool's own best fit serves where it costs
 * less; with blocks of a page and more, less only: what is at hand between the places is better
 * filled.
 *
 * By lifetime, in mapped memory: what lasts beyond the plan's fullest moment goes
 * behind the places, where it is packed without gaps, and what is brief among them. */
#ifndef GC_UNPLANNED_H
#define GC_UNPLANNED_H

#include "core/plan/match.h"
#include "core/pool/pool.h"

#define GC_UNPLANNED_CANDIDATES 512

/* A place of class planned for a block of `bytes`, which may need the driver. False: the pool
 * serves it better, or there is none. There is a planned segment; the match is its plan's. */
bool gc_unplanned_find_locked(const struct gc_pool *pool, const struct gc_match *match,
                              uint64_t bytes, struct gc_place *place);
/* The same by lifetime; the planned segment is an arena. False: no hole. */
bool gc_unplanned_find_by_lifetime_locked(const struct gc_pool *pool, const struct gc_plan *plan,
                                          uint64_t bytes, bool is_long, struct gc_place *place);

#endif
