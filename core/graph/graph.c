/* What can be asked of a graph that is there. */
#include "core/graph/engine.h"

#include "core/bits.h"

void gc_graph_close(struct gc_graph *graph)
{
    if (graph == NULL)
        return;
    struct gc_graph_store *store = (struct gc_graph_store *)graph;
    /* The region holds the store. */
    struct gc_region region = store->region;
    gc_region_fini(&store->results);
    gc_region_fini(&region);
}

static bool type_bytes(const struct gc_type *type, uint64_t *bytes)
{
    uint64_t elements;
    return type->kind != GC_TYPE_UNKNOWN && type->kind != GC_TYPE_MAP &&
           gc_shape_elements(&type->shape, &elements) &&
           gc_dtype_bytes(type->dtype, elements, bytes);
}

bool gc_graph_value_bytes(const struct gc_graph *graph, uint32_t value, uint64_t *bytes)
{
    return type_bytes(&graph->values[value].type, bytes);
}

/* ---- what constants make ---- */

static bool makes_constants(const struct gc_graph *graph, const struct gc_graph_node *node)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] != GC_GRAPH_NONE && !graph->values[node->outputs[i]].is_constant)
            return false;
    }
    return node->output_count > 0;
}

/* Made by a node, of constants, but not one that stands in the file as it is. */
static bool is_made(const struct gc_graph *graph, uint32_t index)
{
    const struct gc_graph_value *value = &graph->values[index];
    return value->is_constant && value->producer != GC_GRAPH_NONE &&
           graph->nodes[value->producer].input_count > 0;
}

static void add_made(const struct gc_graph *graph, uint32_t index, struct gc_graph_made *made)
{
    const struct gc_graph_value *value = &graph->values[index];
    uint64_t elements;
    uint64_t bytes;
    made->tensors++;
    if (!gc_graph_value_bytes(graph, index, &bytes) ||
        !gc_shape_elements(&value->type.shape, &elements)) {
        made->unknown++;
        return;
    }
    if (!gc_add_u64(made->bytes, bytes, &made->bytes))
        made->bytes = UINT64_MAX;
    if (!gc_add_u64(made->parameters, elements, &made->parameters))
        made->parameters = UINT64_MAX;
}

/* A view of a constant is that constant's memory. Longer chains of views are nobody's. */
#define VIEWS_MAX 64
static uint32_t viewed(const struct gc_graph *graph, uint32_t index)
{
    for (uint32_t i = 0; i < VIEWS_MAX && is_made(graph, index); i++) {
        const struct gc_graph_node *node = &graph->nodes[graph->values[index].producer];
        if (gc_graph_node_memory(node) != GC_OP_VIEW || node->inputs[0] == GC_GRAPH_NONE)
            break;
        index = node->inputs[0];
    }
    return index;
}

enum gc_status gc_graph_made(const struct gc_graph *graph, struct gc_graph_made *made)
{
    struct gc_host host = {0};
    *made = (struct gc_graph_made){0};
    uint8_t *seen = gc_host_map(&host, (uint64_t)graph->value_count + 1);
    if (seen == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct gc_graph_node *node = &graph->nodes[i];
        if (node->is_dead || makes_constants(graph, node))
            continue;
        for (uint32_t k = 0; k < node->input_count; k++) {
            const uint32_t value =
                node->inputs[k] == GC_GRAPH_NONE ? GC_GRAPH_NONE : viewed(graph, node->inputs[k]);
            if (value == GC_GRAPH_NONE || seen[value] || !is_made(graph, value))
                continue;
            seen[value] = 1;
            add_made(graph, value, made);
        }
    }
    gc_host_unmap(&host, seen, (uint64_t)graph->value_count + 1);
    return GC_OK;
}
