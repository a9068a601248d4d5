/* A recorded run as a placement problem, and its solution as a plan.
 *
 * Time is the run up to the end of the planned step, event by event. An allocation made before the
 * step lives until its free, or to the end: long-lived memory and the step's own share one address
 * range. An allocation that a step leaves to the next one keeps its offset for the whole step. If
 * such an allocation is still live when the next step makes its own, two steps are planned as one,
 * so that each has a buffer. Allocations after that step are not in the plan. */
#ifndef GC_PLANNER_RUN_PROBLEM_H
#define GC_PLANNER_RUN_PROBLEM_H

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

struct gc_run_steps {
    uint32_t start;  /* first event of the planned step */
    uint32_t period; /* its events; 0: nothing repeats */
    uint32_t count;  /* approximate number of steps */
};

struct gc_run_problem {
    struct gc_placement_buffer *buffers; /* as many as entries */
    struct gc_plan_entry *entries;       /* their offsets are not known yet */
    uint32_t count;
    uint32_t loop_start;
    uint32_t stream_count;
    uint32_t end_time;
    struct gc_run_steps steps;
    uint32_t rounds;        /* steps that are planned as one: 1, or 2 */
    uint32_t lasting_count; /* entries that live to the end */
    uint64_t lasting_bytes;
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
