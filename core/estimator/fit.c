/* Whether an estimate fits, and suggestions that would fit. Every part of an estimate grows with
 * batch, context and resident experts, so the fitting values are a range from the smallest on. Its
 * end is found by interpolation, then doubling steps, then bisection (exponential search): O(log n)
 * estimates, fewer where the peak is linear, because an estimate of a large graph is slow. */
#include "core/estimator/fit.h"

#include "core/base/bits.h"
#include "core/estimator/estimator.h"

void gc_fit_set_budget(struct gc_estimate_budget *budget, uint64_t bytes)
{
    for (unsigned i = 0; i < GC_ESTIMATE_DEVICE_MAX; i++)
        budget->device_bytes[i] = bytes;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return gc_add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

static enum gc_estimate_part largest_part(const struct gc_estimate_sizes *sizes)
{
    unsigned largest = 0;
    for (unsigned part = 1; part < GC_ESTIMATE_PART_COUNT; part++) {
        if (sizes->parts[part] > sizes->parts[largest])
            largest = part;
    }
    return (enum gc_estimate_part)largest;
}

void gc_fit_check(const struct gc_estimate *estimate, const struct gc_estimate_budget *budget,
                  struct gc_fit *fit)
{
    *fit = (struct gc_fit){.fits = true, .lower_bound = estimate->unknown_parts != 0};
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        const uint64_t bytes = budget->device_bytes[i];
        const uint64_t usable = gc_min_u64(bytes, estimate->usable_bytes[i]);
        const uint64_t deficit = gc_sub_or_zero_u64(estimate->devices[i].peak_bytes, usable);
        fit->budget_bytes = add_saturated(fit->budget_bytes, bytes);
        fit->usable_bytes = add_saturated(fit->usable_bytes, usable);
        fit->deficit_bytes = add_saturated(fit->deficit_bytes, deficit);
        if (deficit > fit->device_deficit_bytes) {
            fit->device_deficit_bytes = deficit;
            fit->device = i;
        }
    }
    fit->fits = fit->deficit_bytes == 0;
    fit->largest = largest_part(&estimate->devices[fit->device]);
}

/* ---- suggestions ---- */

struct search {
    const struct gc_estimator *estimator;
    const struct gc_estimate_budget *budget;
    struct gc_estimate_request request;
    uint64_t *field; /* of request */
};

struct point {
    uint64_t value;
    bool is_known; /* else the estimate passes 64 bits */
    bool fits;
    __int128_t room; /* bytes left on the device with the least; negative: a deficit */
};

static __attribute__((noinline)) struct point try_value(struct search *search, uint64_t value)
{
    struct gc_estimate estimate;
    struct point point = {.value = value};
    *search->field = value;
    if (gc_estimator_run(search->estimator, &search->request, &estimate) != GC_OK)
        return point;
    for (uint32_t i = 0; i < estimate.device_count; i++) {
        const uint64_t usable =
            gc_min_u64(search->budget->device_bytes[i], estimate.usable_bytes[i]);
        const __int128_t room = (__int128_t)usable - estimate.devices[i].peak_bytes;
        if (i == 0 || room < point.room)
            point.room = room;
    }
    point.is_known = true;
    point.fits = point.room >= 0;
    return point;
}

static bool fits_at(struct search *search, uint64_t value)
{
    return try_value(search, value).fits;
}

/* `low` fits and `high` does not. */
struct range {
    struct point low;
    struct point high;
};

static uint64_t width(const struct range *range)
{
    return range->high.value - range->low.value;
}

static bool narrow(struct search *search, struct range *range, uint64_t value)
{
    const struct point point = try_value(search, value);
    *(point.fits ? &range->low : &range->high) = point;
    return point.fits;
}

/* A value strictly inside the range, which is wider than 1. */
static uint64_t guess(const struct range *range)
{
    uint64_t ahead = width(range) / 2;
    if (range->high.is_known)
        ahead = (uint64_t)(range->low.room * (__int128_t)width(range) /
                           (range->low.room - range->high.room));
    return range->low.value + gc_max_u64(1, gc_min_u64(ahead, width(range) - 1));
}

static void gallop(struct search *search, struct range *range)
{
    const bool up = narrow(search, range, guess(range));
    for (uint64_t step = 1; width(range) > 1; step *= 2) {
        const uint64_t far = gc_min_u64(step, width(range) - 1);
        if (narrow(search, range, up ? range->low.value + far : range->high.value - far) != up)
            return;
    }
}

/* The largest value from `low` to `high` that fits. */
static struct gc_suggestion largest(struct search *search, uint64_t low, uint64_t high)
{
    struct range range = {.low = try_value(search, low)};
    if (!range.low.fits)
        return (struct gc_suggestion){.state = GC_SUGGESTION_NOTHING_FITS};
    range.high = try_value(search, high);
    if (range.high.fits)
        return (struct gc_suggestion){.state = GC_SUGGESTION_ALL, .value = high};
    if (width(&range) > 1)
        gallop(search, &range);
    while (width(&range) > 1)
        narrow(search, &range, range.low.value + width(&range) / 2);
    return (struct gc_suggestion){.state = GC_SUGGESTION_SOME, .value = range.low.value};
}

/* Result of try_request, which is not inlined: an estimate takes much of a small stack. */
struct request_fit {
    enum gc_status status;
    bool has_cache;
    bool fits;
    enum gc_dtype kv_dtype;
    enum gc_engine engine;
    uint64_t step_tokens; /* that a chunk may divide; 0: none */
    uint64_t weight_bytes;
    uint64_t peak_bytes;
};

static __attribute__((noinline)) struct request_fit try_request(
    const struct gc_estimator *estimator, const struct gc_estimate_request *request,
    const struct gc_estimate_budget *budget)
{
    struct gc_estimate estimate;
    struct gc_fit fit;
    struct request_fit request_fit = {.status = gc_estimator_run(estimator, request, &estimate)};
    if (request_fit.status != GC_OK)
        return request_fit;
    gc_fit_check(&estimate, budget, &fit);
    request_fit.has_cache = estimate.total.parts[GC_ESTIMATE_kv_cache] > 0;
    request_fit.fits = fit.fits;
    request_fit.kv_dtype = estimate.kv_dtype;
    request_fit.engine = estimate.plan.engine;
    request_fit.peak_bytes = estimate.total.peak_bytes;
    request_fit.weight_bytes = estimate.total.parts[GC_ESTIMATE_weight];
    if (estimator->has_layers && estimator->layers.has_kv_cache)
        request_fit.step_tokens = estimate.plan.step_tokens > 0 ? estimate.plan.step_tokens
                                  : request->chunk_tokens > 0
                                      ? gc_min_u64(request->chunk_tokens, estimate.seq_len)
                                      : estimate.seq_len;
    return request_fit;
}

static struct search search_for(const struct gc_estimator *estimator,
                                const struct gc_estimate_request *request,
                                const struct gc_estimate_budget *budget)
{
    return (struct search){.estimator = estimator, .budget = budget, .request = *request};
}

/* No suggestion if all values fit: then the batch does not change the peak. */
static struct gc_suggestion suggest_batch(const struct gc_estimator *estimator,
                                          const struct gc_estimate_request *request,
                                          const struct gc_estimate_budget *budget)
{
    struct search search = search_for(estimator, request, budget);
    search.field = &search.request.batch;
    struct gc_suggestion suggestion = largest(&search, 1, GC_ESTIMATE_COUNT_MAX);
    if (suggestion.state == GC_SUGGESTION_ALL)
        suggestion.state = GC_SUGGESTION_NONE;
    return suggestion;
}

static struct gc_suggestion suggest_seq_len(const struct gc_estimator *estimator,
                                            const struct gc_estimate_request *request,
                                            const struct gc_estimate_budget *budget)
{
    struct search search = search_for(estimator, request, budget);
    const uint64_t positions = estimator->layers.positions;
    search.field = &search.request.seq_len;
    if (!estimator->has_layers || estimator->layers.count == 0)
        return (struct gc_suggestion){.state = GC_SUGGESTION_NONE};
    struct gc_suggestion suggestion =
        largest(&search, 1, positions > 0 ? positions : GC_ESTIMATE_COUNT_MAX);
    if (suggestion.state == GC_SUGGESTION_ALL && positions == 0)
        suggestion.state = GC_SUGGESTION_NONE;
    return suggestion;
}

static struct gc_suggestion suggest_experts(const struct gc_estimator *estimator,
                                            const struct gc_estimate_request *request,
                                            const struct gc_estimate_budget *budget)
{
    struct search search = search_for(estimator, request, budget);
    search.field = &search.request.resident_experts;
    if (estimator->layers.experts == 0 || estimator->weights.expert_bytes == 0)
        return (struct gc_suggestion){.state = GC_SUGGESTION_NONE};
    return largest(&search, 0, estimator->layers.experts);
}

/* A chunk of the step that the request makes; no suggestion if that fits. */
static struct gc_suggestion suggest_chunk(const struct gc_estimator *estimator,
                                          const struct gc_estimate_request *request,
                                          const struct gc_estimate_budget *budget,
                                          const struct request_fit *request_fit)
{
    struct search search = search_for(estimator, request, budget);
    search.field = &search.request.chunk_tokens;
    if (request_fit->fits || request_fit->step_tokens < 2)
        return (struct gc_suggestion){.state = GC_SUGGESTION_NONE};
    return largest(&search, 1, request_fit->step_tokens);
}

/* Layers in device memory, the output being one. */
static struct gc_suggestion suggest_layers(const struct gc_estimator *estimator,
                                           const struct gc_estimate_request *request,
                                           const struct gc_estimate_budget *budget,
                                           const struct request_fit *request_fit)
{
    struct search search = search_for(estimator, request, budget);
    search.field = &search.request.device_layers;
    if (request_fit->fits || estimator->weights.layer_count == 0)
        return (struct gc_suggestion){.state = GC_SUGGESTION_NONE};
    return largest(
        &search, 0,
        gc_min_u64(request->device_layers, (uint64_t)estimator->weights.layer_count + 1));
}

/* ---- types ---- */

/* Types of KV caches, widest first: those of llama.cpp, and 8-bit floats. */
static const enum gc_dtype kv_types[] = {
    GC_DTYPE_F16,  GC_DTYPE_Q8_0, GC_DTYPE_F8_E4M3, GC_DTYPE_Q5_1,
    GC_DTYPE_Q5_0, GC_DTYPE_Q4_1, GC_DTYPE_Q4_0,
};

/* llama.cpp has no 8-bit floats (common/arg.cpp, kv_cache_types), the servers nothing else. */
static bool is_kv_type_of(enum gc_dtype dtype, enum gc_engine engine)
{
    const bool is_f8 = dtype == GC_DTYPE_F8_E4M3;
    if (engine == GC_ENGINE_LLAMA_CPP)
        return !is_f8;
    return engine == GC_ENGINE_TRANSFORMERS || is_f8 || dtype == GC_DTYPE_F16;
}

static bool is_smaller(enum gc_dtype a, enum gc_dtype b)
{
    const struct gc_dtype_info *one = gc_dtype_get_info(a);
    const struct gc_dtype_info *other = gc_dtype_get_info(b);
    return (uint64_t)one->block_bytes * other->block_elements <
           (uint64_t)other->block_bytes * one->block_elements;
}

static struct gc_suggestion suggest_kv_dtype(const struct gc_estimator *estimator,
                                             const struct gc_estimate_request *request,
                                             const struct gc_estimate_budget *budget,
                                             const struct request_fit *request_fit)
{
    struct search search = search_for(estimator, request, budget);
    struct gc_suggestion suggestion = {.state = GC_SUGGESTION_NONE};
    if (request_fit->status != GC_OK || !request_fit->has_cache)
        return suggestion;
    if (request_fit->fits)
        return (struct gc_suggestion){.state = GC_SUGGESTION_ALL, .value = request_fit->kv_dtype};
    search.field = &search.request.batch;
    for (size_t i = 0; i < sizeof(kv_types) / sizeof(kv_types[0]); i++) {
        if (!is_smaller(kv_types[i], request_fit->kv_dtype) ||
            !is_kv_type_of(kv_types[i], request_fit->engine))
            continue;
        search.request.kv_dtype = kv_types[i];
        suggestion.state = GC_SUGGESTION_NOTHING_FITS;
        if (fits_at(&search, request->batch))
            return (struct gc_suggestion){.state = GC_SUGGESTION_SOME, .value = kv_types[i]};
    }
    return suggestion;
}

/* Files that the engine reads, from the largest on; of those smaller than the weights are. */
static struct gc_suggestion suggest_mix(const struct gc_estimator *estimator,
                                        const struct gc_estimate_request *request,
                                        const struct gc_estimate_budget *budget,
                                        const struct request_fit *request_fit)
{
    struct gc_estimate_request changed = *request;
    struct gc_suggestion suggestion = {.state = GC_SUGGESTION_NONE};
    if (request_fit->status != GC_OK || request_fit->fits || !gc_estimator_has_kinds(estimator))
        return suggestion;
    for (unsigned i = 0; i < GC_MIX_COUNT; i++) {
        changed.mix = (enum gc_mix)i;
        if (gc_mix_is_gguf(changed.mix) != (request_fit->engine == GC_ENGINE_LLAMA_CPP))
            continue;
        const struct request_fit other = try_request(estimator, &changed, budget);
        if (other.status != GC_OK || other.weight_bytes >= request_fit->weight_bytes)
            continue;
        if (other.fits)
            return (struct gc_suggestion){.state = GC_SUGGESTION_SOME, .value = i};
        suggestion.state = GC_SUGGESTION_NOTHING_FITS;
    }
    return suggestion;
}

/* ---- devices ---- */

/* Each layer's heads are divided without a rest. */
static bool is_even(const struct gc_estimator *estimator, uint32_t devices)
{
    const struct gc_layers *layers = &estimator->layers;
    for (uint32_t i = 0; i < layers->count; i++) {
        if (layers->items[i].has_attention && layers->items[i].heads % devices != 0)
            return false;
    }
    return true;
}

/* The fewest devices, `least` to `most`, with which the request fits otherwise unchanged. Devices
 * beyond its own are as its last. */
static struct gc_suggestion fewest_devices(const struct gc_estimator *estimator,
                                           const struct gc_estimate_request *request,
                                           const struct gc_estimate_budget *budget, uint32_t least,
                                           uint32_t most)
{
    struct gc_estimate_request changed = *request;
    struct gc_estimate_budget wider = *budget;
    uint64_t memory[GC_ESTIMATE_DEVICE_MAX];
    const uint32_t last = request->device_count - 1;
    for (uint32_t i = 0; i < GC_ESTIMATE_DEVICE_MAX; i++) {
        wider.device_bytes[i] = budget->device_bytes[gc_min_u64(i, last)];
        memory[i] = request->memory_bytes != NULL ? request->memory_bytes[gc_min_u64(i, last)] : 0;
    }
    changed.memory_bytes = request->memory_bytes != NULL ? memory : NULL;
    for (uint32_t count = least; count <= most; count++) {
        changed.device_count = count;
        if (changed.split == GC_SPLIT_TENSOR && !is_even(estimator, count))
            continue;
        if (try_request(estimator, &changed, &wider).fits)
            return (struct gc_suggestion){.state = GC_SUGGESTION_SOME, .value = count};
    }
    return (struct gc_suggestion){.state = GC_SUGGESTION_NOTHING_FITS};
}

/* Fewer than the request's devices may do with another split. */
static struct gc_suggestion suggest_devices(const struct gc_estimator *estimator,
                                            const struct gc_estimate_request *request,
                                            const struct gc_estimate_budget *budget,
                                            const struct request_fit *request_fit,
                                            enum gc_split split)
{
    struct gc_estimate_request changed = *request;
    if (request_fit->fits || !estimator->has_layers || estimator->layers.count == 0)
        return (struct gc_suggestion){.state = GC_SUGGESTION_NONE};
    changed.split = split;
    const bool is_tensor = split == GC_SPLIT_TENSOR;
    const bool is_same = is_tensor == (request->split == GC_SPLIT_TENSOR);
    const uint64_t parts = is_tensor ? GC_ESTIMATE_DEVICE_MAX : estimator->layers.count;
    return fewest_devices(estimator, &changed, budget, is_same ? request->device_count + 1 : 1,
                          (uint32_t)gc_min_u64(GC_ESTIMATE_DEVICE_MAX, parts));
}

/* ---- training ---- */

/* Optimisers that need less than others, as programs with Adam would try them. */
static const enum gc_optimiser lean_optimisers[] = {
    GC_OPTIMISER_ADAMW,        GC_OPTIMISER_ADAMW_8BIT, GC_OPTIMISER_ADAFACTOR,
    GC_OPTIMISER_SGD_MOMENTUM, GC_OPTIMISER_SGD,
};

static struct gc_suggestion suggest_optimiser(const struct gc_estimator *estimator,
                                              const struct gc_estimate_request *request,
                                              const struct gc_estimate_budget *budget,
                                              const struct request_fit *request_fit)
{
    struct gc_estimate_request changed = *request;
    struct gc_suggestion suggestion = {.state = GC_SUGGESTION_NONE};
    for (size_t i = 0; i < sizeof(lean_optimisers) / sizeof(lean_optimisers[0]); i++) {
        changed.training.optimiser = lean_optimisers[i];
        const struct request_fit other = try_request(estimator, &changed, budget);
        if (other.status != GC_OK || other.peak_bytes >= request_fit->peak_bytes)
            continue;
        if (other.fits)
            return (struct gc_suggestion){.state = GC_SUGGESTION_SOME, .value = lean_optimisers[i]};
        suggestion.state = GC_SUGGESTION_NOTHING_FITS;
    }
    return suggestion;
}

static struct gc_suggestion suggest_checkpointing(const struct gc_estimator *estimator,
                                                  const struct gc_estimate_request *request,
                                                  const struct gc_estimate_budget *budget)
{
    struct gc_estimate_request changed = *request;
    changed.training.is_checkpointed = true;
    if (request->training.is_checkpointed || estimator->training_rows.count == 0)
        return (struct gc_suggestion){.state = GC_SUGGESTION_NONE};
    const bool fits = try_request(estimator, &changed, budget).fits;
    return (struct gc_suggestion){.state = fits ? GC_SUGGESTION_SOME : GC_SUGGESTION_NOTHING_FITS,
                                  .value = fits};
}

/* Of the request's devices, divided more. */
static struct gc_suggestion suggest_stage(const struct gc_estimator *estimator,
                                          const struct gc_estimate_request *request,
                                          const struct gc_estimate_budget *budget)
{
    struct gc_estimate_request changed = *request;
    struct gc_suggestion suggestion = {.state = GC_SUGGESTION_NONE};
    for (uint32_t stage = request->training.zero_stage + 1;
         request->training.zero_stage != GC_TRAINING_NO_ZERO && stage <= GC_TRAINING_ZERO_MAX;
         stage++) {
        changed.training.zero_stage = stage;
        if (try_request(estimator, &changed, budget).fits)
            return (struct gc_suggestion){.state = GC_SUGGESTION_SOME, .value = stage};
        suggestion.state = GC_SUGGESTION_NOTHING_FITS;
    }
    return suggestion;
}

/* With the highest stage, for which fewer than the request's devices may do. */
static struct gc_suggestion suggest_zero_devices(const struct gc_estimator *estimator,
                                                 const struct gc_estimate_request *request,
                                                 const struct gc_estimate_budget *budget)
{
    struct gc_estimate_request changed = *request;
    const bool is_same = request->training.zero_stage == GC_TRAINING_ZERO_MAX;
    changed.training.zero_stage = GC_TRAINING_ZERO_MAX;
    return fewest_devices(estimator, &changed, budget, is_same ? request->device_count + 1 : 2,
                          GC_ESTIMATE_DEVICE_MAX);
}

/* Adapters instead of all parameters, or of fewer rows. */
static struct gc_suggestion suggest_rank(const struct gc_estimator *estimator,
                                         const struct gc_estimate_request *request,
                                         const struct gc_estimate_budget *budget)
{
    struct search search = search_for(estimator, request, budget);
    const uint64_t asked = request->training.lora_rank;
    const uint64_t hidden = estimator->layers.hidden;
    search.field = &search.request.training.lora_rank;
    if (estimator->lora.shape_count == 0 || (hidden == 0 && asked == 0))
        return (struct gc_suggestion){.state = GC_SUGGESTION_NONE};
    return largest(&search, 1, asked > 0 ? asked : hidden);
}

static void suggest_training(const struct gc_estimator *estimator,
                             const struct gc_estimate_request *request,
                             const struct gc_estimate_budget *budget, const struct request_fit *fit,
                             struct gc_suggestions *suggestions)
{
    suggestions->batch = suggest_batch(estimator, request, budget);
    suggestions->seq_len = suggest_seq_len(estimator, request, budget);
    if (fit->fits)
        return;
    suggestions->checkpointing = suggest_checkpointing(estimator, request, budget);
    suggestions->optimiser = suggest_optimiser(estimator, request, budget, fit);
    suggestions->zero_stage = suggest_stage(estimator, request, budget);
    suggestions->zero_devices = suggest_zero_devices(estimator, request, budget);
    suggestions->lora_rank = suggest_rank(estimator, request, budget);
}

enum gc_status gc_fit_suggest(const struct gc_estimator *estimator,
                              const struct gc_estimate_request *request,
                              const struct gc_estimate_budget *budget,
                              struct gc_suggestions *suggestions)
{
    const struct request_fit fit = try_request(estimator, request, budget);
    if (fit.status != GC_OK && fit.status != GC_OVERFLOW)
        return fit.status;
    *suggestions = (struct gc_suggestions){.batch = {.state = GC_SUGGESTION_NONE}};
    if (gc_training_is_asked(&request->training)) {
        suggest_training(estimator, request, budget, &fit, suggestions);
        return GC_OK;
    }
    suggestions->batch = suggest_batch(estimator, request, budget);
    suggestions->seq_len = suggest_seq_len(estimator, request, budget);
    suggestions->chunk = suggest_chunk(estimator, request, budget, &fit);
    suggestions->resident_experts = suggest_experts(estimator, request, budget);
    suggestions->kv_dtype = suggest_kv_dtype(estimator, request, budget, &fit);
    suggestions->mix = suggest_mix(estimator, request, budget, &fit);
    suggestions->tensor_devices =
        suggest_devices(estimator, request, budget, &fit, GC_SPLIT_TENSOR);
    suggestions->layer_devices = suggest_devices(estimator, request, budget, &fit, GC_SPLIT_LAYERS);
    suggestions->device_layers = suggest_layers(estimator, request, budget, &fit);
    return GC_OK;
}
