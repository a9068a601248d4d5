/* The order in which nodes can run. Files list them so; where one does not, they are sorted, those
 * of the file's order first (Kahn 1962). A node that holds graphs uses what its inner nodes use. */
#include "core/formats/onnx_graph.h"

#include <string.h>

struct edge {
    uint32_t next; /* edge, or GC_GRAPH_NONE */
    uint32_t user;
};

struct order {
    struct gc_onnx_builder *builder;
    struct gc_graph *graph;
    uint32_t *nodes; /* by scope */

    bool is_unsorted;
    uint32_t *waits; /* for so many values of its scope */
    uint32_t *first; /* edge of a node */
    struct edge *edges;
    uint32_t edge_count;
    uint32_t edge_room;
};

/* The node of `scope` that `node` is, or is in; GC_GRAPH_NONE: it is elsewhere. */
static uint32_t climb(const struct gc_graph *graph, uint32_t node, uint32_t scope)
{
    while (node != GC_GRAPH_NONE && graph->nodes[node].scope != scope)
        node = graph->scopes[graph->nodes[node].scope].node;
    return node;
}

static enum gc_status add_edge(struct order *order, uint32_t value, uint32_t user)
{
    const struct gc_graph *graph = order->graph;
    const uint32_t producer =
        value == GC_GRAPH_NONE ? GC_GRAPH_NONE : graph->values[value].producer;
    if (producer == GC_GRAPH_NONE)
        return GC_OK;
    user = climb(graph, user, graph->nodes[producer].scope);
    if (user == GC_GRAPH_NONE)
        return GC_OK;
    order->is_unsorted = order->is_unsorted || user <= producer;
    if (order->waits == NULL)
        return GC_OK;
    const enum gc_status status =
        gc_load_grow(order->builder->onnx.load, order->graph->path, (void **)&order->edges,
                     order->edge_count, &order->edge_room, sizeof(*order->edges));
    if (status != GC_OK)
        return status;
    order->edges[order->edge_count] = (struct edge){.next = order->first[producer], .user = user};
    order->first[producer] = order->edge_count++;
    order->waits[user]++;
    return GC_OK;
}

static enum gc_status add_edges(struct order *order)
{
    const struct gc_graph *graph = order->graph;
    enum gc_status status = GC_OK;
    for (uint32_t i = 0; status == GC_OK && i < graph->node_count; i++) {
        const struct gc_graph_node *node = &graph->nodes[i];
        for (uint32_t k = 0; status == GC_OK && k < node->input_count; k++)
            status = add_edge(order, node->inputs[k], i);
    }
    for (uint32_t i = 1; status == GC_OK && i < graph->scope_count; i++) {
        const struct gc_graph_scope *scope = &graph->scopes[i];
        for (uint32_t k = 0; status == GC_OK && k < scope->output_count; k++)
            status = add_edge(order, scope->outputs[k], scope->node);
    }
    return status;
}

static enum gc_status no_memory(const struct order *order)
{
    return gc_load_no_memory(order->builder->onnx.load, order->graph->path);
}

/* In the file's order. */
static enum gc_status list_nodes(struct order *order)
{
    struct gc_graph *graph = order->graph;
    order->nodes = gc_onnx_alloc(order->builder, graph->node_count * sizeof(*order->nodes));
    if (order->nodes == NULL)
        return no_memory(order);
    for (uint32_t i = 0; i < graph->node_count; i++)
        graph->scopes[graph->nodes[i].scope].node_count++;
    uint32_t begin = 0;
    for (uint32_t i = 0; i < graph->scope_count; i++) {
        struct gc_graph_scope *scope = &graph->scopes[i];
        scope->nodes = order->nodes + begin;
        begin += scope->node_count;
        scope->node_count = 0;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        struct gc_graph_scope *scope = &graph->scopes[graph->nodes[i].scope];
        order->nodes[(scope->nodes - order->nodes) + scope->node_count++] = i;
    }
    return GC_OK;
}

static enum gc_status fail_cycle(struct order *order, const bool *is_done)
{
    const struct gc_graph *graph = order->graph;
    uint32_t node = 0;
    while (node + 1 < graph->node_count && is_done[node])
        node++;
    const char *name =
        graph->nodes[node].name[0] != '\0' ? graph->nodes[node].name : graph->nodes[node].op;
    return gc_load_fail(order->builder->onnx.load, GC_FORMAT, graph->path,
                        "node \"%s\" waits for itself: a cycle", GC_LOAD_SHOWN(name, strlen(name)));
}

/* A heap of the nodes that can run, lowest first. */
static void push(uint32_t *heap, uint32_t *count, uint32_t node)
{
    uint32_t at = (*count)++;
    for (; at > 0 && heap[(at - 1) / 2] > node; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = node;
}

static uint32_t pop(uint32_t *heap, uint32_t *count)
{
    const uint32_t top = heap[0];
    const uint32_t last = heap[--*count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < *count; child = 2 * at + 1) {
        child += child + 1 < *count && heap[child + 1] < heap[child];
        if (heap[child] >= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static enum gc_status run(struct order *order, uint32_t *heap, bool *is_done)
{
    struct gc_graph *graph = order->graph;
    uint32_t count = 0;
    uint32_t done = 0;
    for (uint32_t i = 0; i < graph->scope_count; i++)
        graph->scopes[i].node_count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (order->waits[i] == 0)
            push(heap, &count, i);
    }
    while (count > 0) {
        const uint32_t node = pop(heap, &count);
        struct gc_graph_scope *scope = &graph->scopes[graph->nodes[node].scope];
        order->nodes[(scope->nodes - order->nodes) + scope->node_count++] = node;
        is_done[node] = true;
        done++;
        for (uint32_t e = order->first[node]; e != GC_GRAPH_NONE; e = order->edges[e].next) {
            if (--order->waits[order->edges[e].user] == 0)
                push(heap, &count, order->edges[e].user);
        }
    }
    return done == graph->node_count ? GC_OK : fail_cycle(order, is_done);
}

static enum gc_status sort(struct order *order)
{
    const uint32_t count = order->graph->node_count;
    struct gc_onnx_builder *builder = order->builder;
    uint32_t *heap = gc_onnx_alloc(builder, count * sizeof(*heap));
    bool *is_done = gc_onnx_alloc(builder, count * sizeof(*is_done));
    order->waits = gc_onnx_alloc(builder, count * sizeof(*order->waits));
    order->first = gc_onnx_alloc(builder, count * sizeof(*order->first));
    if (heap == NULL || is_done == NULL || order->waits == NULL || order->first == NULL)
        return no_memory(order);
    for (uint32_t i = 0; i < count; i++)
        order->first[i] = GC_GRAPH_NONE;
    const enum gc_status status = add_edges(order);
    return status == GC_OK ? run(order, heap, is_done) : status;
}

enum gc_status gc_onnx_order(struct gc_onnx_builder *builder)
{
    struct gc_graph *graph = builder->graph;
    struct order order = {.builder = builder, .graph = graph};
    for (uint32_t i = 0; i < graph->scope_count; i++) {
        for (uint32_t k = 0; k < graph->scopes[i].output_count; k++) {
            if (graph->scopes[i].outputs[k] != GC_GRAPH_NONE)
                graph->values[graph->scopes[i].outputs[k]].is_output = true;
        }
    }
    enum gc_status status = list_nodes(&order);
    if (status == GC_OK)
        status = add_edges(&order);
    if (status == GC_OK && order.is_unsorted)
        status = sort(&order);
    return status;
}
