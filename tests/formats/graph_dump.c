/* Prints what is read and inferred of an ONNX graph as JSON, for the tests that compare it with
 * what others make of it.
 *     graph_dump [--brief] PATH [NAME=N,…] */
#include "core/io/json.h"
#include "core/io/text.h"
#include "core/model/graph.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct gc_writer out;
static struct gc_json json;

static void put_dim(const struct gc_graph *graph, const struct gc_dim *dim)
{
    char text[32];
    if (dim->kind == GC_DIM_NUMBER) {
        gc_json_int(&json, dim->number);
    } else if (dim->kind == GC_DIM_REAL) {
        snprintf(text, sizeof(text), "%.9g", dim->real);
        gc_json_string(&json, text);
    } else if (dim->kind == GC_DIM_SYMBOL) {
        const char *name = graph->symbols[dim->symbol].name;
        snprintf(text, sizeof(text), "#%u", dim->symbol);
        gc_json_string(&json, name != NULL ? name : text);
    } else {
        gc_json_null(&json);
    }
}

static void put_list(const struct gc_graph *graph, const struct gc_dim *dims, uint32_t count)
{
    gc_json_begin_array(&json, GC_JSON_LINE);
    for (uint32_t i = 0; i < count; i++)
        put_dim(graph, &dims[i]);
    gc_json_end_array(&json);
}

static void put_flag(const char *key, bool is_set)
{
    if (!is_set)
        return;
    gc_json_key(&json, key);
    gc_json_bool(&json, true);
}

static void put_value(const struct gc_graph *graph, uint32_t index)
{
    static const char *const kinds[] = {
        "unknown", "tensor", "sparse", "sequence", "optional", "optional sequence", "map"};
    const struct gc_graph_value *value = &graph->values[index];
    uint64_t bytes;
    gc_json_begin_object(&json, GC_JSON_LINE);
    gc_json_write_string(&json, "name", value->name);
    gc_json_write_uint(&json, "scope", value->scope);
    gc_json_write_string(&json, "kind", kinds[value->type.kind]);
    gc_json_write_string(&json, "dtype", gc_dtype_name(value->type.dtype));
    gc_json_key(&json, "shape");
    if (value->type.shape.is_known)
        put_list(graph, value->type.shape.dims, value->type.shape.rank);
    else
        gc_json_null(&json);
    if (gc_graph_value_bytes(graph, index, &bytes))
        gc_json_write_uint(&json, "bytes", bytes);
    if (value->producer != GC_GRAPH_NONE)
        gc_json_write_string(&json, "op", graph->nodes[value->producer].op);
    put_flag("dead", value->producer != GC_GRAPH_NONE && graph->nodes[value->producer].is_dead);
    put_flag("input", value->is_input);
    put_flag("output", value->is_output);
    put_flag("initializer", value->is_initializer);
    put_flag("captured", value->is_captured);
    put_flag("constant", value->is_constant);
    put_flag("repeated", value->is_repeated);
    if (value->data != NULL && value->data->count <= 64) {
        gc_json_key(&json, "data");
        put_list(graph, value->data->items, value->data->count);
    }
    gc_json_end_object(&json);
}

static void put_coverage(const struct gc_graph *graph)
{
    const struct gc_graph_coverage *coverage = &graph->coverage;
    gc_json_write_uint(&json, "values", coverage->values);
    gc_json_write_uint(&json, "known", coverage->known);
    gc_json_write_uint(&json, "open", coverage->open);
    gc_json_write_uint(&json, "unknown", coverage->unknown);
    gc_json_write_uint(&json, "unknown_nodes", coverage->unknown_nodes);
    gc_json_write_uint(&json, "failed_nodes", coverage->failed_nodes);
}

static void put_nodes(const struct gc_graph *graph)
{
    gc_json_key(&json, "nodes");
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (uint32_t i = 0; i < graph->scope_count; i++) {
        for (uint32_t k = 0; k < graph->scopes[i].node_count; k++) {
            const struct gc_graph_node *node = &graph->nodes[graph->scopes[i].nodes[k]];
            gc_json_begin_object(&json, GC_JSON_LINE);
            gc_json_write_string(&json, "name", node->name);
            gc_json_write_string(&json, "op", node->op);
            gc_json_write_uint(&json, "scope", node->scope);
            gc_json_write_uint(&json, "opset", node->opset);
            put_flag("dead", node->is_dead);
            put_flag("ruled", node->rule != NULL);
            gc_json_end_object(&json);
        }
    }
    gc_json_end_array(&json);
}

static void put_graph(const struct gc_graph *graph, uint64_t ns, bool is_brief)
{
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_uint(&json, "ns", ns);
    gc_json_write_uint(&json, "node_count", graph->node_count);
    gc_json_write_uint(&json, "scope_count", graph->scope_count);
    put_coverage(graph);
    gc_json_key(&json, "notes");
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (uint32_t i = 0; i < graph->note_count; i++)
        gc_json_string(&json, graph->notes[i]);
    gc_json_end_array(&json);
    if (!is_brief) {
        put_nodes(graph);
        gc_json_key(&json, "list");
        gc_json_begin_array(&json, GC_JSON_LINES);
        for (uint32_t i = 0; i < graph->value_count; i++)
            put_value(graph, i);
        gc_json_end_array(&json);
    }
    gc_json_end_object(&json);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv)
{
    struct gc_graph *graph;
    struct gc_model_error error;
    const bool is_brief = argc > 1 && strcmp(argv[1], "--brief") == 0;
    if (argc < 2 + is_brief || argc > 3 + is_brief) {
        fputs("usage: graph_dump [--brief] PATH [NAME=N,...]\n", stderr);
        return 2;
    }
    const char *dims = argc == 3 + is_brief ? argv[2 + is_brief] : NULL;
    const uint64_t begin = now_ns();
    if (gc_graph_open(argv[1 + is_brief], NULL, &graph, &error) != GC_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    if (gc_graph_infer(graph, dims, &error) != GC_OK) {
        fprintf(stderr, "%s\n", error.text);
        gc_graph_close(graph);
        return 1;
    }
    const uint64_t ns = now_ns() - begin;
    gc_writer_init(&out, 1);
    gc_json_init(&json, &out);
    put_graph(graph, ns, is_brief);
    gc_graph_close(graph);
    return gc_writer_flush(&out) == GC_OK ? 0 : 1;
}
