/* The picture of a plan: time across, address up.
 *
 * Each buffer is a box. The buffers that live all the time are bands at the bottom, not to scale.
 * Boxes too small to be seen, and those beyond BOXES_MAX, are painted together on a grid of cells;
 * the legend counts them. The largest buffers are numbered and listed beside the picture. */
#include "tools/plan/plan_svg.h"
#include "core/io/text.h"
#include "core/reader/reader.h"

#include <stdlib.h>
#include <string.h>

#define BOXES_MAX 3000
#define AREA_MIN 6.0 /* pixels of the smallest box that is drawn alone */
#define CELL 3
#define COLUMNS ((SVG_RIGHT - SVG_LEFT) / CELL + 1)
#define ROWS ((SVG_BOTTOM - SVG_TOP) / CELL + 1)
#define BAND 22.0 /* height of a group at the bottom */

/* ---- boxes ---- */

/* Shades of one colour distinguish neighbours. */
static const char *shade(uint32_t index)
{
    static const char *const shades[] = {"#8fbce6", "#a9d0f0", "#7aa9d6", "#bcd9ef", "#94b4d4"};
    return shades[(index * 2654435761U >> 16) % (sizeof(shades) / sizeof(shades[0]))];
}

struct box {
    double x;
    double y;
    double width;
    double height;
};

static struct box box_of(const struct svg *svg, uint32_t index)
{
    const struct gc_placement_buffer *buffer = &svg->view->subject->buffers[index];
    const uint64_t offset = svg->view->result->offsets[index];
    const double x = svg_x(svg, buffer->lower);
    const double y = svg_y(svg, offset + buffer->bytes);
    return (struct box){x, y, svg_x(svg, buffer->upper) - x, svg_y(svg, offset) - y};
}

static void write_title(const struct svg *svg, uint32_t index)
{
    const struct plan_subject *subject = svg->view->subject;
    const struct gc_placement_buffer *buffer = &subject->buffers[index];
    char size[GC_TEXT_SIZE_BYTES];
    gc_writer_text(svg->out, "<title>");
    svg_text(svg->out, subject->labels[index].name, 100);
    if (subject->labels[index].kind != NULL) {
        gc_writer_text(svg->out, " (");
        svg_text(svg->out, subject->labels[index].kind, 40);
        gc_writer_char(svg->out, ')');
    }
    gc_writer_text(svg->out, ": ");
    gc_writer_text(svg->out, gc_text_size(buffer->bytes, size));
    gc_writer_text(svg->out, " at ");
    gc_writer_uint(svg->out, svg->view->result->offsets[index]);
    gc_writer_text(svg->out, ", from ");
    gc_writer_uint(svg->out, buffer->lower);
    gc_writer_text(svg->out, " to ");
    gc_writer_uint(svg->out, buffer->upper);
    gc_writer_text(svg->out, "</title>");
}

/* Writes the name inside the box, along its longer side, if it fits. */
static void write_name(const struct svg *svg, const struct box *box, const char *name)
{
    const double long_side = box->width > box->height ? box->width : box->height;
    const double short_side = box->width > box->height ? box->height : box->width;
    if (short_side < 12 || long_side < 48)
        return;
    gc_writer_text(svg->out, "<text class=\"in\" transform=\"translate(");
    svg_number(svg->out, box->x + box->width / 2);
    gc_writer_char(svg->out, ' ');
    svg_number(svg->out, box->y + box->height / 2);
    gc_writer_text(svg->out,
                   box->width >= box->height ? ")\" dy=\"3.5\">" : ") rotate(-90)\" dy=\"3.5\">");
    svg_text(svg->out, name, (size_t)(long_side / 6.2));
    gc_writer_text(svg->out, "</text>\n");
}

/* A named buffer has its number where its name would be. */
static bool is_named(const struct svg *svg, uint32_t index)
{
    for (uint32_t i = 0; i < svg->named_count; i++) {
        if (svg->named[i] == index)
            return true;
    }
    return false;
}

static void write_box(const struct svg *svg, uint32_t index)
{
    const struct plan_subject *subject = svg->view->subject;
    const uint32_t group = subject->groups != NULL ? subject->groups[index] : 0;
    struct box box = box_of(svg, index);
    if (box.width < 0.6)
        box.width = 0.6;
    gc_writer_text(svg->out, "<rect class=\"b\"");
    svg_attribute(svg->out, "x", box.x);
    svg_attribute(svg->out, "y", box.y);
    svg_attribute(svg->out, "width", box.width);
    svg_attribute(svg->out, "height", box.height);
    gc_writer_text(svg->out, " fill=\"");
    gc_writer_text(svg->out, group == 0 ? shade(index) : svg_group_colour(group));
    /* An outline would fill a box of a few pixels. */
    gc_writer_text(svg->out, box.width < 6 || box.height < 6 ? "\" stroke=\"none\">" : "\">");
    write_title(svg, index);
    gc_writer_text(svg->out, "</rect>\n");
    if (!is_named(svg, index))
        write_name(svg, &box, subject->labels[index].name);
}

/* ---- small boxes, painted together ---- */

static unsigned cell_of(double value, unsigned origin, unsigned most)
{
    const double cell = (value - origin) / CELL;
    return cell < 0 ? 0 : cell >= most ? most - 1 : (unsigned)cell;
}

static void paint(const struct svg *svg, uint32_t index, unsigned char *cells)
{
    const struct box box = box_of(svg, index);
    const unsigned right = cell_of(box.x + box.width, SVG_LEFT, COLUMNS);
    const unsigned bottom = cell_of(box.y + box.height, SVG_TOP, ROWS);
    for (unsigned row = cell_of(box.y, SVG_TOP, ROWS); row <= bottom; row++)
        memset(cells + (size_t)row * COLUMNS + cell_of(box.x, SVG_LEFT, COLUMNS), 1,
               right - cell_of(box.x, SVG_LEFT, COLUMNS) + 1);
}

static void write_cells(const struct svg *svg, const unsigned char *cells)
{
    gc_writer_text(svg->out, "<path class=\"m\" d=\"");
    for (unsigned row = 0; row < ROWS; row++) {
        const unsigned char *line = cells + (size_t)row * COLUMNS;
        for (unsigned at = 0; at < COLUMNS;) {
            unsigned end = at;
            while (end < COLUMNS && line[end] != 0)
                end++;
            if (end > at) {
                gc_writer_char(svg->out, 'M');
                gc_writer_uint(svg->out, SVG_LEFT + at * CELL);
                gc_writer_char(svg->out, ' ');
                gc_writer_uint(svg->out, SVG_TOP + row * CELL);
                gc_writer_char(svg->out, 'h');
                gc_writer_uint(svg->out, (end - at) * CELL);
                gc_writer_text(svg->out, "v3h-");
                gc_writer_uint(svg->out, (end - at) * CELL);
                gc_writer_char(svg->out, 'z');
            }
            at = end + 1;
        }
    }
    gc_writer_text(svg->out, "\"/>\n");
}

static bool write_merged(struct svg *svg, uint32_t first)
{
    unsigned char *cells = calloc((size_t)COLUMNS * ROWS, 1);
    if (cells == NULL)
        return false;
    for (uint32_t i = first; i < svg->order_count; i++)
        paint(svg, svg->order[i], cells);
    svg->merged_count = svg->order_count - first;
    if (svg->merged_count > 0)
        write_cells(svg, cells);
    free(cells);
    return true;
}

/* ---- order ---- */

static const struct svg *sorted; /* qsort has no argument for it */

static double area_of(const struct svg *svg, uint32_t index)
{
    const struct box box = box_of(svg, index);
    return box.width * box.height;
}

static int compare_area(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    const double first = area_of(sorted, x);
    const double second = area_of(sorted, y);
    if (first != second)
        return first > second ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int compare_size(const void *a, const void *b)
{
    const struct gc_placement_buffer *buffers = sorted->view->subject->buffers;
    const uint64_t x = buffers[*(const uint32_t *)a].bytes;
    const uint64_t y = buffers[*(const uint32_t *)b].bytes;
    if (x != y)
        return x > y ? -1 : 1;
    return compare_area(a, b);
}

static bool set_order(struct svg *svg)
{
    const struct plan_subject *subject = svg->view->subject;
    svg->order_count = subject->count - subject->base_count;
    svg->order = calloc((size_t)svg->order_count + 1, sizeof(*svg->order));
    if (svg->order == NULL)
        return false;
    for (uint32_t i = 0; i < svg->order_count; i++)
        svg->order[i] = subject->base_count + i;
    sorted = svg;
    qsort(svg->order, svg->order_count, sizeof(*svg->order), compare_area);
    return true;
}

/* ---- the picture ---- */

static void set_scale(struct svg *svg)
{
    const struct plan_subject *subject = svg->view->subject;
    const struct plan_result *result = svg->view->result;
    const bool has_capacity = svg->view->request->capacity_bytes != GC_PLACEMENT_UNLIMITED;
    svg->first_time = subject->count > 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < subject->count; i++) {
        if (subject->buffers[i].lower < svg->first_time)
            svg->first_time = subject->buffers[i].lower;
        if (subject->buffers[i].upper > svg->end_time)
            svg->end_time = subject->buffers[i].upper;
    }
    if (svg->end_time <= svg->first_time)
        svg->end_time = svg->first_time + 1;
    svg->from_byte = subject->base_bytes;
    svg->end_byte = result->peak_bytes;
    /* A capacity far above the peak would flatten the plan. */
    if (has_capacity && svg->view->request->capacity_bytes / 2 < svg->end_byte &&
        svg->view->request->capacity_bytes > svg->end_byte)
        svg->end_byte = svg->view->request->capacity_bytes;
    if (svg->end_byte <= svg->from_byte)
        svg->end_byte = svg->from_byte + 1;
    svg->floor = SVG_BOTTOM;
    for (uint32_t i = 1; i < subject->group_count; i++) {
        if (subject->base_count > 0 && subject->group[i].count > 0)
            svg->floor -= BAND;
    }
}

/* Writes a band for each group of the buffers at the bottom. */
static void write_base(const struct svg *svg)
{
    const struct plan_subject *subject = svg->view->subject;
    char size[GC_TEXT_SIZE_BYTES];
    double y = SVG_BOTTOM;
    for (uint32_t i = 1; i < subject->group_count && subject->base_count > 0; i++) {
        const struct plan_group *group = &subject->group[i];
        if (group->count == 0)
            continue;
        y -= BAND;
        gc_writer_text(svg->out, "<rect class=\"b\"");
        svg_attribute(svg->out, "x", SVG_LEFT);
        svg_attribute(svg->out, "y", y);
        svg_attribute(svg->out, "width", SVG_RIGHT - SVG_LEFT);
        svg_attribute(svg->out, "height", BAND);
        gc_writer_text(svg->out, " fill=\"");
        gc_writer_text(svg->out, svg_group_colour(i));
        gc_writer_text(svg->out, "\"/>\n<text class=\"in\"");
        svg_attribute(svg->out, "x", (SVG_LEFT + SVG_RIGHT) / 2.0);
        svg_attribute(svg->out, "y", y + BAND / 2 + 3.5);
        gc_writer_char(svg->out, '>');
        svg_text(svg->out, group->name, 40);
        gc_writer_text(svg->out, ": ");
        gc_writer_text(svg->out, gc_text_size(group->bytes, size));
        gc_writer_text(svg->out, " in ");
        gc_writer_uint(svg->out, group->count);
        gc_writer_text(svg->out, group->count == 1 ? " buffer" : " buffers");
        gc_writer_text(svg->out, ", not to scale</text>\n");
    }
}

static void write_heading(const struct svg *svg)
{
    const struct plan_view *view = svg->view;
    const char *slash = strrchr(view->request->path, '/');
    const char *name = slash != NULL ? slash + 1 : view->request->path;
    char size[GC_TEXT_SIZE_BYTES];
    gc_writer_text(
        svg->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1400 820\" width=\"1400\" "
        "height=\"820\" role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">Memory plan of ");
    svg_text(svg->out, name, 80);
    gc_writer_text(svg->out, "</title>\n<desc id=\"d\">");
    gc_writer_uint(svg->out, view->subject->count);
    gc_writer_text(svg->out, " buffers; time goes from left to right, addresses go up. Peak ");
    gc_writer_uint(svg->out, view->result->peak_bytes);
    gc_writer_text(svg->out, " bytes, lower bound ");
    gc_writer_uint(svg->out, view->result->lower_bound_bytes);
    gc_writer_text(svg->out, " bytes, without reuse ");
    gc_writer_uint(svg->out, view->subject->total_bytes);
    gc_writer_text(
        svg->out,
        " bytes.</desc>\n<style>text{font:12px sans-serif;fill:#222}.h{font-size:17px;font-weight:"
        "bold}.in{font-size:10px;text-anchor:middle;pointer-events:none}"
        ".e{text-anchor:end}.c{text-anchor:middle}.b{stroke:#35506b;stroke-width:.5}.m{fill:#6f7f8f}"
        ".g{stroke:#ddd}.l{fill:none;stroke:#b3261e;stroke-width:1.5}.k{stroke:#222;"
        "stroke-dasharray:6 4}</style>\n<rect width=\"1400\" height=\"820\" fill=\"#fff\"/>\n"
        "<text class=\"h\" x=\"96\" y=\"28\">");
    svg_text(svg->out, name, 80);
    gc_writer_text(svg->out, "</text>\n<text x=\"96\" y=\"48\">peak ");
    gc_writer_text(svg->out, gc_text_size(view->result->peak_bytes, size));
    gc_writer_text(svg->out, ", lower bound ");
    gc_writer_text(svg->out, gc_text_size(view->result->lower_bound_bytes, size));
    gc_writer_text(svg->out, ", without reuse ");
    gc_writer_text(svg->out, gc_text_size(view->subject->total_bytes, size));
    gc_writer_text(svg->out,
                   view->result->optimal ? "; no plan has a lower peak</text>\n" : "</text>\n");
}

/* Chooses the boxes that are drawn alone, and those with a number. */
static bool choose(struct svg *svg)
{
    uint32_t *by_size;
    while (svg->drawn_count < svg->order_count && svg->drawn_count < BOXES_MAX &&
           area_of(svg, svg->order[svg->drawn_count]) >= AREA_MIN)
        svg->drawn_count++;
    by_size = calloc((size_t)svg->drawn_count + 1, sizeof(*by_size));
    if (by_size == NULL)
        return false;
    memcpy(by_size, svg->order, svg->drawn_count * sizeof(*by_size));
    qsort(by_size, svg->drawn_count, sizeof(*by_size), compare_size);
    while (svg->named_count < svg->drawn_count && svg->named_count < SVG_NAMED_MAX) {
        svg->named[svg->named_count] = by_size[svg->named_count];
        svg->named_count++;
    }
    free(by_size);
    return true;
}

bool plan_write_svg(struct gc_writer *out, const struct plan_view *view)
{
    struct svg svg = {.out = out, .view = view};
    set_scale(&svg);
    bool is_done = set_order(&svg) && choose(&svg);
    write_heading(&svg);
    svg_axes(&svg);
    is_done = is_done && write_merged(&svg, svg.drawn_count);
    for (uint32_t i = 0; i < svg.drawn_count; i++)
        write_box(&svg, svg.order[i]);
    write_base(&svg);
    is_done = is_done && svg_lines(&svg);
    svg_named(&svg);
    svg_legend(&svg);
    gc_writer_text(out, "</svg>\n");
    free(svg.order);
    return is_done;
}
