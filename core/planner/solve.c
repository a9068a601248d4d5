/* The solver, from problem to checked placement: online best fit, first fit by every order, local
 * search from the best orders, then rounds for the component with the highest peak, until the run
 * stops: exact search of a small one, ejections and local search of a large one, all three between.
 * A component whose peak is below the highest bound of all needs no more work. */
#include "core/base/bits.h"
#include "core/plan/placement.h"
#include "core/planner/eject.h"
#include "core/planner/exact.h"
#include "core/planner/fit.h"
#include "core/planner/place.h"

#define LEEWAY                                                                                     \
    16 /* an order may be improved if its peak is at most this fraction (1/n) above the best       \
        */
#define IMPROVE_ORDERS 3
#define IMPROVE_ROUNDS 32   /* without a gain before an order is dropped */
#define EXACT_ALONE 16      /* components with fewer items get no local search, */
#define EXACT_FIRST 512     /* those with fewer than this a short one, and none later */
#define IMPROVE_FIRST 32768 /* components with more get ejections first */

static enum gc_status improve_best(struct gc_place_greedy *greedy,
                                   uint64_t peaks[GC_PLACE_ORDER_COUNT])
{
    const struct gc_place_component *component = greedy->component;
    const unsigned rounds = component->count < EXACT_FIRST ? IMPROVE_ROUNDS / 4 : IMPROVE_ROUNDS;
    if (component->count < EXACT_ALONE || component->count > IMPROVE_FIRST)
        return GC_OK;
    for (unsigned n = 0; n < IMPROVE_ORDERS; n++) {
        unsigned best = 0;
        for (unsigned by = 1; by < GC_PLACE_ORDER_COUNT; by++)
            best = peaks[by] < peaks[best] ? by : best;
        if (peaks[best] == UINT64_MAX || component->peak <= greedy->run->target)
            break;
        peaks[best] = UINT64_MAX;
        gc_order_build(component, &greedy->sorter, (enum gc_order_build)best, greedy->order);
        const enum gc_status status = gc_improve(greedy, rounds);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

/* A pass of first fit in the n-th order to be tried: by size is the best on large graphs, which may
 * have time for few orders. */
static enum gc_status try_order(struct gc_place_greedy *greedy, unsigned n,
                                uint64_t peaks[GC_PLACE_ORDER_COUNT])
{
    const struct gc_place_component *component = greedy->component;
    const unsigned by = (GC_PLACE_BY_BYTES + n) % GC_PLACE_ORDER_COUNT;
    gc_order_build(component, &greedy->sorter, (enum gc_order_build)by, greedy->order);
    const enum gc_status status =
        gc_greedy_pass(greedy, component->peak - 1 + component->peak / LEEWAY, &peaks[by]);
    if (status == GC_OK)
        gc_greedy_save(greedy, peaks[by]);
    return status;
}

/* Every order once, then local search from the best orders. A large component gets the first order
 * alone: ejections come before the others. */
static enum gc_status solve_greedily(struct gc_place_greedy *greedy,
                                     struct gc_place_component *component)
{
    struct gc_place_run *run = greedy->run;
    uint64_t peaks[GC_PLACE_ORDER_COUNT];
    const unsigned orders = component->count > IMPROVE_FIRST ? 1 : GC_PLACE_ORDER_COUNT;
    gc_greedy_select(greedy, component);
    for (unsigned n = 0; n < orders; n++) {
        if (component->peak <= run->target || run->stopped)
            return GC_OK;
        const enum gc_status status = try_order(greedy, n, peaks);
        if (status != GC_OK)
            return status;
    }
    return improve_best(greedy, peaks);
}

/* The component with the highest peak; NULL if it is good enough. */
static struct gc_place_component *worst_component(struct gc_place_run *run)
{
    struct gc_place_component *worst = NULL;
    for (uint32_t p = 0; p < run->components.count; p++) {
        struct gc_place_component *component = &run->components.components[p];
        if (component->peak > gc_max_u64(run->target, component->bound) &&
            (worst == NULL || component->peak > worst->peak))
            worst = component;
    }
    return worst;
}

static void raise_bound(struct gc_place_run *run, const struct gc_place_component *component)
{
    run->bound = gc_max_u64(run->bound, component->bound);
    run->target = gc_max_u64(run->target, run->bound);
}

/* The searches of one component, created in its first round. */
struct exact_slot {
    struct gc_place_exact *exact; /* NULL: the component is too large for exact search */
    struct gc_place_eject *eject; /* NULL: it is small */
    unsigned orders;              /* of first fit, tried */
    bool is_made;
};

/* First fit by the offsets of a placement places no item higher than that one does. */
static enum gc_status improve_placement(struct gc_place_greedy *greedy)
{
    const struct gc_place_component *component = greedy->component;
    for (uint32_t i = 0; i < component->count; i++) {
        greedy->order[i] = i;
        greedy->sorter.keys[i] = component->offsets[i];
    }
    gc_order_sort(&greedy->sorter, greedy->order, component->count);
    return gc_improve(greedy, IMPROVE_ROUNDS);
}

/* The highest peak of the other components. */
static uint64_t second_peak(const struct gc_place_run *run,
                            const struct gc_place_component *component)
{
    uint64_t peak = 0;
    for (uint32_t p = 0; p < run->components.count; p++)
        if (&run->components.components[p] != component)
            peak = gc_max_u64(peak, run->components.components[p].peak);
    return peak;
}

/* Another round for the component: ejections, for as many steps as all before, exact searches, and
 * another order or local search where it is large or has none. *goes_on: there is more to try. */
static enum gc_status search_round(struct gc_place_greedy *greedy,
                                   struct gc_place_component *component, struct gc_place_memo *memo,
                                   struct exact_slot *slot, bool *goes_on)
{
    gc_greedy_select(greedy, component);
    if (!slot->is_made) {
        slot->eject = component->count < EXACT_FIRST ? NULL : gc_eject_create(greedy);
        slot->exact = gc_exact_create(greedy, memo);
        slot->orders = component->count > IMPROVE_FIRST ? 1 : GC_PLACE_ORDER_COUNT;
    }
    slot->is_made = true;
    if (slot->eject != NULL)
        gc_eject_run(slot->eject, greedy->run->nodes, second_peak(greedy->run, component));
    *goes_on = slot->exact != NULL && gc_exact_round(slot->exact);
    if (slot->exact != NULL && component->count < EXACT_FIRST)
        return GC_OK;
    const struct gc_placement_options *options = greedy->run->options;
    const bool has_orders = slot->orders < GC_PLACE_ORDER_COUNT;
    *goes_on = *goes_on || has_orders || options->watch != NULL ||
               options->node_max != GC_PLACEMENT_NODES_UNLIMITED;
    if (component->peak <= greedy->run->target || greedy->run->stopped)
        return GC_OK;
    uint64_t peaks[GC_PLACE_ORDER_COUNT];
    return has_orders ? try_order(greedy, slot->orders++, peaks) : improve_placement(greedy);
}

/* Runs rounds of search for the component with the highest peak, until every peak is good enough.
 */
static enum gc_status solve_further(struct gc_place_greedy *greedy)
{
    struct gc_place_run *run = greedy->run;
    struct gc_place_memo memo = {0};
    bool goes_on = true;
    enum gc_status status = GC_OK;
    struct gc_place_component *component = worst_component(run);
    if (component == NULL || run->stopped)
        return GC_OK;
    struct exact_slot *slots = gc_region_alloc(run->region, run->components.count * sizeof(*slots));
    if (slots == NULL)
        return GC_NO_HOST_MEMORY;
    for (; status == GC_OK && component != NULL && goes_on && !run->stopped;
         component = worst_component(run)) {
        status = search_round(greedy, component, &memo,
                              &slots[component - run->components.components], &goes_on);
        raise_bound(run, component);
    }
    return status;
}

static enum gc_status solve_components(struct gc_place_run *run)
{
    struct gc_place_greedy greedy = {.run = run};
    enum gc_status status = gc_fit_components(run);
    if (status == GC_OK)
        status = gc_greedy_init(&greedy, run);
    for (uint32_t p = 0; status == GC_OK && p < run->components.count; p++)
        status = solve_greedily(&greedy, &run->components.components[p]);
    return status == GC_OK ? solve_further(&greedy) : status;
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
    for (uint32_t p = 0; p < run->components.count; p++) {
        const struct gc_place_component *component = &run->components.components[p];
        for (uint32_t i = 0; i < component->count; i++)
            placement->offsets[component->buffers[i]] = component->offsets[i];
    }
    return GC_OK;
}

static enum gc_status solve(struct gc_place_run *run, const struct gc_placement_problem *problem)
{
    struct gc_placement_fault fault;
    uint64_t peak;
    enum gc_status status = gc_placement_check(run->region, problem, NULL, &peak, &fault);
    if (status == GC_OK)
        status = gc_place_prepare(run->region, problem, &run->components);
    if (status != GC_OK)
        return status;
    for (uint32_t p = 0; p < run->components.count; p++)
        run->bound = gc_max_u64(run->bound, run->components.components[p].bound);
    run->target = run->bound;
    if (problem->capacity_bytes != GC_PLACEMENT_UNLIMITED)
        run->target = gc_max_u64(run->target, problem->capacity_bytes);
    return solve_components(run);
}

/* Scratch memory is released; only the offsets stay in the caller's region. */
enum gc_status gc_solve_placement(struct gc_region *region,
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
    gc_region_fini(&scratch);
    if (status == GC_OK)
        status =
            gc_placement_check(region, problem, placement->offsets, &placement->peak_bytes, &fault);
    placement->lower_bound_bytes = run.bound;
    placement->nodes = run.nodes;
    placement->optimal = status == GC_OK && placement->peak_bytes == run.bound;
    placement->fits = status == GC_OK && placement->peak_bytes <= problem->capacity_bytes;
    return status;
}
