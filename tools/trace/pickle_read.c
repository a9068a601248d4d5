#include "tools/trace/pickle_read.h"

#include "core/io/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum gc_status pickle_refuse(struct pickle_reader *reader, const char *format, ...)
{
    va_list arguments;
    reader->error->offset = reader->op_at;
    va_start(arguments, format);
    vsnprintf(reader->error->text, sizeof(reader->error->text), format, arguments);
    va_end(arguments);
    return GC_FORMAT;
}

/* ---- arguments in the file ---- */

static enum gc_status read_bytes(struct pickle_reader *reader, uint64_t count, const void **bytes)
{
    if (count > reader->bytes - reader->at)
        return pickle_refuse(reader, "the file ends too early");
    *bytes = reader->data + reader->at;
    reader->at += (size_t)count;
    return GC_OK;
}

/* Little-endian, of 1 to 8 bytes. */
enum gc_status pickle_read_number(struct pickle_reader *reader, unsigned width, uint64_t *value)
{
    const void *bytes = NULL;
    const enum gc_status status = read_bytes(reader, width, &bytes);
    *value = 0;
    if (status != GC_OK || bytes == NULL)
        return status;
    for (unsigned i = 0; i < width; i++)
        *value |= (uint64_t)((const unsigned char *)bytes)[i] << (8 * i);
    return status;
}

/* Up to the end of the line, which is skipped. */
enum gc_status pickle_read_line(struct pickle_reader *reader, const char **line, size_t *length)
{
    const void *begin = reader->data + reader->at;
    const unsigned char *end = memchr(begin, '\n', reader->bytes - reader->at);
    if (end == NULL)
        return pickle_refuse(reader, "the file ends too early");
    *line = begin;
    *length = (size_t)(end - (reader->data + reader->at));
    reader->at += *length + 1;
    return GC_OK;
}

/* ---- values ---- */

enum gc_status pickle_push_int(struct pickle_reader *reader, enum pickle_kind kind, int64_t value)
{
    const struct pickle_value pushed = {.kind = (uint8_t)kind, .integer = value};
    return pickle_push(&reader->machine, &pushed);
}

/* The decimal lines of protocol 0: "-12", with an L behind it for a long; 00 and 01 are booleans.
 */
enum gc_status pickle_push_decimal(struct pickle_reader *reader, bool may_be_bool)
{
    const char *line = NULL;
    size_t length = 0;
    uint64_t value;
    enum gc_status status = pickle_read_line(reader, &line, &length);
    if (status != GC_OK)
        return status;
    if (may_be_bool && length == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return pickle_push_int(reader, PICKLE_BOOL, line[1] - '0');
    if (length > 0 && line[length - 1] == 'L')
        length--;
    const bool negative = length > 0 && line[0] == '-';
    line += negative;
    length -= negative;
    if (length == 0 || strspn(line, "0123456789") < length)
        return pickle_refuse(reader, "a malformed integer");
    if (!gc_text_uint(line, length, &value) || value > INT64_MAX)
        return pickle_push_int(reader, PICKLE_BIG, 0);
    return pickle_push_int(reader, PICKLE_INT, negative ? -(int64_t)value : (int64_t)value);
}

/* A long of `length` bytes, two's complement. */
enum gc_status pickle_push_long(struct pickle_reader *reader, uint64_t length)
{
    const void *bytes = NULL;
    uint64_t value = 0;
    const enum gc_status status = read_bytes(reader, length, &bytes);
    if (status != GC_OK)
        return status;
    if (length > 8)
        return pickle_push_int(reader, PICKLE_BIG, 0);
    if (bytes == NULL)
        length = 0;
    for (unsigned i = 0; i < length; i++)
        value |= (uint64_t)((const unsigned char *)bytes)[i] << (8 * i);
    if (length > 0 && length < 8 && (value >> (8 * length - 1) & 1) != 0)
        value |= UINT64_MAX << (8 * length);
    return pickle_push_int(reader, PICKLE_INT, (int64_t)value);
}

static enum gc_status push_real(struct pickle_reader *reader, double real)
{
    const struct pickle_value pushed = {.kind = PICKLE_FLOAT, .real = real};
    return pickle_push(&reader->machine, &pushed);
}

enum gc_status pickle_push_float(struct pickle_reader *reader)
{
    uint64_t bits;
    double real;
    const enum gc_status status = pickle_read_number(reader, 8, &bits);
    if (status != GC_OK)
        return status;
    bits = __builtin_bswap64(bits);
    memcpy(&real, &bits, sizeof(real));
    return push_real(reader, real);
}

/* Floats decide nothing in what is read here: of a text one only the place is kept. */
enum gc_status pickle_push_text_float(struct pickle_reader *reader)
{
    const char *line = NULL;
    size_t length = 0;
    const enum gc_status status = pickle_read_line(reader, &line, &length);
    return status == GC_OK ? push_real(reader, 0.0) : status;
}

static enum gc_status push_bytes(struct pickle_reader *reader, enum pickle_kind kind,
                                 const void *bytes, uint64_t length)
{
    if (length > UINT32_MAX)
        return pickle_refuse(reader, "text of more than 4 GiB");
    const struct pickle_value pushed = {
        .kind = (uint8_t)kind, .length = (uint32_t)length, .text = bytes};
    return pickle_push(&reader->machine, &pushed);
}

/* Text or bytes behind a length of `width` bytes. */
enum gc_status pickle_push_counted(struct pickle_reader *reader, enum pickle_kind kind,
                                   unsigned width)
{
    uint64_t length = 0;
    const void *bytes = NULL;
    enum gc_status status = pickle_read_number(reader, width, &length);
    if (status == GC_OK)
        status = read_bytes(reader, length, &bytes);
    return status == GC_OK ? push_bytes(reader, kind, bytes, length) : status;
}

enum gc_status pickle_push_line(struct pickle_reader *reader, bool is_quoted)
{
    const char *line = NULL;
    size_t length = 0;
    const enum gc_status status = pickle_read_line(reader, &line, &length);
    if (status != GC_OK)
        return status;
    if (is_quoted) {
        if (length < 2 || line[0] != line[length - 1] || (line[0] != '\'' && line[0] != '"'))
            return pickle_refuse(reader, "a malformed string");
        line++;
        length -= 2;
    }
    return push_bytes(reader, PICKLE_TEXT, line, length);
}
