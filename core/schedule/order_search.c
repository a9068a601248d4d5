#include "core/schedule/order_search.h"

#include "core/base/bits.h"

#include <string.h>

#define NONE UINT32_MAX
#define SCRATCH_BYTES_MAX GC_MIB(512)
#define SETS_BYTES_MAX GC_MIB(192)
#define WATCH_POLLS 64
/* A search in a window around the peak: sets, and units. */
#define WINDOW_SETS 20000
#define WINDOW_MIN 16U
#define WINDOW_MAX 128U
#define WINDOW_STEPS 4U /* positions of the peak in a window */

struct search {
    struct gc_region *region;
    const struct gc_order_model *model;
    const struct gc_order_limits *limits;
    uint32_t *order;
    uint64_t *costs; /* by position */
    struct gc_order_run run;
    uint64_t bound;
    uint64_t sets;
    uint64_t polls;
    bool is_stopped;
};

static bool is_out(struct search *search)
{
    const struct gc_order_limits *limits = search->limits;
    if (search->sets >= limits->set_max)
        search->is_stopped = true;
    if (search->polls++ % WATCH_POLLS == 0 && limits->watch != NULL &&
        !limits->watch(limits->watch_argument))
        search->is_stopped = true;
    return search->is_stopped;
}

/* ---- an order's costs ---- */

/* Runs the units of positions [from, to). */
static void run_units(struct search *search, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        uint64_t after;
        search->costs[i] = gc_order_run_cost(&search->run, search->order[i], &after);
        gc_order_run_step(&search->run, search->order[i], after);
    }
}

static void rewind_run(struct search *search)
{
    const struct gc_order_model *model = search->model;
    memset(search->run.touched, 0, model->buffer_count * sizeof(uint32_t));
    search->run.live = 0;
    for (uint32_t i = 0; i < model->unit_count; i++)
        search->run.awaited[i] = model->before.first[i + 1] - model->before.first[i];
    for (uint32_t i = 0; i < model->buffer_count; i++)
        search->run.live += model->is_early[i] ? model->bytes[i] : 0;
}

static uint64_t peak_of(const struct search *search, uint32_t from, uint32_t to)
{
    uint64_t peak = 0;
    for (uint32_t i = from; i < to; i++)
        peak = gc_max_u64(peak, search->costs[i]);
    return peak;
}

/* The bytes that a unit touches: no order runs it with less. */
static uint64_t least_cost(const struct gc_order_model *model, uint32_t unit)
{
    uint64_t bytes = model->inner[unit];
    uint64_t taken = 0;
    for (uint32_t i = model->touch.first[unit]; i < model->touch.first[unit + 1]; i++)
        bytes += model->bytes[model->touch.items[i]];
    for (uint32_t i = model->take.first[unit]; i < model->take.first[unit + 1]; i++)
        taken = model->bytes[model->take.items[i]];
    return bytes - taken;
}

/* ---- the search of a range: sets of its units ---- */

struct set {
    uint64_t key; /* the lowest known peak of an order that leads here */
    uint64_t live;
    uint32_t parent;
    uint32_t unit; /* position in the range that was chosen in the parent */
    uint32_t count;
    bool is_done;
};

struct entry {
    uint64_t key;
    uint32_t count;
    uint32_t set;
};

struct range {
    struct search *search;
    uint32_t from;
    uint32_t count; /* of units */
    uint32_t words;
    uint32_t *place; /* by unit: its position in the range, or NONE */
    uint64_t limit;  /* a peak must be lower */
    struct set *sets;
    uint64_t *bits;
    uint32_t set_count;
    uint32_t set_room;
    uint32_t *table; /* set + 1 by hash; 0: empty */
    uint64_t table_mask;
    struct entry *heap;
    uint64_t heap_count;
    uint64_t heap_room;
    uint32_t *ready; /* positions */
    uint32_t ready_count;
    uint32_t *ready_saved;
    uint32_t *steps; /* positions that were run for one new set, and the live bytes before each */
    uint64_t *lives;
    uint32_t step_count;
    uint64_t *loaded; /* the set that the run is in */
    uint64_t *next;
    uint32_t goal;
};

static uint64_t *bits_of(const struct range *range, uint32_t set)
{
    return range->bits + (uint64_t)set * range->words;
}

static bool has_bit(const uint64_t *bits, uint32_t at)
{
    return (bits[at / 64] >> (at % 64) & 1) != 0;
}

static uint32_t unit_at(const struct range *range, uint32_t position)
{
    return range->search->order[range->from + position];
}

static void run_position(struct range *range, uint32_t position, uint64_t after)
{
    struct gc_order_run *run = &range->search->run;
    const struct gc_order_model *model = run->model;
    const uint32_t unit = unit_at(range, position);
    range->steps[range->step_count] = position;
    range->lives[range->step_count++] = run->live;
    gc_order_run_step(run, unit, after);
    range->next[position / 64] |= UINT64_C(1) << (position % 64);
    for (uint32_t i = 0; i < range->ready_count; i++) {
        if (range->ready[i] == position) {
            range->ready[i] = range->ready[--range->ready_count];
            break;
        }
    }
    for (uint32_t i = model->after.first[unit]; i < model->after.first[unit + 1]; i++) {
        const uint32_t later = model->after.items[i];
        if (run->awaited[later] == 0 && range->place[later] != NONE)
            range->ready[range->ready_count++] = range->place[later];
    }
}

/* Runs each unit that needs at most `key` and leaves no more bytes than before. The result does not
 * depend on their order. */
static void close_set(struct range *range, uint64_t key)
{
    struct gc_order_run *run = &range->search->run;
    for (uint32_t i = 0; i < range->ready_count;) {
        uint64_t after;
        const uint64_t cost = gc_order_run_cost(run, unit_at(range, range->ready[i]), &after);
        if (cost > key || after > run->live) {
            i++;
            continue;
        }
        run_position(range, range->ready[i], after);
        i = 0;
    }
}

static void undo_steps(struct range *range, uint32_t to)
{
    while (range->step_count > to) {
        const uint32_t position = range->steps[--range->step_count];
        gc_order_run_back(&range->search->run, unit_at(range, position),
                          range->lives[range->step_count]);
    }
}

static void find_ready(struct range *range, const uint64_t *bits)
{
    range->ready_count = 0;
    for (uint32_t i = 0; i < range->count; i++) {
        if (!has_bit(bits, i) && range->search->run.awaited[unit_at(range, i)] == 0)
            range->ready[range->ready_count++] = i;
    }
}

/* Brings the run from the loaded set to another. */
static void load(struct range *range, uint32_t set)
{
    struct gc_order_run *run = &range->search->run;
    const uint64_t *bits = bits_of(range, set);
    for (uint32_t word = 0; word < range->words; word++) {
        uint64_t changed = range->loaded[word] ^ bits[word];
        while (changed != 0) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(changed);
            const uint32_t unit = unit_at(range, word * 64 + bit);
            changed &= changed - 1;
            if ((bits[word] >> bit & 1) != 0)
                gc_order_run_step(run, unit, 0);
            else
                gc_order_run_back(run, unit, 0);
        }
        range->loaded[word] = bits[word];
    }
    run->live = range->sets[set].live;
    find_ready(range, bits);
}

/* ---- the queue: the lowest key first, of equal ones the set with the most units ---- */

static bool is_before(const struct entry *a, const struct entry *b)
{
    return a->key < b->key || (a->key == b->key && a->count > b->count);
}

static void push(struct range *range, uint32_t set)
{
    if (range->heap_count == range->heap_room)
        return; /* a set that is found again and again: the search is over its limit then */
    const struct entry entry = {range->sets[set].key, range->sets[set].count, set};
    uint64_t at = range->heap_count++;
    while (at > 0 && is_before(&entry, &range->heap[(at - 1) / 2])) {
        range->heap[at] = range->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    range->heap[at] = entry;
}

static struct entry pop(struct range *range)
{
    const struct entry top = range->heap[0];
    const struct entry last = range->heap[--range->heap_count];
    uint64_t at = 0;
    for (uint64_t child = 1; child < range->heap_count; child = 2 * at + 1) {
        if (child + 1 < range->heap_count &&
            is_before(&range->heap[child + 1], &range->heap[child]))
            child++;
        if (!is_before(&range->heap[child], &last))
            break;
        range->heap[at] = range->heap[child];
        at = child;
    }
    range->heap[at] = last;
    return top;
}

/* ---- sets ---- */

static uint32_t *find_set(const struct range *range, const uint64_t *bits)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < range->words; i++)
        hash = gc_mix_u64(hash + bits[i]);
    uint64_t at = hash & range->table_mask;
    while (range->table[at] != 0 &&
           memcmp(bits_of(range, range->table[at] - 1), bits, range->words * sizeof(uint64_t)) != 0)
        at = (at + 1) & range->table_mask;
    return &range->table[at];
}

/* Adds the set that the run is in; a lower key replaces a known one. */
static void add_set(struct range *range, uint32_t parent, uint32_t position, uint64_t key)
{
    uint32_t *entry = find_set(range, range->next);
    uint32_t index = *entry - 1;
    if (*entry == 0) {
        if (range->set_count == range->set_room)
            return;
        index = range->set_count++;
        *entry = range->set_count;
        memcpy(bits_of(range, index), range->next, range->words * sizeof(uint64_t));
        range->sets[index].count =
            (parent == NONE ? 0 : range->sets[parent].count) + range->step_count;
        range->search->sets++;
    } else if (range->sets[index].is_done || range->sets[index].key <= key) {
        return;
    }
    struct set *set = &range->sets[index];
    set->key = key;
    set->live = range->search->run.live;
    set->parent = parent;
    set->unit = position;
    if (set->count == range->count) {
        range->limit = key;
        range->goal = index;
    } else {
        push(range, index);
    }
}

static void expand(struct range *range, uint32_t index)
{
    load(range, index);
    const uint64_t key = range->sets[index].key;
    const uint32_t saved = range->ready_count;
    memcpy(range->ready_saved, range->ready, saved * sizeof(uint32_t));
    for (uint32_t i = 0; i < saved; i++) {
        const uint32_t position = range->ready_saved[i];
        uint64_t after;
        const uint64_t cost =
            gc_order_run_cost(&range->search->run, unit_at(range, position), &after);
        const uint64_t reached = gc_max_u64(key, cost);
        if (reached >= range->limit)
            continue;
        memcpy(range->next, range->loaded, range->words * sizeof(uint64_t));
        run_position(range, position, after);
        close_set(range, reached);
        add_set(range, index, position, reached);
        undo_steps(range, 0);
        memcpy(range->ready, range->ready_saved, saved * sizeof(uint32_t));
        range->ready_count = saved;
    }
}

static bool make_range(struct gc_region *region, struct range *range, uint64_t set_max)
{
    const uint64_t count = range->count;
    range->words = (range->count + 63) / 64;
    const uint64_t each =
        sizeof(struct set) + range->words * sizeof(uint64_t) + 2 * sizeof(struct entry) + 16;
    const uint64_t sets = gc_min_u64(set_max, SETS_BYTES_MAX / each) + 1;
    uint64_t slots = 16;
    while (slots < 2 * sets)
        slots *= 2;
    range->set_room = (uint32_t)sets;
    range->heap_room = 2 * sets;
    range->table_mask = slots - 1;
    range->sets = gc_region_alloc(region, sets * sizeof(*range->sets));
    range->bits = gc_region_alloc(region, sets * range->words * sizeof(uint64_t));
    range->table = gc_region_alloc(region, slots * sizeof(uint32_t));
    range->heap = gc_region_alloc(region, range->heap_room * sizeof(*range->heap));
    range->ready = gc_region_alloc(region, count * sizeof(uint32_t));
    range->ready_saved = gc_region_alloc(region, count * sizeof(uint32_t));
    range->steps = gc_region_alloc(region, count * sizeof(uint32_t));
    range->lives = gc_region_alloc(region, count * sizeof(uint64_t));
    range->loaded = gc_region_alloc(region, range->words * sizeof(uint64_t));
    range->next = gc_region_alloc(region, range->words * sizeof(uint64_t));
    range->place = gc_region_alloc(region, range->search->model->unit_count * sizeof(uint32_t));
    if (range->sets == NULL || range->bits == NULL || range->table == NULL || range->heap == NULL ||
        range->ready == NULL || range->ready_saved == NULL || range->steps == NULL ||
        range->lives == NULL || range->loaded == NULL || range->next == NULL ||
        range->place == NULL)
        return false;
    memset(range->place, 0xff, range->search->model->unit_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < range->count; i++)
        range->place[unit_at(range, i)] = i;
    return true;
}

/* Writes the order that leads to the goal. */
static void take_goal(struct range *range, uint64_t key)
{
    struct search *search = range->search;
    uint32_t *made = range->ready_saved;
    uint32_t count = 0;
    memset(range->next, 0, range->words * sizeof(uint64_t));
    load(range, 0); /* the root, whose steps come first */
    for (uint32_t at = range->goal; range->sets[at].parent != NONE; at = range->sets[at].parent)
        made[count++] = range->sets[at].unit;
    /* From the empty set on, so that the closing steps are known. */
    for (uint32_t i = 0; i < range->count; i++) {
        if (has_bit(range->loaded, i))
            gc_order_run_back(&search->run, unit_at(range, i), 0);
    }
    memset(range->loaded, 0, range->words * sizeof(uint64_t));
    search->run.live = range->lives[0];
    range->step_count = 0;
    find_ready(range, range->loaded);
    close_set(range, key);
    while (count > 0) {
        uint64_t after;
        const uint32_t position = made[--count];
        const uint64_t cost = gc_order_run_cost(&search->run, unit_at(range, position), &after);
        key = gc_max_u64(key, cost);
        run_position(range, position, after);
        close_set(range, key);
    }
}

/* The lowest peak of the units of positions [from, to), the others as they are. Improves the order
 * if it finds a peak below the range's. *bound: no order of the range is lower. At the end the run
 * is behind the range. */
static enum gc_status search_range(struct search *search, uint32_t from, uint32_t to,
                                   uint64_t set_max, uint64_t *bound)
{
    struct gc_region scratch;
    struct range range = {.search = search, .from = from, .count = to - from, .goal = NONE};
    const uint64_t key = search->bound;
    gc_region_init(&scratch, SCRATCH_BYTES_MAX);
    rewind_run(search);
    run_units(search, 0, from);
    const uint64_t live = search->run.live;
    range.limit = peak_of(search, from, to);
    *bound = key;
    if (!make_range(&scratch, &range, set_max)) {
        gc_region_fini(&scratch);
        return GC_NO_HOST_MEMORY;
    }
    find_ready(&range, range.loaded);
    close_set(&range, key);
    add_set(&range, NONE, 0, key);
    undo_steps(&range, 0);
    while (range.heap_count > 0 && range.heap[0].key < range.limit && !is_out(search) &&
           range.set_count < range.set_room && range.heap_count < range.heap_room) {
        const struct entry top = pop(&range);
        struct set *set = &range.sets[top.set];
        if (set->is_done || set->key != top.key)
            continue;
        set->is_done = true;
        *bound = top.key;
        expand(&range, top.set);
    }
    /* The search ran to its end, or a set that it left out has at least the key of the last. */
    if (!search->is_stopped && range.set_count < range.set_room &&
        range.heap_count < range.heap_room)
        *bound = range.limit;
    if (range.goal != NONE) {
        range.lives[0] = live;
        take_goal(&range, key);
        uint32_t *units = range.ready_saved;
        for (uint32_t i = 0; i < range.count; i++)
            units[i] = unit_at(&range, range.steps[i]);
        memcpy(search->order + from, units, range.count * sizeof(uint32_t));
    }
    gc_region_fini(&scratch);
    rewind_run(search);
    run_units(search, 0, search->model->unit_count);
    return GC_OK;
}

/* ---- cuts ---- */

/* Sets is_cut[i] if all units before position i precede its unit and all behind follow it. Every
 * earlier unit then has a successor among the positions to i, every later one a predecessor there.
 */
static bool find_cuts(const struct search *search, struct gc_region *region, bool *is_cut)
{
    const struct gc_order_model *model = search->model;
    const uint32_t count = model->unit_count;
    uint32_t *position = gc_region_alloc(region, count * sizeof(uint32_t));
    uint32_t *first_after = gc_region_alloc(region, count * sizeof(uint32_t));
    uint32_t *last_before = gc_region_alloc(region, count * sizeof(uint32_t));
    if (position == NULL || first_after == NULL || last_before == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        position[search->order[i]] = i;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t unit = search->order[i];
        first_after[i] = NONE;
        last_before[i] = 0; /* 1 + position; 0: none */
        for (uint32_t j = model->after.first[unit]; j < model->after.first[unit + 1]; j++)
            first_after[i] = first_after[i] < position[model->after.items[j]]
                                 ? first_after[i]
                                 : position[model->after.items[j]];
        for (uint32_t j = model->before.first[unit]; j < model->before.first[unit + 1]; j++)
            last_before[i] = last_before[i] > position[model->before.items[j]] + 1
                                 ? last_before[i]
                                 : position[model->before.items[j]] + 1;
    }
    uint32_t furthest = 0;
    for (uint32_t i = 0; i < count; i++) {
        is_cut[i] = furthest <= i;
        furthest = furthest > first_after[i] ? furthest : first_after[i];
    }
    uint32_t nearest = NONE;
    for (uint32_t i = count; i-- > 0;) {
        is_cut[i] = is_cut[i] && nearest >= i + 1;
        nearest = nearest < last_before[i] ? nearest : last_before[i];
    }
    return true;
}

/* ---- a first order ---- */

/* Runs at each time the unit that leaves the fewest bytes, of equal ones the cheapest. */
static enum gc_status make_greedy(struct search *search, struct gc_region *region, uint32_t *order,
                                  uint64_t *peak)
{
    const struct gc_order_model *model = search->model;
    struct gc_order_run *run = &search->run;
    uint32_t *ready = gc_region_alloc(region, model->unit_count * sizeof(uint32_t));
    uint32_t ready_count = 0;
    if (ready == NULL)
        return GC_NO_HOST_MEMORY;
    rewind_run(search);
    *peak = 0;
    for (uint32_t i = 0; i < model->unit_count; i++) {
        if (run->awaited[i] == 0)
            ready[ready_count++] = i;
    }
    for (uint32_t n = 0; ready_count > 0; n++) {
        uint32_t best = 0;
        uint64_t best_after = UINT64_MAX;
        uint64_t best_cost = UINT64_MAX;
        for (uint32_t i = 0; i < ready_count; i++) {
            uint64_t after;
            const uint64_t cost = gc_order_run_cost(run, ready[i], &after);
            if (after < best_after || (after == best_after && cost < best_cost)) {
                best = i;
                best_after = after;
                best_cost = cost;
            }
        }
        const uint32_t unit = ready[best];
        ready[best] = ready[--ready_count];
        order[n] = unit;
        *peak = gc_max_u64(*peak, best_cost);
        gc_order_run_step(run, unit, best_after);
        for (uint32_t i = model->after.first[unit]; i < model->after.first[unit + 1]; i++) {
            if (run->awaited[model->after.items[i]] == 0)
                ready[ready_count++] = model->after.items[i];
        }
    }
    return GC_OK;
}

static enum gc_status try_greedy(struct search *search)
{
    const uint32_t count = search->model->unit_count;
    uint32_t *order = gc_region_alloc(search->region, count * sizeof(uint32_t));
    uint64_t peak;
    if (order == NULL)
        return GC_NO_HOST_MEMORY;
    const enum gc_status status = make_greedy(search, search->region, order, &peak);
    if (status == GC_OK && peak < peak_of(search, 0, count))
        memcpy(search->order, order, count * sizeof(uint32_t));
    rewind_run(search);
    run_units(search, 0, count);
    return status;
}

/* ---- windows ---- */

static uint32_t find_peak(const struct search *search, uint64_t *peak)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < search->model->unit_count; i++)
        at = search->costs[i] > search->costs[at] ? i : at;
    *peak = search->costs[at];
    return at;
}

/* Searches windows around the first position of the peak; true: the peak there fell. */
static enum gc_status lower_peak(struct search *search, bool *is_lower)
{
    const uint32_t count = search->model->unit_count;
    uint64_t peak;
    const uint32_t at = find_peak(search, &peak);
    *is_lower = false;
    for (uint32_t size = WINDOW_MIN; size <= WINDOW_MAX && !search->is_stopped; size *= 2) {
        for (uint32_t n = 1; n < WINDOW_STEPS && !search->is_stopped; n++) {
            const uint32_t before = size * n / WINDOW_STEPS;
            const uint32_t from = at > before ? at - before : 0;
            const uint32_t to = count - from > size ? from + size : count;
            uint64_t ignored;
            const enum gc_status status = search_range(search, from, to, WINDOW_SETS, &ignored);
            *is_lower = peak_of(search, from, to) < peak;
            if (status != GC_OK || *is_lower)
                return status;
        }
    }
    return GC_OK;
}

/* ---- the whole ---- */

struct part {
    uint32_t from;
    uint32_t to;
    uint64_t peak;
};

/* Searches the parts between cuts, the one with the highest peak first: one whose peak is not above
 * the bound needs no search. */
static enum gc_status search_parts(struct search *search, struct part *parts, uint32_t part_count)
{
    for (uint32_t n = 0; n < part_count && !search->is_stopped; n++) {
        uint32_t best = 0;
        uint64_t bound;
        for (uint32_t i = 0; i < part_count; i++)
            best = parts[i].peak > parts[best].peak ? i : best;
        struct part *part = &parts[best];
        if (part->peak <= search->bound)
            break;
        const uint64_t rest = search->limits->set_max - search->sets;
        const enum gc_status status =
            search_range(search, part->from, part->to, rest / 2 + 1, &bound);
        if (status != GC_OK)
            return status;
        search->bound = gc_max_u64(search->bound, bound);
        part->peak = 0;
    }
    return GC_OK;
}

static enum gc_status find_parts(struct search *search, struct part **parts, uint32_t *part_count)
{
    const uint32_t count = search->model->unit_count;
    bool *is_cut = gc_region_alloc(search->region, count);
    *parts = gc_region_alloc(search->region, count * sizeof(**parts));
    *part_count = 0;
    if (is_cut == NULL || *parts == NULL || !find_cuts(search, search->region, is_cut))
        return GC_NO_HOST_MEMORY;
    for (uint32_t from = 0, i = 0; i < count; i++) {
        if (!is_cut[i] && i + 1 < count)
            continue;
        (*parts)[(*part_count)++] = (struct part){from, i + 1, peak_of(search, from, i + 1)};
        from = i + 1;
    }
    return GC_OK;
}

static enum gc_status search_all(struct search *search)
{
    struct part *parts;
    uint32_t part_count;
    const uint32_t count = search->model->unit_count;
    for (uint32_t i = 0; i < count; i++)
        search->bound = gc_max_u64(search->bound, least_cost(search->model, i));
    enum gc_status status = find_parts(search, &parts, &part_count);
    if (status == GC_OK)
        status = search_parts(search, parts, part_count);
    if (status == GC_OK && peak_of(search, 0, count) > search->bound)
        status = try_greedy(search);
    for (bool is_lower = true; status == GC_OK && is_lower && !is_out(search) &&
                               peak_of(search, 0, count) > search->bound;)
        status = lower_peak(search, &is_lower);
    return status;
}

enum gc_status gc_order_search(struct gc_region *region, const struct gc_order_model *model,
                               const struct gc_order_limits *limits, uint32_t *order,
                               struct gc_order_found *found)
{
    struct search search = {.region = region, .model = model, .limits = limits, .order = order};
    *found = (struct gc_order_found){.peak_bytes = 0};
    search.costs = gc_region_alloc(region, model->unit_count * sizeof(uint64_t));
    if (search.costs == NULL || gc_order_run_init(region, model, &search.run) != GC_OK)
        return GC_NO_HOST_MEMORY;
    run_units(&search, 0, model->unit_count);
    const enum gc_status status = search_all(&search);
    found->peak_bytes = peak_of(&search, 0, model->unit_count);
    found->bound_bytes = gc_min_u64(search.bound, found->peak_bytes);
    found->sets = search.sets;
    return status;
}
