/* The repeating part of a run: the steps of a training loop, the requests of a server.
 *
 * A run is a sequence of events: allocations and frees of one device. Its steps are found by where
 * short pieces of it come again: the distances that occur most are candidates for the length of a
 * step. A candidate holds where two neighbouring windows of that length agree almost everywhere,
 * nearly all that follows is made of pieces of the first of them, and memory does not grow from
 * step to step. Of those that hold the one that explains the run with the fewest events is taken,
 * as by minimum description length (Rissanen 1978). Where none holds the whole run is one step.
 *
 * The step begins where the least memory is live, so that few allocations live across its border.
 */
#ifndef GC_PLANNER_RUN_STEPS_H
#define GC_PLANNER_RUN_STEPS_H

#include "core/base/region.h"
#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct gc_run_event {
    uint64_t bytes; /* 0: a free */
    uint64_t stream;
    uint32_t slot; /* of the allocation, from its making to its free */
};

#define GC_RUN_EVENTS_MAX (1U << 24)

struct gc_run_steps {
    uint32_t start;  /* event at which the step that is planned begins */
    uint32_t period; /* its events; 0: nothing repeats */
    uint32_t count;  /* about how many steps there are */
};

/* `slot_count`: slots are below. O(n) for each of a few dozen candidates; memory from `region`.
 * GC_NO_HOST_MEMORY; GC_TOO_MANY: more than GC_RUN_EVENTS_MAX. */
enum gc_status gc_run_find_steps(struct gc_region *region, const struct gc_run_event *events,
                                 size_t count, uint32_t slot_count,
                                 struct gc_run_steps *steps) GC_CHECKED;

#endif
