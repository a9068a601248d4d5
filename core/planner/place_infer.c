/* What a node of an exact search can say of the items that are left: how low each can be at least.
 */
#include "core/base/bits.h"
#include "core/planner/place_search_state.h"

#include <string.h>

#define NONE GC_PLACE_SEARCH_NONE
#define ROUNDS_MAX 4

/* Something that may come next in the section, as far as its bound says; NONE if nothing may. */
static uint32_t find_next(const struct gc_place_search *search, uint32_t section)
{
    const struct gc_place_model *model = search->model;
    const uint64_t latest = search->latest[section];
    for (uint32_t n = model->section_begin[section]; n < model->section_begin[section + 1]; n++)
        if (search->bounds[model->section_items[n]] <= latest)
            return model->section_items[n];
    return NONE;
}

static void blame_section(struct gc_place_search *search, uint32_t section)
{
    const struct gc_place_model *model = search->model;
    for (uint32_t n = model->section_begin[section]; n < model->section_begin[section + 1]; n++)
        search->blame[model->section_items[n]] +=
            search->offsets[model->section_items[n]] == GC_PLACEMENT_FREE;
}

/* Every section has something left that may come next, or nothing left. */
static bool sections_go_on(struct gc_place_search *search, uint32_t begin, uint32_t end)
{
    for (uint32_t s = begin; s < end; s++) {
        if (search->latest[s] == search->capacity ||
            search->bounds[search->witness[s]] <= search->latest[s])
            continue;
        const uint32_t found = find_next(search, s);
        if (found == NONE) {
            blame_section(search, s);
            return false;
        }
        search->witness[s] = found;
    }
    return true;
}

/* The least of `latest` over ranges of 1, 2, 4, … sections. */
static void gather_least(struct gc_place_search *search, uint32_t begin, uint32_t end)
{
    const uint32_t sections = search->model->section_count;
    memcpy(search->least + begin, search->latest + begin, (end - begin) * sizeof(uint64_t));
    for (uint32_t width = 2; width <= end - begin; width *= 2) {
        const uint64_t *from = search->least + (uint64_t)(gc_top_bit_u64(width) - 1) * sections;
        uint64_t *to = search->least + (uint64_t)gc_top_bit_u64(width) * sections;
        for (uint32_t s = begin; s + width <= end; s++)
            to[s] = gc_min_u64(from[s], from[s + width / 2]);
    }
}

static uint64_t least_latest(const struct gc_place_search *search, const struct gc_place_item *item)
{
    const unsigned level = gc_top_bit_u64(item->last - item->first + 1);
    const uint64_t *least = search->least + (uint64_t)level * search->model->section_count;
    return gc_min_u64(least[item->first], least[item->last + 1 - (1U << level)]);
}

/* The least end of the others that are left in the section, placed next. What was gathered earlier
 * in the round serves again: bounds only rise. */
static uint64_t least_end(struct gc_place_search *search, uint32_t section, uint32_t but)
{
    const struct gc_place_model *model = search->model;
    struct gc_place_ends *ends = &search->ends[section];
    if (ends->round != search->round) {
        *ends = (struct gc_place_ends){UINT64_MAX, UINT64_MAX, NONE, search->round};
        for (uint32_t n = model->section_begin[section]; n < model->section_begin[section + 1];
             n++) {
            const uint32_t i = model->section_items[n];
            if (search->bounds[i] >= ends->second)
                continue;
            const uint64_t end = search->bounds[i] + model->items[i].bytes;
            if (end < ends->first) {
                ends->second = ends->first;
                ends->first = end;
                ends->item = i;
            } else {
                ends->second = gc_min_u64(ends->second, end);
            }
        }
    }
    return ends->item == but ? ends->second : ends->first;
}

/* An item whose level was passed by will rest on another that is still to come, and ends no lower.
 */
static uint64_t least_support(struct gc_place_search *search, uint32_t item)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t s = search->model->items[item].first; s <= search->model->items[item].last; s++)
        least = gc_min_u64(least, least_end(search, s, item));
    return least;
}

/* An item that would leave too little above it is not the next in that section: it comes after the
 * end of another. False: an item has no place. */
static bool raise_bounds(struct gc_place_search *search, const struct gc_place_component *component,
                         bool *raised)
{
    const struct gc_place_item *items = search->model->items;
    *raised = false;
    search->round++;
    for (uint32_t i = component->head; gc_place_search_is_in(search, component, i);
         i = search->next[i]) {
        uint64_t bound = search->bounds[i];
        if (items[i].fixed == GC_PLACEMENT_FREE && gc_place_search_is_passed(search, component, i))
            bound = gc_max_u64(bound, least_support(search, i));
        else if (bound <= least_latest(search, &items[i]))
            continue;
        for (uint32_t s = items[i].first; s <= items[i].last; s++)
            if (bound > search->latest[s])
                bound = gc_max_u64(bound, least_end(search, s, i));
        if (bound == search->bounds[i])
            continue;
        if (items[i].fixed != GC_PLACEMENT_FREE || bound > search->capacity ||
            gc_place_align(bound, items[i].alignment) + items[i].bytes > search->capacity) {
            search->blame[i]++;
            return false;
        }
        search->bounds[i] = gc_place_align(bound, items[i].alignment);
        *raised = true;
    }
    return true;
}

bool gc_place_search_infer(struct gc_place_search *search,
                           const struct gc_place_component *component)
{
    const struct gc_place_item *items = search->model->items;
    const uint32_t begin = items[component->head].first;
    uint32_t end = begin;
    for (uint32_t i = component->head; gc_place_search_is_in(search, component, i);
         i = search->next[i]) {
        const uint64_t level = search->levels[i];
        if (items[i].fixed == GC_PLACEMENT_FREE ? level + items[i].bytes <= component->level
                                                : gc_place_search_is_passed(search, component, i))
            return false;
        search->bounds[i] = gc_max_u64(level, component->level);
        if (items[i].bytes > gc_sub_or_zero_u64(search->capacity, search->bounds[i]))
            return false;
        end = items[i].last + 1 > end ? items[i].last + 1 : end;
    }
    if (!sections_go_on(search, begin, end))
        return false;
    gather_least(search, begin, end);
    bool raised = true;
    for (unsigned round = 0; raised && round < ROUNDS_MAX; round++)
        if (!raise_bounds(search, component, &raised) ||
            (raised && !sections_go_on(search, begin, end)))
            return false;
    return true;
}
