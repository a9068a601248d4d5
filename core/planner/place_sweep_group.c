#include "core/base/bits.h"
#include "core/planner/place_sweep_state.h"

#define NONE GC_PLACE_SWEEP_NONE

static bool is_chosen(uint64_t set, uint32_t n)
{
    return set == UINT64_MAX || (n < GC_PLACE_FILL_MAX && (set >> n & 1) != 0);
}

static void add_leaves(struct gc_place_sweep *sweep, uint32_t top)
{
    for (uint32_t leaf = gc_place_tree_next_leaf(&sweep->tree, top, NONE); leaf != NONE;
         leaf = gc_place_tree_next_leaf(&sweep->tree, top, leaf))
        sweep->ended[sweep->ended_count++] = leaf;
}

/* Writes who is in the group in the order in which they lie, and who lies beside. */
static void write_order(struct gc_place_sweep *sweep, struct gc_place_sweep_group *group,
                        const struct gc_place_tree_run *run)
{
    const struct gc_place_tree *tree = &sweep->tree;
    sweep->ended_count = group->ended_begin;
    for (uint32_t top = run->begin;; top = tree->nodes[top].next) {
        add_leaves(sweep, top);
        if (top == run->end)
            break;
    }
    group->beside = NONE;
    if (run->begin == run->end)
        return;
    const uint32_t below = tree->nodes[run->begin].previous;
    group->is_above = below != NONE;
    group->beside =
        gc_place_tree_next_leaf(tree, below != NONE ? below : tree->nodes[run->end].next, NONE);
}

bool gc_place_sweep_take(struct gc_place_sweep *sweep, struct gc_place_sweep_group *group,
                         const struct gc_place_sweep_way *way)
{
    struct gc_place_tree_run run;
    group->ended_begin = sweep->ended_count;
    group->begun_begin = sweep->begun_count;
    for (uint32_t n = 0; n < sweep->fill.gap_count; n++)
        if (is_chosen(way->gaps, n))
            add_leaves(sweep, sweep->gaps[n]);
    if (way->hole != NONE)
        sweep->ended[sweep->ended_count++] = way->hole;
    const bool joined = gc_place_tree_join(&sweep->tree, sweep->ended + group->ended_begin,
                                           sweep->ended_count - group->ended_begin, &run);
    if (!joined) {
        sweep->ended_count = group->ended_begin;
        return false;
    }
    for (uint32_t n = 0; n < sweep->open_start_count; n++)
        if (is_chosen(way->items, n))
            sweep->begun[sweep->begun_count++] = sweep->open_starts[n];
    if (way->hole != NONE)
        sweep->begun[sweep->begun_count++] = way->hole;
    write_order(sweep, group, &run);
    gc_place_tree_replace(&sweep->tree, &run, sweep->begun + group->begun_begin,
                          sweep->begun_count - group->begun_begin);
    for (uint32_t n = group->ended_begin; n < sweep->ended_count; n++)
        sweep->states[sweep->ended[n]] = GC_PLACE_SWEEP_ENDED;
    for (uint32_t n = group->begun_begin; n < sweep->begun_count; n++) {
        sweep->states[sweep->begun[n]] = GC_PLACE_SWEEP_ALIVE;
        sweep->group_of[sweep->begun[n]] = sweep->depth;
    }
    return true;
}

bool gc_place_sweep_take_back(struct gc_place_sweep *sweep)
{
    const struct gc_place_sweep_group *group = &sweep->groups[--sweep->depth];
    /* In this order: a hole that moved is in both. */
    while (sweep->begun_count > group->begun_begin)
        sweep->states[sweep->begun[--sweep->begun_count]] = GC_PLACE_SWEEP_WAITING;
    while (sweep->ended_count > group->ended_begin)
        sweep->states[sweep->ended[--sweep->ended_count]] = GC_PLACE_SWEEP_ALIVE;
    sweep->way_count = group->way_end;
    return gc_place_tree_undo(&sweep->tree, group->mark);
}

/* At the end who is left ends, in the order in which they lie. Where those lie who began with a
 * group is known when it is reached, so those who ended lie there too. */
void gc_place_sweep_settle(struct gc_place_sweep *sweep)
{
    struct gc_place_sweep_group *last = &sweep->groups[sweep->depth];
    last->ended_begin = sweep->ended_count;
    last->begun_begin = sweep->begun_count;
    last->beside = NONE;
    add_leaves(sweep, sweep->tree.root);
    uint32_t ended_end = sweep->ended_count;
    uint32_t begun_end = sweep->begun_count;
    for (uint32_t d = sweep->depth + 1; d-- > 0;) {
        const struct gc_place_sweep_group *group = &sweep->groups[d];
        uint64_t offset = begun_end == group->begun_begin ? 0 : UINT64_MAX;
        for (uint32_t n = group->begun_begin; n < begun_end; n++)
            offset = gc_min_u64(offset, sweep->offsets[sweep->begun[n]]);
        const bool is_turned =
            group->beside != NONE && (sweep->offsets[group->beside] < offset) != group->is_above;
        const uint32_t count = ended_end - group->ended_begin;
        for (uint32_t n = 0; n < count; n++) {
            const uint32_t leaf =
                sweep->ended[group->ended_begin + (is_turned ? count - 1 - n : n)];
            sweep->offsets[leaf] = offset;
            offset += sweep->brim.leaves[leaf].bytes;
        }
        ended_end = group->ended_begin;
        begun_end = group->begun_begin;
    }
}
