/* Any run of allocations and frees becomes a plan that keeps every rule of plans. */
#include "core/schedule/run_place.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Two bytes an event: what is done with which slot, and the size. Frees of what is not live are
 * left out, and a live slot is freed before it is taken again, as the readers of traces do. */
static size_t make_events(const uint8_t *data, size_t bytes, struct gc_run_event *events)
{
    bool is_live[SLOTS] = {false};
    size_t count = 0;
    for (size_t i = 0; i + 1 < bytes; i += 2) {
        const uint8_t slot = data[i];
        if (is_live[slot])
            events[count++] = (struct gc_run_event){.slot = slot};
        is_live[slot] = !is_live[slot];
        if (is_live[slot])
            events[count++] = (struct gc_run_event){.bytes = (data[i + 1] + UINT64_C(1)) * 300,
                                                    .stream = data[i + 1] % 5,
                                                    .slot = slot};
    }
    return count;
}

static enum gc_status solve(void *argument, struct gc_region *region,
                            const struct gc_placement_problem *line,
                            const struct gc_placement_options *options,
                            struct gc_placement *placement)
{
    (void)argument;
    return gc_solve_placement(region, line, options, placement);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct gc_region region;
    struct gc_run_problem problem;
    struct gc_plan plan;
    struct gc_plan_error error = {.text = ""};
    struct gc_placement placement;
    const struct gc_placement_options options = {.node_max = 1000};
    struct gc_run_event *events = calloc(bytes + 1, sizeof(*events));
    if (events == NULL)
        return 0;
    gc_region_init(&region, UINT64_C(1) << 28);
    const size_t count = make_events(data, bytes, events);
    if (gc_run_problem_make(&region, events, count, SLOTS, &problem) == GC_OK) {
        if (gc_run_place(&region, &problem, GC_PLACEMENT_UNLIMITED, &options, solve, NULL,
                         &placement) != GC_OK)
            abort();
        gc_run_problem_plan(&problem, placement.offsets, -1, &plan);
        if (gc_plan_check(&plan, &error) != GC_OK)
            abort();
        if (plan.peak_bytes != placement.peak_bytes || plan.peak_bytes < problem.live_bytes)
            abort();
    } else if (count > 0) {
        abort();
    }
    gc_region_fini(&region);
    free(events);
    return 0;
}
