/* The report's lists: entry points, calls that reached the driver, direct memory, leaks; the
 * largest first, and how many more there are. */
#include "core/report/report_lists.h"

#include "core/io/text.h"
#include "core/report/report_stacks.h"

#include <string.h>

#define LIST_MAX 10 /* entry points and leaks shown of each device */
#define NAME_COLUMNS 34

const char *gc_report_shown(const char *text, size_t columns, char *to)
{
    return gc_text_show(text != NULL ? text : "?", text != NULL ? strlen(text) : 1, to,
                        columns + 1);
}

static void put_count(struct gc_out *out, const char *before, uint64_t count, const char *after)
{
    gc_out_text(out, before);
    gc_out_uint(out, count);
    gc_out_text(out, after);
}

/* Walks entry points from the largest `key` down; equal ones in the table's order. */
struct ranking {
    const void *figures;
    uint16_t count;
    uint64_t (*key)(const void *figures, int i);
    int last; /* the one given before, -1 at first */
};

static int rank_next(struct ranking *ranking)
{
    int best = -1;
    for (int i = 0; i < ranking->count; i++) {
        const uint64_t value = ranking->key(ranking->figures, i);
        if (value == 0)
            continue;
        if (ranking->last >= 0) {
            const uint64_t last = ranking->key(ranking->figures, ranking->last);
            if (value > last || (value == last && i <= ranking->last))
                continue;
        }
        if (best < 0 || value > ranking->key(ranking->figures, best))
            best = i;
    }
    ranking->last = best;
    return best;
}

static uint64_t key_bytes(const void *figures, int i)
{
    const struct gc_api_figures *api = (const struct gc_api_figures *)figures + i;
    return api->count > 0 ? api->peak_bytes + 1 : 0;
}

static uint64_t key_calls(const void *figures, int i)
{
    return ((const struct gc_api_figures *)figures)[i].driver_calls;
}

static uint64_t key_process_calls(const void *figures, int i)
{
    return ((const uint64_t *)figures)[i];
}

static void write_more(struct gc_out *out, uint64_t more)
{
    if (more > 0)
        put_count(out, "     ... and ", more, " more\n");
}

void gc_report_text_apis(struct gc_out *out, const struct gc_report *report,
                         const struct gc_device_snapshot *device)
{
    struct ranking ranking = {device->apis, report->snapshot->api_count, key_bytes, -1};
    char name[NAME_COLUMNS + 1];
    uint64_t listed = 0;
    for (int i = rank_next(&ranking); i >= 0; i = rank_next(&ranking)) {
        const struct gc_api_figures *api = &device->apis[i];
        if (listed++ >= LIST_MAX)
            continue;
        if (listed == 1) {
            gc_out_text(out, "   entry point");
            gc_out_right(out, 46, "calls");
            gc_out_right(out, 57, "asked for");
            gc_out_right(out, 68, "peak");
            gc_out_right(out, 79, "at exit");
            gc_out_char(out, '\n');
        }
        gc_out_text(out, "     ");
        gc_out_text(out, gc_report_shown(report->api_names[i], NAME_COLUMNS - 1, name));
        gc_out_right_uint(out, 46, api->count);
        gc_out_right_size(out, 57, api->bytes);
        gc_out_right_size(out, 68, api->peak_bytes);
        gc_out_right_size(out, 79, api->current_bytes);
        gc_out_char(out, '\n');
    }
    write_more(out, listed > LIST_MAX ? listed - LIST_MAX : 0);
}

static void write_calls(struct gc_out *out, const struct gc_report *report, const char *title,
                        struct ranking *ranking)
{
    char name[NAME_COLUMNS + 1];
    uint64_t listed = 0;
    uint64_t rest = 0;
    for (int i = rank_next(ranking); i >= 0; i = rank_next(ranking)) {
        const uint64_t calls = ranking->key(ranking->figures, i);
        if (listed++ >= LIST_MAX) {
            rest += calls;
            continue;
        }
        if (listed == 1)
            gc_out_text(out, title);
        gc_out_text(out, "     ");
        gc_out_text(out, gc_report_shown(report->api_names[i], NAME_COLUMNS - 1, name));
        gc_out_right_uint(out, 46, calls);
        gc_out_char(out, '\n');
    }
    if (rest > 0) {
        put_count(out, "     ... and ", listed - LIST_MAX,
                  listed == LIST_MAX + 1 ? " more entry point" : " more entry points");
        gc_out_right_uint(out, 46, rest);
        gc_out_char(out, '\n');
    }
}

void gc_report_text_calls(struct gc_out *out, const struct gc_report *report,
                          const struct gc_device_snapshot *device)
{
    struct ranking ranking = {device->apis, report->snapshot->api_count, key_calls, -1};
    write_calls(out, report, "   calls that reached the driver\n", &ranking);
}

void gc_report_text_process_calls(struct gc_out *out, const struct gc_report *report)
{
    struct ranking ranking = {report->snapshot->process_driver_calls, report->snapshot->api_count,
                              key_process_calls, -1};
    write_calls(out, report, "   calls that reached the driver, of no one device\n", &ranking);
}

void gc_report_text_direct(struct gc_out *out, const struct gc_device_snapshot *device)
{
    bool any = false;
    for (int kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++) {
        if (device->direct_bytes[kind] == 0)
            continue;
        if (!any)
            gc_out_text(out, "   outside the pool, at exit\n");
        any = true;
        gc_out_text(out, "     ");
        gc_out_text(out, gc_report_direct_text((enum gc_direct_kind)kind));
        gc_out_right_size(out, 68, device->direct_bytes[kind]);
        gc_out_char(out, '\n');
    }
}

void gc_report_text_leaks(struct gc_out *out, const struct gc_report *report, uint32_t index)
{
    const struct gc_device_snapshot *device = &report->snapshot->devices[index];
    const struct gc_report_leaks *leaks = &report->leaks[index];
    char name[NAME_COLUMNS + 1];
    char size[GC_TEXT_SIZE_BYTES];
    if (device->leak_count == 0)
        return;
    gc_out_style(out, GC_STYLE_ALERT);
    put_count(out, "   never freed: ", device->leak_count,
              device->leak_count == 1 ? " allocation, " : " allocations, ");
    gc_out_text(out, gc_text_size(device->leak_bytes, size));
    gc_out_style(out, GC_STYLE_PLAIN);
    gc_out_char(out, '\n');
    const uint32_t listed = leaks->count < LIST_MAX ? leaks->count : LIST_MAX;
    for (uint32_t i = 0; i < listed; i++) {
        const struct gc_leak *leak = &leaks->leaks[i];
        gc_out_text(out, "     ");
        gc_out_hex(out, leak->address);
        gc_out_right_size(out, 37, leak->bytes);
        gc_out_text(out, "  ");
        gc_out_text(out, gc_report_shown(leak->api < report->snapshot->api_count
                                             ? report->api_names[leak->api]
                                             : "?",
                                         NAME_COLUMNS, name));
        gc_out_char(out, '\n');
        gc_report_text_stack(out, report, leak->site);
    }
    write_more(out, device->leak_count > listed ? device->leak_count - listed : 0);
}
