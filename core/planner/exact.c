#include "core/planner/exact.h"

#include "core/base/bits.h"

#define PAIRS_MAX (UINT64_C(1) << 20)
#define SLICE_NODES 256
#define STEPS_MAX 8 /* steps of LOWERING from the middle of bound and peak towards the peak */

/* Two searches beside the one per order at the target: PRIORITY restarts each round with the items
 * first that failed most often (squeaky wheels); LOWERING lowers the best peak. */
#define PRIORITY GC_PLACE_ORDER_COUNT
#define LOWERING (GC_PLACE_ORDER_COUNT + 1)
#define FORCED (GC_PLACE_ORDER_COUNT + 2)
#define SEARCH_COUNT (FORCED + (unsigned)(sizeof(FORCED_ORDERS) / sizeof(FORCED_ORDERS[0])))

/* Orders that fill forced sections first: these searches find perfect packings. */
static const enum gc_order_build FORCED_ORDERS[] = {GC_PLACE_BY_CONTENTION_LENGTH,
                                                    GC_PLACE_BY_BYTES};

struct gc_place_exact {
    struct gc_place_run *run;
    struct gc_place_component *component;
    struct gc_place_model model;
    struct gc_place_sorter *sorter;
    uint32_t *ranks[GC_PLACE_ORDER_COUNT + 1]; /* of the orders and of the priority */
    uint32_t *by_priority;
    uint32_t *priority;
    struct gc_place_search *searches[SEARCH_COUNT]; /* NULL: none of that kind */
    uint64_t capacities[SEARCH_COUNT]; /* the capacity each search tries; 0: none yet */
    uint64_t slice;
    unsigned lowering_order;
    unsigned lowering_step;
};

/* The rank of each of the model's items in an order of the component's items. */
static uint32_t *rank(struct gc_place_exact *exact, struct gc_place_greedy *greedy,
                      enum gc_order_build by)
{
    const uint32_t count = exact->component->count;
    uint32_t *ranks = gc_region_alloc(exact->run->region, count * sizeof(*ranks));
    uint32_t *of_component = gc_region_alloc(exact->run->region, count * sizeof(*of_component));
    if (ranks == NULL || of_component == NULL)
        return NULL;
    gc_order_ties(exact->component, &greedy->sorter, by, greedy->order);
    for (uint32_t i = 0; i < count; i++)
        of_component[greedy->order[i]] = i;
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = of_component[exact->model.sources[i]];
    return ranks;
}

struct gc_place_exact *gc_exact_create(struct gc_place_greedy *greedy, struct gc_place_memo *memo)
{
    struct gc_place_run *run = greedy->run;
    struct gc_place_exact *exact = gc_region_alloc(run->region, sizeof(*exact));
    if (exact == NULL)
        return NULL;
    exact->run = run;
    exact->component = greedy->component;
    exact->slice = SLICE_NODES;
    if (gc_model_of_component(&exact->model, run->region, exact->component, PAIRS_MAX,
                              run->options->seed) != GC_OK)
        return NULL;
    for (unsigned by = 0; by < GC_PLACE_ORDER_COUNT; by++) {
        exact->ranks[by] = rank(exact, greedy, (enum gc_order_build)by);
        if (exact->ranks[by] == NULL)
            return NULL;
    }
    const uint64_t bytes = exact->component->count * sizeof(uint32_t);
    exact->sorter = &greedy->sorter;
    exact->ranks[PRIORITY] = gc_region_alloc(run->region, bytes);
    exact->by_priority = gc_region_alloc(run->region, bytes);
    exact->priority = gc_region_alloc(run->region, bytes);
    if (exact->ranks[PRIORITY] == NULL || exact->by_priority == NULL || exact->priority == NULL)
        return NULL;
    bool any = false;
    for (unsigned i = 0; i < SEARCH_COUNT; i++) {
        exact->searches[i] =
            gc_search_create(run->region, &exact->model, memo, exact->sorter, exact->priority);
        any = any || exact->searches[i] != NULL;
    }
    return any ? exact : NULL;
}

static uint64_t target_of(const struct gc_place_exact *exact)
{
    return gc_max_u64(exact->component->bound, exact->run->target);
}

/* The capacity that the search tries next. */
static uint64_t capacity_for(const struct gc_place_exact *exact, unsigned search)
{
    const uint64_t target = target_of(exact);
    uint64_t below_peak = exact->component->peak - 1;
    if (search != LOWERING || below_peak <= target)
        return target;
    below_peak -= (below_peak - target) >> exact->lowering_step;
    return gc_max_u64(target, below_peak - below_peak % exact->component->unit);
}

/* Ranks items by priority, highest first; older failures decay. */
static void rank_by_priority(struct gc_place_exact *exact)
{
    const uint32_t count = exact->model.count;
    for (uint32_t i = 0; i < count; i++) {
        exact->by_priority[i] = i;
        exact->sorter->keys[i] = UINT32_MAX - (uint64_t)exact->priority[i];
        exact->priority[i] /= 2;
    }
    gc_order_sort(exact->sorter, exact->by_priority, count);
    for (uint32_t i = 0; i < count; i++)
        exact->ranks[PRIORITY][exact->by_priority[i]] = i;
}

static void begin(struct gc_place_exact *exact, unsigned search)
{
    if (search == PRIORITY)
        rank_by_priority(exact);
    unsigned order = search == LOWERING ? exact->lowering_order : search;
    if (search >= FORCED)
        order = FORCED_ORDERS[search - FORCED];
    exact->capacities[search] = capacity_for(exact, search);
    const struct gc_place_preference preference = {
        .ranks = exact->ranks[order],
        .by_load = order < PRIORITY && gc_order_is_by_load(order),
        .by_section = search >= FORCED,
    };
    gc_search_begin(exact->searches[search], exact->capacities[search], &preference);
}

static void accept_found(struct gc_place_exact *exact, unsigned search)
{
    struct gc_place_component *component = exact->component;
    uint64_t peak = 0;
    gc_search_offsets(exact->searches[search], component->offsets);
    for (uint32_t i = 0; i < component->count; i++)
        peak = gc_max_u64(peak, gc_place_end(&component->items[i], component->offsets[i]));
    component->peak = peak;
    exact->capacities[search] = 0;
    exact->lowering_step = 1;
}

/* The tried capacity is refuted: the bound rises to the next possible end. */
static void accept_none(struct gc_place_exact *exact, unsigned search)
{
    struct gc_place_component *component = exact->component;
    component->bound = gc_max_u64(component->bound, exact->capacities[search] + 1);
    if (component->bound % component->unit != 0)
        component->bound += component->unit - component->bound % component->unit;
    component->bound = gc_min_u64(component->bound, component->peak);
    exact->capacities[search] = 0;
    /* A refutation at the root takes no node; count a step, so that a bound rising in small steps
     * ends with the budget. */
    (void)gc_place_run_step(exact->run, 1);
}

/* A LOWERING that fails in its slice continues with another order, at a capacity nearer to the
 * peak. */
static void move_lowering(struct gc_place_exact *exact)
{
    exact->capacities[LOWERING] = 0;
    exact->lowering_order = (exact->lowering_order + 1) % GC_PLACE_ORDER_COUNT;
    exact->lowering_step = exact->lowering_step % STEPS_MAX + 1;
}

/* False: this search has nothing left to try. */
static bool run_slice(struct gc_place_exact *exact, unsigned search)
{
    if (exact->searches[search] == NULL)
        return false;
    if (exact->capacities[search] == UINT64_MAX)
        return false;
    if (exact->capacities[search] < exact->component->bound ||
        exact->capacities[search] >= exact->component->peak)
        begin(exact, search);
    switch (gc_search_slice(exact->searches[search], exact->run, exact->slice)) {
    case GC_PLACE_FOUND:
        accept_found(exact, search);
        return true;
    case GC_PLACE_NONE:
        accept_none(exact, search);
        return true;
    case GC_PLACE_GIVEN_UP:
        if (search != LOWERING)
            exact->capacities[search] = UINT64_MAX;
        break;
    default:
        break;
    }
    if (search == LOWERING)
        move_lowering(exact);
    if (search == PRIORITY)
        exact->capacities[search] = 0;
    return exact->capacities[search] != UINT64_MAX;
}

bool gc_exact_round(struct gc_place_exact *exact)
{
    const struct gc_placement_options *options = exact->run->options;
    bool any = false;
    for (unsigned i = 0; i < SEARCH_COUNT; i++) {
        if (exact->run->stopped || exact->component->peak <= target_of(exact))
            return true;
        if (options->share_count > 1 && i % options->share_count != options->share_index)
            continue;
        any = run_slice(exact, i) || any;
    }
    exact->slice = gc_max_u64(exact->slice, 2 * exact->slice);
    return any;
}
