/* gpucache replay: a trace through core, on a device that is only simulated. */
#include "core/bits.h"
#include "core/json.h"
#include "core/text.h"
#include "tools/replay_run.h"
#include "tools/tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PASSES 2

/* What a request may be served by: the rows of the table. */
static const struct policy {
    const char *name;    /* of --policy */
    const char *backend; /* of --backend; NULL: it has no meaning */
    enum gc_mode mode;
    enum gc_backend gc_backend;
} policies[] = {
    {"cache", "vmm", GC_MODE_CACHE, GC_BACKEND_VMM},
    {"cache", "driver", GC_MODE_CACHE, GC_BACKEND_DRIVER},
    {"driver", NULL, GC_MODE_TRACK, GC_BACKEND_DRIVER},
};

#define POLICY_COUNT (sizeof(policies) / sizeof(policies[0]))

struct request {
    const char *path;
    size_t first_policy;
    size_t policy_count;
    int device;            /* -1: the busiest */
    uint64_t memory_bytes; /* 0: by the trace */
    struct replay_setup setup;
    bool json;
};

/* ---- output ---- */

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

static void put_name(struct gc_out *out, const char *name)
{
    gc_out_text(out, name);
    gc_out_pad(out, 22);
}

static void put_size(struct gc_out *out, const char *name, uint64_t bytes)
{
    char size[GC_TEXT_SIZE_BYTES];
    put_name(out, name);
    gc_out_uint(out, bytes);
    gc_out_text(out, " (");
    gc_out_text(out, gc_text_size(bytes, size));
    gc_out_text(out, ")\n");
}

static void put_count(struct gc_out *out, const char *name, uint64_t count, const char *note)
{
    put_name(out, name);
    gc_out_uint(out, count);
    gc_out_text(out, note);
    gc_out_char(out, '\n');
}

static void print_trace(struct gc_out *out, const struct request *request,
                        const struct replay_trace *trace)
{
    put_name(out, "trace");
    gc_out_text(out, request->path);
    gc_out_text(out, " (");
    gc_out_text(out, trace->format);
    if (trace->device >= 0) {
        gc_out_text(out, ", device ");
        gc_out_int(out, trace->device);
    }
    gc_out_text(out, ")\n");
    put_count(out, "events", trace->count - trace->closing, "");
    if (trace->closing > 0)
        put_count(out, "live at the end", trace->closing, " (freed at the end of each pass)");
    if (trace->unknown_frees > 0)
        put_count(out, "unknown frees", trace->unknown_frees, " (not live: left out)");
    if (trace->implied_frees > 0)
        put_count(out, "implied frees", trace->implied_frees, " (address handed out again)");
    if (trace->left_out > 0)
        put_count(out, "other records", trace->left_out, " (left out)");
    if (trace->torn)
        gc_out_text(out, "the last record is incomplete: left out\n");
    put_size(out, "peak live", trace->peak_live_bytes);
    put_size(out, "device memory", request->setup.memory_bytes);
    if (request->setup.threads > 1)
        put_count(out, "threads", request->setup.threads, " (each replays the whole trace)");
}

static void print_policy(struct gc_out *out, const struct policy *policy)
{
    gc_out_text(out, policy->name);
    if (policy->backend != NULL) {
        gc_out_text(out, ", ");
        gc_out_text(out, policy->backend);
    }
}

static void right_fixed(struct gc_out *out, size_t column, uint64_t value, unsigned digits)
{
    char text[32];
    char *at = text + sizeof(text) - 1;
    *at = '\0';
    for (unsigned i = 0; i <= digits || value > 0; i++, value /= 10) {
        if (i == digits && digits > 0)
            *--at = '.';
        *--at = (char)('0' + value % 10);
    }
    gc_out_right(out, column, at);
}

static void print_table_head(struct gc_out *out)
{
    gc_out_text(out, "\npolicy");
    gc_out_right(out, 32, "peak reserved");
    gc_out_right(out, 41, "ratio");
    gc_out_right(out, 47, "pass");
    gc_out_right(out, 61, "driver calls");
    gc_out_right(out, 71, "ns/event");
    gc_out_right(out, 81, "misses");
    gc_out_char(out, '\n');
}

static void print_passes(struct gc_out *out, const struct request *request,
                         const struct replay_trace *trace, const struct policy *policy,
                         const struct replay_result *result)
{
    char size[GC_TEXT_SIZE_BYTES];
    for (unsigned i = 0; i < request->setup.passes; i++) {
        const struct replay_pass *pass = &result->passes[i];
        if (i == 0) {
            print_policy(out, policy);
            gc_out_right(out, 32, gc_text_size(result->peak_reserved_bytes, size));
            right_fixed(out, 41, ratio(result->peak_reserved_bytes, result->peak_live_bytes), 4);
        }
        right_fixed(out, 47, i + 1, 0);
        right_fixed(out, 61, pass->driver_calls, 0);
        right_fixed(out, 71, ns_per_event(trace, pass), 1);
        right_fixed(out, 81, pass->misses, 0);
        gc_out_char(out, '\n');
    }
    if (result->oom_count > 0) {
        gc_out_text(out, "  ");
        gc_out_uint(out, result->oom_count);
        gc_out_text(out, " requests found no memory\n");
    }
}

static void put_ratio(struct gc_json *json, uint64_t value, unsigned digits, const char *key)
{
    gc_json_key(json, key);
    gc_json_fixed(json, value, digits);
}

static void json_passes(struct gc_json *json, const struct request *request,
                        const struct replay_trace *trace, const struct replay_result *result)
{
    gc_json_key(json, "passes");
    gc_json_begin_array(json, GC_JSON_LINES);
    for (unsigned i = 0; i < request->setup.passes; i++) {
        const struct replay_pass *pass = &result->passes[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_put_uint(json, "driver_calls", pass->driver_calls);
        put_ratio(json, ns_per_event(trace, pass), 1, "ns_per_event");
        gc_json_put_uint(json, "hit_count", pass->hits);
        gc_json_put_uint(json, "miss_count", pass->misses);
        gc_json_put_uint(json, "oom_count", pass->ooms);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void json_policy(struct gc_json *json, const struct request *request,
                        const struct replay_trace *trace, const struct policy *policy,
                        const struct replay_result *result)
{
    gc_json_put_string(json, "policy", policy->name);
    if (policy->backend != NULL)
        gc_json_put_string(json, "backend", policy->backend);
    else
        gc_json_put_null(json, "backend");
    gc_json_put_uint(json, "peak_live_bytes", result->peak_live_bytes);
    gc_json_put_uint(json, "peak_reserved_bytes", result->peak_reserved_bytes);
    put_ratio(json, ratio(result->peak_reserved_bytes, result->peak_live_bytes), 4, "ratio");
    gc_json_put_uint(json, "oom_count", result->oom_count);
    gc_json_put_uint(json, "host_metadata_bytes", result->host_metadata_bytes);
    json_passes(json, request, trace, result);
    gc_json_key(json, "driver_calls");
    gc_json_begin_object(json, GC_JSON_LINE);
    for (unsigned call = 0; call < REPLAY_CALL_COUNT; call++) {
        if (result->calls[call] > 0)
            gc_json_put_uint(json, replay_call_name((enum replay_call)call), result->calls[call]);
    }
    gc_json_end_object(json);
}

static void print_json(struct gc_out *out, const struct request *request,
                       const struct replay_trace *trace, const struct replay_result *results)
{
    const struct policy *first = &policies[request->first_policy];
    struct gc_json json;
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_put_string(&json, "format", trace->format);
    gc_json_put_uint(&json, "events", trace->count - trace->closing);
    gc_json_put_uint(&json, "live_at_end_count", trace->closing);
    gc_json_put_uint(&json, "unknown_free_count", trace->unknown_frees);
    gc_json_put_uint(&json, "implied_free_count", trace->implied_frees);
    gc_json_put_uint(&json, "left_out_count", trace->left_out);
    gc_json_put_uint(&json, "memory_bytes", request->setup.memory_bytes);
    gc_json_key(&json, "limit_bytes");
    if (results[0].limit_bytes == UINT64_MAX)
        gc_json_null(&json);
    else
        gc_json_uint(&json, results[0].limit_bytes);
    gc_json_put_uint(&json, "threads", request->setup.threads);
    json_policy(&json, request, trace, first, &results[0]);
    if (request->policy_count > 1) {
        gc_json_key(&json, "policies");
        gc_json_begin_array(&json, GC_JSON_LINES);
        for (size_t i = 0; i < request->policy_count; i++) {
            gc_json_begin_object(&json, GC_JSON_LINES);
            json_policy(&json, request, trace, first + i, &results[i]);
            gc_json_end_object(&json);
        }
        gc_json_end_array(&json);
    }
    gc_json_end_object(&json);
}

static int print(const struct request *request, const struct replay_trace *trace,
                 const struct replay_result *results)
{
    struct gc_out out;
    gc_out_init(&out, STDOUT_FILENO);
    if (request->json) {
        print_json(&out, request, trace, results);
    } else {
        print_trace(&out, request, trace);
        print_table_head(&out);
        for (size_t i = 0; i < request->policy_count; i++)
            print_passes(&out, request, trace, &policies[request->first_policy + i], &results[i]);
    }
    return tool_finish(&tool_command_replay, &out);
}

/* ---- the replay ---- */

static int run_policies(const struct request *request, const struct replay_trace *trace,
                        struct replay_result *results)
{
    bool fits = true;
    for (size_t i = 0; i < request->policy_count; i++) {
        const struct policy *policy = &policies[request->first_policy + i];
        struct replay_setup setup = request->setup;
        setup.mode = policy->mode;
        setup.backend = policy->gc_backend;
        const enum gc_status status = replay_run(trace, &setup, &results[i]);
        if (status != GC_OK)
            return tool_fail(&tool_command_replay, "%s: %s", request->path, gc_status_text(status));
        if (results[i].fault != NULL)
            return tool_fail(&tool_command_replay, "a defect: the simulated device refused %s",
                             results[i].fault);
        fits = fits && results[i].oom_count == 0;
    }
    const int printed = print(request, trace, results);
    return printed != TOOL_DONE || fits ? printed : TOOL_DOES_NOT_FIT;
}

/* Twice what is live at most, in whole GiB: more than any policy needs. */
static uint64_t default_memory(const struct replay_trace *trace, unsigned threads)
{
    uint64_t bytes;
    if (!gc_mul_u64(trace->peak_live_bytes, UINT64_C(2) * threads, &bytes) ||
        !gc_round_up_u64(bytes, UINT64_C(1) << 30, &bytes))
        return UINT64_MAX;
    return bytes;
}

static int replay(struct request *request, const struct tool_file *file)
{
    struct replay_trace trace;
    struct replay_error error;
    int status = TOOL_FAILED;
    const enum gc_status read =
        replay_trace_read(file->data, file->bytes, request->device, &trace, &error);
    struct replay_result *results = calloc(request->policy_count, sizeof(*results));
    if (read == GC_FORMAT && error.line > 0) {
        tool_fail(&tool_command_replay, "%s: line %llu: %s", file->path,
                  (unsigned long long)error.line, error.text);
    } else if (read != GC_OK || results == NULL) {
        tool_fail(&tool_command_replay, "%s: %s", file->path,
                  read == GC_FORMAT ? error.text : gc_status_text(GC_NO_HOST_MEMORY));
    } else {
        request->setup.memory_bytes = request->memory_bytes > 0
                                          ? request->memory_bytes
                                          : default_memory(&trace, request->setup.threads);
        status = run_policies(request, &trace, results);
    }
    free(results);
    replay_trace_fini(&trace);
    return status;
}

/* ---- the command line ---- */

struct texts {
    const char *policy;
    const char *backend;
    const char *limit;
    const char *memory;
    const char *passes;
    const char *threads;
    const char *device;
};

static int refuse_value(const char *option, const char *value, const char *accepted)
{
    char shown[64];
    return tool_usage(&tool_command_replay, "%s %s is not valid; accepted: %s", option,
                      gc_text_show(value, strlen(value), shown, sizeof(shown)), accepted);
}

static int parse_count(const char *option, const char *text, unsigned maximum, const char *accepted,
                       unsigned *count)
{
    uint64_t value;
    if (text == NULL)
        return TOOL_DONE;
    if (!gc_text_uint(text, strlen(text), &value) || value == 0 || value > maximum)
        return refuse_value(option, text, accepted);
    *count = (unsigned)value;
    return TOOL_DONE;
}

/* No --policy and no --backend: all of them, compared. */
static int choose_policies(const struct texts *texts, struct request *request)
{
    request->first_policy = 0;
    request->policy_count = texts->policy == NULL && texts->backend == NULL ? POLICY_COUNT : 1;
    if (texts->policy != NULL && strcmp(texts->policy, "driver") == 0) {
        request->first_policy = POLICY_COUNT - 1;
        return texts->backend == NULL
                   ? TOOL_DONE
                   : tool_usage(&tool_command_replay, "--backend goes with --policy cache");
    }
    if (texts->policy != NULL && strcmp(texts->policy, "cache") != 0)
        return refuse_value("--policy", texts->policy, "cache, driver");
    if (texts->backend == NULL || strcmp(texts->backend, "vmm") == 0)
        return TOOL_DONE;
    if (strcmp(texts->backend, "driver") != 0)
        return refuse_value("--backend", texts->backend, "vmm, driver");
    request->first_policy = 1;
    return TOOL_DONE;
}

static int parse_device(const char *text, int *device)
{
    uint64_t value;
    *device = -1;
    if (text == NULL)
        return TOOL_DONE;
    if (!gc_text_uint(text, strlen(text), &value) || value > 255)
        return refuse_value("--device", text, "an ordinal, 0 to 255");
    *device = (int)value;
    return TOOL_DONE;
}

static int parse_values(const struct texts *texts, struct request *request)
{
    int status = choose_policies(texts, request);
    if (status == TOOL_DONE && texts->limit != NULL &&
        gc_parse_size_spec(texts->limit, false, &request->setup.limit) != GC_OK)
        status = refuse_value("--limit", texts->limit, "a size or percentage, above 0");
    if (status == TOOL_DONE && texts->memory != NULL &&
        gc_parse_size(texts->memory, &request->memory_bytes) != GC_OK)
        status = refuse_value("--memory", texts->memory, "a size above 0");
    if (status == TOOL_DONE)
        status = parse_count("--passes", texts->passes, REPLAY_PASSES_MAX, "1 to 1000",
                             &request->setup.passes);
    if (status == TOOL_DONE)
        status = parse_count("--threads", texts->threads, REPLAY_THREADS_MAX, "1 to 64",
                             &request->setup.threads);
    if (status == TOOL_DONE)
        status = parse_device(texts->device, &request->device);
    return status;
}

static int run(int argc, char **argv)
{
    struct texts texts = {.policy = NULL};
    struct request request = {.setup = {.passes = DEFAULT_PASSES, .threads = 1}};
    struct tool_file file;
    const struct tool_option options[] = {
        {.name = "--policy", .value = &texts.policy},
        {.name = "--backend", .value = &texts.backend},
        {.name = "--limit", .value = &texts.limit},
        {.name = "--memory", .value = &texts.memory},
        {.name = "--passes", .value = &texts.passes},
        {.name = "--threads", .value = &texts.threads},
        {.name = "--device", .value = &texts.device},
        {.name = "--json", .flag = &request.json},
        {.name = "--plan", .absent = true},
    };
    int status = tool_parse_file(&tool_command_replay, options,
                                 sizeof(options) / sizeof(options[0]), argc, argv, &request.path);
    if (status != TOOL_DONE || request.path == NULL)
        return status;
    status = parse_values(&texts, &request);
    if (status == TOOL_DONE)
        status = tool_map(&tool_command_replay, request.path, &file);
    if (status != TOOL_DONE)
        return status;
    status = replay(&request, &file);
    tool_unmap(&file);
    return status;
}

const struct tool_command tool_command_replay = {
    .name = "replay",
    .synopsis = "TRACE [OPTIONS]",
    .summary = "run a trace against the cache, without a device",
    .help =
        "  --policy P      cache: served by the cache; driver: every request goes to the driver.\n"
        "                  Without it and --backend all are run and compared\n"
        "  --backend B     vmm (mapped memory, the default), driver (plain driver allocations)\n"
        "  --limit S       a limit, as GPUCACHE_LIMIT would set it\n"
        "  --memory S      memory of the simulated device; default: twice what is live at most\n"
        "  --passes N      how often the trace is run, one after the other; default 2\n"
        "  --threads N     N threads run the whole trace at once; default 1\n"
        "  --device N      whose events to take; default: the device that has most\n"
        "  --json          one JSON object\n"
        "\n"
        "TRACE, by its content: a record of GPUCACHE_TRACE; a CSV, op,id,bytes,stream,time_us\n"
        "(op a or f; a free of an id that is not live is an error); a PyTorch memory snapshot\n"
        "(pickle, protocol 4 or lower; nothing in it is executed); an RMM log CSV.\n"
        "In recorded logs a free of an address that is not live is left out and counted.\n"
        "\n"
        "What is live at the end of a pass is freed before the next one. Work follows each\n"
        "allocation on its stream; it is done at once. peak reserved is what was held from\n"
        "the device, ratio that over peak live; ns/event is a thread's time over its events.\n"
        "\n"
        "Exit status 3: some request found no memory.\n",
    .run = run,
};
