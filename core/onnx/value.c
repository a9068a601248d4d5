#include "core/onnx/value.h"

#include <string.h>

/* Fields of ValueInfoProto, TypeProto, TypeProto.Tensor, TensorShapeProto and its Dimension. */
enum {
    INFO_NAME = 1,
    INFO_TYPE = 2,
    TYPE_TENSOR = 1,
    TYPE_SEQUENCE = 4,
    TYPE_MAP = 5,
    TYPE_SPARSE = 8,
    TYPE_OPTIONAL = 9,
    INNER_TYPE = 1,
    TENSOR_ELEM_TYPE = 1,
    TENSOR_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
    DIM_PARAM = 2,
};

static enum gc_status read_dim(struct gc_protobuf message, uint64_t *dim, const char **symbol)
{
    struct gc_protobuf_field field;
    bool more;
    *dim = GC_MODEL_UNKNOWN_DIM;
    *symbol = NULL;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        /* Some writers use a negative number for "unknown". */
        if (gc_protobuf_is(&field, DIM_VALUE, GC_PROTOBUF_VARINT) && field.value <= INT64_MAX)
            *dim = field.value;
        if (gc_protobuf_is(&field, DIM_PARAM, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "a dimension's name", symbol);
        if (status != GC_OK)
            return status;
    }
}

static enum gc_status read_shape(struct gc_onnx *onnx, struct gc_protobuf message,
                                 struct gc_onnx_value *content)
{
    struct gc_model_value *declared = &content->declared;
    struct gc_protobuf_field field;
    bool more;
    declared->has_shape = true;
    declared->dim_count = 0;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        if (!gc_protobuf_is(&field, SHAPE_DIM, GC_PROTOBUF_BYTES))
            continue;
        if (declared->dim_count == GC_ONNX_DIMS_MAX)
            return gc_source_fail(onnx->source, field.offset, "more than %d dimensions",
                                  GC_ONNX_DIMS_MAX);
        status = read_dim(gc_protobuf_inner(&message, &field), &content->dims[declared->dim_count],
                          &content->symbols[declared->dim_count]);
        if (status != GC_OK)
            return status;
        declared->dim_count++;
    }
}

static enum gc_status read_tensor_type(struct gc_onnx *onnx, struct gc_protobuf message,
                                       struct gc_onnx_value *content)
{
    struct gc_protobuf_field field;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        if (gc_protobuf_is(&field, TENSOR_ELEM_TYPE, GC_PROTOBUF_VARINT))
            content->declared.dtype = gc_dtype_from_onnx(field.value);
        if (gc_protobuf_is(&field, TENSOR_SHAPE, GC_PROTOBUF_BYTES))
            status = read_shape(onnx, gc_protobuf_inner(&message, &field), content);
        if (status != GC_OK)
            return status;
    }
}

/* Reads one level of nested sequences and optionals: *inner is the next level's message, empty at
 * the end. */
static enum gc_status read_type_level(struct gc_onnx *onnx, struct gc_protobuf message,
                                      struct gc_onnx_value *content, struct gc_protobuf *inner)
{
    struct gc_protobuf_field field;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        if (field.type != GC_PROTOBUF_BYTES)
            continue;
        const struct gc_protobuf held = gc_protobuf_inner(&message, &field);
        if (field.number == TYPE_TENSOR || field.number == TYPE_SPARSE) {
            if (content->kind == GC_TYPE_UNKNOWN)
                content->kind = field.number == TYPE_TENSOR ? GC_TYPE_TENSOR : GC_TYPE_SPARSE;
            status = read_tensor_type(onnx, held, content);
        } else if (field.number == TYPE_SEQUENCE) {
            content->kind =
                content->kind == GC_TYPE_OPTIONAL ? GC_TYPE_OPTIONAL_SEQUENCE : GC_TYPE_SEQUENCE;
            *inner = held;
        } else if (field.number == TYPE_OPTIONAL) {
            content->kind = GC_TYPE_OPTIONAL;
            *inner = held;
        } else if (field.number == TYPE_MAP) {
            content->kind = GC_TYPE_MAP;
        }
        if (status != GC_OK)
            return status;
    }
}

/* The element type of a sequence or optional, a field of its message. */
static enum gc_status read_element_type(struct gc_protobuf message, struct gc_protobuf *type)
{
    struct gc_protobuf_field field;
    bool more;
    *type = (struct gc_protobuf){0};
    for (;;) {
        const enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        if (gc_protobuf_is(&field, INNER_TYPE, GC_PROTOBUF_BYTES))
            *type = gc_protobuf_inner(&message, &field);
    }
}

enum gc_status gc_onnx_read_type(struct gc_onnx *onnx, struct gc_protobuf message,
                                 struct gc_onnx_value *content)
{
    enum { LEVELS = 4 }; /* optional, sequence, tensor; deeper levels are not used */
    for (int level = 0; level < LEVELS && message.position < message.end; level++) {
        struct gc_protobuf inner = {0};
        enum gc_status status = read_type_level(onnx, message, content, &inner);
        if (status == GC_OK && inner.position < inner.end)
            status = read_element_type(inner, &inner);
        if (status != GC_OK)
            return status;
        message = inner;
    }
    return GC_OK;
}

static enum gc_status add_to_model(struct gc_onnx *onnx, const struct gc_onnx_value *content)
{
    struct gc_model_value declared = content->declared;
    const char *path = onnx->source->path;
    uint64_t *dims = gc_reader_alloc(onnx->reader, path, declared.dim_count * sizeof(*dims));
    const char **symbols =
        gc_reader_alloc(onnx->reader, path, declared.dim_count * sizeof(*symbols));
    if (dims == NULL || symbols == NULL)
        return gc_reader_no_memory(onnx->reader, path);
    memcpy(dims, content->dims, declared.dim_count * sizeof(*dims));
    memcpy(symbols, content->symbols, declared.dim_count * sizeof(*symbols));
    declared.dims = dims;
    declared.symbols = symbols;
    return gc_reader_add_value(onnx->reader, path, &declared);
}

/* Names an open dimension of an input that has no name: "input.0". */
static enum gc_status name_axes(struct gc_onnx *onnx, struct gc_onnx_value *content)
{
    const size_t length = strlen(content->declared.name);
    for (uint32_t i = 0; content->declared.has_shape && i < content->declared.dim_count; i++) {
        const char *symbol = content->symbols[i];
        if (content->dims[i] != GC_MODEL_UNKNOWN_DIM || (symbol != NULL && symbol[0] != '\0'))
            continue;
        /* At most GC_ONNX_DIMS_MAX, 64: two digits. */
        char *name = gc_reader_alloc(onnx->reader, onnx->source->path, length + sizeof(".00"));
        if (name == NULL)
            return gc_reader_no_memory(onnx->reader, onnx->source->path);
        memcpy(name, content->declared.name, length + 1);
        char *at = name + length;
        *at++ = '.';
        if (i >= 10)
            *at++ = (char)('0' + i / 10);
        *at = (char)('0' + i % 10);
        content->symbols[i] = name;
    }
    return GC_OK;
}

enum gc_status gc_onnx_read_value(struct gc_onnx *onnx, struct gc_protobuf message,
                                  enum gc_model_value_kind kind, struct gc_onnx_value *content)
{
    struct gc_protobuf_field field;
    bool more;
    content->declared = (struct gc_model_value){.name = "", .kind = kind, .dtype = GC_DTYPE_NONE};
    content->kind = GC_TYPE_UNKNOWN;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && gc_protobuf_is(&field, INFO_NAME, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "a value's name", &content->declared.name);
        else if (status == GC_OK && gc_protobuf_is(&field, INFO_TYPE, GC_PROTOBUF_BYTES))
            status = gc_onnx_read_type(onnx, gc_protobuf_inner(&message, &field), content);
        if (status != GC_OK)
            return status;
        if (!more)
            return kind == GC_MODEL_INPUT ? name_axes(onnx, content) : GC_OK;
    }
}

/* Sequences, maps and optionals have no shape: their type stays unknown. */
enum gc_status gc_onnx_add_value(struct gc_onnx *onnx, struct gc_protobuf message,
                                 enum gc_model_value_kind kind)
{
    struct gc_onnx_value content;
    const enum gc_status status = gc_onnx_read_value(onnx, message, kind, &content);
    if (status != GC_OK)
        return status;
    if (content.kind != GC_TYPE_TENSOR) {
        content.declared.dtype = GC_DTYPE_NONE;
        content.declared.has_shape = false;
        content.declared.dim_count = 0;
    }
    return add_to_model(onnx, &content);
}

void gc_onnx_drop_weight_values(struct gc_onnx *onnx)
{
    struct gc_reader *reader = onnx->reader;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < reader->value_count; i++) {
        const struct gc_model_value *declared = &reader->values[i];
        if (declared->kind == GC_MODEL_OUTPUT ||
            gc_strmap_find(&reader->tensor_names, declared->name, strlen(declared->name)) == NULL)
            reader->values[kept++] = *declared;
    }
    reader->value_count = kept;
}
