/* The tables of the report's figures, and the report as JSON, which walks them (schema
 * gpucache-report/1: keys and their order are the schema's; later keys stand behind the others of
 * their part). */
#include "core/report/tables.h"

#include "core/device/tenant.h"
#include "core/report/estimate_record.h"
#include "core/report/html.h"

/* ---- entry points, tenants ---- */

#define API(key, type, ...) GC_FIGURE(key, type, struct gc_api_figures, __VA_ARGS__)
static const struct gc_figure api_array[] = {
    API("count", COUNT, count, GC_CELL(46, "calls"),
        GC_METRIC(0, "api_allocations_count", "Allocations by entry point.")),
    API("bytes", BYTES, bytes, GC_CELL(57, "requested"),
        GC_METRIC(1, "api_requested_bytes_count", "Bytes ever requested by entry point.")),
    API("current_bytes", BYTES, current_bytes, GC_CELL(79, "at exit"),
        GC_METRIC(2, "api_live_bytes", "Bytes not yet freed by entry point.")),
    API("peak_bytes", BYTES, peak_bytes, GC_CELL(68, "peak"),
        GC_METRIC(3, "api_live_peak_bytes", "The most bytes not yet freed by entry point.")),
};
const struct gc_figures gc_report_api_figures = GC_FIGURES(api_array);

#define TENANT(key, type, ...) GC_FIGURE(key, type, struct gc_tenant_figures, __VA_ARGS__)
static const struct gc_figure tenant_array[] = {
    TENANT("name", NAME, name),
    TENANT("removed", BOOL, is_removed),
    TENANT("paused", BOOL, is_paused),
    TENANT("capacity_bytes", BYTES, capacity_bytes),
    TENANT("limit_bytes", LIMIT, limit_bytes, GC_CELL(37, "limit"),
           GC_METRIC(2, "tenant_limit_bytes", "A tenant's limit, where it has one.")),
    TENANT(
        "requested_bytes", GAUGE, requested, GC_CELL(69, "at exit"),
        GC_METRIC(1, "tenant_requested_bytes", "Bytes that a tenant requested and has not freed."),
        GC_PEAK_METRIC(1, "tenant_requested_peak_bytes",
                       "The most of a tenant's requested bytes.")),
    TENANT("allocated_bytes", GAUGE, allocated),
    TENANT("reserved_bytes", GAUGE, reserved, GC_CELL(48, "reserved"), GC_PEAK_CELL(58, "peak"),
           GC_METRIC(0, "tenant_reserved_bytes", "Bytes reserved for a tenant."),
           GC_PEAK_METRIC(0, "tenant_reserved_peak_bytes",
                          "The most bytes ever reserved for a tenant.")),
    TENANT("pending_bytes", BYTES, pending_bytes),
    TENANT("idle_bytes", BYTES, idle_bytes),
    TENANT("swapped_bytes", BYTES, swapped_bytes),
    TENANT("alloc_count", COUNT, alloc_count,
           GC_METRIC(3, "tenant_alloc_count", "Allocations of a tenant that succeeded.")),
    TENANT("free_count", COUNT, free_count),
    TENANT("hit_count", COUNT, hit_count),
    TENANT("miss_count", COUNT, miss_count),
    TENANT("oom_count", COUNT, oom_count,
           GC_METRIC(4, "tenant_oom_count", "Requests of a tenant that ran out of memory.")),
};
const struct gc_figures gc_report_tenant_figures = GC_FIGURES(tenant_array);

/* ---- plan replay ---- */

#define PLAN(key, type, ...) GC_FIGURE(key, type, struct gc_follow_figures, __VA_ARGS__)
#define PAIR(name, prefix)                                                                         \
    {.key = (name), .type = GC_FIGURE_OPEN}, PLAN("count", COUNT, prefix##_count),                 \
        PLAN("bytes", BYTES, prefix##_bytes),                                                      \
    {                                                                                              \
        .type = GC_FIGURE_CLOSE                                                                    \
    }

static const struct gc_figure reason_array[] = {
#define GC_FOLLOW_REASON(name, key, text) PAIR(#key, key),
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
};
const struct gc_figures gc_report_reason_figures = GC_FIGURES(reason_array);

static void put_fallback(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_follow_figures *plan = record;
    uint64_t count = 0;
    uint64_t bytes = 0;
    (void)argument;
#define GC_FOLLOW_REASON(name, key, text) count += plan->key##_count, bytes += plan->key##_bytes;
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_uint(json, "count", count);
    gc_json_write_uint(json, "bytes", bytes);
    gc_json_end_object(json);
}

static void put_reasons(struct gc_json *json, const void *record, const void *argument)
{
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_emitter_members(json, &gc_report_reason_figures, record, argument);
    gc_json_end_object(json);
}

static const struct gc_figure plan_array[] = {
    PLAN("entries", COUNT, entry_count),
    PLAN("peak_bytes", BYTES, peak_bytes),
    PLAN("used_bytes", BYTES, used_bytes),
    PLAN("rounds", COUNT, iterations),
    PLAN("jumps", COUNT, resyncs),
    PAIR("followed", followed),
    GC_FIGURE_WRITTEN("fallback", put_fallback),
    GC_FIGURE_WRITTEN("reasons", put_reasons),
};
const struct gc_figures gc_report_plan_figures = GC_FIGURES(plan_array);

void gc_report_put_plan(struct gc_json *json, const struct gc_follow_figures *plan)
{
    if (plan->entry_count == 0) {
        gc_json_null(json);
        return;
    }
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_emitter_members(json, &gc_report_plan_figures, plan, NULL);
    gc_json_end_object(json);
}

/* ---- turns ---- */

#define TURN(key, type, ...) GC_FIGURE(key, type, struct gc_ledger_turn, __VA_ARGS__)
static const struct gc_figure turn_array[] = {
    TURN("exchange_count", COUNT, exchange_count,
         GC_METRIC(0, "turn_exchanges_count", "Times that memory was exchanged with host memory.")),
    TURN("out_bytes", BYTES, out_bytes,
         GC_METRIC(1, "turn_out_bytes_count", "Bytes that left the device for other processes.")),
    TURN("in_bytes", BYTES, in_bytes,
         GC_METRIC(2, "turn_in_bytes_count", "Bytes that came back for the process's turns.")),
    TURN(
        "waited_ns", NS, waited_ns,
        GC_METRIC(3, "turn_waited_seconds_count", "Time for which the process waited for memory.")),
    TURN("quantum_ns", NS, quantum_ns),
    TURN("host_bytes", BYTES, host_bytes,
         GC_METRIC(4, "turn_host_bytes",
                   "Host memory for what is swapped or spilled, in use or kept.")),
};
const struct gc_figures gc_report_turn_figures = GC_FIGURES(turn_array);

static void put_turns(struct gc_json *json, const struct gc_snapshot *snapshot)
{
    gc_json_key(json, "turns");
    if (!snapshot->takes_turns) {
        gc_json_null(json);
        return;
    }
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_emitter_members(json, &gc_report_turn_figures, &snapshot->turn, NULL);
    gc_json_end_object(json);
}

/* ---- the parts of a device ---- */

static uint32_t index_of(const struct gc_report *report, const struct gc_device_snapshot *device)
{
    return (uint32_t)(device - report->snapshot->devices);
}

static void put_backend(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_device_snapshot *device = record;
    (void)argument;
    gc_json_string(json, device->is_mapped ? "vmm" : "driver");
}

/* `record`: NULL for the calls that belong to no device. */
static void put_driver_calls(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_device_snapshot *device = record;
    const struct gc_report *report = argument;
    gc_json_begin_object(json, GC_JSON_LINES);
    for (uint16_t i = 0; i < report->snapshot->api_count; i++) {
        const uint64_t count = device != NULL ? device->apis[i].driver_calls
                                              : report->snapshot->process_driver_calls[i];
        if (count > 0)
            gc_json_write_uint(json, report->api_names[i], count);
    }
    gc_json_end_object(json);
}

static void put_apis(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_device_snapshot *device = record;
    const struct gc_report *report = argument;
    gc_json_begin_object(json, GC_JSON_LINES);
    for (uint16_t i = 0; i < report->snapshot->api_count; i++) {
        if (device->apis[i].count > 0)
            gc_emitter_object(json, report->api_names[i], GC_JSON_LINE, &gc_report_api_figures,
                              &device->apis[i]);
    }
    gc_json_end_object(json);
}

/* 1 - largest free block / free bytes: 0 for one block or none. */
static void put_fragmentation(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_device_snapshot *device = record;
    uint64_t millionths = 0;
    (void)argument;
    if (device->largest_free_bytes < device->free_bytes) {
        const unsigned __int128 apart = device->free_bytes - device->largest_free_bytes;
        millionths = (uint64_t)(apart * 1000000 / device->free_bytes);
    }
    gc_json_fixed(json, millionths, 6);
}

static void put_leaks(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_report *report = argument;
    const struct gc_report_leaks *leaks = &report->leaks[index_of(report, record)];
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < leaks->count; i++) {
        const struct gc_leak *leak = &leaks->leaks[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_hex(json, "address", leak->address);
        gc_json_write_uint(json, "bytes", leak->bytes);
        gc_json_write_string(json, "api", gc_report_api_name(report, leak->api));
        gc_json_key(json, "stack");
        gc_report_put_stack(json, report, leak->site);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

/* Absent lists are empty. */
static void put_spilled(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_report *report = argument;
    const struct gc_report_spills none = {.count = 0};
    const struct gc_report_spills *spills =
        report->spills == NULL ? &none : &report->spills[index_of(report, record)];
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < spills->count; i++) {
        const struct gc_spilled *block = &spills->blocks[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_hex(json, "address", block->address);
        gc_json_write_uint(json, "bytes", block->bytes);
        gc_json_write_string(json, "api", gc_report_api_name(report, block->api));
        gc_json_write_string(json, "reason", gc_spills_reason_text(block->reason));
        gc_json_write_fixed(json, "at_s", block->at_ns, 9);
        if (block->ended_ns != 0)
            gc_json_write_fixed(json, "end_s", block->ended_ns, 9);
        else
            gc_json_write_null(json, "end_s");
        gc_json_write_fixed(json, "cost_ms", block->cost_ns, 6);
        gc_json_write_bool(json, "moved", block->is_moved);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void put_call_sites(struct gc_json *json, const void *record, const void *argument)
{
    gc_report_put_sites(json, argument, index_of(argument, record));
}

static void put_leak_groups(struct gc_json *json, const void *record, const void *argument)
{
    gc_report_put_leak_groups(json, argument, index_of(argument, record));
}

const char *gc_report_direct_key(enum gc_direct_kind kind, char key[GC_REPORT_KEY_BYTES])
{
    static const char names[GC_DIRECT_KIND_COUNT][GC_REPORT_KEY_BYTES] = {
#define GC_DIRECT(name, text, charged) #name,
#include "core/observe/direct.def"
#undef GC_DIRECT
    };
    for (size_t i = 0; i < GC_REPORT_KEY_BYTES; i++) {
        const char c = names[kind][i];
        key[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    return key;
}

static void put_direct(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_device_snapshot *device = record;
    char key[GC_REPORT_KEY_BYTES];
    (void)argument;
    gc_json_begin_object(json, GC_JSON_LINES);
    for (int kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++)
        gc_json_write_uint(json, gc_report_direct_key((enum gc_direct_kind)kind, key),
                           device->direct_bytes[kind]);
    gc_json_end_object(json);
}

static void put_plan(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_device_snapshot *device = record;
    (void)argument;
    gc_report_put_plan(json, &device->plan);
}

static void put_tenants(struct gc_json *json, const void *record, const void *argument)
{
    const struct gc_device_snapshot *device = record;
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < device->tenant_count; i++) {
        gc_json_begin_object(json, GC_JSON_LINES);
        gc_emitter_members(json, &gc_report_tenant_figures, &device->tenants[i], argument);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

/* ---- a device ---- */

#define DEVICE(key, type, ...) GC_FIGURE(key, type, struct gc_device_snapshot, __VA_ARGS__)

/* Metrics of stats.def come after the others, in the order of its rows. */
enum {
    RANK_BEFORE_STATS = 9,
#define GC_GAUGE(field, meaning) RANK_##field,
#define GC_COUNTER(field, meaning) RANK_##field,
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
};

static const struct gc_figure device_array[] = {
    DEVICE("ordinal", INT, info.ordinal),
    DEVICE("uuid", NAME, info.uuid),
    DEVICE("name", NAME, info.name),
    GC_FIGURE_WRITTEN("backend", put_backend),
    DEVICE("backend_reason", NAME, info.backend_reason),
    DEVICE("total_bytes", BYTES, info.total_bytes,
           GC_METRIC(0, "memory_bytes", "Memory of the device.")),
    DEVICE("limit_bytes", LIMIT, limit_bytes,
           GC_METRIC(1, "limit_bytes", "The limit of the process; none: no sample.")),
    DEVICE("group", GROUP, group),
    DEVICE("group_limit_bytes", LIMIT, group_limit_bytes,
           GC_METRIC(2, "group_limit_bytes", "The limit of its group; none: no sample.")),
#define GC_GAUGE(field, meaning)                                                                   \
    DEVICE(                                                                                        \
        #field "_bytes", GAUGE, field, .text = (meaning),                                          \
        GC_METRIC(RANK_##field, #field "_bytes", "Bytes " meaning "."),                            \
        GC_PEAK_METRIC(RANK_##field, #field "_peak_bytes", "The most bytes ever " meaning ".")),
#define GC_COUNTER(field, meaning)
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    DEVICE("host_metadata_bytes", BYTES, host_metadata_bytes,
           GC_METRIC(3, "host_metadata_bytes", "Host memory of the library's records.")),
#define GC_GAUGE(field, meaning)
#define COUNTER(field, meaning, is_failure_)                                                       \
    DEVICE(#field, COUNT, field, .text = (meaning), .is_failure = (is_failure_),                   \
           GC_METRIC(RANK_##field, #field, "The " meaning "."))
#define GC_COUNTER(field, meaning) COUNTER(field, meaning, false),
#define GC_FAILURE(field, meaning) COUNTER(field, meaning, true),
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    GC_FIGURE_WRITTEN("driver_calls", put_driver_calls),
    GC_FIGURE_WRITTEN("by_api", put_apis),
    {.key = "fragmentation", .type = GC_FIGURE_OPEN},
    DEVICE("free_bytes", BYTES, free_bytes,
           GC_METRIC(5, "free_bytes", "Free memory in the pools.")),
    DEVICE("largest_free_bytes", BYTES, largest_free_bytes,
           GC_METRIC(6, "largest_free_bytes", "The largest free block of the pools.")),
    GC_FIGURE_WRITTEN("ratio", put_fragmentation),
    DEVICE("stitchable_bytes", BYTES, stitchable_bytes),
    DEVICE("stuck_bytes", BYTES, stuck_bytes),
    {.type = GC_FIGURE_CLOSE},
    GC_FIGURE_WRITTEN("leaks", put_leaks),
    DEVICE("leak_count", COUNT, leak_count,
           GC_METRIC(8, "leaked_allocations", "Allocations never freed when the process ended.")),
    DEVICE("leak_bytes", BYTES, leak_bytes,
           GC_METRIC(7, "leaked_bytes", "Never freed when the process ended.")),
    GC_FIGURE_WRITTEN("call_sites", put_call_sites),
    DEVICE("idle_bytes", BYTES, idle_bytes,
           GC_METRIC(4, "idle_bytes", "Idle memory of the cache, part of reserved.")),
    GC_FIGURE_WRITTEN("direct_bytes", put_direct),
    GC_FIGURE_WRITTEN("plan", put_plan),
    GC_FIGURE_WRITTEN("tenants", put_tenants),
    GC_FIGURE_WRITTEN("spilled", put_spilled),
    GC_FIGURE_WRITTEN("leak_groups", put_leak_groups),
    DEVICE("refused_bytes", BYTES, refused_bytes, .text = "the largest request that was refused",
           .is_failure = true),
    DEVICE("sufficient_bytes", BYTES, sufficient_bytes,
           .text = "the least limit with room for each refused request"),
};
const struct gc_figures gc_report_device_figures = GC_FIGURES(device_array);

/* ---- JSON ---- */

static void put_latency(struct gc_json *json, const char *key, const struct gc_latency *latency)
{
    gc_json_open_object(json, key, GC_JSON_LINE);
    gc_json_write_uint(json, "p50", latency->p50);
    gc_json_write_uint(json, "p99", latency->p99);
    gc_json_write_uint(json, "max", latency->max);
    gc_json_write_uint(json, "count", latency->count);
    gc_json_open_array(json, "histogram", GC_JSON_LINE); /* [below so many ns, count] */
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

static void put_facts(struct gc_json *json, const struct gc_report_facts *facts)
{
    gc_json_write_string(json, "schema", GC_REPORT_SCHEMA);
    gc_json_write_string(json, "version", facts->version);
    gc_json_write_int(json, "pid", facts->process->pid);
    gc_json_write_string(json, "program", facts->process->program);
    gc_json_write_string(json, "command", facts->process->command);
    gc_json_write_string(json, "host", facts->process->host);
    gc_json_write_uint(json, "start_unix", facts->start_unix);
    gc_json_write_fixed(json, "duration_s", facts->duration_ns, 9);
    gc_json_write_string(json, "mode", facts->mode);
    gc_json_write_string(json, "backend", facts->backend);
    gc_json_write_int(json, "driver_version", facts->driver_version);
}

static void put_sentence(void *json, const char *sentence)
{
    gc_json_string(json, sentence);
}

static void put_sentences(struct gc_json *json, const struct gc_report *report)
{
    gc_json_open_array(json, "warnings", GC_JSON_LINES);
    for (uint32_t i = 0; i < report->facts.warning_count; i++)
        gc_json_string(json, report->facts.warnings[i]);
    gc_json_end_array(json);
    gc_json_open_array(json, "advice", GC_JSON_LINES);
    gc_report_advise(report, put_sentence, json);
    gc_json_end_array(json);
}

static void put_verdict(struct gc_json *json, const struct gc_report *report)
{
    static const char *const keys[] = {
#define GC_VERDICT(name, key, judge) key,
#include "core/report/verdicts.def"
#undef GC_VERDICT
    };
    char text[GC_VERDICT_BYTES];
    const enum gc_verdict_kind kind = gc_report_judge(report, text);
    gc_json_write_string(json, "verdict", text);
    gc_json_write_string(json, "problem", keys[kind]);
}

void gc_report_write_json_to(const struct gc_report *report, struct gc_json *json)
{
    const struct gc_report_facts *facts = &report->facts;
    const struct gc_snapshot *snapshot = report->snapshot;
    gc_json_begin_object(json, GC_JSON_LINES);
    put_facts(json, facts);
    gc_json_open_array(json, "devices", GC_JSON_LINES);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        gc_json_begin_object(json, GC_JSON_LINES);
        gc_emitter_members(json, &gc_report_device_figures, &snapshot->devices[i], report);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
    gc_json_open_object(json, "latency_ns", GC_JSON_LINES);
    put_latency(json, "alloc", &snapshot->alloc_latency);
    put_latency(json, "free", &snapshot->free_latency);
    gc_json_end_object(json);
    gc_report_estimate_json(json, report);
    put_sentences(json, report);
    gc_json_write_string(json, "reuse", facts->reuse);
    gc_json_write_uint(json, "stacks_lost", report->stacks.lost);
    gc_json_open_object(json, "settings", GC_JSON_LINES);
    for (uint32_t i = 0; i < facts->setting_count; i++)
        gc_json_write_string(json, facts->settings[i].name, facts->settings[i].value);
    gc_json_end_object(json);
    gc_json_key(json, "driver_calls");
    put_driver_calls(json, NULL, report);
    put_turns(json, snapshot);
    put_verdict(json, report);
    gc_json_end_object(json);
}

enum gc_status gc_report_write_json(const struct gc_report *report, int fd)
{
    struct gc_writer out;
    struct gc_json json;
    gc_writer_init(&out, fd);
    gc_json_init(&json, &out);
    gc_report_write_json_to(report, &json);
    return gc_writer_flush(&out);
}

enum gc_status gc_report_write_html(const struct gc_report *report, int fd)
{
    struct gc_writer out;
    struct gc_json json;
    gc_writer_init(&out, fd);
    gc_html_begin(&json, &out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_string(&json, "name", report->facts.process->program);
    gc_json_key(&json, "report");
    gc_report_write_json_to(report, &json);
    gc_json_write_null(&json, "trace");
    gc_json_end_object(&json);
    gc_html_end(&json);
    return gc_writer_flush(&out);
}
