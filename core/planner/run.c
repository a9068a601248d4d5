#include "core/planner/run.h"
#include "core/base/bits.h"

#define WATCH_NODES 1024

uint64_t gc_place_run_peak(const struct gc_place_run *run)
{
    uint64_t peak = 0;
    for (uint32_t p = 0; p < run->components.count; p++)
        peak = gc_max_u64(peak, run->components.components[p].peak);
    return peak;
}

bool gc_place_run_look(struct gc_place_run *run)
{
    const struct gc_placement_options *options = run->options;
    run->watch_at = run->nodes + WATCH_NODES;
    if (options->watch != NULL && !run->is_late)
        run->is_late = !options->watch(options->watch_argument, run->bound, gc_place_run_peak(run),
                                       run->nodes);
    run->stopped = run->stopped || run->is_late;
    return !run->is_late;
}

bool gc_place_run_step(struct gc_place_run *run, uint64_t nodes)
{
    const uint64_t node_max = run->options->node_max;
    run->nodes += nodes;
    if (node_max != GC_PLACEMENT_NODES_UNLIMITED && run->nodes >= node_max)
        run->stopped = true;
    if (!run->stopped && run->nodes >= run->watch_at)
        (void)gc_place_run_look(run);
    return !run->stopped;
}
