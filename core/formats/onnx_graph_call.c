/* Local functions: each call is replaced by the function's nodes. */
#include "core/formats/onnx_graph.h"

#include <string.h>

/* Fields of FunctionProto and OperatorSetIdProto. */
enum {
    FUNCTION_NAME = 1,
    FUNCTION_INPUT = 4,
    FUNCTION_OUTPUT = 5,
    FUNCTION_OPSET = 9,
    FUNCTION_DOMAIN = 10,
    FUNCTION_DEFAULT = 11,
    FUNCTION_OVERLOAD = 13,
    OPSET_DOMAIN = 1,
    OPSET_VERSION = 2,
};

#define KEY_BYTES 640
#define PREFIX_BYTES_MAX 256

static enum gc_status no_memory(struct gc_onnx_builder *builder)
{
    return gc_load_no_memory(builder->onnx.load, builder->onnx.source->path);
}

/* "domain\nname\noverload"; false if it is too long to be one. */
static bool make_key(char key[KEY_BYTES], const char *domain, const char *name,
                     const char *overload)
{
    const char *const parts[] = {domain, name, overload};
    size_t used = 0;
    for (size_t i = 0; i < 3; i++) {
        const size_t length = strlen(parts[i]);
        if (length + 2 > KEY_BYTES - used)
            return false;
        memcpy(key + used, parts[i], length);
        used += length;
        key[used++] = '\n';
    }
    key[used - 1] = '\0';
    return true;
}

struct gc_onnx_function *gc_onnx_find_function(const struct gc_onnx_builder *builder,
                                               const char *domain, const char *name,
                                               const char *overload)
{
    char key[KEY_BYTES];
    if (builder->function_count == 0 || !make_key(key, domain, name, overload))
        return NULL;
    const struct gc_name *found = gc_names_find(&builder->function_names, key, strlen(key));
    return found != NULL ? &builder->functions[found->value] : NULL;
}

enum gc_status gc_onnx_take_import(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                   struct gc_onnx_imports *imports)
{
    struct gc_onnx_import import = {.domain = ""};
    struct gc_protobuf_field field;
    bool more = true;
    while (more) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && gc_protobuf_is(&field, OPSET_DOMAIN, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "a domain", &import.domain);
        if (status != GC_OK)
            return status;
        if (more && gc_protobuf_is(&field, OPSET_VERSION, GC_PROTOBUF_VARINT))
            import.version = field.value > UINT32_MAX ? UINT32_MAX : (uint32_t)field.value;
    }
    if (strcmp(import.domain, "ai.onnx") == 0)
        import.domain = "";
    const enum gc_status status =
        gc_load_grow(builder->onnx.load, builder->onnx.source->path, (void **)&imports->list,
                     imports->count, &imports->room, sizeof(*imports->list));
    if (status == GC_OK)
        imports->list[imports->count++] = import;
    return status;
}

static enum gc_status read_head(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                struct gc_onnx_function *function, char key[KEY_BYTES])
{
    const char *domain = "";
    const char *overload = "";
    struct gc_protobuf_field field;
    bool more = true;
    function->name = "";
    while (more) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && gc_protobuf_is(&field, FUNCTION_NAME, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "a function's name", &function->name);
        else if (status == GC_OK && gc_protobuf_is(&field, FUNCTION_DOMAIN, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "a function's domain", &domain);
        else if (status == GC_OK && gc_protobuf_is(&field, FUNCTION_OVERLOAD, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "a function's overload", &overload);
        else if (status == GC_OK && gc_protobuf_is(&field, FUNCTION_OPSET, GC_PROTOBUF_BYTES))
            status = gc_onnx_take_import(builder, gc_protobuf_inner(&message, &field),
                                         &function->imports);
        if (status != GC_OK)
            return status;
    }
    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    if (!make_key(key, domain, function->name, overload))
        return gc_source_fail(builder->onnx.source, message.end,
                              "a function's name of more than %d bytes", KEY_BYTES);
    return GC_OK;
}

enum gc_status gc_onnx_add_function(struct gc_onnx_builder *builder, struct gc_protobuf message)
{
    struct gc_onnx_function function = {.message = message};
    struct gc_load *load = builder->onnx.load;
    char key[KEY_BYTES];
    bool added;
    enum gc_status status = read_head(builder, message, &function, key);
    if (status == GC_OK)
        status = gc_load_grow(load, builder->onnx.source->path, (void **)&builder->functions,
                              builder->function_count, &builder->function_room,
                              sizeof(*builder->functions));
    if (status != GC_OK)
        return status;
    struct gc_name *name =
        gc_names_put(&builder->function_names, &load->region, key, strlen(key), &added);
    if (name == NULL)
        return no_memory(builder);
    if (!added)
        return gc_source_fail(builder->onnx.source, message.position,
                              "function \"%s\" is there twice",
                              GC_LOAD_SHOWN(function.name, strlen(function.name)));
    name->text = gc_region_text(&load->region, key, strlen(key));
    if (name->text == NULL)
        return no_memory(builder);
    name->value = builder->function_count;
    builder->functions[builder->function_count++] = function;
    return GC_OK;
}

/* ---- calls ---- */

/* "PREFIX/CALL", while that is not too long. */
static const char *longer_prefix(struct gc_onnx_builder *builder, const char *prefix,
                                 const char *call)
{
    if (strlen(prefix) + strlen(call) > PREFIX_BYTES_MAX)
        return prefix;
    return gc_onnx_join(builder, prefix, call);
}

static enum gc_status name_input(struct gc_onnx_builder *builder, const struct gc_onnx_frame *call,
                                 uint32_t index, const char *text)
{
    struct gc_onnx_space *space = &builder->spaces[call->space];
    bool added;
    struct gc_name *name =
        gc_names_put(&space->names, &builder->onnx.load->region, text, strlen(text), &added);
    if (name == NULL)
        return no_memory(builder);
    if (added)
        name->text = text;
    name->value = index < call->input_count ? call->inputs[index] : GC_GRAPH_NONE;
    return GC_OK;
}

/* An output that is an input as it stands: a node that passes it on. */
static enum gc_status add_identity(struct gc_onnx_builder *builder,
                                   const struct gc_onnx_frame *call, uint32_t from, uint32_t to)
{
    uint32_t node;
    uint32_t *ends = gc_onnx_alloc(builder, 2 * sizeof(*ends));
    if (ends == NULL)
        return no_memory(builder);
    const enum gc_status status = gc_onnx_add_node(builder, &node);
    if (status != GC_OK)
        return status;
    ends[0] = from;
    ends[1] = to;
    struct gc_graph_node *identity = &builder->graph->nodes[node];
    identity->op = "Identity";
    identity->name = call->name;
    identity->scope = builder->spaces[call->space].scope;
    identity->opset = 1;
    identity->input_count = 1;
    identity->output_count = 1;
    identity->inputs = ends;
    identity->outputs = ends + 1;
    builder->graph->values[to].producer = node;
    return GC_OK;
}

static enum gc_status name_output(struct gc_onnx_builder *builder, const struct gc_onnx_frame *call,
                                  uint32_t index, const char *text)
{
    struct gc_onnx_space *space = &builder->spaces[call->space];
    bool added;
    if (index >= call->output_count || call->outputs[index] == GC_GRAPH_NONE)
        return GC_OK;
    struct gc_name *name =
        gc_names_put(&space->names, &builder->onnx.load->region, text, strlen(text), &added);
    if (name == NULL)
        return no_memory(builder);
    if (!added)
        return add_identity(builder, call, name->value, call->outputs[index]);
    name->text = text;
    name->value = call->outputs[index];
    return GC_OK;
}

static enum gc_status name_ends(struct gc_onnx_builder *builder, const struct gc_onnx_frame *call,
                                uint32_t number)
{
    struct gc_protobuf message = call->function->message;
    struct gc_protobuf_field field;
    uint32_t index = 0;
    bool more;
    for (;;) {
        const char *text = "";
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        if (!gc_protobuf_is(&field, number, GC_PROTOBUF_BYTES))
            continue;
        status = gc_protobuf_text(&message, &field, "a value's name", &text);
        if (status == GC_OK)
            status = number == FUNCTION_INPUT ? name_input(builder, call, index, text)
                                              : name_output(builder, call, index, text);
        if (status != GC_OK)
            return status;
        index++;
    }
}

/* The function's own values for attributes come behind the call's, which are found first. */
static enum gc_status add_defaults(struct gc_onnx_builder *builder,
                                   const struct gc_onnx_frame *call,
                                   struct gc_onnx_attributes *attributes)
{
    struct gc_protobuf message = call->function->message;
    struct gc_protobuf_field field;
    uint32_t room = call->attributes.count;
    bool more;
    *attributes = call->attributes;
    for (;;) {
        struct gc_protobuf graph = {0};
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        if (!gc_protobuf_is(&field, FUNCTION_DEFAULT, GC_PROTOBUF_BYTES))
            continue;
        status =
            gc_load_grow(builder->onnx.load, builder->onnx.source->path, (void **)&attributes->list,
                         attributes->count, &room, sizeof(*attributes->list));
        if (status == GC_OK)
            status =
                gc_onnx_read_attribute(builder, call->space, gc_protobuf_inner(&message, &field),
                                       &attributes->list[attributes->count], &graph);
        if (status != GC_OK)
            return status;
        attributes->count += attributes->list[attributes->count].kind != GC_ATTRIBUTE_GRAPH;
    }
}

enum gc_status gc_onnx_begin_call(struct gc_onnx_builder *builder, struct gc_onnx_frame *frame)
{
    const struct gc_onnx_space *around = &builder->spaces[frame->space];
    struct gc_onnx_space like = {
        .parent = GC_GRAPH_NONE,
        .scope = around->scope,
        .imports = &frame->function->imports,
        .prefix = longer_prefix(builder, around->prefix, frame->name),
        .is_repeated = frame->function->calls > 0,
    };
    frame->function->calls++;
    if (like.prefix == NULL)
        return no_memory(builder);
    for (uint32_t i = around->pending_begin; i < builder->pending_count; i++) {
        const uint32_t *slot = builder->pending[i].slot;
        if (slot >= frame->inputs && slot < frame->inputs + frame->input_count)
            return gc_load_fail(
                builder->onnx.load, GC_FORMAT, builder->onnx.source->path,
                "value \"%s\" is used by a call of a function before a node makes it",
                GC_LOAD_SHOWN(builder->pending[i].name, strlen(builder->pending[i].name)));
    }
    enum gc_status status = add_defaults(builder, frame, &like.attributes);
    if (status == GC_OK)
        status = gc_onnx_open_space(builder, &like, &frame->space);
    if (status != GC_OK)
        return status;
    frame->kind = GC_ONNX_FRAME_CALL;
    frame->message = frame->function->message;
    status = name_ends(builder, frame, FUNCTION_INPUT);
    return status == GC_OK ? name_ends(builder, frame, FUNCTION_OUTPUT) : status;
}

enum gc_status gc_onnx_end_call(struct gc_onnx_builder *builder, const struct gc_onnx_frame *frame)
{
    const enum gc_status status = gc_onnx_close_space(builder);
    for (uint32_t i = 0; status == GC_OK && i < frame->output_count; i++) {
        const uint32_t value = frame->outputs[i];
        if (value != GC_GRAPH_NONE && !gc_onnx_is_made(&builder->graph->values[value]))
            return gc_load_fail(builder->onnx.load, GC_FORMAT, builder->onnx.source->path,
                                "function \"%s\" does not make its output %u",
                                GC_LOAD_SHOWN(frame->function->name, strlen(frame->function->name)),
                                i);
    }
    return status;
}
