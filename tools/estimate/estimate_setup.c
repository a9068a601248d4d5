#include "tools/estimate/estimate_setup.h"
#include "core/estimator/train.h"
#include "core/io/text.h"
#include "tools/estimate/calibration.h"
#include "tools/estimate/context_memory.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MILLION 1000000

struct texts {
    const char *budget;
    const char *memory;
    const char *batch;
    const char *seq_len;
    const char *chunk;
    const char *dtype;
    const char *kv_dtype;
    const char *devices;
    const char *split;
    const char *attention;
    const char *overhead;
    const char *context;
    const char *experts;
    const char *engine;
    const char *utilisation;
    const char *gpu_layers;
    const char *calibration;
    const char *train;
    const char *zero;
    const char *lora;
    struct tool_list dims;
};

/* ---- single values ---- */

static int parse_counts(const struct tool_command *command, const struct texts *texts,
                        struct gc_estimate_request *request)
{
    uint64_t devices = 1;
    uint64_t stage = GC_TRAINING_NO_ZERO;
    static const char many[] = "an integer, 1 to 1000000000";
    const struct tool_count counts[] = {
        {"--batch", texts->batch, &request->batch, 1, GC_ESTIMATE_COUNT_MAX, many},
        {"--seq-len", texts->seq_len, &request->seq_len, 1, GC_ESTIMATE_COUNT_MAX, many},
        {"--chunk", texts->chunk, &request->chunk_tokens, 1, GC_ESTIMATE_COUNT_MAX, many},
        {"--resident-experts", texts->experts, &request->resident_experts, 0, 65536,
         "an integer, 0 to 65536"},
        {"--gpu-layers", texts->gpu_layers, &request->device_layers, 0, GC_ARCH_LAYER_MAX + 1,
         "an integer, 0 to 1025"},
        {"--devices", texts->devices, &devices, 1, GC_ESTIMATE_DEVICE_MAX, "an integer, 1 to 64"},
        {"--zero", texts->zero, &stage, 0, GC_TRAINING_ZERO_MAX, "a stage: 0, 1, 2, 3"},
        {"--lora", texts->lora, &request->training.lora_rank, 1, GC_ESTIMATE_RANK_MAX,
         "a rank, an integer, 1 to 65536"},
    };
    const int status = tool_parse_counts(command, counts, sizeof(counts) / sizeof(counts[0]));
    request->device_count = (uint32_t)devices;
    request->training.zero_stage = (uint32_t)stage;
    return status;
}

#define TYPES "an element type: f32, f16, bf16, f8, i8, q8_0, q4_0, ..."
#define WEIGHT_TYPES TYPES "; a kind of file: Q8_0, Q4_K_M, fp8, awq, ..."

static int parse_dtype(const struct tool_command *command, const char *option, const char *text,
                       const char *accepted, enum gc_dtype *dtype)
{
    if (text == NULL)
        return TOOL_DONE;
    *dtype = gc_dtype_from_word(text, strlen(text));
    if (*dtype == GC_DTYPE_NONE || gc_dtype_get_info(*dtype)->block_bytes == 0)
        return tool_refuse(command, option, text, accepted);
    return TOOL_DONE;
}

/* A kind of file of quantised weights, or an element type. */
static int parse_weights(const struct tool_command *command, const char *text,
                         struct estimate_setup *setup)
{
    if (text != NULL)
        setup->request.mix = gc_mix_from_word(text, strlen(text));
    return setup->request.mix == GC_MIX_NONE
               ? parse_dtype(command, "--dtype", text, WEIGHT_TYPES, &setup->weight_dtype)
               : TOOL_DONE;
}

static int parse_engine(const struct tool_command *command, const struct texts *texts,
                        struct gc_estimate_request *request)
{
    struct gc_decimal share;
    const char *end;
    if (texts->engine != NULL)
        request->engine = gc_engine_from_word(texts->engine);
    if (texts->engine != NULL && request->engine == GC_ENGINE_BY_FILES)
        return tool_refuse(command, "--engine", texts->engine, gc_engine_names());
    if (texts->utilisation == NULL)
        return TOOL_DONE;
    if (!gc_text_decimal(texts->utilisation, &end, &share) || *end != '\0' || share.whole > 1 ||
        (share.whole == 1 && share.fraction > 0) || (share.whole == 0 && share.fraction == 0))
        return tool_refuse(command, "--utilisation", texts->utilisation, "a fraction, 0.001 to 1");
    request->fraction =
        (uint32_t)(share.whole * 1000 + (unsigned __int128)share.fraction * 1000 / share.scale);
    return request->fraction > 0 ? TOOL_DONE
                                 : tool_refuse(command, "--utilisation", texts->utilisation,
                                               "a fraction, 0.001 to 1");
}

static const char splits[] = "layers, tensor";
static const char attentions[] = "flash, full";

static int parse_words(const struct tool_command *command, const struct texts *texts,
                       struct gc_estimate_request *request)
{
    if (texts->split != NULL) {
        const int at = gc_text_find_word(splits, texts->split, strlen(texts->split));
        if (at < 0)
            return tool_refuse(command, "--split", texts->split, splits);
        request->split = at == 0 ? GC_SPLIT_LAYERS : GC_SPLIT_TENSOR;
    }
    if (texts->attention != NULL) {
        const int at = gc_text_find_word(attentions, texts->attention, strlen(texts->attention));
        if (at < 0)
            return tool_refuse(command, "--attention", texts->attention, attentions);
        request->scores_materialised = at == 1;
    }
    if (texts->train != NULL)
        request->training.optimiser = gc_optimiser_from_word(texts->train);
    if (texts->train != NULL && !gc_training_is_asked(&request->training))
        return tool_refuse(command, "--train", texts->train, gc_optimiser_names());
    return TOOL_DONE;
}

/* A factor from 1 to 100 as millionths above 1. */
static int parse_overhead(const struct tool_command *command, const char *text,
                          uint64_t *millionths)
{
    static const char accepted[] = "a factor, 1 to 100";
    struct gc_decimal factor;
    const char *end;
    if (text == NULL)
        return TOOL_DONE;
    if (!gc_text_decimal(text, &end, &factor) || *end != '\0' || factor.whole < 1 ||
        factor.whole > 100 || (factor.whole == 100 && factor.fraction > 0))
        return tool_refuse(command, "--overhead", text, accepted);
    *millionths = (factor.whole - 1) * MILLION +
                  (uint64_t)((unsigned __int128)factor.fraction * MILLION / factor.scale);
    return TOOL_DONE;
}

/* 0 is a valid size: no context. */
static int parse_context(const struct tool_command *command, const char *text, uint64_t *bytes)
{
    if (text == NULL)
        return TOOL_DONE;
    if (strcmp(text, "0") == 0) {
        *bytes = 0;
        return TOOL_DONE;
    }
    if (strcmp(text, "measured") == 0)
        return context_memory_measure(command, bytes);
    return gc_size_parse(text, bytes) == GC_OK
               ? TOOL_DONE
               : tool_refuse(command, "--context-memory", text, "a size, 0, or measured");
}

/* ---- dimensions ---- */

static int parse_dims(const struct tool_command *command, const struct tool_list *list,
                      struct estimate_setup *setup)
{
    const char *bad = tool_join_dims(list, setup->dims, sizeof(setup->dims));
    if (bad != NULL)
        return tool_refuse(command, "--dim", bad, "name=N, N from 1");
    setup->request.dims = setup->dims[0] != '\0' ? setup->dims : NULL;
    return TOOL_DONE;
}

/* ---- the budget ---- */

static int check_budget(const struct tool_command *command, const struct gc_size_spec *spec,
                        const char *text, const char *memory, uint32_t device_count)
{
    for (uint32_t i = 0; i < spec->count; i++) {
        if (spec->entries[i].uuid[0] != '\0')
            return tool_refuse(command, "--budget", text, "devices by number: 0=8GiB,1=50%");
        if (spec->entries[i].ordinal >= (int)device_count)
            return tool_usage(
                command, "--budget %s names device %d, but there are %u devices: set --devices N",
                text, spec->entries[i].ordinal, (unsigned)device_count);
        if (spec->entries[i].is_percent && memory == NULL)
            return tool_usage(command,
                              "--budget %s is a percentage: add --memory SIZE, the device's memory",
                              text);
    }
    return TOOL_DONE;
}

static int parse_budget(const struct tool_command *command, const struct texts *texts,
                        uint64_t memory, struct estimate_setup *setup)
{
    struct gc_size_spec spec;
    setup->has_budget = texts->budget != NULL || texts->memory != NULL;
    gc_fit_set_budget(&setup->budget, texts->memory != NULL ? memory : GC_ESTIMATE_NO_BUDGET);
    if (texts->budget == NULL)
        return TOOL_DONE;
    if (gc_size_spec_parse(texts->budget, true, &spec) != GC_OK)
        return tool_refuse(command, "--budget", texts->budget,
                           "a size (8GiB, 500MB) or percentage (80%), or per device: 0=8GiB,1=50%");
    const uint32_t device_count = setup->request.device_count;
    const int status = check_budget(command, &spec, texts->budget, texts->memory, device_count);
    if (status != TOOL_DONE)
        return status;
    for (uint32_t i = 0; i < device_count; i++) {
        const uint64_t bytes = gc_size_spec_resolve(&spec, (int)i, NULL, memory);
        if (bytes != UINT64_MAX && texts->memory != NULL && bytes > memory)
            return tool_usage(command, "--budget %s is more than the device's --memory %s",
                              texts->budget, texts->memory);
        if (bytes != UINT64_MAX)
            setup->budget.device_bytes[i] = bytes;
        else if (texts->memory == NULL)
            return tool_usage(
                command,
                "--budget %s has no entry for device %u: add one, or --memory SIZE for the "
                "devices without one",
                texts->budget, (unsigned)i);
    }
    return TOOL_DONE;
}

/* ---- the command line ---- */

/* --overhead and --context-memory each override the stored calibration's value. */
static int parse_factors(const struct tool_command *command, const struct texts *texts,
                         struct estimate_setup *setup)
{
    struct gc_estimate_request *request = &setup->request;
    int status = TOOL_DONE;
    if (texts->calibration != NULL)
        status = calibration_load(command, texts->calibration, &request->overhead_millionths,
                                  &request->context_bytes);
    if (status == TOOL_DONE)
        status = parse_overhead(command, texts->overhead, &request->overhead_millionths);
    return status == TOOL_DONE ? parse_context(command, texts->context, &request->context_bytes)
                               : status;
}

/* --budget and --memory. Engines choose by the whole memory of a device; a budget alone stands for
 * it. */
static int parse_memory(const struct tool_command *command, const struct texts *texts,
                        struct estimate_setup *setup)
{
    uint64_t memory = 0;
    if (texts->memory != NULL && gc_size_parse(texts->memory, &memory) != GC_OK)
        return tool_refuse(command, "--memory", texts->memory, "a size");
    const int status = parse_budget(command, texts, memory, setup);
    for (uint32_t i = 0; i < GC_ESTIMATE_DEVICE_MAX; i++)
        setup->memory_bytes[i] = memory > 0 ? memory : setup->budget.device_bytes[i];
    if (setup->has_budget)
        setup->request.memory_bytes = setup->memory_bytes;
    return status;
}

static int parse_values(const struct tool_command *command, const struct texts *texts,
                        struct estimate_setup *setup)
{
    struct gc_estimate_request *request = &setup->request;
    int status = parse_counts(command, texts, request);
    if (status == TOOL_DONE)
        status = parse_weights(command, texts->dtype, setup);
    if (status == TOOL_DONE)
        status = parse_engine(command, texts, request);
    if (status == TOOL_DONE)
        status = parse_dtype(command, "--kv-dtype", texts->kv_dtype, TYPES, &request->kv_dtype);
    if (status == TOOL_DONE)
        status = parse_words(command, texts, request);
    if (status == TOOL_DONE)
        status = parse_dims(command, &texts->dims, setup);
    if (status == TOOL_DONE)
        status = parse_memory(command, texts, setup);
    return status == TOOL_DONE ? parse_factors(command, texts, setup) : status;
}

static int check_use(const struct tool_command *command, const struct estimate_setup *setup)
{
    if (setup->output != NULL && setup->report == NULL)
        return tool_usage(command, "--output needs --calibrate");
    if (setup->table && (setup->report != NULL || setup->models.count > 1))
        return tool_usage(command, "--table accepts one model and no --calibrate");
    if (setup->report != NULL && setup->models.count > 1)
        return tool_usage(command, "--calibrate accepts one model");
    if (setup->table && gc_training_is_asked(&setup->request.training))
        return tool_usage(command, "--table is of inference: it accepts no --train");
    const char *why = gc_train_find_refusal(NULL, &setup->request);
    return why != NULL ? tool_usage(command, "%s", why) : TOOL_DONE;
}

int estimate_setup_parse(const struct tool_command *command, int argc, char **argv,
                         struct estimate_setup *setup)
{
    struct texts texts = {0};
    memset(setup, 0, sizeof(*setup));
    setup->models =
        (struct tool_words){.most = TOOL_WORDS_MAX, .one_is_enough = true, .names = {"a model"}};
    setup->weight_dtype = GC_DTYPE_NONE;
    gc_estimate_request_init(&setup->request);
    const struct tool_option options[] = {
        {.name = "--budget", .value = &texts.budget},
        {.name = "--memory", .value = &texts.memory},
        {.name = "--batch", .value = &texts.batch},
        {.name = "--seq-len", .value = &texts.seq_len},
        {.name = "--chunk", .value = &texts.chunk},
        {.name = "--dtype", .value = &texts.dtype},
        {.name = "--kv-dtype", .value = &texts.kv_dtype},
        {.name = "--devices", .value = &texts.devices},
        {.name = "--split", .value = &texts.split, .accepted = splits},
        {.name = "--attention", .value = &texts.attention, .accepted = attentions},
        {.name = "--overhead", .value = &texts.overhead},
        {.name = "--context-memory", .value = &texts.context},
        {.name = "--resident-experts", .value = &texts.experts},
        {.name = "--engine", .value = &texts.engine, .accepted = gc_engine_names()},
        {.name = "--utilisation", .value = &texts.utilisation},
        {.name = "--gpu-layers", .value = &texts.gpu_layers},
        {.name = "--train", .value = &texts.train, .accepted = gc_optimiser_names()},
        {.name = "--mixed-precision", .flag = &setup->request.training.is_mixed},
        {.name = "--checkpointing", .flag = &setup->request.training.is_checkpointed},
        {.name = "--zero", .value = &texts.zero},
        {.name = "--lora", .value = &texts.lora},
        {.name = "--calibration", .value = &texts.calibration},
        {.name = "--calibrate", .value = &setup->report},
        {.name = "--output", .value = &setup->output},
        {.name = "--dim", .list = &texts.dims},
        {.name = "--json", .flag = &setup->json},
        {.name = "--table", .flag = &setup->table},
    };
    int status = tool_parse_words(command, options, sizeof(options) / sizeof(options[0]), argc,
                                  argv, &setup->models);
    if (status != TOOL_DONE || setup->models.helped)
        return status;
    status = parse_values(command, &texts, setup);
    return status == TOOL_DONE ? check_use(command, setup) : status;
}

int estimate_refuse_model(const struct tool_command *command, const char *path,
                          const struct gc_model_error *error)
{
    const char *slash = strchr(path, '/');
    const bool is_hub_name = path[0] != '.' && path[0] != '~' && slash != NULL && slash > path &&
                             slash[1] != '\0' && strchr(slash + 1, '/') == NULL &&
                             access(path, F_OK) != 0 && errno == ENOENT;
    return tool_fail(command, "%s%s", error->text,
                     is_hub_name ? "; gpucache reads local files and downloads nothing: of a "
                                   "repository with this name config.json is enough"
                                 : "");
}
