/* From buffers and times to components, items and sections, and the lower bound of each component.
 * O(n) after two radix sorts.
 *
 * The bound: in each section the bytes of all live items, in whole granules, less the largest
 * slack, which the topmost item may have; and the ends of the fixed items. */
#include "core/planner/place.h"
#include "core/base/bits.h"
#include "core/base/region.h"
#include "core/planner/order.h"

#include <string.h>

struct prepare {
    struct gc_region *region; /* of the components */
    struct gc_region scratch;
    const struct gc_placement_problem *problem;
    uint32_t *live; /* buffers with bytes; later sorted by component */
    uint32_t count;
    uint32_t *first; /* section of each live buffer's start, over all components */
    uint32_t *last;
    uint32_t section_count;
    uint32_t *component_of; /* section → component */
};

static enum gc_status check_sums(const struct gc_placement_problem *problem)
{
    uint64_t sum = 0;
    uint64_t top = 0;
    for (uint32_t i = 0; i < problem->count; i++) {
        const struct gc_placement_buffer *buffer = &problem->buffers[i];
        uint64_t end = 0;
        if (buffer->alignment > INT64_MAX)
            return GC_OVERFLOW;
        if (buffer->fixed != GC_PLACEMENT_FREE && !gc_add_u64(buffer->fixed, buffer->bytes, &end))
            return GC_OVERFLOW;
        top = gc_max_u64(top, end);
        if (!gc_add_u64(sum, buffer->bytes, &sum) ||
            (buffer->alignment > 1 && !gc_add_u64(sum, 2 * (buffer->alignment - 1), &sum)))
            return GC_OVERFLOW;
    }
    return gc_add_u64(sum, top, &sum) ? GC_OK : GC_OVERFLOW;
}

/* Merges starts and ends in order of time; at equal times ends come first. A section is complete
 * where an end follows a start. */
static enum gc_status cut_time(struct prepare *prepare)
{
    const struct gc_placement_buffer *buffers = prepare->problem->buffers;
    struct gc_place_sorter starts;
    struct gc_place_sorter ends;
    const uint64_t bytes = prepare->count * sizeof(uint32_t);
    uint32_t *by_start = gc_region_alloc(&prepare->scratch, bytes);
    uint32_t *by_end = gc_region_alloc(&prepare->scratch, bytes);
    if (by_start == NULL || by_end == NULL ||
        !gc_order_init(&starts, &prepare->scratch, prepare->count) ||
        !gc_order_init(&ends, &prepare->scratch, prepare->count))
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < prepare->count; i++) {
        by_start[i] = i;
        by_end[i] = i;
        starts.keys[i] = buffers[prepare->live[i]].lower;
        ends.keys[i] = buffers[prepare->live[i]].upper;
    }
    gc_order_sort(&starts, by_start, prepare->count);
    gc_order_sort(&ends, by_end, prepare->count);
    uint32_t section = 0;
    uint32_t begun = 0;
    bool is_open = false;
    for (uint32_t ended = 0; ended < prepare->count; ended++) {
        for (; begun < prepare->count && starts.keys[begun] < ends.keys[ended]; begun++) {
            prepare->first[by_start[begun]] = section;
            is_open = true;
        }
        section += is_open;
        is_open = false;
        prepare->last[by_end[ended]] = section - 1;
    }
    prepare->section_count = section;
    return GC_OK;
}

/* section → component: a component ends where no item lives on. */
static enum gc_status cut_components(struct prepare *prepare, uint32_t *component_count)
{
    uint32_t *reach = gc_region_alloc(&prepare->scratch, prepare->section_count * sizeof(*reach));
    prepare->component_of =
        gc_region_alloc(&prepare->scratch, prepare->section_count * sizeof(*prepare->component_of));
    if (reach == NULL || prepare->component_of == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < prepare->count; i++)
        if (prepare->last[i] > reach[prepare->first[i]])
            reach[prepare->first[i]] = prepare->last[i];
    uint32_t component = 0;
    uint32_t end = 0;
    for (uint32_t s = 0; s < prepare->section_count; s++) {
        if (reach[s] > end)
            end = reach[s];
        prepare->component_of[s] = component;
        if (end <= s) {
            component++;
            end = s + 1;
        }
    }
    *component_count = component;
    return GC_OK;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static enum gc_status allocate_component(struct gc_region *region,
                                         struct gc_place_component *component)
{
    component->items = gc_region_alloc(region, component->count * sizeof(*component->items));
    component->buffers = gc_region_alloc(region, component->count * sizeof(*component->buffers));
    component->offsets = gc_region_alloc(region, component->count * sizeof(*component->offsets));
    component->loads =
        gc_region_alloc(region, component->section_count * sizeof(*component->loads));
    return component->items == NULL || component->buffers == NULL || component->offsets == NULL ||
                   component->loads == NULL
               ? GC_NO_HOST_MEMORY
               : GC_OK;
}

static void add_item(struct gc_place_component *component, uint32_t buffer_index,
                     const struct gc_placement_buffer *buffer, uint32_t first, uint32_t last)
{
    const uint64_t alignment = gc_max_u64(buffer->alignment, 1);
    const bool is_fixed = buffer->fixed != GC_PLACEMENT_FREE;
    component->buffers[component->count] = buffer_index;
    component->granule = common_divisor(component->granule, is_fixed ? buffer->fixed : alignment);
    component->fixed_count += is_fixed;
    component->items[component->count++] = (struct gc_place_item){
        .first = first,
        .last = last,
        .bytes = buffer->bytes,
        .alignment = is_fixed ? 1 : alignment,
        .fixed = buffer->fixed,
    };
}

/* Only the topmost item of a section saves its slack: at most the component's largest. */
static void measure(struct gc_place_component *component)
{
    uint64_t most_slack = 0;
    if (component->granule == 0)
        component->granule = 1; /* only fixed items, all at 0 */
    for (uint32_t i = 0; i < component->count; i++) {
        struct gc_place_item *item = &component->items[i];
        const uint64_t bytes = gc_place_align(item->bytes, component->granule);
        item->slack = bytes - item->bytes;
        item->bytes = bytes;
        most_slack = gc_max_u64(most_slack, item->slack);
        component->unit = common_divisor(component->unit, item->bytes);
        if (item->alignment > 1)
            component->unit = common_divisor(component->unit, item->alignment);
        if (item->fixed != GC_PLACEMENT_FREE)
            component->unit = common_divisor(component->unit, item->fixed);
        component->loads[item->first] += bytes;
        if (item->last + 1 < component->section_count)
            component->loads[item->last + 1] -= bytes;
        component->bound = gc_max_u64(component->bound, item->bytes - item->slack);
        if (item->fixed != GC_PLACEMENT_FREE)
            component->bound = gc_max_u64(component->bound, gc_place_end(item, item->fixed));
    }
    for (uint32_t s = 0; s < component->section_count; s++) {
        if (s > 0)
            component->loads[s] += component->loads[s - 1];
        component->bound =
            gc_max_u64(component->bound, gc_sub_or_zero_u64(component->loads[s], most_slack));
    }
    if (most_slack > 0)
        component->unit = 1;
}

static enum gc_status fill_components(struct prepare *prepare,
                                      struct gc_place_components *components)
{
    uint32_t *starts = gc_region_alloc(&prepare->scratch, components->count * sizeof(*starts));
    if (starts == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t s = prepare->section_count; s-- > 0;) {
        starts[prepare->component_of[s]] = s;
        components->components[prepare->component_of[s]].section_count++;
    }
    for (uint32_t i = 0; i < prepare->count; i++)
        components->components[prepare->component_of[prepare->first[i]]].count++;
    for (uint32_t p = 0; p < components->count; p++) {
        const enum gc_status status =
            allocate_component(prepare->region, &components->components[p]);
        if (status != GC_OK)
            return status;
        components->components[p].problem = prepare->problem;
        components->components[p].count = 0;
    }
    for (uint32_t i = 0; i < prepare->count; i++) {
        const uint32_t p = prepare->component_of[prepare->first[i]];
        add_item(&components->components[p], prepare->live[i],
                 &prepare->problem->buffers[prepare->live[i]], prepare->first[i] - starts[p],
                 prepare->last[i] - starts[p]);
    }
    for (uint32_t p = 0; p < components->count; p++)
        measure(&components->components[p]);
    return GC_OK;
}

static enum gc_status prepare_components(struct prepare *prepare,
                                         struct gc_place_components *components)
{
    const struct gc_placement_problem *problem = prepare->problem;
    const uint64_t bytes = problem->count * sizeof(uint32_t);
    prepare->live = gc_region_alloc(&prepare->scratch, bytes);
    prepare->first = gc_region_alloc(&prepare->scratch, bytes);
    prepare->last = gc_region_alloc(&prepare->scratch, bytes);
    if (prepare->live == NULL || prepare->first == NULL || prepare->last == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++)
        if (problem->buffers[i].bytes > 0)
            prepare->live[prepare->count++] = i;
    enum gc_status status = cut_time(prepare);
    if (status == GC_OK)
        status = cut_components(prepare, &components->count);
    if (status != GC_OK)
        return status;
    components->components =
        gc_region_alloc(prepare->region, components->count * sizeof(*components->components));
    return components->components == NULL ? GC_NO_HOST_MEMORY
                                          : fill_components(prepare, components);
}

enum gc_status gc_place_prepare(struct gc_region *region,
                                const struct gc_placement_problem *problem,
                                struct gc_place_components *components)
{
    struct prepare prepare = {.region = region, .problem = problem};
    enum gc_status status = check_sums(problem);
    *components = (struct gc_place_components){0};
    if (status != GC_OK)
        return status;
    /* Both grow at once: each may have half of the memory. */
    gc_region_init(&prepare.scratch,
                   gc_sub_or_zero_u64(region->bytes_max, gc_region_bytes(region)) / 2);
    status = prepare_components(&prepare, components);
    gc_region_fini(&prepare.scratch);
    return status;
}

/* ---- a run ---- */

#define WATCH_NODES 1024

bool gc_place_run_poll(struct gc_place_run *run)
{
    const struct gc_placement_options *options = run->options;
    run->watch_at = run->nodes + WATCH_NODES;
    if (options->watch != NULL && !run->is_late)
        run->is_late = !options->watch(options->watch_argument, run->bound,
                                       gc_max_u64(run->component->peak, run->second), run->nodes);
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
        (void)gc_place_run_poll(run);
    return !run->stopped;
}
