/* The walk over an ONNX model: graphs contain nodes, nodes attributes, attributes graphs. Open
 * messages are on a stack of fixed size, so that no file can overflow the host's.
 *
 * A node is read twice: once for its operator, which its first attribute may depend on, and once
 * for its attributes. */
#include "core/onnx/onnx.h"

#include "core/base/bits.h"
#include "core/onnx/value.h"
#include "core/reader/ranges.h"

#include <string.h>

/* Fields of ModelProto, GraphProto, NodeProto, AttributeProto, FunctionProto (onnx.proto). */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER = 2,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_FUNCTION = 25,
    OPSET_DOMAIN = 1,
    OPSET_VERSION = 2,
    GRAPH_NODE = 1,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_VALUE_INFO = 13,
    GRAPH_SPARSE = 15,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP_TYPE = 4,
    NODE_ATTRIBUTE = 5,
    NODE_DOMAIN = 7,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_FLOAT = 2,
    ATTRIBUTE_INT = 3,
    ATTRIBUTE_TENSOR = 5,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_FLOATS = 7,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TENSORS = 10,
    ATTRIBUTE_GRAPHS = 11,
    ATTRIBUTE_SPARSE = 22,
    FUNCTION_NODE = 7,
};

#define STACK_MAX 100 /* a nested graph takes three entries */
#define FIELDS_MAX                                                                                 \
    (1U << 24) /* of graphs, nodes and attributes: a bound on time, above any real model */

enum frame_kind { FRAME_MODEL, FRAME_GRAPH, FRAME_FUNCTION, FRAME_NODE, FRAME_ATTRIBUTE };

struct frame {
    enum frame_kind kind;
    struct gc_protobuf message;
    bool is_constant;   /* of NODE and ATTRIBUTE: the node is a Constant */
    const char *output; /* of NODE and ATTRIBUTE: the name of a Constant's value */
    uint64_t floats;    /* of ATTRIBUTE: numbers seen */
    uint64_t ints;
    bool has_float;
    bool has_int;
};

struct walk {
    struct gc_onnx onnx;
    bool has_graph;
    uint32_t graphs;    /* open ones */
    uint32_t functions; /* 1 inside a function */
    uint32_t fields;    /* seen so far */
    uint32_t depth;
    struct frame stack[STACK_MAX];
};

static enum gc_status push(struct walk *walk, enum frame_kind kind, struct gc_protobuf message)
{
    const struct frame *top = &walk->stack[walk->depth - 1];
    if (walk->depth == STACK_MAX)
        return gc_source_fail(walk->onnx.source, message.position, "graphs nested deeper than %d",
                              STACK_MAX / 3);
    walk->graphs += kind == FRAME_GRAPH;
    walk->functions += kind == FRAME_FUNCTION;
    walk->stack[walk->depth++] = (struct frame){
        .kind = kind,
        .message = message,
        .is_constant = kind == FRAME_ATTRIBUTE && top->is_constant,
        .output = kind == FRAME_ATTRIBUTE ? top->output : NULL,
    };
    return GC_OK;
}

/* ---- nodes and attributes ---- */

static enum gc_status payload_is(const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field, const char *word, bool *is)
{
    const unsigned char *view;
    const size_t length = strlen(word);
    *is = false;
    if (field->bytes != length)
        return GC_OK;
    const enum gc_status status =
        gc_source_view(message->source, field->offset, length, "a name", &view);
    *is = status == GC_OK && memcmp(view, word, length) == 0;
    return status;
}

/* Finds whether the node is ONNX's own Constant, and the name of its output. */
static enum gc_status scan_node(struct frame *frame)
{
    struct gc_protobuf message = frame->message;
    struct gc_protobuf_field field;
    struct gc_protobuf_field output = {0};
    bool is_constant = false;
    bool own_domain = true;
    bool more = true;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK)
            return status;
        if (!more)
            break;
        if (gc_protobuf_is(&field, NODE_OP_TYPE, GC_PROTOBUF_BYTES)) {
            status = payload_is(&message, &field, "Constant", &is_constant);
        } else if (gc_protobuf_is(&field, NODE_DOMAIN, GC_PROTOBUF_BYTES)) {
            status = payload_is(&message, &field, "ai.onnx", &own_domain);
            own_domain = own_domain || field.bytes == 0;
        } else if (gc_protobuf_is(&field, NODE_OUTPUT, GC_PROTOBUF_BYTES) && output.bytes == 0) {
            output = field;
        }
        if (status != GC_OK)
            return status;
    }
    frame->is_constant = is_constant && own_domain;
    frame->output = "";
    if (!frame->is_constant || output.bytes == 0)
        return GC_OK;
    return gc_protobuf_text(&frame->message, &output, "a value's name", &frame->output);
}

static enum gc_status push_node(struct walk *walk, struct gc_protobuf message)
{
    const enum gc_status status = push(walk, FRAME_NODE, message);
    return status != GC_OK ? status : scan_node(&walk->stack[walk->depth - 1]);
}

/* Tensors in attributes of other nodes are small and stay on the host: their bytes are reported in
 * a warning, not counted. */
static enum gc_status count_foreign(struct walk *walk, struct gc_protobuf message)
{
    uint64_t bytes;
    const enum gc_status status = gc_onnx_tensor_bytes(&walk->onnx, message, &bytes);
    if (status == GC_OK && !gc_add_u64(walk->onnx.foreign_bytes, bytes, &walk->onnx.foreign_bytes))
        walk->onnx.foreign_bytes = UINT64_MAX;
    return status;
}

/* Counts the numbers of a packed field: the last byte of a varint has a clear top bit. */
static enum gc_status count_varints(struct gc_protobuf payload, uint64_t *count)
{
    while (payload.position < payload.end) {
        const unsigned char *view;
        size_t got;
        const enum gc_status status = gc_source_more(payload.source, payload.position, &view, &got);
        if (status != GC_OK)
            return status;
        got = (size_t)gc_min_u64(got, payload.end - payload.position);
        for (size_t i = 0; i < got; i++)
            *count += (view[i] & 0x80) == 0;
        payload.position += got;
        if (got == 0)
            break;
    }
    return GC_OK;
}

static enum gc_status read_attribute_field(struct walk *walk, struct frame *frame,
                                           const struct gc_protobuf_field *field)
{
    const struct gc_protobuf inner = gc_protobuf_inner(&frame->message, field);
    const bool is_bytes = field->type == GC_PROTOBUF_BYTES;
    switch (field->number) {
    case ATTRIBUTE_FLOAT:
        frame->has_float = field->type == GC_PROTOBUF_FIXED32;
        return GC_OK;
    case ATTRIBUTE_INT:
        frame->has_int = field->type == GC_PROTOBUF_VARINT;
        return GC_OK;
    case ATTRIBUTE_FLOATS:
        frame->floats += field->bytes / 4;
        return GC_OK;
    case ATTRIBUTE_INTS:
        if (!is_bytes)
            frame->ints++;
        /* Only a Constant's numbers are counted; those of other nodes are not read. */
        return is_bytes && frame->is_constant ? count_varints(inner, &frame->ints) : GC_OK;
    case ATTRIBUTE_TENSOR:
    case ATTRIBUTE_TENSORS:
        if (!is_bytes)
            return GC_OK;
        return frame->is_constant ? gc_onnx_add_tensor(&walk->onnx, inner, frame->output)
                                  : count_foreign(walk, inner);
    case ATTRIBUTE_SPARSE:
        return is_bytes && frame->is_constant
                   ? gc_onnx_add_sparse(&walk->onnx, inner, frame->output)
                   : GC_OK;
    case ATTRIBUTE_GRAPH:
    case ATTRIBUTE_GRAPHS:
        return is_bytes ? push(walk, FRAME_GRAPH, inner) : GC_OK;
    default:
        return GC_OK;
    }
}

/* The end of a Constant's attribute: value_float, value_floats, value_int, value_ints. */
static enum gc_status end_attribute(struct walk *walk, const struct frame *frame)
{
    enum gc_status status = GC_OK;
    if (!frame->is_constant)
        return GC_OK;
    if (frame->floats > 0)
        status = gc_onnx_add_list(&walk->onnx, frame->output, GC_DTYPE_F32, frame->floats, false);
    else if (frame->ints > 0)
        status = gc_onnx_add_list(&walk->onnx, frame->output, GC_DTYPE_I64, frame->ints, false);
    else if (frame->has_float)
        status = gc_onnx_add_list(&walk->onnx, frame->output, GC_DTYPE_F32, 1, true);
    else if (frame->has_int)
        status = gc_onnx_add_list(&walk->onnx, frame->output, GC_DTYPE_I64, 1, true);
    return status;
}

/* ---- graphs and the model ---- */

static enum gc_status read_graph_field(struct walk *walk, const struct gc_protobuf *message,
                                       const struct gc_protobuf_field *field)
{
    const struct gc_protobuf inner = gc_protobuf_inner(message, field);
    const bool is_main = walk->graphs == 1 && walk->functions == 0;
    if (field->type != GC_PROTOBUF_BYTES)
        return GC_OK;
    switch (field->number) {
    case GRAPH_NODE:
        return push_node(walk, inner);
    case GRAPH_INITIALIZER:
        return gc_onnx_add_tensor(&walk->onnx, inner, NULL);
    case GRAPH_SPARSE:
        return gc_onnx_add_sparse(&walk->onnx, inner, NULL);
    case GRAPH_INPUT:
        return is_main ? gc_onnx_add_value(&walk->onnx, inner, GC_MODEL_INPUT) : GC_OK;
    case GRAPH_OUTPUT:
        return is_main ? gc_onnx_add_value(&walk->onnx, inner, GC_MODEL_OUTPUT) : GC_OK;
    case GRAPH_VALUE_INFO:
        return is_main ? gc_onnx_add_value(&walk->onnx, inner, GC_MODEL_INNER) : GC_OK;
    default:
        return GC_OK;
    }
}

static enum gc_status add_number(struct walk *walk, const char *key, uint64_t number)
{
    const struct gc_meta meta = {
        .key = key,
        .value = {.kind = GC_META_INTEGER, .unsigned_value = number, .real = (double)number},
    };
    struct gc_reader *reader = walk->onnx.reader;
    if (gc_strmap_find(&reader->meta_names, key, strlen(key)) != NULL)
        return GC_OK;
    return gc_reader_add_meta(reader, walk->onnx.source->path, &meta);
}

static enum gc_status read_opset(struct walk *walk, struct gc_protobuf message)
{
    struct gc_protobuf_field field;
    uint64_t version = 0;
    bool own = true;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK)
            return status;
        if (!more)
            break;
        if (gc_protobuf_is(&field, OPSET_VERSION, GC_PROTOBUF_VARINT))
            version = field.value;
        if (gc_protobuf_is(&field, OPSET_DOMAIN, GC_PROTOBUF_BYTES) && field.bytes > 0)
            status = payload_is(&message, &field, "ai.onnx", &own);
        if (status != GC_OK)
            return status;
    }
    return own ? add_number(walk, "onnx.opset", version) : GC_OK;
}

static enum gc_status read_producer(struct walk *walk, const struct gc_protobuf *message,
                                    const struct gc_protobuf_field *field)
{
    static const char key[] = "onnx.producer";
    struct gc_reader *reader = walk->onnx.reader;
    struct gc_meta meta = {.key = key, .value = {.kind = GC_META_TEXT}};
    if (gc_strmap_find(&reader->meta_names, key, sizeof(key) - 1) != NULL)
        return GC_OK;
    const enum gc_status status =
        gc_protobuf_text(message, field, "the producer's name", &meta.value.text);
    return status != GC_OK ? status : gc_reader_add_meta(reader, walk->onnx.source->path, &meta);
}

static enum gc_status read_model_field(struct walk *walk, const struct gc_protobuf *message,
                                       const struct gc_protobuf_field *field)
{
    const struct gc_protobuf inner = gc_protobuf_inner(message, field);
    if (gc_protobuf_is(field, MODEL_IR_VERSION, GC_PROTOBUF_VARINT))
        return add_number(walk, "onnx.ir_version", field->value);
    if (field->type != GC_PROTOBUF_BYTES)
        return GC_OK;
    switch (field->number) {
    case MODEL_PRODUCER:
        return read_producer(walk, message, field);
    case MODEL_OPSET:
        return read_opset(walk, inner);
    case MODEL_FUNCTION:
        return push(walk, FRAME_FUNCTION, inner);
    case MODEL_GRAPH:
        if (walk->has_graph)
            return gc_source_fail(walk->onnx.source, field->offset,
                                  "a second main graph; one is accepted");
        walk->has_graph = true;
        return push(walk, FRAME_GRAPH, inner);
    default:
        return GC_OK;
    }
}

static enum gc_status read_field(struct walk *walk, struct frame *frame,
                                 const struct gc_protobuf_field *field)
{
    const struct gc_protobuf inner = gc_protobuf_inner(&frame->message, field);
    switch (frame->kind) {
    case FRAME_MODEL:
        return read_model_field(walk, &frame->message, field);
    case FRAME_GRAPH:
        return read_graph_field(walk, &frame->message, field);
    case FRAME_FUNCTION:
        return gc_protobuf_is(field, FUNCTION_NODE, GC_PROTOBUF_BYTES) ? push_node(walk, inner)
                                                                       : GC_OK;
    case FRAME_NODE:
        return gc_protobuf_is(field, NODE_ATTRIBUTE, GC_PROTOBUF_BYTES)
                   ? push(walk, FRAME_ATTRIBUTE, inner)
                   : GC_OK;
    default:
        return read_attribute_field(walk, frame, field);
    }
}

static enum gc_status run_walk(struct walk *walk)
{
    while (walk->depth > 0) {
        struct frame *frame = &walk->stack[walk->depth - 1];
        struct gc_protobuf_field field;
        bool more;
        enum gc_status status = gc_protobuf_next(&frame->message, &field, &more);
        if (status == GC_OK && more && ++walk->fields > FIELDS_MAX)
            status = gc_reader_fail(walk->onnx.reader, GC_OUT_OF_RANGE, walk->onnx.source->path,
                                    "byte %llu: more than %u fields of nodes and attributes",
                                    (unsigned long long)field.offset, FIELDS_MAX);
        if (status == GC_OK && more) {
            status = read_field(walk, frame, &field);
        } else if (status == GC_OK) {
            walk->depth--;
            walk->graphs -= frame->kind == FRAME_GRAPH;
            walk->functions -= frame->kind == FRAME_FUNCTION;
            if (frame->kind == FRAME_ATTRIBUTE)
                status = end_attribute(walk, frame);
        }
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static void warn_of_omissions(const struct gc_onnx *onnx)
{
    if (onnx->empty > 0)
        gc_reader_warn(onnx->reader, onnx->source->path,
                       "%llu tensors without data, \"%s\" among them; counted by their shapes",
                       (unsigned long long)onnx->empty,
                       GC_READER_SHOWN(onnx->empty_name, strlen(onnx->empty_name)));
    /* No warning for scalars, as in ConstantOfShape. */
    if (onnx->foreign_bytes > 4096)
        gc_reader_warn(
            onnx->reader, onnx->source->path,
            "%llu bytes of tensors in attributes of nodes other than Constant; not counted",
            (unsigned long long)onnx->foreign_bytes);
}

enum gc_status gc_onnx_read(struct gc_source *source, const struct gc_folder *folder)
{
    struct gc_reader *reader = source->reader;
    struct walk *walk = gc_reader_alloc(reader, source->path, sizeof(*walk));
    if (walk == NULL)
        return gc_reader_no_memory(reader, source->path);
    walk->onnx = (struct gc_onnx){.reader = reader, .source = source, .folder = folder};
    gc_strmap_init(&walk->onnx.external);
    walk->depth = 1;
    walk->stack[0] =
        (struct frame){.kind = FRAME_MODEL, .message = {.source = source, .end = source->bytes}};
    enum gc_status status = gc_reader_add_file(reader, source->path, source->bytes, &source->file);
    if (status == GC_OK)
        status = run_walk(walk);
    if (status != GC_OK)
        return status;
    if (!walk->has_graph)
        return gc_reader_fail(reader, GC_FORMAT, source->path,
                              "no graph: an ONNX model has one, whole files are accepted");
    gc_onnx_drop_weight_values(&walk->onnx);
    warn_of_omissions(&walk->onnx);
    const struct gc_ranges ranges = {.slack = UINT64_MAX};
    return gc_ranges_check(reader, &ranges);
}
