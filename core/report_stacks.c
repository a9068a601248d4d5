/* Where memory came from, in the report: the frames of a leak, and the sites with most at once. */
#include "core/report_stacks.h"

#include "core/bits.h"
#include "core/text.h"

#include <string.h>

#define TEXT_SITES 5
#define TEXT_FRAMES 4
#define TEXT_COLUMNS 72

static bool frame(const struct gc_report *report, uint32_t site, uint32_t index,
                  char text[GC_STACK_TEXT_BYTES])
{
    const struct gc_report_stacks *stacks = &report->stacks;
    return stacks->frame != NULL && site != 0 && stacks->frame(stacks->source, site, index, text);
}

void gc_report_json_stack(struct gc_json *json, const struct gc_report *report, uint32_t site)
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

void gc_report_json_sites(struct gc_json *json, const struct gc_report *report, uint32_t device)
{
    const struct gc_report_sites *sites = sites_of(report, device);
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < sites->count; i++) {
        const struct gc_stack_site *site = &sites->sites[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_put_uint(json, "count", site->count);
        gc_json_put_uint(json, "bytes", site->bytes);
        gc_json_put_uint(json, "current_count", site->live_count);
        gc_json_put_uint(json, "current_bytes", site->live_bytes);
        gc_json_put_uint(json, "peak_bytes", site->peak_bytes);
        gc_json_key(json, "stack");
        gc_report_json_stack(json, report, site->site);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

void gc_report_text_stack(struct gc_out *out, const struct gc_report *report, uint32_t site)
{
    char text[GC_STACK_TEXT_BYTES];
    char shown[TEXT_COLUMNS + 1];
    for (uint32_t i = 0; i < TEXT_FRAMES && frame(report, site, i, text); i++) {
        gc_out_text(out, "       ");
        gc_out_text(out, gc_text_show(text, strlen(text), shown, sizeof(shown)));
        gc_out_char(out, '\n');
    }
}

void gc_report_text_sites(struct gc_out *out, const struct gc_report *report, uint32_t device)
{
    const struct gc_report_sites *sites = sites_of(report, device);
    char size[GC_TEXT_SIZE_BYTES];
    if (sites->count == 0)
        return;
    gc_out_text(out, "   where most came from                       calls       peak    at exit\n");
    for (uint32_t i = 0; i < sites->count && i < TEXT_SITES; i++) {
        const struct gc_stack_site *site = &sites->sites[i];
        gc_out_text(out, "     site ");
        gc_out_uint(out, i + 1);
        gc_out_right_uint(out, 51, site->count);
        gc_out_right(out, 62, gc_text_size(site->peak_bytes, size));
        gc_out_right(out, 73, gc_text_size(site->live_bytes, size));
        gc_out_char(out, '\n');
        gc_report_text_stack(out, report, site->site);
    }
    if (sites->count > TEXT_SITES) {
        gc_out_text(out, "     ... and ");
        gc_out_uint(out, sites->count - TEXT_SITES);
        gc_out_text(out, sites->count == GC_REPORT_SITE_MAX ? " or more sites\n" : " more sites\n");
    }
}
