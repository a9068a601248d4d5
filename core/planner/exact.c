#include "core/planner/exact.h"

#include "core/base/bits.h"

#include <string.h>

#define PAIRS_MAX (UINT64_C(1) << 20)
#define MANY 10000            /* buffers: the memory follows their number from here on */
#define BYTES_FEW GC_MIB(128) /* of all searches where there are fewer */
#define BYTES_EACH 16         /* for each of many */
#define MEMO_BYTES_MAX GC_MIB(32)
#define MEMO_PART 4                        /* the part (1/n) of the memory that it takes at most */
#define MEMO_BYTES_PER_PAIR UINT64_C(1024) /* bytes for each pair of items */
#define SLICE_NODES 256
#define HALVINGS 7 /* of the distance between target and peak, before a longer slice */
#define DOUBT 4    /* the part (1/n) of a slice for a kind that never lowered the peak */
#define ASIDE 8    /* with a capacity to reach, the part (1/n) of the steps that lower the peak */

/* Kinds of search beside the one per order: PRIORITY restarts each time with the items first that
 * failed most often (squeaky wheels); FORCED fill forced sections first, and find perfect packings.
 */
#define PRIORITY GC_PLACE_ORDER_COUNT
#define FORCED (GC_PLACE_ORDER_COUNT + 1)
#define KIND_COUNT (FORCED + (unsigned)(sizeof(FORCED_ORDERS) / sizeof(FORCED_ORDERS[0])))

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
    uint64_t slice;

    /* At the target: a search of each kind, which goes on in the next round. */
    struct gc_place_search *searches[KIND_COUNT];
    uint64_t capacities[KIND_COUNT]; /* 0: to begin; UINT64_MAX: has given up */

    /* Below the peak, by bisection: a slice of each kind in turn at one capacity. */
    struct gc_place_search *falling;
    uint64_t failed; /* the highest capacity that no kind reached in its slice */
    uint64_t falling_slice;
    unsigned falling_kind;
    bool has_lowered[KIND_COUNT]; /* the peak */
    unsigned halvings;
    unsigned rounds;
};

/* The rank of each of the model's items in an order of the component's items. */
static uint32_t *rank(struct gc_place_exact *exact, struct gc_place_greedy *greedy,
                      struct gc_region *memory, enum gc_order_build by)
{
    const uint32_t count = exact->component->count;
    uint32_t *of_component = exact->by_priority; /* scratch */
    uint32_t *ranks = gc_region_alloc(memory, count * sizeof(*ranks));
    if (ranks == NULL)
        return NULL;
    gc_order_ties(exact->component, &greedy->sorter, by, greedy->order);
    for (uint32_t i = 0; i < count; i++)
        of_component[greedy->order[i]] = i;
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = of_component[exact->model.sources[i]];
    return ranks;
}

/* Whether the component has at most PAIRS_MAX pairs that are alive together; `begun` is scratch. */
static bool has_few_pairs(const struct gc_place_component *component, uint64_t *begun)
{
    uint64_t pairs = 0;
    memset(begun, 0, component->section_count * sizeof(*begun));
    for (uint32_t i = 0; i < component->count; i++)
        pairs += begun[component->items[i].first]++;
    for (uint32_t s = 1; s < component->section_count; s++)
        begun[s] += begun[s - 1];
    for (uint32_t i = 0; i < component->count; i++)
        pairs += begun[component->items[i].last] - begun[component->items[i].first];
    return pairs <= PAIRS_MAX;
}

uint64_t gc_exact_bytes(uint32_t buffers)
{
    return buffers < MANY ? BYTES_FEW : (uint64_t)buffers * BYTES_EACH;
}

struct gc_place_exact *gc_exact_create(struct gc_place_greedy *greedy, struct gc_region *memory,
                                       struct gc_place_memo *memo)
{
    const struct gc_place_component *component = greedy->component;
    if (!has_few_pairs(component, greedy->sorter.keys))
        return NULL;
    struct gc_place_exact *exact = gc_region_alloc(memory, sizeof(*exact));
    if (exact == NULL)
        return NULL;
    const uint64_t count = component->count;
    const uint64_t bytes = count * sizeof(uint32_t);
    if (memo->count == 0)
        gc_model_memo_init(memo, memory,
                           gc_min_u64(gc_min_u64(MEMO_BYTES_MAX, memory->bytes_max / MEMO_PART),
                                      MEMO_BYTES_PER_PAIR * count * count));
    exact->run = greedy->run;
    exact->component = greedy->component;
    exact->sorter = &greedy->sorter;
    exact->slice = SLICE_NODES;
    exact->falling_slice = SLICE_NODES;
    exact->ranks[PRIORITY] = gc_region_alloc(memory, bytes);
    exact->by_priority = gc_region_alloc(memory, bytes);
    exact->priority = gc_region_alloc(memory, bytes);
    if (exact->ranks[PRIORITY] == NULL || exact->by_priority == NULL || exact->priority == NULL ||
        gc_model_of_component(&exact->model, memory, component, PAIRS_MAX,
                              exact->run->options->seed) != GC_OK)
        return NULL;
    for (unsigned by = 0; by < GC_PLACE_ORDER_COUNT; by++) {
        exact->ranks[by] = rank(exact, greedy, memory, (enum gc_order_build)by);
        if (exact->ranks[by] == NULL)
            return NULL;
    }
    exact->falling = gc_search_create(memory, &exact->model, memo, exact->sorter, exact->priority);
    for (unsigned i = 0; i < KIND_COUNT && exact->falling != NULL; i++)
        exact->searches[i] =
            gc_search_create(memory, &exact->model, memo, exact->sorter, exact->priority);
    return exact->searches[0] != NULL ? exact : NULL;
}

static uint64_t target_of(const struct gc_place_exact *exact)
{
    return gc_max_u64(exact->component->bound, exact->run->target);
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

static void begin(struct gc_place_exact *exact, struct gc_place_search *search, unsigned kind,
                  uint64_t capacity)
{
    const unsigned order = kind >= FORCED ? FORCED_ORDERS[kind - FORCED] : kind;
    if (kind == PRIORITY)
        rank_by_priority(exact);
    const struct gc_place_preference preference = {
        .ranks = exact->ranks[order],
        .by_load = order < PRIORITY && gc_order_is_by_load(order),
        .by_section = kind >= FORCED,
    };
    gc_search_begin(search, capacity, &preference);
}

static void accept_found(struct gc_place_exact *exact, const struct gc_place_search *search)
{
    struct gc_place_component *component = exact->component;
    uint64_t peak = 0;
    gc_search_offsets(search, component->offsets);
    for (uint32_t i = 0; i < component->count; i++)
        peak = gc_max_u64(peak, gc_place_end(&component->items[i], component->offsets[i]));
    component->peak = peak;
}

/* A capacity is refuted: the bound rises to the next possible end. */
static void accept_none(struct gc_place_exact *exact, uint64_t capacity)
{
    struct gc_place_component *component = exact->component;
    component->bound = gc_max_u64(component->bound, capacity + 1);
    if (component->bound % component->unit != 0)
        component->bound += component->unit - component->bound % component->unit;
    component->bound = gc_min_u64(component->bound, component->peak);
    /* A refutation at the root takes no node; count a step, so that a bound rising in small steps
     * ends with the budget. */
    (void)gc_place_run_step(exact->run, 1);
}

static enum gc_place_verdict run_slice(struct gc_place_exact *exact, struct gc_place_search *search,
                                       uint64_t capacity, uint64_t nodes)
{
    const enum gc_place_verdict verdict = gc_search_slice(search, exact->run, nodes);
    if (verdict == GC_PLACE_FOUND)
        accept_found(exact, search);
    if (verdict == GC_PLACE_NONE)
        accept_none(exact, capacity);
    return verdict;
}

/* Another slice of a search at the target. False: it has nothing left to try. */
static bool run_at_target(struct gc_place_exact *exact, unsigned kind)
{
    uint64_t *capacity = &exact->capacities[kind];
    if (exact->searches[kind] == NULL || *capacity == UINT64_MAX)
        return false;
    if (*capacity < exact->component->bound || kind == PRIORITY) {
        *capacity = target_of(exact);
        begin(exact, exact->searches[kind], kind, *capacity);
    }
    switch (run_slice(exact, exact->searches[kind], *capacity, exact->slice)) {
    case GC_PLACE_GIVEN_UP:
        *capacity = kind == PRIORITY ? 0 : UINT64_MAX;
        break;
    case GC_PLACE_OPEN:
        break;
    default:
        *capacity = 0;
        break;
    }
    return *capacity != UINT64_MAX;
}

static bool is_ours(const struct gc_place_exact *exact, unsigned kind)
{
    const struct gc_placement_options *options = exact->run->options;
    return options->share_count <= 1 || kind % options->share_count == options->share_index;
}

static bool is_done(const struct gc_place_exact *exact)
{
    return exact->run->stopped || exact->component->peak <= target_of(exact);
}

/* The capacity in the middle of those that are open; 0: none is left above the target. */
static uint64_t middle(const struct gc_place_exact *exact)
{
    const uint64_t unit = exact->component->unit;
    const uint64_t low = gc_max_u64(exact->failed, target_of(exact));
    const uint64_t high = exact->component->peak - 1;
    if (high <= low)
        return 0;
    const uint64_t capacity = low + (high - low + 1) / 2;
    return capacity - capacity % unit > low ? capacity - capacity % unit : 0;
}

/* No kind of search reached the capacity, or one did: the next one is in the middle of the rest.
 */
static void move_falling(struct gc_place_exact *exact, uint64_t failed)
{
    exact->failed = gc_max_u64(exact->failed, failed);
    exact->falling_kind = 0;
    exact->halvings = failed > 0 ? exact->halvings + 1 : 0;
    if (exact->halvings < HALVINGS && middle(exact) > 0)
        return;
    exact->halvings = 0;
    exact->failed = 0;
    exact->falling_slice = gc_max_u64(exact->falling_slice, 2 * exact->falling_slice);
}

/* Lowers the peak for about `nodes` steps. */
static void run_falling(struct gc_place_exact *exact, uint64_t nodes)
{
    const uint64_t end = exact->run->nodes + nodes;
    while (exact->run->nodes < end && !is_done(exact) && middle(exact) > 0) {
        const uint64_t capacity = middle(exact);
        const unsigned kind = exact->falling_kind++;
        enum gc_place_verdict verdict = GC_PLACE_GIVEN_UP;
        if (is_ours(exact, kind)) {
            const uint64_t slice = exact->falling_slice;
            begin(exact, exact->falling, kind, capacity);
            verdict = run_slice(exact, exact->falling, capacity,
                                exact->has_lowered[kind] ? slice : slice / DOUBT);
            exact->has_lowered[kind] = exact->has_lowered[kind] || verdict == GC_PLACE_FOUND;
        }
        if (verdict == GC_PLACE_FOUND || verdict == GC_PLACE_NONE)
            move_falling(exact, 0);
        else if (exact->falling_kind == KIND_COUNT)
            move_falling(exact, capacity);
    }
}

bool gc_exact_round(struct gc_place_exact *exact)
{
    const uint64_t begun = exact->run->nodes;
    bool any = false;
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        if (is_done(exact))
            return true;
        if (is_ours(exact, kind))
            any = run_at_target(exact, kind) || any;
    }
    const uint64_t nodes = exact->run->nodes - begun;
    const bool has_capacity = exact->run->problem->capacity_bytes != GC_PLACEMENT_UNLIMITED;
    run_falling(exact, has_capacity ? nodes / ASIDE : nodes * exact->rounds / 2);
    exact->slice = gc_max_u64(exact->slice, 2 * exact->slice);
    exact->rounds++;
    return any || middle(exact) > 0;
}
