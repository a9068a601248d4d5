/* The graph of an ONNX file of anyone's making: read, inferred twice, and looked at all over. */
#include "core/model/graph.h"
#include "tests/fuzz/model_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static size_t seen;

static void look_at_type(const struct gc_graph *graph, const struct gc_type *type)
{
    must(type->dtype <= GC_DTYPE_NONE && type->kind <= GC_TYPE_MAP);
    must(type->shape.rank <= GC_GRAPH_RANK_MAX);
    must(type->shape.is_known || type->shape.rank == 0);
    for (uint32_t i = 0; i < type->shape.rank; i++) {
        const struct gc_dim dim = type->shape.dims[i];
        must(dim.kind == GC_DIM_NUMBER || dim.kind == GC_DIM_SYMBOL);
        must(dim.kind != GC_DIM_NUMBER || dim.number >= 0);
        must(dim.kind != GC_DIM_SYMBOL || dim.symbol < graph->symbol_count);
    }
}

static void look_at_data(const struct gc_graph *graph, const struct gc_graph_value *value)
{
    uint64_t elements = 1;
    must(value->data->count <= GC_GRAPH_DATA_MAX && value->type.shape.is_known);
    for (uint32_t i = 0; i < value->type.shape.rank; i++) {
        must(value->type.shape.dims[i].kind == GC_DIM_NUMBER);
        elements *= (uint64_t)value->type.shape.dims[i].number;
    }
    must(elements == value->data->count);
    for (uint32_t i = 0; i < value->data->count; i++) {
        const struct gc_dim item = value->data->items[i];
        must(item.kind != GC_DIM_SYMBOL || item.symbol < graph->symbol_count);
        must(!value->data->is_complete || item.kind == GC_DIM_NUMBER || item.kind == GC_DIM_REAL);
    }
}

static void look_at_values(const struct gc_graph *graph)
{
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct gc_graph_value *value = &graph->values[i];
        uint64_t bytes;
        seen += strlen(value->name) + gc_graph_value_bytes(graph, i, &bytes);
        must(value->scope < graph->scope_count);
        must(value->producer == GC_GRAPH_NONE || value->producer < graph->node_count);
        look_at_type(graph, &value->type);
        if (value->data != NULL)
            look_at_data(graph, value);
    }
}

static void look_at_ends(const struct gc_graph *graph, const uint32_t *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        must(list[i] == GC_GRAPH_NONE || list[i] < graph->value_count);
}

/* Every node is in its scope's list once, behind those it takes values from. */
static void look_at_nodes(const struct gc_graph *graph)
{
    static uint32_t place[1U << 16];
    uint32_t listed = 0;
    for (uint32_t i = 0; i < graph->scope_count; i++) {
        const struct gc_graph_scope *scope = &graph->scopes[i];
        seen += strlen(scope->name);
        must(scope->node == GC_GRAPH_NONE || scope->node < graph->node_count);
        look_at_ends(graph, scope->inputs, scope->input_count);
        look_at_ends(graph, scope->outputs, scope->output_count);
        for (uint32_t k = 0; k < scope->node_count; k++) {
            const struct gc_graph_node *node = &graph->nodes[scope->nodes[k]];
            must(node->scope == i);
            place[scope->nodes[k] % (1U << 16)] = listed++;
            look_at_ends(graph, node->inputs, node->input_count);
            look_at_ends(graph, node->outputs, node->output_count);
            for (uint32_t n = 0; n < node->input_count; n++) {
                const uint32_t from = node->inputs[n] == GC_GRAPH_NONE
                                          ? GC_GRAPH_NONE
                                          : graph->values[node->inputs[n]].producer;
                must(from == GC_GRAPH_NONE || graph->node_count > 1U << 16 ||
                     graph->nodes[from].scope != i || place[from] < listed - 1);
            }
        }
    }
    must(listed == graph->node_count);
}

static void infer(struct gc_graph *graph, const char *dims)
{
    struct gc_model_error error;
    const enum gc_status status = gc_graph_infer(graph, dims, &error);
    must(status == GC_OK || status == GC_OUT_OF_RANGE || status == GC_NO_HOST_MEMORY);
    must(status == GC_OK || error.text[0] != '\0');
    if (status != GC_OK)
        return;
    must(graph->coverage.known + graph->coverage.open + graph->coverage.unknown ==
         graph->coverage.values);
    look_at_nodes(graph);
    look_at_values(graph);
    for (uint32_t i = 0; i < graph->note_count; i++)
        seen += strlen(graph->notes[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct gc_model_limits limits = {
        .memory_bytes = 64U << 20, .header_bytes = 64U << 20, .tensors = 10000, .files = 16};
    struct gc_model_error error;
    struct gc_graph *graph;
    char path[128];
    put_file("graph.onnx", data, bytes);
    snprintf(path, sizeof(path), "%s/graph.onnx", folder);
    const enum gc_status status = gc_graph_open(path, &limits, &graph, &error);
    if (status != GC_OK) {
        must(graph == NULL && error.text[0] != '\0' && strchr(error.text, '\n') == NULL);
        return 0;
    }
    infer(graph, NULL);
    infer(graph, "N=2,batch=3,x.0=4,n=5");
    gc_graph_close(graph);
    return 0;
}
