/* Training of a model: the parts of one device. A step has two phases, of which the larger is the
 * peak: the forward and backward pass, by the class's places (core/training/rows.h), and the
 * optimiser's step with all gradients. Parameters and states are there in both. */
#include "core/estimator/train.h"

#include "core/base/bits.h"
#include "core/estimator/estimator.h"
#include "core/model/checked.h"

#define BIT(part) (1U << (unsigned)(part))

/* ---- what cannot be trained ---- */

static bool is_half(enum gc_dtype dtype)
{
    return dtype == GC_DTYPE_F16 || dtype == GC_DTYPE_BF16;
}

static bool is_trained_in(enum gc_dtype dtype)
{
    return is_half(dtype) || dtype == GC_DTYPE_F32 || dtype == GC_DTYPE_F64;
}

static const char *refuse_inference(const struct gc_training *training)
{
    if (training->is_mixed)
        return "--mixed-precision is of training: add --train OPTIMISER";
    if (training->is_checkpointed)
        return "--checkpointing is of training: add --train OPTIMISER";
    if (training->zero_stage != GC_TRAINING_NO_ZERO)
        return "--zero is of training: add --train OPTIMISER";
    if (training->lora_rank > 0)
        return "--lora is of training: add --train OPTIMISER";
    return NULL;
}

/* Options of inference that have no meaning in training. */
static const char *refuse_options(const struct gc_estimate_request *request)
{
    if (request->engine != GC_ENGINE_BY_FILES && request->engine != GC_ENGINE_TRANSFORMERS)
        return "this --engine runs models and does not train them: --train accepts transformers";
    if (request->fraction > 0)
        return "--utilisation is of inference: --train uses all of --budget or --memory";
    if (request->split != GC_SPLIT_DEFAULT)
        return "--split is of inference: --train divides over --devices N by --zero 0, 1, 2 or 3";
    if (request->device_layers != GC_ESTIMATE_ALL_LAYERS)
        return "--gpu-layers is of inference: --train keeps all layers on the device";
    if (request->resident_experts != GC_ESTIMATE_ALL_EXPERTS)
        return "--resident-experts is of inference: --train keeps all experts on the device";
    if (request->chunk_tokens > 0)
        return "--chunk is of inference: --train computes whole sequences; --batch has fewer";
    if (request->kv_dtype != GC_DTYPE_NONE)
        return "--kv-dtype is of inference: --train keeps no KV cache";
    if (request->mix != GC_MIX_NONE && request->training.lora_rank == 0)
        return "quantised weights are not trained: --lora RANK trains adapters beside them";
    return NULL;
}

static const char *refuse_devices(const struct gc_estimate_request *request)
{
    const uint32_t stage = request->training.zero_stage;
    if (stage == GC_TRAINING_NO_ZERO && request->device_count > 1)
        return "--train on several devices needs --zero 0, 1, 2 or 3: what is divided over them";
    if (stage != GC_TRAINING_NO_ZERO && request->device_count < 2)
        return "--zero divides over several devices: add --devices N, N from 2";
    return NULL;
}

static const char *refuse_model(const struct gc_estimator *estimator,
                                const struct gc_training *training)
{
    const enum gc_dtype dtype = estimator->weight_dtype;
    if (estimator->is_gguf)
        return "a GGUF file is for inference: --train accepts the model's safetensors or "
               "configuration";
    if (estimator->graph != NULL)
        return "an ONNX graph is for inference: --train accepts safetensors or a configuration";
    if (dtype != GC_DTYPE_NONE && !is_trained_in(dtype))
        return "this --dtype is not trained in: --train accepts f32, f16, bf16 and f64";
    if (training->is_mixed && dtype != GC_DTYPE_NONE && !is_half(dtype))
        return "--mixed-precision computes in 16 bits: it accepts --dtype bf16 or f16";
    if (estimator->is_stored_quantised)
        return "its weights are quantised: --train accepts floating-point weights; --dtype nf4 "
               "with --lora RANK quantises those of the original model";
    if (estimator->parameters.elements == 0)
        return "its parameters are unknown: --train needs tensors, or a known architecture";
    if (training->lora_rank > 0 && estimator->lora.shape_count == 0)
        return "it has no matrices in layers: --lora has nothing to adapt";
    return NULL;
}

const char *gc_train_find_refusal(const struct gc_estimator *estimator,
                                  const struct gc_estimate_request *request)
{
    const struct gc_training *training = &request->training;
    if (!gc_training_is_asked(training))
        return refuse_inference(training);
    const char *why = refuse_options(request);
    if (why == NULL)
        why = refuse_devices(request);
    return why == NULL && estimator != NULL ? refuse_model(estimator, training) : why;
}

/* ---- types and what is not known ---- */

static uint64_t size_of(enum gc_dtype dtype)
{
    return gc_dtype_get_info(dtype)->block_bytes;
}

/* Parameters of mixed precision are in 32 bits, but in DeepSpeed's, which keeps 32-bit masters. */
static bool is_autocast(const struct gc_training *training)
{
    return training->is_mixed && !gc_training_is_divided(training);
}

static uint64_t parameter_bytes(const struct gc_training *training, enum gc_dtype dtype)
{
    return is_autocast(training) ? sizeof(float) : size_of(dtype);
}

static char precision_of(const struct gc_training *training, enum gc_dtype dtype)
{
    if (!is_half(dtype))
        return 'w';
    return is_autocast(training) ? 'm' : 'p';
}

/* The letters of the rows (core/training/rows.h). */
static struct gc_training_kind kind_of(const struct gc_training *training,
                                       const struct gc_estimate_request *request,
                                       enum gc_dtype dtype)
{
    return (struct gc_training_kind){
        .precision = precision_of(training, dtype),
        .attention = request->scores_materialised ? 'e' : 'a',
        .checkpointing = training->is_checkpointed ? 'c' : 'n',
        .parameters = training->lora_rank > 0 ? 'l' : 'f',
    };
}

/* What the rows of a class tell of a kind of training. */
enum told {
    TOLD_EXACTLY,
    TOLD_AT_LEAST, /* by the rows without scores, or with checkpointing */
    TOLD_NOTHING,
};

/* Replaces a kind that has no rows by one that has. */
static enum told find_kind(const struct gc_training_rows *rows, struct gc_training_kind *kind)
{
    if (gc_training_rows_have(rows, kind))
        return TOLD_EXACTLY;
    struct gc_training_kind other = *kind;
    other.attention = 'a';
    if (!gc_training_rows_have(rows, &other))
        other.checkpointing = 'c';
    if (!gc_training_rows_have(rows, &other))
        return TOLD_NOTHING;
    *kind = other;
    return TOLD_AT_LEAST;
}

static void tell_passes(struct gc_estimate *estimate, bool is_approximate)
{
    gc_estimate_tell(estimate, GC_TRAIN_PASS_PARTS, is_approximate);
}

/* The class: a type may be that of a part, as a language model's below an encoder of images. */
static const char *name_of(const struct gc_estimator *estimator)
{
    const struct gc_arch *arch = &estimator->arch;
    if (arch->class_name[0] != '\0')
        return arch->class_name;
    return arch->type[0] != '\0' ? arch->type : "this type";
}

static void note_partial(const struct gc_estimator *estimator, struct gc_estimate *estimate)
{
    if ((estimate->unknown_parts & GC_TRAIN_PASS_PARTS) != 0)
        return;
    tell_passes(estimate, false);
    gc_notes_add(&estimate->notes, "activations of ", name_of(estimator),
                 " in training are measured in part: a lower bound", NULL);
}

/* Values of the configuration that the rows were not measured with. */
static void note_conditions(const struct gc_estimator *estimator, const struct gc_frame_load *load,
                            struct gc_estimate *estimate)
{
    const struct gc_training_condition *unmet;
    uint32_t next = 0;
    while ((unmet = gc_training_rows_unmet(&estimator->training_rows, load, &next)) != NULL) {
        tell_passes(estimate, unmet->is_approximate);
        gc_notes_add(&estimate->notes, "training of ", name_of(estimator),
                     " has not been measured with this ", unmet->key, ": its activations are ",
                     unmet->is_approximate ? "approximate" : "a lower bound", NULL);
    }
}

static void note_kind(const struct gc_estimator *estimator, const struct gc_training_kind *asked,
                      struct gc_estimate *estimate)
{
    const struct gc_training_rows *rows = &estimator->training_rows;
    struct gc_training_kind kind = *asked;
    const enum told told = find_kind(rows, &kind);
    const bool is_approximate = gc_training_rows_approximate(rows, &kind);
    if (told == TOLD_EXACTLY) {
        if (!rows->is_exact)
            note_partial(estimator, estimate);
        if (is_approximate) {
            tell_passes(estimate, true);
            gc_notes_add(&estimate->notes, "activations of ", name_of(estimator),
                         " in training with these options were other in some cases: approximate",
                         NULL);
        }
        return;
    }
    tell_passes(estimate, is_approximate);
    gc_notes_add(&estimate->notes, "training of ", name_of(estimator),
                 rows->count > 0 ? " with these options" : "",
                 is_approximate ? " has not been measured: its activations are approximate"
                                : " has not been measured: its activations are a lower bound",
                 NULL);
}

static struct gc_frame_load load_of(const struct gc_estimate_request *request, enum gc_dtype dtype,
                                    uint64_t seq_len)
{
    return (struct gc_frame_load){
        .batch = request->batch,
        .tokens = seq_len,
        .element_bytes = size_of(dtype),
        .shards = 1,
        .rank = request->training.lora_rank,
    };
}

static void note_rows(const struct gc_estimator *estimator,
                      const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    const struct gc_training_kind kind = kind_of(&request->training, request, estimate->dtype);
    const struct gc_frame_load load = load_of(request, estimate->dtype, estimate->seq_len);
    note_kind(estimator, &kind, estimate);
    note_conditions(estimator, &load, estimate);
    if (gc_training_is_divided(&request->training) && request->training.lora_rank > 0 &&
        is_half(estimate->dtype)) {
        tell_passes(estimate, true);
        gc_notes_add(
            &estimate->notes,
            "DeepSpeed keeps adapters in 16 bits, which has not been measured: activations "
            "are approximate",
            NULL);
    }
    if (request->mix != GC_MIX_NONE && kind.precision == 'm') {
        tell_passes(estimate, true);
        gc_notes_add(&estimate->notes,
                     "mixed precision beside quantised weights has not been measured: activations "
                     "are approximate",
                     NULL);
    }
    if (estimate->dtype == GC_DTYPE_F64) {
        tell_passes(estimate, false);
        gc_notes_add(&estimate->notes,
                     "training in f64 has not been measured: its activations are a lower bound",
                     NULL);
    }
}

void gc_train_set_types(const struct gc_estimator *estimator,
                        const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    const struct gc_training *training = &request->training;
    estimate->kv_dtype = GC_DTYPE_NONE;
    if (training->is_mixed && !is_half(estimate->dtype))
        estimate->dtype = GC_DTYPE_BF16;
    if (!is_trained_in(estimate->dtype)) {
        estimate->dtype = GC_DTYPE_F32;
        gc_notes_add(&estimate->notes,
                     "the type of parameters is unknown: taken as f32; --dtype names one", NULL);
    }
    note_rows(estimator, request, estimate);
    const unsigned by_weights = BIT(GC_ESTIMATE_gradient) | BIT(GC_ESTIMATE_optimiser_state);
    if (estimator->weights_known != GC_ARCHITECTURE_EXACT)
        gc_estimate_tell(estimate, by_weights, estimator->weights_known == GC_ARCHITECTURE_ABOUT);
    if (estimator->is_indexed_apart) {
        gc_estimate_tell(estimate, BIT(GC_ESTIMATE_weight) | by_weights, true);
        gc_notes_add(&estimate->notes,
                     "the index's parameters are taken in the configuration's type: approximate",
                     NULL);
    }
    if (estimator->is_unshaped && training->optimiser == GC_OPTIMISER_ADAFACTOR &&
        training->lora_rank == 0) {
        gc_estimate_tell(estimate, BIT(GC_ESTIMATE_optimiser_state), true);
        gc_notes_add(&estimate->notes,
                     "the configuration tells the sum of some weights without their shapes: what "
                     "Adafactor keeps is approximate",
                     NULL);
    }
    if (estimator->lora.is_cut && training->lora_rank > 0) {
        estimate->unknown_parts |= BIT(GC_ESTIMATE_gradient) | BIT(GC_ESTIMATE_optimiser_state);
        gc_notes_add(&estimate->notes,
                     "the model has matrices of too many shapes: adapters are a lower bound", NULL);
    }
}

/* ---- one device ---- */

static enum gc_status set_model(const struct gc_estimator *estimator,
                                const struct gc_estimate_request *request, enum gc_dtype dtype,
                                struct gc_training_model *model)
{
    const struct gc_training *training = &request->training;
    const bool has_masters = gc_training_is_divided(training) && is_half(dtype);
    const uint64_t element = has_masters ? sizeof(float) : parameter_bytes(training, dtype);
    *model = (struct gc_training_model){.trained = estimator->parameters,
                                        .has_masters = has_masters,
                                        .frozen_bytes = estimator->buffer_bytes};
    enum gc_status status = gc_training_sums_retype(&model->trained, element);
    if (status != GC_OK || training->lora_rank == 0)
        return status;
    struct gc_training_sums base = model->trained;
    if (gc_training_is_divided(training))
        status = gc_training_sums_retype(&base, size_of(dtype));
    if (status == GC_OK && request->mix != GC_MIX_NONE)
        status = gc_split_weight_bytes(estimator, request, &base.bytes);
    if (status != GC_OK || !gc_add_u64(model->frozen_bytes, base.bytes, &model->frozen_bytes))
        return GC_OVERFLOW;
    model->frozen_elements = base.elements;
    model->frozen_largest = gc_training_largest(&base);
    /* peft's autocast_adapter_dtype. */
    const uint64_t adapter = is_half(dtype) ? sizeof(float) : element;
    return gc_lora_sums(&estimator->lora, training->lora_rank, adapter, &model->trained);
}

/* What a request leaves to the model. */
struct step {
    enum gc_dtype dtype; /* of activations */
    uint64_t seq_len;
};

static enum gc_status find_place(const struct gc_estimator *estimator,
                                 const struct gc_estimate_request *request, const struct step *step,
                                 const struct gc_training_need *need,
                                 struct gc_training_place *place)
{
    const struct gc_training *training = &request->training;
    const struct gc_frame_load load = load_of(request, step->dtype, step->seq_len);
    struct gc_training_kind kind = kind_of(training, request, step->dtype);
    *place = (struct gc_training_place){0};
    if (find_kind(&estimator->training_rows, &kind) != TOLD_NOTHING)
        return gc_training_rows_largest(&estimator->training_rows, &kind, &load, need->gradients,
                                        gc_training_gradient_parts(training, request->device_count),
                                        place);
    /* What inference needs, training needs too. */
    return gc_frames_bytes(&estimator->frames, &load, &place->work);
}

/* The two phases of a step on one device. */
struct phases {
    struct gc_training_need need;
    struct gc_training_place place;
    uint64_t trained_elements;
    uint64_t backward_bytes;
    uint64_t step_bytes;
};

/* A quantised matrix is unpacked to be computed with, in both passes (bitsandbytes, MatMul4Bit). */
static uint64_t unpacked_bytes(struct gc_sum *sum, const struct gc_estimator *estimator,
                               enum gc_dtype dtype)
{
    return gc_sum_mul(sum, gc_lora_largest(&estimator->lora), size_of(dtype));
}

static enum gc_status find_phases(const struct gc_estimator *estimator,
                                  const struct gc_estimate_request *request,
                                  const struct step *step, struct phases *phases)
{
    struct gc_sum sum = {false};
    struct gc_training_model model;
    const struct gc_training_need *need = &phases->need;
    const struct gc_training_place *place = &phases->place;
    enum gc_status status = set_model(estimator, request, step->dtype, &model);
    if (status == GC_OK)
        status =
            gc_training_find_need(&request->training, &model, request->device_count, &phases->need);
    phases->trained_elements = model.trained.elements;
    if (status == GC_OK)
        status = find_place(estimator, request, step, need, &phases->place);
    if (status != GC_OK)
        return status;
    if (request->mix != GC_MIX_NONE)
        phases->need.backward =
            gc_sum_add(&sum, need->backward, unpacked_bytes(&sum, estimator, step->dtype));
    const uint64_t kept =
        gc_sum_add(&sum, gc_sum_add(&sum, need->weights, need->states), need->buffers);
    const uint64_t pass = gc_sum_add(&sum, gc_sum_add(&sum, place->saved, place->loss),
                                     gc_sum_add(&sum, place->work, place->gradients));
    phases->backward_bytes = gc_sum_add(&sum, kept, gc_sum_add(&sum, pass, need->backward));
    phases->step_bytes = gc_sum_add(&sum, kept, gc_sum_add(&sum, need->gradients, need->step));
    return gc_sum_status(&sum);
}

static uint64_t peak_of(const struct phases *phases)
{
    return gc_max_u64(phases->backward_bytes, phases->step_bytes);
}

/* Programs that make their own optimiser have torch's default. */
static void note_foreach(const struct gc_estimator *estimator,
                         const struct gc_estimate_request *request, const struct step *step,
                         uint64_t peak_bytes, struct gc_estimate *estimate)
{
    struct phases phases;
    struct gc_estimate_request other = *request;
    if (request->training.optimiser != GC_OPTIMISER_ADAMW)
        return;
    other.training.optimiser = GC_OPTIMISER_ADAMW_FOREACH;
    if (find_phases(estimator, &other, step, &phases) == GC_OK && peak_of(&phases) > peak_bytes)
        gc_notes_add(&estimate->notes,
                     "AdamW is taken as transformers' Trainer has it (fused): torch's own default "
                     "needs more, see --train adamw-foreach",
                     NULL);
}

enum gc_status gc_train_device(const struct gc_estimator *estimator,
                               const struct gc_estimate_request *request, uint32_t device,
                               struct gc_estimate *estimate)
{
    struct phases phases;
    uint64_t *parts = estimate->devices[device].parts;
    const struct gc_training_need *need = &phases.need;
    const struct step step = {estimate->dtype, estimate->seq_len};
    const enum gc_status status = find_phases(estimator, request, &step, &phases);
    estimate->overflowed = GC_ESTIMATE_saved_activation;
    if (status != GC_OK)
        return status;
    if (phases.place.is_partial)
        note_partial(estimator, estimate);
    if (device == 0)
        note_foreach(estimator, request, &step, peak_of(&phases), estimate);
    const bool is_step = phases.step_bytes > phases.backward_bytes;
    parts[GC_ESTIMATE_weight] = need->weights;
    parts[GC_ESTIMATE_optimiser_state] = need->states;
    parts[GC_ESTIMATE_gradient] = is_step ? need->gradients : phases.place.gradients;
    parts[GC_ESTIMATE_saved_activation] = is_step ? 0 : phases.place.saved;
    parts[GC_ESTIMATE_loss] = is_step ? 0 : phases.place.loss;
    parts[GC_ESTIMATE_temporary] =
        need->buffers + (is_step ? need->step : phases.place.work + need->backward);
    estimate->trained_parameters = phases.trained_elements;
    estimate->backward_bytes = phases.backward_bytes;
    estimate->step_bytes = phases.step_bytes;
    return GC_OK;
}

uint64_t gc_train_least_bytes(const struct gc_estimator *estimator,
                              const struct gc_estimate_request *request)
{
    struct phases phases;
    struct gc_estimate_request training = *request;
    const struct step step = {request->dtype, request->seq_len};
    training.training.optimiser = GC_OPTIMISER_ADAMW;
    training.training.is_checkpointed = true;
    if (!is_trained_in(step.dtype) || gc_train_find_refusal(estimator, &training) != NULL)
        return 0;
    struct gc_training_kind kind = kind_of(&training.training, &training, step.dtype);
    training.training.is_checkpointed = gc_training_rows_have(&estimator->training_rows, &kind);
    if (find_phases(estimator, &training, &step, &phases) != GC_OK)
        return 0;
    return peak_of(&phases);
}
