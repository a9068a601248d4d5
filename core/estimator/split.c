/* One device's part of a model: some of the layers, or a part of each. */
#include "core/estimator/estimator.h"
#include "core/model/checked.h"

#include <string.h>

/* In order; devices differ by at most one layer. */
static uint32_t device_of_layer(uint32_t layer, uint32_t layer_count, uint32_t device_count)
{
    return (uint32_t)((uint64_t)layer * device_count / layer_count);
}

struct device_view {
    const struct gc_estimator *estimator;
    const struct gc_estimate_request *request;
    const struct gc_estimate_load *work;
    const struct gc_engine_plan *plan;
    struct gc_estimate_load step;          /* of activations */
    const struct gc_estimate_sizes *sizes; /* of this device, as far as they are known */
    uint32_t device;
    uint32_t layer_count;
    uint64_t host_layers; /* the first ones; beyond layer_count: the output too */
    struct gc_sum sum;
};

static bool is_sharded(const struct device_view *view)
{
    return view->work->shards > 1;
}

static bool is_first_device(const struct device_view *view)
{
    return view->device == 0 || is_sharded(view);
}

static bool is_last_device(const struct device_view *view)
{
    return view->device + 1 == view->request->device_count || is_sharded(view);
}

static bool is_on_host(const struct device_view *view, uint32_t layer)
{
    return layer < view->host_layers;
}

static bool is_output_on_host(const struct device_view *view)
{
    return view->host_layers > view->layer_count;
}

/* The layers in device memory are divided over the devices. */
static bool has_layer(const struct device_view *view, uint32_t layer)
{
    if (is_on_host(view, layer))
        return false;
    const uint32_t host = (uint32_t)view->host_layers;
    return is_sharded(view) || device_of_layer(layer - host, view->layer_count - host,
                                               view->request->device_count) == view->device;
}

/* ---- weights ---- */

/* Bytes of a layer's experts that stay on the device. */
static uint64_t resident_bytes(struct device_view *view, uint64_t expert_bytes)
{
    const uint64_t experts = view->estimator->layers.experts;
    const uint64_t resident = view->request->resident_experts;
    if (experts == 0 || resident >= experts)
        return expert_bytes;
    return gc_min_u64(expert_bytes,
                      gc_sum_mul(&view->sum, gc_divide_up_u64(expert_bytes, experts), resident));
}

static bool is_tied(const struct gc_estimator *estimator)
{
    return estimator->has_layers && estimator->weights.last.dense_bytes == 0;
}

/* The share as it is, or quantised as the request says. */
static struct gc_mix_bytes bytes_of(struct device_view *view, const struct gc_weight_share *share,
                                    enum gc_weight_section section, uint32_t layer)
{
    const struct gc_layers *layers = &view->estimator->layers;
    const struct gc_layer *first = &layers->items[0];
    struct gc_mix_bytes bytes = {
        .dense = share->dense_bytes,
        .replicated = share->replicated_bytes,
        .expert = share->expert_bytes,
    };
    if (view->request->mix == GC_MIX_NONE)
        return bytes;
    const struct gc_mix_model model = {
        .layers = view->layer_count,
        .experts = layers->experts,
        .group = first->kv_heads > 0 ? first->heads / first->kv_heads : 1,
        .is_tied = is_tied(view->estimator),
    };
    if (gc_mix_count(view->request->mix, &model, section, layer, &share->elements, &bytes) != GC_OK)
        view->sum.overflowed = true;
    return bytes;
}

static uint64_t share_bytes(struct device_view *view, const struct gc_weight_share *share,
                            enum gc_weight_section section, uint32_t layer)
{
    const uint32_t shards = view->work->shards;
    const struct gc_mix_bytes bytes = bytes_of(view, share, section, layer);
    const uint64_t experts = resident_bytes(view, bytes.expert);
    const uint64_t dense = gc_divide_up_u64(bytes.dense, shards);
    return gc_sum_add(&view->sum, gc_sum_add(&view->sum, dense, bytes.replicated),
                      gc_divide_up_u64(experts, shards));
}

/* If one tensor is both embedding and output, the last device has a copy of it. */
static uint64_t tied_bytes(struct device_view *view)
{
    const struct gc_weights *weights = &view->estimator->weights;
    return is_tied(view->estimator)
               ? bytes_of(view, &weights->embedding, GC_WEIGHT_EMBEDDING, 0).dense
               : 0;
}

/* llama.cpp keeps the embedding in host memory (llama-model.cpp: the input layer's device is the
 * CPU) and makes a copy of it for the output where one tensor is both. */
static bool has_embedding(const struct device_view *view)
{
    return is_first_device(view) &&
           (view->plan->engine != GC_ENGINE_LLAMA_CPP || !view->estimator->has_layers);
}

static uint64_t weight_bytes(struct device_view *view)
{
    const struct gc_weights *weights = &view->estimator->weights;
    const bool has_output = is_last_device(view) && !is_output_on_host(view);
    uint64_t bytes = 0;
    if (has_embedding(view))
        bytes = share_bytes(view, &weights->embedding, GC_WEIGHT_EMBEDDING, 0);
    if (is_first_device(view))
        bytes = gc_sum_add(&view->sum, bytes,
                           share_bytes(view, &weights->first, GC_WEIGHT_EMBEDDING, 0));
    if (has_output)
        bytes =
            gc_sum_add(&view->sum, bytes, share_bytes(view, &weights->last, GC_WEIGHT_OUTPUT, 0));
    if (has_output && !has_embedding(view))
        bytes =
            gc_sum_add(&view->sum, bytes, gc_divide_up_u64(tied_bytes(view), view->work->shards));
    for (uint32_t i = 0; i < weights->layer_count; i++) {
        if (has_layer(view, i))
            bytes = gc_sum_add(&view->sum, bytes,
                               share_bytes(view, &weights->layers[i], GC_WEIGHT_LAYER, i));
    }
    return bytes;
}

static uint64_t all_bytes(struct device_view *view, const struct gc_weight_share *share,
                          enum gc_weight_section section, uint32_t layer)
{
    const struct gc_mix_bytes bytes = bytes_of(view, share, section, layer);
    return gc_sum_add(&view->sum, gc_sum_add(&view->sum, bytes.dense, bytes.replicated),
                      bytes.expert);
}

enum gc_status gc_split_weight_bytes(const struct gc_estimator *estimator,
                                     const struct gc_estimate_request *request, uint64_t *bytes)
{
    const struct gc_weights *weights = &estimator->weights;
    struct device_view view = {
        .estimator = estimator, .request = request, .layer_count = weights->layer_count};
    *bytes = gc_sum_add(&view.sum, all_bytes(&view, &weights->embedding, GC_WEIGHT_EMBEDDING, 0),
                        all_bytes(&view, &weights->first, GC_WEIGHT_EMBEDDING, 0));
    *bytes = gc_sum_add(&view.sum, *bytes, all_bytes(&view, &weights->last, GC_WEIGHT_OUTPUT, 0));
    for (uint32_t i = 0; i < weights->layer_count; i++)
        *bytes = gc_sum_add(&view.sum, *bytes,
                            all_bytes(&view, &weights->layers[i], GC_WEIGHT_LAYER, i));
    return gc_sum_status(&view.sum);
}

/* Counted for the first device. */
static uint64_t host_weight_bytes(struct device_view *view)
{
    const struct gc_weights *weights = &view->estimator->weights;
    uint64_t bytes = 0;
    if (!has_embedding(view))
        bytes = all_bytes(view, &weights->embedding, GC_WEIGHT_EMBEDDING, 0);
    if (is_output_on_host(view))
        bytes = gc_sum_add(&view->sum, bytes, all_bytes(view, &weights->last, GC_WEIGHT_OUTPUT, 0));
    for (uint32_t i = 0; i < weights->layer_count; i++) {
        if (is_on_host(view, i))
            bytes = gc_sum_add(&view->sum, bytes,
                               all_bytes(view, &weights->layers[i], GC_WEIGHT_LAYER, i));
    }
    return bytes;
}

/* A step computes the layers in host memory on the device, too: each of their matrices is copied
 * there when its turn comes (ggml_backend_sched, offload_op). A layer's matrices are about three.
 */
static uint64_t staging_bytes(struct device_view *view)
{
    const struct gc_weights *weights = &view->estimator->weights;
    uint64_t most = 0;
    for (uint32_t i = 0; i < weights->layer_count && is_first_device(view); i++) {
        if (!is_on_host(view, i))
            continue;
        const struct gc_mix_bytes bytes = bytes_of(view, &weights->layers[i], GC_WEIGHT_LAYER, i);
        most = gc_max_u64(most, gc_divide_up_u64(gc_max_u64(bytes.dense, bytes.expert), 3));
    }
    return most;
}

/* ---- layers ---- */

typedef enum gc_status layer_bytes(const struct gc_layers *layers, const struct gc_layer *layer,
                                   const struct gc_estimate_load *work, uint64_t *bytes);

static enum gc_status scores_bytes(const struct gc_layers *layers, const struct gc_layer *layer,
                                   const struct gc_estimate_load *work, uint64_t *bytes)
{
    (void)layers;
    return gc_formula_attention_scores_bytes(layer, work, bytes);
}

/* A layer of the encoder, which runs before the decoder and in the same memory. */
static uint64_t encoder_bytes(struct device_view *view, layer_bytes *part)
{
    const struct gc_layers *layers = &view->estimator->layers;
    const struct gc_estimate_load work = gc_encoder_work(layers, view->work);
    uint64_t bytes = 0;
    if (layers->has_cross_attention && part(layers, &layers->encoder, &work, &bytes) != GC_OK)
        view->sum.overflowed = true;
    return bytes;
}

/* The encoder's output, kept while the decoder runs. */
static uint64_t encoded_bytes(struct device_view *view)
{
    const struct gc_layers *layers = &view->estimator->layers;
    const uint64_t tokens =
        gc_sum_mul(&view->sum, view->work->batch,
                   layers->has_cross_attention ? gc_source_tokens(layers, view->work) : 0);
    return gc_sum_typed(&view->sum, view->work->dtype,
                        gc_sum_mul(&view->sum, tokens, layers->hidden));
}

static uint64_t input_bytes(struct device_view *view)
{
    const struct gc_layers *layers = &view->estimator->layers;
    const struct gc_estimate_load encoder = gc_encoder_work(layers, view->work);
    uint64_t bytes = 0;
    uint64_t source = 0;
    if (gc_formula_input_bytes(&view->step, &bytes) != GC_OK ||
        (layers->has_cross_attention && gc_formula_input_bytes(&encoder, &source) != GC_OK))
        view->sum.overflowed = true;
    return gc_sum_add(&view->sum, bytes, source);
}

/* What a layer keeps, as the engine rounds it. */
static uint64_t kept_bytes(struct device_view *view, layer_bytes *part, uint32_t layer)
{
    const struct gc_layers *layers = &view->estimator->layers;
    const struct gc_layer kept =
        gc_engine_kept_layer(view->plan, &layers->items[layer], view->work->context_tokens);
    uint64_t bytes;
    if (part(layers, &kept, view->work, &bytes) != GC_OK)
        view->sum.overflowed = true;
    return bytes;
}

/* Other programs than llama.cpp compute a layer of host memory on the device, where its cache
 * stays (accelerate's hooks, vLLM's --cpu-offload-gb). */
static bool keeps_cache(const struct device_view *view, uint32_t layer)
{
    return has_layer(view, layer) || (is_on_host(view, layer) && is_first_device(view) &&
                                      view->plan->engine != GC_ENGINE_LLAMA_CPP);
}

static uint64_t over_kept(struct device_view *view, layer_bytes *part)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < view->estimator->layers.count; i++) {
        if (keeps_cache(view, i))
            total = gc_sum_add(&view->sum, total, kept_bytes(view, part, i));
    }
    return total;
}

/* The largest layer: the next one uses the memory again. A device computes the layers of host
 * memory too. */
static uint64_t over_layers(struct device_view *view, layer_bytes *part)
{
    const struct gc_layers *layers = &view->estimator->layers;
    uint64_t most = encoder_bytes(view, part);
    for (uint32_t i = 0; i < layers->count; i++) {
        uint64_t bytes;
        if (!has_layer(view, i) && !is_on_host(view, i))
            continue;
        if (part(layers, &layers->items[i], &view->step, &bytes) != GC_OK)
            view->sum.overflowed = true;
        most = gc_max_u64(most, bytes);
    }
    return most;
}

/* llama.cpp's compute buffer. */
static uint64_t compute_bytes(struct device_view *view)
{
    const struct gc_layers *layers = &view->estimator->layers;
    uint64_t most = 0;
    for (uint32_t i = 0; i < layers->count; i++) {
        uint64_t bytes;
        if (!has_layer(view, i) && !is_on_host(view, i))
            continue;
        if (gc_engine_compute_bytes(view->plan, layers, &layers->items[i], view->work, &bytes) !=
            GC_OK)
            view->sum.overflowed = true;
        most = gc_max_u64(most, bytes);
    }
    most = gc_max_u64(most, encoder_bytes(view, gc_formula_activation_layer_bytes));
    uint64_t output = 0;
    if (is_last_device(view) &&
        gc_engine_output_bytes(view->plan, layers, view->work->shards, &output) != GC_OK)
        view->sum.overflowed = true;
    return gc_sum_add(&view->sum, gc_max_u64(most, output), staging_bytes(view));
}

/* By the places of the class; the cache's bytes are those of the device. */
static uint64_t frame_bytes(struct device_view *view)
{
    const struct gc_estimate_load *work = &view->step;
    const uint64_t *parts = view->sizes->parts;
    const struct gc_frame_load load = {
        .batch = work->batch,
        .tokens = work->step_tokens,
        .element_bytes = gc_dtype_get_info(work->dtype)->block_bytes,
        .cache_bytes =
            gc_sum_add(&view->sum, parts[GC_ESTIMATE_kv_cache], parts[GC_ESTIMATE_state]),
        .shards = work->shards,
    };
    uint64_t bytes = 0;
    if (gc_frames_bytes(&view->estimator->frames, &load, &bytes) != GC_OK)
        view->sum.overflowed = true;
    return bytes;
}

static uint64_t activation_bytes(struct device_view *view)
{
    struct gc_estimate_load rows = *view->work;
    uint64_t logits = 0;
    if (view->plan->engine == GC_ENGINE_LLAMA_CPP)
        return compute_bytes(view);
    if (view->plan->engine == GC_ENGINE_TRANSFORMERS && view->estimator->frames.count > 0)
        return gc_sum_add(&view->sum, frame_bytes(view), staging_bytes(view));
    const uint64_t bytes = gc_sum_add(
        &view->sum, over_layers(view, gc_formula_activation_layer_bytes), encoded_bytes(view));
    rows.batch = view->plan->output_rows;
    if (is_last_device(view) &&
        gc_formula_logits_bytes(&view->estimator->layers, &rows, &logits) != GC_OK)
        view->sum.overflowed = true;
    return gc_sum_add(&view->sum, gc_sum_add(&view->sum, bytes, logits), staging_bytes(view));
}

/* ggml's graph has the scores and inputs among its other tensors. */
static bool is_in_activations(const struct device_view *view)
{
    return view->plan->engine == GC_ENGINE_LLAMA_CPP;
}

static uint64_t graph_bytes(const struct device_view *view)
{
    uint32_t layers = 0;
    for (uint32_t i = 0; i < view->estimator->layers.count; i++)
        layers += has_layer(view, i);
    return gc_engine_graph_bytes(view->plan, layers);
}

static uint64_t prompt_bytes(struct device_view *view)
{
    return view->plan->engine != GC_ENGINE_TRANSFORMERS || view->work->kv_dtype == GC_DTYPE_NONE
               ? 0
               : over_kept(view, gc_formula_prompt_layer_bytes);
}

static uint64_t part_bytes(struct device_view *view, enum gc_estimate_part part)
{
    switch (part) {
    case GC_ESTIMATE_weight:
        return weight_bytes(view);
    case GC_ESTIMATE_kv_cache:
        return view->work->kv_dtype == GC_DTYPE_NONE ? 0
                                                     : over_kept(view, gc_formula_kv_layer_bytes);
    case GC_ESTIMATE_state:
        return view->work->dtype == GC_DTYPE_NONE ? 0
                                                  : over_kept(view, gc_formula_state_layer_bytes);
    case GC_ESTIMATE_activation:
        return view->work->dtype == GC_DTYPE_NONE ? 0 : activation_bytes(view);
    case GC_ESTIMATE_attention_workspace:
        return view->work->dtype == GC_DTYPE_NONE || is_in_activations(view)
                   ? 0
                   : over_layers(view, scores_bytes);
    case GC_ESTIMATE_input:
        return is_in_activations(view) ? 0 : input_bytes(view);
    default:
        return 0;
    }
}

/* ---- blocks of the cache ---- */

/* Layers of a kind that share a block's number: all, or where windows make two kinds, the smaller
 * kind's, to which vLLM pads the other (kv_cache_planning.py, groups of one page size). */
static uint64_t group_size(uint64_t full, uint64_t windowed)
{
    const uint64_t least = gc_min_u64(full, windowed);
    const uint64_t most = gc_max_u64(full, windowed);
    if (least == 0)
        return most;
    return most * 2 < least * 3 ? most : least;
}

/* A block of the device's layers. */
static uint64_t block_bytes(struct device_view *view)
{
    const struct gc_layers *layers = &view->estimator->layers;
    uint64_t total = 0;
    uint64_t page = 0;
    uint64_t counts[2] = {0};
    if (view->work->kv_dtype == GC_DTYPE_NONE)
        return 0;
    for (uint32_t i = 0; i < layers->count; i++) {
        uint64_t bytes = 0;
        if (!has_layer(view, i))
            continue;
        if (gc_formula_kv_token_bytes(layers, &layers->items[i], view->work->kv_dtype,
                                      view->work->shards, &bytes) != GC_OK)
            view->sum.overflowed = true;
        bytes = gc_sum_mul(&view->sum, bytes,
                           layers->attention_count * gc_engine_block_tokens(view->plan->engine));
        page = gc_max_u64(page, bytes);
        if (layers->items[i].window > 0 && view->plan->window_share > 0)
            total = gc_sum_add(&view->sum, total,
                               gc_sum_mul(&view->sum, bytes, view->plan->window_share) / 1000);
        else
            total = gc_sum_add(&view->sum, total, bytes);
        counts[layers->items[i].window > 0] += bytes > 0;
    }
    if (view->plan->engine == GC_ENGINE_VLLM && counts[1] > 0)
        return gc_sum_mul(&view->sum, page, group_size(counts[0], counts[1]));
    return total;
}

/* ---- the whole ---- */

static uint64_t host_layers(const struct gc_estimator *estimator,
                            const struct gc_estimate_request *request, uint32_t layer_count)
{
    return estimator->has_layers && layer_count > 0
               ? gc_sub_or_zero_u64((uint64_t)layer_count + 1, request->device_layers)
               : 0;
}

enum gc_status gc_split_device(const struct gc_estimator *estimator,
                               const struct gc_estimate_request *request,
                               const struct gc_estimate_load *work, uint32_t device,
                               struct gc_estimate *estimate)
{
    const uint32_t named = estimator->weights.layer_count;
    struct device_view view = {
        .estimator = estimator,
        .request = request,
        .work = work,
        .plan = &estimate->plan,
        .step = gc_engine_step(&estimate->plan, work),
        .sizes = &estimate->devices[device],
        .device = device,
        .layer_count = named > estimator->layers.count ? named : estimator->layers.count,
    };
    view.host_layers = host_layers(estimator, request, view.layer_count);
    const unsigned count = estimator->has_layers ? GC_ESTIMATE_overhead : GC_ESTIMATE_weight + 1U;
    for (unsigned part = 0; part < count; part++) {
        estimate->devices[device].parts[part] = part_bytes(&view, (enum gc_estimate_part)part);
        estimate->overflowed = (enum gc_estimate_part)part;
        if (view.sum.overflowed)
            return GC_OVERFLOW;
    }
    estimate->graph_bytes[device] = graph_bytes(&view);
    if (estimator->has_layers) {
        estimate->prompt_bytes[device] = prompt_bytes(&view);
        estimate->kv_block_bytes[device] = block_bytes(&view);
    }
    if (device == 0)
        estimate->host_weight_bytes = host_weight_bytes(&view);
    return gc_sum_status(&view.sum);
}
