/* Whom an exact search places next: who may be, and in which order they are tried. */
#include "core/base/bits.h"
#include "core/planner/place_search_state.h"

#define NONE GC_PLACE_SEARCH_NONE

static bool comes_before(const struct gc_place_search *search, uint32_t a, uint32_t b)
{
    if (search->levels[a] != search->levels[b])
        return search->levels[a] < search->levels[b];
    return search->ranks[a] < search->ranks[b];
}

static uint64_t most_left(const struct gc_place_search *search, uint32_t item)
{
    uint64_t most = 0;
    for (uint32_t s = search->model->items[item].first; s <= search->model->items[item].last; s++)
        most = gc_max_u64(most, search->capacity - search->latest[s]);
    return most;
}

void gc_place_search_rank(struct gc_place_search *search,
                          const struct gc_place_component *component)
{
    uint32_t count = 0;
    for (uint32_t i = component->head; gc_place_search_is_in(search, component, i);
         i = search->next[i]) {
        search->sorter->keys[count] = search->preference.ranks[i];
        search->order[count++] = i;
    }
    if (count > search->rerank_room - search->rerank_used)
        return;
    gc_place_sort(search->sorter, search->order, count);
    for (uint32_t n = 0; n < count; n++)
        search->sorter->keys[n] = ~most_left(search, search->order[n]);
    gc_place_sort(search->sorter, search->order, count);
    for (uint32_t n = 0; n < count; n++) {
        const uint32_t i = search->order[n];
        search->reranks[search->rerank_used++] = (struct gc_place_rerank){i, search->ranks[i]};
        search->ranks[i] = n;
    }
}

void gc_place_search_rank_back(struct gc_place_search *search, const struct gc_place_frame *frame)
{
    while (search->rerank_used > frame->rerank_mark) {
        const struct gc_place_rerank *rerank = &search->reranks[--search->rerank_used];
        search->ranks[rerank->item] = rerank->rank;
    }
}

static uint32_t count_next(const struct gc_place_search *search, uint32_t section)
{
    const struct gc_place_model *model = search->model;
    uint32_t count = 0;
    for (uint32_t n = model->section_begin[section]; n < model->section_begin[section + 1]; n++)
        count += search->bounds[model->section_items[n]] <= search->latest[section];
    return count;
}

/* A section that must be filled from the lowest offset that is left, or NONE; of several the one
 * for which there are the fewest. */
static uint32_t forced_section(const struct gc_place_search *search,
                               const struct gc_place_component *component)
{
    const uint32_t head = component->head;
    uint64_t lowest = UINT64_MAX;
    uint32_t forced = NONE;
    uint32_t fewest = UINT32_MAX;
    uint32_t end = 0;
    for (uint32_t i = head; gc_place_search_is_in(search, component, i); i = search->next[i]) {
        lowest = gc_min_u64(lowest, search->bounds[i]);
        if (search->model->items[i].last + 1 > end)
            end = search->model->items[i].last + 1;
    }
    for (uint32_t s = search->model->items[head].first; s < end && fewest > 1; s++) {
        if (search->latest[s] > lowest)
            continue;
        const uint32_t count = count_next(search, s);
        if (count < fewest) {
            fewest = count;
            forced = s;
        }
    }
    return forced;
}

static bool is_alive(const struct gc_place_item *item, uint32_t section)
{
    return item->first <= section && item->last >= section;
}

void gc_place_search_gather(struct gc_place_search *search, struct gc_place_frame *frame)
{
    const struct gc_place_item *items = search->model->items;
    const struct gc_place_component *component = &frame->component;
    const uint32_t forced =
        search->preference.by_section ? forced_section(search, component) : NONE;
    uint64_t least_end = UINT64_MAX;
    for (uint32_t i = component->head; gc_place_search_is_in(search, component, i);
         i = search->next[i])
        least_end = gc_min_u64(least_end, search->levels[i] + items[i].bytes);
    frame->candidate_begin = search->candidate_used;
    frame->is_forced = forced != NONE;
    frame->is_cut = false;
    for (uint32_t i = component->head; gc_place_search_is_in(search, component, i);
         i = search->next[i]) {
        if (search->levels[i] != search->bounds[i] || search->levels[i] >= least_end ||
            gc_place_search_is_passed(search, component, i))
            continue;
        if (forced != NONE &&
            (search->levels[i] > search->latest[forced] || !is_alive(&items[i], forced)))
            continue;
        if (search->candidate_used == search->candidate_room) {
            frame->is_cut = true;
            break;
        }
        uint32_t at = search->candidate_used++;
        for (; at > frame->candidate_begin && comes_before(search, i, search->candidates[at - 1]);
             at--)
            search->candidates[at] = search->candidates[at - 1];
        search->candidates[at] = i;
    }
    frame->candidate = frame->candidate_begin;
    frame->candidate_end = search->candidate_used;
}
