#include "core/onnx/protobuf.h"

#include "core/base/bits.h"

#include <string.h>

#define VARINT_BYTES_MAX 10
#define TEXT_BYTES_MAX (64U << 10)

static enum gc_status fail(const struct gc_protobuf *message, uint64_t offset, const char *what)
{
    return gc_reader_fail(message->source->reader, GC_FORMAT, message->source->path,
                          "byte %llu: %s; a protobuf message is expected",
                          (unsigned long long)offset, what);
}

enum gc_status gc_protobuf_varint(struct gc_protobuf *message, uint64_t *value)
{
    const unsigned char *view;
    const uint64_t begin = message->position;
    const size_t at_most = (size_t)gc_min_u64(VARINT_BYTES_MAX, message->end - begin);
    const enum gc_status status =
        gc_source_view(message->source, begin, at_most, "a number", &view);
    if (status != GC_OK)
        return status;
    *value = 0;
    for (size_t i = 0; i < at_most; i++) {
        const uint64_t bits = view[i] & 0x7f;
        if (i == VARINT_BYTES_MAX - 1 && bits > 1)
            return fail(message, begin, "a number of more than 64 bits");
        *value |= bits << (7 * i);
        if ((view[i] & 0x80) == 0) {
            message->position = begin + i + 1;
            return GC_OK;
        }
    }
    return fail(message, begin,
                at_most == VARINT_BYTES_MAX ? "a number of more than 64 bits"
                                            : "a number that its message cuts off");
}

static enum gc_status read_fixed(struct gc_protobuf *message, struct gc_protobuf_field *field,
                                 size_t bytes)
{
    const unsigned char *view;
    if (bytes > message->end - message->position)
        return fail(message, message->position, "a number that its message cuts off");
    const enum gc_status status =
        gc_source_view(message->source, message->position, bytes, "a number", &view);
    if (status != GC_OK)
        return status;
    for (size_t i = 0; i < bytes; i++)
        field->value |= (uint64_t)view[i] << (8 * i);
    return GC_OK;
}

enum gc_status gc_protobuf_next(struct gc_protobuf *message, struct gc_protobuf_field *field,
                                bool *more)
{
    uint64_t tag;
    const uint64_t begin = message->position;
    *field = (struct gc_protobuf_field){0};
    *more = begin < message->end;
    if (!*more)
        return GC_OK;
    enum gc_status status = gc_protobuf_varint(message, &tag);
    if (status != GC_OK)
        return status;
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return fail(message, begin, "a field without a number");
    field->number = (uint32_t)(tag >> 3);
    field->type = (enum gc_protobuf_type)(tag & 7);
    field->offset = message->position;
    switch (field->type) {
    case GC_PROTOBUF_VARINT:
        return gc_protobuf_varint(message, &field->value);
    case GC_PROTOBUF_FIXED64:
        field->bytes = 8;
        status = read_fixed(message, field, 8);
        break;
    case GC_PROTOBUF_FIXED32:
        field->bytes = 4;
        status = read_fixed(message, field, 4);
        break;
    case GC_PROTOBUF_BYTES:
        status = gc_protobuf_varint(message, &field->bytes);
        field->offset = message->position;
        if (status == GC_OK && field->bytes > message->end - message->position)
            return gc_reader_fail(message->source->reader, GC_FORMAT, message->source->path,
                                  "byte %llu: a field of %llu bytes, and its message ends at byte "
                                  "%llu: cut short, or no protobuf",
                                  (unsigned long long)begin, (unsigned long long)field->bytes,
                                  (unsigned long long)message->end);
        break;
    default:
        return fail(message, begin, "a field of a type that is not in use");
    }
    message->position = field->offset + field->bytes;
    return status;
}

struct gc_protobuf gc_protobuf_inner(const struct gc_protobuf *message,
                                     const struct gc_protobuf_field *field)
{
    return (struct gc_protobuf){
        .source = message->source,
        .position = field->offset,
        .end = field->offset + field->bytes,
    };
}

bool gc_protobuf_is(const struct gc_protobuf_field *field, uint32_t number,
                    enum gc_protobuf_type type)
{
    return field->number == number && field->type == type;
}

enum gc_status gc_protobuf_text(const struct gc_protobuf *message,
                                const struct gc_protobuf_field *field, const char *what,
                                const char **text)
{
    struct gc_source *source = message->source;
    const unsigned char *view;
    if (field->bytes > TEXT_BYTES_MAX)
        return gc_reader_fail(source->reader, GC_FORMAT, source->path,
                              "byte %llu: %s of %llu bytes; %u are accepted",
                              (unsigned long long)field->offset, what,
                              (unsigned long long)field->bytes, TEXT_BYTES_MAX);
    const enum gc_status status =
        gc_source_view(source, field->offset, (size_t)field->bytes, what, &view);
    if (status != GC_OK)
        return status;
    return gc_reader_text(source->reader, source->path, what, (const char *)view,
                          (size_t)field->bytes, text);
}
