/* Plan lookup: finds the plan entry of an allocation by order, size and stream.
 *
 * The cursor is at the expected entry. An allocation of another size or stream matches the nearest
 * fitting entry within GC_MATCH_WINDOW, ahead or behind, that is not matched in this iteration. The
 * next allocation shows whether that one is unplanned or the skipped entries are missing: it
 * matches the cursor's entry or the entry after the match. An allocation without a fitting entry
 * matches none. Neither does one whose entry was matched ahead: otherwise each later allocation
 * would match its successor's entry. After three misses in a row whose sizes are consecutive in the
 * plan, the cursor moves to the next such position (resync).
 *
 * Streams are numbers in a plan and handles at run time: a number is bound to the first handle that
 * matches it, until that stream is destroyed.
 *
 * O(GC_MATCH_WINDOW + log entries). Not thread-safe. Host memory is counted and bounded by the
 * plan. */
#ifndef GC_MATCH_H
#define GC_MATCH_H

#include "core/base/host_mem.h"
#include "core/plan/plan.h"

#include <stdbool.h>

#define GC_MATCH_WINDOW 16 /* entries to each side */
#define GC_MATCH_TRACK 3   /* consecutive sizes that identify a position */
#define GC_MATCH_AHEAD 16  /* remembered entries that were matched ahead */
#define GC_PLAN_NONE UINT32_MAX

struct gc_match {
    const struct gc_plan *plan;
    struct gc_host_mem *host;
    /* per entry: hash of it and its predecessors in the high half, index in the low; sorted */
    uint64_t *tracks;
    uint32_t track_count;
    uint32_t *iterations; /* by entry: the iteration in which it was matched */
    uint32_t iteration;   /* from 1; entries after the wrap-around belong to the next */
    uint32_t cursor;
    uint32_t missed_count;                  /* consecutive misses so far */
    uint64_t missed[GC_MATCH_TRACK - 1];    /* their sizes, the latest last */
    uint32_t matched_ahead[GC_MATCH_AHEAD]; /* entries matched ahead of the cursor; GC_PLAN_NONE */
    uint32_t matched_ahead_next;
    uint32_t other; /* next entry if the skipped ones are missing; GC_PLAN_NONE */
    uint32_t other_iteration;
    uint64_t streams[GC_PLAN_STREAMS_MAX]; /* by number; 0: not bound */
    uint64_t resync_count;                 /* times that the cursor moved to another position */
    uint64_t iteration_count;              /* times that the last entry was passed */
};

/* `plan` is borrowed. GC_NO_HOST_MEMORY. */
enum gc_status gc_match_init(struct gc_match *match, const struct gc_plan *plan,
                             struct gc_host_mem *host) GC_CHECKED;
/* Forgets all matches; the counts stay. */
void gc_match_restart(struct gc_match *match);
void gc_match_fini(struct gc_match *match);

/* The entry for an allocation of `bytes` (rounded), which is then matched; or GC_PLAN_NONE.
 * `is_idle`: nothing of the plan is live, so the run may begin again. */
uint32_t gc_match_next(struct gc_match *match, uint64_t bytes, uint64_t stream, bool is_idle);
/* For an allocation without an entry, perhaps one whose size has changed: the nearest in size of
 * the next entries; or GC_PLAN_NONE. */
uint32_t gc_match_guess(const struct gc_match *match, uint64_t bytes);
/* Unbinds a stream that is destroyed. */
void gc_match_close_stream(struct gc_match *match, uint64_t stream);

#endif
