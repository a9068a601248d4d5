/* A recorded run as a placement problem, and its solution as a plan.
 *
 * Time is the run up to the end of the planned step, event by event; the step repeats, so behind
 * its end comes its start. An allocation made before the step lives until its free, or to the end:
 * long-lived memory and the step's own share one address range. An allocation that crosses the
 * step's end lives on from the step's start, at the same offset. One that lives longer than a step
 * overlaps its successor of the next step: then up to GC_RUN_ROUNDS_MAX steps are planned as one,
 * so that each has a buffer. An allocation that is never freed, or lives longer than that, lasts:
 * its place is its own for the whole step. Allocations after the planned step are not in the plan.
 */
#ifndef GC_SCHEDULE_RUN_PROBLEM_H
#define GC_SCHEDULE_RUN_PROBLEM_H

#include "core/base/region.h"
#include "core/base/status.h"
#include "core/plan/placement.h"
#include "core/plan/plan.h"

#include <stddef.h>
#include <stdint.h>

struct gc_run_event {
    uint64_t bytes; /* 0: a free */
    uint64_t stream;
    uint32_t slot; /* of the allocation, until its free */
};

#define GC_RUN_EVENTS_MAX (1U << 24)
#define GC_RUN_ROUNDS_MAX 4U

struct gc_run_steps {
    uint32_t start;  /* first event of the planned step */
    uint32_t period; /* its events; 0: nothing repeats */
    uint32_t count;  /* approximate number of steps */
};

/* An allocation that crosses the step's end. Its life from the step's start on ends at
 * entry->upper - end_time + loop_time. `before`: the entry of its predecessor, made before the step
 * and freed in it, which has the same offset; or GC_RUN_NONE. */
struct gc_run_crossing {
    uint32_t entry;
    uint32_t before;
};

#define GC_RUN_NONE UINT32_MAX

struct gc_run_problem {
    struct gc_placement_buffer *buffers; /* as many as entries, with the same lifetimes */
    struct gc_plan_entry *entries;       /* their offsets are not known yet */
    uint32_t count;
    uint32_t loop_start;
    uint32_t loop_time;
    uint32_t stream_count;
    uint32_t end_time;
    struct gc_run_steps steps;
    uint32_t rounds;        /* steps that are planned as one */
    uint32_t lasting_count; /* entries that live to the end, and do not cross it */
    uint64_t lasting_bytes;
    struct gc_run_crossing *crossings;
    uint32_t crossing_count;
    uint64_t crossing_bytes;
    /* The most bytes alive at one time, in the first pass through the step or in a later one: no
     * plan has a lower peak. */
    uint64_t live_bytes;
    uint64_t run_peak_bytes; /* the most bytes alive in the whole run, sizes rounded */
};

/* Memory from `region`. GC_TOO_MANY: more allocations than a plan holds; GC_NO_HOST_MEMORY;
 * GC_FORMAT: no allocation, or one of 2^63 bytes or more. */
enum gc_status gc_run_problem_make(struct gc_region *region, const struct gc_run_event *events,
                                   size_t count, uint32_t slot_count,
                                   struct gc_run_problem *problem) GC_CHECKED;

/* The plan, in the problem's memory. */
void gc_run_problem_plan(struct gc_run_problem *problem, const uint64_t *offsets, int device,
                         struct gc_plan *plan);

#endif
