#include "tools/pickle.h"

#include "core/text.h"
#include "tools/pickle_read.h"

#include <stdlib.h>
#include <string.h>

#define PROTOCOL_MAX 4

/* Opcodes of Python's pickletools that plain data needs. */
enum op {
    MARK = '(',
    STOP = '.',
    POP = '0',
    POP_MARK = '1',
    DUP = '2',
    NONE = 'N',
    INT = 'I',
    LONG = 'L',
    FLOAT = 'F',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    LONG1 = 0x8a,
    LONG4 = 0x8b,
    BINFLOAT = 'G',
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    STRING = 'S',
    BINSTRING = 'T',
    SHORT_BINSTRING = 'U',
    UNICODE = 'V',
    BINUNICODE = 'X',
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE8 = 0x8d,
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    BINBYTES8 = 0x8e,
    EMPTY_LIST = ']',
    APPEND = 'a',
    APPENDS = 'e',
    LIST = 'l',
    EMPTY_TUPLE = ')',
    TUPLE = 't',
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    EMPTY_DICT = '}',
    DICT = 'd',
    SETITEM = 's',
    SETITEMS = 'u',
    PUT = 'p',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    MEMOIZE = 0x94,
    GET = 'g',
    BINGET = 'h',
    LONG_BINGET = 'j',
    PROTO = 0x80,
    FRAME = 0x95,
};

/* And those it does not, by name: for the message. */
static const struct {
    unsigned char op;
    const char *name;
} refused[] = {
    {'c', "GLOBAL"},
    {'R', "REDUCE"},
    {'b', "BUILD"},
    {'i', "INST"},
    {'o', "OBJ"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x92, "NEWOBJ_EX"},
    {0x8f, "EMPTY_SET"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {0x93, "STACK_GLOBAL"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
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
    case PROTO:
        return check_protocol(reader);
    case FRAME:
        return begin_frame(reader);
    case MARK:
        return pickle_mark(machine);
    case POP: /* a mark is popped as anything else is */
        return pickle_height(machine) > 0 ? pickle_pop(machine, &value)
                                          : pickle_pop_mark(machine, &values, &count);
    case POP_MARK:
        return pickle_pop_mark(machine, &values, &count);
    case DUP:
        return pickle_top(machine) != NULL ? pickle_push(machine, pickle_top(machine)) : GC_FORMAT;
    case PUT:
        return memo_put(reader, 0);
    case BINPUT:
        return memo_put(reader, 1);
    case LONG_BINPUT:
        return memo_put(reader, 4);
    case MEMOIZE:
        return pickle_put(machine, machine->memo_count, reader->bytes);
    case GET:
        return memo_get(reader, 0);
    case BINGET:
        return memo_get(reader, 1);
    case LONG_BINGET:
        return memo_get(reader, 4);
    default:
        return refuse_op(reader, op);
    }
}

static enum gc_status run_container_op(struct pickle_reader *reader, unsigned char op)
{
    switch (op) {
    case EMPTY_LIST:
        return pickle_make(&reader->machine, PICKLE_LIST, NULL, 0);
    case LIST:
        return make_from_mark(reader, PICKLE_LIST);
    case APPEND:
        return add_top(reader, PICKLE_LIST, 1);
    case APPENDS:
        return add_from_mark(reader, PICKLE_LIST);
    case EMPTY_TUPLE:
        return make_tuple(reader, 0);
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
        return make_tuple(reader, (size_t)op - TUPLE1 + 1);
    case TUPLE:
        return make_from_mark(reader, PICKLE_TUPLE);
    case EMPTY_DICT:
        return pickle_make(&reader->machine, PICKLE_DICT, NULL, 0);
    case DICT:
        return make_from_mark(reader, PICKLE_DICT);
    case SETITEM:
        return add_top(reader, PICKLE_DICT, 2);
    case SETITEMS:
        return add_from_mark(reader, PICKLE_DICT);
    default:
        return run_stack_op(reader, op);
    }
}

static enum gc_status run_text_op(struct pickle_reader *reader, unsigned char op)
{
    switch (op) {
    case STRING:
        return pickle_push_line(reader, true);
    case UNICODE:
        return pickle_push_line(reader, false);
    case SHORT_BINSTRING:
    case SHORT_BINUNICODE:
        return pickle_push_counted(reader, PICKLE_TEXT, 1);
    case BINSTRING:
    case BINUNICODE:
        return pickle_push_counted(reader, PICKLE_TEXT, 4);
    case BINUNICODE8:
        return pickle_push_counted(reader, PICKLE_TEXT, 8);
    case SHORT_BINBYTES:
        return pickle_push_counted(reader, PICKLE_BYTES, 1);
    case BINBYTES:
        return pickle_push_counted(reader, PICKLE_BYTES, 4);
    case BINBYTES8:
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
    case NONE:
        return pickle_push_int(reader, PICKLE_NONE, 0);
    case NEWTRUE:
    case NEWFALSE:
        return pickle_push_int(reader, PICKLE_BOOL, op == NEWTRUE);
    case INT:
        return pickle_push_decimal(reader, true);
    case LONG:
        return pickle_push_decimal(reader, false);
    case BININT:
        status = pickle_read_number(reader, 4, &number);
        return status == GC_OK ? pickle_push_int(reader, PICKLE_INT, (int32_t)(uint32_t)number)
                               : status;
    case BININT1:
    case BININT2:
        status = pickle_read_number(reader, op == BININT1 ? 1 : 2, &number);
        return status == GC_OK ? pickle_push_int(reader, PICKLE_INT, (int64_t)number) : status;
    case LONG1:
    case LONG4:
        status = pickle_read_number(reader, op == LONG1 ? 1 : 4, &number);
        return status == GC_OK ? pickle_push_long(reader, number) : status;
    case FLOAT:
        return pickle_push_text_float(reader);
    case BINFLOAT:
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
        if (op == STOP)
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
