#include "core/planner/place_greedy.h"

#include "core/bits.h"

#include <string.h>

enum gc_status gc_place_greedy_init(struct gc_place_greedy *greedy, struct gc_place_run *run,
                                    struct gc_place_part *part)
{
    struct gc_region *region = run->region;
    *greedy = (struct gc_place_greedy){.run = run, .part = part};
    greedy->order = gc_region_alloc(region, part->count * sizeof(*greedy->order));
    greedy->offsets = gc_region_alloc(region, part->count * sizeof(*greedy->offsets));
    if (greedy->order == NULL || greedy->offsets == NULL ||
        !gc_place_sorter_init(&greedy->sorter, region, part->count) ||
        !gc_place_index_init(&greedy->index, region, part->section_count))
        return GC_NO_HOST_MEMORY;
    return GC_OK;
}

static uint64_t most_load(const struct gc_place_part *part, const struct gc_place_item *item)
{
    uint64_t most = 0;
    for (uint32_t s = item->first; s <= item->last; s++)
        most = gc_max_u64(most, part->loads[s]);
    return most;
}

/* What is smallest comes first. */
static uint64_t key_of(const struct gc_place_part *part, const struct gc_place_item *item,
                       enum gc_place_order by)
{
    uint64_t area;
    switch (by) {
    case GC_PLACE_BY_BYTES:
        return ~item->bytes;
    case GC_PLACE_BY_AREA:
        return gc_mul_u64(item->bytes, item->last - item->first + 1, &area) ? ~area : 0;
    case GC_PLACE_BY_LENGTH:
        return ~item->length;
    case GC_PLACE_BY_CONTENTION:
        return ~most_load(part, item);
    case GC_PLACE_BY_FIRST:
        return item->first;
    default:
        return ~(uint64_t)item->last;
    }
}

void gc_place_greedy_sort(struct gc_place_greedy *greedy, enum gc_place_order by)
{
    const struct gc_place_part *part = greedy->part;
    uint64_t *keys = greedy->sorter.keys;
    /* The order among equals: by size, then length. */
    const enum gc_place_order passes[] = {GC_PLACE_BY_LENGTH, GC_PLACE_BY_BYTES, by};
    for (uint32_t i = 0; i < part->count; i++)
        greedy->order[i] = i;
    for (size_t pass = 0; pass < sizeof(passes) / sizeof(passes[0]); pass++) {
        for (uint32_t i = 0; i < part->count; i++)
            keys[i] = key_of(part, &part->items[greedy->order[i]], passes[pass]);
        gc_place_sort(&greedy->sorter, greedy->order, part->count);
    }
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

enum gc_status gc_place_greedy_pass(struct gc_place_greedy *greedy, uint64_t limit, uint64_t *peak)
{
    const struct gc_place_part *part = greedy->part;
    uint32_t placed = 0;
    *peak = 0;
    gc_place_index_clear(&greedy->index);
    if (!place_fixed(greedy, peak))
        return GC_NO_HOST_MEMORY;
    for (; placed < part->count && *peak <= limit; placed++) {
        const uint32_t i = greedy->order[placed];
        const struct gc_place_item *item = &part->items[i];
        if (item->fixed != GC_PLACEMENT_FREE)
            continue;
        const uint64_t offset = gc_place_index_find(&greedy->index, item->first, item->last,
                                                    item->bytes, item->alignment);
        greedy->offsets[i] = offset;
        *peak = gc_max_u64(*peak, gc_place_end(item, offset));
        if (!gc_place_index_add(&greedy->index, item->first, item->last, offset, item->bytes))
            return GC_NO_HOST_MEMORY;
    }
    if (*peak > limit)
        *peak = UINT64_MAX;
    gc_place_run_step(greedy->run, placed);
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
