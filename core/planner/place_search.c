#include "core/base/bits.h"
#include "core/planner/place_search_state.h"

#include <string.h>

#define NONE GC_PLACE_SEARCH_NONE
#define CANDIDATES_PER_ITEM 64U
#define PASSED UINT64_C(0xd1b54a32d192ed03) /* in keys */
#define RERANKS_PER_ITEM 16U

struct gc_place_search *gc_place_search_create(struct gc_region *region,
                                               const struct gc_place_model *model,
                                               struct gc_place_memo *memo,
                                               struct gc_place_sorter *sorter, uint32_t *blame)
{
    const uint64_t n = model->count;
    const uint64_t sections = model->section_count;
    struct gc_place_search *search = gc_region_alloc(region, sizeof(*search));
    if (search == NULL)
        return NULL;
    search->model = model;
    search->memo = memo;
    search->sorter = sorter;
    search->blame = blame;
    search->ranks = gc_region_alloc(region, n * sizeof(uint32_t));
    search->order = gc_region_alloc(region, n * sizeof(uint32_t));
    search->levels = gc_region_alloc(region, n * sizeof(uint64_t));
    search->offsets = gc_region_alloc(region, n * sizeof(uint64_t));
    search->bounds = gc_region_alloc(region, n * sizeof(uint64_t));
    search->next = gc_region_alloc(region, (n + 1) * sizeof(uint32_t));
    search->previous = gc_region_alloc(region, (n + 1) * sizeof(uint32_t));
    search->latest = gc_region_alloc(region, sections * sizeof(uint64_t));
    search->least =
        gc_region_alloc(region, (gc_top_bit_u64(sections) + 1) * sections * sizeof(uint64_t));
    search->witness = gc_region_alloc(region, sections * sizeof(uint32_t));
    search->ends = gc_region_alloc(region, sections * sizeof(struct gc_place_ends));
    search->frames = gc_region_alloc(region, (n + 1) * sizeof(struct gc_place_frame));
    search->pool = gc_region_alloc(region, (2 * n + 2) * sizeof(struct gc_place_component));
    search->trail = gc_region_alloc(region, (uint64_t)model->neighbour_begin[n] / 2 *
                                                sizeof(struct gc_place_change));
    search->candidate_room = (uint32_t)(n * gc_min_u64(n, CANDIDATES_PER_ITEM));
    search->candidates = gc_region_alloc(region, search->candidate_room * sizeof(uint32_t));
    search->rerank_room = (uint32_t)(n * gc_min_u64(n, RERANKS_PER_ITEM));
    search->reranks = gc_region_alloc(region, search->rerank_room * sizeof(struct gc_place_rerank));
    if (search->ranks == NULL || search->order == NULL || search->reranks == NULL ||
        search->levels == NULL || search->offsets == NULL || search->bounds == NULL ||
        search->next == NULL || search->previous == NULL || search->latest == NULL ||
        search->least == NULL || search->witness == NULL || search->ends == NULL ||
        search->frames == NULL || search->pool == NULL || search->trail == NULL ||
        search->candidates == NULL)
        return NULL;
    return search;
}

void gc_place_search_begin(struct gc_place_search *search, uint64_t capacity,
                           const struct gc_place_preference *preference)
{
    const struct gc_place_model *model = search->model;
    search->limit = capacity;
    search->capacity = gc_place_align(capacity, model->grain);
    search->salt = gc_mix_u64(capacity);
    search->preference = *preference;
    memcpy(search->ranks, preference->ranks, model->count * sizeof(uint32_t));
    search->is_cut = false;
    search->verdict = GC_PLACE_OPEN;
    for (uint32_t i = 0; i <= model->count; i++) {
        search->next[i] = i + 1;
        search->previous[i] = i - 1;
        if (i == model->count)
            break;
        search->levels[i] = model->items[i].fixed != GC_PLACEMENT_FREE ? model->items[i].fixed : 0;
        search->offsets[i] = GC_PLACEMENT_FREE;
    }
    for (uint32_t section = 0; section < model->section_count; section++) {
        search->latest[section] = search->capacity - model->loads[section];
        search->witness[section] = model->section_items[model->section_begin[section]];
    }
    search->depth = 0;
    search->trail_used = 0;
    search->rerank_used = 0;
    search->candidate_used = 0;
    search->pool[0] = (struct gc_place_component){
        .head = 0, .end = model->section_count, .parent = NONE, .next = NONE, .is_new = true};
    search->pool_used = 1;
    search->pending = 0;
}

/* ---- going down and back ---- */

static void unlink_item(struct gc_place_search *search, uint32_t item)
{
    const uint32_t next = search->next[item];
    const uint32_t previous = search->previous[item];
    search->previous[next] = previous;
    if (previous != NONE)
        search->next[previous] = next;
}

static void link_item(struct gc_place_search *search, uint32_t item)
{
    const uint32_t next = search->next[item];
    const uint32_t previous = search->previous[item];
    search->previous[next] = item;
    if (previous != NONE)
        search->next[previous] = item;
}

static void undo(struct gc_place_search *search, struct gc_place_frame *frame)
{
    if (frame->item == NONE)
        return;
    const struct gc_place_item *item = &search->model->items[frame->item];
    for (uint32_t s = item->first; s <= item->last; s++)
        search->latest[s] -= item->bytes;
    while (search->trail_used > frame->trail_mark) {
        const struct gc_place_change *change = &search->trail[--search->trail_used];
        search->levels[change->item] = change->level;
    }
    link_item(search, frame->item);
    search->offsets[frame->item] = GC_PLACEMENT_FREE;
    frame->item = NONE;
    search->pool_used = frame->pool_mark;
    search->pending = frame->component.next;
}

/* Places an item at its level; false if a fixed one is then in its way, or it ends too high. */
static bool place(struct gc_place_search *search, struct gc_place_frame *frame, uint32_t index)
{
    const struct gc_place_model *model = search->model;
    const struct gc_place_item *item = &model->items[index];
    const uint64_t offset = search->levels[index];
    const uint64_t top = offset + item->bytes;
    bool is_free = top - item->slack <= search->limit;
    frame->item = index;
    frame->trail_mark = search->trail_used;
    search->offsets[index] = offset;
    search->bounds[index] = UINT64_MAX;
    unlink_item(search, index);
    for (uint32_t s = item->first; s <= item->last; s++)
        search->latest[s] += item->bytes;
    for (uint32_t n = model->neighbour_begin[index]; n < model->neighbour_begin[index + 1]; n++) {
        const uint32_t other = model->neighbours[n];
        if (search->levels[other] >= top || search->offsets[other] != GC_PLACEMENT_FREE)
            continue;
        if (model->items[other].fixed != GC_PLACEMENT_FREE) {
            is_free = false;
            continue;
        }
        search->trail[search->trail_used++] =
            (struct gc_place_change){search->levels[other], other};
        search->levels[other] = gc_place_align(top, model->items[other].alignment);
    }
    return is_free;
}

/* Below which rank nothing is to be at the level of the frame's choice any more. */
static uint32_t rank_after(const struct gc_place_search *search, const struct gc_place_frame *frame)
{
    if (!frame->is_forced)
        return search->ranks[frame->item];
    return frame->component.level == search->offsets[frame->item] ? frame->component.rank : 0;
}

/* What the frame's choice leaves falls into components, which wait to be searched. */
static void split(struct gc_place_search *search, const struct gc_place_frame *frame)
{
    const struct gc_place_item *items = search->model->items;
    const struct gc_place_component *component = &frame->component;
    const uint32_t begin = items[component->head].first;
    uint32_t i = component->head == frame->item ? search->next[frame->item] : component->head;
    uint32_t *link = &search->pending;
    *link = component->next;
    while (gc_place_search_is_in(search, component, i)) {
        const uint32_t added = search->pool_used++;
        uint32_t reach = items[i].last;
        search->pool[added] = (struct gc_place_component){
            .level = search->offsets[frame->item],
            .rank = rank_after(search, frame),
            .head = i,
            .parent = (uint32_t)(frame - search->frames),
            .next = component->next,
        };
        for (; gc_place_search_is_in(search, component, i) && items[i].first <= reach;
             i = search->next[i])
            if (items[i].last > reach)
                reach = items[i].last;
        search->pool[added].end = reach + 1;
        if (search->preference.by_load &&
            (items[search->pool[added].head].first != begin || reach + 1 != component->end)) {
            search->pool[added].is_new = true;
            search->pool[added].rank = 0;
        }
        *link = added;
        link = &search->pool[added].next;
    }
}

/* Back to a frame that has another choice, and down by it. */
static enum gc_place_verdict advance(struct gc_place_search *search, uint32_t at)
{
    for (;;) {
        if (at == NONE)
            return search->is_cut ? GC_PLACE_GIVEN_UP : GC_PLACE_NONE;
        while (search->depth > at + 1) {
            undo(search, &search->frames[--search->depth]);
            gc_place_search_rank_back(search, &search->frames[search->depth]);
        }
        struct gc_place_frame *frame = &search->frames[at];
        undo(search, frame);
        search->candidate_used = frame->candidate_end;
        if (frame->candidate < frame->candidate_end) {
            if (!place(search, frame, search->candidates[frame->candidate++]))
                continue;
            split(search, frame);
            return GC_PLACE_OPEN;
        }
        search->is_cut = search->is_cut || frame->is_cut;
        if (!search->is_cut)
            gc_place_memo_add(search->memo, frame->key);
        search->candidate_used = frame->candidate_begin;
        gc_place_search_rank_back(search, frame);
        search->depth = at;
        at = frame->component.parent;
    }
}

static struct gc_place_key key_of(const struct gc_place_search *search,
                                  const struct gc_place_component *component)
{
    struct gc_place_key key = {search->salt, search->salt};
    bool level_matters = false;
    for (uint32_t i = component->head; gc_place_search_is_in(search, component, i);
         i = search->next[i]) {
        const bool passed = gc_place_search_is_passed(search, component, i);
        const uint64_t word =
            gc_mix_u64(search->model->marks[i] ^ search->levels[i]) ^ (passed ? PASSED : 0);
        key.high += word;
        key.low += (word ^ word >> 29) * (search->model->marks[i] | 1);
        level_matters = level_matters || passed;
    }
    if (level_matters) {
        key.high ^= gc_mix_u64(component->level + 1);
        key.low += gc_mix_u64(~component->level);
    }
    return key;
}

/* Opens the component that waits first. */
static enum gc_place_verdict step(struct gc_place_search *search)
{
    if (search->pending == NONE)
        return GC_PLACE_FOUND;
    struct gc_place_frame *frame = &search->frames[search->depth];
    frame->component = search->pool[search->pending];
    frame->item = NONE;
    frame->pool_mark = search->pool_used;
    if (!gc_place_search_infer(search, &frame->component))
        return advance(search, frame->component.parent);
    frame->key = key_of(search, &frame->component);
    if (gc_place_memo_has(search->memo, frame->key))
        return advance(search, frame->component.parent);
    frame->rerank_mark = search->rerank_used;
    if (search->preference.by_load && frame->component.is_new)
        gc_place_search_rank(search, &frame->component);
    gc_place_search_gather(search, frame);
    return advance(search, search->depth++);
}

enum gc_place_verdict gc_place_search_slice(struct gc_place_search *search,
                                            struct gc_place_run *run, uint64_t nodes)
{
    for (uint64_t i = 0; i < nodes && search->verdict == GC_PLACE_OPEN; i++) {
        search->verdict = step(search);
        if (!gc_place_run_step(run, 1))
            break;
    }
    return search->verdict;
}

void gc_place_search_offsets(const struct gc_place_search *search, uint64_t *offsets)
{
    for (uint32_t i = 0; i < search->model->count; i++)
        offsets[search->model->sources[i]] = search->offsets[i];
}
