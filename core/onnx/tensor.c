#include "core/onnx/tensor.h"

#include "core/base/bits.h"
#include "core/io/text.h"

#include <stdio.h>
#include <string.h>

/* Fields of TensorProto (onnx.proto). */
enum {
    TENSOR_DIMS = 1,
    TENSOR_DATA_TYPE = 2,
    TENSOR_FLOAT_DATA = 4,
    TENSOR_INT32_DATA = 5,
    TENSOR_STRING_DATA = 6,
    TENSOR_INT64_DATA = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW_DATA = 9,
    TENSOR_DOUBLE_DATA = 10,
    TENSOR_UINT64_DATA = 11,
    TENSOR_EXTERNAL_DATA = 13,
    TENSOR_DATA_LOCATION = 14,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    SPARSE_VALUES = 1,
    SPARSE_INDICES = 2,
    SPARSE_DIMS = 3,
    LOCATION_EXTERNAL = 1,
};

/* Reads a repeated number, single or packed. At most GC_ONNX_DIMS_MAX in all. */
static enum gc_status read_dims(struct gc_onnx *onnx, const struct gc_protobuf *message,
                                const struct gc_protobuf_field *field, uint64_t *dims,
                                uint32_t *count)
{
    struct gc_protobuf packed = gc_protobuf_inner(message, field);
    uint64_t value = field->value;
    if (field->type != GC_PROTOBUF_VARINT && field->type != GC_PROTOBUF_BYTES)
        return gc_source_fail(onnx->source, field->offset, "a dimension that is no number");
    do {
        if (field->type == GC_PROTOBUF_BYTES) {
            if (packed.position == packed.end)
                return GC_OK;
            const enum gc_status status = gc_protobuf_varint(&packed, &value);
            if (status != GC_OK)
                return status;
        }
        if (value > INT64_MAX)
            return gc_source_fail(onnx->source, field->offset, "a negative dimension, %lld",
                                  (long long)value);
        if (*count == GC_ONNX_DIMS_MAX)
            return gc_source_fail(onnx->source, field->offset, "more than %d dimensions",
                                  GC_ONNX_DIMS_MAX);
        dims[(*count)++] = value;
    } while (field->type == GC_PROTOBUF_BYTES);
    return GC_OK;
}

/* ---- external data ---- */

static enum gc_status read_entry(struct gc_onnx *onnx, struct gc_protobuf message,
                                 struct gc_onnx_content *content)
{
    const char *key = "";
    const char *value = "";
    struct gc_protobuf_field field;
    const uint64_t offset = message.position;
    bool more = true;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && gc_protobuf_is(&field, ENTRY_KEY, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "external_data", &key);
        else if (status == GC_OK && gc_protobuf_is(&field, ENTRY_VALUE, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "external_data", &value);
        if (status != GC_OK)
            return status;
        if (!more)
            break;
    }
    const bool is_offset = strcmp(key, "offset") == 0;
    const bool is_length = strcmp(key, "length") == 0;
    if (strcmp(key, "location") == 0)
        content->location = value;
    if (!is_offset && !is_length)
        return GC_OK;
    uint64_t number;
    if (!gc_text_uint(value, strlen(value), &number))
        return gc_source_fail(onnx->source, offset,
                              "external_data: %s is \"%s\"; a whole number is accepted", key,
                              GC_READER_SHOWN(value, strlen(value)));
    if (number == GC_MODEL_NO_OFFSET)
        return gc_source_fail(onnx->source, offset, "external_data: %s is %llu; no file is so long",
                              key, (unsigned long long)number);
    if (is_offset) {
        content->external_offset = number;
    } else {
        content->external_bytes = number;
        content->has_external_bytes = true;
    }
    return GC_OK;
}

/* The file's index; the file is checked once for all tensors in it. */
static enum gc_status find_file(struct gc_onnx *onnx, const char *name, const char *place,
                                uint32_t *file)
{
    const struct gc_strmap_entry *known = gc_strmap_find(&onnx->external, name, strlen(name));
    const char *path;
    uint64_t bytes;
    if (known != NULL) {
        *file = known->value;
        return GC_OK;
    }
    enum gc_status status = gc_source_size_in(onnx->reader, onnx->folder, name, onnx->source->path,
                                              place, &path, &bytes);
    if (status == GC_OK)
        status = gc_reader_add_file(onnx->reader, path, bytes, file);
    if (status == GC_OK &&
        !gc_strmap_add(&onnx->external, &onnx->reader->region, name, strlen(name), *file))
        status = gc_reader_no_memory(onnx->reader, onnx->source->path);
    return status;
}

static enum gc_status place_external(struct gc_onnx *onnx, const struct gc_onnx_content *content,
                                     struct gc_model_tensor *tensor)
{
    char place[GC_READER_SHOWN_BYTES + 16];
    const char *shown = GC_READER_SHOWN(tensor->name, strlen(tensor->name));
    if (content->location == NULL)
        return gc_source_fail(onnx->source, content->begin,
                              "tensor \"%s\": external data without a location", shown);
    if (content->has_external_bytes && content->external_bytes != tensor->bytes)
        return gc_source_fail(onnx->source, content->begin,
                              "tensor \"%s\": %llu bytes of external data, its shape and type need "
                              "%llu",
                              shown, (unsigned long long)content->external_bytes,
                              (unsigned long long)tensor->bytes);
    snprintf(place, sizeof(place), "tensor \"%s\"", shown);
    tensor->offset = content->external_offset;
    tensor->stored_bytes = tensor->bytes;
    return find_file(onnx, content->location, place, &tensor->file);
}

/* ---- one tensor ---- */

static enum gc_status read_field(struct gc_onnx *onnx, const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field,
                                 struct gc_onnx_content *content)
{
    struct gc_model_tensor *tensor = &content->tensor;
    const bool is_bytes = field->type == GC_PROTOBUF_BYTES;
    switch (field->number) {
    case TENSOR_DIMS:
        return read_dims(onnx, message, field, content->dims, &tensor->dim_count);
    case TENSOR_DATA_TYPE:
        tensor->dtype = gc_dtype_from_onnx(field->value);
        if (tensor->dtype == GC_DTYPE_NONE)
            return gc_source_fail(onnx->source, field->offset,
                                  "a tensor of data type %llu, which is not known",
                                  (unsigned long long)field->value);
        return GC_OK;
    case TENSOR_NAME:
        return is_bytes ? gc_protobuf_text(message, field, "a tensor's name", &tensor->name)
                        : GC_OK;
    case TENSOR_RAW_DATA:
        content->has_raw = is_bytes;
        tensor->offset = field->offset;
        tensor->stored_bytes = field->bytes;
        return GC_OK;
    case TENSOR_FLOAT_DATA:
    case TENSOR_DOUBLE_DATA:
        content->typed_fixed += field->bytes;
        content->typed_bytes += field->bytes;
        return GC_OK;
    case TENSOR_INT32_DATA:
    case TENSOR_INT64_DATA:
    case TENSOR_UINT64_DATA:
    case TENSOR_STRING_DATA:
        content->typed_bytes += is_bytes ? field->bytes : 1;
        return GC_OK;
    case TENSOR_EXTERNAL_DATA:
        return is_bytes ? read_entry(onnx, gc_protobuf_inner(message, field), content) : GC_OK;
    case TENSOR_DATA_LOCATION:
        content->is_external = field->value == LOCATION_EXTERNAL;
        return GC_OK;
    default:
        return GC_OK;
    }
}

static bool has_fixed_data(enum gc_dtype dtype)
{
    return dtype == GC_DTYPE_F32 || dtype == GC_DTYPE_F64 || dtype == GC_DTYPE_C64 ||
           dtype == GC_DTYPE_C128;
}

/* Checks the size of data inside the message. */
static enum gc_status check_inner(struct gc_onnx *onnx, const struct gc_onnx_content *content,
                                  struct gc_model_tensor *tensor)
{
    const char *shown = GC_READER_SHOWN(tensor->name, strlen(tensor->name));
    uint64_t stored = content->has_raw ? tensor->stored_bytes : content->typed_bytes;
    const bool exact =
        content->has_raw || (has_fixed_data(tensor->dtype) && content->typed_fixed > 0);
    if (exact && stored != tensor->bytes)
        return gc_source_fail(onnx->source, content->begin,
                              "tensor \"%s\": %llu bytes of data, its shape and type need %llu",
                              shown, (unsigned long long)stored, (unsigned long long)tensor->bytes);
    tensor->stored_bytes = stored;
    if (!content->has_raw)
        tensor->offset = GC_MODEL_NO_OFFSET;
    if (stored == 0 && tensor->bytes > 0 && tensor->dtype != GC_DTYPE_TEXT) {
        onnx->empty++;
        onnx->empty_name = tensor->name;
    }
    return GC_OK;
}

enum gc_status gc_onnx_read_content(struct gc_onnx *onnx, struct gc_protobuf message,
                                    const char *name, struct gc_onnx_content *content)
{
    struct gc_model_tensor *tensor = &content->tensor;
    struct gc_protobuf_field field;
    bool more;
    memset(content, 0, sizeof(*content));
    content->begin = message.position;
    tensor->name = "";
    tensor->dtype = GC_DTYPE_NONE;
    tensor->file = onnx->source->file;
    tensor->alias_of = GC_MODEL_NONE;
    tensor->dims = content->dims;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && more)
            status = read_field(onnx, &message, &field, content);
        if (status != GC_OK)
            return status;
        if (!more)
            break;
    }
    if (name != NULL)
        tensor->name = name;
    if (tensor->dtype == GC_DTYPE_NONE)
        return gc_source_fail(onnx->source, content->begin, "tensor \"%s\": no data type",
                              GC_READER_SHOWN(tensor->name, strlen(tensor->name)));
    const uint64_t raw_bytes = tensor->stored_bytes;
    const enum gc_status status = gc_reader_size_tensor(onnx->reader, onnx->source->path, tensor);
    tensor->stored_bytes = raw_bytes;
    if (status != GC_OK)
        return status;
    return content->is_external ? place_external(onnx, content, tensor)
                                : check_inner(onnx, content, tensor);
}

static enum gc_status add(struct gc_onnx *onnx, struct gc_model_tensor *tensor)
{
    const uint64_t dims_bytes = tensor->dim_count * sizeof(*tensor->dims);
    uint64_t *dims = gc_reader_alloc(onnx->reader, onnx->source->path, dims_bytes);
    if (dims == NULL)
        return gc_reader_no_memory(onnx->reader, onnx->source->path);
    memcpy(dims, tensor->dims, dims_bytes);
    tensor->dims = dims;
    return gc_reader_add_tensor(onnx->reader, onnx->source->path, tensor, false);
}

enum gc_status gc_onnx_add_tensor(struct gc_onnx *onnx, struct gc_protobuf message,
                                  const char *name)
{
    struct gc_onnx_content content;
    const enum gc_status status = gc_onnx_read_content(onnx, message, name, &content);
    return status == GC_OK ? add(onnx, &content.tensor) : status;
}

enum gc_status gc_onnx_tensor_bytes(struct gc_onnx *onnx, struct gc_protobuf message,
                                    uint64_t *bytes)
{
    struct gc_onnx_content content;
    const enum gc_status status = gc_onnx_read_content(onnx, message, NULL, &content);
    *bytes = status == GC_OK ? content.tensor.bytes : 0;
    return status;
}

/* The three messages of one sparse tensor. */
struct sparse {
    struct gc_onnx_content values;
    struct gc_onnx_content indices;
    uint64_t dims[GC_ONNX_DIMS_MAX];
    uint32_t dim_count;
    bool has_values;
    bool has_indices;
};

static enum gc_status read_sparse(struct gc_onnx *onnx, struct gc_protobuf message,
                                  const char *name, struct sparse *sparse)
{
    struct gc_protobuf_field field;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        const struct gc_protobuf inner = gc_protobuf_inner(&message, &field);
        if (gc_protobuf_is(&field, SPARSE_VALUES, GC_PROTOBUF_BYTES)) {
            sparse->has_values = true;
            status = gc_onnx_read_content(onnx, inner, name, &sparse->values);
        } else if (gc_protobuf_is(&field, SPARSE_INDICES, GC_PROTOBUF_BYTES)) {
            sparse->has_indices = true;
            status = gc_onnx_read_content(onnx, inner, name, &sparse->indices);
        } else if (field.number == SPARSE_DIMS) {
            status = read_dims(onnx, &message, &field, sparse->dims, &sparse->dim_count);
        }
        if (status != GC_OK)
            return status;
    }
}

enum gc_status gc_onnx_read_sparse(struct gc_onnx *onnx, struct gc_protobuf message,
                                   const char *name, struct gc_onnx_content *dense)
{
    struct sparse sparse;
    const uint64_t begin = message.position;
    memset(&sparse, 0, sizeof(sparse));
    *dense = (struct gc_onnx_content){.begin = begin, .tensor.dims = dense->dims};
    enum gc_status status = read_sparse(onnx, message, name, &sparse);
    if (status != GC_OK)
        return status;
    if (!sparse.has_values || !sparse.has_indices)
        return gc_source_fail(onnx->source, begin, "a sparse tensor without values or indices");
    struct gc_model_tensor tensor = sparse.values.tensor;
    const uint64_t values = tensor.elements;
    uint64_t stored;
    tensor.dims = sparse.dims;
    tensor.dim_count = sparse.dim_count;
    tensor.offset = GC_MODEL_NO_OFFSET;
    status = gc_reader_size_tensor(onnx->reader, onnx->source->path, &tensor);
    if (status != GC_OK)
        return status;
    if (values > tensor.elements ||
        !gc_add_u64(tensor.stored_bytes, sparse.indices.tensor.stored_bytes, &stored))
        return gc_source_fail(onnx->source, begin,
                              "sparse tensor \"%s\": %llu values, and %llu elements in all",
                              GC_READER_SHOWN(tensor.name, strlen(tensor.name)),
                              (unsigned long long)values, (unsigned long long)tensor.elements);
    tensor.stored_bytes = stored;
    dense->tensor = tensor;
    memcpy(dense->dims, sparse.dims, sizeof(dense->dims));
    dense->tensor.dims = dense->dims;
    return GC_OK;
}

enum gc_status gc_onnx_add_sparse(struct gc_onnx *onnx, struct gc_protobuf message,
                                  const char *name)
{
    struct gc_onnx_content dense;
    const enum gc_status status = gc_onnx_read_sparse(onnx, message, name, &dense);
    return status == GC_OK ? add(onnx, &dense.tensor) : status;
}

enum gc_status gc_onnx_add_list(struct gc_onnx *onnx, const char *name, enum gc_dtype dtype,
                                uint64_t count, bool scalar)
{
    struct gc_model_tensor tensor = {
        .name = name,
        .dims = &count,
        .dim_count = scalar ? 0 : 1,
        .dtype = dtype,
        .offset = GC_MODEL_NO_OFFSET,
        .file = onnx->source->file,
        .alias_of = GC_MODEL_NONE,
    };
    const enum gc_status status = gc_reader_size_tensor(onnx->reader, onnx->source->path, &tensor);
    tensor.stored_bytes = tensor.bytes;
    return status == GC_OK ? add(onnx, &tensor) : status;
}
