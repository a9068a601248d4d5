#include "tools/pickle/pickle_write.h"

#include "tools/pickle/pickle.h"

#include <string.h>

#define PROTOCOL 2

static void write_op(struct pickle_writer *writer, enum pickle_op op)
{
    gc_writer_char(writer->out, (char)op);
}

/* Little-endian, as all numbers of a pickle. */
static void write_bytes(struct pickle_writer *writer, uint64_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        gc_writer_char(writer->out, (char)(value >> 8 * i & 0xff));
}

void pickle_begin(struct pickle_writer *writer, struct gc_writer *out)
{
    *writer = (struct pickle_writer){.out = out};
    write_op(writer, OP_PROTO);
    write_bytes(writer, PROTOCOL, 1);
}

void pickle_end(struct pickle_writer *writer)
{
    write_op(writer, OP_STOP);
}

/* Two's complement in the fewest bytes that include the sign. */
static void write_long(struct pickle_writer *writer, uint64_t value)
{
    unsigned count = 8;
    while (count > 1 && value >> (8 * count - 9) == 0)
        count--;
    const bool needs_sign = count == 8 && value >> 63 != 0;
    write_op(writer, OP_LONG1);
    write_bytes(writer, count + needs_sign, 1);
    write_bytes(writer, value, count);
    if (needs_sign)
        gc_writer_char(writer->out, '\0');
}

void pickle_put_int(struct pickle_writer *writer, uint64_t value)
{
    if (value <= UINT8_MAX) {
        write_op(writer, OP_BININT1);
        write_bytes(writer, value, 1);
    } else if (value <= UINT16_MAX) {
        write_op(writer, OP_BININT2);
        write_bytes(writer, value, 2);
    } else if (value <= INT32_MAX) {
        write_op(writer, OP_BININT);
        write_bytes(writer, value, 4);
    } else {
        write_long(writer, value);
    }
}

void pickle_put_bool(struct pickle_writer *writer, bool value)
{
    write_op(writer, value ? OP_NEWTRUE : OP_NEWFALSE);
}

/* Untrusted text: bytes that are not printable ASCII become '?', so that the text is UTF-8. */
void pickle_put_text(struct pickle_writer *writer, const char *text)
{
    const size_t length = strlen(text);
    write_op(writer, OP_BINUNICODE);
    write_bytes(writer, length, 4);
    for (size_t i = 0; i < length; i++)
        gc_writer_char(writer->out, text[i] >= ' ' && text[i] < 127 ? text[i] : '?');
}

bool pickle_recall(struct pickle_writer *writer, unsigned number)
{
    if (number >= PICKLE_MEMO_MAX || !writer->is_kept[number])
        return false;
    write_op(writer, OP_LONG_BINGET);
    write_bytes(writer, number, 4);
    return true;
}

void pickle_keep(struct pickle_writer *writer, unsigned number)
{
    if (number >= PICKLE_MEMO_MAX)
        return;
    writer->is_kept[number] = true;
    write_op(writer, OP_LONG_BINPUT);
    write_bytes(writer, number, 4);
}

void pickle_put_word(struct pickle_writer *writer, unsigned number, const char *text)
{
    if (pickle_recall(writer, number))
        return;
    pickle_put_text(writer, text);
    pickle_keep(writer, number);
}

void pickle_begin_dict(struct pickle_writer *writer)
{
    write_op(writer, OP_EMPTY_DICT);
    write_op(writer, OP_MARK);
}

void pickle_end_dict(struct pickle_writer *writer)
{
    write_op(writer, OP_SETITEMS);
}

void pickle_begin_list(struct pickle_writer *writer)
{
    write_op(writer, OP_EMPTY_LIST);
    write_op(writer, OP_MARK);
}

void pickle_flush_list(struct pickle_writer *writer)
{
    write_op(writer, OP_APPENDS);
    write_op(writer, OP_MARK);
}

void pickle_end_list(struct pickle_writer *writer)
{
    write_op(writer, OP_APPENDS);
}

void pickle_put_pair(struct pickle_writer *writer, uint64_t first, uint64_t second)
{
    pickle_put_int(writer, first);
    pickle_put_int(writer, second);
    write_op(writer, OP_TUPLE2);
}
