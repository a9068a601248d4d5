/* The picture of a plan, internal: its measures and its parts. */
#ifndef GC_PLAN_SVG_H
#define GC_PLAN_SVG_H

#include "tools/plan/plan.h"

#define SVG_WIDTH 1400
#define SVG_HEIGHT 820
#define SVG_LEFT 96
#define SVG_RIGHT 1080
#define SVG_TOP 64
#define SVG_BOTTOM 720
#define SVG_LIST_LEFT 1110
#define SVG_NAMED_MAX 12

struct svg {
    struct gc_writer *out;
    const struct plan_view *view;
    uint64_t first_time;
    uint64_t end_time;
    uint64_t from_byte; /* lowest byte of the scaled part; the base is drawn apart */
    uint64_t end_byte;
    double floor;    /* y of from_byte */
    uint32_t *order; /* buffers above the base, the largest area first */
    uint32_t order_count;
    uint32_t drawn_count;
    uint32_t merged_count;
    uint32_t named[SVG_NAMED_MAX]; /* the largest of those drawn alone */
    uint32_t named_count;
};

/* plan_svg_draw.c */
double svg_x(const struct svg *svg, uint64_t time);
double svg_y(const struct svg *svg, uint64_t byte);
void svg_number(struct gc_writer *out, double value);
/* Writes ` name="value"`. */
void svg_attribute(struct gc_writer *out, const char *name, double value);
/* Text from a file, cut to `most` characters and escaped for XML. */
void svg_text(struct gc_writer *out, const char *text, size_t most);
const char *svg_group_colour(uint32_t group);

/* plan_svg_axes.c */
/* The axes and their grid, behind everything. */
void svg_axes(const struct svg *svg);
/* Live bytes, lower bound and capacity, over everything. False if memory runs out. */
bool svg_lines(const struct svg *svg);
/* The legend below the picture. */
void svg_legend(const struct svg *svg);
/* The list of the largest buffers beside the picture. */
void svg_named(const struct svg *svg);

#endif
