/* One device's part of a model: some of the layers, or a part of each. */
#include "core/estimator/checked.h"
#include "core/estimator/estimator.h"

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
    uint32_t device;
    uint32_t layer_count;
    struct gc_sum sum;
};

static bool is_sharded(const struct device_view *view)
{
    return view->work->shards > 1;
}

static bool has_layer(const struct device_view *view, uint32_t layer)
{
    return is_sharded(view) ||
           device_of_layer(layer, view->layer_count, view->request->device_count) == view->device;
}

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

static uint64_t share_bytes(struct device_view *view, const struct gc_weight_share *share)
{
    const uint32_t shards = view->work->shards;
    const uint64_t experts = resident_bytes(view, share->expert_bytes);
    const uint64_t dense = gc_divide_up_u64(share->dense_bytes, shards);
    return gc_sum_add(&view->sum, gc_sum_add(&view->sum, dense, share->replicated_bytes),
                      gc_divide_up_u64(experts, shards));
}

/* If one tensor is both embedding and output, the last device has a copy of it. */
static uint64_t tied_bytes(const struct device_view *view)
{
    const struct gc_weights *weights = &view->estimator->weights;
    const bool has_output = weights->last.dense_bytes > 0;
    return view->estimator->has_layers && !has_output ? weights->first.dense_bytes : 0;
}

static uint64_t weight_bytes(struct device_view *view)
{
    const struct gc_weights *weights = &view->estimator->weights;
    const bool is_first = view->device == 0 || is_sharded(view);
    const bool is_last = view->device + 1 == view->request->device_count || is_sharded(view);
    uint64_t bytes = is_first ? share_bytes(view, &weights->first) : 0;
    if (is_last)
        bytes = gc_sum_add(&view->sum, bytes, share_bytes(view, &weights->last));
    if (is_last && !is_first)
        bytes = gc_sum_add(&view->sum, bytes, tied_bytes(view));
    for (uint32_t i = 0; i < weights->layer_count; i++) {
        if (has_layer(view, i))
            bytes = gc_sum_add(&view->sum, bytes, share_bytes(view, &weights->layers[i]));
    }
    return bytes;
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
    if (gc_formula_input_bytes(view->work, &bytes) != GC_OK ||
        (layers->has_cross_attention && gc_formula_input_bytes(&encoder, &source) != GC_OK))
        view->sum.overflowed = true;
    return gc_sum_add(&view->sum, bytes, source);
}

/* The size of a part: the sum over the device's layers, or the largest layer if the memory is
 * reused. */
static uint64_t over_layers(struct device_view *view, layer_bytes *part, bool reused)
{
    const struct gc_layers *layers = &view->estimator->layers;
    uint64_t total = reused ? encoder_bytes(view, part) : 0;
    for (uint32_t i = 0; i < layers->count; i++) {
        uint64_t bytes;
        if (!has_layer(view, i))
            continue;
        if (part(layers, &layers->items[i], view->work, &bytes) != GC_OK)
            view->sum.overflowed = true;
        total = reused ? gc_max_u64(total, bytes) : gc_sum_add(&view->sum, total, bytes);
    }
    return total;
}

static uint64_t activation_bytes(struct device_view *view)
{
    const bool is_last = view->device + 1 == view->request->device_count || is_sharded(view);
    uint64_t bytes =
        gc_sum_add(&view->sum, over_layers(view, gc_formula_activation_layer_bytes, true),
                   encoded_bytes(view));
    uint64_t logits = 0;
    if (is_last && gc_formula_logits_bytes(&view->estimator->layers, view->work, &logits) != GC_OK)
        view->sum.overflowed = true;
    return gc_sum_add(&view->sum, bytes, logits);
}

static uint64_t part_bytes(struct device_view *view, enum gc_estimate_part part)
{
    switch (part) {
    case GC_ESTIMATE_weight:
        return weight_bytes(view);
    case GC_ESTIMATE_kv_cache:
        return view->work->kv_dtype == GC_DTYPE_NONE
                   ? 0
                   : over_layers(view, gc_formula_kv_layer_bytes, false);
    case GC_ESTIMATE_state:
        return view->work->dtype == GC_DTYPE_NONE
                   ? 0
                   : over_layers(view, gc_formula_state_layer_bytes, false);
    case GC_ESTIMATE_activation:
        return view->work->dtype == GC_DTYPE_NONE ? 0 : activation_bytes(view);
    case GC_ESTIMATE_attention_workspace:
        return view->work->dtype == GC_DTYPE_NONE ? 0 : over_layers(view, scores_bytes, true);
    case GC_ESTIMATE_input:
        return input_bytes(view);
    default:
        return 0;
    }
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
        .device = device,
        .layer_count = named > estimator->layers.count ? named : estimator->layers.count,
    };
    const unsigned count = estimator->has_layers ? GC_ESTIMATE_overhead : GC_ESTIMATE_weight + 1U;
    for (unsigned part = 0; part < count; part++) {
        estimate->devices[device].parts[part] = part_bytes(&view, (enum gc_estimate_part)part);
        estimate->overflowed = (enum gc_estimate_part)part;
        if (view.sum.overflowed)
            return GC_OVERFLOW;
    }
    return GC_OK;
}
