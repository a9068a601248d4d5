/* The frame of the picture: axes, lines, legend, the list of the largest buffers. */
#include "core/io/text.h"
#include "tools/plan/plan_svg.h"

#include <stdlib.h>
#include <string.h>

#define TICKS_WANTED 8
#define COLUMN_COUNT (SVG_RIGHT - SVG_LEFT)
#define LEGEND_Y 782
#define LIST_TOP 92
#define LIST_STEP 46

static void write_line(const struct svg *svg, const char *kind, double x1, double y1, double x2,
                       double y2)
{
    gc_writer_text(svg->out, "<line class=\"");
    gc_writer_text(svg->out, kind);
    gc_writer_char(svg->out, '"');
    svg_attribute(svg->out, "x1", x1);
    svg_attribute(svg->out, "y1", y1);
    svg_attribute(svg->out, "x2", x2);
    svg_attribute(svg->out, "y2", y2);
    gc_writer_text(svg->out, "/>\n");
}

static void begin_text(const struct svg *svg, const char *kind, double x, double y)
{
    gc_writer_text(svg->out, "<text");
    if (kind != NULL) {
        gc_writer_text(svg->out, " class=\"");
        gc_writer_text(svg->out, kind);
        gc_writer_char(svg->out, '"');
    }
    svg_attribute(svg->out, "x", x);
    svg_attribute(svg->out, "y", y);
    gc_writer_char(svg->out, '>');
}

static void end_text(const struct svg *svg)
{
    gc_writer_text(svg->out, "</text>\n");
}

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten, so that a few steps make the range. */
static uint64_t decimal_step(uint64_t range)
{
    uint64_t step = 1;
    for (unsigned i = 0; range / step > TICKS_WANTED && step < UINT64_MAX / 10; i++)
        step = i % 3 == 1 ? step / 2 * 5 : step * 2;
    return step;
}

static uint64_t binary_step(uint64_t range)
{
    uint64_t step = 1;
    while (range / step > TICKS_WANTED && step <= UINT64_MAX / 4)
        step *= 2;
    return step;
}

static void write_byte_ticks(const struct svg *svg)
{
    const uint64_t step = binary_step(svg->end_byte - svg->from_byte);
    char size[GC_TEXT_SIZE_BYTES];
    for (uint64_t byte = svg->from_byte / step * step; byte <= svg->end_byte; byte += step) {
        if (byte < svg->from_byte)
            continue;
        const double y = svg_y(svg, byte);
        write_line(svg, "g", SVG_LEFT - 5, y, SVG_RIGHT, y);
        begin_text(svg, "e", SVG_LEFT - 8, y + 4);
        gc_writer_text(svg->out, gc_text_size(byte, size));
        end_text(svg);
        if (byte > UINT64_MAX - step)
            break;
    }
}

static void write_time_ticks(const struct svg *svg)
{
    const uint64_t step = decimal_step(svg->end_time - svg->first_time);
    for (uint64_t time = svg->first_time / step * step; time <= svg->end_time; time += step) {
        if (time >= svg->first_time) {
            const double x = svg_x(svg, time);
            write_line(svg, "g", x, SVG_TOP, x, SVG_BOTTOM + 5);
            begin_text(svg, "c", x, SVG_BOTTOM + 20);
            gc_writer_uint(svg->out, time);
            end_text(svg);
        }
        if (time > UINT64_MAX - step)
            break;
    }
    begin_text(svg, "c", (SVG_LEFT + SVG_RIGHT) / 2.0, SVG_BOTTOM + 40);
    svg_text(svg->out, svg->view->subject->time_unit, 80);
    end_text(svg);
    gc_writer_text(svg->out, "<text class=\"c\" transform=\"translate(20 ");
    svg_number(svg->out, (SVG_TOP + SVG_BOTTOM) / 2.0);
    gc_writer_text(svg->out, ") rotate(-90)\">address</text>\n");
}

void svg_axes(const struct svg *svg)
{
    write_byte_ticks(svg);
    write_time_ticks(svg);
}

/* ---- lines ---- */

/* A begin or an end of a buffer, in the order of time; live bytes are the maximum in each column of
 * pixels. */
struct change {
    uint64_t time;
    uint64_t bytes;
    bool begins;
};

static int compare_change(const void *a, const void *b)
{
    const struct change *x = a;
    const struct change *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (int)x->begins - (int)y->begins;
}

static unsigned column_of(const struct svg *svg, uint64_t time)
{
    const double x = svg_x(svg, time) - SVG_LEFT;
    return x >= COLUMN_COUNT ? COLUMN_COUNT - 1 : (unsigned)x;
}

static void fill_columns(const struct svg *svg, const struct change *changes, size_t count,
                         uint64_t *columns)
{
    uint64_t live = svg->from_byte;
    for (size_t i = 0; i < count; i++) {
        live = changes[i].begins ? live + changes[i].bytes : live - changes[i].bytes;
        if (i + 1 < count && changes[i + 1].time == changes[i].time)
            continue;
        const uint64_t end = i + 1 < count ? changes[i + 1].time : svg->end_time;
        for (unsigned at = column_of(svg, changes[i].time); at <= column_of(svg, end); at++) {
            if (columns[at] < live)
                columns[at] = live;
        }
    }
}

static void write_columns(const struct svg *svg, const uint64_t *columns)
{
    gc_writer_text(svg->out, "<path class=\"l\" d=\"M");
    gc_writer_uint(svg->out, SVG_LEFT);
    gc_writer_char(svg->out, ' ');
    svg_number(svg->out, svg_y(svg, columns[0]));
    for (unsigned i = 0; i < COLUMN_COUNT; i++) {
        if (i > 0 && columns[i] == columns[i - 1])
            continue;
        gc_writer_char(svg->out, 'H');
        gc_writer_uint(svg->out, SVG_LEFT + i);
        gc_writer_char(svg->out, 'V');
        svg_number(svg->out, svg_y(svg, columns[i]));
    }
    gc_writer_char(svg->out, 'H');
    gc_writer_uint(svg->out, SVG_RIGHT);
    gc_writer_text(svg->out, "\"/>\n");
}

static bool write_live(const struct svg *svg)
{
    const struct plan_subject *subject = svg->view->subject;
    const size_t count = (size_t)svg->order_count * 2;
    uint64_t *columns = calloc(COLUMN_COUNT, sizeof(*columns));
    struct change *changes = calloc(count + 1, sizeof(*changes));
    const bool is_done = columns != NULL && changes != NULL;
    for (uint32_t i = 0; is_done && i < svg->order_count; i++) {
        const struct gc_placement_buffer *buffer = &subject->buffers[subject->base_count + i];
        changes[2 * (size_t)i] = (struct change){buffer->lower, buffer->bytes, true};
        changes[2 * (size_t)i + 1] = (struct change){buffer->upper, buffer->bytes, false};
    }
    if (is_done) {
        qsort(changes, count, sizeof(*changes), compare_change);
        for (unsigned i = 0; i < COLUMN_COUNT; i++)
            columns[i] = svg->from_byte;
        fill_columns(svg, changes, count, columns);
        write_columns(svg, columns);
    }
    free(changes);
    free(columns);
    return is_done;
}

bool svg_lines(const struct svg *svg)
{
    const uint64_t bound = svg->view->result->lower_bound_bytes;
    const uint64_t capacity = svg->view->request->capacity_bytes;
    if (bound <= svg->end_byte)
        write_line(svg, "k", SVG_LEFT, svg_y(svg, bound), SVG_RIGHT, svg_y(svg, bound));
    if (capacity <= svg->end_byte)
        write_line(svg, "l", SVG_LEFT, svg_y(svg, capacity), SVG_RIGHT, svg_y(svg, capacity));
    return write_live(svg);
}

/* ---- legend ---- */

static double write_swatch(const struct svg *svg, double x, const char *colour, const char *text)
{
    gc_writer_text(svg->out, "<rect class=\"b\"");
    svg_attribute(svg->out, "x", x);
    svg_attribute(svg->out, "y", LEGEND_Y - 10);
    gc_writer_text(svg->out, " width=\"14\" height=\"12\" fill=\"");
    gc_writer_text(svg->out, colour);
    gc_writer_text(svg->out, "\"/>\n");
    begin_text(svg, NULL, x + 19, LEGEND_Y);
    gc_writer_text(svg->out, text);
    end_text(svg);
    return x + 19 + (double)strlen(text) * 6.6 + 18;
}

static double write_stroke(const struct svg *svg, double x, const char *kind, const char *text)
{
    write_line(svg, kind, x, LEGEND_Y - 4, x + 22, LEGEND_Y - 4);
    begin_text(svg, NULL, x + 27, LEGEND_Y);
    gc_writer_text(svg->out, text);
    end_text(svg);
    return x + 27 + (double)strlen(text) * 6.6 + 18;
}

void svg_legend(const struct svg *svg)
{
    const struct plan_subject *subject = svg->view->subject;
    double x = SVG_LEFT;
    for (uint32_t i = 0; i < subject->group_count; i++) {
        if (subject->group[i].count > 0)
            x = write_swatch(svg, x, svg_group_colour(i), subject->group[i].name);
    }
    if (svg->merged_count > 0)
        x = write_swatch(svg, x, "#6f7f8f", "small ones together");
    x = write_stroke(svg, x, "l", "live bytes");
    write_stroke(svg, x, "k", "lower bound");
    begin_text(svg, NULL, SVG_LEFT, LEGEND_Y + 22);
    gc_writer_uint(svg->out, svg->drawn_count);
    gc_writer_text(svg->out,
                   svg->drawn_count == 1 ? " buffer is drawn alone" : " buffers are drawn alone");
    if (subject->group_count > 0 && subject->group[0].count > 1)
        gc_writer_text(svg->out, ", in shades that distinguish neighbours");
    if (svg->merged_count > 0) {
        gc_writer_text(svg->out, "; ");
        gc_writer_uint(svg->out, svg->merged_count);
        gc_writer_text(svg->out, svg->merged_count == 1
                                     ? " is too small for that: a grey cell shows where it is"
                                     : " are too small for that: grey cells show where they are");
    }
    if (subject->base_count > 0) {
        gc_writer_text(svg->out, "; ");
        gc_writer_uint(svg->out, subject->base_count);
        gc_writer_text(svg->out, " are the bands at the bottom");
    }
    end_text(svg);
}

/* ---- the largest ---- */

static void write_badge(const struct svg *svg, uint32_t number, double x, double y)
{
    gc_writer_text(svg->out, "<circle r=\"8\" fill=\"#fff\" stroke=\"#222\"");
    svg_attribute(svg->out, "cx", x);
    svg_attribute(svg->out, "cy", y);
    gc_writer_text(svg->out, "/>\n");
    begin_text(svg, "in", x, y + 3.5);
    gc_writer_uint(svg->out, number);
    end_text(svg);
}

static void write_entry(const struct svg *svg, uint32_t index, double y)
{
    const struct plan_subject *subject = svg->view->subject;
    const struct gc_placement_buffer *buffer = &subject->buffers[index];
    char size[GC_TEXT_SIZE_BYTES];
    begin_text(svg, NULL, SVG_LIST_LEFT + 22, y);
    svg_text(svg->out, subject->labels[index].name, 36);
    end_text(svg);
    begin_text(svg, NULL, SVG_LIST_LEFT + 22, y + 16);
    gc_writer_text(svg->out, gc_text_size(buffer->bytes, size));
    gc_writer_text(svg->out, ", ");
    gc_writer_uint(svg->out, buffer->lower);
    gc_writer_text(svg->out, " to ");
    gc_writer_uint(svg->out, buffer->upper);
    if (subject->labels[index].kind != NULL) {
        gc_writer_text(svg->out, ", ");
        svg_text(svg->out, subject->labels[index].kind, 16);
    }
    end_text(svg);
}

void svg_named(const struct svg *svg)
{
    if (svg->named_count == 0)
        return;
    begin_text(svg, NULL, SVG_LIST_LEFT, SVG_TOP + 4);
    gc_writer_text(svg->out, "the largest");
    end_text(svg);
    for (uint32_t i = 0; i < svg->named_count; i++) {
        const uint32_t index = svg->named[i];
        const struct gc_placement_buffer *buffer = &svg->view->subject->buffers[index];
        const uint64_t offset = svg->view->result->offsets[index];
        const double x = (svg_x(svg, buffer->lower) + svg_x(svg, buffer->upper)) / 2;
        const double y = (svg_y(svg, offset) + svg_y(svg, offset + buffer->bytes)) / 2;
        write_badge(svg, i + 1, x, y);
        write_badge(svg, i + 1, SVG_LIST_LEFT + 8, LIST_TOP + i * LIST_STEP + 4);
        write_entry(svg, index, LIST_TOP + i * LIST_STEP);
    }
}
