/* Call stacks in the report: their frames, which of them is the program's own, and the call sites
 * with the largest peaks. */
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
        gc_report_put_own(json, report, site->site);
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

/* ---- the program's own frame ---- */

/* The object or source of a frame: "/lib/libc.so.6", "/home/train.py", "<string>", "train.c". */
struct place {
    const char *path;
    size_t length;
    const char *name; /* the last component of the path */
    bool is_python;
    bool is_address; /* an address alone: code that is in no object */
};

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static struct place place_of(const char *text)
{
    struct place place = {.path = text + path_start(text), .is_address = begins(text, "0x")};
    const char *end = strstr(place.path, "+0x");
    const char *line = strrchr(place.path, ':');
    place.is_python = strstr(place.path, ".py:") != NULL || place.path[0] == '<';
    if (end == NULL || place.is_python)
        end = line != NULL ? line : place.path + strcspn(place.path, ")");
    place.length = (size_t)(end - place.path);
    place.name = place.path;
    for (const char *at = place.path; at < end; at++)
        if (*at == '/')
            place.name = at + 1;
    return place;
}

/* Whether the place's path has the text anywhere. */
static bool has_part(const struct place *place, const char *part)
{
    const char *found = strstr(place->path, part);
    return found != NULL && found < place->path + place->length;
}

static bool is_package(const struct place *place)
{
    return has_part(place, "/site-packages/") || has_part(place, "/dist-packages/");
}

/* How near to the program's own code a frame is. */
enum nearness { NEAR_RUNTIME = 1, NEAR_LIBRARY, NEAR_OWN };

/* Python's own modules lie in a folder of their version; "<frozen …>" is part of the interpreter.
 */
static enum nearness python_nearness(const struct place *place)
{
    return is_package(place) || has_part(place, "/lib/python") || begins(place->path, "<frozen ")
               ? NEAR_LIBRARY
               : NEAR_OWN;
}

/* An object without ".so" in its name is a program. */
static enum nearness native_nearness(const struct place *place)
{
    static const char *const runtimes[] = {
        "libgpucache", "libcu",    "libnv",     "libnccl",   "libc10", "libtorch",
        "libffi.",     "_ctypes.", "_cffi",     "libpython", "python", "pypy",
        "libc.",       "libc-",    "libm.",     "libdl.",    "libdl-", "libpthread",
        "ld-",         "libgcc_s", "libstdc++", "libc++"};
    static const char *const folders[] = {"/lib/",       "/lib64/",         "/usr/lib/",
                                          "/usr/lib64/", "/usr/local/cuda", "/opt/cuda"};
    if (place->length == 0)
        return place->is_address ? NEAR_RUNTIME : NEAR_LIBRARY;
    for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++)
        if (begins(place->name, runtimes[i]))
            return NEAR_RUNTIME;
    if (!has_part(place, ".so"))
        return NEAR_OWN;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        if (begins(place->path, folders[i]))
            return NEAR_LIBRARY;
    return is_package(place) ? NEAR_LIBRARY : NEAR_OWN;
}

/* The innermost of the nearest frames so far. */
struct nearest {
    uint32_t index;
    enum nearness nearness; /* 0: no frame yet */
};

uint32_t gc_report_find_own(bool (*frame_of)(const void *source, uint32_t site, uint32_t index,
                                             char text[GC_STACK_TEXT_BYTES]),
                            const void *source, uint32_t site)
{
    char text[GC_STACK_TEXT_BYTES];
    struct nearest python = {0, 0};
    struct nearest native = {0, 0};
    for (uint32_t i = 0; frame_of(source, site, i, text); i++) {
        const struct place place = place_of(text);
        struct nearest *nearest = place.is_python ? &python : &native;
        const enum nearness nearness =
            place.is_python ? python_nearness(&place) : native_nearness(&place);
        if (nearness > nearest->nearness)
            *nearest = (struct nearest){i, nearness};
    }
    return python.nearness != 0 ? python.index : native.index;
}

static uint32_t own_index(const struct gc_report *report, uint32_t site)
{
    const struct gc_report_stacks *stacks = &report->stacks;
    if (stacks->frame == NULL || site == 0)
        return 0;
    if (stacks->own != NULL)
        return stacks->own(stacks->source, site);
    return gc_report_find_own(stacks->frame, stacks->source, site);
}

bool gc_report_outer_frame(const struct gc_report *report, uint32_t site, uint32_t index,
                           char text[GC_STACK_TEXT_BYTES])
{
    return frame(report, site, own_index(report, site) + index, text);
}

bool gc_report_short_frame(const struct gc_report *report, uint32_t site,
                           char text[GC_STACK_TEXT_BYTES])
{
    if (!gc_report_outer_frame(report, site, 0, text))
        return false;
    const struct place place = place_of(text);
    char *path = text + (place.path - text);
    memmove(path, place.name, strlen(place.name) + 1);
    char *offset = strstr(path, "+0x"); /* in the object, behind that in the function */
    if (path != text && offset != NULL)
        memmove(offset, offset + strcspn(offset, ")"), strlen(offset + strcspn(offset, ")")) + 1);
    return true;
}

void gc_report_put_own(struct gc_json *json, const struct gc_report *report, uint32_t site)
{
    char text[GC_STACK_TEXT_BYTES];
    gc_json_key(json, "frame");
    if (gc_report_outer_frame(report, site, 0, text))
        gc_json_string(json, text);
    else
        gc_json_null(json);
}

void gc_report_print_stack(struct gc_writer *out, const struct gc_report *report, uint32_t site)
{
    char text[GC_STACK_TEXT_BYTES];
    char shown[TEXT_COLUMNS + 1];
    for (uint32_t i = 0; i < TEXT_FRAMES && gc_report_outer_frame(report, site, i, text); i++) {
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
