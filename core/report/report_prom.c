/* The report in Prometheus' text format, version 0.0.4, in base units. Each sample has labels of
 * its program, pid and device. For node_exporter's textfile collector: one file for each process.
 */
#include "core/device/tenant.h"
#include "core/report/tables.h"

#include <string.h>

/* Begins the labels of a record of the device, NULL: of the process. */
static void label_owner(struct gc_samples *samples, const struct gc_device_snapshot *device)
{
    const struct gc_report *report = samples->source;
    const struct gc_process *process = report->facts.process;
    memset(samples->labels, 0, sizeof(samples->labels));
    gc_emitter_label(samples, "program", process->program);
    gc_emitter_label_number(samples, "pid", (uint64_t)process->pid);
    if (device != NULL)
        gc_emitter_label_number(samples, "device", (uint64_t)device->info.ordinal);
}

/* The device at `outer`; NULL behind the last. */
static const struct gc_device_snapshot *device_at(const struct gc_samples *samples)
{
    const struct gc_report *report = samples->source;
    return samples->outer < report->snapshot->device_count
               ? &report->snapshot->devices[samples->outer]
               : NULL;
}

static const void *next_fact(struct gc_samples *samples)
{
    const struct gc_report *report = samples->source;
    label_owner(samples, NULL);
    return samples->outer++ == 0 ? &report->facts : NULL;
}

static const uint64_t one = 1;

static const void *next_process(struct gc_samples *samples)
{
    const struct gc_report *report = samples->source;
    const struct gc_report_facts *facts = &report->facts;
    label_owner(samples, NULL);
    gc_emitter_label(samples, "version", facts->version);
    gc_emitter_label(samples, "host", facts->process->host);
    gc_emitter_label(samples, "mode", facts->mode);
    gc_emitter_label(samples, "backend", facts->backend);
    gc_emitter_label(samples, "reuse", facts->reuse);
    return samples->outer++ == 0 ? &one : NULL;
}

static const void *next_turn(struct gc_samples *samples)
{
    const struct gc_report *report = samples->source;
    label_owner(samples, NULL);
    return samples->outer++ == 0 && report->snapshot->takes_turns ? &report->snapshot->turn : NULL;
}

static const void *next_device(struct gc_samples *samples)
{
    const struct gc_device_snapshot *device = device_at(samples);
    label_owner(samples, device);
    samples->outer++;
    return device;
}

static const void *next_device_name(struct gc_samples *samples)
{
    const struct gc_device_snapshot *device = next_device(samples);
    if (device == NULL)
        return NULL;
    gc_emitter_label(samples, "uuid", device->info.uuid);
    gc_emitter_label(samples, "name", device->info.name);
    return &one;
}

static const void *next_api(struct gc_samples *samples)
{
    const struct gc_report *report = samples->source;
    const struct gc_device_snapshot *device;
    for (; (device = device_at(samples)) != NULL; samples->outer++, samples->inner = 0) {
        while (samples->inner < report->snapshot->api_count) {
            const uint32_t api = samples->inner++;
            if (device->apis[api].count == 0)
                continue;
            label_owner(samples, device);
            gc_emitter_label(samples, "api", report->api_names[api]);
            return &device->apis[api];
        }
    }
    return NULL;
}

/* Calls of each device, then those that belong to no device, if there are any. */
static const void *next_calls(struct gc_samples *samples)
{
    const struct gc_report *report = samples->source;
    const struct gc_snapshot *snapshot = report->snapshot;
    for (; samples->outer < snapshot->device_count + samples->has_any;
         samples->outer++, samples->inner = 0) {
        const struct gc_device_snapshot *device = device_at(samples);
        while (samples->inner < snapshot->api_count) {
            const uint32_t api = samples->inner++;
            const uint64_t *calls = device != NULL ? &device->apis[api].driver_calls
                                                   : &snapshot->process_driver_calls[api];
            if (*calls == 0)
                continue;
            samples->has_any = true;
            label_owner(samples, device);
            gc_emitter_label(samples, "api", report->api_names[api]);
            return calls;
        }
    }
    return NULL;
}

static const void *next_tenant(struct gc_samples *samples)
{
    const struct gc_device_snapshot *device;
    for (; (device = device_at(samples)) != NULL; samples->outer++, samples->inner = 0) {
        if (samples->inner == device->tenant_count)
            continue;
        const uint32_t place = samples->inner++;
        label_owner(samples, device);
        gc_emitter_label(samples, "tenant", device->tenants[place].name);
        /* A tenant that was removed may have had the same name. */
        gc_emitter_label_number(samples, "place", place);
        return &device->tenants[place];
    }
    return NULL;
}

static const void *next_latency(struct gc_samples *samples)
{
    static const char *const shares[] = {"50", "99", "100"};
    const struct gc_report *report = samples->source;
    const struct gc_latency *latency =
        samples->outer < 3 ? &report->snapshot->alloc_latency : &report->snapshot->free_latency;
    const uint64_t *const values[] = {&latency->p50, &latency->p99, &latency->max};
    const uint32_t at = samples->outer++;
    if (at >= 6)
        return NULL;
    label_owner(samples, NULL);
    gc_emitter_label(samples, "operation", at < 3 ? "alloc" : "free");
    gc_emitter_label(samples, "percentile", shares[at % 3]);
    return values[at % 3];
}

static const struct {
    const char *name;
    size_t offset;
} plan_ways[] = {
    {"followed", offsetof(struct gc_follow_figures, followed_count)},
#define GC_FOLLOW_REASON(name, key, text) {#key, offsetof(struct gc_follow_figures, key##_count)},
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
};

/* Allocations that followed the plan, and that did not, by the reason. */
static const void *next_way(struct gc_samples *samples)
{
    const struct gc_device_snapshot *device;
    for (; (device = device_at(samples)) != NULL; samples->outer++, samples->inner = 0) {
        if (device->plan.entry_count == 0 ||
            samples->inner == sizeof(plan_ways) / sizeof(plan_ways[0]))
            continue;
        const uint32_t way = samples->inner++;
        label_owner(samples, device);
        gc_emitter_label(samples, "way", plan_ways[way].name);
        return (const char *)&device->plan + plan_ways[way].offset;
    }
    return NULL;
}

static const struct gc_figure info_array[] = {
    {GC_METRIC(0, "info", "Facts and settings of the process.")}};
#define FACT(type, ...) GC_FIGURE(NULL, type, struct gc_report_facts, __VA_ARGS__)
static const struct gc_figure fact_array[] = {
    FACT(COUNT, start_unix,
         GC_METRIC(0, "start_time_seconds", "When the process started, since 1970.")),
    FACT(NS, duration_ns, GC_METRIC(1, "run_duration_seconds", "How long the process ran."))};
static const struct gc_figure device_info_array[] = {
    {GC_METRIC(0, "device_info", "The devices that the process used.")}};
static const struct gc_figure calls_array[] = {
    {GC_METRIC(0, "driver_calls_count", "Calls that reached the driver by entry point.")}};
static const struct gc_figure latency_array[] = {
    {.type = GC_FIGURE_NS,
     GC_METRIC(0, "latency_seconds", "Latency of allocations and frees: p50, p99, maximum.")}};
static const struct gc_figure way_array[] = {
    {GC_METRIC(0, "plan_allocations_count",
               "Allocations that followed the plan, and those that did not, by reason.")}};

enum gc_status gc_report_write_prom(const struct gc_report *report, int fd)
{
    static const struct gc_figures info = GC_FIGURES(info_array);
    static const struct gc_figures facts = GC_FIGURES(fact_array);
    static const struct gc_figures device_info = GC_FIGURES(device_info_array);
    static const struct gc_figures calls = GC_FIGURES(calls_array);
    static const struct gc_figures latency = GC_FIGURES(latency_array);
    static const struct gc_figures ways = GC_FIGURES(way_array);
    const struct {
        const struct gc_figures *figures;
        const void *(*next)(struct gc_samples *samples);
        bool is_always;
    } metrics[] = {{&info, next_process, true},
                   {&facts, next_fact, true},
                   {&device_info, next_device_name, true},
                   {&gc_report_device_figures, next_device, false},
                   {&gc_report_api_figures, next_api, false},
                   {&calls, next_calls, false},
                   {&latency, next_latency, true},
                   {&gc_report_turn_figures, next_turn, false},
                   {&gc_report_tenant_figures, next_tenant, false},
                   {&ways, next_way, false}};
    struct gc_writer out;
    gc_writer_init(&out, fd);
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
        gc_emitter_metrics(&out, metrics[i].figures,
                           &(struct gc_samples){.source = report,
                                                .next = metrics[i].next,
                                                .is_always = metrics[i].is_always});
    return gc_writer_flush(&out);
}
