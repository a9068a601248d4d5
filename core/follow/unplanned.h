/* A free block of class planned for a request that deviates from the plan, or that comes after too
 * many deviations.
 *
 * With mapped memory a place costs the pages that come into use: a page that a neighbour of the
 * free block uses already costs nothing. A driver allocation is held in any case and costs nothing.
 * A bounded best fit: at most GC_UNPLANNED_CANDIDATES free blocks are compared.
 *
 * Between the places: least cost first, then the place that the plan needs latest, then the
 * tightest fit. A small block never gets a place that the plan needs soon. The pool's own best fit
 * serves the request if it costs less. At equal cost the pool also serves small blocks, and large
 * ones if only its place is mapped already.
 *
 * By lifetime: long-lived blocks are those alive at the plan's fullest time point. With mapped
 * memory they are packed behind the places without gaps, and short-lived ones go between the
 * places. In a driver allocation the two fill it from its ends. */
#ifndef GC_UNPLANNED_H
#define GC_UNPLANNED_H

#include "core/plan/match.h"
#include "core/pool/pool.h"

#define GC_UNPLANNED_CANDIDATES 512

/* A place of class planned for a block of `bytes`; mapping it may need the driver. False: there is
 * none, or the pool's is better. Call with a planned segment and its plan's match. */
bool gc_unplanned_find_locked(struct gc_pool *pool, const struct gc_match *match, uint64_t bytes,
                              struct gc_place *place);
/* The same by lifetime. False: none fits. */
bool gc_unplanned_find_by_lifetime_locked(const struct gc_pool *pool, const struct gc_plan *plan,
                                          uint64_t bytes, bool is_long, struct gc_place *place);

#endif
