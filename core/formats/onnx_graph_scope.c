/* All of a graph but its nodes: initializers, inputs, outputs, what it tells of values. It stands
 * behind the nodes in the file and is read first, since nodes use it. */
#include "core/formats/onnx_graph.h"

#include <string.h>

/* Fields of GraphProto. */
enum {
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_VALUE_INFO = 13,
    GRAPH_SPARSE = 15,
    PORT_NAME = 1,
};

struct scope_reading {
    uint32_t space;
    struct gc_graph_scope scope;
    uint32_t *inputs;
    uint32_t *outputs;
};

/* ---- tensors ---- */

static enum gc_status as_tensor(struct gc_onnx_builder *builder,
                                const struct gc_onnx_content *content, struct gc_tensor *tensor)
{
    const struct gc_model_tensor *from = &content->tensor;
    struct gc_dim *dims = gc_onnx_alloc(builder, from->dim_count * sizeof(*dims));
    if (dims == NULL)
        return gc_load_no_memory(builder->onnx.load, builder->onnx.source->path);
    for (uint32_t i = 0; i < from->dim_count; i++)
        dims[i] = (struct gc_dim){.kind = GC_DIM_NUMBER, .number = (int64_t)content->dims[i]};
    *tensor = (struct gc_tensor){
        .type = {.kind = GC_TYPE_TENSOR,
                 .dtype = from->dtype,
                 .shape = {.is_known = true, .rank = from->dim_count, .dims = dims}}};
    return GC_OK;
}

enum gc_status gc_onnx_small_tensor(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                    const char **name, struct gc_tensor *tensor)
{
    struct gc_onnx_content content;
    enum gc_status status = gc_onnx_read_content(&builder->onnx, message, NULL, &content);
    if (status == GC_OK)
        status = as_tensor(builder, &content, tensor);
    if (status == GC_OK)
        status = gc_onnx_read_data(builder, message, &content, &tensor->data);
    *name = content.tensor.name;
    return status;
}

enum gc_status gc_onnx_sparse_tensor(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                     const char **name, struct gc_tensor *tensor)
{
    struct gc_onnx_content content;
    enum gc_status status = gc_onnx_read_sparse(&builder->onnx, message, NULL, &content);
    if (status != GC_OK)
        return status;
    *name = content.tensor.name;
    return as_tensor(builder, &content, tensor);
}

static enum gc_status take_initializer(struct gc_onnx_builder *builder, uint32_t space,
                                       struct gc_protobuf message, bool is_sparse)
{
    struct gc_tensor tensor;
    const char *name = "";
    uint32_t index;
    enum gc_status status = is_sparse ? gc_onnx_sparse_tensor(builder, message, &name, &tensor)
                                      : gc_onnx_small_tensor(builder, message, &name, &tensor);
    if (status == GC_OK)
        status = gc_onnx_put_value(builder, space, name, &index);
    if (status != GC_OK)
        return status;
    struct gc_graph_value *value = &builder->graph->values[index];
    if (value->is_initializer)
        return gc_source_fail(builder->onnx.source, message.position,
                              "initializer \"%s\" is there twice",
                              GC_LOAD_SHOWN(name, strlen(name)));
    value->is_initializer = true;
    value->declared = tensor.type;
    value->data = tensor.data;
    return GC_OK;
}

/* ---- inputs, outputs, others ---- */

static enum gc_status declare(struct gc_onnx_builder *builder, struct scope_reading *reading,
                              struct gc_protobuf message, enum gc_model_port_kind kind,
                              uint32_t *index)
{
    struct gc_onnx_port port;
    struct gc_type type;
    enum gc_status status = gc_onnx_read_port(&builder->onnx, message, kind, &port);
    if (status == GC_OK)
        status = gc_onnx_type(builder, &port, &type);
    if (status == GC_OK)
        status = gc_onnx_put_value(builder, reading->space, port.port.name, index);
    if (status != GC_OK)
        return status;
    struct gc_graph_value *value = &builder->graph->values[*index];
    /* An initializer is what its tensor says. */
    if (!value->is_initializer && type.kind != GC_TYPE_UNKNOWN)
        value->declared = type;
    return GC_OK;
}

static enum gc_status take_input(struct gc_onnx_builder *builder, struct scope_reading *reading,
                                 struct gc_protobuf message)
{
    uint32_t index;
    const bool is_main = reading->scope.parent == GC_GRAPH_NONE;
    const enum gc_status status =
        declare(builder, reading, message, is_main ? GC_MODEL_INPUT : GC_MODEL_INNER, &index);
    if (status != GC_OK)
        return status;
    if (builder->graph->values[index].is_input)
        return gc_source_fail(builder->onnx.source, message.position, "an input is there twice");
    builder->graph->values[index].is_input = true;
    reading->inputs[reading->scope.input_count++] = index;
    return GC_OK;
}

static enum gc_status take_output(struct gc_onnx_builder *builder, struct scope_reading *reading,
                                  struct gc_protobuf message)
{
    uint32_t index;
    struct gc_protobuf again = message;
    struct gc_protobuf_field field;
    bool more;
    enum gc_status status = declare(builder, reading, message, GC_MODEL_OUTPUT, &index);
    uint32_t *slot = &reading->outputs[reading->scope.output_count++];
    *slot = GC_GRAPH_NONE;
    while (status == GC_OK) {
        status = gc_protobuf_next(&again, &field, &more);
        if (status != GC_OK || !more)
            return status;
        if (gc_protobuf_is(&field, PORT_NAME, GC_PROTOBUF_BYTES))
            return gc_onnx_use_value(builder, reading->space, &again, &field, slot);
    }
    return status;
}

static enum gc_status take_field(struct gc_onnx_builder *builder, struct scope_reading *reading,
                                 const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field)
{
    const struct gc_protobuf inner = gc_protobuf_inner(message, field);
    uint32_t index;
    if (field->type != GC_PROTOBUF_BYTES)
        return GC_OK;
    switch (field->number) {
    case GRAPH_NAME:
        return gc_protobuf_text(message, field, "a graph's name", &reading->scope.name);
    case GRAPH_INITIALIZER:
        return take_initializer(builder, reading->space, inner, false);
    case GRAPH_SPARSE:
        return take_initializer(builder, reading->space, inner, true);
    case GRAPH_INPUT:
        return take_input(builder, reading, inner);
    case GRAPH_OUTPUT:
        return take_output(builder, reading, inner);
    case GRAPH_VALUE_INFO:
        return declare(builder, reading, inner, GC_MODEL_INNER, &index);
    default:
        return GC_OK;
    }
}

static enum gc_status count_ports(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                  struct scope_reading *reading)
{
    struct gc_protobuf_field field;
    uint64_t inputs = 0;
    uint64_t outputs = 0;
    bool more;
    for (;;) {
        const enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK)
            return status;
        if (!more)
            break;
        inputs += gc_protobuf_is(&field, GRAPH_INPUT, GC_PROTOBUF_BYTES);
        outputs += gc_protobuf_is(&field, GRAPH_OUTPUT, GC_PROTOBUF_BYTES);
    }
    reading->inputs = gc_onnx_alloc(builder, inputs * sizeof(*reading->inputs));
    reading->outputs = gc_onnx_alloc(builder, outputs * sizeof(*reading->outputs));
    return reading->inputs != NULL && reading->outputs != NULL
               ? GC_OK
               : gc_load_no_memory(builder->onnx.load, builder->onnx.source->path);
}

static enum gc_status read_ports(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                 struct scope_reading *reading)
{
    struct gc_protobuf_field field;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && more)
            status = take_field(builder, reading, &message, &field);
        if (status != GC_OK || !more)
            return status;
    }
}

enum gc_status gc_onnx_open_scope(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                  uint32_t parent_space, uint32_t node, uint32_t *space)
{
    struct gc_graph *graph = builder->graph;
    const bool is_main = parent_space == GC_GRAPH_NONE;
    const struct gc_onnx_space *around = is_main ? NULL : &builder->spaces[parent_space];
    struct scope_reading reading = {
        .scope = {.name = "", .parent = is_main ? GC_GRAPH_NONE : around->scope, .node = node}};
    struct gc_onnx_space like = {.imports = &builder->imports, .prefix = ""};
    if (!is_main)
        like = *around;
    like.parent = parent_space;
    like.scope = graph->scope_count;
    enum gc_status status =
        gc_load_grow(builder->onnx.load, builder->onnx.source->path, (void **)&graph->scopes,
                     graph->scope_count, &builder->scope_room, sizeof(*graph->scopes));
    if (status == GC_OK)
        status = gc_onnx_open_space(builder, &like, &reading.space);
    if (status != GC_OK)
        return status;
    graph->scope_count++;
    *space = reading.space;
    status = count_ports(builder, message, &reading);
    if (status == GC_OK)
        status = read_ports(builder, message, &reading);
    reading.scope.inputs = reading.inputs;
    reading.scope.outputs = reading.outputs;
    graph->scopes[like.scope] = reading.scope;
    return status;
}
