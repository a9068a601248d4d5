#include "core/schedule/run_place.h"

#include "core/base/bits.h"
#include "core/base/sort.h"

#include <string.h>

/* Steps of search of a candidate. */
#define TRIAL_NODES 4000

/* Sources of the crossing allocations' offsets. */
enum candidate {
    APART_TAIL, /* the relaxation's, of the parts at the step's end */
    APART_HEAD, /* of the parts at its start */
    BY_HEAD,    /* stacked: the longest life in the next step lowest */
    BY_TAIL,    /* the earliest made lowest */
    BY_LIFE,    /* the longest life lowest */
    WHOLE,      /* no fixed offsets: each has its place for the whole step */
    CANDIDATE_COUNT,
};

struct placing {
    struct gc_region *region;
    const struct gc_run_problem *problem;
    const struct gc_placement_options *options;
    uint64_t capacity_bytes;
    gc_run_solve *solve;
    void *argument;
    /* The problem on the line: first the parts of crossing allocations, head and tail in turn, then
     * all other entries. */
    struct gc_placement_buffer *buffers;
    uint32_t *entries; /* by buffer */
    uint32_t count;
    uint64_t *keys;
    uint64_t *apart[2]; /* by crossing: the relaxation's offset of its tail, of its head */
    uint64_t *trial;    /* by crossing: the candidate's offsets */
    uint64_t *offsets;  /* by entry: the best */
    uint64_t peak_bytes;
    uint64_t nodes;
};

/* ---- the problem on the line ---- */

static void add_buffer(struct placing *placing, uint32_t entry, uint64_t lower, uint64_t upper)
{
    placing->buffers[placing->count] = placing->problem->buffers[entry];
    placing->buffers[placing->count].lower = lower;
    placing->buffers[placing->count].upper = upper;
    placing->entries[placing->count++] = entry;
}

/* The predecessor's life, before the step and in it, belongs to the head. */
static void add_crossing(struct placing *placing, const struct gc_run_crossing *crossing)
{
    const struct gc_run_problem *problem = placing->problem;
    const struct gc_plan_entry *entry = &problem->entries[crossing->entry];
    uint64_t lower = problem->loop_time;
    uint64_t upper = lower + (entry->upper - problem->end_time);
    if (crossing->before != GC_RUN_NONE) {
        lower = problem->entries[crossing->before].lower;
        upper = gc_max_u64(upper, problem->entries[crossing->before].upper);
    }
    add_buffer(placing, crossing->entry, lower, upper);
    add_buffer(placing, crossing->entry, entry->lower, problem->end_time);
}

static enum gc_status make_line(struct placing *placing)
{
    const struct gc_run_problem *problem = placing->problem;
    const uint64_t crossings = problem->crossing_count;
    const uint64_t room = problem->count + crossings;
    bool *is_added = gc_region_alloc(placing->region, problem->count);
    placing->buffers = gc_region_alloc(placing->region, room * sizeof(*placing->buffers));
    placing->entries = gc_region_alloc(placing->region, room * sizeof(*placing->entries));
    placing->keys = gc_region_alloc(placing->region, crossings * sizeof(uint64_t));
    placing->apart[0] = gc_region_alloc(placing->region, crossings * sizeof(uint64_t));
    placing->apart[1] = gc_region_alloc(placing->region, crossings * sizeof(uint64_t));
    placing->trial = gc_region_alloc(placing->region, crossings * sizeof(uint64_t));
    placing->offsets = gc_region_alloc(placing->region, problem->count * sizeof(uint64_t));
    if (is_added == NULL || placing->buffers == NULL || placing->entries == NULL ||
        placing->keys == NULL || placing->apart[0] == NULL || placing->apart[1] == NULL ||
        placing->trial == NULL || placing->offsets == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < crossings; i++) {
        const struct gc_run_crossing *crossing = &problem->crossings[i];
        add_crossing(placing, crossing);
        is_added[crossing->entry] = true;
        if (crossing->before != GC_RUN_NONE)
            is_added[crossing->before] = true;
    }
    for (uint32_t i = 0; i < problem->count; i++) {
        if (!is_added[i])
            add_buffer(placing, i, problem->buffers[i].lower, problem->buffers[i].upper);
    }
    return GC_OK;
}

/* ---- the candidates ---- */

static uint64_t key_of(const struct placing *placing, enum candidate candidate, uint32_t crossing)
{
    const struct gc_run_problem *problem = placing->problem;
    const struct gc_plan_entry *entry = &problem->entries[problem->crossings[crossing].entry];
    const uint32_t head = entry->upper - problem->end_time;
    const uint32_t tail = problem->end_time - entry->lower;
    const uint32_t length = candidate == BY_HEAD   ? head
                            : candidate == BY_TAIL ? tail
                                                   : entry->upper - entry->lower;
    return (uint64_t)(UINT32_MAX - length) << 32 | crossing;
}

/* The longest first, from the top of what lasts. */
static void stack(struct placing *placing, enum candidate candidate)
{
    const struct gc_run_problem *problem = placing->problem;
    uint64_t offset = problem->lasting_bytes;
    for (uint32_t i = 0; i < problem->crossing_count; i++)
        placing->keys[i] = key_of(placing, candidate, i);
    gc_sort_keys(placing->keys, problem->crossing_count);
    for (uint32_t i = 0; i < problem->crossing_count; i++) {
        const uint32_t crossing = (uint32_t)placing->keys[i];
        placing->trial[crossing] = offset;
        offset += problem->entries[problem->crossings[crossing].entry].bytes;
    }
}

/* Lasting entries lie below a stack: all other buffers are in the valley above both. */
static void fix(struct placing *placing, enum candidate candidate)
{
    const struct gc_run_problem *problem = placing->problem;
    const bool is_stack = candidate >= BY_HEAD && candidate <= BY_LIFE;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < 2 * problem->crossing_count; i++)
        placing->buffers[i].fixed = candidate == WHOLE ? GC_PLACEMENT_FREE : placing->trial[i / 2];
    for (uint32_t i = 2 * problem->crossing_count; i < placing->count; i++) {
        struct gc_placement_buffer *buffer = &placing->buffers[i];
        const bool is_lasting = buffer->upper == problem->end_time;
        buffer->fixed = is_stack && is_lasting ? offset : GC_PLACEMENT_FREE;
        offset += is_lasting ? buffer->bytes : 0;
    }
}

/* ---- solving ---- */

static uint64_t limit_nodes(const struct placing *placing, uint64_t nodes)
{
    const uint64_t limit = placing->options->node_max;
    const uint64_t rest = gc_sub_or_zero_u64(limit, placing->nodes);
    if (limit == GC_PLACEMENT_NODES_UNLIMITED)
        return nodes;
    return nodes == GC_PLACEMENT_NODES_UNLIMITED || rest < nodes ? gc_max_u64(rest, 1) : nodes;
}

static enum gc_status solve_line(struct placing *placing, uint64_t nodes,
                                 struct gc_placement *placement)
{
    struct gc_placement_options options = *placing->options;
    const struct gc_placement_problem problem = {placing->buffers, placing->count,
                                                 placing->capacity_bytes};
    options.node_max = limit_nodes(placing, nodes);
    const enum gc_status status =
        placing->solve(placing->argument, placing->region, &problem, &options, placement);
    if (status == GC_OK)
        placing->nodes += placement->nodes;
    return status;
}

/* Keeps the offsets if their peak is lower than the best one's. */
static void keep(struct placing *placing, const struct gc_placement *placement)
{
    const struct gc_run_problem *problem = placing->problem;
    if (placement->peak_bytes >= placing->peak_bytes)
        return;
    placing->peak_bytes = placement->peak_bytes;
    for (uint32_t i = 0; i < placing->count; i++)
        placing->offsets[placing->entries[i]] = placement->offsets[i];
    for (uint32_t i = 0; i < problem->crossing_count; i++) {
        const struct gc_run_crossing *crossing = &problem->crossings[i];
        if (crossing->before != GC_RUN_NONE)
            placing->offsets[crossing->before] = placing->offsets[crossing->entry];
    }
}

static bool is_done(const struct placing *placing)
{
    return placing->peak_bytes <= gc_max_u64(placing->problem->live_bytes,
                                             placing->capacity_bytes == GC_PLACEMENT_UNLIMITED
                                                 ? 0
                                                 : placing->capacity_bytes);
}

static enum gc_status relax(struct placing *placing)
{
    struct gc_placement placement;
    const enum gc_status status = solve_line(placing, TRIAL_NODES, &placement);
    for (uint32_t i = 0; status == GC_OK && i < placing->problem->crossing_count; i++) {
        placing->apart[0][i] = placement.offsets[2 * i + 1];
        placing->apart[1][i] = placement.offsets[2 * i];
    }
    return status;
}

/* One buffer from its predecessor's start to the end, in the place of both parts. */
static enum gc_status solve_whole(struct placing *placing, uint64_t nodes,
                                  struct gc_placement *placement)
{
    const uint32_t crossings = placing->problem->crossing_count;
    for (uint32_t i = 0; i < crossings; i++) {
        placing->keys[i] = placing->buffers[2 * i].upper;
        placing->buffers[2 * i].upper = placing->problem->end_time;
        placing->buffers[2 * i + 1].bytes = 0;
    }
    const enum gc_status status = solve_line(placing, nodes, placement);
    for (uint32_t i = 0; i < crossings; i++) {
        placing->buffers[2 * i].upper = placing->keys[i];
        placing->buffers[2 * i + 1].bytes = placing->buffers[2 * i].bytes;
        if (status == GC_OK)
            placement->offsets[2 * i + 1] = placement->offsets[2 * i];
    }
    return status;
}

static enum gc_status try_candidate(struct placing *placing, enum candidate candidate,
                                    uint64_t nodes, struct gc_placement *placement)
{
    if (candidate >= BY_HEAD && candidate <= BY_LIFE)
        stack(placing, candidate);
    else if (candidate != WHOLE)
        memcpy(placing->trial, placing->apart[candidate],
               placing->problem->crossing_count * sizeof(uint64_t));
    fix(placing, candidate);
    const enum gc_status status = candidate == WHOLE ? solve_whole(placing, nodes, placement)
                                                     : solve_line(placing, nodes, placement);
    if (status == GC_OK)
        keep(placing, placement);
    return status;
}

/* Each candidate gets a short search; the best one then the rest of the time. */
static enum gc_status place_crossing(struct placing *placing)
{
    struct gc_placement placement;
    uint64_t least = UINT64_MAX;
    enum candidate best = WHOLE;
    enum gc_status status = make_line(placing);
    if (status == GC_OK)
        status = relax(placing);
    for (unsigned i = 0; status == GC_OK && i < CANDIDATE_COUNT && !is_done(placing); i++) {
        status = try_candidate(placing, (enum candidate)i, TRIAL_NODES, &placement);
        if (status == GC_OK && placement.peak_bytes < least) {
            least = placement.peak_bytes;
            best = (enum candidate)i;
        }
    }
    if (status == GC_OK && !is_done(placing))
        status = try_candidate(placing, best, GC_PLACEMENT_NODES_UNLIMITED, &placement);
    return status;
}

enum gc_status gc_run_place(struct gc_region *region, const struct gc_run_problem *problem,
                            uint64_t capacity_bytes, const struct gc_placement_options *options,
                            gc_run_solve *solve, void *argument, struct gc_placement *placement)
{
    struct placing placing = {.region = region,
                              .problem = problem,
                              .options = options,
                              .capacity_bytes = capacity_bytes,
                              .solve = solve,
                              .argument = argument,
                              .peak_bytes = UINT64_MAX};
    if (problem->crossing_count == 0) {
        const struct gc_placement_problem line = {problem->buffers, problem->count, capacity_bytes};
        return solve(argument, region, &line, options, placement);
    }
    const enum gc_status status = place_crossing(&placing);
    *placement = (struct gc_placement){.offsets = placing.offsets,
                                       .peak_bytes = placing.peak_bytes,
                                       .lower_bound_bytes = problem->live_bytes,
                                       .nodes = placing.nodes,
                                       .optimal = placing.peak_bytes == problem->live_bytes,
                                       .fits = placing.peak_bytes <= capacity_bytes};
    return status;
}
