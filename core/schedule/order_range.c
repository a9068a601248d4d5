#include "core/schedule/order_range.h"

#include "core/base/bits.h"

#include <string.h>

#define NONE UINT32_MAX
#define SCRATCH_BYTES_MAX GC_MIB(512)
#define SETS_BYTES_MAX GC_MIB(192)
#define WATCH_POLLS 64

bool gc_order_range_is_out(struct gc_order_state *state)
{
    const struct gc_order_limits *limits = state->limits;
    if (state->sets >= limits->set_max)
        state->is_stopped = true;
    if (state->polls++ % WATCH_POLLS == 0 && limits->watch != NULL &&
        !limits->watch(limits->watch_argument))
        state->is_stopped = true;
    return state->is_stopped;
}

/* ---- an order's costs ---- */

void gc_order_range_run(struct gc_order_state *state, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        uint64_t after;
        state->costs[i] = gc_order_run_cost(&state->run, state->order[i], &after);
        gc_order_run_step(&state->run, state->order[i], after);
    }
}

void gc_order_range_rewind(struct gc_order_state *state)
{
    const struct gc_order_model *model = state->model;
    memset(state->run.touched, 0, model->buffer_count * sizeof(uint32_t));
    state->run.live = 0;
    for (uint32_t i = 0; i < model->unit_count; i++)
        state->run.awaited[i] = model->before.first[i + 1] - model->before.first[i];
    for (uint32_t i = 0; i < model->buffer_count; i++)
        state->run.live += model->is_early[i] ? model->bytes[i] : 0;
}

uint64_t gc_order_range_peak(const struct gc_order_state *state, uint32_t from, uint32_t to)
{
    uint64_t peak = 0;
    for (uint32_t i = from; i < to; i++)
        peak = gc_max_u64(peak, state->costs[i]);
    return peak;
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
    struct gc_order_state *state;
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
    return range->state->order[range->from + position];
}

static void run_position(struct range *range, uint32_t position, uint64_t after)
{
    struct gc_order_run *run = &range->state->run;
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
    struct gc_order_run *run = &range->state->run;
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
        gc_order_run_back(&range->state->run, unit_at(range, position),
                          range->lives[range->step_count]);
    }
}

static void find_ready(struct range *range, const uint64_t *bits)
{
    range->ready_count = 0;
    for (uint32_t i = 0; i < range->count; i++) {
        if (!has_bit(bits, i) && range->state->run.awaited[unit_at(range, i)] == 0)
            range->ready[range->ready_count++] = i;
    }
}

/* Brings the run from the loaded set to another. */
static void load(struct range *range, uint32_t set)
{
    struct gc_order_run *run = &range->state->run;
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
        range->state->sets++;
    } else if (range->sets[index].is_done || range->sets[index].key <= key) {
        return;
    }
    struct set *set = &range->sets[index];
    set->key = key;
    set->live = range->state->run.live;
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
            gc_order_run_cost(&range->state->run, unit_at(range, position), &after);
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
    range->place = gc_region_alloc(region, range->state->model->unit_count * sizeof(uint32_t));
    if (range->sets == NULL || range->bits == NULL || range->table == NULL || range->heap == NULL ||
        range->ready == NULL || range->ready_saved == NULL || range->steps == NULL ||
        range->lives == NULL || range->loaded == NULL || range->next == NULL ||
        range->place == NULL)
        return false;
    memset(range->place, 0xff, range->state->model->unit_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < range->count; i++)
        range->place[unit_at(range, i)] = i;
    return true;
}

/* Writes the order that leads to the goal. */
static void take_goal(struct range *range, uint64_t key)
{
    struct gc_order_state *state = range->state;
    uint32_t *made = range->ready_saved;
    uint32_t count = 0;
    memset(range->next, 0, range->words * sizeof(uint64_t));
    load(range, 0); /* the root, whose steps come first */
    for (uint32_t at = range->goal; range->sets[at].parent != NONE; at = range->sets[at].parent)
        made[count++] = range->sets[at].unit;
    /* From the empty set on, so that the closing steps are known. */
    for (uint32_t i = 0; i < range->count; i++) {
        if (has_bit(range->loaded, i))
            gc_order_run_back(&state->run, unit_at(range, i), 0);
    }
    memset(range->loaded, 0, range->words * sizeof(uint64_t));
    state->run.live = range->lives[0];
    range->step_count = 0;
    find_ready(range, range->loaded);
    close_set(range, key);
    while (count > 0) {
        uint64_t after;
        const uint32_t position = made[--count];
        const uint64_t cost = gc_order_run_cost(&state->run, unit_at(range, position), &after);
        key = gc_max_u64(key, cost);
        run_position(range, position, after);
        close_set(range, key);
    }
}

enum gc_status gc_order_range_search(struct gc_order_state *state, uint32_t from, uint32_t to,
                                     uint64_t set_max, uint64_t *bound)
{
    struct gc_region scratch;
    struct range range = {.state = state, .from = from, .count = to - from, .goal = NONE};
    const uint64_t key = state->bound;
    gc_region_init(&scratch, SCRATCH_BYTES_MAX);
    gc_order_range_rewind(state);
    gc_order_range_run(state, 0, from);
    const uint64_t live = state->run.live;
    range.limit = gc_order_range_peak(state, from, to);
    *bound = key;
    if (!make_range(&scratch, &range, set_max)) {
        gc_region_fini(&scratch);
        return GC_NO_HOST_MEMORY;
    }
    find_ready(&range, range.loaded);
    close_set(&range, key);
    add_set(&range, NONE, 0, key);
    undo_steps(&range, 0);
    while (range.heap_count > 0 && range.heap[0].key < range.limit &&
           !gc_order_range_is_out(state) && range.set_count < range.set_room &&
           range.heap_count < range.heap_room) {
        const struct entry top = pop(&range);
        struct set *set = &range.sets[top.set];
        if (set->is_done || set->key != top.key)
            continue;
        set->is_done = true;
        *bound = top.key;
        expand(&range, top.set);
    }
    /* The search ran to its end, or a set that it left out has at least the key of the last. */
    if (!state->is_stopped && range.set_count < range.set_room &&
        range.heap_count < range.heap_room)
        *bound = range.limit;
    if (range.goal != NONE) {
        range.lives[0] = live;
        take_goal(&range, key);
        uint32_t *units = range.ready_saved;
        for (uint32_t i = 0; i < range.count; i++)
            units[i] = unit_at(&range, range.steps[i]);
        memcpy(state->order + from, units, range.count * sizeof(uint32_t));
    }
    gc_region_fini(&scratch);
    gc_order_range_rewind(state);
    gc_order_range_run(state, 0, state->model->unit_count);
    return GC_OK;
}
