#include "tools/replay/replay_print.h"

#include "core/io/json.h"
#include "core/io/text.h"
#include "core/report/tables.h"

/* In ten-thousandths. */
static uint64_t ratio(uint64_t reserved, uint64_t live)
{
    return live > 0 ? (uint64_t)((double)reserved / (double)live * 10000.0 + 0.5) : 0;
}

/* In tenths. */
static uint64_t ns_per_event(const struct replay_trace *trace, const struct replay_pass *pass)
{
    return (uint64_t)((double)pass->ns * 10.0 / (double)trace->count + 0.5);
}

static void write_name(struct gc_writer *out, const char *name)
{
    gc_writer_text(out, name);
    gc_writer_pad(out, 22);
}

static void write_size(struct gc_writer *out, const char *name, uint64_t bytes)
{
    write_name(out, name);
    gc_writer_print(out, "%lu (%s)\n", bytes, GC_TEXT_SIZE(bytes));
}

static void write_count(struct gc_writer *out, const char *name, uint64_t count, const char *note)
{
    write_name(out, name);
    gc_writer_print(out, "%lu%s\n", count, note);
}

static void print_trace(struct gc_writer *out, const struct replay_request *request,
                        const struct replay_trace *trace)
{
    write_name(out, "trace");
    gc_writer_print(out, "%s (%s", request->path, trace->format);
    if (trace->device >= 0)
        gc_writer_print(out, ", device %d", trace->device);
    gc_writer_text(out, ")\n");
    write_count(out, "events", trace->count - trace->closing, "");
    if (trace->closing > 0)
        write_count(out, "live at the end", trace->closing, " (freed at the end of each pass)");
    if (trace->unknown_frees > 0)
        write_count(out, "unknown frees", trace->unknown_frees, " (not live: left out)");
    if (trace->implied_frees > 0)
        write_count(out, "implied frees", trace->implied_frees,
                    " (address reused: its free was not recorded)");
    if (trace->left_out > 0)
        write_count(out, "other records", trace->left_out, " (left out)");
    if (trace->torn)
        gc_writer_text(out, "the last record is incomplete: left out\n");
    write_size(out, "peak live", trace->peak_live_bytes);
    write_size(out, "device memory", request->setup.memory_bytes);
    if (request->setup.threads > 1)
        write_count(out, "threads", request->setup.threads, " (each replays the whole trace)");
}

static void print_policy(struct gc_writer *out, const struct replay_policy *policy)
{
    gc_writer_text(out, policy->name);
    if (policy->backend != NULL)
        gc_writer_print(out, ", %s", policy->backend);
}

static void right_fixed(struct gc_writer *out, size_t column, uint64_t value, unsigned digits)
{
    char text[32];
    char *at = text + sizeof(text) - 1;
    *at = '\0';
    for (unsigned i = 0; i <= digits || value > 0; i++, value /= 10) {
        if (i == digits && digits > 0)
            *--at = '.';
        *--at = (char)('0' + value % 10);
    }
    gc_writer_right(out, column, at);
}

static void print_table_head(struct gc_writer *out)
{
    gc_writer_text(out, "\npolicy");
    gc_writer_right(out, 32, "peak reserved");
    gc_writer_right(out, 41, "ratio");
    gc_writer_right(out, 47, "pass");
    gc_writer_right(out, 61, "driver calls");
    gc_writer_right(out, 72, "driver ms");
    gc_writer_right(out, 82, "ns/event");
    gc_writer_right(out, 92, "misses");
    gc_writer_char(out, '\n');
}

/* Prints the number of allocations that followed the plan, and the reasons for the others. */
static void print_plan(struct gc_writer *out, const struct gc_follow_figures *plan)
{
    gc_writer_print(out, "  plan of %s: %lu followed (%s)", GC_TEXT_SIZE(plan->peak_bytes),
                    plan->followed_count, GC_TEXT_SIZE(plan->followed_bytes));
#define GC_FOLLOW_REASON(name, key, text)                                                          \
    if (plan->key##_count > 0)                                                                     \
        gc_writer_print(out, ", %lu " text, plan->key##_count);
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    gc_writer_char(out, '\n');
}

static void print_passes(struct gc_writer *out, const struct replay_request *request,
                         const struct replay_trace *trace, const struct replay_policy *policy,
                         const struct replay_result *result)
{
    char size[GC_TEXT_SIZE_BYTES];
    for (unsigned i = 0; i < request->setup.passes; i++) {
        const struct replay_pass *pass = &result->passes[i];
        if (i == 0) {
            print_policy(out, policy);
            gc_writer_right(out, 32, gc_text_size(result->peak_reserved_bytes, size));
            right_fixed(out, 41, ratio(result->peak_reserved_bytes, result->peak_live_bytes), 4);
        }
        right_fixed(out, 47, i + 1, 0);
        right_fixed(out, 61, pass->driver_calls, 0);
        right_fixed(out, 72, pass->driver_ns / 1000, 3);
        right_fixed(out, 82, ns_per_event(trace, pass), 1);
        right_fixed(out, 92, pass->misses, 0);
        gc_writer_char(out, '\n');
    }
    if (result->plan.entry_count > 0)
        print_plan(out, &result->plan);
    if (result->oom_count > 0)
        gc_writer_print(out, "  %lu requests found no memory\n", result->oom_count);
}

static void json_passes(struct gc_json *json, const struct replay_request *request,
                        const struct replay_trace *trace, const struct replay_result *result)
{
    gc_json_open_array(json, "passes", GC_JSON_LINES);
    for (unsigned i = 0; i < request->setup.passes; i++) {
        const struct replay_pass *pass = &result->passes[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_uint(json, "driver_calls", pass->driver_calls);
        gc_json_write_fixed(json, "driver_ms", pass->driver_ns / 1000, 3);
        gc_json_write_fixed(json, "ns_per_event", ns_per_event(trace, pass), 1);
        gc_json_write_uint(json, "hit_count", pass->hits);
        gc_json_write_uint(json, "miss_count", pass->misses);
        gc_json_write_uint(json, "oom_count", pass->ooms);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void json_policy(struct gc_json *json, const struct replay_request *request,
                        const struct replay_trace *trace, const struct replay_policy *policy,
                        const struct replay_result *result)
{
    gc_json_write_string(json, "policy", policy->name);
    if (policy->backend != NULL)
        gc_json_write_string(json, "backend", policy->backend);
    else
        gc_json_write_null(json, "backend");
    gc_json_write_uint(json, "peak_live_bytes", result->peak_live_bytes);
    gc_json_write_uint(json, "peak_reserved_bytes", result->peak_reserved_bytes);
    gc_json_write_fixed(json, "ratio", ratio(result->peak_reserved_bytes, result->peak_live_bytes),
                        4);
    gc_json_write_uint(json, "peak_handle_count", result->peak_handle_count);
    gc_json_write_uint(json, "oom_count", result->oom_count);
    gc_json_write_uint(json, "host_metadata_bytes", result->host_metadata_bytes);
    json_passes(json, request, trace, result);
    gc_json_key(json, "plan");
    gc_report_put_plan(json, &result->plan);
    gc_json_open_object(json, "driver_calls", GC_JSON_LINE);
    for (unsigned call = 0; call < REPLAY_CALL_COUNT; call++) {
        if (result->calls[call] > 0)
            gc_json_write_uint(json, replay_call_name((enum replay_call)call), result->calls[call]);
    }
    gc_json_end_object(json);
}

void replay_print_json(struct gc_writer *out, const struct replay_request *request,
                       const struct replay_trace *trace, const struct replay_result *results)
{
    const struct replay_policy *first = request->policies;
    struct gc_json json;
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_string(&json, "format", trace->format);
    gc_json_write_uint(&json, "events", trace->count - trace->closing);
    gc_json_write_uint(&json, "live_at_end_count", trace->closing);
    gc_json_write_uint(&json, "unknown_free_count", trace->unknown_frees);
    gc_json_write_uint(&json, "implied_free_count", trace->implied_frees);
    gc_json_write_uint(&json, "left_out_count", trace->left_out);
    gc_json_write_uint(&json, "memory_bytes", request->setup.memory_bytes);
    gc_json_write_limit(&json, "limit_bytes", results[0].limit_bytes);
    gc_json_write_uint(&json, "threads", request->setup.threads);
    json_policy(&json, request, trace, first, &results[0]);
    if (request->policy_count > 1) {
        gc_json_open_array(&json, "policies", GC_JSON_LINES);
        for (size_t i = 0; i < request->policy_count; i++) {
            gc_json_begin_object(&json, GC_JSON_LINES);
            json_policy(&json, request, trace, first + i, &results[i]);
            gc_json_end_object(&json);
        }
        gc_json_end_array(&json);
    }
    gc_json_end_object(&json);
}

void replay_print_text(struct gc_writer *out, const struct replay_request *request,
                       const struct replay_trace *trace, const struct replay_result *results)
{
    print_trace(out, request, trace);
    print_table_head(out);
    for (size_t i = 0; i < request->policy_count; i++)
        print_passes(out, request, trace, &request->policies[i], &results[i]);
}
