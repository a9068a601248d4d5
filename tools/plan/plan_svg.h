/* The picture of a plan, inside: where things stand on it. */
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
    uint64_t from_byte; /* what the upper part begins with: the base is drawn apart */
    uint64_t end_byte;
    double floor;    /* y of from_byte */
    uint32_t *order; /* buffers above the base, the largest area first */
    uint32_t order_count;
    uint32_t drawn_count;
    uint32_t merged_count;
    uint32_t named[SVG_NAMED_MAX]; /* the largest of those drawn alone */
    uint32_t named_count;
};

double svg_x(const struct svg *svg, uint64_t time);
double svg_y(const struct svg *svg, uint64_t byte);
void svg_number(struct gc_writer *out, double value);
/* ` name="value"`. */
void svg_put(struct gc_writer *out, const char *name, double value);
/* Foreign text, cut to `most` characters, safe within XML. */
void svg_text(struct gc_writer *out, const char *text, size_t most);

/* Axes with their lines, behind everything. */
void svg_axes(const struct svg *svg);
/* Lines over everything: live bytes, lower bound, capacity. False without memory. */
bool svg_lines(const struct svg *svg);
/* The legend below and the largest buffers beside the picture. */
void svg_legend(const struct svg *svg);
void svg_named(const struct svg *svg);

const char *svg_group_colour(uint32_t group);

#endif
