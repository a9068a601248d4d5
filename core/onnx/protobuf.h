/* A pull parser of the protocol buffers wire format over a source: one field per call, payloads
 * skipped. No schema, no memory.
 *
 * Why not a library: the existing ones build the whole message in memory, weights included, and
 * call malloc. This reader needs a few fields and skips the rest. */
#ifndef GC_ONNX_PROTOBUF_H
#define GC_ONNX_PROTOBUF_H

#include "core/reader/source.h"

/* A message, or its unread rest. */
struct gc_protobuf {
    struct gc_source *source;
    uint64_t position;
    uint64_t end;
};

enum gc_protobuf_type {
    GC_PROTOBUF_VARINT = 0,
    GC_PROTOBUF_FIXED64 = 1,
    GC_PROTOBUF_BYTES = 2,
    GC_PROTOBUF_FIXED32 = 5,
};

struct gc_protobuf_field {
    uint32_t number;
    enum gc_protobuf_type type;
    uint64_t value;  /* of VARINT and FIXED */
    uint64_t offset; /* in the file, of the payload */
    uint64_t bytes;  /* of the payload */
};

/* The next field; *more is false at the message's end. GC_FORMAT: the field is malformed or ends
 * beyond the message. */
enum gc_status gc_protobuf_next(struct gc_protobuf *message, struct gc_protobuf_field *field,
                                bool *more) GC_CHECKED;
/* A BYTES field as a message. */
struct gc_protobuf gc_protobuf_inner(const struct gc_protobuf *message,
                                     const struct gc_protobuf_field *field);
/* Is it this field? */
bool gc_protobuf_is(const struct gc_protobuf_field *field, uint32_t number,
                    enum gc_protobuf_type type);
/* The payload as a text in the region. GC_FORMAT: longer than 64 KiB, or not a text; `what` names
 * it. */
enum gc_status gc_protobuf_text(const struct gc_protobuf *message,
                                const struct gc_protobuf_field *field, const char *what,
                                const char **text) GC_CHECKED;
/* Reads the next varint of a packed field, given as a message (gc_protobuf_inner). */
enum gc_status gc_protobuf_varint(struct gc_protobuf *payload, uint64_t *value) GC_CHECKED;

#endif
