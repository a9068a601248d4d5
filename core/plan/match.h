/* Which entry of a plan an allocation is: by order, size and stream.
 *
 * The cursor stands at the entry that is expected. An allocation of another size or stream is the
 * nearest entry of its own, ahead or behind within GC_MATCH_WINDOW, that was not taken in this
 * round. Whether it was not in the plan, or what it passed over is missing, shows with the next
 * one: that is the cursor's entry, or the one behind. One that fits nowhere is none, and so is one
 * whose entry was taken ahead of its time: else all that follow would take the place of the next.
 * When three in a row are none, and their sizes stand beside each other in the plan, the cursor
 * goes there: to the next such place.
 *
 * Streams are numbers in a plan and handles at run time: a number is bound to the first handle that
 * is matched to it, until that stream is destroyed.
 *
 * O(GC_MATCH_WINDOW + log entries). Not thread-safe. Host memory is counted and bounded by the
 * plan.
 */
#ifndef GC_MATCH_H
#define GC_MATCH_H

#include "core/base/host_mem.h"
#include "core/plan/plan.h"

#include <stdbool.h>

#define GC_MATCH_WINDOW 16 /* entries to each side */
#define GC_MATCH_TRACK 3   /* sizes in a row that tell a place */
#define GC_MATCH_AHEAD 16  /* entries taken ahead that are remembered */
#define GC_PLAN_NONE UINT32_MAX

struct gc_match {
    const struct gc_plan *plan;
    struct gc_host_mem *host;
    uint64_t *tracks; /* of each entry and its predecessors: hash in the high half, index; sorted */
    uint32_t track_count;
    uint32_t *iterations; /* by entry: the round in which it was taken */
    uint32_t iteration;   /* from 1; entries behind the cursor's end belong to the next */
    uint32_t cursor;
    uint32_t missed_count;               /* in a row, up to now */
    uint64_t missed[GC_MATCH_TRACK - 1]; /* their sizes, the latest last */
    uint32_t
        taken_ahead[GC_MATCH_AHEAD]; /* entries that were taken ahead of the cursor; GC_PLAN_NONE */
    uint32_t taken_ahead_next;
    uint32_t other; /* what comes next if what was skipped is missing; GC_PLAN_NONE */
    uint32_t other_iteration;
    uint64_t streams[GC_PLAN_STREAMS_MAX]; /* by number; 0: not bound */
    uint64_t resync_count;                 /* times that the cursor was moved to another place */
    uint64_t iteration_count;              /* times that the last entry was passed */
};

/* `plan` is borrowed. GC_NO_HOST_MEMORY. */
enum gc_status gc_match_init(struct gc_match *match, const struct gc_plan *plan,
                             struct gc_host_mem *host) GC_CHECKED;
/* As if nothing had been matched yet; the counts stay. */
void gc_match_restart(struct gc_match *match);
void gc_match_fini(struct gc_match *match);

/* The entry for an allocation of `bytes` (rounded), which counts as taken; or GC_PLAN_NONE.
 * `is_idle`: nothing of the plan is live, so that the run may begin again. */
uint32_t gc_match_next(struct gc_match *match, uint64_t bytes, uint64_t stream, bool is_idle);
/* Which entry an allocation that is none stands for, if it is one whose size has changed: one of
 * the next, by size; or GC_PLAN_NONE. */
uint32_t gc_match_guess(const struct gc_match *match, uint64_t bytes);
/* The stream is destroyed. */
void gc_match_close_stream(struct gc_match *match, uint64_t stream);

/* Sorts keys in rising order, in place, by heapsort. */
void gc_sort_keys(uint64_t *keys, uint32_t count);

#endif
