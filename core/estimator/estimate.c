/* The estimate: types, tokens, each device, overhead, unknown parts. */
#include "core/estimator/estimate.h"

#include "core/base/bits.h"
#include "core/estimator/estimator.h"
#include "core/estimator/train.h"
#include "core/model/checked.h"

#include <string.h>

void gc_estimate_request_init(struct gc_estimate_request *request)
{
    *request = (struct gc_estimate_request){
        .batch = 1,
        .dtype = GC_DTYPE_NONE,
        .kv_dtype = GC_DTYPE_NONE,
        .split = GC_SPLIT_DEFAULT,
        .device_count = 1,
        .engine = GC_ENGINE_BY_FILES,
        .overhead_millionths = GC_ESTIMATE_ENGINE_OVERHEAD,
        .context_bytes = GC_ESTIMATE_CONTEXT_BYTES,
        .resident_experts = GC_ESTIMATE_ALL_EXPERTS,
        .device_layers = GC_ESTIMATE_ALL_LAYERS,
        .mix = GC_MIX_NONE,
        .training = {.optimiser = GC_OPTIMISER_NONE, .zero_stage = GC_TRAINING_NO_ZERO},
    };
}

/* ---- what is not known ---- */

#define BIT(part) (1U << (unsigned)(part))
/* Parts of inference that follow from the layers. */
#define WORK_PARTS                                                                                 \
    (BIT(GC_ESTIMATE_kv_cache) | BIT(GC_ESTIMATE_activation) | BIT(GC_ESTIMATE_attention_workspace))

struct unknown_rule {
    enum gc_unknown unknown;
    unsigned parts;
    bool is_approximate; /* something was assumed: the truth may be less */
    const char *note;
};

static const struct unknown_rule unknown_rules[] = {
    {GC_UNKNOWN_LAYERS, WORK_PARTS | BIT(GC_ESTIMATE_state), false,
     "the number of layers is unknown: KV cache, state and activations are not counted"},
    {GC_UNKNOWN_KV, BIT(GC_ESTIMATE_kv_cache), false,
     "keys and values of some layers are unknown: the KV cache is a lower bound"},
    {GC_UNKNOWN_KEPT, BIT(GC_ESTIMATE_kv_cache), true,
     "how much some layers keep is unknown: the KV cache is approximate"},
    {GC_UNKNOWN_SIZES, BIT(GC_ESTIMATE_state), false,
     "the size of the layers' state is unknown: state is a lower bound"},
    {GC_UNKNOWN_STATE, BIT(GC_ESTIMATE_state), true,
     "the size of the layers' state is unknown: state is approximate"},
    {GC_UNKNOWN_WIDTHS, BIT(GC_ESTIMATE_activation), true,
     "widths of the layers are unknown: activations are approximate"},
    {GC_UNKNOWN_HEADS, BIT(GC_ESTIMATE_attention_workspace), true,
     "heads of the layers are unknown: the attention workspace is approximate"},
    {GC_UNKNOWN_VOCAB, BIT(GC_ESTIMATE_activation), false,
     "the size of the vocabulary is unknown: logits are not counted"},
    {GC_UNKNOWN_KINDS, WORK_PARTS | BIT(GC_ESTIMATE_state), false, NULL},
    {GC_UNKNOWN_ENCODER, WORK_PARTS, true, NULL},
    {GC_UNKNOWN_ARCHITECTURE, WORK_PARTS | BIT(GC_ESTIMATE_state), true, NULL},
};

static void set_work(const struct gc_estimate_request *request, const struct gc_estimate *estimate,
                     struct gc_estimate_load *work)
{
    const uint64_t chunk = request->chunk_tokens;
    const uint64_t context = gc_engine_round(&estimate->plan, estimate->seq_len);
    *work = (struct gc_estimate_load){
        .batch = request->batch,
        .context_tokens = context,
        .step_tokens = chunk > 0 ? gc_min_u64(chunk, estimate->seq_len) : estimate->seq_len,
        .dtype = estimate->dtype,
        .kv_dtype = estimate->kv_dtype,
        .scores_materialised = request->scores_materialised,
        .shards = request->split == GC_SPLIT_TENSOR ? request->device_count : 1,
    };
}

static bool are_frames_exact(const struct gc_estimator *estimator,
                             const struct gc_estimate_request *request,
                             const struct gc_estimate *estimate)
{
    struct gc_estimate_load work;
    set_work(request, estimate, &work);
    const struct gc_frame_load load = {
        .batch = work.batch,
        .tokens = work.step_tokens,
        .element_bytes = gc_dtype_get_info(work.dtype)->block_bytes,
        .shards = work.shards,
    };
    return gc_frames_are_exact(&estimator->frames, &load);
}

/* Activations by the places of the class do not need the layers. */
static unsigned frame_parts(const struct gc_estimate_request *request)
{
    return BIT(GC_ESTIMATE_activation) |
           (request->scores_materialised ? 0 : BIT(GC_ESTIMATE_attention_workspace));
}

static void note_frames(const struct gc_estimator *estimator, struct gc_estimate *estimate)
{
    const char *type = estimator->arch.type[0] != '\0' ? estimator->arch.type : "this type";
    gc_estimate_tell(estimate, BIT(GC_ESTIMATE_activation), true);
    if (estimator->frames.count > 0)
        gc_notes_add(
            &estimate->notes, "activations of ", type,
            " are measured without this class's own part, or were other in some cases: approximate",
            NULL);
    else
        gc_notes_add(&estimate->notes, "activations of ", type,
                     " have not been measured: a general formula's, approximate", NULL);
}

static void add_unknown(const struct gc_estimator *estimator,
                        const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    const bool are_exact = are_frames_exact(estimator, request, estimate);
    const unsigned known = are_exact ? frame_parts(request) : 0;
    if (!are_exact && !estimator->is_gguf)
        note_frames(estimator, estimate);
    for (size_t i = 0; i < sizeof(unknown_rules) / sizeof(unknown_rules[0]); i++) {
        const struct unknown_rule *rule = &unknown_rules[i];
        if ((estimator->layers.unknown & (unsigned)rule->unknown) == 0)
            continue;
        const unsigned parts = rule->parts & ~known;
        gc_estimate_tell(estimate, parts, rule->is_approximate);
        if (rule->note != NULL && parts != 0)
            gc_notes_add(&estimate->notes, rule->note, NULL);
    }
}

/* A model without known layers: only its weights count. */
static void add_unknown_model(struct gc_estimate *estimate)
{
    estimate->unknown_parts |= WORK_PARTS | BIT(GC_ESTIMATE_state) | BIT(GC_ESTIMATE_input);
    gc_notes_add(
        &estimate->notes,
        "no configuration beside the weights: only they are counted; a Hugging Face folder "
        "or GGUF file has one",
        NULL);
}

/* Overhead is a fraction of the other parts: it counts neither as known nor as unknown. */
static void set_coverage(struct gc_estimate *estimate)
{
    const bool is_training = gc_training_is_asked(&estimate->training);
    uint32_t known = 0;
    uint32_t count = 0;
    for (unsigned part = 0; part < GC_ESTIMATE_overhead; part++) {
        if (!gc_estimate_part_is_of((enum gc_estimate_part)part, is_training))
            continue;
        known += (estimate->unknown_parts & BIT(part)) == 0;
        count++;
    }
    estimate->coverage_thousandths = known * 1000 / count;
}

/* ---- the work ---- */

static enum gc_status check_request(const struct gc_estimator *estimator,
                                    const struct gc_estimate_request *request)
{
    if (request->batch == 0 || request->batch > GC_ESTIMATE_COUNT_MAX ||
        request->seq_len > UINT32_MAX || request->chunk_tokens > UINT32_MAX ||
        request->fraction > 1000 || request->device_count == 0 ||
        request->device_count > GC_ESTIMATE_DEVICE_MAX)
        return GC_INVALID_ARGUMENT;
    return gc_train_find_refusal(estimator, request) == NULL ? GC_OK : GC_INVALID_ARGUMENT;
}

static void set_tokens(const struct gc_estimator *estimator,
                       const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    const uint64_t positions = estimator->layers.positions;
    estimate->positions = positions;
    estimate->seq_len = request->seq_len > 0 ? request->seq_len : positions;
    if (estimate->seq_len == 0 && estimator->has_layers && positions == 0 &&
        estimator->layers.has_kv_cache) {
        estimate->unknown_parts |=
            BIT(GC_ESTIMATE_input) |
            (gc_training_is_asked(&request->training) ? GC_TRAIN_PASS_PARTS : WORK_PARTS);
        gc_notes_add(&estimate->notes, "the largest context is unknown: name one", NULL);
    }
    if (positions > 0 && request->seq_len > positions)
        gc_notes_add(&estimate->notes, "the context is longer than the model's own", NULL);
}

/* An engine that the user does not name follows from the files; a graph has none. */
static void set_plan(const struct gc_estimator *estimator,
                     const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    const enum gc_engine own = estimator->is_gguf ? GC_ENGINE_LLAMA_CPP : GC_ENGINE_TRANSFORMERS;
    uint64_t memory = 0;
    for (uint32_t i = 0; request->memory_bytes != NULL && i < request->device_count; i++) {
        if (i == 0 || request->memory_bytes[i] < memory)
            memory = request->memory_bytes[i];
    }
    const struct gc_engine_load load = {
        .batch = request->batch,
        .seq_len = estimate->seq_len,
        .chunk_tokens = request->chunk_tokens,
        .memory_bytes = memory == UINT64_MAX ? 0 : memory,
        .fraction = request->fraction,
        .device_count = request->device_count,
        .is_tensor_split = request->split == GC_SPLIT_TENSOR,
        .has_kv_cache = estimator->layers.has_kv_cache,
        .is_mla = estimator->layers.items[0].is_mla,
        .type = estimator->arch.type,
    };
    const bool by_files = request->engine == GC_ENGINE_BY_FILES || estimator->graph != NULL;
    gc_engine_make_plan(by_files ? own : request->engine, &load, &estimate->plan);
    estimate->plan.by_files = by_files;
}

/* ---- sums ---- */

static uint64_t memory_of(const struct gc_estimate_request *request, uint32_t device)
{
    return request->memory_bytes != NULL ? request->memory_bytes[device] : UINT64_MAX;
}

static uint64_t usable_of(const struct gc_estimate_request *request,
                          const struct gc_estimate *estimate, uint32_t device)
{
    const uint64_t memory = memory_of(request, device);
    return memory == UINT64_MAX
               ? memory
               : gc_sub_or_zero_u64(memory, gc_engine_unusable_bytes(&estimate->plan, memory,
                                                                     request->context_bytes,
                                                                     &estimate->devices[device]));
}

/* Blocks of the cache that fit beside all else on a device; the least of all devices counts. */
static void count_blocks(uint32_t device, struct gc_estimate *estimate)
{
    const struct gc_estimate_sizes *sizes = &estimate->devices[device];
    const uint64_t usable = estimate->usable_bytes[device];
    const uint64_t cache = sizes->parts[GC_ESTIMATE_kv_cache];
    if (usable == UINT64_MAX || estimate->kv_block_bytes[device] == 0 ||
        !gc_engine_has_pool(estimate->plan.engine))
        return;
    const uint64_t room = gc_sub_or_zero_u64(usable, sizes->peak_bytes - cache);
    const uint64_t blocks = room / estimate->kv_block_bytes[device];
    estimate->kv_blocks = device == 0 ? blocks : gc_min_u64(estimate->kv_blocks, blocks);
}

static uint64_t overhead_of(const struct gc_estimate_request *request,
                            const struct gc_estimate *estimate)
{
    return request->overhead_millionths != GC_ESTIMATE_ENGINE_OVERHEAD
               ? request->overhead_millionths
               : gc_engine_overhead(estimate->plan.engine);
}

/* The overhead of the other parts' sum: a fraction of it, and what a device has before any
 * allocation. */
static uint64_t overhead_bytes(struct gc_sum *sum, const struct gc_estimate_request *request,
                               const struct gc_estimate *estimate, uint32_t device, uint64_t bytes)
{
    const unsigned __int128 share =
        ((unsigned __int128)bytes * overhead_of(request, estimate) + 999999) / 1000000;
    if (share > UINT64_MAX)
        sum->overflowed = true;
    const uint64_t fixed =
        gc_sum_add(sum, estimate->graph_bytes[device], estimate->prompt_bytes[device]);
    return gc_sum_add(sum, (uint64_t)share, gc_sum_add(sum, request->context_bytes, fixed));
}

/* A phase of a training step, given without inputs and overhead. */
static uint64_t finish_phase(struct gc_sum *sum, const struct gc_estimate_request *request,
                             const struct gc_estimate *estimate, uint32_t device, uint64_t phase)
{
    const uint64_t bytes =
        gc_sum_add(sum, phase, estimate->devices[device].parts[GC_ESTIMATE_input]);
    return gc_sum_add(sum, bytes, overhead_bytes(sum, request, estimate, device, bytes));
}

static enum gc_status finish_device(const struct gc_estimate_request *request, uint32_t device,
                                    struct gc_estimate *estimate)
{
    struct gc_sum sum = {false};
    struct gc_estimate_sizes *sizes = &estimate->devices[device];
    uint64_t bytes = 0;
    for (unsigned part = 0; part < GC_ESTIMATE_overhead; part++)
        bytes = gc_sum_add(&sum, bytes, sizes->parts[part]);
    if (gc_training_is_asked(&request->training)) {
        estimate->backward_bytes =
            finish_phase(&sum, request, estimate, device, estimate->backward_bytes);
        estimate->step_bytes = finish_phase(&sum, request, estimate, device, estimate->step_bytes);
    }
    sizes->parts[GC_ESTIMATE_overhead] = overhead_bytes(&sum, request, estimate, device, bytes);
    sizes->peak_bytes = gc_sum_add(&sum, bytes, sizes->parts[GC_ESTIMATE_overhead]);
    estimate->usable_bytes[device] = usable_of(request, estimate, device);
    count_blocks(device, estimate);
    return gc_sum_status(&sum);
}

static enum gc_status add_device(struct gc_estimate *estimate,
                                 const struct gc_estimate_sizes *sizes)
{
    struct gc_sum sum = {false};
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
        estimate->total.parts[part] =
            gc_sum_add(&sum, estimate->total.parts[part], sizes->parts[part]);
    estimate->total.peak_bytes = gc_sum_add(&sum, estimate->total.peak_bytes, sizes->peak_bytes);
    return gc_sum_status(&sum);
}

static void note_experts(const struct gc_estimator *estimator,
                         const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    if (request->resident_experts == GC_ESTIMATE_ALL_EXPERTS || estimate->experts > 0)
        return;
    gc_notes_add(&estimate->notes,
                 estimator->weights.expert_bytes > 0
                     ? "the number of experts of a layer is unknown: all are counted as resident"
                     : "there are no experts: all weights are resident",
                 NULL);
}

static void set_facts(const struct gc_estimator *estimator,
                      const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    memset(estimate, 0, sizeof(*estimate));
    estimate->device_count = request->device_count;
    estimate->batch = request->batch;
    estimate->parameters = estimator->weights.parameters;
    estimate->tensor_count = estimator->weights.tensors;
    estimate->experts = estimator->layers.experts;
    estimate->expert_layer_count = estimator->layers.expert_layer_count;
    estimate->resident_experts = gc_min_u64(request->resident_experts, estimate->experts);
    estimate->mix = request->mix;
    estimate->training = request->training;
    estimate->layer_count = estimator->layers.count;
    estimate->device_layers =
        gc_min_u64(request->device_layers, (uint64_t)estimator->layers.count + 1);
    estimate->notes = estimator->notes;
    note_experts(estimator, request, estimate);
    gc_estimator_note_dims(estimator, request->dims, &estimate->notes);
}

static enum gc_status part_device(const struct gc_estimator *estimator,
                                  const struct gc_estimate_request *request,
                                  const struct gc_estimate_load *work, uint32_t device,
                                  struct gc_estimate *estimate)
{
    if (!gc_training_is_asked(&request->training))
        return gc_split_device(estimator, request, work, device, estimate);
    const enum gc_status status = gc_train_device(estimator, request, device, estimate);
    return status != GC_OK
               ? status
               : gc_formula_input_bytes(work, &estimate->devices[device].parts[GC_ESTIMATE_input]);
}

static enum gc_status run_devices(const struct gc_estimator *estimator,
                                  const struct gc_estimate_request *request,
                                  struct gc_estimate *estimate)
{
    struct gc_estimate_load work;
    set_work(request, estimate, &work);
    for (uint32_t device = 0; device < request->device_count; device++) {
        struct gc_estimate_sizes *sizes = &estimate->devices[device];
        enum gc_status status = part_device(estimator, request, &work, device, estimate);
        if (status == GC_OK && estimator->graph != NULL && device == 0)
            status = gc_estimator_graph(estimator, request, estimate);
        if (status != GC_OK)
            return status;
        estimate->overflowed = GC_ESTIMATE_overhead;
        status = finish_device(request, device, estimate);
        if (status == GC_OK)
            status = add_device(estimate, sizes);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

/* ---- the types a model runs in: the requested ones, else its own ---- */

static bool is_computed_in(enum gc_dtype dtype)
{
    return dtype == GC_DTYPE_F16 || dtype == GC_DTYPE_BF16 || dtype == GC_DTYPE_F32 ||
           dtype == GC_DTYPE_F64;
}

/* Integers, quantised blocks and floats below 8 bits are unpacked for computation. */
static bool can_be_activations(enum gc_dtype asked)
{
    if (asked == GC_DTYPE_NONE)
        return false;
    const struct gc_dtype_info *info = gc_dtype_get_info(asked);
    return info->kind == GC_DTYPE_CLASS_FLOAT && info->block_elements == 1;
}

/* The configuration's type, else that of most weights, if it is a type for computation. */
static enum gc_dtype own_dtype(const struct gc_estimator *estimator)
{
    const char *word = estimator->arch.dtype;
    const enum gc_dtype given = gc_dtype_from_word(word, strlen(word));
    if (word[0] != '\0' && can_be_activations(given))
        return given;
    return is_computed_in(estimator->main_dtype) ? estimator->main_dtype : GC_DTYPE_NONE;
}

#define DTYPE_PARTS                                                                                \
    (1U << GC_ESTIMATE_state | 1U << GC_ESTIMATE_activation | 1U << GC_ESTIMATE_attention_workspace)

static bool is_llama_cpp(const struct gc_estimate *estimate)
{
    return estimate->plan.engine == GC_ENGINE_LLAMA_CPP;
}

static void set_dtype(const struct gc_estimator *estimator, enum gc_dtype asked,
                      struct gc_estimate *estimate)
{
    const bool is_taken = can_be_activations(asked) && estimator->graph == NULL;
    estimate->dtype = asked;
    if (!is_taken)
        estimate->dtype = is_llama_cpp(estimate) ? GC_DTYPE_F32 : own_dtype(estimator);
    if (!estimator->has_layers || is_taken)
        return;
    if (asked != GC_DTYPE_NONE && estimate->dtype != GC_DTYPE_NONE) {
        gc_notes_add(&estimate->notes, gc_dtype_name(asked),
                     ": not a type to compute in; activations are taken as ",
                     gc_dtype_name(estimate->dtype), NULL);
    } else if (is_llama_cpp(estimate)) {
        gc_notes_add(&estimate->notes,
                     "activations are taken as f32, as llama.cpp computes them; --dtype names "
                     "another type",
                     NULL);
    } else if (estimate->dtype == GC_DTYPE_NONE) {
        estimate->unknown_parts |= DTYPE_PARTS;
        gc_notes_add(&estimate->notes,
                     "the type of activations is unknown: they are not counted; --dtype names one",
                     NULL);
    }
}

static void set_kv_dtype(const struct gc_estimator *estimator,
                         const struct gc_estimate_request *request, enum gc_dtype asked,
                         struct gc_estimate *estimate)
{
    estimate->kv_dtype = request->kv_dtype;
    if (estimate->kv_dtype == GC_DTYPE_NONE && can_be_activations(asked))
        estimate->kv_dtype = asked;
    if (estimate->kv_dtype != GC_DTYPE_NONE)
        return;
    estimate->kv_dtype = is_llama_cpp(estimate) ? GC_DTYPE_F16 : own_dtype(estimator);
    if (!estimator->has_layers)
        return;
    if (is_llama_cpp(estimate)) {
        gc_notes_add(&estimate->notes,
                     "keys and values are taken as f16, as llama.cpp keeps them; --kv-dtype names "
                     "another type",
                     NULL);
    } else if (estimate->kv_dtype == GC_DTYPE_NONE) {
        estimate->unknown_parts |= 1U << GC_ESTIMATE_kv_cache;
        gc_notes_add(&estimate->notes,
                     "the type of keys and values is unknown: they are not counted; --kv-dtype "
                     "names one",
                     NULL);
    }
}

/* dtype "auto": vLLM's config/model.py, SGLang's configs/model_config.py. */
static void note_halved(struct gc_estimate *estimate)
{
    const enum gc_engine engine = estimate->plan.engine;
    if (engine != GC_ENGINE_VLLM && engine != GC_ENGINE_SGLANG)
        return;
    gc_estimate_tell(estimate, BIT(GC_ESTIMATE_weight) | WORK_PARTS, true);
    gc_notes_add(&estimate->notes, gc_engine_name(engine),
                 " loads weights of 32 bits in 16: --dtype f16 counts that", NULL);
}

static void note_unread(struct gc_estimate *estimate)
{
    const bool is_gguf = gc_mix_is_gguf(estimate->mix);
    if (is_gguf != is_llama_cpp(estimate))
        gc_notes_add(&estimate->notes, gc_engine_name(estimate->plan.engine),
                     " is not known to read files of ", gc_mix_name(estimate->mix), NULL);
}

static void set_dtypes(const struct gc_estimator *estimator,
                       const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    const bool is_mixed = request->mix != GC_MIX_NONE; /* in place of a type */
    const enum gc_dtype asked = is_mixed                          ? GC_DTYPE_NONE
                                : request->dtype != GC_DTYPE_NONE ? request->dtype
                                                                  : estimator->weight_dtype;
    set_dtype(estimator, asked, estimate);
    if (!gc_training_is_asked(&request->training))
        set_kv_dtype(estimator, request, asked, estimate);
    if (asked == GC_DTYPE_NONE && !is_mixed && estimate->dtype == GC_DTYPE_F32)
        note_halved(estimate);
    if (is_mixed)
        note_unread(estimate);
}

/* ---- the whole ---- */

/* Files that are not those of their configuration: which of the two runs is unknown. */
static void add_contradiction(const struct gc_estimate_request *request,
                              struct gc_estimate *estimate)
{
    const unsigned parts =
        BIT(GC_ESTIMATE_weight) |
        (gc_training_is_asked(&request->training)
             ? GC_TRAIN_PASS_PARTS | BIT(GC_ESTIMATE_gradient) | BIT(GC_ESTIMATE_optimiser_state)
             : WORK_PARTS | BIT(GC_ESTIMATE_state));
    gc_estimate_tell(estimate, parts, true);
    gc_notes_add(&estimate->notes,
                 "the files are not those of the configuration: all that follows is approximate",
                 NULL);
}

/* Whether programs load the weights in another type than their files have: that which the
 * configuration names, unless the user does. */
static bool is_retyped_by_loading(const struct gc_estimator *estimator)
{
    const char *word = estimator->arch.dtype;
    const enum gc_dtype given = gc_dtype_from_word(word, strlen(word));
    return !estimator->is_gguf && estimator->weight_dtype == GC_DTYPE_NONE &&
           !estimator->is_stored_quantised && is_computed_in(given) &&
           is_computed_in(estimator->main_dtype) &&
           gc_dtype_get_info(given)->block_bytes !=
               gc_dtype_get_info(estimator->main_dtype)->block_bytes;
}

static void note_stored(const struct gc_estimator *estimator, struct gc_estimate *estimate)
{
    const char *word = estimator->arch.dtype;
    const char *given = gc_dtype_name(gc_dtype_from_word(word, strlen(word)));
    gc_estimate_tell(estimate, BIT(GC_ESTIMATE_weight), true);
    gc_notes_add(&estimate->notes, "weights are counted as their files have them, in ",
                 gc_dtype_name(estimator->main_dtype),
                 "; transformers and vLLM load them in the "
                 "configuration's type: --dtype ",
                 given, " counts that", NULL);
}

/* Parts that follow from what is not known of the model. */
static void set_unknown(const struct gc_estimator *estimator,
                        const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    if (estimator->has_no_weights && estimator->graph == NULL) {
        estimate->unknown_parts |= BIT(GC_ESTIMATE_weight);
        gc_notes_add(&estimate->notes, "there are no tensors: weights are not counted", NULL);
    }
    if (estimator->weights_known != GC_ARCHITECTURE_EXACT)
        gc_estimate_tell(estimate, BIT(GC_ESTIMATE_weight),
                         estimator->weights_known == GC_ARCHITECTURE_ABOUT);
    if (estimator->files == GC_ARCHITECTURE_FILES_OTHER)
        add_contradiction(request, estimate);
    if (is_retyped_by_loading(estimator))
        note_stored(estimator, estimate);
    if (gc_training_is_asked(&request->training))
        gc_train_set_types(estimator, request, estimate);
    else if (estimator->has_layers)
        add_unknown(estimator, request, estimate);
    else if (estimator->graph == NULL)
        add_unknown_model(estimate);
}

/* An engine of inference may compute in another type. */
static enum gc_dtype trained_dtype(const struct gc_estimator *estimator,
                                   const struct gc_estimate_request *request)
{
    const enum gc_dtype asked =
        request->dtype != GC_DTYPE_NONE ? request->dtype : estimator->weight_dtype;
    return can_be_activations(asked) ? asked : own_dtype(estimator);
}

static void set_training_at_least(const struct gc_estimator *estimator,
                                  const struct gc_estimate_request *request,
                                  struct gc_estimate *estimate)
{
    struct gc_estimate_request training;
    gc_estimate_request_init(&training);
    training.batch = request->batch;
    training.scores_materialised = request->scores_materialised;
    training.seq_len = estimate->seq_len;
    training.dtype = trained_dtype(estimator, request);
    estimate->training_at_least_bytes = gc_train_least_bytes(estimator, &training);
}

enum gc_status gc_estimator_run(const struct gc_estimator *estimator,
                                const struct gc_estimate_request *request,
                                struct gc_estimate *estimate)
{
    enum gc_status status = check_request(estimator, request);
    if (status != GC_OK)
        return status;
    set_facts(estimator, request, estimate);
    set_tokens(estimator, request, estimate);
    set_plan(estimator, request, estimate);
    set_dtypes(estimator, request, estimate);
    set_unknown(estimator, request, estimate);
    status = run_devices(estimator, request, estimate);
    set_coverage(estimate);
    if (!gc_training_is_asked(&request->training))
        set_training_at_least(estimator, request, estimate);
    return status;
}
