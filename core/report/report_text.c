/* The report as text for people: 80 columns, the largest things first, then what to do. */
#include "core/base/bits.h"
#include "core/io/text.h"
#include "core/io/writer.h"
#include "core/report/estimate_record.h"
#include "core/report/report_lists.h"
#include "core/report/report_plan.h"
#include "core/report/report_stacks.h"
#include "core/report/report_tenant.h"

#include <string.h>

#define NAME_COLUMNS 34
#define COMMAND_COLUMNS 66
#define TEXT_COLUMNS 80
#define SENTENCE_COLUMNS 400

/* Words from the next column on; lines that follow begin at `indent`. Ends the line. */
static void write_words(struct gc_out *out, size_t indent, const char *word)
{
    const size_t most = TEXT_COLUMNS - indent;
    while (*word != '\0') {
        const size_t length = strcspn(word, " ");
        if (out->column + 1 + length > TEXT_COLUMNS && out->column > indent) {
            gc_out_char(out, '\n');
            gc_out_pad(out, indent - 1);
        }
        gc_out_char(out, ' ');
        gc_out_bytes(out, word, length < most ? length : most);
        word += length;
        word += *word == ' ';
    }
    gc_out_char(out, '\n');
}

static void write_heading(struct gc_out *out, const char *text)
{
    gc_out_style(out, GC_STYLE_STRONG);
    gc_out_text(out, text);
    gc_out_style(out, GC_STYLE_PLAIN);
}

static void write_head(struct gc_out *out, const struct gc_report_facts *facts)
{
    char text[NAME_COLUMNS + COMMAND_COLUMNS];
    gc_out_style(out, GC_STYLE_STRONG);
    gc_out_text(out, "== gpucache ");
    gc_out_text(out, gc_report_shown(facts->version, 16, text));
    gc_out_text(out, ": ");
    gc_out_text(out, gc_report_shown(facts->process->program, 24, text));
    gc_out_text(out, ", pid ");
    gc_out_int(out, facts->process->pid);
    gc_out_style(out, GC_STYLE_PLAIN);
    gc_out_text(out, "\n   command    ");
    gc_out_text(out, gc_report_shown(facts->process->command, COMMAND_COLUMNS - 1, text));
    gc_out_text(out, "\n   host       ");
    gc_out_text(out, gc_report_shown(facts->process->host, COMMAND_COLUMNS - 1, text));
    gc_out_text(out, "\n   ran        ");
    gc_out_fixed(out, facts->duration_ns / 1000000, 3);
    gc_out_text(out, " s, mode ");
    gc_out_text(out, gc_report_shown(facts->mode, 8, text));
    gc_out_text(out, ", backend ");
    gc_out_text(out, gc_report_shown(facts->backend, 8, text));
    gc_out_text(out, ", reuse ");
    gc_out_text(out, gc_report_shown(facts->reuse, 8, text));
    gc_out_text(out, ", driver ");
    gc_out_int(out, facts->driver_version / 1000);
    gc_out_char(out, '.');
    gc_out_int(out, facts->driver_version % 1000 / 10);
    gc_out_char(out, '\n');
}

/* One that stayed zero has nothing to say. */
static void write_gauge(struct gc_out *out, const char *name, const char *meaning,
                        const struct gc_gauge *gauge)
{
    if (gauge->peak == 0)
        return;
    gc_out_text(out, "   ");
    gc_out_text(out, name);
    gc_out_right_size(out, 25, gauge->current);
    gc_out_right_size(out, 37, gauge->peak);
    gc_out_text(out, "  ");
    gc_out_text(out, meaning);
    gc_out_char(out, '\n');
}

static void write_gauges(struct gc_out *out, const struct gc_device_snapshot *device)
{
    gc_out_text(out, "   bytes");
    gc_out_right(out, 25, "at exit");
    gc_out_right(out, 37, "peak");
    gc_out_char(out, '\n');
#define GC_GAUGE(field, text) write_gauge(out, #field, text, &device->field);
#define GC_COUNTER(field, text)
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
}

/* Likewise. */
static void write_counter(struct gc_out *out, const char *name, uint64_t value, const char *meaning)
{
    const bool is_bad = strcmp(name, "oom_count") == 0 || strcmp(name, "misuse_count") == 0 ||
                        strcmp(name, "invalid_free_count") == 0;
    if (value == 0)
        return;
    gc_out_style(out, is_bad ? GC_STYLE_ALERT : GC_STYLE_PLAIN);
    gc_out_right_uint(out, 15, value);
    gc_out_text(out, "  ");
    gc_out_text(out, meaning);
    gc_out_style(out, GC_STYLE_PLAIN);
    gc_out_char(out, '\n');
}

static void write_counters(struct gc_out *out, const struct gc_device_snapshot *device)
{
    gc_out_text(out, "   counts\n");
#define GC_GAUGE(field, text)
#define GC_COUNTER(field, text) write_counter(out, #field, device->field, text);
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
}

static void write_fragmentation(struct gc_out *out, const struct gc_device_snapshot *device)
{
    char size[GC_TEXT_SIZE_BYTES];
    gc_out_text(out, "   idle in the cache ");
    gc_out_text(out, gc_text_size(device->idle_bytes, size));
    gc_out_text(out, ", free in it ");
    gc_out_text(out, gc_text_size(device->free_bytes, size));
    gc_out_text(out, ", largest hole ");
    gc_out_text(out, gc_text_size(device->largest_free_bytes, size));
    if (device->stitchable_bytes > 0) {
        gc_out_text(out, "\n   of it in whole pages, which serve any size: ");
        gc_out_text(out, gc_text_size(device->stitchable_bytes, size));
    }
    gc_out_char(out, '\n');
}

/* The process's own, and the group's, whichever there are. */
static void write_limits(struct gc_out *out, const struct gc_device_snapshot *device)
{
    char text[sizeof(device->group)];
    char size[GC_TEXT_SIZE_BYTES];
    const bool is_limited = device->limit_bytes != UINT64_MAX;
    gc_out_text(out, is_limited ? ", limit " : ", no limit");
    if (is_limited)
        gc_out_text(out, gc_text_size(device->limit_bytes, size));
    if (device->group[0] != '\0') {
        const bool is_group_limited = device->group_limit_bytes != UINT64_MAX;
        gc_out_text(out, is_limited ? "\n   group      " : " of its own\n   group      ");
        gc_out_text(out, gc_report_shown(device->group, 44, text));
        gc_out_text(out, is_group_limited ? ", limit " : ", no limit");
        if (is_group_limited)
            gc_out_text(out, gc_text_size(device->group_limit_bytes, size));
    }
    gc_out_char(out, '\n');
}

static void write_device(struct gc_out *out, const struct gc_report *report, uint32_t index)
{
    const struct gc_device_snapshot *device = &report->snapshot->devices[index];
    char text[sizeof(device->info.backend_reason)];
    char size[GC_TEXT_SIZE_BYTES];
    gc_out_style(out, GC_STYLE_STRONG);
    gc_out_text(out, "-- device ");
    gc_out_int(out, device->info.ordinal);
    gc_out_style(out, GC_STYLE_PLAIN);
    gc_out_text(out, ": ");
    gc_out_text(out, gc_report_shown(device->info.name, 32, text));
    gc_out_text(out, ", ");
    gc_out_text(out, gc_text_size(device->info.total_bytes, size));
    write_limits(out, device);
    gc_out_text(out, device->is_mapped ? "   backend    vmm" : "   backend    driver");
    gc_out_text(out, device->info.backend_reason[0] != '\0' ? ":" : "");
    write_words(out, 14, gc_report_shown(device->info.backend_reason, sizeof(text) - 1, text));
    write_gauges(out, device);
    write_counters(out, device);
    write_fragmentation(out, device);
    gc_report_plan_text(out, &device->plan);
    gc_report_tenants_text(out, device);
    gc_report_text_apis(out, report, device);
    gc_report_text_calls(out, report, device);
    gc_report_text_direct(out, device);
    gc_report_text_sites(out, report, index);
    gc_report_text_leaks(out, report, index);
}

static void put_span(struct gc_out *out, const char *before, uint64_t ns)
{
    char text[GC_TEXT_SPAN_BYTES];
    gc_out_text(out, before);
    gc_out_text(out, gc_text_span(ns, text));
}

static void write_latency(struct gc_out *out, const char *name, const struct gc_latency *latency)
{
    if (latency->count == 0)
        return;
    gc_out_text(out, "   ");
    gc_out_text(out, name);
    put_span(out, ": half within ", latency->p50);
    put_span(out, ", 99 % within ", latency->p99);
    put_span(out, ", longest ", latency->max);
    gc_out_char(out, '\n');
}

/* ---- what to do ---- */

struct advice {
    struct gc_out *out;
    bool any;
};

/* A sentence over as many lines as it needs, from the fourth column on. */
static void write_sentence(void *argument, const char *sentence)
{
    struct advice *advice = argument;
    char text[SENTENCE_COLUMNS + 1];
    if (!advice->any)
        write_heading(advice->out, "-- what to do\n");
    advice->any = true;
    gc_out_text(advice->out, "   -");
    write_words(advice->out, 5, gc_report_shown(sentence, SENTENCE_COLUMNS, text));
}

/* Whether the device comes before the other: more was held of it, or as much and its number is
 * lower. */
static bool comes_before(const struct gc_snapshot *snapshot, uint32_t i, uint32_t other)
{
    const uint64_t peak = snapshot->devices[i].reserved.peak;
    const uint64_t other_peak = snapshot->devices[other].reserved.peak;
    return peak > other_peak || (peak == other_peak && i < other);
}

/* The devices from the one that most was held of down: each round finds the one behind the last. */
static void write_devices(struct gc_out *out, const struct gc_report *report)
{
    const struct gc_snapshot *snapshot = report->snapshot;
    const uint32_t none = UINT32_MAX;
    uint32_t last = none;
    for (uint32_t written = 0; written < snapshot->device_count; written++) {
        uint32_t next = none;
        for (uint32_t i = 0; i < snapshot->device_count; i++) {
            const bool is_left = last == none || comes_before(snapshot, last, i);
            if (is_left && (next == none || comes_before(snapshot, i, next)))
                next = i;
        }
        if (next == none)
            return;
        write_device(out, report, next);
        last = next;
    }
}

enum gc_status gc_report_write_text(const struct gc_report *report, int fd)
{
    struct gc_out out;
    gc_out_init(&out, fd);
    out.is_colored = gc_out_wants_color(fd);
    write_head(&out, &report->facts);
    write_devices(&out, report);
    gc_report_text_process_calls(&out, report);
    gc_report_estimate_text(&out, report);
    write_latency(&out, "allocations", &report->snapshot->alloc_latency);
    write_latency(&out, "frees", &report->snapshot->free_latency);
    gc_report_advise(report, write_sentence, &(struct advice){&out, false});
    return gc_out_flush(&out);
}
