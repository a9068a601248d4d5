/* The solver, from problem to checked placement: online best fit, then rounds for the component
 * with the highest peak, until the run stops. The first is first fit by every order, and local
 * search from the best; the later ones are exact search of a small component, ejections and local
 * search of a large one, all three between. A component whose peak is below the highest bound of
 * all needs no more work. */
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
#define IMPROVE_FIRST 32768 /* components with more get ejections after one order, */
#define EJECT_FIRST 262144  /* those with more than this before it too: a pass may take seconds */

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

/* The searches of one component, created in its second round. */
struct search {
    struct gc_place_exact *exact; /* NULL: the component is too large for exact search */
    struct gc_place_eject *eject; /* NULL: it is small */
    unsigned orders;              /* of first fit, tried; 0: nothing was done yet */
    bool has_exact;               /* it was created, or refused */
    bool has_eject;
};

/* Ejections from best fit, for about a step for each item. */
static void eject_first(struct gc_place_greedy *greedy, struct search *search)
{
    const uint64_t count = greedy->component->count;
    search->eject = gc_eject_create(greedy);
    search->has_eject = true;
    if (search->eject != NULL)
        gc_eject_run(search->eject, count, 2 * count);
}

/* Every order once, then local search from the best orders. A large component gets the first order
 * alone: ejections come before the others, and before the first where it is very large. */
static enum gc_status first_round(struct gc_place_greedy *greedy, struct search *search)
{
    const struct gc_place_component *component = greedy->component;
    uint64_t peaks[GC_PLACE_ORDER_COUNT];
    const unsigned orders = component->count > IMPROVE_FIRST ? 1 : GC_PLACE_ORDER_COUNT;
    for (unsigned by = 0; by < GC_PLACE_ORDER_COUNT; by++)
        peaks[by] = UINT64_MAX; /* not tried */
    if (component->count > EJECT_FIRST && !search->has_eject) {
        eject_first(greedy, search);
        if (component->peak < greedy->run->second)
            return GC_OK;
    }
    while (search->orders < orders) {
        if (component->peak <= greedy->run->target || greedy->run->stopped)
            return GC_OK;
        const enum gc_status status = try_order(greedy, search->orders++, peaks);
        if (status != GC_OK)
            return status;
        if (search->eject != NULL && peaks[GC_PLACE_BY_BYTES] != UINT64_MAX)
            gc_eject_pass(search->eject, component->count);
    }
    return improve_best(greedy, peaks);
}

static void raise_bound(struct gc_place_run *run, const struct gc_place_component *component)
{
    run->bound = gc_max_u64(run->bound, component->bound);
    run->target = gc_max_u64(run->target, run->bound);
}

/* The components with the highest peaks: a binary heap (Williams, 1964). A round lowers the peak of
 * the first alone. */
struct worst {
    struct gc_place_component **heap;
    uint32_t count;
};

static uint64_t peak_at(const struct worst *worst, uint32_t n)
{
    return n < worst->count ? worst->heap[n]->peak : 0;
}

static void sink(struct worst *worst, uint32_t n)
{
    for (;;) {
        const uint32_t child = 2 * n + 1 + (peak_at(worst, 2 * n + 2) > peak_at(worst, 2 * n + 1));
        if (peak_at(worst, child) <= peak_at(worst, n))
            return;
        struct gc_place_component *lower = worst->heap[n];
        worst->heap[n] = worst->heap[child];
        worst->heap[child] = lower;
        n = child;
    }
}

static bool worst_init(struct worst *worst, const struct gc_place_run *run)
{
    worst->count = run->components.count;
    worst->heap = gc_region_alloc(run->region, worst->count * sizeof(struct gc_place_component *));
    for (uint32_t p = 0; worst->heap != NULL && p < worst->count; p++)
        worst->heap[p] = &run->components.components[p];
    for (uint32_t n = worst->count / 2; worst->heap != NULL && n-- > 0;)
        sink(worst, n);
    return worst->heap != NULL;
}

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

/* All components in search. */
struct searches {
    struct search *of;             /* components */
    struct gc_region exact_memory; /* of exact searches alone */
    struct gc_place_memo memo;     /* there too */
};

/* Where memory is short, those of the other components end. */
static struct gc_place_exact *create_exact(struct gc_place_greedy *greedy,
                                           struct searches *searches)
{
    struct gc_region *memory = &searches->exact_memory;
    struct gc_place_exact *exact = gc_exact_create(greedy, memory, &searches->memo);
    if (!memory->full)
        return exact;
    const uint64_t bytes_max = memory->bytes_max;
    gc_region_fini(memory);
    gc_region_init(memory, bytes_max);
    searches->memo = (struct gc_place_memo){0};
    for (uint32_t p = 0; p < greedy->run->components.count; p++) {
        searches->of[p].has_exact = searches->of[p].exact == NULL && searches->of[p].has_exact;
        searches->of[p].exact = NULL;
    }
    return gc_exact_create(greedy, memory, &searches->memo);
}

/* Another round for the component: ejections, for as many steps as all before, exact searches, and
 * another order or local search where it is large or has none. *goes_on: there is more to try. */
static enum gc_status search_round(struct gc_place_greedy *greedy, struct searches *searches,
                                   struct search *search, bool *goes_on)
{
    const struct gc_place_component *component = greedy->component;
    if (!search->has_eject && component->count >= EXACT_FIRST)
        search->eject = gc_eject_create(greedy);
    search->has_eject = true;
    if (!search->has_exact)
        search->exact = create_exact(greedy, searches);
    search->has_exact = true;
    if (search->eject != NULL)
        gc_eject_run(search->eject, greedy->run->nodes, UINT64_MAX);
    *goes_on = search->exact != NULL && gc_exact_round(search->exact);
    if (search->exact != NULL && component->count < EXACT_FIRST)
        return GC_OK;
    const struct gc_placement_options *options = greedy->run->options;
    const bool has_orders = search->orders < GC_PLACE_ORDER_COUNT;
    *goes_on = *goes_on || has_orders || options->watch != NULL ||
               options->node_max != GC_PLACEMENT_NODES_UNLIMITED;
    if (component->peak <= greedy->run->target || greedy->run->stopped)
        return GC_OK;
    uint64_t peaks[GC_PLACE_ORDER_COUNT];
    return has_orders ? try_order(greedy, search->orders++, peaks) : improve_placement(greedy);
}

/* Rounds for the component with the highest peak, until every peak is good enough. */
static enum gc_status search_components(struct gc_place_greedy *greedy, struct worst *worst,
                                        struct searches *searches)
{
    struct gc_place_run *run = greedy->run;
    enum gc_status status = GC_OK;
    bool goes_on = true;
    while (status == GC_OK && goes_on && !run->stopped && peak_at(worst, 0) > run->target) {
        struct gc_place_component *component = worst->heap[0];
        struct search *search = &searches->of[component - run->components.components];
        run->component = component;
        run->second = gc_max_u64(peak_at(worst, 1), peak_at(worst, 2));
        gc_greedy_select(greedy, component);
        status = search->orders == 0 ? first_round(greedy, search)
                                     : search_round(greedy, searches, search, &goes_on);
        raise_bound(run, component);
        sink(worst, 0);
    }
    return status;
}

static bool is_good_enough(const struct gc_place_run *run)
{
    for (uint32_t p = 0; p < run->components.count; p++)
        if (run->components.components[p].peak > run->target)
            return false;
    return true;
}

static enum gc_status improve_components(struct gc_place_run *run)
{
    struct gc_place_greedy greedy = {.run = run};
    struct worst worst;
    struct searches searches = {
        .of = gc_region_alloc(run->region, run->components.count * sizeof(struct search))};
    enum gc_status status = gc_greedy_init(&greedy, run);
    if (searches.of == NULL || status != GC_OK || !worst_init(&worst, run))
        return GC_NO_HOST_MEMORY;
    /* Both grow at once: each may have half of the memory. */
    const uint64_t left =
        gc_sub_or_zero_u64(run->region->bytes_max, gc_region_bytes(run->region)) / 2;
    gc_region_init(&searches.exact_memory, gc_min_u64(left, gc_exact_bytes(run->problem->count)));
    run->region->bytes_max -= searches.exact_memory.bytes_max;
    status = search_components(&greedy, &worst, &searches);
    gc_region_fini(&searches.exact_memory);
    return status;
}

/* Best fit's placement, which searches lower: the end of the memory ends them, no more. */
static enum gc_status solve_components(struct gc_place_run *run)
{
    enum gc_status status = gc_fit_components(run);
    if (status != GC_OK || is_good_enough(run))
        return status;
    status = improve_components(run);
    return status == GC_NO_HOST_MEMORY ? GC_OK : status;
}

static void write_offsets(const struct gc_place_run *run,
                          const struct gc_placement_problem *problem,
                          struct gc_placement *placement)
{
    for (uint32_t i = 0; i < problem->count; i++)
        placement->offsets[i] =
            problem->buffers[i].fixed != GC_PLACEMENT_FREE ? problem->buffers[i].fixed : 0;
    for (uint32_t p = 0; p < run->components.count; p++) {
        const struct gc_place_component *component = &run->components.components[p];
        for (uint32_t i = 0; i < component->count; i++)
            placement->offsets[component->buffers[i]] = component->offsets[i];
    }
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
    /* Before the searches, which may take all memory. */
    *placement = (struct gc_placement){
        .offsets = gc_region_alloc(region, problem->count * sizeof(uint64_t))};
    if (placement->offsets == NULL)
        return GC_NO_HOST_MEMORY;
    gc_region_init(&scratch, gc_sub_or_zero_u64(region->bytes_max, gc_region_bytes(region)));
    enum gc_status status = solve(&run, problem);
    if (status == GC_OK)
        write_offsets(&run, problem, placement);
    else
        placement->offsets = NULL;
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
