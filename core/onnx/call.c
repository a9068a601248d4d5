/* Local functions and scopes. A call is replaced by its function's nodes (inlining). A scope is a
 * graph without its nodes: initializers, inputs, outputs, declared types. These follow the
 * nodes in the file but are read first, because nodes use them. */
#include "core/onnx/graph.h"

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
    return gc_reader_no_memory(builder->onnx.reader, builder->onnx.source->path);
}

/* "domain\nname\noverload"; false if it is too long for a key. */
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
    const struct gc_strmap_entry *found =
        gc_strmap_find(&builder->function_names, key, strlen(key));
    return found != NULL ? &builder->functions[found->value] : NULL;
}

enum gc_status gc_onnx_read_import(struct gc_onnx_builder *builder, struct gc_protobuf message,
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
        gc_reader_grow(builder->onnx.reader, builder->onnx.source->path, (void **)&imports->list,
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
            status = gc_onnx_read_import(builder, gc_protobuf_inner(&message, &field),
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
    struct gc_reader *reader = builder->onnx.reader;
    char key[KEY_BYTES];
    bool added;
    enum gc_status status = read_head(builder, message, &function, key);
    if (status == GC_OK)
        status = gc_reader_grow(reader, builder->onnx.source->path, (void **)&builder->functions,
                                builder->function_count, &builder->function_room,
                                sizeof(*builder->functions));
    if (status != GC_OK)
        return status;
    struct gc_strmap_entry *name =
        gc_strmap_find_or_add(&builder->function_names, &reader->region, key, strlen(key), &added);
    if (name == NULL)
        return no_memory(builder);
    if (!added)
        return gc_source_fail(builder->onnx.source, message.position,
                              "function \"%s\" is there twice",
                              GC_READER_SHOWN(function.name, strlen(function.name)));
    name->text = gc_region_text(&reader->region, key, strlen(key));
    if (name->text == NULL)
        return no_memory(builder);
    name->value = builder->function_count;
    builder->functions[builder->function_count++] = function;
    return GC_OK;
}

/* ---- calls ---- */

/* "PREFIX/CALL"; the prefix alone if that is too long. */
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
    struct gc_strmap_entry *name = gc_strmap_find_or_add(
        &space->names, &builder->onnx.reader->region, text, strlen(text), &added);
    if (name == NULL)
        return no_memory(builder);
    if (added)
        name->text = text;
    name->value = index < call->input_count ? call->inputs[index] : GC_GRAPH_NONE;
    return GC_OK;
}

/* Adds an Identity node for a function's output that is one of its inputs. */
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
    struct gc_strmap_entry *name = gc_strmap_find_or_add(
        &space->names, &builder->onnx.reader->region, text, strlen(text), &added);
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

/* Appends the function's default attributes to the call's; a look-up finds the call's first. */
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
        status = gc_reader_grow(builder->onnx.reader, builder->onnx.source->path,
                                (void **)&attributes->list, attributes->count, &room,
                                sizeof(*attributes->list));
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
            return gc_reader_fail(
                builder->onnx.reader, GC_FORMAT, builder->onnx.source->path,
                "value \"%s\" is used by a call of a function before a node makes it",
                GC_READER_SHOWN(builder->pending[i].name, strlen(builder->pending[i].name)));
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
            return gc_reader_fail(
                builder->onnx.reader, GC_FORMAT, builder->onnx.source->path,
                "function \"%s\" does not make its output %u",
                GC_READER_SHOWN(frame->function->name, strlen(frame->function->name)), i);
    }
    return status;
}

/* ---- scopes ---- */

/* Fields of GraphProto. */
enum {
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_VALUE_INFO = 13,
    GRAPH_SPARSE = 15,
    VALUE_NAME = 1,
};

struct scope_reading {
    uint32_t space;
    struct gc_graph_scope scope;
    uint32_t *inputs;
    uint32_t *outputs;
};

/* ---- tensors ---- */

static enum gc_status read_initializer(struct gc_onnx_builder *builder, uint32_t space,
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
                              GC_READER_SHOWN(name, strlen(name)));
    value->is_initializer = true;
    value->declared = tensor.type;
    value->data = tensor.data;
    return GC_OK;
}

/* ---- inputs, outputs, others ---- */

static enum gc_status declare(struct gc_onnx_builder *builder, struct scope_reading *reading,
                              struct gc_protobuf message, enum gc_model_value_kind kind,
                              uint32_t *index)
{
    struct gc_onnx_value declared;
    struct gc_type type;
    enum gc_status status = gc_onnx_read_value(&builder->onnx, message, kind, &declared);
    if (status == GC_OK)
        status = gc_onnx_type(builder, &declared, &type);
    if (status == GC_OK)
        status = gc_onnx_put_value(builder, reading->space, declared.declared.name, index);
    if (status != GC_OK)
        return status;
    struct gc_graph_value *value = &builder->graph->values[*index];
    /* An initializer keeps the type of its tensor. */
    if (!value->is_initializer && type.kind != GC_TYPE_UNKNOWN)
        value->declared = type;
    return GC_OK;
}

static enum gc_status read_input(struct gc_onnx_builder *builder, struct scope_reading *reading,
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

static enum gc_status read_output(struct gc_onnx_builder *builder, struct scope_reading *reading,
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
        if (gc_protobuf_is(&field, VALUE_NAME, GC_PROTOBUF_BYTES))
            return gc_onnx_use_value(builder, reading->space, &again, &field, slot);
    }
    return status;
}

static enum gc_status read_field(struct gc_onnx_builder *builder, struct scope_reading *reading,
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
        return read_initializer(builder, reading->space, inner, false);
    case GRAPH_SPARSE:
        return read_initializer(builder, reading->space, inner, true);
    case GRAPH_INPUT:
        return read_input(builder, reading, inner);
    case GRAPH_OUTPUT:
        return read_output(builder, reading, inner);
    case GRAPH_VALUE_INFO:
        return declare(builder, reading, inner, GC_MODEL_INNER, &index);
    default:
        return GC_OK;
    }
}

static enum gc_status count_values(struct gc_onnx_builder *builder, struct gc_protobuf message,
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
               : gc_reader_no_memory(builder->onnx.reader, builder->onnx.source->path);
}

static enum gc_status read_values(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                  struct scope_reading *reading)
{
    struct gc_protobuf_field field;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && more)
            status = read_field(builder, reading, &message, &field);
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
        gc_reader_grow(builder->onnx.reader, builder->onnx.source->path, (void **)&graph->scopes,
                       graph->scope_count, &builder->scope_room, sizeof(*graph->scopes));
    if (status == GC_OK)
        status = gc_onnx_open_space(builder, &like, &reading.space);
    if (status != GC_OK)
        return status;
    graph->scope_count++;
    *space = reading.space;
    status = count_values(builder, message, &reading);
    if (status == GC_OK)
        status = read_values(builder, message, &reading);
    reading.scope.inputs = reading.inputs;
    reading.scope.outputs = reading.outputs;
    graph->scopes[like.scope] = reading.scope;
    return status;
}
