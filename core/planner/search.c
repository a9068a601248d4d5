/* Three parts: inference of lower bounds for a node; the choice of candidates; descent and
 * backtracking.
 *
 * Inference: the lowest unplaced item of a section leaves room for the rest above it, so it is one
 * of those with a low enough bound, and all others begin at the least end of these or later. Both
 * hold for all that follows from the choices so far: a node begins with what its parent inferred,
 * and backtracking takes it back. Per section only the item with the least end must be exact, so
 * others are looked at when they are it, in at most ROUNDS_MAX passes over the sections. */
#include "core/planner/search.h"

#include "core/base/bits.h"

#include <string.h>

#define NONE UINT32_MAX

/* Unplaced items that overlap in time with each other and no other unplaced item: those from `head`
 * on, in the list of unplaced items, that begin before `end`. */
struct subproblem {
    uint64_t level; /* no item is placed below it any more */
    uint32_t head;
    uint32_t end;    /* section */
    uint32_t parent; /* the frame whose choice it depends on */
    uint32_t next;   /* the subproblem to be searched after it */
    uint32_t rank;   /* at the level, no item of lower rank is placed any more */
    bool is_new;     /* a proper subset of its parent's items: recompute ranks */
};

struct frame {
    struct subproblem subproblem;
    struct gc_place_key key;
    uint64_t top;  /* before its choice */
    uint32_t item; /* placed by this frame, or NONE */
    uint32_t candidate;
    uint32_t candidate_end;
    uint32_t candidate_begin;
    uint32_t trail_mark;
    uint32_t saved_mark;
    uint32_t pool_mark;
    uint32_t rerank_mark;
    bool is_forced; /* the candidates exclude each other: none is skipped */
    bool is_cut;    /* candidates were skipped: no verdict */
};

/* Of the items that may be next in a section, the least end, and an item that has it unless it was
 * placed or raised since. */
struct least {
    uint64_t end;
    uint32_t item;
};

/* A section's least end before it rose; or an item's bound, where `item` is NONE. */
struct saved {
    uint64_t value;
    uint32_t index;
    uint32_t item;
};

struct change {
    uint64_t level;
    uint64_t bound;
    uint32_t item;
};

struct rerank {
    uint32_t item;
    uint32_t rank; /* before */
};

struct gc_place_search {
    const struct gc_place_model *model;
    struct gc_place_memo *memo;
    uint32_t *priority; /* of each item: how often it was left without a place */
    uint64_t limit;     /* no item may end above it */
    uint64_t capacity;  /* the limit in whole granules */
    uint64_t salt;
    struct gc_place_preference preference;
    uint32_t *ranks; /* of the items of one subproblem */
    struct gc_place_sorter *sorter;
    uint32_t *order; /* the sorted items */
    bool is_cut;     /* an exhausted frame was cut: no verdict */
    enum gc_place_verdict verdict;

    uint64_t *levels; /* the offset where each item would rest now; UINT64_MAX for placed ones */
    uint64_t *offsets;
    uint32_t *next; /* list of unplaced items, by first section; the last entry ends it */
    uint32_t *previous;
    uint64_t *latest; /* of each section: the highest offset of the next item with which the rest
                         still fits */

    /* Inferred, true for all that follows from the choices so far. */
    uint64_t top;        /* of all bounds of unplaced items and the level; or higher */
    uint64_t *bounds;    /* no unplaced item can begin below; UINT64_MAX for placed ones */
    struct least *least; /* of sections */
    uint64_t round;      /* of inference */
    uint64_t *raised;    /* the round in which each bound was raised last */
    uint32_t *witness;   /* of each section: an item that may be next, from the last search */
    struct saved *saved; /* what inference changed */
    uint32_t saved_room;
    uint32_t saved_used;

    struct frame *frames;
    uint32_t depth;
    struct subproblem *pool;
    uint32_t pool_used;
    uint32_t pending; /* the first subproblem that waits */
    struct change *trail;
    uint32_t trail_used;
    struct rerank *reranks;
    uint32_t rerank_room;
    uint32_t rerank_used;
    uint32_t *candidates;
    uint32_t candidate_room;
    uint32_t candidate_used;
};

static inline bool is_in(const struct gc_place_search *search, const struct subproblem *subproblem,
                         uint32_t item)
{
    return item < search->model->count && search->model->items[item].first < subproblem->end;
}

/* True if the item was skipped at its level: it must rest on an item placed later. */
static inline bool is_passed(const struct gc_place_search *search,
                             const struct subproblem *subproblem, uint32_t item)
{
    const uint64_t level = search->levels[item];
    return level < subproblem->level ||
           (level == subproblem->level && search->ranks[item] < subproblem->rank);
}

#define ROUNDS_MAX 4

static void raise_priority(struct gc_place_search *search, uint32_t section)
{
    const struct gc_place_model *model = search->model;
    for (uint32_t n = model->section_begin[section]; n < model->section_begin[section + 1]; n++)
        search->priority[model->section_items[n]] +=
            search->offsets[model->section_items[n]] == GC_PLACEMENT_FREE;
}

/* The least offset known of an item; UINT64_MAX if it is placed. */
static inline uint64_t bound_of(const struct gc_place_search *search,
                                const struct subproblem *subproblem, uint32_t item)
{
    return gc_max_u64(search->bounds[item], subproblem->level);
}

/* An item that may be next in the section; NONE if there is none. */
static uint32_t find_next(const struct gc_place_search *search, const struct subproblem *subproblem,
                          uint32_t section)
{
    const struct gc_place_model *model = search->model;
    for (uint32_t n = model->section_begin[section]; n < model->section_begin[section + 1]; n++)
        if (bound_of(search, subproblem, model->section_items[n]) <= search->latest[section])
            return model->section_items[n];
    return NONE;
}

/* True if every section has an item that may be next. */
static bool sections_go_on(struct gc_place_search *search, const struct subproblem *subproblem)
{
    for (uint32_t s = search->model->items[subproblem->head].first; s < subproblem->end; s++) {
        if (bound_of(search, subproblem, search->witness[s]) <= search->latest[s])
            continue;
        const uint32_t found = find_next(search, subproblem, s);
        if (found == NONE) {
            raise_priority(search, s);
            return false;
        }
        search->witness[s] = found;
    }
    return true;
}

/* True if every item may be next in the section: its least end raises no bound. */
static inline bool is_open(const struct gc_place_search *search, uint32_t section)
{
    return search->top <= search->latest[section];
}

/* Of the items that may be next in a section, except `but`, the one with the least end; the first
 * that ends no higher than the section's least end as known. */
static struct least find_least(const struct gc_place_search *search,
                               const struct subproblem *subproblem, uint32_t section, uint32_t but)
{
    const struct gc_place_model *model = search->model;
    const uint64_t latest = search->latest[section];
    const uint64_t known = search->least[section].end;
    struct least least = {UINT64_MAX, NONE};
    for (uint32_t n = model->section_begin[section];
         n < model->section_begin[section + 1] && least.end > known; n++) {
        const uint32_t i = model->section_items[n];
        if (search->bounds[i] > latest)
            continue;
        const uint64_t end = bound_of(search, subproblem, i) + model->items[i].bytes;
        if (end < least.end && i != but)
            least = (struct least){end, i};
    }
    least.end = gc_max_u64(least.end, known);
    return least;
}

/* Keeps a value for undo(). False: there is no room, so the value stays. */
static bool save(struct gc_place_search *search, uint64_t value, uint32_t index, uint32_t item)
{
    if (search->saved_used == search->saved_room)
        return false;
    search->saved[search->saved_used++] = (struct saved){value, index, item};
    return true;
}

/* True if the item found last still has the section's least end. */
static inline bool is_least(const struct gc_place_search *search,
                            const struct subproblem *subproblem, uint32_t section,
                            const struct least *least)
{
    const uint64_t bound = bound_of(search, subproblem, least->item);
    return bound <= search->latest[section] &&
           bound + search->model->items[least->item].bytes <= least->end;
}

static void keep_least(struct gc_place_search *search, uint32_t section, const struct least *least)
{
    struct least *kept = &search->least[section];
    if ((least->item != kept->item || least->end > kept->end) &&
        save(search, kept->end, section, kept->item))
        *kept = *least;
}

/* The least end of an item that a skipped item can rest on. The lowest of a section is below it
 * there. */
static uint64_t least_support(struct gc_place_search *search, const struct subproblem *subproblem,
                              uint32_t item)
{
    uint64_t support = UINT64_MAX;
    for (uint32_t s = search->model->items[item].first; s <= search->model->items[item].last; s++) {
        struct least least = search->least[s];
        if (is_open(search, s) && !is_least(search, subproblem, s, &least)) {
            least = find_least(search, subproblem, s, NONE);
            keep_least(search, s, &least);
        }
        support = gc_min_u64(
            support, least.item != item ? least.end : find_least(search, subproblem, s, item).end);
    }
    return support;
}

/* Raises the item's bound, once in a round: an item that leaves too little space above it is not
 * the next in that section, so it begins at another item's end or later. False: it has no offset
 * left. */
static bool raise_bound(struct gc_place_search *search, const struct subproblem *subproblem,
                        uint32_t index)
{
    const struct gc_place_item *item = &search->model->items[index];
    if (search->raised[index] == search->round)
        return true;
    search->raised[index] = search->round;
    const uint64_t begin = bound_of(search, subproblem, index);
    uint64_t bound = begin;
    if (begin == UINT64_MAX)
        return true;
    if (item->fixed == GC_PLACEMENT_FREE && is_passed(search, subproblem, index))
        bound = gc_max_u64(bound, least_support(search, subproblem, index));
    uint64_t before;
    do {
        before = bound;
        for (uint32_t s = item->first; s <= item->last; s++)
            if (bound > search->latest[s])
                bound = gc_max_u64(bound, search->least[s].end);
    } while (bound > before);
    if (bound > search->capacity ||
        gc_place_align(bound, item->alignment) + item->bytes > search->capacity ||
        (item->fixed != GC_PLACEMENT_FREE && bound > begin)) {
        search->priority[index]++;
        return false;
    }
    if (bound > begin && save(search, search->bounds[index], index, NONE)) {
        search->bounds[index] = gc_place_align(bound, item->alignment);
        search->top = gc_max_u64(search->top, search->bounds[index]);
    }
    return true;
}

/* Raises the section's least end, and the bound of the item that has it, until that stays. False:
 * there is no placement. */
static bool raise_least(struct gc_place_search *search, const struct subproblem *subproblem,
                        uint32_t section, bool *raised)
{
    struct least least = search->least[section];
    while (raise_bound(search, subproblem, least.item)) {
        if (is_least(search, subproblem, section, &least)) {
            *raised = *raised || least.end > search->least[section].end;
            keep_least(search, section, &least);
            return true;
        }
        least = find_least(search, subproblem, section, NONE);
        if (least.item == NONE) {
            raise_priority(search, section);
            return false;
        }
    }
    return false;
}

/* False: the node has no solution. */
static bool infer(struct gc_place_search *search, const struct subproblem *subproblem)
{
    const struct gc_place_item *items = search->model->items;
    const uint32_t begin = items[subproblem->head].first;
    if (!sections_go_on(search, subproblem))
        return false;
    bool raised = true;
    for (unsigned round = 0; raised && round < ROUNDS_MAX; round++) {
        raised = false;
        search->round++;
        for (uint32_t s = begin; s < subproblem->end; s++)
            if (!is_open(search, s) && !raise_least(search, subproblem, s, &raised))
                return false;
    }
    uint64_t highest = 0;
    for (uint32_t s = begin; s < subproblem->end; s++)
        highest = gc_max_u64(highest, search->least[s].end);
    /* Bounds of other items raise no least end; those without an offset left matter. */
    for (uint32_t i = subproblem->head; is_in(search, subproblem, i); i = search->next[i]) {
        const bool passed = is_passed(search, subproblem, i);
        const bool is_fixed = items[i].fixed != GC_PLACEMENT_FREE;
        if (is_fixed ? passed : search->levels[i] + items[i].bytes <= subproblem->level)
            return false;
        const uint64_t bound = gc_max_u64(highest, search->levels[i]);
        if ((passed || is_fixed || search->preference.by_section ||
             gc_place_align(bound, items[i].alignment) + items[i].bytes > search->capacity) &&
            !raise_bound(search, subproblem, i))
            return false;
    }
    return true;
}

/* The candidates of a node, and the order in which they are tried. */

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

static void rank(struct gc_place_search *search, const struct subproblem *subproblem)
{
    uint32_t count = 0;
    for (uint32_t i = subproblem->head; is_in(search, subproblem, i); i = search->next[i]) {
        search->sorter->keys[count] = search->preference.ranks[i];
        search->order[count++] = i;
    }
    if (count > search->rerank_room - search->rerank_used)
        return;
    gc_order_sort(search->sorter, search->order, count);
    for (uint32_t n = 0; n < count; n++)
        search->sorter->keys[n] = ~most_left(search, search->order[n]);
    gc_order_sort(search->sorter, search->order, count);
    for (uint32_t n = 0; n < count; n++) {
        const uint32_t i = search->order[n];
        search->reranks[search->rerank_used++] = (struct rerank){i, search->ranks[i]};
        search->ranks[i] = n;
    }
}

static void rank_back(struct gc_place_search *search, const struct frame *frame)
{
    while (search->rerank_used > frame->rerank_mark) {
        const struct rerank *rerank = &search->reranks[--search->rerank_used];
        search->ranks[rerank->item] = rerank->rank;
    }
}

static uint32_t count_next(const struct gc_place_search *search,
                           const struct subproblem *subproblem, uint32_t section)
{
    const struct gc_place_model *model = search->model;
    uint32_t count = 0;
    for (uint32_t n = model->section_begin[section]; n < model->section_begin[section + 1]; n++)
        count += bound_of(search, subproblem, model->section_items[n]) <= search->latest[section];
    return count;
}

/* A section with no slack left, which must be filled from its lowest free offset; of several the
 * one with the fewest candidates; or NONE. */
static uint32_t forced_section(const struct gc_place_search *search,
                               const struct subproblem *subproblem)
{
    const uint32_t head = subproblem->head;
    uint64_t lowest = UINT64_MAX;
    uint32_t forced = NONE;
    uint32_t fewest = UINT32_MAX;
    uint32_t end = 0;
    for (uint32_t i = head; is_in(search, subproblem, i); i = search->next[i]) {
        lowest = gc_min_u64(lowest, bound_of(search, subproblem, i));
        if (search->model->items[i].last + 1 > end)
            end = search->model->items[i].last + 1;
    }
    for (uint32_t s = search->model->items[head].first; s < end && fewest > 1; s++) {
        if (search->latest[s] > lowest)
            continue;
        const uint32_t count = count_next(search, subproblem, s);
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

static void gather(struct gc_place_search *search, struct frame *frame)
{
    const struct gc_place_item *items = search->model->items;
    const struct subproblem *subproblem = &frame->subproblem;
    const uint32_t forced =
        search->preference.by_section ? forced_section(search, subproblem) : NONE;
    uint64_t least_end = UINT64_MAX;
    for (uint32_t i = subproblem->head; is_in(search, subproblem, i); i = search->next[i])
        least_end = gc_min_u64(least_end, search->levels[i] + items[i].bytes);
    frame->candidate_begin = search->candidate_used;
    frame->is_forced = forced != NONE;
    frame->is_cut = false;
    for (uint32_t i = subproblem->head; is_in(search, subproblem, i); i = search->next[i]) {
        if (search->levels[i] >= least_end || is_passed(search, subproblem, i) ||
            !raise_bound(search, subproblem, i) || search->bounds[i] > search->levels[i])
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

#define CANDIDATES_PER_ITEM 64U
#define PASSED UINT64_C(0xd1b54a32d192ed03) /* in keys */
#define RERANKS_PER_ITEM 16U
#define SAVED_PER_ITEM 64U

struct gc_place_search *gc_search_create(struct gc_region *region,
                                         const struct gc_place_model *model,
                                         struct gc_place_memo *memo, struct gc_place_sorter *sorter,
                                         uint32_t *priority)
{
    const uint64_t n = model->count;
    const uint64_t sections = model->section_count;
    struct gc_place_search *search = gc_region_alloc(region, sizeof(*search));
    if (search == NULL)
        return NULL;
    search->model = model;
    search->memo = memo;
    search->sorter = sorter;
    search->priority = priority;
    search->ranks = gc_region_alloc(region, n * sizeof(uint32_t));
    search->order = gc_region_alloc(region, n * sizeof(uint32_t));
    search->levels = gc_region_alloc(region, n * sizeof(uint64_t));
    search->offsets = gc_region_alloc(region, n * sizeof(uint64_t));
    search->bounds = gc_region_alloc(region, n * sizeof(uint64_t));
    search->next = gc_region_alloc(region, (n + 1) * sizeof(uint32_t));
    search->previous = gc_region_alloc(region, (n + 1) * sizeof(uint32_t));
    search->latest = gc_region_alloc(region, sections * sizeof(uint64_t));
    search->raised = gc_region_alloc(region, n * sizeof(uint64_t));
    search->least = gc_region_alloc(region, sections * sizeof(struct least));
    search->witness = gc_region_alloc(region, sections * sizeof(uint32_t));
    search->saved_room = (uint32_t)(n * gc_min_u64(n, SAVED_PER_ITEM));
    search->saved = gc_region_alloc(region, search->saved_room * sizeof(struct saved));
    search->frames = gc_region_alloc(region, (n + 1) * sizeof(struct frame));
    search->pool = gc_region_alloc(region, (2 * n + 2) * sizeof(struct subproblem));
    search->trail =
        gc_region_alloc(region, (n + model->neighbour_begin[n] / 2) * sizeof(struct change));
    search->candidate_room = (uint32_t)(n * gc_min_u64(n, CANDIDATES_PER_ITEM));
    search->candidates = gc_region_alloc(region, search->candidate_room * sizeof(uint32_t));
    search->rerank_room = (uint32_t)(n * gc_min_u64(n, RERANKS_PER_ITEM));
    search->reranks = gc_region_alloc(region, search->rerank_room * sizeof(struct rerank));
    if (search->ranks == NULL || search->order == NULL || search->reranks == NULL ||
        search->levels == NULL || search->offsets == NULL || search->bounds == NULL ||
        search->next == NULL || search->previous == NULL || search->latest == NULL ||
        search->raised == NULL || search->least == NULL || search->witness == NULL ||
        search->saved == NULL || search->frames == NULL || search->pool == NULL ||
        search->trail == NULL || search->candidates == NULL)
        return NULL;
    return search;
}

void gc_search_begin(struct gc_place_search *search, uint64_t capacity,
                     const struct gc_place_preference *preference)
{
    const struct gc_place_model *model = search->model;
    search->limit = capacity;
    search->capacity = gc_place_align(capacity, model->granule);
    search->salt = gc_mix_u64(capacity);
    search->preference = *preference;
    memcpy(search->ranks, preference->ranks, model->count * sizeof(uint32_t));
    search->is_cut = false;
    search->verdict = GC_PLACE_OPEN;
    search->top = 0;
    for (uint32_t i = 0; i <= model->count; i++) {
        search->next[i] = i + 1;
        search->previous[i] = i - 1;
        if (i == model->count)
            break;
        search->levels[i] = model->items[i].fixed != GC_PLACEMENT_FREE ? model->items[i].fixed : 0;
        search->offsets[i] = GC_PLACEMENT_FREE;
        search->bounds[i] = search->levels[i];
        search->top = gc_max_u64(search->top, search->levels[i]);
    }
    for (uint32_t section = 0; section < model->section_count; section++) {
        search->latest[section] = search->capacity - model->loads[section];
        search->least[section] =
            (struct least){0, model->section_items[model->section_begin[section]]};
        search->witness[section] = model->section_items[model->section_begin[section]];
    }
    search->depth = 0;
    search->trail_used = 0;
    search->saved_used = 0;
    search->rerank_used = 0;
    search->candidate_used = 0;
    search->pool[0] = (struct subproblem){
        .head = 0, .end = model->section_count, .parent = NONE, .next = NONE, .is_new = true};
    search->pool_used = 1;
    search->pending = 0;
}

/* ---- descent and backtracking ---- */

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

static void undo(struct gc_place_search *search, struct frame *frame)
{
    if (frame->item == NONE)
        return;
    const struct gc_place_item *item = &search->model->items[frame->item];
    for (uint32_t s = item->first; s <= item->last; s++)
        search->latest[s] -= item->bytes;
    search->top = frame->top;
    while (search->saved_used > frame->saved_mark) {
        const struct saved *saved = &search->saved[--search->saved_used];
        if (saved->item == NONE)
            search->bounds[saved->index] = saved->value;
        else
            search->least[saved->index] = (struct least){saved->value, saved->item};
    }
    while (search->trail_used > frame->trail_mark) {
        const struct change *change = &search->trail[--search->trail_used];
        search->levels[change->item] = change->level;
        search->bounds[change->item] = change->bound;
    }
    link_item(search, frame->item);
    search->offsets[frame->item] = GC_PLACEMENT_FREE;
    frame->item = NONE;
    search->pool_used = frame->pool_mark;
    search->pending = frame->subproblem.next;
}

static void save_levels(struct gc_place_search *search, uint32_t item)
{
    search->trail[search->trail_used++] =
        (struct change){search->levels[item], search->bounds[item], item};
}

/* Places an item at its level. False: it ends too high or above an unplaced fixed item's start. */
static bool place(struct gc_place_search *search, struct frame *frame, uint32_t index)
{
    const struct gc_place_model *model = search->model;
    const struct gc_place_item *item = &model->items[index];
    const uint64_t offset = search->levels[index];
    const uint64_t top = offset + item->bytes;
    bool is_free = top - item->slack <= search->limit;
    frame->item = index;
    frame->trail_mark = search->trail_used;
    frame->saved_mark = search->saved_used;
    frame->top = search->top;
    search->offsets[index] = offset;
    save_levels(search, index);
    search->levels[index] = UINT64_MAX;
    search->bounds[index] = UINT64_MAX;
    unlink_item(search, index);
    for (uint32_t s = item->first; s <= item->last; s++)
        search->latest[s] += item->bytes;
    for (uint32_t n = model->neighbour_begin[index]; n < model->neighbour_begin[index + 1]; n++) {
        const uint32_t other = model->neighbours[n];
        if (search->levels[other] >= top)
            continue;
        if (model->items[other].fixed != GC_PLACEMENT_FREE) {
            is_free = false;
            continue;
        }
        save_levels(search, other);
        search->levels[other] = gc_place_align(top, model->items[other].alignment);
        search->bounds[other] = gc_max_u64(search->bounds[other], search->levels[other]);
        search->top = gc_max_u64(search->top, search->bounds[other]);
    }
    return is_free;
}

/* The least rank of the items that may still be placed at the level of the frame's choice. */
static uint32_t rank_after(const struct gc_place_search *search, const struct frame *frame)
{
    if (!frame->is_forced)
        return search->ranks[frame->item];
    return frame->subproblem.level == search->offsets[frame->item] ? frame->subproblem.rank : 0;
}

/* Splits the items left by the frame's choice into subproblems, and queues these. */
static void split(struct gc_place_search *search, const struct frame *frame)
{
    const struct gc_place_item *items = search->model->items;
    const struct subproblem *subproblem = &frame->subproblem;
    const uint32_t begin = items[subproblem->head].first;
    uint32_t i = subproblem->head == frame->item ? search->next[frame->item] : subproblem->head;
    uint32_t *link = &search->pending;
    *link = subproblem->next;
    while (is_in(search, subproblem, i)) {
        const uint32_t added = search->pool_used++;
        uint32_t reach = items[i].last;
        search->pool[added] = (struct subproblem){
            .level = search->offsets[frame->item],
            .rank = rank_after(search, frame),
            .head = i,
            .parent = (uint32_t)(frame - search->frames),
            .next = subproblem->next,
        };
        for (; is_in(search, subproblem, i) && items[i].first <= reach; i = search->next[i])
            if (items[i].last > reach)
                reach = items[i].last;
        search->pool[added].end = reach + 1;
        if (search->preference.by_load &&
            (items[search->pool[added].head].first != begin || reach + 1 != subproblem->end)) {
            search->pool[added].is_new = true;
            search->pool[added].rank = 0;
        }
        *link = added;
        link = &search->pool[added].next;
    }
}

/* Backtracks to a frame with another choice, and descends by it. */
static enum gc_place_verdict advance(struct gc_place_search *search, uint32_t at)
{
    for (;;) {
        if (at == NONE)
            return search->is_cut ? GC_PLACE_GIVEN_UP : GC_PLACE_NONE;
        while (search->depth > at + 1) {
            undo(search, &search->frames[--search->depth]);
            rank_back(search, &search->frames[search->depth]);
        }
        struct frame *frame = &search->frames[at];
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
            gc_model_memo_add(search->memo, frame->key);
        search->candidate_used = frame->candidate_begin;
        rank_back(search, frame);
        search->depth = at;
        at = frame->subproblem.parent;
    }
}

static struct gc_place_key key_of(const struct gc_place_search *search,
                                  const struct subproblem *subproblem)
{
    struct gc_place_key key = {search->salt, search->salt};
    bool level_matters = false;
    for (uint32_t i = subproblem->head; is_in(search, subproblem, i); i = search->next[i]) {
        const bool passed = is_passed(search, subproblem, i);
        const uint64_t word =
            gc_mix_u64(search->model->marks[i] ^ search->levels[i]) ^ (passed ? PASSED : 0);
        key.high += word;
        key.low += (word ^ word >> 29) * (search->model->marks[i] | 1);
        level_matters = level_matters || passed;
    }
    if (level_matters) {
        key.high ^= gc_mix_u64(subproblem->level + 1);
        key.low += gc_mix_u64(~subproblem->level);
    }
    return key;
}

/* Opens the first queued subproblem. */
static enum gc_place_verdict step(struct gc_place_search *search)
{
    if (search->pending == NONE)
        return GC_PLACE_FOUND;
    struct frame *frame = &search->frames[search->depth];
    frame->subproblem = search->pool[search->pending];
    frame->item = NONE;
    frame->pool_mark = search->pool_used;
    if (!infer(search, &frame->subproblem))
        return advance(search, frame->subproblem.parent);
    frame->key = key_of(search, &frame->subproblem);
    if (gc_model_memo_has(search->memo, frame->key))
        return advance(search, frame->subproblem.parent);
    frame->rerank_mark = search->rerank_used;
    if (search->preference.by_load && frame->subproblem.is_new)
        rank(search, &frame->subproblem);
    gather(search, frame);
    return advance(search, search->depth++);
}

enum gc_place_verdict gc_search_slice(struct gc_place_search *search, struct gc_place_run *run,
                                      uint64_t nodes)
{
    for (uint64_t i = 0; i < nodes && search->verdict == GC_PLACE_OPEN; i++) {
        search->verdict = step(search);
        if (!gc_place_run_step(run, 1))
            break;
    }
    return search->verdict;
}

void gc_search_offsets(const struct gc_place_search *search, uint64_t *offsets)
{
    for (uint32_t i = 0; i < search->model->count; i++)
        offsets[search->model->sources[i]] = search->offsets[i];
}
