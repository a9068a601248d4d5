/* The solver from problem to checked placement.
 *
 * The parts of the problem are solved one after the other, the one with the highest peak first: a
 * part that ends below the highest bound of all needs no more work. */
#include "core/plan/placement.h"

#include "core/base/bits.h"
#include "core/planner/place_exact.h"
#include "core/planner/place_improve.h"
#include "core/planner/place_packed.h"
#include "core/planner/place_run.h"

#define WATCH_NODES 1024
#define PASS_DEAR 2048  /* items of a part of which a pass costs more than a sweep */
#define SWEEP_NODES 512 /* of the first round; each has twice as many */
#define SWEEP_NODES_ALONE                                                                          \
    16384 /* of parts with more than EXACT_FIRST items, where it is likelier */
#define SWEEP_NODES_MAX (UINT64_C(1) << 20)
#define LEEWAY 16 /* a part of the peak by which an order may be worse and still be improved */
#define IMPROVE_ORDERS 3
#define IMPROVE_ROUNDS 32 /* in vain before an order is left */
#define EXACT_ALONE 16    /* parts with fewer items need no local search, */
#define EXACT_FIRST 512   /* those with fewer a little */
#define MEMO_BYTES_MAX GC_MIB(32)
#define MEMO_BYTES_PER_PAIR UINT64_C(1024) /* of items */

uint64_t gc_place_run_peak(const struct gc_place_run *run)
{
    uint64_t peak = 0;
    for (uint32_t p = 0; p < run->parts.count; p++)
        peak = gc_max_u64(peak, run->parts.parts[p].peak);
    return peak;
}

bool gc_place_run_look(struct gc_place_run *run)
{
    const struct gc_placement_options *options = run->options;
    run->watch_at = run->nodes + WATCH_NODES;
    if (options->watch != NULL && !run->is_late)
        run->is_late = !options->watch(options->watch_argument, run->bound, gc_place_run_peak(run),
                                       run->nodes);
    run->stopped = run->stopped || run->is_late;
    return !run->is_late;
}

bool gc_place_run_step(struct gc_place_run *run, uint64_t nodes)
{
    const uint64_t node_max = run->options->node_max;
    run->nodes += nodes;
    if (node_max != GC_PLACEMENT_NODES_UNLIMITED && run->nodes >= node_max)
        run->stopped = true;
    if (!run->stopped && run->nodes >= run->watch_at)
        (void)gc_place_run_look(run);
    return !run->stopped;
}

static enum gc_status improve_best(struct gc_place_greedy *greedy,
                                   uint64_t peaks[GC_PLACE_ORDER_COUNT])
{
    const struct gc_place_part *part = greedy->part;
    const unsigned rounds = part->count < EXACT_FIRST ? IMPROVE_ROUNDS / 4 : IMPROVE_ROUNDS;
    if (part->count < EXACT_ALONE)
        return GC_OK;
    for (unsigned n = 0; n < IMPROVE_ORDERS; n++) {
        unsigned best = 0;
        for (unsigned by = 1; by < GC_PLACE_ORDER_COUNT; by++)
            best = peaks[by] < peaks[best] ? by : best;
        if (peaks[best] == UINT64_MAX || part->peak <= greedy->run->target)
            break;
        peaks[best] = UINT64_MAX;
        gc_place_order(part, &greedy->sorter, (enum gc_place_order)best, greedy->order);
        const enum gc_status status = gc_place_improve(greedy, rounds);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

/* Every order once, then local search from those that did best. */
static enum gc_status solve_greedily(struct gc_place_greedy *greedy, struct gc_place_part *part)
{
    struct gc_place_run *run = greedy->run;
    uint64_t peaks[GC_PLACE_ORDER_COUNT];
    enum gc_status status = GC_OK;
    bool goes_on;
    gc_place_greedy_use(greedy, part);
    if (part->count >= PASS_DEAR)
        status = gc_place_packed_try(greedy, 0, &goes_on);
    if (status != GC_OK)
        return status;
    /* By size is the best on large graphs, which may have time for few. */
    for (unsigned n = 0; n < GC_PLACE_ORDER_COUNT; n++) {
        const unsigned by = (GC_PLACE_BY_BYTES + n) % GC_PLACE_ORDER_COUNT;
        if (part->peak <= run->target || (run->stopped && part->peak != UINT64_MAX))
            return GC_OK;
        gc_place_order(part, &greedy->sorter, (enum gc_place_order)by, greedy->order);
        const uint64_t leeway = part->peak == UINT64_MAX ? 0 : part->peak / LEEWAY;
        status = gc_place_greedy_pass(greedy, part->peak - 1 + leeway, &peaks[by]);
        if (status != GC_OK)
            return status;
        gc_place_greedy_keep(greedy, peaks[by]);
    }
    if (part->count >= EXACT_ALONE && part->count < PASS_DEAR && part->peak > run->target)
        status = gc_place_packed_try(greedy, 0, &goes_on);
    return status == GC_OK ? improve_best(greedy, peaks) : status;
}

/* The part that makes the peak, unless it is good enough. */
static struct gc_place_part *worst_part(struct gc_place_run *run)
{
    struct gc_place_part *worst = NULL;
    for (uint32_t p = 0; p < run->parts.count; p++) {
        struct gc_place_part *part = &run->parts.parts[p];
        if (part->peak > gc_max_u64(run->target, part->bound) &&
            (worst == NULL || part->peak > worst->peak))
            worst = part;
    }
    return worst;
}

static void raise_bound(struct gc_place_run *run, const struct gc_place_part *part)
{
    run->bound = gc_max_u64(run->bound, part->bound);
    run->target = gc_max_u64(run->target, run->bound);
}

/* Of one part. */
struct rounds {
    struct gc_place_exact *exact; /* NULL: the part is too large for it */
    uint64_t sweep_nodes;         /* 0: there was no round yet */
};

/* Another round of all that is not over; *goes_on: something is not. */
static enum gc_status go_round(struct gc_place_greedy *greedy, struct gc_place_part *part,
                               struct gc_place_memo *memo, struct rounds *rounds, bool *goes_on)
{
    bool sweep_goes_on;
    gc_place_greedy_use(greedy, part);
    if (rounds->sweep_nodes == 0) {
        rounds->exact = gc_place_exact_create(greedy, memo);
        rounds->sweep_nodes = part->count < EXACT_FIRST ? SWEEP_NODES : SWEEP_NODES_ALONE;
    }
    const enum gc_status status = gc_place_packed_try(greedy, rounds->sweep_nodes, &sweep_goes_on);
    rounds->sweep_nodes = gc_min_u64(2 * rounds->sweep_nodes, SWEEP_NODES_MAX);
    *goes_on = sweep_goes_on;
    if (status == GC_OK && rounds->exact != NULL)
        *goes_on = gc_place_exact_round(rounds->exact) || sweep_goes_on;
    return status;
}

/* Rounds of search for whichever part makes the peak, until all are good enough. */
static enum gc_status solve_exactly(struct gc_place_greedy *greedy)
{
    struct gc_place_run *run = greedy->run;
    struct gc_place_memo memo = {0};
    enum gc_status status = GC_OK;
    bool goes_on = true;
    struct gc_place_part *part = worst_part(run);
    if (part == NULL || run->stopped)
        return GC_OK;
    struct rounds *rounds = gc_region_alloc(run->region, run->parts.count * sizeof(*rounds));
    if (rounds == NULL)
        return GC_NO_HOST_MEMORY;
    gc_place_memo_init(&memo, run->region,
                       gc_min_u64(MEMO_BYTES_MAX, MEMO_BYTES_PER_PAIR * part->count * part->count));
    for (; part != NULL && goes_on && !run->stopped && status == GC_OK; part = worst_part(run)) {
        status = go_round(greedy, part, &memo, &rounds[part - run->parts.parts], &goes_on);
        raise_bound(run, part);
    }
    return status;
}

static enum gc_status solve_parts(struct gc_place_run *run)
{
    struct gc_place_greedy greedy;
    enum gc_status status = gc_place_greedy_init(&greedy, run);
    for (uint32_t p = 0; status == GC_OK && p < run->parts.count; p++)
        status = solve_greedily(&greedy, &run->parts.parts[p]);
    if (status == GC_OK)
        status = solve_exactly(&greedy);
    gc_place_packed_end(run);
    return status;
}

static enum gc_status write_offsets(const struct gc_place_run *run, struct gc_region *region,
                                    const struct gc_placement_problem *problem,
                                    struct gc_placement *placement)
{
    placement->offsets = gc_region_alloc(region, problem->count * sizeof(uint64_t));
    if (placement->offsets == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++)
        placement->offsets[i] =
            problem->buffers[i].fixed != GC_PLACEMENT_FREE ? problem->buffers[i].fixed : 0;
    for (uint32_t p = 0; p < run->parts.count; p++) {
        const struct gc_place_part *part = &run->parts.parts[p];
        for (uint32_t i = 0; i < part->count; i++)
            placement->offsets[part->buffers[i]] = part->offsets[i];
    }
    return GC_OK;
}

static enum gc_status solve(struct gc_place_run *run, const struct gc_placement_problem *problem)
{
    struct gc_placement_fault fault;
    uint64_t peak;
    enum gc_status status = gc_placement_check(run->region, problem, NULL, &peak, &fault);
    if (status == GC_OK)
        status = gc_place_prepare(run->region, problem, &run->parts);
    if (status != GC_OK)
        return status;
    for (uint32_t p = 0; p < run->parts.count; p++) {
        run->parts.parts[p].peak = UINT64_MAX;
        run->bound = gc_max_u64(run->bound, run->parts.parts[p].bound);
    }
    run->target = run->bound;
    if (problem->capacity_bytes != GC_PLACEMENT_UNLIMITED)
        run->target = gc_max_u64(run->target, problem->capacity_bytes);
    return solve_parts(run);
}

/* What is needed on the way is given back; the offsets alone stay in the caller's region. */
enum gc_status gc_placement_solve(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_placement_options *options,
                                  struct gc_placement *placement)
{
    static const struct gc_placement_options defaults;
    struct gc_region scratch;
    struct gc_place_run run = {
        .region = &scratch, .problem = problem, .options = options != NULL ? options : &defaults};
    struct gc_placement_fault fault;
    *placement = (struct gc_placement){0};
    gc_region_init(&scratch, gc_sub_or_zero_u64(region->bytes_max, gc_region_bytes(region)));
    enum gc_status status = solve(&run, problem);
    if (status == GC_OK)
        status = write_offsets(&run, region, problem, placement);
    if (status == GC_OK)
        status = gc_placement_check(&scratch, problem, placement->offsets, &placement->peak_bytes,
                                    &fault);
    placement->lower_bound_bytes = run.bound;
    placement->nodes = run.nodes;
    placement->optimal = status == GC_OK && placement->peak_bytes == run.bound;
    placement->fits = status == GC_OK && placement->peak_bytes <= problem->capacity_bytes;
    gc_region_fini(&scratch);
    return status;
}
