/* The formulas of formulas.h: memory kept from token to token (keys and values, states), and memory
 * of a step (attention, a layer's working set, logits, inputs). */
#include "core/estimator/formulas.h"

#include "core/model/checked.h"

enum gc_status gc_formula_kv_token_bytes(const struct gc_layers *layers,
                                         const struct gc_layer *layer, enum gc_dtype dtype,
                                         uint32_t shards, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    *bytes = 0;
    if (!layers->has_kv_cache || !layer->has_attention || layer->shares_kv)
        return GC_OK;
    const uint64_t index = gc_sum_typed(&sum, dtype, layer->index_dim);
    if (layer->is_mla) {
        *bytes = gc_sum_typed(&sum, dtype, layers->kv_rank + layers->rope_dim);
        *bytes = gc_sum_add(&sum, *bytes, index);
        return gc_sum_status(&sum);
    }
    const uint64_t heads = gc_divide_up_u64(layer->kv_heads, shards);
    const uint64_t keys = gc_sum_mul(&sum, heads, layer->key_dim);
    const uint64_t values = gc_sum_mul(&sum, heads, layer->value_dim);
    *bytes = gc_sum_add(&sum, gc_sum_typed(&sum, dtype, keys), gc_sum_typed(&sum, dtype, values));
    *bytes = gc_sum_add(&sum, *bytes, index);
    return gc_sum_status(&sum);
}

enum gc_status gc_formula_prompt_layer_bytes(const struct gc_layers *layers,
                                             const struct gc_layer *layer,
                                             const struct gc_estimate_load *work, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    *bytes = 0;
    if (layer->window == 0 || work->context_tokens <= layer->window)
        return GC_OK;
    const enum gc_status status =
        gc_formula_kv_token_bytes(layers, layer, work->kv_dtype, work->shards, bytes);
    if (status != GC_OK)
        return status;
    const uint64_t held =
        gc_min_u64(work->context_tokens, gc_sum_add(&sum, layer->window - 1, work->step_tokens));
    *bytes = gc_sum_mul(&sum, gc_sum_mul(&sum, work->batch, held - layer->window), *bytes);
    *bytes = gc_sum_mul(&sum, *bytes, layers->attention_count);
    return gc_sum_status(&sum);
}

enum gc_status gc_formula_kv_layer_bytes(const struct gc_layers *layers,
                                         const struct gc_layer *layer,
                                         const struct gc_estimate_load *work, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    uint64_t tokens = work->context_tokens;
    const enum gc_status status =
        gc_formula_kv_token_bytes(layers, layer, work->kv_dtype, work->shards, bytes);
    if (status != GC_OK)
        return status;
    if (layer->window > 0)
        tokens = gc_min_u64(tokens, layer->window);
    if (layers->has_cross_attention && !layers->is_source_unknown)
        tokens = gc_sum_add(&sum, tokens, gc_source_tokens(layers, work));
    *bytes = gc_sum_mul(&sum, gc_sum_mul(&sum, work->batch, tokens), *bytes);
    *bytes = gc_sum_mul(&sum, *bytes, layers->attention_count);
    return gc_sum_status(&sum);
}

enum gc_status gc_formula_state_layer_bytes(const struct gc_layers *layers,
                                            const struct gc_layer *layer,
                                            const struct gc_estimate_load *work, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    const struct gc_state_size *size = &layer->size;
    *bytes = 0;
    if (!layers->has_kv_cache)
        return GC_OK;
    const uint64_t convolution =
        gc_sum_typed(&sum, work->dtype, gc_divide_up_u64(size->native, work->shards));
    const uint64_t state =
        gc_sum_typed(&sum, GC_DTYPE_F32, gc_divide_up_u64(size->wide, work->shards));
    *bytes = gc_sum_mul(&sum, work->batch, gc_sum_add(&sum, convolution, state));
    return gc_sum_status(&sum);
}

/* Memory of a step: attention, a layer's working set, logits, inputs. */

#define INPUTS_PER_TOKEN 3

static uint64_t step_tokens(struct gc_sum *sum, const struct gc_estimate_load *work)
{
    return gc_sum_mul(sum, work->batch, work->step_tokens);
}

enum gc_status gc_formula_attention_scores_bytes(const struct gc_layer *layer,
                                                 const struct gc_estimate_load *work,
                                                 uint64_t *bytes)
{
    struct gc_sum sum = {false};
    uint64_t context = work->context_tokens;
    *bytes = 0;
    if (!layer->has_attention)
        return GC_OK;
    const uint64_t rows =
        gc_sum_mul(&sum, step_tokens(&sum, work), gc_divide_up_u64(layer->heads, work->shards));
    if (layer->window > 0 && work->step_tokens == 1)
        context = gc_min_u64(context, layer->window);
    if (work->scores_materialised)
        *bytes = gc_sum_typed(&sum, work->dtype, gc_sum_mul(&sum, rows, context));
    else
        *bytes = gc_sum_mul(&sum, rows, 2 * sizeof(float));
    return gc_sum_status(&sum);
}

/* Elements for each token. None of these sums can pass 64 bits: the ranges of arch_keys.def keep
 * each product below 2^50. */
static uint64_t attention_elements(const struct gc_layers *layers, const struct gc_layer *layer,
                                   uint32_t shards)
{
    const uint64_t heads = gc_divide_up_u64(layer->heads, shards);
    const uint64_t kv_heads = gc_divide_up_u64(layer->kv_heads, shards);
    if (!layer->has_attention)
        return 0;
    if (layer->is_mla)
        return 3 * layers->hidden +
               heads * (4 * layers->latent_key_dim + 2 * layers->latent_value_dim) +
               layers->kv_rank + layers->rope_dim;
    return 3 * layers->hidden + heads * (2 * (uint64_t)layer->key_dim + layer->value_dim) +
           kv_heads * ((uint64_t)layer->key_dim + layer->value_dim);
}

static uint64_t forward_elements(const struct gc_layers *layers, const struct gc_layer *layer,
                                 uint32_t shards)
{
    const uint64_t hidden = layers->hidden;
    if (!layer->experts)
        return 4 * hidden + 3 * gc_divide_up_u64(layer->intermediate, shards);
    const uint64_t shared = layers->shared_intermediate > 0
                                ? layers->shared_intermediate
                                : layers->shared_experts * layers->expert_intermediate;
    const uint64_t used = layers->experts_used;
    const uint64_t width = gc_divide_up_u64(layers->expert_intermediate, shards);
    const uint64_t sorted = used * hidden + gc_max_u64(3 * used * hidden, 4 * used * width);
    return 4 * hidden + gc_max_u64(sorted, 3 * gc_divide_up_u64(shared, shards));
}

/* Half of keys and values may be in the cache alone; experts may run one after the other, with
 * their results in one place. */
uint64_t gc_formula_least_elements(const struct gc_layers *layers)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < layers->count; i++) {
        struct gc_layer layer = layers->items[i];
        layer.kv_heads /= 2;
        most = gc_max_u64(most, attention_elements(layers, &layer, 1));
        most = gc_max_u64(most, layer.experts
                                    ? (uint64_t)layers->experts_used * layers->expert_intermediate
                                    : 2 * (uint64_t)layer.intermediate);
    }
    return most;
}

#define NORM_ROWS 7 /* of 16 bits: the residual stream thrice, twice in 32 bits */

static uint64_t state_elements(const struct gc_layers *layers, const struct gc_layer *layer,
                               uint32_t shards)
{
    if (layer->state == GC_STATE_NONE)
        return 0;
    const uint64_t channels = gc_max_u64(layers->hidden, layers->state_channels[layer->state]);
    return 4 * layers->hidden + 3 * gc_divide_up_u64(channels, shards);
}

enum gc_status gc_formula_activation_layer_bytes(const struct gc_layers *layers,
                                                 const struct gc_layer *layer,
                                                 const struct gc_estimate_load *work,
                                                 uint64_t *bytes)
{
    struct gc_sum sum = {false};
    uint64_t elements = attention_elements(layers, layer, work->shards);
    elements = gc_max_u64(elements, forward_elements(layers, layer, work->shards));
    elements = gc_max_u64(elements, state_elements(layers, layer, work->shards));
    elements = gc_max_u64(elements, NORM_ROWS * layers->hidden);
    *bytes = gc_sum_typed(&sum, work->dtype, gc_sum_mul(&sum, step_tokens(&sum, work), elements));
    return gc_sum_status(&sum);
}

enum gc_status gc_formula_logits_bytes(const struct gc_layers *layers,
                                       const struct gc_estimate_load *work, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    *bytes = layers->has_kv_cache
                 ? gc_sum_mul(&sum, work->batch, gc_sum_mul(&sum, layers->vocab, sizeof(float)))
                 : 0;
    return gc_sum_status(&sum);
}

enum gc_status gc_formula_input_bytes(const struct gc_estimate_load *work, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    *bytes = gc_sum_mul(&sum, step_tokens(&sum, work), INPUTS_PER_TOKEN * sizeof(uint64_t));
    return gc_sum_status(&sum);
}
