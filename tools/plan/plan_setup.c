/* The command line of gpucache plan. */
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/io/text.h"
#include "core/plan/plan.h"
#include "tools/plan/plan.h"

#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define DEADLINE_DEFAULT_NS (10 * SECOND_NS)
#define DEADLINE_MAX_S 86400
#define ALIGNMENT_MAX GC_MIB(1024)
#define BUDGET_MAX_PCT 1000
#define PPM_PER_PCT UINT64_C(10000)
#define COUNT_MAX UINT64_C(1000000000)

struct texts {
    const char *capacity;
    const char *deadline;
    const char *alignment;
    const char *threads;
    const char *seed;
    const char *nodes;
    const char *batch;
    const char *seq_len;
    const char *weights;
    const char *inputs;
    const char *outputs;
    const char *recompute;
    struct tool_list dims;
};

/* ---- numbers ---- */

static int parse_counts(const struct texts *texts, struct plan_request *request)
{
    uint64_t threads = 1;
    const struct tool_count counts[] = {
        {"--threads", texts->threads, &threads, 1, PLAN_THREADS_MAX, "an integer, 1 to 64"},
        {"--seed", texts->seed, &request->seed, 0, UINT64_MAX, "an integer"},
        {"--nodes", texts->nodes, &request->node_max, 1, UINT64_MAX, "an integer from 1"},
        {"--batch", texts->batch, &request->batch, 1, COUNT_MAX, "an integer, 1 to 1000000000"},
        {"--seq-len", texts->seq_len, &request->seq_len, 1, COUNT_MAX,
         "an integer, 1 to 1000000000"},
    };
    const int status =
        tool_parse_counts(request->command, counts, sizeof(counts) / sizeof(counts[0]));
    request->threads = (unsigned)threads;
    return status;
}

static int parse_sizes(const struct texts *texts, struct plan_request *request)
{
    if (texts->capacity != NULL &&
        gc_size_parse(texts->capacity, &request->capacity_bytes) != GC_OK)
        return tool_refuse(request->command, "--capacity", texts->capacity, "a size above 0");
    if (texts->alignment != NULL &&
        (gc_size_parse(texts->alignment, &request->alignment) != GC_OK ||
         request->alignment > ALIGNMENT_MAX))
        return tool_refuse(request->command, "--alignment", texts->alignment, "a size, 1 to 1GiB");
    return TOOL_DONE;
}

static int parse_deadline(const struct tool_command *command, const char *text,
                          uint64_t *deadline_ns)
{
    struct gc_decimal seconds;
    const char *end;
    if (text == NULL)
        return TOOL_DONE;
    if (!gc_text_decimal(text, &end, &seconds) || *end != '\0' || seconds.whole > DEADLINE_MAX_S)
        return tool_refuse(command, "--deadline", text, "seconds, 0 to 86400");
    *deadline_ns = seconds.whole * SECOND_NS +
                   (uint64_t)((unsigned __int128)seconds.fraction * SECOND_NS / seconds.scale);
    return TOOL_DONE;
}

/* ---- graphs ---- */

static int parse_keep(const struct tool_command *command, const char *option, const char *text,
                      enum plan_keep *keep)
{
    static const char words[] = "keep, use, leave";
    if (text == NULL)
        return TOOL_DONE;
    const int at = gc_text_find_word(words, text, strlen(text));
    if (at < 0)
        return tool_refuse(command, option, text, words);
    *keep = (enum plan_keep)at;
    return TOOL_DONE;
}

/* In millionths. */
static int parse_budget(const struct tool_command *command, const char *text, uint64_t *ppm)
{
    struct gc_decimal percent;
    const char *end;
    if (text == NULL)
        return TOOL_DONE;
    static const char accepted[] = "a percentage, 0.001% to 1000%";
    if (!gc_text_decimal(text, &end, &percent) || strcmp(end, "%") != 0 ||
        percent.whole > BUDGET_MAX_PCT)
        return tool_refuse(command, "--recompute", text, accepted);
    *ppm = percent.whole * PPM_PER_PCT +
           (uint64_t)((unsigned __int128)percent.fraction * PPM_PER_PCT / percent.scale);
    if (*ppm < PPM_PER_PCT / 1000 || *ppm > BUDGET_MAX_PCT * PPM_PER_PCT)
        return tool_refuse(command, "--recompute", text, accepted);
    return TOOL_DONE;
}

static int parse_dims(const struct tool_list *list, struct plan_request *request)
{
    const char *bad = tool_join_dims(list, request->dims, sizeof(request->dims));
    return bad == NULL ? TOOL_DONE
                       : tool_refuse(request->command, "--dim", bad, "name=N, N from 1");
}

/* ---- the request ---- */

static int parse_values(const struct texts *texts, struct plan_request *request)
{
    int status = parse_counts(texts, request);
    if (status == TOOL_DONE)
        status = parse_sizes(texts, request);
    if (status == TOOL_DONE)
        status = parse_deadline(request->command, texts->deadline, &request->deadline_ns);
    if (status == TOOL_DONE)
        status = parse_keep(request->command, "--weights", texts->weights, &request->weights);
    if (status == TOOL_DONE)
        status = parse_keep(request->command, "--inputs", texts->inputs, &request->inputs);
    if (status == TOOL_DONE)
        status = parse_keep(request->command, "--outputs", texts->outputs, &request->outputs);
    if (status == TOOL_DONE)
        status = parse_budget(request->command, texts->recompute, &request->recompute_ppm);
    return status == TOOL_DONE ? parse_dims(&texts->dims, request) : status;
}

/* The first option that applies to graphs only; NULL: none. */
static const char *find_graph_option(const struct texts *texts, const struct plan_request *request)
{
    const struct {
        const char *option;
        bool is_given;
    } options[] = {
        {"--dim", texts->dims.count > 0},        {"--batch", texts->batch != NULL},
        {"--seq-len", texts->seq_len != NULL},   {"--weights", texts->weights != NULL},
        {"--inputs", texts->inputs != NULL},     {"--outputs", texts->outputs != NULL},
        {"--no-in-place", request->no_in_place}, {"--strict", request->strict},
        {"--reorder", request->reorder},         {"--recompute", texts->recompute != NULL},
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (options[i].is_given)
            return options[i].option;
    }
    return NULL;
}

/* Only one output can go to standard output. */
static bool has_output_conflict(const struct plan_request *request)
{
    const bool has_plan = request->output != NULL && strcmp(request->output, "-") == 0;
    const bool has_picture = request->svg != NULL && strcmp(request->svg, "-") == 0;
    return (unsigned)request->json + has_plan + has_picture > 1;
}

int plan_setup_parse(const struct tool_command *command, int argc, char **argv,
                     struct plan_request *request)
{
    struct texts texts = {.capacity = NULL};
    *request = (struct plan_request){.command = command,
                                     .capacity_bytes = GC_PLACEMENT_UNLIMITED,
                                     .deadline_ns = DEADLINE_DEFAULT_NS,
                                     .begin_ns = gc_clock_ns(),
                                     .batch = 1};
    const struct tool_option options[] = {
        {.name = "--capacity", .value = &texts.capacity},
        {.name = "--output", .value = &request->output},
        {.name = "--svg", .value = &request->svg},
        {.name = "--deadline", .value = &texts.deadline},
        {.name = "--alignment", .value = &texts.alignment},
        {.name = "--threads", .value = &texts.threads},
        {.name = "--seed", .value = &texts.seed},
        {.name = "--nodes", .value = &texts.nodes},
        {.name = "--json", .flag = &request->json},
        {.name = "--dim", .list = &texts.dims},
        {.name = "--batch", .value = &texts.batch},
        {.name = "--seq-len", .value = &texts.seq_len},
        {.name = "--weights", .value = &texts.weights},
        {.name = "--inputs", .value = &texts.inputs},
        {.name = "--outputs", .value = &texts.outputs},
        {.name = "--no-in-place", .flag = &request->no_in_place},
        {.name = "--strict", .flag = &request->strict},
        {.name = "--reorder", .flag = &request->reorder},
        {.name = "--recompute", .value = &texts.recompute},
    };
    const int status =
        tool_parse_file(request->command, options, sizeof(options) / sizeof(options[0]), argc, argv,
                        &request->path);
    if (status != TOOL_DONE || request->path == NULL)
        return status;
    if (has_output_conflict(request))
        return tool_usage(
            request->command,
            "only one of --json, --output - and --svg - can write to standard output");
    request->graph_option = find_graph_option(&texts, request);
    return parse_values(&texts, request);
}

int plan_setup_check(const struct plan_request *request, const struct plan_source *source)
{
    if (source != &plan_source_graph && request->graph_option != NULL)
        return tool_usage(request->command, "%s is for ONNX graphs; %s is %s",
                          request->graph_option, request->path, source->what);
    if (source == &plan_source_trace && request->alignment != 0)
        return tool_usage(request->command,
                          "--alignment is not for traces: the places of %s are multiples of %u",
                          source->what, GC_PLAN_UNIT_BYTES);
    return TOOL_DONE;
}
