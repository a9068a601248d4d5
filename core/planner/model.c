#include "core/planner/search.h"

#include "core/base/bits.h"
#include "core/planner/order.h"

static enum gc_status sort_items(struct gc_place_model *model, struct gc_region *region,
                                 const struct gc_place_component *component)
{
    struct gc_place_sorter sorter;
    if (!gc_order_init(&sorter, region, component->count))
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < component->count; i++) {
        model->sources[i] = i;
        sorter.keys[i] = component->items[i].first;
    }
    gc_order_sort(&sorter, model->sources, component->count);
    for (uint32_t i = 0; i < component->count; i++)
        model->items[i] = component->items[model->sources[i]];
    return GC_OK;
}

/* Items that begin while item i lives follow it in the order; each such pair counts for both. */
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
        /* Counts to begin indices (prefix sums); filling then moves each to its end. */
        uint32_t sum = 0;
        for (uint32_t i = 0; i < model->count; i++) {
            const uint32_t here = ends[i];
            ends[i] = sum;
            sum += here;
        }
    }
}

/* The items of each section, the smallest first. */
static enum gc_status fill_sections(struct gc_place_model *model, struct gc_region *region)
{
    struct gc_place_sorter sorter;
    uint64_t spans = 0;
    model->section_begin =
        gc_region_alloc(region, (model->section_count + UINT64_C(2)) * sizeof(uint32_t));
    uint32_t *order = gc_region_alloc(region, model->count * sizeof(*order));
    if (model->section_begin == NULL || order == NULL ||
        !gc_order_init(&sorter, region, model->count))
        return GC_NO_HOST_MEMORY;
    uint32_t *ends = model->section_begin + 2; /* moves down by one as it is filled */
    for (uint32_t i = 0; i < model->count; i++) {
        order[i] = i;
        sorter.keys[i] = model->items[i].bytes;
        spans += model->items[i].last - model->items[i].first + 1;
        for (uint32_t s = model->items[i].first; s <= model->items[i].last; s++)
            if (s + 1 < model->section_count)
                ends[s]++;
    }
    gc_order_sort(&sorter, order, model->count);
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

enum gc_status gc_model_of_component(struct gc_place_model *model, struct gc_region *region,
                                     const struct gc_place_component *component, uint64_t pair_max,
                                     uint64_t seed)
{
    *model = (struct gc_place_model){.count = component->count,
                                     .section_count = component->section_count,
                                     .loads = component->loads,
                                     .granule = component->granule};
    model->items = gc_region_alloc(region, component->count * sizeof(*model->items));
    model->sources = gc_region_alloc(region, component->count * sizeof(*model->sources));
    model->marks = gc_region_alloc(region, component->count * sizeof(*model->marks));
    model->neighbour_begin =
        gc_region_alloc(region, (component->count + 1) * sizeof(*model->neighbour_begin));
    if (model->items == NULL || model->sources == NULL || model->marks == NULL ||
        model->neighbour_begin == NULL)
        return GC_NO_HOST_MEMORY;
    enum gc_status status = sort_items(model, region, component);
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
        model->marks[i] = gc_mix_u64(gc_mix_u64(seed + 1) ^ (component->buffers[model->sources[i]] +
                                                             UINT64_C(0x9e3779b97f4a7c15)));
    return GC_OK;
}

#define ENTRIES_MIN 1024U
#define WAYS 4U

void gc_model_memo_init(struct gc_place_memo *memo, struct gc_region *region, uint64_t bytes)
{
    *memo = (struct gc_place_memo){0};
    uint64_t count = ENTRIES_MIN;
    while (2 * count * sizeof(*memo->entries) <= bytes)
        count *= 2;
    for (; memo->entries == NULL && count >= ENTRIES_MIN; count /= 2) {
        memo->entries = gc_region_alloc(region, count * sizeof(*memo->entries));
        memo->count = count;
    }
    if (memo->entries == NULL)
        memo->count = 0;
}

bool gc_model_memo_has(const struct gc_place_memo *memo, struct gc_place_key key)
{
    if (memo->count == 0)
        return false;
    const struct gc_place_memo_entry *entries =
        &memo->entries[key.low & (memo->count - 1) & ~(uint64_t)(WAYS - 1)];
    for (unsigned way = 0; way < WAYS; way++)
        if (entries[way].key.high == key.high && entries[way].key.low == key.low)
            return true;
    return false;
}

/* Inserts at the front of the set; evicts the oldest. */
void gc_model_memo_add(struct gc_place_memo *memo, struct gc_place_key key)
{
    if (memo->count == 0)
        return;
    struct gc_place_memo_entry *entries =
        &memo->entries[key.low & (memo->count - 1) & ~(uint64_t)(WAYS - 1)];
    for (unsigned way = WAYS - 1; way > 0; way--)
        entries[way] = entries[way - 1];
    entries[0].key = key;
}
