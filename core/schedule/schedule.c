#include "core/schedule/schedule.h"

#include "core/base/bits.h"
#include "core/schedule/order_search.h"

#include <string.h>

#define SCRATCH_BYTES_MAX GC_MIB(2048)
#define SETS_DEFAULT 400000

/* ---- an order of units as a list of all nodes ---- */

struct listing {
    const struct gc_graph *graph;
    uint32_t scope;
    uint32_t *rank;  /* by node: 1 + the position of the unit that it comes with or behind */
    uint32_t *count; /* by rank */
    uint32_t *stack;
};

static uint32_t node_in(const struct listing *listing, uint32_t node)
{
    const struct gc_graph *graph = listing->graph;
    while (node != GC_GRAPH_NONE && graph->nodes[node].scope != listing->scope) {
        const uint32_t scope = graph->nodes[node].scope;
        node = scope == 0 ? GC_GRAPH_NONE : graph->scopes[scope].node;
    }
    return node;
}

/* The highest rank of the nodes that produce the inputs of a node or of its inner graphs. */
static uint32_t rank_of(const struct listing *listing, uint32_t node)
{
    uint32_t depth = 1;
    uint32_t rank = 0;
    listing->stack[0] = node;
    while (depth > 0) {
        const struct gc_graph_node *at = &listing->graph->nodes[listing->stack[--depth]];
        for (uint32_t i = 0; i < at->input_count; i++) {
            const uint32_t producer =
                at->inputs[i] == GC_GRAPH_NONE
                    ? GC_GRAPH_NONE
                    : node_in(listing, listing->graph->values[at->inputs[i]].producer);
            if (producer != GC_GRAPH_NONE && producer != node)
                rank = rank > listing->rank[producer] ? rank : listing->rank[producer];
        }
        for (uint32_t i = 0; i < at->attribute_count; i++) {
            if (at->attributes[i].kind != GC_ATTRIBUTE_GRAPH)
                continue;
            const struct gc_graph_scope *inner = &listing->graph->scopes[at->attributes[i].scope];
            for (uint32_t j = 0; j < inner->node_count; j++)
                listing->stack[depth++] = inner->nodes[j];
        }
    }
    return rank;
}

/* The nodes that do not run come behind the last unit that they need, in the graph's own order. */
static uint32_t *list_nodes(struct gc_region *region, const struct gc_graph *graph, uint32_t scope,
                            const struct gc_order_model *model, const uint32_t *order)
{
    const struct gc_graph_scope *of = &graph->scopes[scope];
    struct listing listing = {.graph = graph, .scope = scope};
    uint32_t *nodes = gc_region_alloc(region, (uint64_t)of->node_count * sizeof(uint32_t));
    listing.rank = gc_region_alloc(region, (uint64_t)graph->node_count * sizeof(uint32_t));
    listing.count = gc_region_alloc(region, (model->unit_count + UINT64_C(2)) * sizeof(uint32_t));
    listing.stack = gc_region_alloc(region, (graph->node_count + UINT64_C(1)) * sizeof(uint32_t));
    if (nodes == NULL || listing.rank == NULL || listing.count == NULL || listing.stack == NULL)
        return NULL;
    for (uint32_t i = 0; i < model->unit_count; i++)
        listing.rank[model->nodes[order[i]]] = i + 1;
    for (uint32_t i = 0; i < of->node_count; i++) {
        const uint32_t node = of->nodes[i];
        if (listing.rank[node] == 0)
            listing.rank[node] = rank_of(&listing, node);
        listing.count[listing.rank[node] + 1]++;
    }
    for (uint32_t i = 1; i <= model->unit_count; i++)
        listing.count[i] += listing.count[i - 1];
    /* Within a rank the unit is first. */
    for (uint32_t i = 0; i < model->unit_count; i++)
        nodes[listing.count[i + 1]++] = model->nodes[order[i]];
    for (uint32_t i = 0; i < of->node_count; i++) {
        const uint32_t node = of->nodes[i];
        const uint32_t rank = listing.rank[node];
        if (rank == 0 || model->nodes[order[rank - 1]] != node)
            nodes[listing.count[rank]++] = node;
    }
    return nodes;
}

/* ---- reordering ---- */

struct reordering {
    struct gc_region *region;
    const struct gc_lifetimes_rules *rules;
    struct gc_order_limits limits;
    struct gc_schedule *schedule;
    struct gc_graph_scope *scopes; /* the schedule's own */
    uint64_t peak_bytes;           /* of the schedule so far */
};

/* Uses the new list if the graph's peak does not rise by it. */
static enum gc_status use_order(struct reordering *reordering, uint32_t scope,
                                const struct gc_order_model *model, const uint32_t *order)
{
    struct gc_graph_scope *at = &reordering->scopes[scope];
    const uint32_t *old = at->nodes;
    uint64_t peak_bytes;
    at->nodes = list_nodes(reordering->region, &reordering->schedule->graph, scope, model, order);
    if (at->nodes == NULL)
        return GC_NO_HOST_MEMORY;
    const enum gc_status status =
        gc_schedule_peak(&reordering->schedule->graph, reordering->rules, &peak_bytes);
    if (status != GC_OK || peak_bytes > reordering->peak_bytes)
        at->nodes = old;
    else
        reordering->peak_bytes = peak_bytes;
    return status;
}

static enum gc_status reorder_scope(struct reordering *reordering, uint32_t scope,
                                    struct gc_region *scratch)
{
    struct gc_schedule *schedule = reordering->schedule;
    struct gc_lifetimes_rules plain = *reordering->rules;
    struct gc_lifetimes lifetimes;
    struct gc_order_model model = {0};
    struct gc_order_found found;
    plain.no_in_place = true;
    enum gc_status status = gc_lifetimes_find(scratch, &schedule->graph, &plain, &lifetimes);
    if (status == GC_OK)
        status = gc_order_model_make(scratch, &schedule->graph, scope, reordering->rules,
                                     &lifetimes, &model);
    if (status != GC_OK || model.unit_count < 2)
        return status;
    uint32_t *order = gc_region_alloc(scratch, (uint64_t)model.unit_count * sizeof(uint32_t));
    if (order == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < model.unit_count; i++)
        order[i] = i;
    struct gc_order_limits limits = reordering->limits;
    limits.set_max = gc_sub_or_zero_u64(limits.set_max, schedule->sets) + 1;
    status = gc_order_search(scratch, &model, &limits, order, &found);
    schedule->sets += found.sets;
    if (status == GC_OK)
        status = use_order(reordering, scope, &model, order);
    schedule->is_optimal = model.is_exact && found.peak_bytes == found.bound_bytes &&
                           reordering->peak_bytes == lifetimes.base_bytes + found.peak_bytes;
    return status;
}

/* Inner graphs come first: the peak of a node with one is a part of its own. */
static enum gc_status reorder(struct reordering *reordering)
{
    const struct gc_graph *graph = &reordering->schedule->graph;
    enum gc_status status = GC_OK;
    for (uint32_t scope = graph->scope_count; scope-- > 0 && status == GC_OK;) {
        struct gc_region scratch;
        if (graph->scopes[scope].is_dead)
            continue;
        gc_region_init(&scratch, SCRATCH_BYTES_MAX);
        status = reorder_scope(reordering, scope, &scratch);
        gc_region_fini(&scratch);
    }
    return status;
}

/* ---- the whole ---- */

enum gc_status gc_schedule_make(struct gc_region *region, const struct gc_graph *graph,
                                const struct gc_lifetimes_rules *rules,
                                const struct gc_schedule_options *options,
                                struct gc_schedule *schedule)
{
    struct reordering reordering = {
        .region = region,
        .rules = rules,
        .limits = {.set_max = options->set_max > 0 ? options->set_max : SETS_DEFAULT,
                   .watch = options->watch,
                   .watch_argument = options->watch_argument},
        .schedule = schedule};
    *schedule = (struct gc_schedule){.graph = *graph};
    const uint64_t bytes = (uint64_t)graph->scope_count * sizeof(*reordering.scopes);
    reordering.scopes = gc_region_alloc(region, bytes);
    if (reordering.scopes == NULL)
        return GC_NO_HOST_MEMORY;
    memcpy(reordering.scopes, graph->scopes, bytes);
    schedule->graph.scopes = reordering.scopes;
    enum gc_status status = gc_schedule_peak(graph, rules, &schedule->before_bytes);
    reordering.peak_bytes = schedule->before_bytes;
    if (status == GC_OK && options->reorder)
        status = reorder(&reordering);
    schedule->ordered_bytes = schedule->after_bytes = reordering.peak_bytes;
    if (status == GC_OK && options->recompute)
        status = gc_schedule_recompute(region, rules, options, schedule);
    return status;
}
