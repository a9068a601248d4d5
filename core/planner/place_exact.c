#include "core/planner/place_exact.h"

#include "core/base/bits.h"

#define PAIRS_MAX (UINT64_C(1) << 20)
#define SLICE_NODES 256
#define STEPS_MAX 8 /* from the middle between bound and peak towards the peak */

/* Beside one search for each order at the target: one that begins anew each turn with those first
 * that were left without a place most often (squeaky wheels), and one that brings the peak down. */
#define BLAMING GC_PLACE_ORDER_COUNT
#define LOWERING (GC_PLACE_ORDER_COUNT + 1)
#define FORCED (GC_PLACE_ORDER_COUNT + 2)
#define SEARCH_COUNT (FORCED + (unsigned)(sizeof(FORCED_ORDERS) / sizeof(FORCED_ORDERS[0])))

/* Perfect packings are found where what must be filled at once is. */
static const enum gc_place_order FORCED_ORDERS[] = {GC_PLACE_BY_CONTENTION_LENGTH,
                                                    GC_PLACE_BY_BYTES};

struct gc_place_exact {
    struct gc_place_run *run;
    struct gc_place_part *part;
    struct gc_place_model model;
    struct gc_place_sorter *sorter;
    uint32_t *ranks[GC_PLACE_ORDER_COUNT + 1]; /* of the orders and of the blame */
    uint32_t *by_blame;
    uint32_t *blame;
    struct gc_place_search *searches[SEARCH_COUNT]; /* NULL: none of that kind */
    uint64_t capacities[SEARCH_COUNT];              /* each is at work on; 0: none yet */
    uint64_t slice;
    unsigned lowering_order;
    unsigned lowering_step;
};

/* The part's items in an order, as a rank for each of the model's. */
static uint32_t *rank(struct gc_place_exact *exact, struct gc_place_greedy *greedy,
                      enum gc_place_order by)
{
    const uint32_t count = exact->part->count;
    uint32_t *ranks = gc_region_alloc(exact->run->region, count * sizeof(*ranks));
    uint32_t *of_part = gc_region_alloc(exact->run->region, count * sizeof(*of_part));
    if (ranks == NULL || of_part == NULL)
        return NULL;
    gc_place_order_ties(exact->part, &greedy->sorter, by, greedy->order);
    for (uint32_t i = 0; i < count; i++)
        of_part[greedy->order[i]] = i;
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = of_part[exact->model.sources[i]];
    return ranks;
}

struct gc_place_exact *gc_place_exact_create(struct gc_place_greedy *greedy,
                                             struct gc_place_memo *memo)
{
    struct gc_place_run *run = greedy->run;
    struct gc_place_exact *exact = gc_region_alloc(run->region, sizeof(*exact));
    if (exact == NULL)
        return NULL;
    exact->run = run;
    exact->part = greedy->part;
    exact->slice = SLICE_NODES;
    if (gc_place_model_init(&exact->model, run->region, exact->part, PAIRS_MAX,
                            run->options->seed) != GC_OK)
        return NULL;
    for (unsigned by = 0; by < GC_PLACE_ORDER_COUNT; by++) {
        exact->ranks[by] = rank(exact, greedy, (enum gc_place_order)by);
        if (exact->ranks[by] == NULL)
            return NULL;
    }
    const uint64_t bytes = exact->part->count * sizeof(uint32_t);
    exact->sorter = &greedy->sorter;
    exact->ranks[BLAMING] = gc_region_alloc(run->region, bytes);
    exact->by_blame = gc_region_alloc(run->region, bytes);
    exact->blame = gc_region_alloc(run->region, bytes);
    if (exact->ranks[BLAMING] == NULL || exact->by_blame == NULL || exact->blame == NULL)
        return NULL;
    bool any = false;
    for (unsigned i = 0; i < SEARCH_COUNT; i++) {
        exact->searches[i] =
            gc_place_search_create(run->region, &exact->model, memo, exact->sorter, exact->blame);
        any = any || exact->searches[i] != NULL;
    }
    return any ? exact : NULL;
}

static uint64_t target_of(const struct gc_place_exact *exact)
{
    return gc_max_u64(exact->part->bound, exact->run->target);
}

/* What the search is to try now. */
static uint64_t capacity_for(const struct gc_place_exact *exact, unsigned search)
{
    const uint64_t target = target_of(exact);
    uint64_t below_peak = exact->part->peak - 1;
    if (search != LOWERING || below_peak <= target)
        return target;
    below_peak -= (below_peak - target) >> exact->lowering_step;
    return gc_max_u64(target, below_peak - below_peak % exact->part->unit);
}

/* The more blamed the earlier; what is long ago counts less. */
static void rank_by_blame(struct gc_place_exact *exact)
{
    const uint32_t count = exact->model.count;
    for (uint32_t i = 0; i < count; i++) {
        exact->by_blame[i] = i;
        exact->sorter->keys[i] = UINT32_MAX - (uint64_t)exact->blame[i];
        exact->blame[i] /= 2;
    }
    gc_place_sort(exact->sorter, exact->by_blame, count);
    for (uint32_t i = 0; i < count; i++)
        exact->ranks[BLAMING][exact->by_blame[i]] = i;
}

static void begin(struct gc_place_exact *exact, unsigned search)
{
    if (search == BLAMING)
        rank_by_blame(exact);
    unsigned order = search == LOWERING ? exact->lowering_order : search;
    if (search >= FORCED)
        order = FORCED_ORDERS[search - FORCED];
    exact->capacities[search] = capacity_for(exact, search);
    const struct gc_place_preference preference = {
        .ranks = exact->ranks[order],
        .by_load = order < BLAMING && gc_place_order_is_by_load(order),
        .by_section = search >= FORCED,
    };
    gc_place_search_begin(exact->searches[search], exact->capacities[search], &preference);
}

static void take_found(struct gc_place_exact *exact, unsigned search)
{
    struct gc_place_part *part = exact->part;
    uint64_t peak = 0;
    gc_place_search_offsets(exact->searches[search], part->offsets);
    for (uint32_t i = 0; i < part->count; i++)
        peak = gc_max_u64(peak, gc_place_end(&part->items[i], part->offsets[i]));
    part->peak = peak;
    exact->capacities[search] = 0;
    exact->lowering_step = 1;
}

/* Nothing fits in what was tried: the least that may is the next end there can be. */
static void take_none(struct gc_place_exact *exact, unsigned search)
{
    struct gc_place_part *part = exact->part;
    part->bound = gc_max_u64(part->bound, exact->capacities[search] + 1);
    if (part->bound % part->unit != 0)
        part->bound += part->unit - part->bound % part->unit;
    part->bound = gc_min_u64(part->bound, part->peak);
    exact->capacities[search] = 0;
    /* What is seen at the root takes no node, and a bound may rise for ever in small steps. */
    (void)gc_place_run_step(exact->run, 1);
}

/* A lowering that comes to nothing in its slice makes way for another order, nearer to the peak. */
static void move_lowering(struct gc_place_exact *exact)
{
    exact->capacities[LOWERING] = 0;
    exact->lowering_order = (exact->lowering_order + 1) % GC_PLACE_ORDER_COUNT;
    exact->lowering_step = exact->lowering_step % STEPS_MAX + 1;
}

/* False: this search has nothing left to try. */
static bool turn(struct gc_place_exact *exact, unsigned search)
{
    if (exact->searches[search] == NULL)
        return false;
    if (exact->capacities[search] == UINT64_MAX)
        return false;
    if (exact->capacities[search] < exact->part->bound ||
        exact->capacities[search] >= exact->part->peak)
        begin(exact, search);
    switch (gc_place_search_slice(exact->searches[search], exact->run, exact->slice)) {
    case GC_PLACE_FOUND:
        take_found(exact, search);
        return true;
    case GC_PLACE_NONE:
        take_none(exact, search);
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
    if (search == BLAMING)
        exact->capacities[search] = 0;
    return exact->capacities[search] != UINT64_MAX;
}

bool gc_place_exact_round(struct gc_place_exact *exact)
{
    const struct gc_placement_options *options = exact->run->options;
    bool any = false;
    for (unsigned i = 0; i < SEARCH_COUNT; i++) {
        if (exact->run->stopped || exact->part->peak <= target_of(exact))
            return true;
        if (options->share_count > 1 && i % options->share_count != options->share_index)
            continue;
        any = turn(exact, i) || any;
    }
    exact->slice = gc_max_u64(exact->slice, 2 * exact->slice);
    return any;
}
