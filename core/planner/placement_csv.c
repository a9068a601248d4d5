/* The reader is strict: it accepts no file whose meaning is in doubt. */
#include "core/planner/placement_csv.h"

#include "core/base/bits.h"
#include "core/base/strmap.h"
#include "core/io/csv.h"
#include "core/io/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum column { ID, LOWER, UPPER, SIZE, ALIGNMENT, OFFSET, COLUMN_COUNT };

static const char *const COLUMN_NAMES[COLUMN_COUNT] = {
    [ID] = "id",     [LOWER] = "lower",         [UPPER] = "upper",
    [SIZE] = "size", [ALIGNMENT] = "alignment", [OFFSET] = "offset",
};

#define REQUIRED_COUNT ALIGNMENT
#define FIELD_SHOWN 48
#define TEXT_BYTES 4096
#define ROW_BYTES_MIN 8 /* 0,0,1,1 and the end of the line */

struct reader {
    struct gc_region *region;
    struct gc_placement_csv *csv;
    struct gc_placement_csv_error *error;
    struct gc_csv lines;
    enum column columns[COLUMN_COUNT]; /* of the fields, from left to right */
    size_t column_count;
    uint32_t room;
    struct gc_strmap ids;
    struct gc_region scratch; /* of the ids' table */
    char *text;               /* room for ids */
    size_t text_room;
};

__attribute__((format(printf, 2, 3))) static enum gc_status refuse(struct reader *reader,
                                                                   const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(reader->error->text, sizeof(reader->error->text), format, list);
    va_end(list);
    reader->error->line = reader->lines.line;
    return GC_FORMAT;
}

static enum gc_status fail_no_memory(struct reader *reader)
{
    (void)refuse(reader, "no memory for this many buffers");
    return GC_NO_HOST_MEMORY;
}

static enum gc_status refuse_quotes(struct reader *reader)
{
    return refuse(reader,
                  "a field in quotes; accepted: fields without quotes, commas and line ends");
}

static const char *printable(const struct gc_csv_field *field, char shown[FIELD_SHOWN])
{
    return gc_text_printable(field->text, field->length, shown, FIELD_SHOWN);
}

static bool find_column(const struct gc_csv_field *field, enum column *column)
{
    for (unsigned i = 0; i < COLUMN_COUNT; i++)
        if (strlen(COLUMN_NAMES[i]) == field->length &&
            memcmp(COLUMN_NAMES[i], field->text, field->length) == 0) {
            *column = (enum column)i;
            return true;
        }
    return false;
}

static enum gc_status read_header(struct reader *reader)
{
    struct gc_csv_field line;
    struct gc_csv_field fields[COLUMN_COUNT];
    char shown[FIELD_SHOWN];
    bool seen[COLUMN_COUNT] = {false};
    if (!gc_csv_next(&reader->lines, &line)) {
        reader->lines.line = 1;
        return refuse(reader, "an empty file; accepted: a header " GC_PLACEMENT_CSV_HEADER);
    }
    if (gc_csv_is_quoted(&line))
        return refuse_quotes(reader);
    const size_t count = gc_csv_split(&line, fields, COLUMN_COUNT);
    for (size_t i = 0; i < count; i++) {
        enum column column;
        if (i == COLUMN_COUNT || !find_column(&fields[i], &column) || seen[column])
            return refuse(reader, "the header's column %zu, \"%s\", is %s; accepted: %s", i + 1,
                          i == COLUMN_COUNT ? "..." : printable(&fields[i], shown),
                          i < COLUMN_COUNT && find_column(&fields[i], &column) ? "there already"
                                                                               : "not known",
                          GC_PLACEMENT_CSV_HEADER);
        seen[column] = true;
        reader->columns[i] = column;
    }
    for (unsigned i = 0; i < REQUIRED_COUNT; i++)
        if (!seen[i])
            return refuse(reader, "the header lacks %s; accepted: %s", COLUMN_NAMES[i],
                          GC_PLACEMENT_CSV_HEADER);
    reader->column_count = count;
    reader->csv->has_alignment = seen[ALIGNMENT];
    reader->csv->has_offset = seen[OFFSET];
    return GC_OK;
}

/* The rows that are left, as many as the text has room for: growing later would cost the memory
 * twice. */
static uint64_t count_rows(const struct reader *reader)
{
    const char *at = reader->lines.next;
    uint64_t rows = 1;
    const uint64_t most = 1 + (uint64_t)(reader->lines.end - at) / ROW_BYTES_MIN;
    while (rows < most && (at = memchr(at, '\n', (size_t)(reader->lines.end - at))) != NULL) {
        rows++;
        at++;
    }
    return rows;
}

/* Memory for the next buffer, or NULL. */
static struct gc_placement_buffer *reserve(struct reader *reader)
{
    struct gc_placement_csv *csv = reader->csv;
    if (csv->count == reader->room) {
        const uint64_t room = reader->room == 0 ? count_rows(reader) : 2 * (uint64_t)reader->room;
        csv->buffers =
            gc_region_grow(reader->region, csv->buffers, reader->room * sizeof(csv->buffers[0]),
                           room * sizeof(csv->buffers[0]));
        csv->ids = csv->buffers == NULL ? NULL
                                        : gc_region_grow(reader->region, csv->ids,
                                                         reader->room * sizeof(csv->ids[0]),
                                                         room * sizeof(csv->ids[0]));
        if (csv->ids == NULL)
            return NULL;
        reader->room = room > UINT32_MAX ? UINT32_MAX : (uint32_t)room;
    }
    csv->buffers[csv->count] = (struct gc_placement_buffer){.fixed = GC_PLACEMENT_FREE};
    return &csv->buffers[csv->count];
}

/* Ids are short: together they waste no memory. */
static const char *copy_id(struct reader *reader, const struct gc_csv_field *field)
{
    const size_t bytes = field->length + 1;
    if (bytes > reader->text_room) {
        reader->text_room = bytes > TEXT_BYTES ? bytes : TEXT_BYTES;
        reader->text = gc_region_alloc(reader->region, reader->text_room);
    }
    char *id = reader->text;
    if (id == NULL)
        return NULL;
    memcpy(id, field->text, field->length);
    reader->text += bytes;
    reader->text_room -= bytes;
    return id;
}

static enum gc_status read_id(struct reader *reader, const struct gc_csv_field *field)
{
    char shown[FIELD_SHOWN];
    bool added;
    if (field->length == 0 || memchr(field->text, '\0', field->length) != NULL)
        return refuse(reader, "id \"%s\" is not valid; accepted: a number or a name",
                      printable(field, shown));
    const char *id = copy_id(reader, field);
    struct gc_strmap_entry *name =
        id == NULL
            ? NULL
            : gc_strmap_find_or_add(&reader->ids, &reader->scratch, id, field->length, &added);
    if (name == NULL)
        return fail_no_memory(reader);
    if (!added)
        return refuse(reader, "id \"%s\" is there already; accepted: each id once",
                      printable(field, shown));
    name->text = id;
    reader->csv->ids[reader->csv->count] = id;
    return GC_OK;
}

static enum gc_status read_field(struct reader *reader, enum column column,
                                 const struct gc_csv_field *field,
                                 struct gc_placement_buffer *buffer)
{
    char shown[FIELD_SHOWN];
    uint64_t *const values[COLUMN_COUNT] = {
        [LOWER] = &buffer->lower,         [UPPER] = &buffer->upper,  [SIZE] = &buffer->bytes,
        [ALIGNMENT] = &buffer->alignment, [OFFSET] = &buffer->fixed,
    };
    if (column == ID)
        return read_id(reader, field);
    if (column >= REQUIRED_COUNT && field->length == 0)
        return GC_OK;
    if (!gc_text_uint(field->text, field->length, values[column]))
        return refuse(reader, "%s \"%s\" is not valid; accepted: a decimal number%s",
                      COLUMN_NAMES[column], printable(field, shown),
                      column >= REQUIRED_COUNT ? " or nothing" : "");
    if (column == ALIGNMENT && buffer->alignment == 0)
        return refuse(reader, "alignment 0 is not valid; accepted: 1 or more, or nothing");
    if (column == OFFSET && buffer->fixed == GC_PLACEMENT_FREE)
        return refuse(reader, "offset \"%s\" is too large", printable(field, shown));
    return GC_OK;
}

static enum gc_status read_row(struct reader *reader, const struct gc_csv_field *line)
{
    struct gc_csv_field fields[COLUMN_COUNT];
    if (gc_csv_is_quoted(line))
        return refuse_quotes(reader);
    const size_t count = gc_csv_split(line, fields, COLUMN_COUNT);
    if (count != reader->column_count)
        return refuse(reader, "%zu fields; accepted: %zu, as the header has", count,
                      reader->column_count);
    if (reader->csv->count == UINT32_MAX - 1) {
        (void)refuse(reader, "too many buffers; accepted: at most %u", UINT32_MAX - 1);
        return GC_TOO_MANY;
    }
    struct gc_placement_buffer *buffer = reserve(reader);
    if (buffer == NULL)
        return fail_no_memory(reader);
    for (size_t i = 0; i < count; i++) {
        const enum gc_status status = read_field(reader, reader->columns[i], &fields[i], buffer);
        if (status != GC_OK)
            return status;
    }
    if (buffer->lower >= buffer->upper)
        return refuse(reader, "lower %llu, upper %llu; accepted: lower below upper",
                      (unsigned long long)buffer->lower, (unsigned long long)buffer->upper);
    reader->csv->count++;
    return GC_OK;
}

enum gc_status gc_placement_csv_read(struct gc_region *region, const char *text, size_t bytes,
                                     struct gc_placement_csv *csv,
                                     struct gc_placement_csv_error *error)
{
    struct reader reader = {
        .region = region, .csv = csv, .error = error, .lines = {.next = text, .end = text + bytes}};
    struct gc_csv_field line;
    *csv = (struct gc_placement_csv){0};
    *error = (struct gc_placement_csv_error){0};
    gc_strmap_init(&reader.ids);
    gc_region_init(&reader.scratch,
                   gc_sub_or_zero_u64(region->bytes_max, gc_region_bytes(region)) / 2);
    enum gc_status status = read_header(&reader);
    while (status == GC_OK && gc_csv_next(&reader.lines, &line))
        status = read_row(&reader, &line);
    gc_region_fini(&reader.scratch);
    return status;
}
