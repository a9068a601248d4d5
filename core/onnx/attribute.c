/* Attributes of nodes: AttributeProto. */
#include "core/base/bits.h"
#include "core/onnx/graph.h"

#include <string.h>

/* Fields of AttributeProto, and its AttributeType. */
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_FLOAT = 2,
    ATTRIBUTE_INT = 3,
    ATTRIBUTE_TEXT = 4,
    ATTRIBUTE_TENSOR = 5,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_FLOATS = 7,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TEXTS = 9,
    ATTRIBUTE_TYPE_PROTO = 14,
    ATTRIBUTE_KIND = 20,
    ATTRIBUTE_REFERENCE = 21,
    ATTRIBUTE_SPARSE = 22,
};

static const enum gc_attribute_kind kinds[] = {
    [1] = GC_ATTRIBUTE_REAL,   [2] = GC_ATTRIBUTE_INT,   [3] = GC_ATTRIBUTE_TEXT,
    [4] = GC_ATTRIBUTE_TENSOR, [5] = GC_ATTRIBUTE_GRAPH, [6] = GC_ATTRIBUTE_REALS,
    [7] = GC_ATTRIBUTE_INTS,   [8] = GC_ATTRIBUTE_TEXTS, [11] = GC_ATTRIBUTE_SPARSE,
    [13] = GC_ATTRIBUTE_TYPE,
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

/* The fields read so far; the attribute's kind decides which of them counts. */
struct reading {
    struct gc_onnx_builder *builder;
    struct gc_graph_attribute *attribute;
    const char *reference;
    struct gc_protobuf body; /* of a tensor, graph or type */
    int64_t *integers;
    double *reals;
    const char **texts;
    uint32_t room;
};

static enum gc_status no_memory(struct gc_onnx_builder *builder)
{
    return gc_reader_no_memory(builder->onnx.reader, builder->onnx.source->path);
}

/* Bytes that are not text, which a Constant may have, become "". */
static enum gc_status read_text(struct gc_onnx_builder *builder, const struct gc_protobuf *message,
                                const struct gc_protobuf_field *field, const char **text)
{
    const unsigned char *view;
    *text = "";
    if (field->type != GC_PROTOBUF_BYTES || field->bytes > 4096)
        return GC_OK;
    const enum gc_status status =
        gc_source_view(message->source, field->offset, (size_t)field->bytes, "an attribute", &view);
    if (status != GC_OK || memchr(view, '\0', (size_t)field->bytes) != NULL)
        return status;
    *text = gc_region_text(&builder->onnx.reader->region, (const char *)view, (size_t)field->bytes);
    return *text != NULL ? GC_OK : no_memory(builder);
}

/* Grows a list for one more element, up to GC_GRAPH_DATA_MAX; NULL: no memory. */
static void *grow_list(struct reading *reading, void *list, size_t element_bytes)
{
    const uint64_t count = reading->attribute->count;
    if (count < reading->room)
        return list;
    const uint32_t room = reading->room == 0 ? 4 : reading->room * 2;
    struct gc_region *region = &reading->builder->onnx.reader->region;
    void *grown = gc_region_grow(region, list, reading->room * element_bytes, room * element_bytes);
    reading->room = room;
    return grown;
}

static enum gc_status add_int(struct reading *reading, uint64_t value)
{
    if (reading->attribute->count >= GC_GRAPH_DATA_MAX) {
        reading->attribute->count++;
        return GC_OK;
    }
    reading->integers = grow_list(reading, reading->integers, sizeof(*reading->integers));
    if (reading->integers == NULL)
        return no_memory(reading->builder);
    reading->integers[reading->attribute->count++] = (int64_t)value;
    return GC_OK;
}

static enum gc_status read_ints(struct reading *reading, const struct gc_protobuf *message,
                                const struct gc_protobuf_field *field)
{
    struct gc_protobuf packed = gc_protobuf_inner(message, field);
    enum gc_status status = GC_OK;
    if (field->type == GC_PROTOBUF_VARINT)
        return add_int(reading, field->value);
    while (status == GC_OK && field->type == GC_PROTOBUF_BYTES && packed.position < packed.end) {
        uint64_t value;
        status = gc_protobuf_varint(&packed, &value);
        if (status == GC_OK)
            status = add_int(reading, value);
        /* The list is too long to be kept; its length does not matter. */
        if (reading->attribute->count > GC_GRAPH_DATA_MAX)
            break;
    }
    return status;
}

static double as_real(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof(value));
    return (double)value;
}

static enum gc_status add_real(struct reading *reading, uint64_t bits)
{
    if (reading->attribute->count >= GC_GRAPH_DATA_MAX) {
        reading->attribute->count++;
        return GC_OK;
    }
    reading->reals = grow_list(reading, reading->reals, sizeof(*reading->reals));
    if (reading->reals == NULL)
        return no_memory(reading->builder);
    reading->reals[reading->attribute->count++] = as_real(bits);
    return GC_OK;
}

static enum gc_status read_reals(struct reading *reading, const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field)
{
    const unsigned char *view;
    enum gc_status status = GC_OK;
    if (field->type == GC_PROTOBUF_FIXED32)
        return add_real(reading, field->value);
    if (field->type != GC_PROTOBUF_BYTES)
        return GC_OK;
    if (field->bytes / 4 > GC_GRAPH_DATA_MAX) {
        reading->attribute->count += field->bytes / 4;
        return GC_OK;
    }
    for (uint64_t at = 0; status == GC_OK && at + 4 <= field->bytes; at += 4) {
        status = gc_source_view(message->source, field->offset + at, 4, "an attribute", &view);
        if (status == GC_OK)
            status = add_real(reading, (uint64_t)view[0] | (uint64_t)view[1] << 8 |
                                           (uint64_t)view[2] << 16 | (uint64_t)view[3] << 24);
    }
    return status;
}

static enum gc_status add_text(struct reading *reading, const struct gc_protobuf *message,
                               const struct gc_protobuf_field *field)
{
    const char *text;
    if (reading->attribute->count >= 256) {
        reading->attribute->count++;
        return GC_OK;
    }
    reading->texts = grow_list(reading, reading->texts, sizeof(*reading->texts));
    if (reading->texts == NULL)
        return no_memory(reading->builder);
    const enum gc_status status = read_text(reading->builder, message, field, &text);
    if (status == GC_OK)
        reading->texts[reading->attribute->count++] = text;
    return status;
}

/* Old files may lack the kind: the first value field decides it. */
static void set_default_kind(struct reading *reading, enum gc_attribute_kind kind)
{
    if (reading->attribute->kind == GC_ATTRIBUTE_NONE)
        reading->attribute->kind = kind;
}

static bool is_of_kind(const struct reading *reading, enum gc_attribute_kind kind)
{
    return reading->attribute->kind == kind;
}

static enum gc_status read_value(struct reading *reading, const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field, enum gc_attribute_kind kind)
{
    struct gc_graph_attribute *attribute = reading->attribute;
    set_default_kind(reading, kind);
    if (!is_of_kind(reading, kind))
        return GC_OK;
    switch (kind) {
    case GC_ATTRIBUTE_REAL:
        attribute->real = as_real(field->value);
        return GC_OK;
    case GC_ATTRIBUTE_INT:
        attribute->integer = (int64_t)field->value;
        return GC_OK;
    case GC_ATTRIBUTE_TEXT:
        return read_text(reading->builder, message, field, &attribute->text);
    case GC_ATTRIBUTE_INTS:
        return read_ints(reading, message, field);
    case GC_ATTRIBUTE_REALS:
        return read_reals(reading, message, field);
    case GC_ATTRIBUTE_TEXTS:
        return add_text(reading, message, field);
    default:
        if (field->type == GC_PROTOBUF_BYTES)
            reading->body = gc_protobuf_inner(message, field);
        return GC_OK;
    }
}

static enum gc_attribute_kind kind_of(const struct gc_protobuf_field *field)
{
    switch (field->number) {
    case ATTRIBUTE_FLOAT:
        return field->type == GC_PROTOBUF_FIXED32 ? GC_ATTRIBUTE_REAL : GC_ATTRIBUTE_NONE;
    case ATTRIBUTE_INT:
        return field->type == GC_PROTOBUF_VARINT ? GC_ATTRIBUTE_INT : GC_ATTRIBUTE_NONE;
    case ATTRIBUTE_TEXT:
        return GC_ATTRIBUTE_TEXT;
    case ATTRIBUTE_TENSOR:
        return GC_ATTRIBUTE_TENSOR;
    case ATTRIBUTE_GRAPH:
        return GC_ATTRIBUTE_GRAPH;
    case ATTRIBUTE_FLOATS:
        return GC_ATTRIBUTE_REALS;
    case ATTRIBUTE_INTS:
        return GC_ATTRIBUTE_INTS;
    case ATTRIBUTE_TEXTS:
        return GC_ATTRIBUTE_TEXTS;
    case ATTRIBUTE_TYPE_PROTO:
        return GC_ATTRIBUTE_TYPE;
    case ATTRIBUTE_SPARSE:
        return GC_ATTRIBUTE_SPARSE;
    default:
        return GC_ATTRIBUTE_NONE;
    }
}

/* First pass: reads the kind, which follows the value in the file. The second reads the value. */
static enum gc_status scan_kind(struct reading *reading, struct gc_protobuf message)
{
    struct gc_protobuf_field field;
    bool more;
    reading->attribute->name = "";
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        if (gc_protobuf_is(&field, ATTRIBUTE_NAME, GC_PROTOBUF_BYTES))
            status = gc_protobuf_text(&message, &field, "an attribute's name",
                                      &reading->attribute->name);
        else if (gc_protobuf_is(&field, ATTRIBUTE_REFERENCE, GC_PROTOBUF_BYTES) && field.bytes > 0)
            status = gc_protobuf_text(&message, &field, "an attribute's name", &reading->reference);
        else if (gc_protobuf_is(&field, ATTRIBUTE_KIND, GC_PROTOBUF_VARINT) &&
                 field.value < KIND_COUNT)
            reading->attribute->kind = kinds[field.value];
        if (status != GC_OK)
            return status;
    }
}

static enum gc_status read_all_values(struct reading *reading, struct gc_protobuf message)
{
    struct gc_protobuf_field field;
    bool more;
    for (;;) {
        enum gc_status status = gc_protobuf_next(&message, &field, &more);
        if (status != GC_OK || !more)
            return status;
        const enum gc_attribute_kind kind = kind_of(&field);
        if (kind != GC_ATTRIBUTE_NONE)
            status = read_value(reading, &message, &field, kind);
        if (status != GC_OK)
            return status;
    }
}

static enum gc_status read_tensor(struct reading *reading)
{
    struct gc_tensor *tensor = gc_onnx_alloc(reading->builder, sizeof(*tensor));
    const char *name;
    if (tensor == NULL)
        return no_memory(reading->builder);
    reading->attribute->tensor = tensor;
    return reading->attribute->kind == GC_ATTRIBUTE_SPARSE
               ? gc_onnx_sparse_tensor(reading->builder, reading->body, &name, tensor)
               : gc_onnx_small_tensor(reading->builder, reading->body, &name, tensor);
}

static enum gc_status read_type(struct reading *reading)
{
    struct gc_onnx_value declared = {.declared = {.name = "", .dtype = GC_DTYPE_NONE}};
    struct gc_type *type = gc_onnx_alloc(reading->builder, sizeof(*type));
    if (type == NULL)
        return no_memory(reading->builder);
    reading->attribute->type = type;
    const enum gc_status status =
        gc_onnx_read_type(&reading->builder->onnx, reading->body, &declared);
    return status == GC_OK ? gc_onnx_type(reading->builder, &declared, type) : status;
}

static enum gc_status end(struct reading *reading, struct gc_protobuf *graph)
{
    struct gc_graph_attribute *attribute = reading->attribute;
    const bool has_body = reading->body.source != NULL;
    switch (attribute->kind) {
    case GC_ATTRIBUTE_INTS:
        attribute->integers = reading->integers;
        return GC_OK;
    case GC_ATTRIBUTE_REALS:
        attribute->reals = reading->reals;
        return GC_OK;
    case GC_ATTRIBUTE_TEXTS:
        attribute->texts = reading->texts;
        return GC_OK;
    case GC_ATTRIBUTE_TEXT:
        attribute->text = attribute->text != NULL ? attribute->text : "";
        return GC_OK;
    case GC_ATTRIBUTE_TENSOR:
    case GC_ATTRIBUTE_SPARSE:
    case GC_ATTRIBUTE_TYPE:
    case GC_ATTRIBUTE_GRAPH:
        if (!has_body) {
            attribute->kind = GC_ATTRIBUTE_NONE;
            return GC_OK;
        }
        if (attribute->kind == GC_ATTRIBUTE_TYPE)
            return read_type(reading);
        if (attribute->kind != GC_ATTRIBUTE_GRAPH)
            return read_tensor(reading);
        *graph = reading->body;
        return GC_OK;
    default:
        return GC_OK;
    }
}

/* Resolves a reference of a function's node to an attribute of the call; if the call has none, the
 * attribute is absent. */
static void refer(const struct gc_onnx_space *space, const char *reference,
                  struct gc_graph_attribute *attribute)
{
    const char *name = attribute->name;
    for (uint32_t i = 0; i < space->attributes.count; i++) {
        if (strcmp(space->attributes.list[i].name, reference) == 0) {
            *attribute = space->attributes.list[i];
            attribute->name = name;
            return;
        }
    }
    *attribute = (struct gc_graph_attribute){.name = ""};
}

enum gc_status gc_onnx_read_attribute(struct gc_onnx_builder *builder, uint32_t space,
                                      struct gc_protobuf message,
                                      struct gc_graph_attribute *attribute,
                                      struct gc_protobuf *graph)
{
    struct reading reading = {.builder = builder, .attribute = attribute};
    *attribute = (struct gc_graph_attribute){0};
    enum gc_status status = scan_kind(&reading, message);
    if (status != GC_OK)
        return status;
    if (reading.reference != NULL) {
        refer(&builder->spaces[space], reading.reference, attribute);
        return GC_OK;
    }
    status = read_all_values(&reading, message);
    return status == GC_OK ? end(&reading, graph) : status;
}
