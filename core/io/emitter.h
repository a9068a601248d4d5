/* Figures are declared once and written in three notations, as in jemalloc's emitter: members of a
 * JSON object, cells of a table's row, and metrics in Prometheus' text format (version 0.0.4).
 *
 * A table of figures describes a record. JSON keys come in the table's order; `column` orders the
 * cells of a text row, `rank` the metrics. Allocates nothing. */
#ifndef GC_EMITTER_H
#define GC_EMITTER_H

#include "core/io/gauge.h"
#include "core/io/json.h"

#include <stddef.h>

enum gc_figure_type {
    GC_FIGURE_COUNT, /* uint64_t */
    GC_FIGURE_BYTES, /* uint64_t; in text "1.5 GiB" */
    GC_FIGURE_LIMIT, /* bytes; UINT64_MAX: null, "none", no sample */
    GC_FIGURE_NS,    /* uint64_t; a sample is in seconds */
    GC_FIGURE_GAUGE, /* struct gc_gauge, in bytes */
    GC_FIGURE_INT,   /* int */
    GC_FIGURE_BOOL,  /* bool */
    GC_FIGURE_NAME,  /* char[] */
    GC_FIGURE_GROUP, /* char[]; "" is null */
    GC_FIGURE_PART,  /* `put` writes the value */
    GC_FIGURE_OPEN,  /* the figures up to GC_FIGURE_CLOSE are members of an object, on one line */
    GC_FIGURE_CLOSE,
};

/* How text and Prometheus show one number of a figure, which is of a type up to
 * GC_FIGURE_GAUGE. */
struct gc_figure_face {
    /* Prometheus name after "gpucache_"; NULL: no metric. A counter's name ends in _count, written
     * as _total */
    const char *metric;
    const char *help;
    uint16_t rank;
    uint16_t column;   /* the cell ends before it; 0: no cell */
    const char *title; /* title of the column */
};

struct gc_figure {
    const char *key;
    enum gc_figure_type type;
    size_t offset; /* in the record */
    size_t bytes;  /* size of the member */
    struct gc_figure_face face;
    struct gc_figure_face peak; /* peak of a gauge */
    const char *text;           /* the meaning, for people */
    bool is_failure;            /* a number above 0 is a fault of the program, or out of memory */
    void (*put)(struct gc_json *json, const void *record, const void *argument);
};

/* Whether a figure of the type can read the field. */
#define GC_FIGURE_READS(type, field) __builtin_types_compatible_p(__typeof__(field), type)
#define GC_FIGURE_COUNT_READS(field) GC_FIGURE_READS(uint64_t, field)
#define GC_FIGURE_BYTES_READS(field) GC_FIGURE_READS(uint64_t, field)
#define GC_FIGURE_LIMIT_READS(field) GC_FIGURE_READS(uint64_t, field)
#define GC_FIGURE_NS_READS(field) GC_FIGURE_READS(uint64_t, field)
#define GC_FIGURE_GAUGE_READS(field) GC_FIGURE_READS(struct gc_gauge, field)
#define GC_FIGURE_INT_READS(field) GC_FIGURE_READS(int, field)
#define GC_FIGURE_BOOL_READS(field) GC_FIGURE_READS(bool, field)
#define GC_FIGURE_NAME_READS(field) GC_FIGURE_READS(char[], field)
#define GC_FIGURE_GROUP_READS(field) GC_FIGURE_READS(char[], field)

/* A row of a table: GC_FIGURE("limit_bytes", LIMIT, struct record, limit_bytes, GC_METRIC(…),
 * GC_CELL(…)). The initialisers after the member are optional. A member that is not of the figure's
 * type does not compile. The struct in the sum is empty: it only holds that assertion. */
#define GC_FIGURE(key_, type_, record, member, ...)                                                \
    {                                                                                              \
        .key = (key_), .type = GC_FIGURE_##type_,                                                  \
        .offset = offsetof(record, member) + sizeof(struct {                                       \
                      _Static_assert(GC_FIGURE_##type_##_READS(((record *)NULL)->member),          \
                                     #member " is not of the figure's type, " #type_);             \
                  }),                                                                              \
        .bytes = sizeof(((record *)NULL)->member), __VA_ARGS__                                     \
    }
#define GC_FIGURE_WRITTEN(key_, put_)                                                              \
    {                                                                                              \
        .key = (key_), .type = GC_FIGURE_PART, .put = (put_)                                       \
    }
#define GC_METRIC(rank_, metric_, help_)                                                           \
    .face.rank = (rank_), .face.metric = (metric_), .face.help = (help_)
#define GC_CELL(column_, title_) .face.column = (column_), .face.title = (title_)
#define GC_PEAK_METRIC(rank_, metric_, help_)                                                      \
    .peak.rank = (rank_), .peak.metric = (metric_), .peak.help = (help_)
#define GC_PEAK_CELL(column_, title_) .peak.column = (column_), .peak.title = (title_)

struct gc_figures {
    const struct gc_figure *figures;
    size_t count;
};
#define GC_FIGURES(array)                                                                          \
    {                                                                                              \
        array, sizeof(array) / sizeof((array)[0])                                                  \
    }

/* The members of an object that is open. `argument` is for GC_FIGURE_PART. */
void gc_emitter_members(struct gc_json *json, const struct gc_figures *figures, const void *record,
                        const void *argument);
/* A key and an object with these members. */
void gc_emitter_object(struct gc_json *json, const char *key, enum gc_json_style style,
                       const struct gc_figures *figures, const void *record);

/* A figure's number, of types up to GC_FIGURE_GAUGE (a gauge's current value); a gauge's peak. */
uint64_t gc_emitter_number(const struct gc_figure *figure, const void *record);
uint64_t gc_emitter_peak(const struct gc_figure *figure, const void *record);

/* Writes the number as text that ends before the column: a count, "1.5 GiB", "1.5 ms", "none". */
void gc_emitter_cell(struct gc_writer *out, size_t column, const struct gc_figure *figure,
                     const void *record);
/* Writes the titles, or one record's cells, after the text that the line has; no line break. */
void gc_emitter_titles(struct gc_writer *out, const struct gc_figures *figures);
void gc_emitter_cells(struct gc_writer *out, const struct gc_figures *figures, const void *record);

#define GC_LABEL_MAX 12
struct gc_label {
    const char *name; /* NULL: end of the list */
    const char *text; /* NULL: the number */
    uint64_t number;
};

/* Iterates over the records of a metric: each call of `next` returns a record and sets its labels;
 * NULL at the end. */
struct gc_samples {
    const void *source;
    const void *(*next)(struct gc_samples *samples);
    uint32_t outer; /* position of `next`; all 0 before the first record */
    uint32_t inner;
    bool has_any;
    bool is_always;      /* HELP and TYPE are written even without a sample */
    bool is_openmetrics; /* HELP and TYPE of a counter name it without _total */
    struct gc_label labels[GC_LABEL_MAX];
};

/* Adds a label behind those that the record has; at most GC_LABEL_MAX - 1. NULL is "". */
void gc_emitter_label(struct gc_samples *samples, const char *name, const char *text);
void gc_emitter_label_number(struct gc_samples *samples, const char *name, uint64_t number);

/* Writes the metrics of a table. HELP and TYPE precede a metric's first sample; a metric without
 * samples is omitted. A value of UINT64_MAX is no sample. */
void gc_emitter_metrics(struct gc_writer *out, const struct gc_figures *figures,
                        const struct gc_samples *samples);

#endif
