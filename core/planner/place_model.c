#include "core/base/bits.h"
#include "core/planner/place_search.h"

static enum gc_status sort_items(struct gc_place_model *model, struct gc_region *region,
                                 const struct gc_place_part *part)
{
    struct gc_place_sorter sorter;
    if (!gc_place_sorter_init(&sorter, region, part->count))
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < part->count; i++) {
        model->sources[i] = i;
        sorter.keys[i] = part->items[i].first;
    }
    gc_place_sort(&sorter, model->sources, part->count);
    for (uint32_t i = 0; i < part->count; i++)
        model->items[i] = part->items[model->sources[i]];
    return GC_OK;
}

/* Who begins while item i lives comes behind it in the order; each such pair counts for both. */
static uint64_t count_pairs(const struct gc_place_model *model, uint64_t pair_max)
{
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < model->count && pairs <= pair_max; i++)
        for (uint32_t j = i + 1; j < model->count && model->items[j].first <= model->items[i].last;
             j++)
            pairs++;
    return pairs;
}

static void fill_neighbours(struct gc_place_model *model)
{
    uint32_t *ends = model->neighbour_begin + 1;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < model->count; i++)
            for (uint32_t j = i + 1;
                 j < model->count && model->items[j].first <= model->items[i].last; j++) {
                if (pass == 1) {
                    model->neighbours[ends[i]] = j;
                    model->neighbours[ends[j]] = i;
                }
                ends[i]++;
                ends[j]++;
            }
        if (pass == 1)
            break;
        /* From counts to where each begins; filling moves them to where each ends. */
        uint32_t sum = 0;
        for (uint32_t i = 0; i < model->count; i++) {
            const uint32_t here = ends[i];
            ends[i] = sum;
            sum += here;
        }
    }
}

/* The items of each section, the largest first. */
static enum gc_status fill_sections(struct gc_place_model *model, struct gc_region *region)
{
    struct gc_place_sorter sorter;
    uint64_t spans = 0;
    model->section_begin =
        gc_region_alloc(region, (model->section_count + UINT64_C(2)) * sizeof(uint32_t));
    uint32_t *order = gc_region_alloc(region, model->count * sizeof(*order));
    if (model->section_begin == NULL || order == NULL ||
        !gc_place_sorter_init(&sorter, region, model->count))
        return GC_NO_HOST_MEMORY;
    uint32_t *ends = model->section_begin + 2; /* moves down by one as it is filled */
    for (uint32_t i = 0; i < model->count; i++) {
        order[i] = i;
        sorter.keys[i] = ~model->items[i].bytes;
        spans += model->items[i].last - model->items[i].first + 1;
        for (uint32_t s = model->items[i].first; s <= model->items[i].last; s++)
            if (s + 1 < model->section_count)
                ends[s]++;
    }
    gc_place_sort(&sorter, order, model->count);
    for (uint32_t s = 1; s + 1 < model->section_count; s++)
        ends[s] += ends[s - 1];
    model->section_items = gc_region_alloc(region, spans * sizeof(*model->section_items));
    if (model->section_items == NULL)
        return GC_NO_HOST_MEMORY;
    ends--;
    for (uint32_t n = 0; n < model->count; n++)
        for (uint32_t s = model->items[order[n]].first; s <= model->items[order[n]].last; s++)
            model->section_items[ends[s]++] = order[n];
    return GC_OK;
}

enum gc_status gc_place_model_init(struct gc_place_model *model, struct gc_region *region,
                                   const struct gc_place_part *part, uint64_t pair_max,
                                   uint64_t seed)
{
    *model = (struct gc_place_model){.count = part->count,
                                     .section_count = part->section_count,
                                     .loads = part->loads,
                                     .grain = part->grain};
    model->items = gc_region_alloc(region, part->count * sizeof(*model->items));
    model->sources = gc_region_alloc(region, part->count * sizeof(*model->sources));
    model->marks = gc_region_alloc(region, part->count * sizeof(*model->marks));
    model->neighbour_begin =
        gc_region_alloc(region, (part->count + 1) * sizeof(*model->neighbour_begin));
    if (model->items == NULL || model->sources == NULL || model->marks == NULL ||
        model->neighbour_begin == NULL)
        return GC_NO_HOST_MEMORY;
    enum gc_status status = sort_items(model, region, part);
    if (status != GC_OK)
        return status;
    const uint64_t pairs = count_pairs(model, pair_max);
    if (pairs > pair_max)
        return GC_TOO_MANY;
    model->neighbours = gc_region_alloc(region, 2 * pairs * sizeof(*model->neighbours));
    if (model->neighbours == NULL)
        return GC_NO_HOST_MEMORY;
    fill_neighbours(model);
    status = fill_sections(model, region);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < model->count; i++)
        model->marks[i] = gc_mix_u64(gc_mix_u64(seed + 1) ^ (i + UINT64_C(0x9e3779b97f4a7c15)));
    return GC_OK;
}
