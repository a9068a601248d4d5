/* Traces in lines of text: our CSV (op,id,bytes,stream,time_us) and RMM's log
 * (Thread,Time,Action,Pointer,Size,Stream).
 *
 * Our CSV is strict: `gpucache trace --csv` or a person writes it, and mistakes should show. RMM's
 * log is a recording: one that begins late has frees of unseen allocations, which are left out and
 * counted, as in native traces. */
#include "core/io/csv.h"
#include "core/io/text.h"
#include "tools/replay/replay_trace.h"

#include <string.h>

#define FIELD_MAX 6

static bool is_word(const struct gc_csv_field *field, const char *word)
{
    return strlen(word) == field->length && memcmp(word, field->text, field->length) == 0;
}

static bool read_uint(const struct gc_csv_field *field, uint64_t *value)
{
    return gc_text_uint(field->text, field->length, value);
}

static enum gc_status fail_field(struct replay_error *error, uint64_t line, const char *name,
                                 const struct gc_csv_field *field, const char *accepted)
{
    char shown[48];
    return replay_refuse(error, line, "%s \"%s\" is not valid; accepted: %s", name,
                         gc_text_printable(field->text, field->length, shown, sizeof(shown)),
                         accepted);
}

/* ---- ours ---- */

struct csv_row {
    char op;
    uint64_t id;
    uint64_t bytes;
    uint64_t stream;
};

static enum gc_status parse_csv(const struct gc_csv_field *line, uint64_t number,
                                struct csv_row *row, struct replay_error *error)
{
    struct gc_csv_field fields[FIELD_MAX];
    uint64_t time_us;
    const size_t count = gc_csv_split(line, fields, FIELD_MAX);
    if (count != 5)
        return replay_refuse(error, number, "%zu fields; accepted: " REPLAY_CSV_HEADER, count);
    if (!is_word(&fields[0], "a") && !is_word(&fields[0], "f"))
        return fail_field(error, number, "op", &fields[0], "a (allocated), f (freed)");
    row->op = fields[0].text[0];
    if (!read_uint(&fields[1], &row->id))
        return fail_field(error, number, "id", &fields[1], "a decimal number");
    if (!read_uint(&fields[2], &row->bytes) || (row->op == 'a' && row->bytes == 0))
        return fail_field(error, number, "bytes", &fields[2], "a decimal number, at least 1");
    if (!read_uint(&fields[3], &row->stream))
        return fail_field(error, number, "stream", &fields[3], "a decimal number, 0 for none");
    if (!read_uint(&fields[4], &time_us))
        return fail_field(error, number, "time_us", &fields[4], "a decimal number");
    return GC_OK;
}

static enum gc_status read_csv_row(struct replay_builder *builder, const struct csv_row *row,
                                   uint64_t number, struct replay_error *error)
{
    const bool is_live = replay_builder_is_live(builder, row->id);
    if (row->op == 'a' && is_live)
        return replay_refuse(
            error, number, "allocation %llu is live already; an id can be reused once it is freed",
            (unsigned long long)row->id);
    if (row->op == 'f' && !is_live)
        return replay_refuse(error, number, "a free of %llu, which is not live",
                             (unsigned long long)row->id);
    return row->op == 'a' ? replay_builder_alloc(builder, row->id, row->bytes, row->stream)
                          : replay_builder_free(builder, row->id, row->stream);
}

enum gc_status replay_read_csv(const char *text, size_t bytes, struct replay_builder *builder,
                               struct replay_error *error)
{
    struct gc_csv lines = {.next = text, .end = text + bytes};
    struct gc_csv_field line;
    struct csv_row row = {0};
    builder->trace->format = "CSV";
    if (!gc_csv_next(&lines, &line) || !is_word(&line, REPLAY_CSV_HEADER))
        return replay_refuse(error, 1, "the header is not " REPLAY_CSV_HEADER);
    while (gc_csv_next(&lines, &line)) {
        enum gc_status status = parse_csv(&line, lines.line, &row, error);
        if (status == GC_OK)
            status = read_csv_row(builder, &row, lines.line, error);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

/* ---- RMM's ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Digits of base 16, with or without 0x; "(nil)" is 0. */
static bool read_hex(const struct gc_csv_field *field, uint64_t *value)
{
    const char *at = field->text;
    size_t length = field->length;
    *value = 0;
    if (is_word(field, "(nil)"))
        return true;
    if (length > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X')) {
        at += 2;
        length -= 2;
    }
    if (length == 0 || length > 16)
        return false;
    for (size_t i = 0; i < length; i++) {
        const int digit = hex_digit(at[i]);
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint64_t)digit;
    }
    return true;
}

/* A decimal number, or one of base 16 that begins with 0x. */
static bool read_stream(const struct gc_csv_field *field, uint64_t *stream)
{
    return read_uint(field, stream) ||
           (field->length > 2 && field->text[0] == '0' && read_hex(field, stream));
}

enum rmm_action { RMM_ALLOCATE, RMM_FREE, RMM_OTHER };

struct rmm_row {
    enum rmm_action action;
    uint64_t pointer;
    uint64_t bytes;
    uint64_t stream;
};

static enum gc_status parse_rmm(const struct gc_csv_field *line, uint64_t number,
                                struct rmm_row *row, struct replay_error *error)
{
    struct gc_csv_field fields[FIELD_MAX];
    const size_t count = gc_csv_split(line, fields, FIELD_MAX);
    if (count != FIELD_MAX)
        return replay_refuse(error, number, "%zu fields; accepted: " REPLAY_RMM_HEADER, count);
    if (is_word(&fields[2], "allocate"))
        row->action = RMM_ALLOCATE;
    else if (is_word(&fields[2], "free") || is_word(&fields[2], "deallocate"))
        row->action = RMM_FREE;
    else if (is_word(&fields[2], "allocate failure"))
        row->action = RMM_OTHER;
    else
        return fail_field(error, number, "action", &fields[2], "allocate, allocate failure, free");
    if (!read_hex(&fields[3], &row->pointer))
        return fail_field(error, number, "pointer", &fields[3], "a number of base 16");
    if (!read_uint(&fields[4], &row->bytes))
        return fail_field(error, number, "size", &fields[4], "a decimal number");
    if (!read_stream(&fields[5], &row->stream))
        return fail_field(error, number, "stream", &fields[5],
                          "a decimal number, or one of base 16 with 0x");
    return GC_OK;
}

static enum gc_status read_rmm_row(struct replay_builder *builder, const struct rmm_row *row)
{
    /* An allocation of 0 bytes has no pointer, and its free frees nothing. */
    const bool is_empty = row->action == RMM_ALLOCATE && row->bytes == 0;
    if (row->action == RMM_OTHER || row->pointer == 0 || is_empty) {
        builder->trace->left_out++;
        return GC_OK;
    }
    return row->action == RMM_ALLOCATE
               ? replay_builder_alloc(builder, row->pointer, row->bytes, row->stream)
               : replay_builder_free(builder, row->pointer, row->stream);
}

enum gc_status replay_read_rmm(const char *text, size_t bytes, struct replay_builder *builder,
                               struct replay_error *error)
{
    struct gc_csv lines = {.next = text, .end = text + bytes};
    struct gc_csv_field line;
    struct rmm_row row = {0};
    builder->trace->format = "RMM log";
    if (!gc_csv_next(&lines, &line) || !is_word(&line, REPLAY_RMM_HEADER))
        return replay_refuse(error, 1, "the header is not " REPLAY_RMM_HEADER);
    while (gc_csv_next(&lines, &line)) {
        enum gc_status status = parse_rmm(&line, lines.line, &row, error);
        if (status == GC_OK)
            status = read_rmm_row(builder, &row);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}
