/* What is kept from token to token: keys and values, states. */
#include "core/estimator/checked.h"
#include "core/estimator/parts.h"

enum gc_status gc_kv_token_bytes(const struct gc_layers *layers, const struct gc_layer *layer,
                                 enum gc_dtype dtype, uint32_t shards, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    *bytes = 0;
    if (!layers->caches || !layer->attends || layer->shares_kv)
        return GC_OK;
    const uint64_t index = gc_sum_typed(&sum, dtype, layers->index_dim);
    if (layer->latent) {
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

enum gc_status gc_kv_layer_bytes(const struct gc_layers *layers, const struct gc_layer *layer,
                                 const struct gc_work *work, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    uint64_t tokens = work->context_tokens;
    const enum gc_status status =
        gc_kv_token_bytes(layers, layer, work->kv_dtype, work->shards, bytes);
    if (status != GC_OK)
        return status;
    if (layer->window > 0)
        tokens = gc_min_u64(tokens, layer->window);
    if (layers->crosses)
        tokens = gc_sum_add(&sum, tokens, gc_source_tokens(layers, work));
    *bytes = gc_sum_mul(&sum, gc_sum_mul(&sum, work->batch, tokens), *bytes);
    *bytes = gc_sum_mul(&sum, *bytes, layers->attentions);
    return gc_sum_status(&sum);
}

enum gc_status gc_state_layer_bytes(const struct gc_layers *layers, const struct gc_layer *layer,
                                    const struct gc_work *work, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    const struct gc_state_size *size = &layers->states[layer->state];
    *bytes = 0;
    if (layer->state == GC_STATE_NONE)
        return GC_OK;
    const uint64_t convolution =
        gc_sum_typed(&sum, work->dtype, gc_divide_up_u64(size->convolution, work->shards));
    const uint64_t state =
        gc_sum_typed(&sum, GC_DTYPE_F32, gc_divide_up_u64(size->state, work->shards));
    *bytes = gc_sum_mul(&sum, work->batch, gc_sum_add(&sum, convolution, state));
    return gc_sum_status(&sum);
}
