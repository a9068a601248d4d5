/* Local search: see gc_improve. */
#include "core/base/bits.h"
#include "core/planner/greedy.h"

#include <string.h>

#define PATIENCE 8 /* rounds without a gain before the search restarts from the best order */
#define LEEWAY 64  /* a pass may exceed the best peak by this fraction (1/n) and be built upon */

struct improve {
    struct gc_region scratch;
    struct gc_place_greedy *greedy;
    uint32_t *best; /* order */
    uint64_t *best_offsets;
    uint64_t best_peak;
    bool *is_prioritized; /* items */
    uint32_t *stack;      /* items alive in the current section */
    uint64_t random;
};

static uint64_t next_random(struct improve *improve)
{
    improve->random += UINT64_C(0x9e3779b97f4a7c15);
    return gc_mix_u64(improve->random);
}

static void prioritize_high(struct improve *improve)
{
    const struct gc_place_greedy *greedy = improve->greedy;
    const struct gc_place_component *component = greedy->component;
    for (uint32_t i = 0; i < component->count; i++)
        improve->is_prioritized[i] =
            gc_place_end(&component->items[i], greedy->offsets[i]) > greedy->run->target;
}

/* The fullest section in the life of the item with the highest end. */
static uint32_t critical_section(const struct gc_place_greedy *greedy)
{
    const struct gc_place_component *component = greedy->component;
    uint64_t peak = 0;
    uint32_t section = 0;
    for (uint32_t i = 0; i < component->count; i++) {
        const struct gc_place_item *item = &component->items[i];
        const uint64_t end = gc_place_end(item, greedy->offsets[i]);
        if (end <= peak)
            continue;
        peak = end;
        section = item->first;
        for (uint32_t s = item->first; s <= item->last; s++)
            if (component->loads[s] > component->loads[section])
                section = s;
    }
    return section;
}

/* Prioritizes items with a gap below them in the fullest section at the peak. */
static void prioritize_gaps(struct improve *improve)
{
    struct gc_place_greedy *greedy = improve->greedy;
    const struct gc_place_component *component = greedy->component;
    const uint32_t section = critical_section(greedy);
    uint32_t count = 0;
    uint64_t end = 0;
    for (uint32_t i = 0; i < component->count; i++) {
        improve->is_prioritized[i] = false;
        if (component->items[i].first > section || component->items[i].last < section)
            continue;
        greedy->sorter.keys[count] = greedy->offsets[i];
        improve->stack[count++] = i;
    }
    gc_order_sort(&greedy->sorter, improve->stack, count);
    for (uint32_t n = 0; n < count; n++) {
        const uint32_t i = improve->stack[n];
        improve->is_prioritized[i] = greedy->offsets[i] > end && next_random(improve) % 4 != 0;
        end = greedy->offsets[i] + component->items[i].bytes;
    }
}

/* Prioritizes the short-lived items of the fullest section: they pack well together. */
static void prioritize_short(struct improve *improve)
{
    const struct gc_place_component *component = improve->greedy->component;
    const uint32_t section = critical_section(improve->greedy);
    const unsigned levels = gc_top_bit_u64(component->section_count) + 1;
    const uint32_t most = 1U << next_random(improve) % levels;
    for (uint32_t i = 0; i < component->count; i++) {
        const struct gc_place_item *item = &component->items[i];
        improve->is_prioritized[i] =
            item->first <= section && item->last >= section && item->last - item->first < most;
    }
}

/* Moves prioritized items to the front, earlier ends first. */
static void bring_to_front(struct improve *improve)
{
    struct gc_place_greedy *greedy = improve->greedy;
    for (uint32_t rank = 0; rank < greedy->component->count; rank++) {
        const uint32_t i = greedy->order[rank];
        greedy->sorter.keys[rank] = improve->is_prioritized[i] ? greedy->component->items[i].last
                                                               : UINT64_C(1) << 32 | rank;
    }
    gc_order_sort(&greedy->sorter, greedy->order, greedy->component->count);
}

/* Moves prioritized items towards the front, all by one distance or each by a fraction of its own;
 * the others keep their order. */
static void bring_forward(struct improve *improve)
{
    struct gc_place_greedy *greedy = improve->greedy;
    const bool together = next_random(improve) % 2 == 0;
    const bool to_front = next_random(improve) % 2 == 0;
    uint64_t steps = to_front ? 255 : next_random(improve) % 256;
    for (uint32_t rank = 0; rank < greedy->component->count; rank++) {
        uint64_t key = (uint64_t)rank << 8;
        if (improve->is_prioritized[greedy->order[rank]]) {
            if (!together && !to_front)
                steps = next_random(improve) % 256;
            key -= rank * (steps + 1);
        }
        greedy->sorter.keys[rank] = key;
    }
    gc_order_sort(&greedy->sorter, greedy->order, greedy->component->count);
}

static void change_order(struct improve *improve)
{
    switch (next_random(improve) % 4) {
    case 0:
        prioritize_short(improve);
        bring_to_front(improve);
        return;
    case 1:
        prioritize_high(improve);
        break;
    default:
        prioritize_gaps(improve);
        break;
    }
    bring_forward(improve);
}

static void save_best(struct improve *improve, uint64_t peak)
{
    const struct gc_place_greedy *greedy = improve->greedy;
    const uint32_t count = greedy->component->count;
    memcpy(improve->best, greedy->order, count * sizeof(uint32_t));
    memcpy(improve->best_offsets, greedy->offsets, count * sizeof(uint64_t));
    improve->best_peak = peak;
}

static void restore_best(const struct improve *improve)
{
    const struct gc_place_greedy *greedy = improve->greedy;
    const uint32_t count = greedy->component->count;
    memcpy(greedy->order, improve->best, count * sizeof(uint32_t));
    memcpy(greedy->offsets, improve->best_offsets, count * sizeof(uint64_t));
}

static bool init(struct improve *improve, struct gc_place_greedy *greedy)
{
    const struct gc_place_run *run = greedy->run;
    const uint64_t count = greedy->component->count;
    *improve = (struct improve){.greedy = greedy,
                                .random = gc_mix_u64(run->options->seed + 1) ^ run->nodes};
    gc_region_init(&improve->scratch,
                   gc_sub_or_zero_u64(run->region->bytes_max, gc_region_bytes(run->region)));
    improve->best = gc_region_alloc(&improve->scratch, count * sizeof(uint32_t));
    improve->best_offsets = gc_region_alloc(&improve->scratch, count * sizeof(uint64_t));
    improve->stack = gc_region_alloc(&improve->scratch, count * sizeof(uint32_t));
    improve->is_prioritized = gc_region_alloc(&improve->scratch, count * sizeof(bool));
    return improve->best != NULL && improve->best_offsets != NULL && improve->stack != NULL &&
           improve->is_prioritized != NULL;
}

static enum gc_status search(struct improve *improve, unsigned rounds)
{
    struct gc_place_greedy *greedy = improve->greedy;
    const struct gc_place_run *run = greedy->run;
    uint64_t peak;
    enum gc_status status = gc_greedy_pass(greedy, UINT64_MAX - 1, &peak);
    if (status != GC_OK || peak == UINT64_MAX)
        return status;
    gc_greedy_save(greedy, peak);
    save_best(improve, peak);
    for (unsigned idle = 0; idle < rounds && !run->stopped && improve->best_peak > run->target;
         idle++) {
        const uint64_t best = improve->best_peak;
        change_order(improve);
        status = gc_greedy_pass(greedy, best + best / LEEWAY, &peak);
        if (status != GC_OK)
            break;
        if (peak <= best) {
            idle = peak < best ? 0 : idle;
            gc_greedy_save(greedy, peak);
            save_best(improve, peak);
        } else if (peak == UINT64_MAX || idle % PATIENCE == PATIENCE - 1) {
            restore_best(improve);
        }
    }
    return status;
}

enum gc_status gc_improve(struct gc_place_greedy *greedy, unsigned rounds)
{
    struct improve improve;
    const enum gc_status status =
        init(&improve, greedy) ? search(&improve, rounds) : GC_NO_HOST_MEMORY;
    gc_region_fini(&improve.scratch);
    return status;
}
