#include "core/planner/place_greedy.h"

#include "core/base/bits.h"
#include "core/planner/place_pile.h"

#include <string.h>

#define LOOK_ITEMS 32U /* between two looks at the clock */

enum gc_status gc_place_greedy_init(struct gc_place_greedy *greedy, struct gc_place_run *run)
{
    struct gc_region *region = run->region;
    uint32_t count = 0;
    uint32_t sections = 0;
    for (uint32_t p = 0; p < run->parts.count; p++) {
        const struct gc_place_part *part = &run->parts.parts[p];
        count = part->count > count ? part->count : count;
        sections = part->section_count > sections ? part->section_count : sections;
    }
    *greedy = (struct gc_place_greedy){.run = run};
    greedy->order = gc_region_alloc(region, count * sizeof(*greedy->order));
    greedy->offsets = gc_region_alloc(region, count * sizeof(*greedy->offsets));
    if (greedy->order == NULL || greedy->offsets == NULL ||
        !gc_place_sorter_init(&greedy->sorter, region, count) ||
        !gc_place_index_init(&greedy->index, region, sections))
        return GC_NO_HOST_MEMORY;
    return GC_OK;
}

void gc_place_greedy_use(struct gc_place_greedy *greedy, struct gc_place_part *part)
{
    greedy->part = part;
}

static bool place_fixed(struct gc_place_greedy *greedy, uint64_t *peak)
{
    const struct gc_place_part *part = greedy->part;
    for (uint32_t i = 0; i < part->count && part->fixed_count > 0; i++) {
        const struct gc_place_item *item = &part->items[i];
        if (item->fixed == GC_PLACEMENT_FREE)
            continue;
        greedy->offsets[i] = item->fixed;
        *peak = gc_max_u64(*peak, gc_place_end(item, item->fixed));
        if (!gc_place_index_add(&greedy->index, item->first, item->last, item->fixed, item->bytes))
            return false;
    }
    return true;
}

/* What is left of the order goes on top of all it meets. */
static enum gc_status pile_rest(struct gc_place_greedy *greedy, uint32_t placed, uint64_t *peak)
{
    const struct gc_place_part *part = greedy->part;
    struct gc_place_pile pile;
    if (!gc_place_pile_init(&pile, greedy->run->region, part->section_count))
        return GC_NO_HOST_MEMORY;
    for (uint32_t n = 0; n < part->count; n++) {
        const uint32_t i = greedy->order[n];
        const struct gc_place_item *item = &part->items[i];
        if (n < placed || item->fixed != GC_PLACEMENT_FREE)
            gc_place_pile_raise(&pile, item->first, item->last, greedy->offsets[i] + item->bytes);
    }
    for (; placed < part->count; placed++) {
        const uint32_t i = greedy->order[placed];
        const struct gc_place_item *item = &part->items[i];
        if (item->fixed != GC_PLACEMENT_FREE)
            continue;
        const uint64_t offset =
            gc_place_align(gc_place_pile_height(&pile, item->first, item->last), item->alignment);
        greedy->offsets[i] = offset;
        *peak = gc_max_u64(*peak, gc_place_end(item, offset));
        gc_place_pile_raise(&pile, item->first, item->last, offset + item->bytes);
    }
    return GC_OK;
}

enum gc_status gc_place_greedy_pass(struct gc_place_greedy *greedy, uint64_t limit, uint64_t *peak)
{
    const struct gc_place_part *part = greedy->part;
    struct gc_place_run *run = greedy->run;
    const bool is_first = part->peak == UINT64_MAX;
    uint32_t placed = 0;
    *peak = 0;
    gc_place_index_clear(&greedy->index, part->section_count);
    if (!place_fixed(greedy, peak))
        return GC_NO_HOST_MEMORY;
    for (; placed < part->count && *peak <= limit; placed++) {
        const uint32_t i = greedy->order[placed];
        const struct gc_place_item *item = &part->items[i];
        if (placed % LOOK_ITEMS == LOOK_ITEMS - 1 && !gc_place_run_look(run))
            break;
        if (item->fixed != GC_PLACEMENT_FREE)
            continue;
        const uint64_t offset = gc_place_index_find(&greedy->index, item->first, item->last,
                                                    item->bytes, item->alignment);
        greedy->offsets[i] = offset;
        *peak = gc_max_u64(*peak, gc_place_end(item, offset));
        if (!gc_place_index_add(&greedy->index, item->first, item->last, offset, item->bytes))
            return GC_NO_HOST_MEMORY;
    }
    gc_place_run_step(run, placed);
    const bool is_whole = placed == part->count;
    if (*peak > limit || (!is_whole && !is_first))
        *peak = UINT64_MAX;
    else if (!is_whole)
        return pile_rest(greedy, placed, peak);
    return GC_OK;
}

bool gc_place_greedy_keep(struct gc_place_greedy *greedy, uint64_t peak)
{
    struct gc_place_part *part = greedy->part;
    if (peak >= part->peak)
        return false;
    memcpy(part->offsets, greedy->offsets, part->count * sizeof(part->offsets[0]));
    part->peak = peak;
    return true;
}
