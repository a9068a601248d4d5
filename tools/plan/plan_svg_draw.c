/* The parts that every piece of the picture is made of: numbers, attributes, escaped text, the
 * scale. */
#include "core/io/text.h"
#include "core/reader/reader.h"
#include "tools/plan/plan_svg.h"

#include <string.h>

void svg_number(struct gc_writer *out, double value)
{
    if (value < 0) {
        gc_writer_char(out, '-');
        value = -value;
    }
    gc_writer_fixed(out, (uint64_t)(value * 10 + 0.5), 1);
}

void svg_attribute(struct gc_writer *out, const char *name, double value)
{
    gc_writer_char(out, ' ');
    gc_writer_text(out, name);
    gc_writer_text(out, "=\"");
    svg_number(out, value);
    gc_writer_char(out, '"');
}

/* Bytes of the character at `text`, of `left` bytes; 0: XML has no such character. */
static size_t character(const char *text, size_t left)
{
    const unsigned char first = (unsigned char)text[0];
    if (first < 0x80)
        return first >= ' ' && first != 0x7f;
    for (size_t length = 2; length <= 4 && length <= left; length++) {
        if (gc_reader_is_utf8(text, length))
            return memcmp(text, "\xef\xbf", 2) != 0 ? length : 0;
    }
    return 0;
}

void svg_text(struct gc_writer *out, const char *text, size_t most)
{
    size_t left = strlen(text);
    for (size_t shown = 0; left > 0 && shown < most; shown++) {
        const size_t length = character(text, left);
        if (shown + 1 == most && left > (length > 0 ? length : 1))
            gc_writer_text(out, "\xe2\x80\xa6");
        else if (length == 0)
            gc_writer_char(out, '?');
        else if (*text == '<')
            gc_writer_text(out, "&lt;");
        else if (*text == '>')
            gc_writer_text(out, "&gt;");
        else if (*text == '&')
            gc_writer_text(out, "&amp;");
        else
            gc_writer_bytes(out, text, length);
        text += length > 0 ? length : 1;
        left -= length > 0 ? length : 1;
    }
}

double svg_x(const struct svg *svg, uint64_t time)
{
    return SVG_LEFT + (double)(time - svg->first_time) * (SVG_RIGHT - SVG_LEFT) /
                          (double)(svg->end_time - svg->first_time);
}

double svg_y(const struct svg *svg, uint64_t byte)
{
    const uint64_t above = byte > svg->from_byte ? byte - svg->from_byte : 0;
    return svg->floor -
           (double)above * (svg->floor - SVG_TOP) / (double)(svg->end_byte - svg->from_byte);
}

/* Activations, weights, inputs, outputs: distinct in grey and for most colour-blind readers. */
const char *svg_group_colour(uint32_t group)
{
    static const char *const colours[PLAN_GROUP_MAX] = {"#8fbce6", "#c9c9c9", "#a8d5a2", "#f2c078"};
    return colours[group % PLAN_GROUP_MAX];
}
