/* A plan for people: the figures, then the largest buffers; 80 columns. */
#include "core/io/text.h"
#include "tools/plan/plan.h"

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

static void put_number(struct gc_out *out, size_t column, uint64_t value)
{
    char text[GC_NOTE_NUMBER_BYTES];
    gc_out_right(out, column, gc_note_number(value, text));
}

static void put_size(struct gc_out *out, const char *label, uint64_t bytes)
{
    char size[GC_TEXT_SIZE_BYTES];
    gc_out_text(out, label);
    gc_out_pad(out, LABEL_COLUMN);
    gc_out_right(out, SIZE_COLUMN, gc_text_size(bytes, size));
    put_number(out, BYTES_COLUMN, bytes);
}

/* ---- figures ---- */

static void put_head(struct gc_out *out, const struct plan_view *view)
{
    char shown[256];
    const char *path = view->request->path;
    gc_out_text(out, gc_text_show(path, strlen(path), shown, sizeof(shown)));
    gc_out_text(out, ": ");
    gc_out_text(out, view->subject->source->what);
    gc_out_text(out, ", ");
    gc_out_uint(out, view->subject->count);
    gc_out_text(out, view->subject->count == 1 ? " buffer\n\n" : " buffers\n\n");
}

static void put_groups(struct gc_out *out, const struct plan_subject *subject)
{
    if (subject->group_count < 2)
        return;
    for (uint32_t i = 0; i < subject->group_count; i++) {
        const struct plan_group *group = &subject->group[i];
        if (group->count == 0)
            continue;
        put_size(out, group->name, group->bytes);
        gc_out_text(out, "   in ");
        gc_out_uint(out, group->count);
        gc_out_text(out, group->count == 1 ? " buffer\n" : " buffers\n");
    }
}

static void put_ratio(struct gc_out *out, const struct plan_result *result)
{
    char text[GC_NOTE_NUMBER_BYTES + 8];
    const uint64_t ratio = plan_ratio(result);
    gc_out_text(out, "peak / bound");
    gc_out_pad(out, LABEL_COLUMN);
    memcpy(text, "0.0000", 7);
    const char *digits = gc_note_number(ratio / 10000, (char[GC_NOTE_NUMBER_BYTES]){0});
    const size_t length = strlen(digits);
    memcpy(text, digits, length + 1);
    text[length] = '.';
    for (unsigned i = 0, scale = 1000; i < 4; i++, scale /= 10)
        text[length + 1 + i] = (char)('0' + ratio / scale % 10);
    text[length + 5] = '\0';
    gc_out_right(out, SIZE_COLUMN, text);
    gc_out_text(out, result->optimal ? "   optimal\n" : "\n");
}

static void put_figures(struct gc_out *out, const struct plan_view *view)
{
    const struct plan_subject *subject = view->subject;
    const struct plan_result *result = view->result;
    put_size(out, "without reuse", subject->total_bytes);
    gc_out_text(out, "\n");
    put_size(out, "lower bound", result->lower_bound_bytes);
    gc_out_text(out, "\n");
    put_size(out, "peak", result->peak_bytes);
    gc_out_text(out, "\n");
    put_ratio(out, result);
    gc_out_text(out, "coverage");
    gc_out_pad(out, LABEL_COLUMN + 6);
    gc_out_fixed(out, subject->coverage_thousandths, 1);
    gc_out_text(out, "%\nsolved in");
    gc_out_pad(out, LABEL_COLUMN + 6);
    gc_out_fixed(out, result->solve_ns / 1000000, 3);
    gc_out_text(out, " s\n");
    if (view->request->capacity_bytes == GC_PLACEMENT_UNLIMITED)
        return;
    put_size(out, "capacity", view->request->capacity_bytes);
    gc_out_text(out, result->fits ? "   it fits\n" : "   it does not fit\n");
}

static void put_notes(struct gc_out *out, const struct gc_notes *notes)
{
    for (uint32_t i = 0; i < notes->count; i++) {
        gc_out_text(out, i == 0 ? "\n  " : "  ");
        gc_out_text(out, notes->texts[i]);
        gc_out_char(out, '\n');
    }
    if (notes->lost > 0) {
        gc_out_text(out, "  and ");
        gc_out_uint(out, notes->lost);
        gc_out_text(out, " more remarks\n");
    }
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

static void put_row(struct gc_out *out, const struct plan_view *view, uint32_t index)
{
    const struct gc_placement_buffer *buffer = &view->subject->buffers[index];
    const struct plan_label *label = &view->subject->labels[index];
    const size_t length = strlen(label->name);
    size_t cut = label->kind != NULL && length >= NAME_BYTES ? length - NAME_BYTES + 4 : 0;
    char shown[NAME_BYTES + KIND_BYTES];
    char size[GC_TEXT_SIZE_BYTES];
    /* Not within a character. */
    while (cut > 0 && ((unsigned char)label->name[cut] & 0xc0) == 0x80)
        cut++;
    gc_out_right(out, 10, gc_text_size(buffer->bytes, size));
    put_number(out, 26, view->result->offsets[index]);
    put_number(out, 35, buffer->lower);
    put_number(out, 44, buffer->upper);
    gc_out_text(out, "  ");
    if (label->kind != NULL) {
        gc_out_text(out, gc_text_show(label->kind, strlen(label->kind), shown, KIND_BYTES));
        gc_out_pad(out, NAME_COLUMN);
    }
    /* Names of one graph begin alike. */
    gc_out_text(out, cut > 0 ? "..." : "");
    gc_out_text(out, gc_text_show(label->name + cut, length - cut, shown,
                                  label->kind != NULL ? NAME_BYTES : sizeof(shown)));
    gc_out_char(out, '\n');
}

/* What stands at the bottom all the time is summed up above. */
static void put_largest(struct gc_out *out, const struct plan_view *view)
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
    gc_out_text(out, "\n      size          offset     from       to  largest first\n");
    for (uint32_t i = 0; i < count && i < ROWS_SHOWN; i++)
        put_row(out, view, order[i]);
    if (count > ROWS_SHOWN) {
        gc_out_text(out, "and ");
        gc_out_uint(out, count - ROWS_SHOWN);
        gc_out_text(out, " more: --output FILE has all of them, --svg FILE draws them\n");
    }
    free(order);
}

void plan_put_text(struct gc_out *out, const struct plan_view *view)
{
    put_head(out, view);
    put_groups(out, view->subject);
    put_figures(out, view);
    if (view->subject->source->put_text != NULL)
        view->subject->source->put_text(out, view->subject, view->result);
    put_notes(out, &view->subject->notes);
    put_largest(out, view);
}
