#include "tools/live/top_text.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- cells ---- */

const char *top_size(uint64_t bytes, char text[TOP_SIZE_BYTES])
{
    static const char units[] = "KMGTPE";
    unsigned unit = 0;
    if (bytes < 1024) {
        snprintf(text, TOP_SIZE_BYTES, bytes == 0 ? "0" : "%uB", (unsigned)bytes);
        return text;
    }
    while (unit < 5 && bytes >> (10 * (unit + 2)) != 0)
        unit++;
    const double value = (double)bytes / (double)(UINT64_C(1) << (10 * (unit + 1)));
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(text, TOP_SIZE_BYTES, "%.*f%c", digits, value, units[unit]);
    return text;
}

const char *top_duration(uint64_t ns, char text[TOP_SIZE_BYTES])
{
    const uint64_t tenths = ns / (GC_NS_PER_MS * 100);
    const uint64_t minutes = tenths / 600;
    if (ns == 0)
        text[0] = '\0';
    else if (tenths < 100)
        snprintf(text, TOP_SIZE_BYTES, "%u.%us", (unsigned)tenths / 10, (unsigned)tenths % 10);
    else if (tenths < 1200)
        snprintf(text, TOP_SIZE_BYTES, "%us", (unsigned)tenths / 10);
    else if (minutes < 120)
        snprintf(text, TOP_SIZE_BYTES, "%um", (unsigned)minutes);
    else
        snprintf(text, TOP_SIZE_BYTES, "%uh",
                 minutes / 60 < 9999 ? (unsigned)(minutes / 60) : 9999U);
    return text;
}

/* The letter of column S. */
static const char *state_letter(const struct top_subject *subject)
{
    static const char *const states[] = {
        [TOP_RUNNING] = "", [TOP_PAUSED] = "P", [TOP_AWAY] = "A", [TOP_STOPPED] = "T"};
    static const char *const turns[GC_TURN_STATE_COUNT] = {
        [GC_TURN_NONE] = "",  [GC_TURN_IN] = "",       [GC_TURN_LEAVING] = "L",
        [GC_TURN_AWAY] = "A", [GC_TURN_WAITING] = "W",
    };
    const char *letter = states[subject->state];
    if (letter[0] != '\0' || !subject->takes_turns)
        return letter;
    letter = turns[subject->turn.state];
    return letter[0] == '\0' && subject->turn.is_pinned ? "!" : letter;
}

void top_spark(const struct top_samples *samples, uint64_t full, unsigned columns, bool utf8,
               char *to, size_t size)
{
    static const char *const bars[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char ascii[] = "_.:-=+*#";
    const unsigned count = samples->count < columns ? samples->count : columns;
    const uint64_t *values = samples->values + samples->count - count;
    size_t used = 0;
    if (full == TOP_NO_LIMIT) {
        full = 0;
        for (unsigned i = 0; i < samples->count; i++)
            full = samples->values[i] > full ? samples->values[i] : full;
    }
    for (unsigned i = 0; i < count && used + 4 < size; i++) {
        /* A value above 0 has at least the lowest bar. */
        const double share = full > 0 ? (double)values[i] / (double)full : 0;
        const int bar = values[i] == 0 ? 0 : share < 1 ? 1 + (int)(share * 7) : 7;
        const char *shown = bars[bar];
        const size_t length = utf8 ? strlen(shown) : 1;
        memcpy(to + used, utf8 ? shown : &ascii[bar], length);
        used += length;
    }
    to[used] = '\0';
}

static const struct {
    const char *title;
    unsigned width;
    unsigned drop;
    bool right;
} columns[] = {
#define TOP_COLUMN(name, ...) {__VA_ARGS__},
#define TOP_FIGURE(field, key, type, ...) {__VA_ARGS__, true},
#include "tools/live/top_columns.def"
#undef TOP_COLUMN
#undef TOP_FIGURE
};

/* ---- the layout ---- */

static unsigned total_width(const struct top_layout *layout)
{
    unsigned total = 0;
    for (int i = 0; i < TOP_COLUMN_COUNT; i++)
        total += layout->widths[i] > 0 ? layout->widths[i] + (total > 0) : 0;
    return total;
}

/* False if no column is left that may be dropped. */
static bool drop_column(struct top_layout *layout)
{
    int worst = 0;
    for (int i = 1; i < TOP_COLUMN_COUNT; i++) {
        if (layout->widths[i] > 0 && columns[i].drop > columns[worst].drop)
            worst = i;
    }
    if (worst == 0)
        return false;
    layout->widths[worst] = 0;
    return true;
}

static void widen(struct top_layout *layout, enum top_column column, unsigned most, unsigned *spare)
{
    unsigned *width = &layout->widths[column];
    if (*width == 0 || *width >= most)
        return;
    const unsigned more = most - *width < *spare ? most - *width : *spare;
    *width += more;
    *spare -= more;
}

/* The columns that the texts of this view need. */
struct natural {
    unsigned name, group, user, pod, command;
};

static void raise_width(unsigned *width, const char *text, size_t size, bool utf8)
{
    char fitted[TOP_LINE_BYTES];
    const unsigned wanted = columns_fit(text, (unsigned)size, utf8, fitted, sizeof(fitted));
    *width = wanted > *width ? wanted : *width;
}

static struct natural natural_widths(const struct top_view *view, bool utf8)
{
    char text[TOP_LINE_BYTES];
    struct natural natural = {8, 8, 8, 8, 8};
    for (size_t i = 0; i < view->subject_count; i++) {
        const struct top_subject *subject = &view->subjects[i];
        const char *in_group = subject->kind == TOP_GROUP ? subject->name : subject->group;
        const unsigned grouped = columns_fit(in_group, TOP_NAME_BYTES, utf8, text, sizeof(text));
        unsigned named = columns_fit(subject->name, TOP_NAME_BYTES, utf8, text, sizeof(text));
        if (subject->kind == TOP_TENANT)
            named += 2;
        if (subject->kind == TOP_GROUP)
            named = 14;
        natural.name = named > natural.name ? named : natural.name;
        natural.group = grouped > natural.group ? grouped : natural.group;
        raise_width(&natural.user, subject->user, sizeof(subject->user), utf8);
        raise_width(&natural.pod, subject->labels.pod, 40, utf8);
        raise_width(&natural.command, subject->host.command, 60, utf8);
    }
    return natural;
}

static void hide_unused(struct top_layout *layout, const struct top_view *view)
{
    const struct top_places places = top_view_places(view);
    unsigned *widths = layout->widths;
    if (!top_view_has_turns(view))
        widths[TOP_COLUMN_swapped] = widths[TOP_COLUMN_WAIT] = widths[TOP_COLUMN_RESIDENT] = 0;
    if (!view->is_of_all_users)
        widths[TOP_COLUMN_INNER] = widths[TOP_COLUMN_USER] = widths[TOP_COLUMN_COMMAND] = 0;
    if (!places.has_pod)
        widths[TOP_COLUMN_POD] = 0;
    if (!places.has_container)
        widths[TOP_COLUMN_CONTAINER] = 0;
    if (!places.has_job)
        widths[TOP_COLUMN_JOB] = 0;
}

void top_layout_init(struct top_layout *layout, const struct top_view *view, unsigned width,
                     bool utf8)
{
    unsigned spare = UINT32_MAX;
    layout->utf8 = utf8;
    for (int i = 0; i < TOP_COLUMN_COUNT; i++)
        layout->widths[i] = columns[i].width;
    hide_unused(layout, view);
    const struct natural natural = natural_widths(view, utf8);
    if (width == 0) {
        layout->widths[TOP_COLUMN_HISTORY] = 0;
    } else {
        width = width < TOP_WIDTH_MAX ? width : TOP_WIDTH_MAX;
        while (total_width(layout) > width && drop_column(layout))
            continue;
        if (total_width(layout) > width)
            layout->widths[TOP_COLUMN_PID] = width;
        spare = width - total_width(layout);
    }
    widen(layout, TOP_COLUMN_NAME, natural.name < 16 ? natural.name : 16, &spare);
    widen(layout, TOP_COLUMN_GROUP, natural.group, &spare);
    widen(layout, TOP_COLUMN_USER, natural.user, &spare);
    widen(layout, TOP_COLUMN_POD, natural.pod, &spare);
    widen(layout, TOP_COLUMN_NAME, natural.name, &spare);
    widen(layout, TOP_COLUMN_COMMAND, natural.command, &spare);
    if (width != 0)
        widen(layout, TOP_COLUMN_HISTORY, TOP_SAMPLES, &spare);
}

/* ---- a line ---- */

struct line {
    char *text;
    size_t used;
    unsigned taken; /* columns */
};

static void write_blanks(struct line *line, unsigned count)
{
    memset(line->text + line->used, ' ', count);
    line->used += count;
    line->taken += count;
}

/* One cell and the gap before it. Cells after the last that has text cost nothing. */
static void write_cell(struct line *line, const struct top_layout *layout, enum top_column column,
                       const char *text, unsigned *pending)
{
    char cell[TOP_LINE_BYTES];
    const unsigned width = layout->widths[column];
    if (width == 0)
        return;
    const unsigned taken = columns_fit(text, width, layout->utf8, cell, sizeof(cell));
    const unsigned before = *pending + (columns[column].right ? width - taken : 0);
    const unsigned after = columns[column].right ? 0 : width - taken;
    if (taken == 0) {
        *pending += width + 1;
        return;
    }
    write_blanks(line, before);
    const size_t length = strlen(cell);
    memcpy(line->text + line->used, cell, length);
    line->used += length;
    line->taken += taken;
    *pending = after + 1;
}

static unsigned write_line(const struct top_layout *layout,
                           const char *const cells[TOP_COLUMN_COUNT], char text[TOP_LINE_BYTES])
{
    struct line line = {.text = text};
    unsigned pending = 0;
    for (int i = 0; i < TOP_COLUMN_COUNT; i++)
        write_cell(&line, layout, (enum top_column)i, cells[i], &pending);
    text[line.used] = '\0';
    return line.taken;
}

unsigned top_text_head(const struct top_layout *layout, char text[TOP_LINE_BYTES])
{
    const char *cells[TOP_COLUMN_COUNT];
    for (int i = 0; i < TOP_COLUMN_COUNT; i++)
        cells[i] = columns[i].title;
    return write_line(layout, cells, text);
}

/* The first columns, which identify the row's subject. */
struct identity {
    char pid[16];
    char inner[16]; /* the PID in its own namespace, where that is another one */
    char device[8];
    char name[TOP_NAME_BYTES + 8];
};

static void identify(const struct top_layout *layout, const struct top_view *view,
                     const struct top_account *account, struct identity *identity)
{
    static const char *const words[] = {
        [TOP_DEVICE] = "device", [TOP_GROUP] = "group", [TOP_TENANT] = "tenant"};
    const struct top_subject *subject = &view->subjects[account->subject];
    const char *branch = layout->utf8 ? "\u2514 " : "- ";
    identity->inner[0] = '\0';
    if (subject->kind == TOP_PROCESS && view->is_of_all_users && subject->host.pid == 0)
        snprintf(identity->pid, sizeof(identity->pid), "?");
    else if (subject->kind == TOP_PROCESS)
        snprintf(identity->pid, sizeof(identity->pid), "%d",
                 view->is_of_all_users ? subject->host.pid : subject->pid);
    if (subject->kind == TOP_PROCESS && subject->host.pid != subject->pid)
        snprintf(identity->inner, sizeof(identity->inner), "%d", subject->pid);
    if (subject->kind != TOP_PROCESS)
        snprintf(identity->pid, sizeof(identity->pid), "%s", words[subject->kind]);
    identity->device[0] = '\0';
    if (account->device < view->device_count)
        snprintf(identity->device, sizeof(identity->device), "%u",
                 view->devices[account->device].number);
    if (subject->kind == TOP_GROUP)
        snprintf(identity->name, sizeof(identity->name), "%u process%s", subject->process_count,
                 subject->process_count == 1 ? "" : "es");
    else
        snprintf(identity->name, sizeof(identity->name), "%s%.*s",
                 subject->kind == TOP_TENANT ? branch : "", TOP_NAME_BYTES - 1, subject->name);
}

unsigned top_text_row(const struct top_layout *layout, const struct top_view *view, size_t index,
                      const struct top_samples *samples, char text[TOP_LINE_BYTES])
{
    const struct top_account *account = &view->accounts[index];
    const struct top_subject *subject = &view->subjects[account->subject];
    const struct gc_ledger_figures *figures = &account->figures;
    struct identity identity;
    char sizes[TOP_COLUMN_COUNT][TOP_SIZE_BYTES];
    char hits[16] = "-", refused[24], resident[16];
    char wait[TOP_SIZE_BYTES] = "";
    char history[TOP_SAMPLES * 4 + 1] = "";
    const int permille = top_hit_permille(figures);
    identify(layout, view, account, &identity);
    if (permille >= 0)
        snprintf(hits, sizeof(hits), "%d.%d", permille / 10, permille % 10);
    snprintf(refused, sizeof(refused), "%llu", (unsigned long long)figures->oom_count);
    snprintf(resident, sizeof(resident), "%u", top_resident_percent(figures));
    if (subject->takes_turns)
        top_duration(subject->turn.waiting_ns, wait);
    if (samples != NULL)
        top_spark(samples, figures->limit, layout->widths[TOP_COLUMN_HISTORY], layout->utf8,
                  history, sizeof(history));
    const char *cells[TOP_COLUMN_COUNT] = {
        [TOP_COLUMN_PID] = identity.pid,
        [TOP_COLUMN_INNER] = identity.inner,
        [TOP_COLUMN_USER] = subject->user,
        [TOP_COLUMN_DEVICE] = identity.device,
        [TOP_COLUMN_GROUP] = subject->kind == TOP_GROUP ? subject->name : subject->group,
        [TOP_COLUMN_NAME] = identity.name,
        [TOP_COLUMN_STATE] = state_letter(subject),
        [TOP_COLUMN_WAIT] = wait,
        [TOP_COLUMN_RESIDENT] = resident,
        [TOP_COLUMN_REFUSED] = refused,
        [TOP_COLUMN_HITS] = hits,
        [TOP_COLUMN_POD] = subject->labels.pod,
        [TOP_COLUMN_CONTAINER] = subject->labels.container,
        [TOP_COLUMN_JOB] = subject->labels.job,
        [TOP_COLUMN_COMMAND] = subject->host.command,
        [TOP_COLUMN_HISTORY] = history,
#define TOP_COLUMN(...)
#define TOP_FIGURE(field, ...)                                                                     \
    [TOP_COLUMN_##field] = top_size(figures->field, sizes[TOP_COLUMN_##field]),
#include "tools/live/top_columns.def"
#undef TOP_COLUMN
#undef TOP_FIGURE
    };
    if (figures->limit == TOP_NO_LIMIT)
        cells[TOP_COLUMN_limit] = "-";
    if (subject->kind <= TOP_GROUP)
        cells[TOP_COLUMN_peak] = "-";
    return write_line(layout, cells, text);
}

void top_text_counts(const struct top_view *view, char *text, size_t size)
{
    snprintf(text, size, "%zu process%s, %zu group%s, %zu device%s", view->process_count,
             view->process_count == 1 ? "" : "es", view->group_count,
             view->group_count == 1 ? "" : "s", view->device_count,
             view->device_count == 1 ? "" : "s");
}

enum gc_status top_text_print(struct gc_writer *out, const struct top_view *view,
                              const struct top_order *order, unsigned width)
{
    char text[TOP_LINE_BYTES];
    struct top_layout layout;
    size_t count;
    size_t *rows = top_view_sort(view, order, &count);
    if (rows == NULL)
        return GC_NO_HOST_MEMORY;
    top_layout_init(&layout, view, width, columns_is_utf8());
    /* Text and JSON are one reading: there is no history. */
    layout.widths[TOP_COLUMN_HISTORY] = 0;
    top_text_head(&layout, text);
    gc_writer_text(out, text);
    gc_writer_char(out, '\n');
    for (size_t i = 0; i < count; i++) {
        top_text_row(&layout, view, rows[i], NULL, text);
        gc_writer_text(out, text);
        gc_writer_char(out, '\n');
    }
    free(rows);
    return GC_OK;
}

/* ---- readings kept for the history ---- */

static int compare_rows(const void *left, const void *right)
{
    const struct top_history_row *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->device > b->device) - (a->device < b->device);
}

static struct top_history_row *find(const struct top_history *history,
                                    const struct top_history_row *row)
{
    return history->count == 0
               ? NULL
               : bsearch(row, history->rows, history->count, sizeof(*history->rows), compare_rows);
}

static void add_sample(struct top_samples *samples, uint64_t value)
{
    if (samples->count == TOP_SAMPLES) {
        memmove(samples->values, samples->values + 1,
                (TOP_SAMPLES - 1) * sizeof(samples->values[0]));
        samples->count--;
    }
    samples->values[samples->count++] = value;
}

void top_history_add(struct top_history *history, const struct top_view *view)
{
    struct top_history_row *rows = malloc((view->account_count + 1) * sizeof(*rows));
    if (rows == NULL)
        return;
    for (size_t i = 0; i < view->account_count; i++) {
        const struct top_account *account = &view->accounts[i];
        rows[i] = (struct top_history_row){.key = view->subjects[account->subject].key,
                                           .device = account->device};
        const struct top_history_row *before = find(history, &rows[i]);
        if (before != NULL)
            rows[i].samples = before->samples;
        add_sample(&rows[i].samples, account->figures.reserved);
    }
    qsort(rows, view->account_count, sizeof(*rows), compare_rows);
    free(history->rows);
    history->rows = rows;
    history->count = view->account_count;
}

const struct top_samples *top_history_find(const struct top_history *history,
                                           const struct top_view *view, size_t account)
{
    const struct top_history_row row = {.key = view->subjects[view->accounts[account].subject].key,
                                        .device = view->accounts[account].device};
    const struct top_history_row *found = find(history, &row);
    return found != NULL ? &found->samples : NULL;
}

void top_history_fini(struct top_history *history)
{
    free(history->rows);
    *history = (struct top_history){.count = 0};
}
