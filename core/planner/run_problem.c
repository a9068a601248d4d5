#include "core/planner/run_problem.h"

#include "core/base/bits.h"

#include <string.h>

#define NO_ENTRY UINT32_MAX

struct making {
    const struct gc_run_event *events;
    struct gc_run_problem *problem;
    uint32_t *entry_of; /* by slot */
    uint64_t streams[GC_PLAN_STREAMS_MAX];
};

/* By first appearance; none has number 0. */
static uint32_t number_of(struct making *making, uint64_t stream)
{
    uint32_t *count = &making->problem->stream_count;
    uint32_t i = 0;
    while (i < *count && making->streams[i] != stream)
        i++;
    if (i < *count)
        return i;
    if (*count == GC_PLAN_STREAMS_MAX)
        return GC_PLAN_STREAMS_MAX - 1;
    making->streams[(*count)++] = stream;
    return i;
}

static enum gc_status begin_life(struct making *making, uint32_t time)
{
    struct gc_run_problem *problem = making->problem;
    const struct gc_run_event *event = &making->events[time];
    struct gc_plan_entry *entry = &problem->entries[problem->count];
    *entry = (struct gc_plan_entry){
        .lower = time, .upper = problem->end_time, .stream = number_of(making, event->stream)};
    if (!gc_round_up_u64(event->bytes, GC_PLAN_UNIT_BYTES, &entry->bytes) ||
        entry->bytes > INT64_MAX)
        return GC_FORMAT;
    if (problem->steps.period != 0 && time < problem->steps.start)
        problem->loop_start = problem->count + 1;
    making->entry_of[event->slot] = problem->count++;
    return GC_OK;
}

static void end_life(struct making *making, uint32_t time)
{
    const uint32_t slot = making->events[time].slot;
    if (making->entry_of[slot] != NO_ENTRY)
        making->problem->entries[making->entry_of[slot]].upper = time;
    making->entry_of[slot] = NO_ENTRY;
}

/* What the step leaves to the next one has its place all the time. */
static void stretch(struct gc_run_problem *problem)
{
    for (uint32_t i = 0; i < problem->count; i++) {
        struct gc_plan_entry *entry = &problem->entries[i];
        if (entry->upper < problem->end_time)
            continue;
        if (problem->steps.period != 0 && i >= problem->loop_start)
            entry->lower = problem->steps.start;
        problem->lasting_count++;
        problem->lasting_bytes += entry->bytes;
    }
}

static enum gc_status make_buffers(struct gc_region *region, struct gc_run_problem *problem)
{
    uint64_t total = 0;
    problem->buffers =
        gc_region_alloc(region, (uint64_t)problem->count * sizeof(*problem->buffers));
    if (problem->buffers == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++) {
        const struct gc_plan_entry *entry = &problem->entries[i];
        problem->buffers[i] = (struct gc_placement_buffer){.lower = entry->lower,
                                                           .upper = entry->upper,
                                                           .bytes = entry->bytes,
                                                           .alignment = GC_PLAN_UNIT_BYTES,
                                                           .fixed = GC_PLACEMENT_FREE};
        if (!gc_add_u64(total, entry->bytes, &total) || total > INT64_MAX)
            return GC_FORMAT;
    }
    return GC_OK;
}

/* Something that a step makes is freed only after the next step has made its own: two places are
 * needed in turn, so two steps are planned as one where the run has as many. */
static bool overlaps_itself(const struct making *making, size_t count)
{
    const struct gc_run_steps *steps = &making->problem->steps;
    const uint64_t end = (uint64_t)steps->start + 2 * (uint64_t)steps->period;
    if (steps->period == 0 || end > count)
        return false;
    for (uint32_t i = steps->start; i < end; i++) {
        uint32_t *made = &making->entry_of[making->events[i].slot];
        if (making->events[i].bytes > 0)
            *made = i;
        else if (*made >= steps->start && *made < steps->start + steps->period &&
                 i - *made > steps->period)
            return true;
    }
    return false;
}

static void clear_slots(struct making *making, uint32_t slot_count)
{
    memset(making->entry_of, 0xff, ((uint64_t)slot_count + 1) * sizeof(uint32_t));
}

/* How much of the run is in the plan, and room for it. */
static enum gc_status prepare(struct gc_region *region, struct making *making, size_t count,
                              uint32_t slot_count)
{
    struct gc_run_problem *problem = making->problem;
    struct gc_run_steps *steps = &problem->steps;
    uint64_t allocs = 0;
    making->entry_of = gc_region_alloc(region, ((uint64_t)slot_count + 1) * sizeof(uint32_t));
    if (making->entry_of == NULL)
        return GC_NO_HOST_MEMORY;
    clear_slots(making, slot_count);
    problem->rounds = overlaps_itself(making, count) ? 2 : 1;
    clear_slots(making, slot_count);
    problem->end_time =
        steps->period == 0 ? (uint32_t)count : steps->start + problem->rounds * steps->period;
    for (uint32_t i = 0; i < problem->end_time; i++)
        allocs += making->events[i].bytes > 0;
    if (allocs == 0)
        return GC_FORMAT;
    if (allocs > GC_PLAN_ENTRIES_MAX)
        return GC_TOO_MANY;
    problem->entries = gc_region_alloc(region, allocs * sizeof(*problem->entries));
    problem->stream_count = 1;
    return problem->entries != NULL ? GC_OK : GC_NO_HOST_MEMORY;
}

enum gc_status gc_run_problem_make(struct gc_region *region, const struct gc_run_event *events,
                                   size_t count, uint32_t slot_count,
                                   struct gc_run_problem *problem)
{
    struct making making = {.events = events, .problem = problem};
    *problem = (struct gc_run_problem){.count = 0};
    enum gc_status status = gc_run_find_steps(region, events, count, slot_count, &problem->steps);
    if (status == GC_OK)
        status = prepare(region, &making, count, slot_count);
    for (uint32_t i = 0; status == GC_OK && i < problem->end_time; i++) {
        if (events[i].bytes > 0)
            status = begin_life(&making, i);
        else
            end_life(&making, i);
    }
    if (status != GC_OK)
        return status;
    if (problem->loop_start == problem->count)
        problem->loop_start = 0; /* a step that makes nothing */
    stretch(problem);
    return make_buffers(region, problem);
}

void gc_run_problem_plan(struct gc_run_problem *problem, const uint64_t *offsets, int device,
                         struct gc_plan *plan)
{
    *plan = (struct gc_plan){.entries = problem->entries,
                             .count = problem->count,
                             .loop_start = problem->loop_start,
                             .stream_count = problem->stream_count,
                             .end_time = problem->end_time,
                             .device = device < 0 ? GC_PLAN_DEVICE_ANY : device};
    for (uint32_t i = 0; i < problem->count; i++) {
        struct gc_plan_entry *entry = &problem->entries[i];
        entry->offset = offsets[i];
        plan->peak_bytes = gc_max_u64(plan->peak_bytes, offsets[i] + entry->bytes);
    }
}
