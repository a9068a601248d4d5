#include "core/estimator/admission.h"
#include "core/base/bits.h"
#include "core/base/host_mem.h"
#include "core/estimator/estimate.h"
#include "core/estimator/fit.h"
#include "core/estimator/train.h"
#include "core/io/text.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum decision_state { DECISION_NEW, DECISION_UNDER_WAY, DECISION_MADE };

struct gc_admission_state {
    atomic_int state; /* enum decision_state */
    enum gc_admission_verdict verdict;
    const struct gc_options *options;
    struct gc_estimate_request request;
    struct gc_model *model;
    struct gc_estimator *estimator; /* NULL: no estimate; the reason is in `why` */
    struct gc_estimate estimate;
    struct gc_fit fit;
    struct gc_suggestions suggestions;
    struct gc_estimate_budget budget;
    uint32_t seen_devices; /* how many of the devices that the model is split over were found */
    char why[GC_MODEL_ERROR_BYTES];
};

/* ---- the estimate ---- */

static enum gc_dtype dtype_of(const char *word)
{
    return word[0] != '\0' ? gc_dtype_from_word(word, strlen(word)) : GC_DTYPE_NONE;
}

/* A kind of file, or a type. */
static void set_weights(struct gc_admission_state *admission, const struct gc_options *options,
                        enum gc_dtype *dtype)
{
    const char *word = options->dtype;
    admission->request.mix = word[0] != '\0' ? gc_mix_from_word(word, strlen(word)) : GC_MIX_NONE;
    *dtype = admission->request.mix == GC_MIX_NONE ? dtype_of(word) : GC_DTYPE_NONE;
}

static void set_training(struct gc_training *training, const struct gc_options *options)
{
    training->optimiser = gc_optimiser_from_word(options->train);
    training->is_mixed = options->mixed_precision == 1;
    training->is_checkpointed = options->checkpointing == 1;
    training->lora_rank = options->lora;
    if (gc_options_is_set(options, GC_OPTION_ZERO))
        training->zero_stage = (uint32_t)options->zero;
}

static void set_request(struct gc_admission_state *admission, const struct gc_options *options)
{
    struct gc_estimate_request *request = &admission->request;
    gc_estimate_request_init(request);
    request->batch = options->batch;
    request->seq_len = options->seq_len;
    request->kv_dtype = dtype_of(options->kv_dtype);
    request->dims = options->dims[0] != '\0' ? options->dims : NULL;
    if (gc_options_is_set(options, GC_OPTION_OVERHEAD))
        request->overhead_millionths = (uint64_t)((options->overhead - 1) * 1000000 + 0.5);
    request->engine = gc_engine_from_word(options->engine);
    request->fraction = (uint32_t)(options->utilisation * 1000 + 0.5);
    if (gc_options_is_set(options, GC_OPTION_GPU_LAYERS))
        request->device_layers = options->gpu_layers;
    request->chunk_tokens = options->chunk;
    request->device_count = (uint32_t)options->devices;
    if (strcmp(options->split, "tensor") == 0)
        request->split = GC_SPLIT_TENSOR;
    else if (gc_options_is_set(options, GC_OPTION_SPLIT))
        request->split = GC_SPLIT_LAYERS;
    request->scores_materialised = strcmp(options->attention, "full") == 0;
    if (gc_options_is_set(options, GC_OPTION_RESIDENT_EXPERTS))
        request->resident_experts = options->resident_experts;
    set_training(&request->training, options);
}

/* The end of the model's name in `why`. */
static char *name_model(struct gc_admission_state *admission)
{
    const char *path = admission->options->model;
    char shown[256];
    char *at = stpcpy(admission->why, gc_text_printable(path, strlen(path), shown, sizeof(shown)));
    return stpcpy(at, ": ");
}

static void set_why(struct gc_admission_state *admission, enum gc_status status)
{
    char *at = name_model(admission);
    if (status == GC_OVERFLOW)
        at = stpcpy(stpcpy(at, gc_estimate_part_key(admission->estimate.overflowed)), ": ");
    stpcpy(at, gc_status_text(status));
}

static void fail(struct gc_admission_state *admission, enum gc_status status)
{
    set_why(admission, status);
    gc_estimator_close(admission->estimator);
    admission->estimator = NULL;
}

/* Copies `why` with the variable in place of each option: GPUCACHE_LORA of --lora. */
static void copy_with_variables(const char *why, char *at)
{
    bool is_option = false;
    for (; *why != '\0'; why++) {
        if (why[0] == '-' && why[1] == '-') {
            is_option = true;
            at = stpcpy(at, "GPUCACHE_");
            why++;
            continue;
        }
        is_option = is_option && (*why == '-' || (*why >= 'a' && *why <= 'z'));
        *at++ = !is_option ? *why : *why == '-' ? '_' : (char)(*why - 'a' + 'A');
    }
    *at = '\0';
}

/* The options of a request that contradict each other or the model. */
static void refuse(struct gc_admission_state *admission, const char *why)
{
    copy_with_variables(why, name_model(admission));
    gc_estimator_close(admission->estimator);
    admission->estimator = NULL;
}

static void read_model(struct gc_admission_state *admission, const struct gc_options *options)
{
    struct gc_model_error error;
    if (gc_model_open(options->model, NULL, &admission->model, &error) != GC_OK) {
        memcpy(admission->why, error.text, sizeof(admission->why));
        return;
    }
    enum gc_dtype dtype;
    set_weights(admission, options, &dtype);
    enum gc_status status = gc_estimator_open(admission->model, dtype, &admission->estimator);
    const char *why =
        status == GC_OK ? gc_train_find_refusal(admission->estimator, &admission->request) : NULL;
    if (why != NULL) {
        refuse(admission, why);
        return;
    }
    if (status == GC_OK)
        status = gc_estimator_run(admission->estimator, &admission->request, &admission->estimate);
    if (status == GC_OK)
        return;
    fail(admission, status);
}

enum gc_status gc_admission_open(const struct gc_options *options,
                                 struct gc_admission_state **admission)
{
    struct gc_host_mem host = {0};
    *admission = NULL;
    if (options->model[0] == '\0')
        return GC_OK;
    struct gc_admission_state *made = gc_host_mem_map(&host, sizeof(*made));
    if (made == NULL)
        return GC_NO_HOST_MEMORY;
    made->options = options;
    set_request(made, options);
    read_model(made, options);
    *admission = made;
    return GC_OK;
}

uint32_t gc_admission_device_count(const struct gc_admission_state *admission)
{
    return admission->request.device_count;
}

/* ---- the log lines of a decision ---- */

static void log_training_suggestions(const struct gc_suggestions *suggestions,
                                     const struct gc_log *log)
{
    if (suggestions->checkpointing.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "gradient checkpointing would fit");
    if (suggestions->optimiser.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "the optimiser %s would fit",
                     gc_optimiser_name((enum gc_optimiser)suggestions->optimiser.value));
    if (suggestions->zero_stage.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "stage %llu of ZeRO would fit",
                     (unsigned long long)suggestions->zero_stage.value);
    if (suggestions->zero_devices.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "%llu devices with stage 3 of ZeRO would fit",
                     (unsigned long long)suggestions->zero_devices.value);
    if (suggestions->lora_rank.state == GC_SUGGESTION_SOME ||
        suggestions->lora_rank.state == GC_SUGGESTION_ALL)
        gc_log_write(log, GC_LOG_WARN, "adapters of rank %llu would fit",
                     (unsigned long long)suggestions->lora_rank.value);
}

static void log_suggestions(const struct gc_admission_state *admission, const struct gc_log *log)
{
    const struct gc_suggestions *suggestions = &admission->suggestions;
    if (suggestions->batch.state == GC_SUGGESTION_SOME &&
        suggestions->batch.value < admission->request.batch)
        gc_log_write(log, GC_LOG_WARN, "a batch of %llu would fit",
                     (unsigned long long)suggestions->batch.value);
    if (suggestions->seq_len.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "a context of %llu tokens would fit",
                     (unsigned long long)suggestions->seq_len.value);
    if (suggestions->kv_dtype.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "a KV cache of %s would fit",
                     gc_dtype_name((enum gc_dtype)suggestions->kv_dtype.value));
    if (suggestions->chunk.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "steps of %llu tokens would fit",
                     (unsigned long long)suggestions->chunk.value);
    if (suggestions->mix.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "weights quantised as %s would fit",
                     gc_mix_name((enum gc_mix)suggestions->mix.value));
    if (suggestions->tensor_devices.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "%llu devices would fit, each with a part of each layer",
                     (unsigned long long)suggestions->tensor_devices.value);
    if (suggestions->layer_devices.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "%llu devices would fit, each with whole layers",
                     (unsigned long long)suggestions->layer_devices.value);
    if (suggestions->device_layers.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "%llu of %llu layers on the device would fit",
                     (unsigned long long)suggestions->device_layers.value,
                     (unsigned long long)admission->estimate.layer_count + 1);
    log_training_suggestions(suggestions, log);
    if (suggestions->resident_experts.state == GC_SUGGESTION_SOME)
        gc_log_write(log, GC_LOG_WARN, "%llu of %llu experts of each layer would fit",
                     (unsigned long long)suggestions->resident_experts.value,
                     (unsigned long long)admission->estimate.experts);
}

/* The model's path, printable. */
#define SHOWN_BYTES 256
static const char *shown(const struct gc_admission_state *admission, char text[SHOWN_BYTES])
{
    const char *path = admission->options->model;
    return gc_text_printable(path, strlen(path), text, SHOWN_BYTES);
}

/* The verdict comes with everything that is unknown about the model. */
static void log_notes(const struct gc_admission_state *admission, const struct gc_log *log)
{
    const struct gc_notes *notes = &admission->estimate.notes;
    char text[GC_NOTE_BYTES];
    if (notes->count == 0)
        return;
    gc_text_printable(notes->texts[0], strlen(notes->texts[0]), text, sizeof(text));
    if (notes->count == 1)
        gc_log_write(log, GC_LOG_WARN, "note: %s", text);
    else
        gc_log_write(log, GC_LOG_WARN, "note: %s; and %u more: see gpucache estimate", text,
                     notes->count + notes->lost - 1);
}

/* A program that is stopped gets the reason at any log level above silence. */
static enum gc_log_level level_of(const struct gc_admission_state *admission)
{
    const enum gc_admission gate = admission->options->gate;
    return gc_admission_is_closed(gate) ? GC_LOG_ERROR : GC_LOG_WARN;
}

static void log_missing_devices(const struct gc_admission_state *admission,
                                const struct gc_log *log)
{
    char text[SHOWN_BYTES];
    if (admission->request.device_count == 1)
        gc_log_write(log, level_of(admission), "%s: no device reports its memory size",
                     shown(admission, text));
    else
        gc_log_write(log, level_of(admission), "%s is split over %u devices, and %u %s there",
                     shown(admission, text), admission->request.device_count,
                     admission->seen_devices, admission->seen_devices == 1 ? "is" : "are");
}

static const char *purpose(const struct gc_admission_state *admission)
{
    return gc_training_is_asked(&admission->request.training) ? " in training" : "";
}

static void log_exceeds(const struct gc_admission_state *admission, const struct gc_log *log)
{
    const struct gc_fit *fit = &admission->fit;
    char text[SHOWN_BYTES];
    char peak[GC_TEXT_SIZE_BYTES];
    char budget[GC_TEXT_SIZE_BYTES];
    char deficit[GC_TEXT_SIZE_BYTES];
    gc_text_size(admission->estimate.devices[fit->device].peak_bytes, peak);
    gc_text_size(fit->device_deficit_bytes, deficit);
    gc_text_size(admission->budget.device_bytes[fit->device], budget);
    if (admission->estimate.device_count == 1)
        gc_log_write(log, level_of(admission),
                     "%s needs %s%s, which is %s more than the budget of %s",
                     shown(admission, text), peak, purpose(admission), deficit, budget);
    else
        gc_log_write(log, level_of(admission),
                     "%s needs %s%s on device %u of %u, which is %s more than its budget of %s",
                     shown(admission, text), peak, purpose(admission), fit->device,
                     admission->estimate.device_count, deficit, budget);
}

static void log_lower_bound(const struct gc_admission_state *admission, const struct gc_log *log)
{
    char text[SHOWN_BYTES];
    char peak[GC_TEXT_SIZE_BYTES];
    const bool is_strict = gc_admission_is_strict(admission->options->gate);
    const unsigned approximate = admission->estimate.approximate_parts;
    const bool is_bounded = (admission->estimate.unknown_parts & ~approximate) != 0;
    gc_log_write(log, is_strict ? GC_LOG_ERROR : GC_LOG_WARN,
                 "%s needs %s %s%s%s, which fits; parts of the model are unknown%s: see gpucache "
                 "estimate",
                 shown(admission, text), approximate != 0 ? "about" : "at least",
                 gc_text_size(admission->estimate.total.peak_bytes, peak),
                 approximate != 0 && is_bounded ? " or more" : "", purpose(admission),
                 is_strict ? ", and a strict gate takes no lower bound" : "");
}

static void log_decision(struct gc_admission_state *admission, const struct gc_log *log)
{
    const uint32_t wanted = admission->request.device_count;
    if (admission->fit.fits) {
        if (!admission->fit.lower_bound)
            return;
        log_lower_bound(admission, log);
    } else if (admission->seen_devices < wanted) {
        log_missing_devices(admission, log);
    } else {
        log_exceeds(admission, log);
        if (gc_fit_suggest(admission->estimator, &admission->request, &admission->budget,
                           &admission->suggestions) == GC_OK)
            log_suggestions(admission, log);
    }
    log_notes(admission, log);
}

/* ---- the decision ---- */

/* A missing device has a budget of 0. */
static void set_budgets(struct gc_admission_state *admission,
                        const struct gc_admission_devices *devices)
{
    uint64_t context = 0;
    gc_fit_set_budget(&admission->budget, 0);
    admission->seen_devices = devices->count;
    for (uint32_t i = 0; i < devices->count && i < GC_ESTIMATE_DEVICE_MAX; i++) {
        admission->budget.device_bytes[i] = devices->items[i].budget_bytes;
        context = gc_max_u64(context, devices->items[i].context_bytes);
    }
    if (context > 0)
        admission->request.context_bytes = context;
    admission->request.memory_bytes = admission->budget.device_bytes;
}

/* A lower bound that fits proves nothing. */
static bool is_unproven(const struct gc_admission_state *admission)
{
    return admission->fit.lower_bound && gc_admission_is_strict(admission->options->gate);
}

static enum gc_admission_verdict decide(struct gc_admission_state *admission,
                                        const struct gc_admission_devices *devices,
                                        const struct gc_log *log)
{
    const bool is_silent = admission->options->gate == GC_ADMISSION_OFF;
    set_budgets(admission, devices);
    if (admission->estimator != NULL) {
        const enum gc_status status =
            gc_estimator_run(admission->estimator, &admission->request, &admission->estimate);
        if (status != GC_OK)
            fail(admission, status);
    }
    if (admission->estimator == NULL) {
        gc_log_write(log, is_silent ? GC_LOG_INFO : GC_LOG_ERROR, "GPUCACHE_MODEL: %s",
                     admission->why);
        return GC_ADMISSION_UNREADABLE;
    }
    gc_fit_check(&admission->estimate, &admission->budget, &admission->fit);
    if (!is_silent)
        log_decision(admission, log);
    return admission->fit.fits && !is_unproven(admission) ? GC_ADMISSION_FITS
                                                          : GC_ADMISSION_EXCEEDS;
}

enum gc_admission_verdict gc_admission_decide(struct gc_admission_state *admission,
                                              const struct gc_admission_devices *devices,
                                              const struct gc_log *log)
{
    const struct timespec pause = {0, 50000};
    int expected = DECISION_NEW;
    if (atomic_compare_exchange_strong_explicit(&admission->state, &expected, DECISION_UNDER_WAY,
                                                memory_order_relaxed, memory_order_relaxed)) {
        admission->verdict = decide(admission, devices, log);
        gc_estimator_close(admission->estimator);
        gc_model_close(admission->model);
        /* Release: pairs with the acquire below and in gc_admission_describe. */
        atomic_store_explicit(&admission->state, DECISION_MADE, memory_order_release);
    }
    while (atomic_load_explicit(&admission->state, memory_order_acquire) != DECISION_MADE)
        nanosleep(&pause, NULL);
    return admission->verdict;
}

bool gc_admission_describe(const struct gc_admission_state *admission,
                           struct gc_report_estimate *estimate)
{
    if (atomic_load_explicit(&admission->state, memory_order_acquire) != DECISION_MADE ||
        admission->verdict == GC_ADMISSION_UNREADABLE)
        return false;
    *estimate = (struct gc_report_estimate){
        .model = admission->options->model,
        .batch = admission->estimate.batch,
        .seq_len = admission->estimate.seq_len,
        .sizes = admission->estimate.total,
        .context_bytes = admission->request.context_bytes * admission->estimate.device_count,
        .coverage_thousandths = admission->estimate.coverage_thousandths,
        .budget_bytes = admission->fit.budget_bytes,
        .fits = admission->verdict == GC_ADMISSION_FITS,
        .device_count = admission->estimate.device_count,
        .notes = &admission->estimate.notes,
    };
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        estimate->devices[i].peak_bytes = admission->estimate.devices[i].peak_bytes;
        estimate->devices[i].budget_bytes = admission->budget.device_bytes[i];
    }
    return true;
}

/* The one export of libgpucache-model.so: GC_MODEL_MODULE_SYMBOL. Data, so that the symbol of a
 * foreign file is compared and not called. */
extern const struct gc_model_module gpucache_model_module;
__attribute__((visibility("default"))) const struct gc_model_module gpucache_model_module = {
    .key = GC_MODEL_MODULE_KEY,
    .open = gc_admission_open,
    .device_count = gc_admission_device_count,
    .decide = gc_admission_decide,
    .describe = gc_admission_describe,
};
