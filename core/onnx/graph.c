/* Reads an ONNX file's graph in three passes: first the functions and opsets, which follow the main
 * graph in the file; then the graph, with a stack of fixed size, so that no file can overflow the
 * host's; then the order of the nodes (topological sort, Kahn 1962). Linear in the file, but nested
 * calls of functions multiply: GC_ONNX_NODES_MAX limits them.
 *
 * A node is read twice: for its operator and counts, then for its inputs, outputs and attributes.
 */
#include "core/onnx/graph.h"

#include "core/base/bits.h"
#include "core/reader/detect.h"

#include <string.h>

/* Fields of NodeProto. */
enum {
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP_TYPE = 4,
    NODE_ATTRIBUTE = 5,
    NODE_DOMAIN = 7,
    NODE_OVERLOAD = 8,
};

struct scan_result {
    const char *name;
    const char *op;
    const char *domain;
    const char *overload;
    uint64_t inputs;
    uint64_t outputs;
    uint64_t attributes;
};

static enum gc_status push_frame(struct gc_onnx_builder *builder, const struct gc_onnx_frame *frame)
{
    if (builder->depth == GC_ONNX_NEST_MAX)
        return gc_source_fail(builder->onnx.source, frame->message.position,
                              "graphs and calls nested deeper than %d", GC_ONNX_NEST_MAX / 2);
    builder->frames[builder->depth++] = *frame;
    return GC_OK;
}

static enum gc_status scan_field(const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field,
                                 struct scan_result *scan_result)
{
    if (field->type != GC_PROTOBUF_BYTES)
        return GC_OK;
    switch (field->number) {
    case NODE_INPUT:
        scan_result->inputs++;
        return GC_OK;
    case NODE_OUTPUT:
        scan_result->outputs++;
        return GC_OK;
    case NODE_ATTRIBUTE:
        scan_result->attributes++;
        return GC_OK;
    case NODE_NAME:
        return gc_protobuf_text(message, field, "a node's name", &scan_result->name);
    case NODE_OP_TYPE:
        return gc_protobuf_text(message, field, "a node's type", &scan_result->op);
    case NODE_DOMAIN:
        return gc_protobuf_text(message, field, "a node's domain", &scan_result->domain);
    case NODE_OVERLOAD:
        return gc_protobuf_text(message, field, "a node's overload", &scan_result->overload);
    default:
        return GC_OK;
    }
}

static enum gc_status scan(struct gc_protobuf message, struct scan_result *scan_result)
{
    struct gc_protobuf_field field;
    bool more;
    *scan_result = (struct scan_result){.name = "", .op = "", .domain = "", .overload = ""};
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && more)
            status = scan_field(&message, &field, scan_result);
        if (status != GC_OK || !more)
            return status;
    }
}

static uint32_t import_of(const struct gc_onnx_imports *imports, const char *domain)
{
    for (uint32_t i = 0; i < imports->count; i++) {
        if (strcmp(imports->list[i].domain, domain) == 0)
            return imports->list[i].version;
    }
    return 1;
}

static enum gc_status begin_node(struct gc_onnx_builder *builder,
                                 const struct scan_result *scan_result, struct gc_onnx_frame *frame)
{
    const struct gc_onnx_space *space = &builder->spaces[frame->space];
    const enum gc_status status = gc_onnx_add_node(builder, &frame->node);
    if (status != GC_OK)
        return status;
    builder->graph->nodes[frame->node] = (struct gc_graph_node){
        .name = scan_result->name,
        .op = scan_result->op,
        .domain = scan_result->domain,
        .scope = space->scope,
        .opset = import_of(space->imports, scan_result->domain),
        .inputs = frame->inputs,
        .outputs = frame->outputs,
        .attributes = frame->attributes.list,
    };
    return GC_OK;
}

static enum gc_status open_node(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                uint32_t space)
{
    struct scan_result scan_result;
    struct gc_onnx_frame frame = {
        .kind = GC_ONNX_FRAME_NODE, .message = message, .space = space, .node = GC_GRAPH_NONE};
    if (++builder->steps > GC_ONNX_NODES_MAX)
        return gc_reader_fail(builder->onnx.reader, GC_OUT_OF_RANGE, builder->onnx.source->path,
                              "more than %u nodes and calls", GC_ONNX_NODES_MAX);
    enum gc_status status = scan(message, &scan_result);
    if (status != GC_OK)
        return status;
    if (strcmp(scan_result.domain, "ai.onnx") == 0)
        scan_result.domain = "";
    frame.name = scan_result.name[0] != '\0' ? scan_result.name : scan_result.op;
    frame.inputs = gc_onnx_alloc(builder, scan_result.inputs * sizeof(*frame.inputs));
    frame.outputs = gc_onnx_alloc(builder, scan_result.outputs * sizeof(*frame.outputs));
    frame.attributes.list =
        gc_onnx_alloc(builder, scan_result.attributes * sizeof(*frame.attributes.list));
    if (frame.inputs == NULL || frame.outputs == NULL || frame.attributes.list == NULL)
        return gc_reader_no_memory(builder->onnx.reader, builder->onnx.source->path);
    frame.function =
        gc_onnx_find_function(builder, scan_result.domain, scan_result.op, scan_result.overload);
    if (frame.function == NULL)
        status = begin_node(builder, &scan_result, &frame);
    return status == GC_OK ? push_frame(builder, &frame) : status;
}

static enum gc_status read_output(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
                                  const struct gc_protobuf_field *field)
{
    const char *name = "";
    uint32_t index = GC_GRAPH_NONE;
    enum gc_status status = gc_protobuf_text(&frame->message, field, "a value's name", &name);
    if (status == GC_OK && name[0] != '\0')
        status = gc_onnx_put_value(builder, frame->space, name, &index);
    if (status != GC_OK)
        return status;
    frame->outputs[frame->output_count++] = index;
    if (index == GC_GRAPH_NONE)
        return GC_OK;
    struct gc_graph_value *value = &builder->graph->values[index];
    if (gc_onnx_is_made(value))
        return gc_source_fail(builder->onnx.source, field->offset, "value \"%s\" is made twice",
                              GC_READER_SHOWN(name, strlen(name)));
    value->producer = frame->node;
    if (frame->node != GC_GRAPH_NONE)
        value->is_repeated = builder->spaces[frame->space].is_repeated &&
                             strcmp(builder->graph->nodes[frame->node].op, "Constant") == 0;
    return GC_OK;
}

static enum gc_status read_attribute(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
                                     struct gc_protobuf message)
{
    struct gc_graph_attribute *attribute = &frame->attributes.list[frame->attributes.count++];
    struct gc_protobuf graph = {0};
    struct gc_onnx_frame inner = {.kind = GC_ONNX_FRAME_GRAPH, .node = GC_GRAPH_NONE};
    enum gc_status status =
        gc_onnx_read_attribute(builder, frame->space, message, attribute, &graph);
    if (status != GC_OK || attribute->kind != GC_ATTRIBUTE_GRAPH)
        return status;
    if (graph.source == NULL) {
        /* A graph attribute of the call; the first node that refers to it owns it. */
        struct gc_graph_scope *scope = &builder->graph->scopes[attribute->scope];
        if (scope->node != GC_GRAPH_NONE) {
            attribute->kind = GC_ATTRIBUTE_NONE;
        } else {
            scope->node = frame->node;
            scope->parent = builder->spaces[frame->space].scope;
        }
        return GC_OK;
    }
    attribute->scope = builder->graph->scope_count;
    inner.message = graph;
    status = gc_onnx_open_scope(builder, graph, frame->space, frame->node, &inner.space);
    return status == GC_OK ? push_frame(builder, &inner) : status;
}

static enum gc_status node_field(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
                                 const struct gc_protobuf_field *field)
{
    if (field->type != GC_PROTOBUF_BYTES)
        return GC_OK;
    switch (field->number) {
    case NODE_INPUT:
        frame->input_count++;
        return gc_onnx_use_value(builder, frame->space, &frame->message, field,
                                 &frame->inputs[frame->input_count - 1]);
    case NODE_OUTPUT:
        return read_output(builder, frame, field);
    case NODE_ATTRIBUTE:
        return read_attribute(builder, frame, gc_protobuf_inner(&frame->message, field));
    default:
        return GC_OK;
    }
}

static enum gc_status end_node(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
                               bool *is_call)
{
    *is_call = frame->function != NULL;
    if (*is_call)
        return gc_onnx_begin_call(builder, frame);
    struct gc_graph_node *node = &builder->graph->nodes[frame->node];
    node->input_count = frame->input_count;
    node->output_count = frame->output_count;
    node->attribute_count = frame->attributes.count;
    return GC_OK;
}

/* The order in which nodes can run: the file's if valid, as it should be; else sorted, ties by the
 * file's order (Kahn 1962). A node with inner graphs depends on everything its inner nodes use. */

struct edge {
    uint32_t next; /* edge, or GC_GRAPH_NONE */
    uint32_t user;
};

struct order {
    struct gc_onnx_builder *builder;
    struct gc_graph *graph;
    uint32_t *nodes; /* by scope */

    bool is_unsorted;
    uint32_t *waits; /* by node: its uses of values not computed yet */
    uint32_t *first; /* by node: its first edge */
    struct edge *edges;
    uint32_t edge_count;
    uint32_t edge_room;
};

/* The ancestor of `node` in `scope`, or `node` itself; GC_GRAPH_NONE if `node` is not in `scope`.
 */
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
        gc_reader_grow(order->builder->onnx.reader, order->graph->path, (void **)&order->edges,
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
    return gc_reader_no_memory(order->builder->onnx.reader, order->graph->path);
}

/* Lists each scope's nodes in the file's order. */
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
    return gc_reader_fail(order->builder->onnx.reader, GC_FORMAT, graph->path,
                          "node \"%s\" waits for itself: a cycle",
                          GC_READER_SHOWN(name, strlen(name)));
}

/* A min-heap of the nodes that can run. */
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

static enum gc_status order_nodes(struct gc_onnx_builder *builder)
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

/* The passes: one over the model reads functions and opsets, which follow the main graph in the
 * file; the next reads the graph, with a stack of fixed size, so that no file can overflow the
 * host's. */

/* Fields of ModelProto, GraphProto and FunctionProto. */
enum {
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_FUNCTION = 25,
    GRAPH_NODE = 1,
    FUNCTION_NODE = 7,
};

static enum gc_status read_field(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
                                 const struct gc_protobuf_field *field)
{
    const uint32_t number = frame->kind == GC_ONNX_FRAME_CALL ? FUNCTION_NODE : GRAPH_NODE;
    if (frame->kind == GC_ONNX_FRAME_NODE)
        return node_field(builder, frame, field);
    if (!gc_protobuf_is(field, number, GC_PROTOBUF_BYTES))
        return GC_OK;
    return open_node(builder, gc_protobuf_inner(&frame->message, field), frame->space);
}

static enum gc_status end_frame(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame)
{
    bool is_call = false;
    enum gc_status status;
    if (frame->kind == GC_ONNX_FRAME_NODE)
        status = end_node(builder, frame, &is_call);
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
            status = more ? read_field(builder, frame, &field) : end_frame(builder, frame);
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
            status = gc_onnx_read_import(builder, inner, &builder->imports);
        else if (field.number == MODEL_FUNCTION)
            status = gc_onnx_add_function(builder, inner);
        if (status != GC_OK)
            return status;
    }
    if (graph->source == NULL)
        return gc_reader_fail(source->reader, GC_FORMAT, source->path,
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
        status = push_frame(builder, &frame);
    if (status == GC_OK)
        status = walk(builder);
    return status == GC_OK ? order_nodes(builder) : status;
}

static enum gc_status read_source(struct gc_source *source, const struct gc_folder *folder,
                                  const char *name, struct gc_graph_store *store)
{
    struct gc_reader *reader = source->reader;
    enum gc_file_kind kind = GC_FILE_UNKNOWN;
    enum gc_status status = gc_detect_format(source, name, &kind);
    if (status == GC_OK && kind != GC_FILE_ONNX)
        status =
            gc_reader_fail(reader, GC_FORMAT, source->path, "no ONNX model, which has a graph");
    if (status == GC_OK)
        status = gc_reader_add_file(reader, source->path, source->bytes, &source->file);
    if (status != GC_OK)
        return status;
    struct gc_onnx_builder *builder = gc_reader_alloc(reader, source->path, sizeof(*builder));
    if (builder == NULL)
        return gc_reader_no_memory(reader, source->path);
    builder->onnx = (struct gc_onnx){.reader = reader, .source = source, .folder = folder};
    builder->store = store;
    builder->graph = &store->graph;
    gc_strmap_init(&builder->onnx.external);
    gc_strmap_init(&builder->symbols);
    gc_strmap_init(&builder->function_names);
    return read_graph(builder);
}

static enum gc_status read_path(struct gc_reader *reader, const char *path,
                                struct gc_graph_store *store)
{
    struct gc_folder folder;
    struct gc_source source;
    const char *name;
    enum gc_status status = gc_source_open_with_folder(reader, path, &source, &folder, &name);
    if (status != GC_OK)
        return status;
    status = read_source(&source, &folder, name, store);
    gc_source_close_folder(&folder);
    gc_source_close(&source);
    return status;
}

static void move_results(struct gc_reader *reader, void *memory)
{
    struct gc_graph_store *store = memory;
    struct gc_graph *graph = &store->graph;
    store->memory_max = reader->limits.memory_bytes;
    store->file_symbols = graph->symbols;
    store->file_symbol_count = graph->symbol_count;
    store->file_notes = reader->warnings;
    store->file_note_count = reader->warning_count;
    graph->notes = reader->warnings;
    graph->note_count = reader->warning_count;
    gc_region_init(&store->results, store->memory_max);
    store->region = reader->region;
}

static enum gc_status read_store(struct gc_reader *reader, void *memory)
{
    struct gc_graph_store *store = memory;
    store->graph.path = reader->path;
    return read_path(reader, reader->path, store);
}

enum gc_status gc_graph_open(const char *path, const struct gc_model_limits *limits,
                             struct gc_graph **graph, struct gc_model_error *error)
{
    static const struct gc_reading reading = {sizeof(struct gc_graph_store), read_store,
                                              move_results};
    void *memory;
    const enum gc_status status = gc_reader_run(&reading, path, limits, error, &memory);
    *graph = memory == NULL ? NULL : &((struct gc_graph_store *)memory)->graph;
    return status;
}
