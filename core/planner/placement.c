/* The solver from problem to checked placement.
 *
 * The parts of the problem are solved one after the other, the one with the highest peak first: a
 * part that ends below the highest bound of all needs no more work. */
#include "core/planner/placement.h"

#include "core/bits.h"
#include "core/planner/place_greedy.h"
#include "core/planner/place_run.h"

#define WATCH_NODES 4096

uint64_t gc_place_run_peak(const struct gc_place_run *run)
{
    uint64_t peak = 0;
    for (uint32_t p = 0; p < run->parts.count; p++)
        peak = gc_max_u64(peak, run->parts.parts[p].peak);
    return peak;
}

bool gc_place_run_step(struct gc_place_run *run, uint64_t nodes)
{
    const struct gc_placement_options *options = run->options;
    run->nodes += nodes;
    if (options->node_max != GC_PLACEMENT_NODES_UNLIMITED && run->nodes >= options->node_max)
        run->stopped = true;
    if (!run->stopped && options->watch != NULL && run->nodes >= run->watch_at) {
        run->watch_at = run->nodes + WATCH_NODES;
        run->stopped = !options->watch(options->watch_argument, run->bound, gc_place_run_peak(run),
                                       run->nodes);
    }
    return !run->stopped;
}

static enum gc_status solve_greedily(struct gc_place_run *run, struct gc_place_part *part)
{
    struct gc_place_greedy greedy;
    enum gc_status status = gc_place_greedy_init(&greedy, run, part);
    for (unsigned by = 0; status == GC_OK && by < GC_PLACE_ORDER_COUNT; by++) {
        uint64_t peak;
        if (part->peak <= run->target || (run->stopped && part->peak != UINT64_MAX))
            break;
        gc_place_greedy_sort(&greedy, (enum gc_place_order)by);
        status = gc_place_greedy_pass(&greedy, part->peak - 1, &peak);
        if (status == GC_OK)
            gc_place_greedy_keep(&greedy, peak);
    }
    return status;
}

static enum gc_status solve_parts(struct gc_place_run *run)
{
    for (uint32_t p = 0; p < run->parts.count; p++) {
        const enum gc_status status = solve_greedily(run, &run->parts.parts[p]);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static enum gc_status write_offsets(struct gc_place_run *run,
                                    const struct gc_placement_problem *problem,
                                    struct gc_placement *placement)
{
    placement->offsets = gc_region_alloc(run->region, problem->count * sizeof(uint64_t));
    if (placement->offsets == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++)
        placement->offsets[i] =
            problem->buffers[i].fixed != GC_PLACEMENT_FREE ? problem->buffers[i].fixed : 0;
    for (uint32_t p = 0; p < run->parts.count; p++) {
        const struct gc_place_part *part = &run->parts.parts[p];
        for (uint32_t i = 0; i < part->count; i++)
            placement->offsets[part->buffers[i]] = part->offsets[i];
    }
    return GC_OK;
}

enum gc_status gc_placement_solve(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_placement_options *options,
                                  struct gc_placement *placement)
{
    static const struct gc_placement_options defaults;
    struct gc_place_run run = {.region = region, .options = options != NULL ? options : &defaults};
    struct gc_placement_fault fault;
    uint64_t peak;
    *placement = (struct gc_placement){0};
    enum gc_status status = gc_placement_check(region, problem, NULL, &peak, &fault);
    if (status == GC_OK)
        status = gc_place_prepare(region, problem, &run.parts);
    if (status != GC_OK)
        return status;
    for (uint32_t p = 0; p < run.parts.count; p++) {
        run.parts.parts[p].peak = UINT64_MAX;
        run.bound = gc_max_u64(run.bound, run.parts.parts[p].bound);
    }
    run.target = run.bound;
    if (problem->capacity_bytes != GC_PLACEMENT_UNLIMITED)
        run.target = gc_max_u64(run.target, problem->capacity_bytes);
    status = solve_parts(&run);
    if (status == GC_OK)
        status = write_offsets(&run, problem, placement);
    if (status == GC_OK)
        status =
            gc_placement_check(region, problem, placement->offsets, &placement->peak_bytes, &fault);
    placement->lower_bound_bytes = run.bound;
    placement->nodes = run.nodes;
    placement->optimal = placement->peak_bytes == run.bound;
    placement->fits = placement->peak_bytes <= problem->capacity_bytes;
    return status;
}
