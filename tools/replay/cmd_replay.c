/* gpucache replay: runs a trace through core on a simulated device. */
#include "core/base/bits.h"
#include "core/io/text.h"
#include "core/plan/plan.h"
#include "tools/base/tool.h"
#include "tools/replay/replay_print.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PASSES 2

static const struct replay_policy policies[] = {
    {"cache", "vmm", GC_MODE_CACHE, GC_BACKEND_VMM},
    {"cache", "driver", GC_MODE_CACHE, GC_BACKEND_DRIVER},
    {"driver", NULL, GC_MODE_TRACK, GC_BACKEND_DRIVER},
};

#define POLICY_COUNT (sizeof(policies) / sizeof(policies[0]))

static int print(const struct replay_request *request, const struct replay_trace *trace,
                 const struct replay_result *results)
{
    struct gc_writer out;
    gc_writer_init(&out, STDOUT_FILENO);
    if (request->json)
        replay_print_json(&out, request, trace, results);
    else
        replay_print_text(&out, request, trace, results);
    return tool_finish(&tool_command_replay, &out);
}

/* ---- the replay ---- */

static int run_policies(const struct replay_request *request, const struct replay_trace *trace,
                        struct replay_result *results)
{
    bool fits = true;
    for (size_t i = 0; i < request->policy_count; i++) {
        const struct replay_policy *policy = &request->policies[i];
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

/* Twice the peak of live bytes, in whole GiB: more than any policy needs. */
static uint64_t default_memory(const struct replay_trace *trace, unsigned threads)
{
    uint64_t bytes;
    if (!gc_mul_u64(trace->peak_live_bytes, UINT64_C(2) * threads, &bytes) ||
        !gc_round_up_u64(bytes, UINT64_C(1) << 30, &bytes))
        return UINT64_MAX;
    return bytes;
}

static int replay(struct replay_request *request, const struct tool_file *file)
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
        tool_fail(&tool_command_replay, "%s: %s%s", file->path,
                  read == GC_FORMAT ? error.text : gc_status_text(GC_NO_HOST_MEMORY),
                  tool_file_hint(file, TOOL_TRACE));
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
    const char *plan;
};

static int parse_counts(const struct texts *texts, struct replay_request *request)
{
    uint64_t passes = request->setup.passes;
    uint64_t threads = request->setup.threads;
    const struct tool_count counts[] = {
        {"--passes", texts->passes, &passes, 1, REPLAY_PASSES_MAX, "1 to 1000"},
        {"--threads", texts->threads, &threads, 1, REPLAY_THREADS_MAX, "1 to 64"},
    };
    const int status =
        tool_parse_counts(&tool_command_replay, counts, sizeof(counts) / sizeof(counts[0]));
    request->setup.passes = (unsigned)passes;
    request->setup.threads = (unsigned)threads;
    return status;
}

/* Without --policy and --backend all policies run; with a plan, those that follow the plan. */
static int choose_policies(const struct texts *texts, struct replay_request *request)
{
    const bool is_open = texts->policy == NULL && texts->backend == NULL;
    request->policies = policies;
    request->policy_count = !is_open ? 1 : texts->plan == NULL ? POLICY_COUNT : POLICY_COUNT - 1;
    if (texts->policy != NULL && strcmp(texts->policy, "driver") == 0) {
        request->policies = &policies[POLICY_COUNT - 1];
        return texts->backend == NULL && texts->plan == NULL
                   ? TOOL_DONE
                   : tool_usage(&tool_command_replay,
                                "--backend and --plan go with --policy cache");
    }
    if (texts->policy != NULL && strcmp(texts->policy, "cache") != 0)
        return tool_refuse(&tool_command_replay, "--policy", texts->policy, "cache, driver");
    if (texts->backend == NULL || strcmp(texts->backend, "vmm") == 0)
        return TOOL_DONE;
    if (strcmp(texts->backend, "driver") != 0)
        return tool_refuse(&tool_command_replay, "--backend", texts->backend, "vmm, driver");
    request->policies = &policies[1];
    return TOOL_DONE;
}

static int parse_device(const char *text, int *device)
{
    uint64_t value;
    *device = -1;
    if (text == NULL)
        return TOOL_DONE;
    if (!gc_text_uint(text, strlen(text), &value) || value > 255)
        return tool_refuse(&tool_command_replay, "--device", text, "an ordinal, 0 to 255");
    *device = (int)value;
    return TOOL_DONE;
}

static int parse_values(const struct texts *texts, struct replay_request *request)
{
    int status = choose_policies(texts, request);
    if (status == TOOL_DONE && texts->limit != NULL &&
        gc_size_spec_parse(texts->limit, false, &request->setup.limit) != GC_OK)
        status = tool_refuse(&tool_command_replay, "--limit", texts->limit,
                             "a size or percentage, above 0");
    if (status == TOOL_DONE && texts->memory != NULL &&
        gc_size_parse(texts->memory, &request->memory_bytes) != GC_OK)
        status = tool_refuse(&tool_command_replay, "--memory", texts->memory, "a size above 0");
    if (status == TOOL_DONE)
        status = parse_counts(texts, request);
    if (status == TOOL_DONE)
        status = parse_device(texts->device, &request->device);
    return status;
}

static int load_plan(const char *path, struct gc_region *region, struct gc_plan *plan,
                     struct replay_request *request)
{
    struct gc_plan_error error;
    const enum gc_status status = gc_plan_load(region, path, plan, &error);
    request->setup.plan = plan;
    if (status == GC_OK)
        return TOOL_DONE;
    return tool_fail(&tool_command_replay, "%s: %s", path,
                     error.text[0] != '\0' ? error.text : gc_status_text(status));
}

static int run(int argc, char **argv)
{
    struct texts texts = {.policy = NULL};
    struct replay_request request = {.setup = {.passes = DEFAULT_PASSES, .threads = 1}};
    struct tool_file file;
    struct gc_region region;
    struct gc_plan plan;
    const struct tool_option options[] = {
        {.name = "--policy", .value = &texts.policy},
        {.name = "--backend", .value = &texts.backend},
        {.name = "--limit", .value = &texts.limit},
        {.name = "--memory", .value = &texts.memory},
        {.name = "--passes", .value = &texts.passes},
        {.name = "--threads", .value = &texts.threads},
        {.name = "--device", .value = &texts.device},
        {.name = "--json", .flag = &request.json},
        {.name = "--plan", .value = &texts.plan},
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
    gc_region_init(&region, GC_PLAN_REGION_BYTES_MAX);
    if (texts.plan != NULL)
        status = load_plan(texts.plan, &region, &plan, &request);
    if (status == TOOL_DONE)
        status = replay(&request, &file);
    gc_region_fini(&region);
    tool_unmap(&file);
    return status;
}

const struct tool_command tool_command_replay = {
    .name = "replay",
    .synopsis = "TRACE [OPTIONS]",
    .summary = "run a trace against the cache, without a device",
    .help = "  --policy P      cache: served by the cache; driver: every request goes to the\n"
            "                  driver. Without it and --backend all are run and compared\n"
            "  --backend B     vmm (mapped memory, the default), driver (plain driver\n"
            "                  allocations)\n"
            "  --limit S       a limit, as GPUCACHE_LIMIT would set it\n"
            "  --memory S      memory of the simulated device; default: twice the peak of\n"
            "                  live bytes\n"
            "  --passes N      how often the trace is run, one after the other; default 2\n"
            "  --threads N     N threads run the whole trace at once; default 1\n"
            "  --device N      replay this device; default: the one with the most events\n"
            "  --plan F        follow a plan made by `gpucache plan TRACE --output F`; only\n"
            "                  with the cache\n"
            "  --json          one JSON object\n"
            "\n"
            "TRACE, by its content: a record of GPUCACHE_TRACE; a CSV,\n"
            "op,id,bytes,stream,time_us (op a or f; a free of an id that is not live is an\n"
            "error); a PyTorch memory snapshot (pickle, protocol 4 or lower; nothing in it\n"
            "is executed); an RMM log CSV. In recorded logs a free of an address that is not\n"
            "live is left out and counted.\n"
            "\n"
            "Live allocations are freed at the end of a pass. Each allocation is followed by\n"
            "work on its stream, which completes at once. peak reserved: bytes reserved from\n"
            "the device; ratio: peak reserved over peak live; driver ms: modelled time of the\n"
            "driver's calls for memory, as published for an A100 (arXiv 2405.04437);\n"
            "ns/event: a thread's time over its events, without the driver's. As with\n"
            "cudaMalloc, a plain allocation above 1 MiB takes whole pages of 2 MiB.\n"
            "\n"
            "Exit status 3: a request failed for lack of memory.\n",
    .run = run,
};
