/* The report as JSON, schema gpucache-report/1: keys and their order are the schema's; what is
 * beyond it stands behind its keys. */
#include "core/base/bits.h"
#include "core/io/json.h"
#include "core/report/estimate_record.h"
#include "core/report/html.h"
#include "core/report/report_plan.h"
#include "core/report/report_stacks.h"
#include "core/report/report_tenant.h"

static const struct direct_kind {
    char name[GC_REPORT_KEY_BYTES];
    const char *text;
} direct_kinds[GC_DIRECT_KIND_COUNT] = {
#define GC_DIRECT(name, text, charged) {#name, text},
#include "core/observe/direct.def"
#undef GC_DIRECT
};

const char *gc_report_direct_key(enum gc_direct_kind kind, char key[GC_REPORT_KEY_BYTES])
{
    for (size_t i = 0; i < GC_REPORT_KEY_BYTES; i++) {
        const char c = direct_kinds[kind].name[i];
        key[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    return key;
}

const char *gc_report_direct_text(enum gc_direct_kind kind)
{
    return direct_kinds[kind].text;
}

static void write_gauge(struct gc_json *json, const char *key, const struct gc_gauge *gauge)
{
    gc_json_key(json, key);
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_put_uint(json, "current", gauge->current);
    gc_json_put_uint(json, "peak", gauge->peak);
    gc_json_end_object(json);
}

static void write_driver_calls(struct gc_json *json, const struct gc_report *report,
                               const struct gc_device_snapshot *device)
{
    gc_json_key(json, "driver_calls");
    gc_json_begin_object(json, GC_JSON_LINES);
    for (uint16_t i = 0; i < report->snapshot->api_count; i++) {
        const uint64_t count = device != NULL ? device->apis[i].driver_calls
                                              : report->snapshot->process_driver_calls[i];
        if (count > 0)
            gc_json_put_uint(json, report->api_names[i], count);
    }
    gc_json_end_object(json);
}

static void write_apis(struct gc_json *json, const struct gc_report *report,
                       const struct gc_device_snapshot *device)
{
    gc_json_key(json, "by_api");
    gc_json_begin_object(json, GC_JSON_LINES);
    for (uint16_t i = 0; i < report->snapshot->api_count; i++) {
        const struct gc_api_figures *api = &device->apis[i];
        if (api->count == 0)
            continue;
        gc_json_key(json, report->api_names[i]);
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_put_uint(json, "count", api->count);
        gc_json_put_uint(json, "bytes", api->bytes);
        gc_json_put_uint(json, "current_bytes", api->current_bytes);
        gc_json_put_uint(json, "peak_bytes", api->peak_bytes);
        gc_json_end_object(json);
    }
    gc_json_end_object(json);
}

/* 1 - largest hole / free bytes, in millionths: 0 for one hole or none. */
static uint64_t fragmentation_ppm(const struct gc_device_snapshot *device)
{
    if (device->free_bytes == 0 || device->largest_free_bytes >= device->free_bytes)
        return 0;
    const unsigned __int128 apart = device->free_bytes - device->largest_free_bytes;
    return (uint64_t)(apart * 1000000 / device->free_bytes);
}

static void write_fragmentation(struct gc_json *json, const struct gc_device_snapshot *device)
{
    gc_json_key(json, "fragmentation");
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_put_uint(json, "free_bytes", device->free_bytes);
    gc_json_put_uint(json, "largest_free_bytes", device->largest_free_bytes);
    gc_json_key(json, "ratio");
    gc_json_fixed(json, fragmentation_ppm(device), 6);
    gc_json_put_uint(json, "stitchable_bytes", device->stitchable_bytes);
    gc_json_end_object(json);
}

static void write_leaks(struct gc_json *json, const struct gc_report *report,
                        const struct gc_report_leaks *leaks)
{
    gc_json_key(json, "leaks");
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < leaks->count; i++) {
        const struct gc_leak *leak = &leaks->leaks[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_put_hex(json, "address", leak->address);
        gc_json_put_uint(json, "bytes", leak->bytes);
        gc_json_put_string(json, "api",
                           leak->api < report->snapshot->api_count ? report->api_names[leak->api]
                                                                   : "?");
        gc_json_key(json, "stack");
        gc_report_json_stack(json, report, leak->site);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void write_direct(struct gc_json *json, const struct gc_device_snapshot *device)
{
    gc_json_key(json, "direct_bytes");
    gc_json_begin_object(json, GC_JSON_LINES);
    for (int kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++) {
        char key[GC_REPORT_KEY_BYTES];
        gc_report_direct_key((enum gc_direct_kind)kind, key);
        gc_json_put_uint(json, key, device->direct_bytes[kind]);
    }
    gc_json_end_object(json);
}

static void write_limit(struct gc_json *json, const char *key, uint64_t limit)
{
    if (limit == UINT64_MAX)
        gc_json_put_null(json, key);
    else
        gc_json_put_uint(json, key, limit);
}

static void write_device(struct gc_json *json, const struct gc_report *report, uint32_t index)
{
    const struct gc_device_snapshot *device = &report->snapshot->devices[index];
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_key(json, "ordinal");
    gc_json_int(json, device->info.ordinal);
    gc_json_put_string(json, "uuid", device->info.uuid);
    gc_json_put_string(json, "name", device->info.name);
    gc_json_put_string(json, "backend", device->is_mapped ? "vmm" : "driver");
    gc_json_put_string(json, "backend_reason", device->info.backend_reason);
    gc_json_put_uint(json, "total_bytes", device->info.total_bytes);
    write_limit(json, "limit_bytes", device->limit_bytes);
    if (device->group[0] == '\0')
        gc_json_put_null(json, "group");
    else
        gc_json_put_string(json, "group", device->group);
    write_limit(json, "group_limit_bytes", device->group_limit_bytes);
#define GC_GAUGE(field, text) write_gauge(json, #field "_bytes", &device->field);
#define GC_COUNTER(field, text)
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    gc_json_put_uint(json, "host_metadata_bytes", device->host_metadata_bytes);
#define GC_GAUGE(field, text)
#define GC_COUNTER(field, text) gc_json_put_uint(json, #field, device->field);
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    write_driver_calls(json, report, device);
    write_apis(json, report, device);
    write_fragmentation(json, device);
    write_leaks(json, report, &report->leaks[index]);
    gc_json_put_uint(json, "leak_count", device->leak_count);
    gc_json_put_uint(json, "leak_bytes", device->leak_bytes);
    gc_json_key(json, "call_sites");
    gc_report_json_sites(json, report, index);
    gc_json_put_uint(json, "idle_bytes", device->idle_bytes);
    write_direct(json, device);
    gc_report_plan_json(json, &device->plan);
    gc_report_tenants_json(json, device);
    gc_json_end_object(json);
}

static void write_latency(struct gc_json *json, const char *key, const struct gc_latency *latency)
{
    gc_json_key(json, key);
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_put_uint(json, "p50", latency->p50);
    gc_json_put_uint(json, "p99", latency->p99);
    gc_json_put_uint(json, "max", latency->max);
    gc_json_put_uint(json, "count", latency->count);
    gc_json_key(json, "histogram"); /* [below so many ns, count] */
    gc_json_begin_array(json, GC_JSON_LINE);
    for (unsigned i = 0; i < 63; i++) {
        if (latency->powers[i] == 0)
            continue;
        gc_json_begin_array(json, GC_JSON_LINE);
        gc_json_uint(json, UINT64_C(2) << i);
        gc_json_uint(json, latency->powers[i]);
        gc_json_end_array(json);
    }
    gc_json_end_array(json);
    gc_json_end_object(json);
}

static void write_head(struct gc_json *json, const struct gc_report_facts *facts)
{
    gc_json_put_string(json, "schema", GC_REPORT_SCHEMA);
    gc_json_put_string(json, "version", facts->version);
    gc_json_key(json, "pid");
    gc_json_int(json, facts->process->pid);
    gc_json_put_string(json, "program", facts->process->program);
    gc_json_put_string(json, "command", facts->process->command);
    gc_json_put_string(json, "host", facts->process->host);
    gc_json_key(json, "start_unix");
    gc_json_int(json, facts->start_unix);
    gc_json_key(json, "duration_s");
    gc_json_fixed(json, facts->duration_ns, 9);
    gc_json_put_string(json, "mode", facts->mode);
    gc_json_put_string(json, "backend", facts->backend);
    gc_json_key(json, "driver_version");
    gc_json_int(json, facts->driver_version);
}

static void write_advice(void *json, const char *sentence)
{
    gc_json_string(json, sentence);
}

static void write_settings(struct gc_json *json, const struct gc_report_facts *facts)
{
    gc_json_key(json, "settings");
    gc_json_begin_object(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < facts->setting_count; i++)
        gc_json_put_string(json, facts->settings[i].name, facts->settings[i].value);
    gc_json_end_object(json);
}

void gc_report_put_json(const struct gc_report *report, struct gc_json *json)
{
    gc_json_begin_object(json, GC_JSON_LINES);
    write_head(json, &report->facts);
    gc_json_key(json, "devices");
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < report->snapshot->device_count; i++)
        write_device(json, report, i);
    gc_json_end_array(json);
    gc_json_key(json, "latency_ns");
    gc_json_begin_object(json, GC_JSON_LINES);
    write_latency(json, "alloc", &report->snapshot->alloc_latency);
    write_latency(json, "free", &report->snapshot->free_latency);
    gc_json_end_object(json);
    gc_report_estimate_json(json, report);
    gc_json_key(json, "warnings");
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < report->facts.warning_count; i++)
        gc_json_string(json, report->facts.warnings[i]);
    gc_json_end_array(json);
    gc_json_key(json, "advice");
    gc_json_begin_array(json, GC_JSON_LINES);
    gc_report_advise(report, write_advice, json);
    gc_json_end_array(json);
    gc_json_put_string(json, "reuse", report->facts.reuse);
    gc_json_put_uint(json, "stacks_lost", report->stacks.lost);
    write_settings(json, &report->facts);
    write_driver_calls(json, report, NULL);
    gc_json_end_object(json);
}

enum gc_status gc_report_write_json(const struct gc_report *report, int fd)
{
    struct gc_out out;
    struct gc_json json;
    gc_out_init(&out, fd);
    gc_json_init(&json, &out);
    gc_report_put_json(report, &json);
    return gc_out_flush(&out);
}

enum gc_status gc_report_write_html(const struct gc_report *report, int fd)
{
    struct gc_out out;
    struct gc_json json;
    gc_out_init(&out, fd);
    gc_html_begin(&json, &out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_put_string(&json, "name", report->facts.process->program);
    gc_json_key(&json, "report");
    gc_report_put_json(report, &json);
    gc_json_put_null(&json, "trace");
    gc_json_end_object(&json);
    gc_html_end(&json);
    return gc_out_flush(&out);
}
