/* `gpucache top`'s table as lines of text, for a screen of a given width or without one.
 *
 * Widths are columns of the terminal (a wide character takes two). A line has no control character,
 * no escape and no broken UTF-8, whatever the names contain; outside UTF-8 it is plain ASCII. */
#ifndef GC_TOP_TEXT_H
#define GC_TOP_TEXT_H

#include "core/io/writer.h"
#include "tools/base/columns.h"
#include "tools/live/top_view.h"

#define TOP_WIDTH_MAX 512
/* Bytes of a line: four a character, and combining characters with each. */
#define TOP_LINE_BYTES (TOP_WIDTH_MAX * 8 + 1)
#define TOP_SAMPLES 24

enum top_column {
#define TOP_COLUMN(name, ...) TOP_COLUMN_##name,
#define TOP_FIGURE(field, ...) TOP_COLUMN_##field,
#include "tools/live/top_columns.def"
#undef TOP_COLUMN
#undef TOP_FIGURE
    TOP_COLUMN_COUNT
};

struct top_layout {
    bool utf8;
    unsigned widths[TOP_COLUMN_COUNT]; /* 0: left out */
};

/* Bytes reserved at the last few readings, the oldest first. */
struct top_samples {
    unsigned count;
    uint64_t values[TOP_SAMPLES];
};

/* Chooses the columns that fit, and their widths. `width` 0: no limit; columns are as wide as
 * their content, without history. */
void top_layout_init(struct top_layout *layout, const struct top_view *view, unsigned width,
                     bool utf8);
/* Each writes a line without a line break and returns its columns. */
unsigned top_text_head(const struct top_layout *layout, char text[TOP_LINE_BYTES]);
unsigned top_text_row(const struct top_layout *layout, const struct top_view *view, size_t account,
                      const struct top_samples *samples, char text[TOP_LINE_BYTES]);
/* "3 processes, 1 group, 2 devices". */
void top_text_counts(const struct top_view *view, char *text, size_t size);

/* Writes the whole table without a height limit. GC_NO_HOST_MEMORY. */
enum gc_status top_text_print(struct gc_writer *out, const struct top_view *view,
                              const struct top_order *order, unsigned width) GC_CHECKED;
/* Writes one JSON object, schema gpucache-top/1. `source`: the ledger that was read. */
enum gc_status top_json_print(struct gc_writer *out, const struct top_view *view,
                              const struct top_order *order, const char *source,
                              uint64_t time_unix) GC_CHECKED;

/* ---- cells ---- */

/* "0", "512B", "1.50G": at most 5 characters. */
#define TOP_SIZE_BYTES 8
const char *top_size(uint64_t bytes, char text[TOP_SIZE_BYTES]);
/* "", "0.2s", "35s", "12m", "3h": at most 5 characters. */
const char *top_duration(uint64_t ns, char text[TOP_SIZE_BYTES]);
/* The last `columns` samples as bars, scaled to `full`, or to the largest sample if `full` is
 * TOP_NO_LIMIT. */
void top_spark(const struct top_samples *samples, uint64_t full, unsigned columns, bool utf8,
               char *to, size_t size);

/* ---- readings kept for the history ---- */

/* Bytes that each row reserved at the last few readings, kept from one view to the next. */
struct top_history_row {
    uint64_t key; /* of the subject */
    size_t device;
    struct top_samples samples;
};

struct top_history {
    struct top_history_row *rows; /* sorted */
    size_t count;
};

/* After top_view_close: adds a sample of every account and drops rows without one. If memory runs
 * out nothing changes. */
void top_history_add(struct top_history *history, const struct top_view *view);
/* NULL if it has none. */
const struct top_samples *top_history_find(const struct top_history *history,
                                           const struct top_view *view, size_t account);
void top_history_fini(struct top_history *history);

#endif
