#include "core/io/emitter.h"

#include "core/base/assert.h"
#include "core/io/text.h"

#include <string.h>

uint64_t gc_emitter_number(const struct gc_figure *figure, const void *record)
{
    const void *at = (const char *)record + figure->offset;
    GC_ASSERT(figure->type <= GC_FIGURE_GAUGE);
    return figure->type == GC_FIGURE_GAUGE ? ((const struct gc_gauge *)at)->current
                                           : *(const uint64_t *)at;
}

uint64_t gc_emitter_peak(const struct gc_figure *figure, const void *record)
{
    const void *at = (const char *)record + figure->offset;
    GC_ASSERT(figure->type == GC_FIGURE_GAUGE);
    return ((const struct gc_gauge *)at)->peak;
}

static uint64_t read_number(const struct gc_figure *figure, const void *record, bool is_peak)
{
    return is_peak ? gc_emitter_peak(figure, record) : gc_emitter_number(figure, record);
}

/* ---- JSON ---- */

static void write_gauge(struct gc_json *json, const struct gc_figure *figure, const void *record)
{
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_uint(json, "current", gc_emitter_number(figure, record));
    gc_json_write_uint(json, "peak", gc_emitter_peak(figure, record));
    gc_json_end_object(json);
}

static void write_value(struct gc_json *json, const struct gc_figure *figure, const void *record,
                        const void *argument)
{
    const void *at = (const char *)record + figure->offset;
    switch (figure->type) {
    case GC_FIGURE_COUNT:
    case GC_FIGURE_BYTES:
    case GC_FIGURE_NS:
        gc_json_uint(json, gc_emitter_number(figure, record));
        break;
    case GC_FIGURE_LIMIT:
        gc_json_limit(json, gc_emitter_number(figure, record));
        break;
    case GC_FIGURE_GAUGE:
        write_gauge(json, figure, record);
        break;
    case GC_FIGURE_INT:
        gc_json_int(json, *(const int *)at);
        break;
    case GC_FIGURE_BOOL:
        gc_json_bool(json, *(const bool *)at);
        break;
    case GC_FIGURE_NAME:
        gc_json_string(json, at);
        break;
    case GC_FIGURE_GROUP:
        if (*(const char *)at == '\0')
            gc_json_null(json);
        else
            gc_json_string(json, at);
        break;
    case GC_FIGURE_PART:
        figure->put(json, record, argument);
        break;
    case GC_FIGURE_OPEN:
        gc_json_begin_object(json, GC_JSON_LINE);
        break;
    case GC_FIGURE_CLOSE:
        break;
    }
}

void gc_emitter_members(struct gc_json *json, const struct gc_figures *figures, const void *record,
                        const void *argument)
{
    for (size_t i = 0; i < figures->count; i++) {
        const struct gc_figure *figure = &figures->figures[i];
        if (figure->type == GC_FIGURE_CLOSE) {
            gc_json_end_object(json);
        } else if (figure->key != NULL) {
            gc_json_key(json, figure->key);
            write_value(json, figure, record, argument);
        }
    }
}

void gc_emitter_object(struct gc_json *json, const char *key, enum gc_json_style style,
                       const struct gc_figures *figures, const void *record)
{
    gc_json_open_object(json, key, style);
    gc_emitter_members(json, figures, record, NULL);
    gc_json_end_object(json);
}

/* ---- the order of faces ---- */

/* The faces of all figures in one sequence: figure i has faces 2 * i and 2 * i + 1. */
static const struct gc_figure_face *face_of(const struct gc_figures *figures, size_t index)
{
    const struct gc_figure *figure = &figures->figures[index / 2];
    return index % 2 == 0 ? &figure->face : &figure->peak;
}

static unsigned column_of(const struct gc_figure_face *face)
{
    return face->column;
}

static unsigned rank_of(const struct gc_figure_face *face)
{
    return face->metric != NULL ? face->rank + 1U : 0;
}

#define NO_FACE SIZE_MAX

/* The face after `last`, ordered by `place` (0: not listed), then by index; NO_FACE at the end.
 * Tables have some 40 figures: a linear search for each step needs no memory. */
static size_t next_face(const struct gc_figures *figures, size_t last,
                        unsigned (*place)(const struct gc_figure_face *face))
{
    const unsigned behind = last != NO_FACE ? place(face_of(figures, last)) : 0;
    size_t next = NO_FACE;
    for (size_t i = 0; i < 2 * figures->count; i++) {
        const unsigned at = place(face_of(figures, i));
        const bool is_left = at > behind || (at == behind && last != NO_FACE && i > last);
        if (at > 0 && is_left && (next == NO_FACE || at < place(face_of(figures, next))))
            next = i;
    }
    return next;
}

/* ---- text ---- */

void gc_emitter_titles(struct gc_writer *out, const struct gc_figures *figures)
{
    for (size_t i = NO_FACE; (i = next_face(figures, i, column_of)) != NO_FACE;)
        gc_writer_right(out, face_of(figures, i)->column, face_of(figures, i)->title);
}

static void write_cell(struct gc_writer *out, size_t column, enum gc_figure_type type,
                       uint64_t value)
{
    if (type == GC_FIGURE_COUNT)
        gc_writer_right_uint(out, column, value);
    else if (type == GC_FIGURE_NS)
        gc_writer_right(out, column, GC_TEXT_SPAN(value));
    else if (type == GC_FIGURE_LIMIT && value == UINT64_MAX)
        gc_writer_right(out, column, "none");
    else
        gc_writer_right_size(out, column, value);
}

void gc_emitter_cell(struct gc_writer *out, size_t column, const struct gc_figure *figure,
                     const void *record)
{
    write_cell(out, column, figure->type, gc_emitter_number(figure, record));
}

void gc_emitter_cells(struct gc_writer *out, const struct gc_figures *figures, const void *record)
{
    for (size_t i = NO_FACE; (i = next_face(figures, i, column_of)) != NO_FACE;) {
        const struct gc_figure *figure = &figures->figures[i / 2];
        write_cell(out, face_of(figures, i)->column, figure->type,
                   read_number(figure, record, i % 2 != 0));
    }
}

/* ---- Prometheus ---- */

static bool write_name(struct gc_writer *out, const char *name, bool is_family)
{
    const bool is_count = gc_text_ends_with(name, "_count");
    gc_writer_text(out, "gpucache_");
    gc_writer_bytes(out, name, strlen(name) - (is_count ? strlen("_count") : 0));
    gc_writer_text(out, is_count && !is_family ? "_total" : "");
    return is_count;
}

static void begin_metric(struct gc_writer *out, const struct gc_figure_face *face,
                         const struct gc_samples *samples)
{
    gc_writer_text(out, "# HELP ");
    (void)write_name(out, face->metric, samples->is_openmetrics);
    gc_writer_print(out, " %s\n# TYPE ", face->help);
    gc_writer_text(out, write_name(out, face->metric, samples->is_openmetrics) ? " counter\n"
                                                                               : " gauge\n");
}

/* A backslash, a quote and a line break are escaped; a byte that is no UTF-8 is replaced. */
static void write_escaped(struct gc_writer *out, const char *text)
{
    while (*text != '\0') {
        const size_t length = gc_json_sequence_length(text);
        if (length == 0)
            gc_writer_text(out, "\xef\xbf\xbd");
        else if (*text == '\n')
            gc_writer_text(out, "\\n");
        else if (*text == '\\' || *text == '"')
            gc_writer_char(out, '\\');
        if (length > 0 && *text != '\n')
            gc_writer_bytes(out, text, length);
        text += length > 0 ? length : 1;
    }
}

static void write_sample(struct gc_writer *out, const struct gc_figure_face *face,
                         const struct gc_label *labels, uint64_t value, unsigned digits)
{
    (void)write_name(out, face->metric, false);
    for (unsigned i = 0; i < GC_LABEL_MAX && labels[i].name != NULL; i++) {
        gc_writer_print(out, "%s%s=\"", i == 0 ? "{" : ",", labels[i].name);
        if (labels[i].text != NULL)
            write_escaped(out, labels[i].text);
        else
            gc_writer_uint(out, labels[i].number);
        gc_writer_char(out, '"');
    }
    gc_writer_text(out, labels[0].name != NULL ? "} " : " ");
    gc_writer_fixed(out, value, digits);
    gc_writer_char(out, '\n');
}

static void add_label(struct gc_samples *samples, struct gc_label label)
{
    unsigned i = 0;
    while (i < GC_LABEL_MAX - 1 && samples->labels[i].name != NULL)
        i++;
    samples->labels[i] = label;
}

void gc_emitter_label(struct gc_samples *samples, const char *name, const char *text)
{
    add_label(samples, (struct gc_label){.name = name, .text = text != NULL ? text : ""});
}

void gc_emitter_label_number(struct gc_samples *samples, const char *name, uint64_t number)
{
    add_label(samples, (struct gc_label){.name = name, .number = number});
}

static void write_metric(struct gc_writer *out, const struct gc_figures *figures, size_t index,
                         struct gc_samples samples)
{
    const struct gc_figure *figure = &figures->figures[index / 2];
    const struct gc_figure_face *face = face_of(figures, index);
    const void *record;
    bool has_begun = samples.is_always;
    if (has_begun)
        begin_metric(out, face, &samples);
    while ((record = samples.next(&samples)) != NULL) {
        const uint64_t value = read_number(figure, record, index % 2 != 0);
        if (value == UINT64_MAX)
            continue;
        if (!has_begun)
            begin_metric(out, face, &samples);
        has_begun = true;
        write_sample(out, face, samples.labels, value, figure->type == GC_FIGURE_NS ? 9 : 0);
    }
}

void gc_emitter_metrics(struct gc_writer *out, const struct gc_figures *figures,
                        const struct gc_samples *samples)
{
    for (size_t i = NO_FACE; (i = next_face(figures, i, rank_of)) != NO_FACE;)
        write_metric(out, figures, i, *samples);
}
