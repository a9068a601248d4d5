/* Reading an ONNX file's graph. The model is walked for its functions and opsets, which stand
 * behind the main graph; then the graph, with a stack of our own, so that no file decides how deep
 * the host's goes. */
#include "core/formats/onnx_graph.h"

#include "core/base/bits.h"
#include "core/formats/kind.h"

#include <errno.h>
#include <string.h>

/* Fields of ModelProto, GraphProto and FunctionProto. */
enum {
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_FUNCTION = 25,
    GRAPH_NODE = 1,
    FUNCTION_NODE = 7,
};

static enum gc_status take_field(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
                                 const struct gc_protobuf_field *field)
{
    const uint32_t number = frame->kind == GC_ONNX_FRAME_CALL ? FUNCTION_NODE : GRAPH_NODE;
    if (frame->kind == GC_ONNX_FRAME_NODE)
        return gc_onnx_node_field(builder, frame, field);
    if (!gc_protobuf_is(field, number, GC_PROTOBUF_BYTES))
        return GC_OK;
    return gc_onnx_open_node(builder, gc_protobuf_inner(&frame->message, field), frame->space);
}

static enum gc_status end_frame(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame)
{
    bool is_call = false;
    enum gc_status status;
    if (frame->kind == GC_ONNX_FRAME_NODE)
        status = gc_onnx_end_node(builder, frame, &is_call);
    else if (frame->kind == GC_ONNX_FRAME_CALL)
        status = gc_onnx_end_call(builder, frame);
    else
        status = gc_onnx_close_space(builder);
    builder->depth -= !is_call;
    return status;
}

static enum gc_status walk(struct gc_onnx_builder *builder)
{
    while (builder->depth > 0) {
        struct gc_onnx_frame *frame = &builder->frames[builder->depth - 1];
        struct gc_protobuf_field field;
        bool more;
        enum gc_status status = gc_protobuf_next(&frame->message, &field, &more);
        if (status == GC_OK)
            status = more ? take_field(builder, frame, &field) : end_frame(builder, frame);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static enum gc_status read_model(struct gc_onnx_builder *builder, struct gc_protobuf *graph)
{
    struct gc_source *source = builder->onnx.source;
    struct gc_protobuf message = {.source = source, .end = source->bytes};
    struct gc_protobuf_field field;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK)
            return status;
        if (!more)
            break;
        if (field.type != GC_PROTOBUF_BYTES)
            continue;
        const struct gc_protobuf inner = gc_protobuf_inner(&message, &field);
        if (field.number == MODEL_GRAPH && graph->source != NULL)
            return gc_source_fail(builder->onnx.source, field.offset,
                                  "a second main graph; one is accepted");
        if (field.number == MODEL_GRAPH)
            *graph = inner;
        else if (field.number == MODEL_OPSET)
            status = gc_onnx_take_import(builder, inner, &builder->imports);
        else if (field.number == MODEL_FUNCTION)
            status = gc_onnx_add_function(builder, inner);
        if (status != GC_OK)
            return status;
    }
    if (graph->source == NULL)
        return gc_load_fail(source->load, GC_FORMAT, source->path,
                            "no graph: an ONNX model has one, whole files are accepted");
    return GC_OK;
}

static enum gc_status read_graph(struct gc_onnx_builder *builder)
{
    struct gc_onnx_frame frame = {.kind = GC_ONNX_FRAME_GRAPH, .node = GC_GRAPH_NONE};
    enum gc_status status = read_model(builder, &frame.message);
    for (uint32_t i = 0; i < builder->imports.count; i++) {
        if (builder->imports.list[i].domain[0] == '\0')
            builder->graph->opset = builder->imports.list[i].version;
    }
    if (status == GC_OK)
        status =
            gc_onnx_open_scope(builder, frame.message, GC_GRAPH_NONE, GC_GRAPH_NONE, &frame.space);
    if (status == GC_OK)
        status = gc_onnx_push(builder, &frame);
    if (status == GC_OK)
        status = walk(builder);
    return status == GC_OK ? gc_onnx_order(builder) : status;
}

static enum gc_status read_source(struct gc_source *source, const struct gc_folder *folder,
                                  const char *name, struct gc_graph_store *store)
{
    struct gc_load *load = source->load;
    enum gc_kind kind = GC_KIND_UNKNOWN;
    enum gc_status status = gc_kind_tell(source, name, &kind);
    if (status == GC_OK && kind != GC_KIND_ONNX)
        status = gc_load_fail(load, GC_FORMAT, source->path, "no ONNX model, which has a graph");
    if (status == GC_OK)
        status = gc_load_add_file(load, source->path, source->bytes, &source->file);
    if (status != GC_OK)
        return status;
    struct gc_onnx_builder *builder = gc_load_alloc(load, source->path, sizeof(*builder));
    if (builder == NULL)
        return gc_load_no_memory(load, source->path);
    builder->onnx = (struct gc_onnx){.load = load, .source = source, .folder = folder};
    builder->store = store;
    builder->graph = &store->graph;
    gc_names_init(&builder->onnx.external);
    gc_names_init(&builder->symbols);
    gc_names_init(&builder->function_names);
    return read_graph(builder);
}

static enum gc_status read_path(struct gc_load *load, const char *path,
                                struct gc_graph_store *store)
{
    struct gc_folder folder;
    struct gc_source source;
    const char *name;
    enum gc_status status = gc_source_open_with_folder(load, path, &source, &folder, &name);
    if (status != GC_OK)
        return status;
    status = read_source(&source, &folder, name, store);
    gc_folder_close(&folder);
    gc_source_close(&source);
    return status;
}

static void hand_over(struct gc_load *load, struct gc_graph_store *store)
{
    struct gc_graph *graph = &store->graph;
    store->memory_max = load->limits.memory_bytes;
    store->file_symbols = graph->symbols;
    store->file_symbol_count = graph->symbol_count;
    store->file_notes = load->warnings;
    store->file_note_count = load->warning_count;
    graph->notes = load->warnings;
    graph->note_count = load->warning_count;
    gc_region_init(&store->results, store->memory_max);
    store->region = load->region;
}

enum gc_status gc_graph_open(const char *path, const struct gc_model_limits *limits,
                             struct gc_graph **graph, struct gc_model_error *error)
{
    const int saved_errno = errno;
    struct gc_load load;
    void *memory;
    *graph = NULL;
    enum gc_status status =
        gc_load_begin(&load, path, limits, error, sizeof(struct gc_graph_store), &memory);
    struct gc_graph_store *store = memory;
    if (status == GC_OK) {
        store->graph.path = load.path;
        status = read_path(&load, load.path, store);
    }
    gc_source_end(&load);
    if (status == GC_OK) {
        hand_over(&load, store);
        *graph = &store->graph;
    } else {
        gc_region_fini(&load.region);
    }
    errno = saved_errno;
    return status;
}
