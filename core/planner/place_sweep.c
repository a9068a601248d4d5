#include "core/planner/place_sweep.h"

#include "core/base/bits.h"
#include "core/planner/place_sweep_state.h"

#include <string.h>

#define NONE GC_PLACE_SWEEP_NONE
#define NODES_PER_LEAF 4U
#define CHANGES_PER_LEAF 24U
#define CHANGES_MAX (UINT64_C(1) << 19)
#define WAYS_PER_LEAF 4U
#define FAILURES_MAX 256U /* before it goes back further, */
#define REACH_MIN 16U     /* by so many groups at first */
#define TRIAL_MAX 64U
#define TRIAL_STEPS 8U /* of each leaf, in the first trial; later ones have more */
#define STEPS_MAX (UINT64_C(1) << 25)

static bool allocate(struct gc_place_sweep *sweep)
{
    struct gc_region *region = &sweep->region;
    const uint64_t n = sweep->brim.leaf_count;
    sweep->way_room = (uint32_t)(n * WAYS_PER_LEAF + 2 * GC_PLACE_FILL_WAYS_MAX);
    sweep->states = gc_region_alloc(region, n);
    sweep->group_of = gc_region_alloc(region, n * sizeof(uint32_t));
    sweep->groups = gc_region_alloc(region, (n + 1) * sizeof(*sweep->groups));
    sweep->is_suspect = gc_region_alloc(region, n + 1);
    /* A hole that moves is in two groups; each group ends at least one leaf for good. */
    sweep->ended = gc_region_alloc(region, 2 * n * sizeof(uint32_t));
    sweep->begun = gc_region_alloc(region, 2 * n * sizeof(uint32_t));
    sweep->ways = gc_region_alloc(region, sweep->way_room * sizeof(*sweep->ways));
    sweep->open_ends = gc_region_alloc(region, n * sizeof(uint32_t));
    sweep->open_starts = gc_region_alloc(region, n * sizeof(uint32_t));
    sweep->gaps = gc_region_alloc(region, n * sizeof(uint32_t));
    sweep->offsets = gc_region_alloc(region, n * sizeof(uint64_t));
    return sweep->states != NULL && sweep->group_of != NULL && sweep->groups != NULL &&
           sweep->is_suspect != NULL && sweep->ended != NULL && sweep->begun != NULL &&
           sweep->ways != NULL && sweep->open_ends != NULL && sweep->open_starts != NULL &&
           sweep->gaps != NULL && sweep->offsets != NULL &&
           gc_place_fill_init(&sweep->fill, region, (uint32_t)n) &&
           gc_place_tree_init(&sweep->tree, region, (uint32_t)n,
                              (uint32_t)(n * NODES_PER_LEAF + NODES_PER_LEAF),
                              gc_min_u64(CHANGES_MAX, n * CHANGES_PER_LEAF + CHANGES_PER_LEAF));
}

static void begin(struct gc_place_sweep *sweep)
{
    const struct gc_place_brim *brim = &sweep->brim;
    memset(sweep->states, GC_PLACE_SWEEP_WAITING, brim->leaf_count);
    memset(sweep->is_suspect, 0, brim->leaf_count + UINT64_C(1));
    for (uint32_t n = 0; n < brim->start_begin[1]; n++) {
        sweep->states[brim->starts[n]] = GC_PLACE_SWEEP_ALIVE;
        sweep->group_of[brim->starts[n]] = NONE;
    }
    gc_place_tree_begin(&sweep->tree, brim->starts, brim->start_begin[1]);
    sweep->depth = 0;
    sweep->ended_count = 0;
    sweep->begun_count = 0;
    sweep->way_count = 0;
    sweep->deepest = 0;
    sweep->reach = REACH_MIN;
    sweep->failures = 0;
    sweep->patience = (TRIAL_STEPS + (uint64_t)sweep->trial) * brim->leaf_count;
    sweep->verdict = GC_PLACE_OPEN;
}

/* From the other end of time, by other ways. */
static void begin_anew(struct gc_place_sweep *sweep)
{
    sweep->trial++;
    sweep->fill.noise = gc_mix_u64(sweep->run->options->seed + sweep->trial);
    gc_place_brim_turn(&sweep->brim);
    begin(sweep);
}

struct gc_place_sweep *gc_place_sweep_create(struct gc_place_run *run,
                                             const struct gc_place_part *part)
{
    struct gc_region region;
    gc_region_init(&region,
                   gc_sub_or_zero_u64(run->region->bytes_max, gc_region_bytes(run->region)));
    struct gc_place_sweep *sweep = gc_region_alloc(&region, sizeof(*sweep));
    if (sweep == NULL || part->fixed_count > 0) {
        gc_region_fini(&region);
        return NULL;
    }
    sweep->region = region;
    sweep->run = run;
    if (gc_place_brim_init(&sweep->brim, &sweep->region, run->problem, part) != GC_OK ||
        !allocate(sweep)) {
        gc_place_sweep_destroy(sweep);
        return NULL;
    }
    begin(sweep);
    /* Side by side each in its own way. */
    for (uint32_t n = 0; n < run->options->share_index; n++)
        begin_anew(sweep);
    return sweep;
}

/* It lies in the region itself. */
void gc_place_sweep_destroy(struct gc_place_sweep *sweep)
{
    if (sweep == NULL)
        return;
    struct gc_region region = sweep->region;
    gc_region_fini(&region);
}

/* ---- going back ---- */

/* The groups that put these leaves where they are. */
static void suspect(struct gc_place_sweep *sweep, const uint32_t *leaves, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++)
        if (sweep->group_of[leaves[n]] != NONE)
            sweep->is_suspect[sweep->group_of[leaves[n]]] = true;
}

/* Takes the last group back. If it may be to blame, so may those that put in place who ended in it,
 * and others at the same moment. */
static bool take_back(struct gc_place_sweep *sweep, uint32_t *blamed_moment, bool *is_blamed)
{
    const struct gc_place_sweep_group *group = &sweep->groups[sweep->depth - 1];
    *is_blamed = sweep->is_suspect[sweep->depth - 1] || group->moment == *blamed_moment;
    sweep->is_suspect[sweep->depth - 1] = false;
    if (*is_blamed) {
        *blamed_moment = group->moment;
        suspect(sweep, sweep->ended + group->ended_begin, sweep->ended_count - group->ended_begin);
    }
    return gc_place_sweep_take_back(sweep);
}

/* Back to the latest group that may be to blame and has another way. False: there is none. */
static bool go_back(struct gc_place_sweep *sweep)
{
    uint32_t moment = sweep->groups[sweep->depth].moment;
    bool is_blamed;
    suspect(sweep, sweep->open_ends, sweep->open_end_count);
    while (sweep->depth > 0) {
        if (!take_back(sweep, &moment, &is_blamed))
            return false;
        const struct gc_place_sweep_group *group = &sweep->groups[sweep->depth];
        if (is_blamed && (group->way < group->way_end || group->may_move_holes))
            return true;
        sweep->way_count = group->way_begin;
    }
    return false;
}

/* Back by some groups, each time by more until a new one is reached, and on by other ways. */
static bool go_back_further(struct gc_place_sweep *sweep)
{
    const uint32_t depth = sweep->depth > sweep->reach ? sweep->depth - sweep->reach : 0;
    while (sweep->depth > depth)
        if (!gc_place_sweep_take_back(sweep))
            return false;
    memset(sweep->is_suspect, 0, sweep->brim.leaf_count + UINT64_C(1));
    sweep->reach = sweep->reach > sweep->depth ? REACH_MIN : 2 * sweep->reach;
    sweep->fill.noise = gc_mix_u64(sweep->run->options->seed + sweep->trial) ^ sweep->failures;
    return true;
}

/* ---- going on ---- */

/* By the next way that goes; false: none is left. */
static bool go_on(struct gc_place_sweep *sweep, struct gc_place_sweep_group *group)
{
    for (;;) {
        if (group->way == group->way_end && group->may_move_holes)
            gc_place_sweep_move_holes(sweep, group);
        if (group->way == group->way_end)
            return false;
        group->mark = gc_place_tree_mark(&sweep->tree);
        if (gc_place_sweep_take(sweep, group, &sweep->ways[group->way++])) {
            sweep->depth++;
            return true;
        }
        (void)gc_place_tree_undo(&sweep->tree, group->mark);
        gc_place_run_step(sweep->run, 1);
    }
}

/* The next group, or back to an earlier one and on by another way. */
static enum gc_place_verdict advance(struct gc_place_sweep *sweep)
{
    struct gc_place_sweep_group *group = &sweep->groups[sweep->depth];
    while (!go_on(sweep, group) && !sweep->run->stopped) {
        sweep->way_count = group->way_begin;
        const bool is_enough = ++sweep->failures % FAILURES_MAX == 0;
        if (sweep->depth == 0 || !(is_enough ? go_back_further(sweep) : go_back(sweep)))
            return GC_PLACE_GIVEN_UP;
        group = &sweep->groups[sweep->depth];
        (void)gc_place_sweep_find_open(sweep, group->moment);
        gc_place_sweep_find_gaps(sweep);
        if (is_enough) {
            sweep->way_count = group->way_begin;
            gc_place_sweep_find_ways(sweep, group);
        }
    }
    return GC_PLACE_OPEN;
}

static enum gc_place_verdict step(struct gc_place_sweep *sweep)
{
    struct gc_place_sweep_group *group = &sweep->groups[sweep->depth];
    uint32_t moment = sweep->depth == 0 ? 1 : sweep->groups[sweep->depth - 1].moment;
    while (moment < sweep->brim.moment_count && !gc_place_sweep_find_open(sweep, moment))
        moment++;
    if (sweep->depth > sweep->deepest) {
        sweep->deepest = sweep->depth;
        sweep->reach = REACH_MIN;
    }
    if (moment == sweep->brim.moment_count) {
        gc_place_sweep_settle(sweep);
        return GC_PLACE_FOUND;
    }
    group->moment = moment;
    gc_place_sweep_find_gaps(sweep);
    gc_place_sweep_find_ways(sweep, group);
    return advance(sweep);
}

enum gc_place_verdict gc_place_sweep_slice(struct gc_place_sweep *sweep, uint64_t nodes)
{
    struct gc_place_run *run = sweep->run;
    for (const uint64_t end = run->nodes + nodes;
         run->nodes < end && !run->stopped && sweep->verdict == GC_PLACE_OPEN;) {
        const uint64_t before = run->nodes;
        gc_place_run_step(run, 1);
        sweep->verdict = step(sweep);
        const uint64_t spent = run->nodes - before;
        sweep->patience = gc_sub_or_zero_u64(sweep->patience, spent);
        sweep->steps += spent;
        const bool is_over = sweep->trial == TRIAL_MAX || sweep->steps > STEPS_MAX;
        if (!is_over && (sweep->verdict == GC_PLACE_GIVEN_UP ||
                         (sweep->verdict == GC_PLACE_OPEN && sweep->patience == 0)))
            begin_anew(sweep);
        else if (is_over && sweep->verdict == GC_PLACE_OPEN)
            sweep->verdict = GC_PLACE_GIVEN_UP;
    }
    return sweep->verdict;
}

const uint64_t *gc_place_sweep_offsets(const struct gc_place_sweep *sweep)
{
    return sweep->offsets;
}
