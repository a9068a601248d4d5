/* The content of small tensors: shapes, axes, scales. Weights are never read. */
#include "core/base/bits.h"
#include "core/onnx/graph.h"

#include <string.h>

/* Fields of TensorProto: where each type's elements are if they are not raw. */
enum { FLOAT_DATA = 4, INT32_DATA = 5, INT64_DATA = 7, DOUBLE_DATA = 10, UINT64_DATA = 11 };

#define REALS_MAX 256          /* kept floats of a tensor: scales and bounds, which are few */
#define ITEMS_TOTAL (1U << 19) /* kept elements of a model: shapes and indices are integers */

static uint32_t field_of(enum gc_dtype dtype)
{
    switch (dtype) {
    case GC_DTYPE_F32:
        return FLOAT_DATA;
    case GC_DTYPE_F64:
        return DOUBLE_DATA;
    case GC_DTYPE_I64:
        return INT64_DATA;
    case GC_DTYPE_U32:
    case GC_DTYPE_U64:
        return UINT64_DATA;
    case GC_DTYPE_BOOL:
    case GC_DTYPE_U8:
    case GC_DTYPE_I8:
    case GC_DTYPE_U16:
    case GC_DTYPE_I16:
    case GC_DTYPE_I32:
        return INT32_DATA;
    default:
        return 0; /* not kept */
    }
}

static bool is_real(enum gc_dtype dtype)
{
    return dtype == GC_DTYPE_F32 || dtype == GC_DTYPE_F64;
}

static bool is_signed(enum gc_dtype dtype)
{
    return dtype == GC_DTYPE_I8 || dtype == GC_DTYPE_I16 || dtype == GC_DTYPE_I32 ||
           dtype == GC_DTYPE_I64;
}

static struct gc_dim whole_item(enum gc_dtype dtype, uint64_t bits)
{
    if (dtype == GC_DTYPE_BOOL)
        return (struct gc_dim){.kind = GC_DIM_NUMBER, .number = bits != 0};
    if (dtype == GC_DTYPE_U64 && bits > INT64_MAX)
        return (struct gc_dim){.kind = GC_DIM_UNKNOWN};
    return (struct gc_dim){.kind = GC_DIM_NUMBER, .number = (int64_t)bits};
}

static struct gc_dim real_item(uint64_t bits, uint32_t bytes)
{
    struct gc_dim item = {.kind = GC_DIM_REAL};
    const uint32_t low = (uint32_t)bits;
    float single;
    if (bytes == sizeof(single)) {
        memcpy(&single, &low, sizeof(single));
        item.real = (double)single;
    } else {
        memcpy(&item.real, &bits, sizeof(item.real));
    }
    return item;
}

/* An element of `bytes` bytes, little-endian. */
static struct gc_dim item_at(const unsigned char *view, uint32_t bytes, enum gc_dtype dtype)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < bytes; i++)
        bits |= (uint64_t)view[i] << (8 * i);
    if (is_real(dtype))
        return real_item(bits, bytes);
    if (is_signed(dtype) && bytes > 0 && bytes < 8 && (bits >> (8 * bytes - 1)) != 0)
        bits |= UINT64_MAX << (8 * bytes);
    return whole_item(dtype, bits);
}

static enum gc_status read_raw(struct gc_source *source, const struct gc_model_tensor *tensor,
                               struct gc_dim *items)
{
    const uint32_t bytes = gc_dtype_get_info(tensor->dtype)->block_bytes;
    const unsigned char *view;
    const enum gc_status status =
        gc_source_view(source, tensor->offset, (size_t)tensor->bytes, "a tensor", &view);
    for (uint64_t i = 0; status == GC_OK && i < tensor->elements; i++)
        items[i] = item_at(view + i * bytes, bytes, tensor->dtype);
    return status;
}

static enum gc_status read_external(struct gc_onnx *onnx, const struct gc_onnx_content *content,
                                    struct gc_dim *items)
{
    struct gc_source source;
    enum gc_status status = gc_source_open_in(onnx->reader, onnx->folder, content->location,
                                              onnx->source->path, "a tensor", &source);
    if (status != GC_OK)
        return status;
    status = read_raw(&source, &content->tensor, items);
    gc_source_close(&source);
    return status;
}

/* Reads one field: packed numbers, or a single one. */
static enum gc_status read_field(const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field, enum gc_dtype dtype,
                                 struct gc_dim *items, uint64_t count, uint64_t *filled)
{
    struct gc_protobuf packed = gc_protobuf_inner(message, field);
    const uint32_t bytes = dtype == GC_DTYPE_F32 ? 4 : 8;
    if (field->type == GC_PROTOBUF_VARINT && *filled < count)
        items[(*filled)++] = whole_item(dtype, field->value);
    if (field->type == GC_PROTOBUF_VARINT)
        return GC_OK;
    while (packed.position < packed.end && *filled < count) {
        const unsigned char *view;
        uint64_t value;
        enum gc_status status;
        if (!is_real(dtype)) {
            status = gc_protobuf_varint(&packed, &value);
            if (status == GC_OK)
                items[(*filled)++] = whole_item(dtype, value);
        } else {
            if (packed.end - packed.position < bytes)
                return GC_OK;
            status = gc_source_view(packed.source, packed.position, bytes, "a tensor", &view);
            if (status == GC_OK)
                items[(*filled)++] = item_at(view, bytes, dtype);
            packed.position += bytes;
        }
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

/* *is_complete is false if the message has fewer elements than its shape. */
static enum gc_status read_typed(struct gc_protobuf message, const struct gc_model_tensor *tensor,
                                 struct gc_dim *items, bool *is_complete)
{
    const uint32_t number = field_of(tensor->dtype);
    struct gc_protobuf_field field;
    uint64_t filled = 0;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status == GC_OK && more && field.number == number)
            status = read_field(&message, &field, tensor->dtype, items, tensor->elements, &filled);
        if (status != GC_OK)
            return status;
        if (!more)
            break;
    }
    *is_complete = filled == tensor->elements;
    return GC_OK;
}

/* The elements as dims; NULL if they are not kept. */
static enum gc_status read_data(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                const struct gc_onnx_content *content, const struct gc_data **data)
{
    const struct gc_model_tensor *tensor = &content->tensor;
    enum gc_status status = GC_OK;
    bool is_complete = true;
    *data = NULL;
    if (field_of(tensor->dtype) == 0 || tensor->elements > GC_GRAPH_DATA_MAX ||
        (is_real(tensor->dtype) && tensor->elements > REALS_MAX) ||
        builder->data_items + tensor->elements > ITEMS_TOTAL)
        return GC_OK;
    struct gc_data *kept = gc_onnx_alloc(builder, sizeof(*kept));
    struct gc_dim *items = gc_onnx_alloc(builder, tensor->elements * sizeof(*items));
    if (kept == NULL || items == NULL)
        return gc_reader_no_memory(builder->onnx.reader, builder->onnx.source->path);
    if (tensor->elements == 0)
        is_complete = true;
    else if (content->is_external)
        status = read_external(&builder->onnx, content, items);
    else if (content->has_raw)
        status = read_raw(builder->onnx.source, tensor, items);
    else
        status = read_typed(message, tensor, items, &is_complete);
    if (status != GC_OK || !is_complete)
        return status;
    builder->data_items += tensor->elements;
    *kept =
        (struct gc_data){.count = (uint32_t)tensor->elements, .is_complete = true, .items = items};
    for (uint32_t i = 0; i < kept->count; i++)
        kept->is_complete = kept->is_complete && items[i].kind != GC_DIM_UNKNOWN;
    *data = kept;
    return GC_OK;
}

static enum gc_status as_tensor(struct gc_onnx_builder *builder,
                                const struct gc_onnx_content *content, struct gc_tensor *tensor)
{
    const struct gc_model_tensor *from = &content->tensor;
    struct gc_dim *dims = gc_onnx_alloc(builder, from->dim_count * sizeof(*dims));
    if (dims == NULL)
        return gc_reader_no_memory(builder->onnx.reader, builder->onnx.source->path);
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
        status = read_data(builder, message, &content, &tensor->data);
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
