/* Call stacks in the report: the frames of a leak, and the call sites with the largest peaks. */
#include "core/report/tables.h"

#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

#define TEXT_SITES 5
#define TEXT_FRAMES 4
#define TEXT_COLUMNS 72
#define PATH_COLUMNS 40 /* at most, if the name is long, too */
#define CUT "..."

#define SITE(key, type, ...) GC_FIGURE(key, type, struct gc_stack_site, __VA_ARGS__)
static const struct gc_figure site_array[] = {
    SITE("count", COUNT, count, GC_CELL(51, "calls")),
    SITE("bytes", BYTES, bytes),
    SITE("current_count", COUNT, live_count),
    SITE("current_bytes", BYTES, live_bytes, GC_CELL(73, "at exit")),
    SITE("peak_bytes", BYTES, peak_bytes, GC_CELL(62, "peak")),
};
const struct gc_figures gc_report_site_figures = GC_FIGURES(site_array);

static bool frame(const struct gc_report *report, uint32_t site, uint32_t index,
                  char text[GC_STACK_TEXT_BYTES])
{
    const struct gc_report_stacks *stacks = &report->stacks;
    return stacks->frame != NULL && site != 0 && stacks->frame(stacks->source, site, index, text);
}

void gc_report_put_stack(struct gc_json *json, const struct gc_report *report, uint32_t site)
{
    char text[GC_STACK_TEXT_BYTES];
    gc_json_begin_array(json, GC_JSON_LINE);
    for (uint32_t i = 0; frame(report, site, i, text); i++)
        gc_json_string(json, text);
    gc_json_end_array(json);
}

static const struct gc_report_sites *sites_of(const struct gc_report *report, uint32_t device)
{
    static const struct gc_report_sites none = {NULL, 0};
    return report->stacks.sites != NULL ? &report->stacks.sites[device] : &none;
}

void gc_report_put_sites(struct gc_json *json, const struct gc_report *report, uint32_t device)
{
    const struct gc_report_sites *sites = sites_of(report, device);
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < sites->count; i++) {
        const struct gc_stack_site *site = &sites->sites[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_emitter_members(json, &gc_report_site_figures, site, NULL);
        gc_json_key(json, "stack");
        gc_report_put_stack(json, report, site->site);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

/* The index of the path: "name (PATH:LINE)", "name+0x1 (PATH+0x2)" or "PATH+0x2". */
static size_t path_start(const char *text)
{
    const char *open = NULL;
    for (const char *at = text; (at = strstr(at, " (")) != NULL; at += 2)
        open = at;
    if (open == NULL)
        return text[0] == '/' ? 0 : strlen(text);
    return (size_t)(open - text) + 2;
}

/* Shortens a frame to a line. A name keeps its beginning, a path its end. */
static const char *shorten(const char *text, char shown[TEXT_COLUMNS + 1])
{
    const size_t length = strlen(text);
    const size_t start = path_start(text);
    const size_t name = gc_min_u64(start, TEXT_COLUMNS - gc_min_u64(length - start, PATH_COLUMNS));
    if (length <= TEXT_COLUMNS || start == length)
        return gc_text_printable(text, length, shown, TEXT_COLUMNS + 1);
    gc_text_printable(text, start, shown, name + 1);
    if (name < start && name >= 2)
        memcpy(shown + name - 2, " (", sizeof(" ("));
    if (length - start <= TEXT_COLUMNS - name) {
        gc_text_printable(text + start, length - start, shown + name, TEXT_COLUMNS - name + 1);
        return shown;
    }
    const char *tail = text + length - (TEXT_COLUMNS - name - strlen(CUT));
    const char *folder = strchr(tail, '/');
    memcpy(shown + name, CUT, sizeof(CUT));
    tail = folder != NULL ? folder : tail;
    gc_text_printable(tail, strlen(tail), shown + name + strlen(CUT),
                      TEXT_COLUMNS + 1 - name - strlen(CUT));
    return shown;
}

static bool is_python(const char *text)
{
    const char *path = text + path_start(text);
    return strstr(path, ".py:") != NULL || path[0] == '<';
}

/* The number of inner frames to leave out, so that the program's own are shown. Below the first
 * Python frame lie frames of the interpreter and its extensions; only the innermost of them is
 * shown. */
static uint32_t count_inner(const struct gc_report *report, uint32_t site)
{
    char text[GC_STACK_TEXT_BYTES];
    for (uint32_t i = 0; frame(report, site, i, text); i++)
        if (is_python(text))
            return i == 0 ? 0 : i - 1;
    return 0;
}

void gc_report_print_stack(struct gc_writer *out, const struct gc_report *report, uint32_t site)
{
    char text[GC_STACK_TEXT_BYTES];
    char shown[TEXT_COLUMNS + 1];
    const uint32_t left_out = count_inner(report, site);
    for (uint32_t i = 0; i < TEXT_FRAMES; i++) {
        if (!frame(report, site, i == 0 ? 0 : i + left_out, text))
            break;
        gc_writer_text(out, "       ");
        gc_writer_text(out, shorten(text, shown));
        gc_writer_char(out, '\n');
    }
}

void gc_report_print_sites(struct gc_writer *out, const struct gc_report *report, uint32_t device)
{
    const struct gc_report_sites *sites = sites_of(report, device);
    if (sites->count == 0)
        return;
    gc_writer_text(out, "   largest call sites");
    gc_emitter_titles(out, &gc_report_site_figures);
    gc_writer_char(out, '\n');
    for (uint32_t i = 0; i < sites->count && i < TEXT_SITES; i++) {
        gc_writer_print(out, "     site %u", i + 1);
        gc_emitter_cells(out, &gc_report_site_figures, &sites->sites[i]);
        gc_writer_char(out, '\n');
        gc_report_print_stack(out, report, sites->sites[i].site);
    }
    if (sites->count > TEXT_SITES)
        gc_writer_print(out, "     ... and %u%s sites\n", sites->count - TEXT_SITES,
                        sites->count == GC_REPORT_SITE_MAX ? " or more" : " more");
}
