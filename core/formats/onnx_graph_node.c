/* Nodes. Each is looked at twice: for what it is and how much it has, then for its parts. */
#include "core/formats/onnx_graph.h"

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

struct look {
    const char *name;
    const char *op;
    const char *domain;
    const char *overload;
    uint64_t inputs;
    uint64_t outputs;
    uint64_t attributes;
};

enum gc_status gc_onnx_push(struct gc_onnx_builder *builder, const struct gc_onnx_frame *frame)
{
    if (builder->depth == GC_ONNX_NEST_MAX)
        return gc_source_fail(builder->onnx.source, frame->message.position,
                              "graphs and calls nested deeper than %d", GC_ONNX_NEST_MAX / 2);
    builder->frames[builder->depth++] = *frame;
    return GC_OK;
}

static enum gc_status look_field(const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field, struct look *look)
{
    if (field->type != GC_PROTOBUF_BYTES)
        return GC_OK;
    switch (field->number) {
    case NODE_INPUT:
        look->inputs++;
        return GC_OK;
    case NODE_OUTPUT:
        look->outputs++;
        return GC_OK;
    case NODE_ATTRIBUTE:
        look->attributes++;
        return GC_OK;
    case NODE_NAME:
        return gc_protobuf_text(message, field, "a node's name", &look->name);
    case NODE_OP_TYPE:
        return gc_protobuf_text(message, field, "a node's type", &look->op);
    case NODE_DOMAIN:
        return gc_protobuf_text(message, field, "a node's domain", &look->domain);
    case NODE_OVERLOAD:
        return gc_protobuf_text(message, field, "a node's overload", &look->overload);
    default:
        return GC_OK;
    }
}

static enum gc_status look_at(struct gc_protobuf message, struct look *look)
{
    struct gc_protobuf_field field;
    bool more;
    *look = (struct look){.name = "", .op = "", .domain = "", .overload = ""};
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && more)
            status = look_field(&message, &field, look);
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

static enum gc_status begin_node(struct gc_onnx_builder *builder, const struct look *look,
                                 struct gc_onnx_frame *frame)
{
    const struct gc_onnx_space *space = &builder->spaces[frame->space];
    const enum gc_status status = gc_onnx_add_node(builder, &frame->node);
    if (status != GC_OK)
        return status;
    builder->graph->nodes[frame->node] = (struct gc_graph_node){
        .name = look->name,
        .op = look->op,
        .domain = look->domain,
        .scope = space->scope,
        .opset = import_of(space->imports, look->domain),
        .inputs = frame->inputs,
        .outputs = frame->outputs,
        .attributes = frame->attributes.list,
    };
    return GC_OK;
}

enum gc_status gc_onnx_open_node(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                 uint32_t space)
{
    struct look look;
    struct gc_onnx_frame frame = {
        .kind = GC_ONNX_FRAME_NODE, .message = message, .space = space, .node = GC_GRAPH_NONE};
    if (++builder->steps > GC_ONNX_NODES_MAX)
        return gc_load_fail(builder->onnx.load, GC_OUT_OF_RANGE, builder->onnx.source->path,
                            "more than %u nodes and calls", GC_ONNX_NODES_MAX);
    enum gc_status status = look_at(message, &look);
    if (status != GC_OK)
        return status;
    if (strcmp(look.domain, "ai.onnx") == 0)
        look.domain = "";
    frame.name = look.name[0] != '\0' ? look.name : look.op;
    frame.inputs = gc_onnx_alloc(builder, look.inputs * sizeof(*frame.inputs));
    frame.outputs = gc_onnx_alloc(builder, look.outputs * sizeof(*frame.outputs));
    frame.attributes.list =
        gc_onnx_alloc(builder, look.attributes * sizeof(*frame.attributes.list));
    if (frame.inputs == NULL || frame.outputs == NULL || frame.attributes.list == NULL)
        return gc_load_no_memory(builder->onnx.load, builder->onnx.source->path);
    frame.function = gc_onnx_find_function(builder, look.domain, look.op, look.overload);
    if (frame.function == NULL)
        status = begin_node(builder, &look, &frame);
    return status == GC_OK ? gc_onnx_push(builder, &frame) : status;
}

static enum gc_status take_output(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
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
                              GC_LOAD_SHOWN(name, strlen(name)));
    value->producer = frame->node;
    if (frame->node != GC_GRAPH_NONE)
        value->is_repeated = builder->spaces[frame->space].is_repeated &&
                             strcmp(builder->graph->nodes[frame->node].op, "Constant") == 0;
    return GC_OK;
}

static enum gc_status take_attribute(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
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
        /* The caller's, claimed by the first node that refers to it. */
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
    return status == GC_OK ? gc_onnx_push(builder, &inner) : status;
}

enum gc_status gc_onnx_node_field(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
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
        return take_output(builder, frame, field);
    case NODE_ATTRIBUTE:
        return take_attribute(builder, frame, gc_protobuf_inner(&frame->message, field));
    default:
        return GC_OK;
    }
}

enum gc_status gc_onnx_end_node(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame,
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
