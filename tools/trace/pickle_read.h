/* The arguments of a pickle's opcodes: read from the file, within its bounds, and pushed. All
 * return GC_FORMAT, having said why, where the file ends too early or an argument is malformed. */
#ifndef GC_PICKLE_READ_H
#define GC_PICKLE_READ_H

#include "tools/trace/pickle_stack.h"

struct pickle_reader {
    const unsigned char *data;
    size_t bytes;
    size_t at;
    size_t op_at; /* of the opcode under way */
    struct pickle_machine machine;
    struct pickle_error *error;
};

/* Says what is wrong with the opcode under way; returns GC_FORMAT. */
enum gc_status pickle_refuse(struct pickle_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3))) GC_CHECKED;
/* Little-endian, of 1 to 8 bytes. */
enum gc_status pickle_read_number(struct pickle_reader *reader, unsigned width,
                                  uint64_t *value) GC_CHECKED;
/* Up to the end of the line, which is skipped. */
enum gc_status pickle_read_line(struct pickle_reader *reader, const char **line,
                                size_t *length) GC_CHECKED;

enum gc_status pickle_push_int(struct pickle_reader *reader, enum pickle_kind kind,
                               int64_t value) GC_CHECKED;
enum gc_status pickle_push_decimal(struct pickle_reader *reader, bool may_be_bool) GC_CHECKED;
enum gc_status pickle_push_long(struct pickle_reader *reader, uint64_t length) GC_CHECKED;
enum gc_status pickle_push_float(struct pickle_reader *reader) GC_CHECKED;
enum gc_status pickle_push_text_float(struct pickle_reader *reader) GC_CHECKED;
/* Text or bytes behind a length of `width` bytes. */
enum gc_status pickle_push_counted(struct pickle_reader *reader, enum pickle_kind kind,
                                   unsigned width) GC_CHECKED;
/* Text up to the end of the line. */
enum gc_status pickle_push_line(struct pickle_reader *reader, bool is_quoted) GC_CHECKED;

#endif
