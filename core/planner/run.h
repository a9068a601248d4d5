/* One run of the solver: what its components share, and when it has to stop. */
#ifndef GC_PLANNER_RUN_H
#define GC_PLANNER_RUN_H

#include "core/base/region.h"
#include "core/planner/place.h"

struct gc_place_run {
    struct gc_region *region;
    const struct gc_placement_problem *problem;
    const struct gc_placement_options *options;
    struct gc_place_components components;
    uint64_t bound;  /* the highest of the components: no placement has a lower peak */
    uint64_t target; /* a peak that is good enough: the bound, or the capacity */
    uint64_t nodes;
    uint64_t watch_at; /* nodes */
    bool stopped;
    bool is_late; /* the watch said so: there is no time for more than what must be */
};

/* The highest peak of the components. */
uint64_t gc_place_run_peak(const struct gc_place_run *run);
/* Asks the watch; false: it is late. */
bool gc_place_run_look(struct gc_place_run *run);
/* Counts steps, and looks now and then; false: the budget is spent or it is late. */
bool gc_place_run_step(struct gc_place_run *run, uint64_t nodes);

#endif
