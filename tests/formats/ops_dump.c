/* Prints what the library makes of graphs, one JSON object a line for each file, for tests in other
 * languages.
 * usage: ops_dump [--dims NAME=N,…] FILE…
 *        ops_dump --ops
 * A file that is refused has an "error"; --ops lists the operators that are known. */
#include "core/graph/ops.h"
#include "core/io/json.h"
#include "core/model/graph.h"

#include <stdio.h>
#include <string.h>

static struct gc_writer out;
static struct gc_json json;

/* A number, "s" and a number for a symbol, null. */
static void put_dim(const struct gc_graph *graph, struct gc_dim dim)
{
    char text[32];
    switch (dim.kind) {
    case GC_DIM_NUMBER:
        gc_json_int(&json, dim.number);
        break;
    case GC_DIM_SYMBOL:
        snprintf(text, sizeof(text), "s%u", dim.symbol);
        gc_json_string(&json, dim.symbol < graph->symbol_count ? text : "beyond the last symbol");
        break;
    case GC_DIM_REAL:
        snprintf(text, sizeof(text), "%.9g", dim.real);
        gc_json_string(&json, text);
        break;
    default:
        gc_json_null(&json);
    }
}

static void put_dims(const struct gc_graph *graph, const char *key, const struct gc_dim *dims,
                     uint32_t count)
{
    gc_json_key(&json, key);
    gc_json_begin_array(&json, GC_JSON_LINE);
    for (uint32_t i = 0; i < count; i++)
        put_dim(graph, dims[i]);
    gc_json_end_array(&json);
}

static void put_value(const struct gc_graph *graph, uint32_t index)
{
    const struct gc_graph_value *value = &graph->values[index];
    uint64_t bytes;
    gc_json_begin_object(&json, GC_JSON_LINE);
    gc_json_write_string(&json, "name", value->name);
    gc_json_write_uint(&json, "scope", value->scope);
    gc_json_write_uint(&json, "kind", value->type.kind);
    gc_json_write_string(&json, "dtype", gc_dtype_name(value->type.dtype));
    if (value->type.shape.is_known)
        put_dims(graph, "dims", value->type.shape.dims, value->type.shape.rank);
    if (value->data != NULL)
        put_dims(graph, "data", value->data->items, value->data->count);
    if (gc_graph_value_bytes(graph, index, &bytes))
        gc_json_write_uint(&json, "bytes", bytes);
    gc_json_end_object(&json);
}

static void put_graph(const struct gc_graph *graph)
{
    gc_json_key(&json, "values");
    gc_json_begin_array(&json, GC_JSON_LINE);
    for (uint32_t i = 0; i < graph->value_count; i++)
        put_value(graph, i);
    gc_json_end_array(&json);
    gc_json_key(&json, "notes");
    gc_json_begin_array(&json, GC_JSON_LINE);
    for (uint32_t i = 0; i < graph->note_count; i++)
        gc_json_string(&json, graph->notes[i]);
    gc_json_end_array(&json);
    gc_json_write_uint(&json, "unknown_nodes", graph->coverage.unknown_nodes);
    gc_json_write_uint(&json, "failed_nodes", graph->coverage.failed_nodes);
}

static void put_file(const char *path, const char *dims)
{
    struct gc_graph *graph;
    struct gc_model_error error = {.text = ""};
    enum gc_status status = gc_graph_open(path, NULL, &graph, &error);
    gc_json_init(&json, &out); /* each line is an object of its own */
    gc_json_begin_object(&json, GC_JSON_LINE);
    if (status == GC_OK) {
        status = gc_graph_infer(graph, dims, &error);
        if (status == GC_OK)
            put_graph(graph);
        gc_graph_close(graph);
    }
    if (status != GC_OK)
        gc_json_write_string(&json, "error", error.text);
    gc_json_end_object(&json);
}

static void put_op(const char *domain, const char *name, uint32_t since)
{
    gc_json_init(&json, &out);
    gc_json_begin_array(&json, GC_JSON_LINE);
    gc_json_string(&json, domain);
    gc_json_string(&json, name);
    gc_json_uint(&json, since);
    gc_json_end_array(&json);
}

static void put_ops(void)
{
#define GC_OP(domain, name, since, rule, memory) put_op(domain, name, since);
#include "core/graph/ops.def"
#undef GC_OP
}

int main(int argc, char **argv)
{
    const char *dims = NULL;
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--dims") == 0) {
        dims = argv[2];
        first = 3;
    }
    if (argc <= first) {
        fputs("usage: ops_dump [--dims NAME=N,...] FILE...\n       ops_dump --ops\n", stderr);
        return 2;
    }
    gc_writer_init(&out, 1);
    if (strcmp(argv[first], "--ops") == 0) {
        put_ops();
        return gc_writer_flush(&out) == GC_OK ? 0 : 1;
    }
    for (int i = first; i < argc; i++)
        put_file(argv[i], dims);
    return gc_writer_flush(&out) == GC_OK ? 0 : 1;
}
