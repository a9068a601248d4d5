/* From buffers and times to parts, items and sections; the lower bound of each part.
 *
 * The bound: in each section all that is alive, in whole grains, less the slack of one, which may
 * be the topmost; and what the fixed ones reach. */
#include "core/base/bits.h"
#include "core/base/region.h"
#include "core/planner/place.h"

#include <string.h>

struct prepare {
    struct gc_region *region;
    const struct gc_placement_problem *problem;
    uint32_t *live; /* buffers that take room; later by part */
    uint32_t count;
    uint32_t *first; /* of each, over all sections */
    uint32_t *last;
    uint32_t section_count;
    uint32_t *part_of; /* section → part */
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

/* Starts and ends in one order; at the same time ends come first. A section is complete where an
 * end follows a start. */
static enum gc_status cut_time(struct prepare *prepare)
{
    const struct gc_placement_buffer *buffers = prepare->problem->buffers;
    struct gc_place_sorter starts;
    struct gc_place_sorter ends;
    const uint64_t bytes = prepare->count * sizeof(uint32_t);
    uint32_t *by_start = gc_region_alloc(prepare->region, bytes);
    uint32_t *by_end = gc_region_alloc(prepare->region, bytes);
    if (by_start == NULL || by_end == NULL ||
        !gc_place_sorter_init(&starts, prepare->region, prepare->count) ||
        !gc_place_sorter_init(&ends, prepare->region, prepare->count))
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < prepare->count; i++) {
        by_start[i] = i;
        by_end[i] = i;
        starts.keys[i] = buffers[prepare->live[i]].lower;
        ends.keys[i] = buffers[prepare->live[i]].upper;
    }
    gc_place_sort(&starts, by_start, prepare->count);
    gc_place_sort(&ends, by_end, prepare->count);
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

/* section → part: a part ends where no item goes on. */
static enum gc_status cut_parts(struct prepare *prepare, uint32_t *part_count)
{
    uint32_t *reach = gc_region_alloc(prepare->region, prepare->section_count * sizeof(*reach));
    prepare->part_of =
        gc_region_alloc(prepare->region, prepare->section_count * sizeof(*prepare->part_of));
    if (reach == NULL || prepare->part_of == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < prepare->count; i++)
        if (prepare->last[i] > reach[prepare->first[i]])
            reach[prepare->first[i]] = prepare->last[i];
    uint32_t part = 0;
    uint32_t end = 0;
    for (uint32_t s = 0; s < prepare->section_count; s++) {
        if (reach[s] > end)
            end = reach[s];
        prepare->part_of[s] = part;
        if (end <= s) {
            part++;
            end = s + 1;
        }
    }
    *part_count = part;
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

static enum gc_status allocate_part(struct gc_region *region, struct gc_place_part *part)
{
    part->items = gc_region_alloc(region, part->count * sizeof(*part->items));
    part->buffers = gc_region_alloc(region, part->count * sizeof(*part->buffers));
    part->offsets = gc_region_alloc(region, part->count * sizeof(*part->offsets));
    part->loads = gc_region_alloc(region, part->section_count * sizeof(*part->loads));
    return part->items == NULL || part->buffers == NULL || part->offsets == NULL ||
                   part->loads == NULL
               ? GC_NO_HOST_MEMORY
               : GC_OK;
}

static void add_item(struct gc_place_part *part, uint32_t buffer_index,
                     const struct gc_placement_buffer *buffer, uint32_t first, uint32_t last)
{
    const uint64_t alignment = gc_max_u64(buffer->alignment, 1);
    const bool is_fixed = buffer->fixed != GC_PLACEMENT_FREE;
    part->buffers[part->count] = buffer_index;
    part->grain = common_divisor(part->grain, is_fixed ? buffer->fixed : alignment);
    part->fixed_count += is_fixed;
    part->items[part->count++] = (struct gc_place_item){
        .first = first,
        .last = last,
        .bytes = buffer->bytes,
        .alignment = is_fixed ? 1 : alignment,
        .fixed = buffer->fixed,
        .length = buffer->upper - buffer->lower,
    };
}

/* Only the topmost may lack its slack: at most the largest of the part. */
static void measure(struct gc_place_part *part)
{
    uint64_t most_slack = 0;
    if (part->grain == 0)
        part->grain = 1; /* only fixed ones, all at 0 */
    for (uint32_t i = 0; i < part->count; i++) {
        struct gc_place_item *item = &part->items[i];
        const uint64_t bytes = gc_place_align(item->bytes, part->grain);
        item->slack = bytes - item->bytes;
        item->bytes = bytes;
        most_slack = gc_max_u64(most_slack, item->slack);
        part->unit = common_divisor(part->unit, item->bytes);
        if (item->alignment > 1)
            part->unit = common_divisor(part->unit, item->alignment);
        if (item->fixed != GC_PLACEMENT_FREE)
            part->unit = common_divisor(part->unit, item->fixed);
        part->loads[item->first] += bytes;
        if (item->last + 1 < part->section_count)
            part->loads[item->last + 1] -= bytes;
        part->bound = gc_max_u64(part->bound, item->bytes - item->slack);
        if (item->fixed != GC_PLACEMENT_FREE)
            part->bound = gc_max_u64(part->bound, gc_place_end(item, item->fixed));
    }
    for (uint32_t s = 0; s < part->section_count; s++) {
        if (s > 0)
            part->loads[s] += part->loads[s - 1];
        part->bound = gc_max_u64(part->bound, gc_sub_or_zero_u64(part->loads[s], most_slack));
    }
    if (most_slack > 0)
        part->unit = 1;
}

/* What is alive in the fullest section of each life: a segment tree of the greatest loads. */
static enum gc_status measure_contention(struct gc_region *region, struct gc_place_part *part)
{
    const uint32_t leaf_count = part->section_count;
    struct gc_region scratch;
    gc_region_init(&scratch, gc_sub_or_zero_u64(region->bytes_max, gc_region_bytes(region)));
    uint64_t *most = gc_region_alloc(&scratch, 2 * (uint64_t)leaf_count * sizeof(*most));
    if (most == NULL)
        return GC_NO_HOST_MEMORY;
    memcpy(most + leaf_count, part->loads, leaf_count * sizeof(*most));
    for (uint32_t node = leaf_count; node-- > 1;)
        most[node] = gc_max_u64(most[2 * (uint64_t)node], most[2 * (uint64_t)node + 1]);
    for (uint32_t i = 0; i < part->count; i++) {
        struct gc_place_item *item = &part->items[i];
        uint64_t left = (uint64_t)item->first + leaf_count;
        uint64_t right = (uint64_t)item->last + leaf_count + 1;
        for (; left < right; left /= 2, right /= 2) {
            if ((left & 1) != 0)
                item->contention = gc_max_u64(item->contention, most[left++]);
            if ((right & 1) != 0)
                item->contention = gc_max_u64(item->contention, most[--right]);
        }
    }
    gc_region_fini(&scratch);
    return GC_OK;
}

static enum gc_status fill_parts(struct prepare *prepare, struct gc_place_parts *parts)
{
    uint32_t *starts = gc_region_alloc(prepare->region, parts->count * sizeof(*starts));
    if (starts == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t s = prepare->section_count; s-- > 0;) {
        starts[prepare->part_of[s]] = s;
        parts->parts[prepare->part_of[s]].section_count++;
    }
    for (uint32_t i = 0; i < prepare->count; i++)
        parts->parts[prepare->part_of[prepare->first[i]]].count++;
    for (uint32_t p = 0; p < parts->count; p++) {
        const enum gc_status status = allocate_part(prepare->region, &parts->parts[p]);
        if (status != GC_OK)
            return status;
        parts->parts[p].count = 0;
    }
    for (uint32_t i = 0; i < prepare->count; i++) {
        const uint32_t p = prepare->part_of[prepare->first[i]];
        add_item(&parts->parts[p], prepare->live[i], &prepare->problem->buffers[prepare->live[i]],
                 prepare->first[i] - starts[p], prepare->last[i] - starts[p]);
    }
    enum gc_status status = GC_OK;
    for (uint32_t p = 0; status == GC_OK && p < parts->count; p++) {
        measure(&parts->parts[p]);
        status = measure_contention(prepare->region, &parts->parts[p]);
    }
    return status;
}

enum gc_status gc_place_prepare(struct gc_region *region,
                                const struct gc_placement_problem *problem,
                                struct gc_place_parts *parts)
{
    struct prepare prepare = {.region = region, .problem = problem};
    const uint64_t bytes = problem->count * sizeof(uint32_t);
    enum gc_status status = check_sums(problem);
    *parts = (struct gc_place_parts){0};
    if (status != GC_OK)
        return status;
    prepare.live = gc_region_alloc(region, bytes);
    prepare.first = gc_region_alloc(region, bytes);
    prepare.last = gc_region_alloc(region, bytes);
    if (prepare.live == NULL || prepare.first == NULL || prepare.last == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++)
        if (problem->buffers[i].bytes > 0)
            prepare.live[prepare.count++] = i;
    status = cut_time(&prepare);
    if (status == GC_OK)
        status = cut_parts(&prepare, &parts->count);
    if (status != GC_OK)
        return status;
    parts->parts = gc_region_alloc(region, parts->count * sizeof(*parts->parts));
    return parts->parts == NULL ? GC_NO_HOST_MEMORY : fill_parts(&prepare, parts);
}
