/* The report in Prometheus' text format, version 0.0.4, by its conventions: base units, counters
 * end in _total, each metric with HELP and TYPE before its samples. Every sample says whose it is:
 * program, pid and, where it is of one, device. For node_exporter's textfile collector: a file a
 * process, whole or not there at all. */
#include "core/device/tenant.h"
#include "core/io/json.h"
#include "core/report/report.h"

#include <string.h>

struct prom {
    struct gc_out out;
    const struct gc_report *report;
};

typedef uint64_t figure_of(const struct gc_device_snapshot *device);

/* ---- notation ---- */

static void begin_metric(struct prom *prom, const char *name, const char *type, const char *help)
{
    struct gc_out *out = &prom->out;
    gc_out_text(out, "# HELP gpucache_");
    gc_out_text(out, name);
    gc_out_char(out, ' ');
    gc_out_text(out, help);
    gc_out_text(out, "\n# TYPE gpucache_");
    gc_out_text(out, name);
    gc_out_char(out, ' ');
    gc_out_text(out, type);
    gc_out_char(out, '\n');
}

/* In a label a backslash, a quote and a line break are escaped; what is no UTF-8 is replaced. */
static void put_label(struct prom *prom, const char *name, const char *value, char before)
{
    struct gc_out *out = &prom->out;
    gc_out_char(out, before);
    gc_out_text(out, name);
    gc_out_text(out, "=\"");
    for (const char *p = value != NULL ? value : ""; *p != '\0';) {
        const size_t length = gc_json_sequence_length(p);
        if (length == 0)
            gc_out_text(out, "\xef\xbf\xbd");
        else if (*p == '\n')
            gc_out_text(out, "\\n");
        else if (*p == '\\' || *p == '"')
            gc_out_char(out, '\\');
        if (length > 0 && *p != '\n')
            gc_out_bytes(out, p, length);
        p += length > 0 ? length : 1;
    }
    gc_out_char(out, '"');
}

static void put_number_label(struct prom *prom, const char *name, uint64_t value)
{
    gc_out_char(&prom->out, ',');
    gc_out_text(&prom->out, name);
    gc_out_text(&prom->out, "=\"");
    gc_out_uint(&prom->out, value);
    gc_out_char(&prom->out, '"');
}

/* Up to further labels, which put_value closes. */
static void begin_sample(struct prom *prom, const char *name,
                         const struct gc_device_snapshot *device)
{
    const struct gc_process *process = prom->report->facts.process;
    gc_out_text(&prom->out, "gpucache_");
    gc_out_text(&prom->out, name);
    put_label(prom, "program", process->program, '{');
    put_number_label(prom, "pid", (uint64_t)process->pid);
    if (device != NULL)
        put_number_label(prom, "device", (uint64_t)device->info.ordinal);
}

static void put_fixed(struct prom *prom, uint64_t value, unsigned digits)
{
    gc_out_text(&prom->out, "} ");
    gc_out_fixed(&prom->out, value, digits);
    gc_out_char(&prom->out, '\n');
}

static void put_value(struct prom *prom, uint64_t value)
{
    put_fixed(prom, value, 0);
}

/* ---- metrics ---- */

static void write_process(struct prom *prom)
{
    const struct gc_report_facts *facts = &prom->report->facts;
    begin_metric(prom, "info", "gauge", "What the process is and how it ran.");
    begin_sample(prom, "info", NULL);
    put_label(prom, "version", facts->version, ',');
    put_label(prom, "host", facts->process->host, ',');
    put_label(prom, "mode", facts->mode, ',');
    put_label(prom, "backend", facts->backend, ',');
    put_label(prom, "reuse", facts->reuse, ',');
    put_value(prom, 1);
    begin_metric(prom, "start_time_seconds", "gauge", "When the process started, since 1970.");
    begin_sample(prom, "start_time_seconds", NULL);
    put_value(prom, facts->start_unix > 0 ? (uint64_t)facts->start_unix : 0);
    begin_metric(prom, "run_duration_seconds", "gauge", "How long the process ran.");
    begin_sample(prom, "run_duration_seconds", NULL);
    put_fixed(prom, facts->duration_ns, 9);
}

static void write_devices(struct prom *prom)
{
    const struct gc_snapshot *snapshot = prom->report->snapshot;
    begin_metric(prom, "device_info", "gauge", "The devices that the process used.");
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        begin_sample(prom, "device_info", &snapshot->devices[i]);
        put_label(prom, "uuid", snapshot->devices[i].info.uuid, ',');
        put_label(prom, "name", snapshot->devices[i].info.name, ',');
        put_value(prom, 1);
    }
}

/* UINT64_MAX: the device has no such figure. */
static void write_figure(struct prom *prom, const char *name, const char *type, const char *help,
                         figure_of *figure)
{
    const struct gc_snapshot *snapshot = prom->report->snapshot;
    bool has_begun = false;
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        const uint64_t value = figure(&snapshot->devices[i]);
        if (value == UINT64_MAX)
            continue;
        if (!has_begun)
            begin_metric(prom, name, type, help);
        has_begun = true;
        begin_sample(prom, name, &snapshot->devices[i]);
        put_value(prom, value);
    }
}

#define GC_GAUGE(field, text)                                                                      \
    static uint64_t field##_current(const struct gc_device_snapshot *device)                       \
    {                                                                                              \
        return device->field.current;                                                              \
    }                                                                                              \
    static uint64_t field##_peak(const struct gc_device_snapshot *device)                          \
    {                                                                                              \
        return device->field.peak;                                                                 \
    }
#define GC_COUNTER(field, text)                                                                    \
    static uint64_t field##_value(const struct gc_device_snapshot *device)                         \
    {                                                                                              \
        return device->field;                                                                      \
    }
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER

#define FIGURES(X)                                                                                 \
    X(memory_bytes, info.total_bytes, "Memory of the device.")                                     \
    X(limit_bytes, limit_bytes, "The limit of the process; none: no sample.")                      \
    X(group_limit_bytes, group_limit_bytes, "The limit of its group; none: no sample.")            \
    X(host_metadata_bytes, host_metadata_bytes, "Host memory of the library's records.")           \
    X(idle_bytes, idle_bytes, "Cached and free at once, part of reserved.")                        \
    X(free_bytes, free_bytes, "Free memory in the pools.")                                         \
    X(largest_free_bytes, largest_free_bytes, "The largest hole in the pools.")                    \
    X(leaked_bytes, leak_bytes, "Never freed when the process ended.")                             \
    X(leaked_allocations, leak_count, "Allocations never freed when the process ended.")

#define X(name, field, help)                                                                       \
    static uint64_t value_of_##name(const struct gc_device_snapshot *device)                       \
    {                                                                                              \
        return device->field;                                                                      \
    }
FIGURES(X)
#undef X

/* "alloc_count" is the counter alloc_total. */
static void write_counter(struct prom *prom, const char *field, const char *text, figure_of *figure)
{
    static const char count[] = "_count";
    static const char total[] = "_total";
    char name[64] = "";
    const size_t length = strlen(field) - (sizeof(count) - 1);
    if (length + sizeof(total) > sizeof(name))
        return;
    for (size_t i = 0; i < length; i++)
        name[i] = field[i];
    for (size_t i = 0; i < sizeof(total); i++)
        name[length + i] = total[i];
    write_figure(prom, name, "counter", text, figure);
}

static void write_figures(struct prom *prom)
{
#define X(name, field, help) write_figure(prom, #name, "gauge", help, value_of_##name);
    FIGURES(X)
#undef X
#define GC_GAUGE(field, text)                                                                      \
    write_figure(prom, #field "_bytes", "gauge", "Bytes " text ".", field##_current);              \
    write_figure(prom, #field "_peak_bytes", "gauge", "The most bytes ever " text ".",             \
                 field##_peak);
#define GC_COUNTER(field, text) write_counter(prom, #field, "The " text ".", field##_value);
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
}

struct api_metric {
    const char *name;
    const char *type;
    const char *help;
    size_t offset; /* of the figure in struct gc_api_figures */
};

static const struct api_metric api_metrics[] = {
    {"api_allocations_total", "counter", "Allocations by entry point.",
     offsetof(struct gc_api_figures, count)},
    {"api_requested_bytes_total", "counter", "Bytes ever asked for by entry point.",
     offsetof(struct gc_api_figures, bytes)},
    {"api_live_bytes", "gauge", "Bytes not yet freed by entry point.",
     offsetof(struct gc_api_figures, current_bytes)},
    {"api_live_peak_bytes", "gauge", "The most bytes not yet freed by entry point.",
     offsetof(struct gc_api_figures, peak_bytes)},
    {"driver_calls_total", "counter", "Calls that reached the driver by entry point.",
     offsetof(struct gc_api_figures, driver_calls)},
};

/* Calls that belong to no device have no such label. */
static void write_process_calls(struct prom *prom)
{
    const struct gc_snapshot *snapshot = prom->report->snapshot;
    for (uint16_t api = 0; api < snapshot->api_count; api++) {
        if (snapshot->process_driver_calls[api] == 0)
            continue;
        begin_sample(prom, "driver_calls_total", NULL);
        put_label(prom, "api", prom->report->api_names[api], ',');
        put_value(prom, snapshot->process_driver_calls[api]);
    }
}

static void write_api_metric(struct prom *prom, const struct api_metric *metric)
{
    const struct gc_snapshot *snapshot = prom->report->snapshot;
    const bool is_calls = metric->offset == offsetof(struct gc_api_figures, driver_calls);
    bool has_begun = false;
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        for (uint16_t api = 0; api < snapshot->api_count; api++) {
            const struct gc_api_figures *figures = &snapshot->devices[i].apis[api];
            uint64_t value;
            memcpy(&value, (const char *)figures + metric->offset, sizeof(value));
            if (is_calls ? value == 0 : figures->count == 0)
                continue;
            if (!has_begun)
                begin_metric(prom, metric->name, metric->type, metric->help);
            has_begun = true;
            begin_sample(prom, metric->name, &snapshot->devices[i]);
            put_label(prom, "api", prom->report->api_names[api], ',');
            put_value(prom, value);
        }
    }
    if (is_calls && has_begun)
        write_process_calls(prom);
}

static void write_percentiles(struct prom *prom, const char *operation,
                              const struct gc_latency *latency)
{
    const struct {
        const char *text;
        uint64_t ns;
    } shares[] = {{"50", latency->p50}, {"99", latency->p99}, {"100", latency->max}};
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        begin_sample(prom, "latency_seconds", NULL);
        put_label(prom, "operation", operation, ',');
        put_label(prom, "percentile", shares[i].text, ',');
        put_fixed(prom, shares[i].ns, 9);
    }
}

static void write_latency(struct prom *prom)
{
    const struct gc_snapshot *snapshot = prom->report->snapshot;
    begin_metric(prom, "latency_seconds", "gauge",
                 "How long allocations and frees took: half, 99 in 100, all within.");
    write_percentiles(prom, "alloc", &snapshot->alloc_latency);
    write_percentiles(prom, "free", &snapshot->free_latency);
}

static const struct tenant_metric {
    const char *name;
    const char *type;
    const char *help;
    size_t offset; /* in struct gc_tenant_figures; UINT64_MAX there is no sample */
} tenant_metrics[] = {
    {"tenant_reserved_bytes", "gauge", "Bytes held for a tenant.",
     offsetof(struct gc_tenant_figures, reserved.current)},
    {"tenant_reserved_peak_bytes", "gauge", "The most bytes ever held for a tenant.",
     offsetof(struct gc_tenant_figures, reserved.peak)},
    {"tenant_requested_bytes", "gauge", "Bytes that a tenant asked for and has not freed.",
     offsetof(struct gc_tenant_figures, requested.current)},
    {"tenant_requested_peak_bytes", "gauge", "The most of a tenant's requested bytes.",
     offsetof(struct gc_tenant_figures, requested.peak)},
    {"tenant_limit_bytes", "gauge", "A tenant's limit, where it has one.",
     offsetof(struct gc_tenant_figures, limit_bytes)},
    {"tenant_alloc_total", "counter", "Allocations of a tenant that succeeded.",
     offsetof(struct gc_tenant_figures, alloc_count)},
    {"tenant_oom_total", "counter", "Requests of a tenant that found no room.",
     offsetof(struct gc_tenant_figures, oom_count)},
};

static void write_tenants(struct prom *prom, const struct tenant_metric *metric)
{
    const struct gc_snapshot *snapshot = prom->report->snapshot;
    bool has_begun = false;
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        for (uint32_t t = 0; t < snapshot->devices[i].tenant_count; t++) {
            const struct gc_tenant_figures *tenant = &snapshot->devices[i].tenants[t];
            uint64_t value;
            memcpy(&value, (const char *)tenant + metric->offset, sizeof(value));
            if (value == UINT64_MAX)
                continue;
            if (!has_begun)
                begin_metric(prom, metric->name, metric->type, metric->help);
            has_begun = true;
            begin_sample(prom, metric->name, &snapshot->devices[i]);
            put_label(prom, "tenant", tenant->name, ',');
            put_number_label(prom, "place", t); /* one that is gone may have had the same name */
            put_value(prom, value);
        }
    }
}

/* Allocations by whether, and why not, they followed the plan. */
static void write_plan(struct prom *prom, const struct gc_device_snapshot *device, const char *way,
                       uint64_t count)
{
    begin_sample(prom, "plan_allocations_total", device);
    put_label(prom, "way", way, ',');
    put_value(prom, count);
}

static void write_plans(struct prom *prom)
{
    const struct gc_snapshot *snapshot = prom->report->snapshot;
    bool has_begun = false;
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        const struct gc_device_snapshot *device = &snapshot->devices[i];
        if (device->plan.entry_count == 0)
            continue;
        if (!has_begun)
            begin_metric(prom, "plan_allocations_total", "counter",
                         "Allocations that followed the plan, and that did not, by the reason.");
        has_begun = true;
        write_plan(prom, device, "followed", device->plan.followed_count);
#define GC_FOLLOW_REASON(name, key, text) write_plan(prom, device, #key, device->plan.key##_count);
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    }
}

enum gc_status gc_report_write_prom(const struct gc_report *report, int fd)
{
    struct prom prom = {.report = report};
    gc_out_init(&prom.out, fd);
    write_process(&prom);
    write_devices(&prom);
    write_figures(&prom);
    for (size_t i = 0; i < sizeof(api_metrics) / sizeof(api_metrics[0]); i++)
        write_api_metric(&prom, &api_metrics[i]);
    write_latency(&prom);
    for (size_t i = 0; i < sizeof(tenant_metrics) / sizeof(tenant_metrics[0]); i++)
        write_tenants(&prom, &tenant_metrics[i]);
    write_plans(&prom);
    return gc_out_flush(&prom.out);
}
