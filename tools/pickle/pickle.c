#include "tools/pickle/pickle.h"

#include "core/io/text.h"
#include "tools/pickle/pickle_stack.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOCOL_MAX 4

/* Names of the refused opcodes, for the message. */
static const struct {
    unsigned char op;
    const char *name;
} refused[] = {
#define READ(name, code)
#define REFUSED(name, code) {code, #name},
#include "tools/pickle/pickle_ops.def"
#undef READ
#undef REFUSED
};

struct pickle_reader {
    const unsigned char *data;
    size_t bytes;
    size_t at;
    size_t op_at; /* of the current opcode */
    struct pickle_machine machine;
    struct pickle_error *error;
};

/* Writes the error of the current opcode; returns GC_FORMAT. */
__attribute__((format(printf, 2, 3))) static enum gc_status refuse(struct pickle_reader *reader,
                                                                   const char *format, ...)
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
        return refuse(reader, "the file ends too early");
    *bytes = reader->data + reader->at;
    reader->at += (size_t)count;
    return GC_OK;
}

/* Little-endian, of 1 to 8 bytes. */
static enum gc_status read_number(struct pickle_reader *reader, unsigned width, uint64_t *value)
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

/* Reads a line, and skips the end of the line. */
static enum gc_status read_line(struct pickle_reader *reader, const char **line, size_t *length)
{
    const void *begin = reader->data + reader->at;
    const unsigned char *end = memchr(begin, '\n', reader->bytes - reader->at);
    if (end == NULL)
        return refuse(reader, "the file ends too early");
    *line = begin;
    *length = (size_t)(end - (reader->data + reader->at));
    reader->at += *length + 1;
    return GC_OK;
}

/* ---- values ---- */

static enum gc_status push_int(struct pickle_reader *reader, enum pickle_kind kind, int64_t value)
{
    const struct pickle_value pushed = {.kind = (uint8_t)kind, .integer = value};
    return pickle_push(&reader->machine, &pushed);
}

/* Decimal lines of protocol 0: "-12", with a final L for a long; 00 and 01 are booleans. */
static enum gc_status push_decimal(struct pickle_reader *reader, bool may_be_bool)
{
    const char *line = NULL;
    size_t length = 0;
    uint64_t value;
    enum gc_status status = read_line(reader, &line, &length);
    if (status != GC_OK)
        return status;
    if (may_be_bool && length == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return push_int(reader, PICKLE_BOOL, line[1] - '0');
    if (length > 0 && line[length - 1] == 'L')
        length--;
    const bool negative = length > 0 && line[0] == '-';
    line += negative;
    length -= negative;
    if (length == 0 || strspn(line, "0123456789") < length)
        return refuse(reader, "a malformed integer");
    if (!gc_text_uint(line, length, &value) || value > INT64_MAX)
        return push_int(reader, PICKLE_BIG, 0);
    return push_int(reader, PICKLE_INT, negative ? -(int64_t)value : (int64_t)value);
}

/* A long of `length` bytes, two's complement. */
static enum gc_status push_long(struct pickle_reader *reader, uint64_t length)
{
    const void *bytes = NULL;
    uint64_t value = 0;
    const enum gc_status status = read_bytes(reader, length, &bytes);
    if (status != GC_OK)
        return status;
    if (length > 8)
        return push_int(reader, PICKLE_BIG, 0);
    if (bytes == NULL)
        length = 0;
    for (unsigned i = 0; i < length; i++)
        value |= (uint64_t)((const unsigned char *)bytes)[i] << (8 * i);
    if (length > 0 && length < 8 && (value >> (8 * length - 1) & 1) != 0)
        value |= UINT64_MAX << (8 * length);
    return push_int(reader, PICKLE_INT, (int64_t)value);
}

static enum gc_status push_real(struct pickle_reader *reader, double real)
{
    const struct pickle_value pushed = {.kind = PICKLE_FLOAT, .real = real};
    return pickle_push(&reader->machine, &pushed);
}

static enum gc_status push_float(struct pickle_reader *reader)
{
    uint64_t bits;
    double real;
    const enum gc_status status = read_number(reader, 8, &bits);
    if (status != GC_OK)
        return status;
    bits = __builtin_bswap64(bits);
    memcpy(&real, &bits, sizeof(real));
    return push_real(reader, real);
}

/* No reader uses floats: of a float in text only the position is kept. */
static enum gc_status push_text_float(struct pickle_reader *reader)
{
    const char *line = NULL;
    size_t length = 0;
    const enum gc_status status = read_line(reader, &line, &length);
    return status == GC_OK ? push_real(reader, 0.0) : status;
}

static enum gc_status push_bytes(struct pickle_reader *reader, enum pickle_kind kind,
                                 const void *bytes, uint64_t length)
{
    if (length > UINT32_MAX)
        return refuse(reader, "text of more than 4 GiB");
    const struct pickle_value pushed = {
        .kind = (uint8_t)kind, .length = (uint32_t)length, .text = bytes};
    return pickle_push(&reader->machine, &pushed);
}

/* Text or bytes after a length of `width` bytes. */
static enum gc_status push_counted(struct pickle_reader *reader, enum pickle_kind kind,
                                   unsigned width)
{
    uint64_t length = 0;
    const void *bytes = NULL;
    enum gc_status status = read_number(reader, width, &length);
    if (status == GC_OK)
        status = read_bytes(reader, length, &bytes);
    return status == GC_OK ? push_bytes(reader, kind, bytes, length) : status;
}

static enum gc_status push_line(struct pickle_reader *reader, bool is_quoted)
{
    const char *line = NULL;
    size_t length = 0;
    const enum gc_status status = read_line(reader, &line, &length);
    if (status != GC_OK)
        return status;
    if (is_quoted) {
        if (length < 2 || line[0] != line[length - 1] || (line[0] != '\'' && line[0] != '"'))
            return refuse(reader, "a malformed string");
        line++;
        length -= 2;
    }
    return push_bytes(reader, PICKLE_TEXT, line, length);
}

/* ---- containers ---- */

static enum gc_status make_from_mark(struct pickle_reader *reader, enum pickle_kind kind)
{
    const struct pickle_value *values;
    size_t count;
    const enum gc_status status = pickle_pop_mark(&reader->machine, &values, &count);
    if (status != GC_OK || (kind == PICKLE_DICT && count % 2 != 0))
        return GC_FORMAT;
    return pickle_make(&reader->machine, kind, values, count);
}

static enum gc_status make_tuple(struct pickle_reader *reader, size_t count)
{
    struct pickle_value values[3];
    if (pickle_height(&reader->machine) < count)
        return GC_FORMAT;
    for (size_t i = count; i-- > 0;) {
        const enum gc_status status = pickle_pop(&reader->machine, &values[i]);
        if (status != GC_OK)
            return status;
    }
    return pickle_make(&reader->machine, PICKLE_TUPLE, values, count);
}

/* Appends values to the list or dictionary on top. */
static enum gc_status add(struct pickle_reader *reader, enum pickle_kind kind,
                          const struct pickle_value *values, size_t count)
{
    struct pickle_value *top = pickle_top(&reader->machine);
    if (top == NULL || top->kind != kind)
        return GC_FORMAT;
    return pickle_append(&reader->machine, top->items, values, count);
}

static enum gc_status add_from_mark(struct pickle_reader *reader, enum pickle_kind kind)
{
    const struct pickle_value *values;
    size_t count;
    const enum gc_status status = pickle_pop_mark(&reader->machine, &values, &count);
    if (status != GC_OK || (kind == PICKLE_DICT && count % 2 != 0))
        return GC_FORMAT;
    return add(reader, kind, values, count);
}

/* The topmost `count` values: one for a list, a key and a value for a dictionary. */
static enum gc_status add_top(struct pickle_reader *reader, enum pickle_kind kind, size_t count)
{
    struct pickle_value values[2];
    for (size_t i = count; i-- > 0;) {
        const enum gc_status status = pickle_pop(&reader->machine, &values[i]);
        if (status != GC_OK)
            return status;
    }
    return add(reader, kind, values, count);
}

/* ---- the memo ---- */

static enum gc_status read_memo_line(struct pickle_reader *reader, uint64_t *number)
{
    const char *line = NULL;
    size_t length = 0;
    const enum gc_status status = read_line(reader, &line, &length);
    if (status != GC_OK)
        return status;
    return gc_text_uint(line, length, number) ? GC_OK : refuse(reader, "a malformed memo number");
}

/* `width` 0: a line of text. A file of n bytes needs at most n memo numbers. */
static enum gc_status memo_put(struct pickle_reader *reader, unsigned width)
{
    uint64_t number;
    const enum gc_status status =
        width > 0 ? read_number(reader, width, &number) : read_memo_line(reader, &number);
    return status == GC_OK ? pickle_put(&reader->machine, number, reader->bytes) : status;
}

static enum gc_status memo_get(struct pickle_reader *reader, unsigned width)
{
    uint64_t number;
    const enum gc_status status =
        width > 0 ? read_number(reader, width, &number) : read_memo_line(reader, &number);
    return status == GC_OK ? pickle_get(&reader->machine, number) : status;
}

/* ---- opcodes ---- */

static enum gc_status refuse_op(struct pickle_reader *reader, unsigned char op)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (refused[i].op == op)
            return refuse(reader, "opcode %s: only plain data is read, and nothing is executed",
                          refused[i].name);
    }
    return refuse(reader, "unknown opcode 0x%02x", op);
}

static enum gc_status begin_frame(struct pickle_reader *reader)
{
    uint64_t length = 0;
    const enum gc_status status = read_number(reader, 8, &length);
    if (status != GC_OK)
        return status;
    return length <= reader->bytes - reader->at ? GC_OK
                                                : refuse(reader, "a frame beyond the file's end");
}

static enum gc_status check_protocol(struct pickle_reader *reader)
{
    uint64_t protocol;
    const enum gc_status status = read_number(reader, 1, &protocol);
    if (status != GC_OK || protocol <= PROTOCOL_MAX)
        return status;
    return refuse(reader, "pickle protocol %u; accepted: 4 and lower", (unsigned)protocol);
}

static enum gc_status run_stack_op(struct pickle_reader *reader, unsigned char op)
{
    struct pickle_machine *machine = &reader->machine;
    struct pickle_value value;
    const struct pickle_value *values;
    size_t count;
    switch (op) {
    case OP_PROTO:
        return check_protocol(reader);
    case OP_FRAME:
        return begin_frame(reader);
    case OP_MARK:
        return pickle_mark(machine);
    case OP_POP: /* a mark is popped like a value */
        return pickle_height(machine) > 0 ? pickle_pop(machine, &value)
                                          : pickle_pop_mark(machine, &values, &count);
    case OP_POP_MARK:
        return pickle_pop_mark(machine, &values, &count);
    case OP_DUP:
        return pickle_top(machine) != NULL ? pickle_push(machine, pickle_top(machine)) : GC_FORMAT;
    case OP_PUT:
        return memo_put(reader, 0);
    case OP_BINPUT:
        return memo_put(reader, 1);
    case OP_LONG_BINPUT:
        return memo_put(reader, 4);
    case OP_MEMOIZE:
        return pickle_put(machine, machine->memo_count, reader->bytes);
    case OP_GET:
        return memo_get(reader, 0);
    case OP_BINGET:
        return memo_get(reader, 1);
    case OP_LONG_BINGET:
        return memo_get(reader, 4);
    default:
        return refuse_op(reader, op);
    }
}

static enum gc_status run_container_op(struct pickle_reader *reader, unsigned char op)
{
    switch (op) {
    case OP_EMPTY_LIST:
        return pickle_make(&reader->machine, PICKLE_LIST, NULL, 0);
    case OP_LIST:
        return make_from_mark(reader, PICKLE_LIST);
    case OP_APPEND:
        return add_top(reader, PICKLE_LIST, 1);
    case OP_APPENDS:
        return add_from_mark(reader, PICKLE_LIST);
    case OP_EMPTY_TUPLE:
        return make_tuple(reader, 0);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        return make_tuple(reader, (size_t)op - OP_TUPLE1 + 1);
    case OP_TUPLE:
        return make_from_mark(reader, PICKLE_TUPLE);
    case OP_EMPTY_DICT:
        return pickle_make(&reader->machine, PICKLE_DICT, NULL, 0);
    case OP_DICT:
        return make_from_mark(reader, PICKLE_DICT);
    case OP_SETITEM:
        return add_top(reader, PICKLE_DICT, 2);
    case OP_SETITEMS:
        return add_from_mark(reader, PICKLE_DICT);
    default:
        return run_stack_op(reader, op);
    }
}

static enum gc_status run_text_op(struct pickle_reader *reader, unsigned char op)
{
    switch (op) {
    case OP_STRING:
        return push_line(reader, true);
    case OP_UNICODE:
        return push_line(reader, false);
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINUNICODE:
        return push_counted(reader, PICKLE_TEXT, 1);
    case OP_BINSTRING:
    case OP_BINUNICODE:
        return push_counted(reader, PICKLE_TEXT, 4);
    case OP_BINUNICODE8:
        return push_counted(reader, PICKLE_TEXT, 8);
    case OP_SHORT_BINBYTES:
        return push_counted(reader, PICKLE_BYTES, 1);
    case OP_BINBYTES:
        return push_counted(reader, PICKLE_BYTES, 4);
    case OP_BINBYTES8:
        return push_counted(reader, PICKLE_BYTES, 8);
    default:
        return run_container_op(reader, op);
    }
}

static enum gc_status run_op(struct pickle_reader *reader, unsigned char op)
{
    uint64_t number = 0;
    enum gc_status status;
    switch (op) {
    case OP_NONE:
        return push_int(reader, PICKLE_NONE, 0);
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        return push_int(reader, PICKLE_BOOL, op == OP_NEWTRUE);
    case OP_INT:
        return push_decimal(reader, true);
    case OP_LONG:
        return push_decimal(reader, false);
    case OP_BININT:
        status = read_number(reader, 4, &number);
        return status == GC_OK ? push_int(reader, PICKLE_INT, (int32_t)(uint32_t)number) : status;
    case OP_BININT1:
    case OP_BININT2:
        status = read_number(reader, op == OP_BININT1 ? 1 : 2, &number);
        return status == GC_OK ? push_int(reader, PICKLE_INT, (int64_t)number) : status;
    case OP_LONG1:
    case OP_LONG4:
        status = read_number(reader, op == OP_LONG1 ? 1 : 4, &number);
        return status == GC_OK ? push_long(reader, number) : status;
    case OP_FLOAT:
        return push_text_float(reader);
    case OP_BINFLOAT:
        return push_float(reader);
    default:
        return run_text_op(reader, op);
    }
}

static enum gc_status run(struct pickle_reader *reader)
{
    for (;;) {
        reader->op_at = reader->at;
        if (reader->at == reader->bytes)
            return refuse(reader, "the file ends too early");
        const unsigned char op = reader->data[reader->at++];
        if (op == OP_STOP)
            return pickle_pop(&reader->machine, &reader->machine.pickle->root);
        const enum gc_status status = run_op(reader, op);
        if (status != GC_OK)
            return status;
    }
}

enum gc_status pickle_load(const void *data, size_t bytes, struct pickle *pickle,
                           struct pickle_error *error)
{
    struct pickle_reader reader = {.data = data, .bytes = bytes, .error = error};
    *pickle = (struct pickle){.all = NULL};
    *error = (struct pickle_error){.offset = 0};
    pickle_machine_init(&reader.machine, pickle, bytes);
    enum gc_status status = run(&reader);
    if (status == GC_FORMAT && error->text[0] == '\0')
        status = refuse(&reader, "malformed, or larger than its file allows");
    pickle_machine_fini(&reader.machine);
    return status;
}

void pickle_fini(struct pickle *pickle)
{
    while (pickle->all != NULL) {
        struct pickle_items *items = pickle->all;
        pickle->all = items->next_of_all;
        free(items->values);
        free(items);
    }
}

/* ---- access ---- */

bool pickle_is_text(const struct pickle_value *value, const char *text)
{
    return value->kind == PICKLE_TEXT && value->length == strlen(text) &&
           memcmp(value->text, text, value->length) == 0;
}

const struct pickle_value *pickle_find(const struct pickle_value *dict, const char *key)
{
    if (dict->kind != PICKLE_DICT)
        return NULL;
    for (size_t i = dict->items->count; i >= 2; i -= 2) {
        if (pickle_is_text(&dict->items->values[i - 2], key))
            return &dict->items->values[i - 1];
    }
    return NULL;
}
