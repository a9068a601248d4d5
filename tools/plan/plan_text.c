/* A plan for people: the figures, then the largest buffers; 80 columns. */
#include "core/io/text.h"
#include "tools/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_SHOWN 20
#define NAME_COLUMN 57
#define LABEL_COLUMN 18
#define SIZE_COLUMN 30
#define BYTES_COLUMN 48
#define NAME_BYTES 25
#define KIND_BYTES 11

uint64_t plan_ratio(const struct plan_result *result)
{
    const uint64_t bound = result->lower_bound_bytes;
    if (bound == 0)
        return 10000;
    return (uint64_t)((double)result->peak_bytes / (double)bound * 10000.0 + 0.5);
}

/* A number in groups of three digits, in memory of the enclosing block. */
#define NUMBER(value) gc_note_number((value), (char[GC_NOTE_NUMBER_BYTES]){0})

void plan_write_size(struct gc_writer *out, const char *label, uint64_t bytes, const char *note)
{
    gc_writer_text(out, label);
    gc_writer_pad(out, LABEL_COLUMN);
    gc_writer_right_size(out, SIZE_COLUMN, bytes);
    gc_writer_right(out, BYTES_COLUMN, NUMBER(bytes));
    gc_writer_print(out, "%s\n", note);
}

/* ---- figures ---- */

static void write_head(struct gc_writer *out, const struct plan_view *view)
{
    char shown[256];
    const char *path = view->request->path;
    gc_writer_print(
        out, "%s: %s, %u buffer%s\n\n", gc_text_printable(path, strlen(path), shown, sizeof(shown)),
        view->subject->source->what, view->subject->count, view->subject->count == 1 ? "" : "s");
}

static void write_groups(struct gc_writer *out, const struct plan_subject *subject)
{
    if (subject->group_count < 2)
        return;
    for (uint32_t i = 0; i < subject->group_count; i++) {
        const struct plan_group *group = &subject->group[i];
        if (group->count == 0)
            continue;
        char note[48];
        (void)snprintf(note, sizeof(note), "   in %u buffer%s", group->count,
                       group->count == 1 ? "" : "s");
        plan_write_size(out, group->name, group->bytes, note);
    }
}

static void write_ratio(struct gc_writer *out, const struct plan_result *result)
{
    const unsigned ratio = (unsigned)(plan_ratio(result) % 10000);
    gc_writer_text(out, "peak / bound");
    gc_writer_pad(out, LABEL_COLUMN);
    gc_writer_right(out, SIZE_COLUMN - 5, NUMBER(plan_ratio(result) / 10000));
    gc_writer_print(out, ".%u%u%u%u%s\n", ratio / 1000, ratio / 100 % 10, ratio / 10 % 10,
                    ratio % 10, result->optimal ? "   optimal" : "");
}

static void write_figures(struct gc_writer *out, const struct plan_view *view)
{
    const struct plan_subject *subject = view->subject;
    const struct plan_result *result = view->result;
    plan_write_size(out, "without reuse", subject->total_bytes, "");
    plan_write_size(out, "lower bound", result->lower_bound_bytes, "");
    plan_write_size(out, "peak", result->peak_bytes, "");
    write_ratio(out, result);
    gc_writer_text(out, "coverage");
    gc_writer_pad(out, LABEL_COLUMN + 6);
    gc_writer_fixed(out, subject->coverage_thousandths, 1);
    gc_writer_text(out, "%\nsolved in");
    gc_writer_pad(out, LABEL_COLUMN + 6);
    gc_writer_fixed(out, result->solve_ns / 1000000, 3);
    gc_writer_text(out, " s\n");
    if (view->request->capacity_bytes != GC_PLACEMENT_UNLIMITED)
        plan_write_size(out, "capacity", view->request->capacity_bytes,
                        result->fits ? "   it fits" : "   it does not fit");
}

static void write_notes(struct gc_writer *out, const struct gc_notes *notes)
{
    for (uint32_t i = 0; i < notes->count; i++)
        gc_writer_print(out, "%s  %s\n", i == 0 ? "\n" : "", notes->texts[i]);
    if (notes->lost > 0)
        gc_writer_print(out, "  and %u more remarks\n", notes->lost);
}

/* ---- the largest ---- */

static const struct plan_subject *sorted; /* qsort has no argument for it */

static int compare_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    const uint64_t first = sorted->buffers[x].bytes;
    const uint64_t second = sorted->buffers[y].bytes;
    if (first != second)
        return first > second ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void write_row(struct gc_writer *out, const struct plan_view *view, uint32_t index)
{
    const struct gc_placement_buffer *buffer = &view->subject->buffers[index];
    const struct plan_label *label = &view->subject->labels[index];
    const size_t length = strlen(label->name);
    size_t cut = label->kind != NULL && length >= NAME_BYTES ? length - NAME_BYTES + 4 : 0;
    char shown[NAME_BYTES + KIND_BYTES];
    /* Do not cut inside a character. */
    while (cut > 0 && ((unsigned char)label->name[cut] & 0xc0) == 0x80)
        cut++;
    gc_writer_right_size(out, 10, buffer->bytes);
    gc_writer_right(out, 26, NUMBER(view->result->offsets[index]));
    gc_writer_right(out, 35, NUMBER(buffer->lower));
    gc_writer_right(out, 44, NUMBER(buffer->upper));
    gc_writer_text(out, "  ");
    if (label->kind != NULL) {
        gc_writer_text(out, gc_text_printable(label->kind, strlen(label->kind), shown, KIND_BYTES));
        gc_writer_pad(out, NAME_COLUMN);
    }
    /* Names in a graph share prefixes. */
    gc_writer_print(out, "%s%s\n", cut > 0 ? "..." : "",
                    gc_text_printable(label->name + cut, length - cut, shown,
                                      label->kind != NULL ? NAME_BYTES : sizeof(shown)));
}

/* Buffers that live all the time are in the sums above. */
static void write_largest(struct gc_writer *out, const struct plan_view *view)
{
    const uint32_t first = view->subject->base_count;
    const uint32_t count = view->subject->count - first;
    uint32_t *order = calloc((size_t)count + 1, sizeof(*order));
    if (order == NULL || count == 0) {
        free(order);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        order[i] = first + i;
    sorted = view->subject;
    qsort(order, count, sizeof(*order), compare_size);
    gc_writer_text(out, "\n      size          offset     from       to  largest first\n");
    for (uint32_t i = 0; i < count && i < ROWS_SHOWN; i++)
        write_row(out, view, order[i]);
    if (count > ROWS_SHOWN)
        gc_writer_print(out, "and %u more: --output FILE has all of them, --svg FILE draws them\n",
                        count - ROWS_SHOWN);
    free(order);
}

void plan_write_text(struct gc_writer *out, const struct plan_view *view)
{
    write_head(out, view);
    write_groups(out, view->subject);
    write_figures(out, view);
    if (view->subject->source->write_text != NULL)
        view->subject->source->write_text(out, view->subject, view->result);
    write_notes(out, &view->subject->notes);
    write_largest(out, view);
}
