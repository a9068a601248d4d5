#include "core/estimator/admission.h"
#include "core/base/bits.h"
#include "core/base/host_mem.h"
#include "core/estimator/estimate.h"
#include "core/estimator/fit.h"
#include "core/io/text.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum judge_state { JUDGE_NEW, JUDGE_AT_WORK, JUDGE_DONE };

struct gc_gatekeeper {
    atomic_int state; /* enum judge_state */
    enum gc_gate_verdict verdict;
    const struct gc_options *options;
    struct gc_estimate_request request;
    struct gc_model *model;
    struct gc_estimator *estimator; /* NULL: no estimate, see why */
    struct gc_estimate estimate;
    struct gc_fit fit;
    struct gc_offers offers;
    struct gc_estimate_budget budget;
    uint32_t seen_devices; /* of those it is split over */
    char why[GC_MODEL_ERROR_BYTES];
};

/* ---- the estimate ---- */

static enum gc_dtype dtype_of(const char *word)
{
    return word[0] != '\0' ? gc_dtype_from_word(word, strlen(word)) : GC_DTYPE_NONE;
}

static void set_request(struct gc_gatekeeper *keeper, const struct gc_options *options)
{
    struct gc_estimate_request *request = &keeper->request;
    gc_estimate_request_init(request);
    request->batch = options->batch;
    request->seq_len = options->seq_len;
    request->kv_dtype = dtype_of(options->kv_dtype);
    request->dims = options->dims[0] != '\0' ? options->dims : NULL;
    request->overhead_millionths = (uint64_t)((options->overhead - 1) * 1000000 + 0.5);
    request->chunk_tokens = options->chunk;
    request->device_count = (uint32_t)options->devices;
    request->split = strcmp(options->split, "tensor") == 0 ? GC_SPLIT_TENSOR : GC_SPLIT_LAYERS;
    request->scores_materialised = strcmp(options->attention, "full") == 0;
    if (gc_options_is_set(options, GC_OPTION_RESIDENT_EXPERTS))
        request->resident_experts = options->resident_experts;
}

static void set_why(struct gc_gatekeeper *keeper, enum gc_status status)
{
    const char *path = keeper->options->model;
    char shown[256];
    char *at = stpcpy(keeper->why, gc_text_show(path, strlen(path), shown, sizeof(shown)));
    at = stpcpy(at, ": ");
    if (status == GC_OVERFLOW)
        at = stpcpy(stpcpy(at, gc_estimate_part_key(keeper->estimate.overflowed)), ": ");
    stpcpy(at, gc_status_text(status));
}

static void give_up(struct gc_gatekeeper *keeper, enum gc_status status)
{
    set_why(keeper, status);
    gc_estimator_close(keeper->estimator);
    keeper->estimator = NULL;
}

static void read_model(struct gc_gatekeeper *keeper, const struct gc_options *options)
{
    struct gc_model_error error;
    if (gc_model_open(options->model, NULL, &keeper->model, &error) != GC_OK) {
        memcpy(keeper->why, error.text, sizeof(keeper->why));
        return;
    }
    enum gc_status status =
        gc_estimator_open(keeper->model, dtype_of(options->dtype), &keeper->estimator);
    if (status == GC_OK)
        status = gc_estimator_run(keeper->estimator, &keeper->request, &keeper->estimate);
    if (status == GC_OK)
        return;
    give_up(keeper, status);
}

enum gc_status gc_gatekeeper_open(const struct gc_options *options, struct gc_gatekeeper **keeper)
{
    struct gc_host host = {0};
    *keeper = NULL;
    if (options->model[0] == '\0')
        return GC_OK;
    struct gc_gatekeeper *made = gc_host_map(&host, sizeof(*made));
    if (made == NULL)
        return GC_NO_HOST_MEMORY;
    made->options = options;
    set_request(made, options);
    read_model(made, options);
    *keeper = made;
    return GC_OK;
}

uint32_t gc_gatekeeper_device_count(const struct gc_gatekeeper *keeper)
{
    return keeper->request.device_count;
}

/* ---- what is said ---- */

static void say_offers(const struct gc_gatekeeper *keeper, const struct gc_log *log)
{
    const struct gc_offers *offers = &keeper->offers;
    if (offers->batch.state == GC_OFFER_SOME && offers->batch.value < keeper->request.batch)
        gc_log_write(log, GC_LOG_WARN, "a batch of %llu would fit",
                     (unsigned long long)offers->batch.value);
    if (offers->seq_len.state == GC_OFFER_SOME)
        gc_log_write(log, GC_LOG_WARN, "a context of %llu tokens would fit",
                     (unsigned long long)offers->seq_len.value);
    if (offers->kv_dtype.state == GC_OFFER_SOME)
        gc_log_write(log, GC_LOG_WARN, "a KV cache of %s would fit",
                     gc_dtype_name((enum gc_dtype)offers->kv_dtype.value));
    if (offers->resident_experts.state == GC_OFFER_SOME)
        gc_log_write(log, GC_LOG_WARN, "%llu of %llu experts of each layer would fit",
                     (unsigned long long)offers->resident_experts.value,
                     (unsigned long long)keeper->estimate.experts);
}

/* The model's path, for a line. */
#define SHOWN_BYTES 256
static const char *shown(const struct gc_gatekeeper *keeper, char text[SHOWN_BYTES])
{
    const char *path = keeper->options->model;
    return gc_text_show(path, strlen(path), text, SHOWN_BYTES);
}

/* Nothing is silently left out: what is not known of the model goes with the verdict. */
static void say_notes(const struct gc_gatekeeper *keeper, const struct gc_log *log)
{
    const struct gc_notes *notes = &keeper->estimate.notes;
    char text[GC_NOTE_BYTES];
    if (notes->count == 0)
        return;
    gc_text_show(notes->texts[0], strlen(notes->texts[0]), text, sizeof(text));
    if (notes->count == 1)
        gc_log_write(log, GC_LOG_WARN, "to know: %s", text);
    else
        gc_log_write(log, GC_LOG_WARN, "to know: %s; and %u more: gpucache estimate tells all",
                     text, notes->count + notes->lost - 1);
}

/* A program that is held back is told why at any level that tells anything. */
static enum gc_log_level level_of(const struct gc_gatekeeper *keeper)
{
    const enum gc_admission gate = keeper->options->gate;
    return gate == GC_ADMISSION_DENY || gate == GC_ADMISSION_EXIT ? GC_LOG_ERROR : GC_LOG_WARN;
}

static void say_missing_devices(const struct gc_gatekeeper *keeper, const struct gc_log *log)
{
    char text[SHOWN_BYTES];
    if (keeper->request.device_count == 1)
        gc_log_write(log, level_of(keeper), "%s: there is no device that tells its memory",
                     shown(keeper, text));
    else
        gc_log_write(log, level_of(keeper), "%s is split over %u devices, and %u %s there",
                     shown(keeper, text), keeper->request.device_count, keeper->seen_devices,
                     keeper->seen_devices == 1 ? "is" : "are");
}

static void say_exceeds(const struct gc_gatekeeper *keeper, const struct gc_log *log)
{
    const struct gc_fit *fit = &keeper->fit;
    char text[SHOWN_BYTES];
    char peak[GC_TEXT_SIZE_BYTES];
    char budget[GC_TEXT_SIZE_BYTES];
    char deficit[GC_TEXT_SIZE_BYTES];
    gc_text_size(keeper->estimate.devices[fit->device].peak_bytes, peak);
    gc_text_size(fit->device_deficit_bytes, deficit);
    gc_text_size(keeper->budget.device_bytes[fit->device], budget);
    if (keeper->estimate.device_count == 1)
        gc_log_write(log, level_of(keeper), "%s needs %s, which is %s more than the budget of %s",
                     shown(keeper, text), peak, deficit, budget);
    else
        gc_log_write(log, level_of(keeper),
                     "%s needs %s on device %u of %u, which is %s more than its budget of %s",
                     shown(keeper, text), peak, fit->device, keeper->estimate.device_count, deficit,
                     budget);
}

static void say_lower_bound(const struct gc_gatekeeper *keeper, const struct gc_log *log)
{
    char text[SHOWN_BYTES];
    char peak[GC_TEXT_SIZE_BYTES];
    gc_log_write(
        log, GC_LOG_WARN,
        "%s needs at least %s, which fits; not all of it is known: gpucache estimate says what",
        shown(keeper, text), gc_text_size(keeper->estimate.total.peak_bytes, peak));
}

static void say(struct gc_gatekeeper *keeper, const struct gc_log *log)
{
    const uint32_t wanted = keeper->request.device_count;
    if (keeper->fit.fits) {
        if (!keeper->fit.lower_bound)
            return;
        say_lower_bound(keeper, log);
    } else if (keeper->seen_devices < wanted) {
        say_missing_devices(keeper, log);
    } else {
        say_exceeds(keeper, log);
        if (gc_offers_find(keeper->estimator, &keeper->request, &keeper->budget, &keeper->offers) ==
            GC_OK)
            say_offers(keeper, log);
    }
    say_notes(keeper, log);
}

/* ---- the decision ---- */

/* A device that is not there has no room. */
static void take_devices(struct gc_gatekeeper *keeper, const struct gc_gate_devices *devices)
{
    uint64_t context = 0;
    gc_estimate_budget_set_all(&keeper->budget, 0);
    keeper->seen_devices = devices->count;
    for (uint32_t i = 0; i < devices->count && i < GC_ESTIMATE_DEVICE_MAX; i++) {
        keeper->budget.device_bytes[i] = devices->items[i].budget_bytes;
        context = gc_max_u64(context, devices->items[i].context_bytes);
    }
    if (context > 0)
        keeper->request.context_bytes = context;
}

static enum gc_gate_verdict decide(struct gc_gatekeeper *keeper,
                                   const struct gc_gate_devices *devices, const struct gc_log *log)
{
    const bool is_silent = keeper->options->gate == GC_ADMISSION_OFF;
    const uint64_t context = keeper->request.context_bytes;
    take_devices(keeper, devices);
    if (keeper->estimator != NULL && keeper->request.context_bytes != context) {
        const enum gc_status status =
            gc_estimator_run(keeper->estimator, &keeper->request, &keeper->estimate);
        if (status != GC_OK)
            give_up(keeper, status);
    }
    if (keeper->estimator == NULL) {
        gc_log_write(log, is_silent ? GC_LOG_INFO : GC_LOG_ERROR, "GPUCACHE_MODEL: %s",
                     keeper->why);
        return GC_GATE_UNREADABLE;
    }
    gc_fits(&keeper->estimate, &keeper->budget, &keeper->fit);
    if (!is_silent)
        say(keeper, log);
    return keeper->fit.fits ? GC_GATE_FITS : GC_GATE_EXCEEDS;
}

enum gc_gate_verdict gc_gatekeeper_judge(struct gc_gatekeeper *keeper,
                                         const struct gc_gate_devices *devices,
                                         const struct gc_log *log)
{
    const struct timespec pause = {0, 50000};
    int expected = JUDGE_NEW;
    if (atomic_compare_exchange_strong_explicit(&keeper->state, &expected, JUDGE_AT_WORK,
                                                memory_order_relaxed, memory_order_relaxed)) {
        keeper->verdict = decide(keeper, devices, log);
        gc_estimator_close(keeper->estimator);
        gc_model_close(keeper->model);
        /* Release: pairs with the acquire below and in gc_gatekeeper_tell. */
        atomic_store_explicit(&keeper->state, JUDGE_DONE, memory_order_release);
    }
    while (atomic_load_explicit(&keeper->state, memory_order_acquire) != JUDGE_DONE)
        nanosleep(&pause, NULL);
    return keeper->verdict;
}

bool gc_gatekeeper_tell(const struct gc_gatekeeper *keeper, struct gc_report_estimate *estimate)
{
    if (atomic_load_explicit(&keeper->state, memory_order_acquire) != JUDGE_DONE ||
        keeper->verdict == GC_GATE_UNREADABLE)
        return false;
    *estimate = (struct gc_report_estimate){
        .model = keeper->options->model,
        .batch = keeper->estimate.batch,
        .seq_len = keeper->estimate.seq_len,
        .sizes = keeper->estimate.total,
        .context_bytes = keeper->request.context_bytes * keeper->estimate.device_count,
        .coverage_thousandths = keeper->estimate.coverage_thousandths,
        .budget_bytes = keeper->fit.budget_bytes,
        .fits = keeper->verdict == GC_GATE_FITS,
        .device_count = keeper->estimate.device_count,
        .notes = &keeper->estimate.notes,
    };
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        estimate->devices[i].peak_bytes = keeper->estimate.devices[i].peak_bytes;
        estimate->devices[i].budget_bytes = keeper->budget.device_bytes[i];
    }
    return true;
}
