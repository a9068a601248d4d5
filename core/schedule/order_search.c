#include "core/schedule/order_search.h"

#include "core/base/bits.h"
#include "core/schedule/order_range.h"

#include <string.h>

#define NONE UINT32_MAX
/* A search in a window around the peak: sets, and units. */
#define WINDOW_SETS 20000
#define WINDOW_MIN 16U
#define WINDOW_MAX 128U
#define WINDOW_STEPS 4U /* positions of the peak in a window */

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

/* ---- cuts ---- */

/* Sets is_cut[i] if all units before position i precede its unit and all behind follow it. Every
 * earlier unit then has a successor among the positions to i, every later one a predecessor there.
 */
static bool find_cuts(const struct gc_order_state *state, struct gc_region *region, bool *is_cut)
{
    const struct gc_order_model *model = state->model;
    const uint32_t count = model->unit_count;
    uint32_t *position = gc_region_alloc(region, count * sizeof(uint32_t));
    uint32_t *first_after = gc_region_alloc(region, count * sizeof(uint32_t));
    uint32_t *last_before = gc_region_alloc(region, count * sizeof(uint32_t));
    if (position == NULL || first_after == NULL || last_before == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        position[state->order[i]] = i;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t unit = state->order[i];
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
static enum gc_status make_greedy(struct gc_order_state *state, struct gc_region *region,
                                  uint32_t *order, uint64_t *peak)
{
    const struct gc_order_model *model = state->model;
    struct gc_order_run *run = &state->run;
    uint32_t *ready = gc_region_alloc(region, model->unit_count * sizeof(uint32_t));
    uint32_t ready_count = 0;
    if (ready == NULL)
        return GC_NO_HOST_MEMORY;
    gc_order_range_rewind(state);
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

static enum gc_status try_greedy(struct gc_order_state *state)
{
    const uint32_t count = state->model->unit_count;
    uint32_t *order = gc_region_alloc(state->region, count * sizeof(uint32_t));
    uint64_t peak;
    if (order == NULL)
        return GC_NO_HOST_MEMORY;
    const enum gc_status status = make_greedy(state, state->region, order, &peak);
    if (status == GC_OK && peak < gc_order_range_peak(state, 0, count))
        memcpy(state->order, order, count * sizeof(uint32_t));
    gc_order_range_rewind(state);
    gc_order_range_run(state, 0, count);
    return status;
}

/* ---- windows ---- */

static uint32_t find_peak(const struct gc_order_state *state, uint64_t *peak)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < state->model->unit_count; i++)
        at = state->costs[i] > state->costs[at] ? i : at;
    *peak = state->costs[at];
    return at;
}

/* Searches windows around the first position of the peak; true: the peak there fell. */
static enum gc_status lower_peak(struct gc_order_state *state, bool *is_lower)
{
    const uint32_t count = state->model->unit_count;
    uint64_t peak;
    const uint32_t at = find_peak(state, &peak);
    *is_lower = false;
    for (uint32_t size = WINDOW_MIN; size <= WINDOW_MAX && !state->is_stopped; size *= 2) {
        for (uint32_t n = 1; n < WINDOW_STEPS && !state->is_stopped; n++) {
            const uint32_t before = size * n / WINDOW_STEPS;
            const uint32_t from = at > before ? at - before : 0;
            const uint32_t to = count - from > size ? from + size : count;
            uint64_t ignored;
            const enum gc_status status =
                gc_order_range_search(state, from, to, WINDOW_SETS, &ignored);
            *is_lower = gc_order_range_peak(state, from, to) < peak;
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
static enum gc_status search_parts(struct gc_order_state *state, struct part *parts,
                                   uint32_t part_count)
{
    for (uint32_t n = 0; n < part_count && !state->is_stopped; n++) {
        uint32_t best = 0;
        uint64_t bound;
        for (uint32_t i = 0; i < part_count; i++)
            best = parts[i].peak > parts[best].peak ? i : best;
        struct part *part = &parts[best];
        if (part->peak <= state->bound)
            break;
        const uint64_t rest = state->limits->set_max - state->sets;
        const enum gc_status status =
            gc_order_range_search(state, part->from, part->to, rest / 2 + 1, &bound);
        if (status != GC_OK)
            return status;
        state->bound = gc_max_u64(state->bound, bound);
        part->peak = 0;
    }
    return GC_OK;
}

static enum gc_status find_parts(struct gc_order_state *state, struct part **parts,
                                 uint32_t *part_count)
{
    const uint32_t count = state->model->unit_count;
    bool *is_cut = gc_region_alloc(state->region, count);
    *parts = gc_region_alloc(state->region, count * sizeof(**parts));
    *part_count = 0;
    if (is_cut == NULL || *parts == NULL || !find_cuts(state, state->region, is_cut))
        return GC_NO_HOST_MEMORY;
    for (uint32_t from = 0, i = 0; i < count; i++) {
        if (!is_cut[i] && i + 1 < count)
            continue;
        (*parts)[(*part_count)++] =
            (struct part){from, i + 1, gc_order_range_peak(state, from, i + 1)};
        from = i + 1;
    }
    return GC_OK;
}

static enum gc_status search_all(struct gc_order_state *state)
{
    struct part *parts;
    uint32_t part_count;
    const uint32_t count = state->model->unit_count;
    for (uint32_t i = 0; i < count; i++)
        state->bound = gc_max_u64(state->bound, least_cost(state->model, i));
    enum gc_status status = find_parts(state, &parts, &part_count);
    if (status == GC_OK)
        status = search_parts(state, parts, part_count);
    if (status == GC_OK && gc_order_range_peak(state, 0, count) > state->bound)
        status = try_greedy(state);
    for (bool is_lower = true; status == GC_OK && is_lower && !gc_order_range_is_out(state) &&
                               gc_order_range_peak(state, 0, count) > state->bound;)
        status = lower_peak(state, &is_lower);
    return status;
}

enum gc_status gc_order_search(struct gc_region *region, const struct gc_order_model *model,
                               const struct gc_order_limits *limits, uint32_t *order,
                               struct gc_order_found *found)
{
    struct gc_order_state state = {
        .region = region, .model = model, .limits = limits, .order = order};
    *found = (struct gc_order_found){.peak_bytes = 0};
    state.costs = gc_region_alloc(region, model->unit_count * sizeof(uint64_t));
    if (state.costs == NULL || gc_order_run_init(region, model, &state.run) != GC_OK)
        return GC_NO_HOST_MEMORY;
    gc_order_range_run(&state, 0, model->unit_count);
    const enum gc_status status = search_all(&state);
    found->peak_bytes = gc_order_range_peak(&state, 0, model->unit_count);
    found->bound_bytes = gc_min_u64(state.bound, found->peak_bytes);
    found->sets = state.sets;
    return status;
}
