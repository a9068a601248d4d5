#include "tools/trace/pickle.h"

#include "core/io/text.h"
#include "tools/trace/pickle_ops.h"
#include "tools/trace/pickle_read.h"

#include <stdlib.h>
#include <string.h>

#define PROTOCOL_MAX 4

/* Opcodes that are not read, by name: for the message. */
static const struct {
    unsigned char op;
    const char *name;
} refused[] = {
#define READ(name, code)
#define REFUSED(name, code) {code, #name},
#include "tools/trace/pickle_ops.def"
#undef READ
#undef REFUSED
};

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

/* Puts values into the list or dictionary on top. */
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
    const enum gc_status status = pickle_read_line(reader, &line, &length);
    if (status != GC_OK)
        return status;
    return gc_text_uint(line, length, number) ? GC_OK
                                              : pickle_refuse(reader, "a malformed memo number");
}

/* `width` 0: a line of text. A file of n bytes has no need of more than n numbers. */
static enum gc_status memo_put(struct pickle_reader *reader, unsigned width)
{
    uint64_t number;
    const enum gc_status status =
        width > 0 ? pickle_read_number(reader, width, &number) : read_memo_line(reader, &number);
    return status == GC_OK ? pickle_put(&reader->machine, number, reader->bytes) : status;
}

static enum gc_status memo_get(struct pickle_reader *reader, unsigned width)
{
    uint64_t number;
    const enum gc_status status =
        width > 0 ? pickle_read_number(reader, width, &number) : read_memo_line(reader, &number);
    return status == GC_OK ? pickle_get(&reader->machine, number) : status;
}

/* ---- opcodes ---- */

static enum gc_status refuse_op(struct pickle_reader *reader, unsigned char op)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (refused[i].op == op)
            return pickle_refuse(reader,
                                 "opcode %s: only plain data is read, and nothing is executed",
                                 refused[i].name);
    }
    return pickle_refuse(reader, "unknown opcode 0x%02x", op);
}

static enum gc_status begin_frame(struct pickle_reader *reader)
{
    uint64_t length = 0;
    const enum gc_status status = pickle_read_number(reader, 8, &length);
    if (status != GC_OK)
        return status;
    return length <= reader->bytes - reader->at
               ? GC_OK
               : pickle_refuse(reader, "a frame beyond the file's end");
}

static enum gc_status check_protocol(struct pickle_reader *reader)
{
    uint64_t protocol;
    const enum gc_status status = pickle_read_number(reader, 1, &protocol);
    if (status != GC_OK || protocol <= PROTOCOL_MAX)
        return status;
    return pickle_refuse(reader, "pickle protocol %u; accepted: 4 and lower", (unsigned)protocol);
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
    case OP_POP: /* a mark is popped as anything else is */
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
        return pickle_push_line(reader, true);
    case OP_UNICODE:
        return pickle_push_line(reader, false);
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINUNICODE:
        return pickle_push_counted(reader, PICKLE_TEXT, 1);
    case OP_BINSTRING:
    case OP_BINUNICODE:
        return pickle_push_counted(reader, PICKLE_TEXT, 4);
    case OP_BINUNICODE8:
        return pickle_push_counted(reader, PICKLE_TEXT, 8);
    case OP_SHORT_BINBYTES:
        return pickle_push_counted(reader, PICKLE_BYTES, 1);
    case OP_BINBYTES:
        return pickle_push_counted(reader, PICKLE_BYTES, 4);
    case OP_BINBYTES8:
        return pickle_push_counted(reader, PICKLE_BYTES, 8);
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
        return pickle_push_int(reader, PICKLE_NONE, 0);
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        return pickle_push_int(reader, PICKLE_BOOL, op == OP_NEWTRUE);
    case OP_INT:
        return pickle_push_decimal(reader, true);
    case OP_LONG:
        return pickle_push_decimal(reader, false);
    case OP_BININT:
        status = pickle_read_number(reader, 4, &number);
        return status == GC_OK ? pickle_push_int(reader, PICKLE_INT, (int32_t)(uint32_t)number)
                               : status;
    case OP_BININT1:
    case OP_BININT2:
        status = pickle_read_number(reader, op == OP_BININT1 ? 1 : 2, &number);
        return status == GC_OK ? pickle_push_int(reader, PICKLE_INT, (int64_t)number) : status;
    case OP_LONG1:
    case OP_LONG4:
        status = pickle_read_number(reader, op == OP_LONG1 ? 1 : 4, &number);
        return status == GC_OK ? pickle_push_long(reader, number) : status;
    case OP_FLOAT:
        return pickle_push_text_float(reader);
    case OP_BINFLOAT:
        return pickle_push_float(reader);
    default:
        return run_text_op(reader, op);
    }
}

static enum gc_status run(struct pickle_reader *reader)
{
    for (;;) {
        reader->op_at = reader->at;
        if (reader->at == reader->bytes)
            return pickle_refuse(reader, "the file ends too early");
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
        status = pickle_refuse(&reader, "malformed, or larger than its file allows");
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

/* ---- what was read ---- */

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
