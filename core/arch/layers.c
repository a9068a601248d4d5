/* The kind of each layer: by a word for each layer, else by period and offset, else by the family;
 * windows of attention layers; experts and states; encoder and decoder. */
#include "core/arch/layers.h"

#include "core/arch/arch.h"
#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

/* The kind of state that this model has. */
static enum gc_state_kind state_kind(const struct gc_arch *arch)
{
    if (gc_arch_is_type(arch, "rwkv, rwkv5, rwkv6, rwkv7, rwkv6qwen2, arwkv7"))
        return GC_STATE_WKV;
    return gc_arch_known(arch, GC_ARCH_RECURRENT_WIDTH) ? GC_STATE_RECURRENT : GC_STATE_SPACE;
}

static bool has_index(const struct gc_arch *arch, enum gc_arch_key key, uint32_t index)
{
    uint32_t count;
    const uint32_t *items = gc_arch_items(arch, key, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (items[i] == index)
            return true;
    }
    return false;
}

/* In GGUF, 0 KV heads mean a layer without attention. Nemotron-H's feed-forward layers have 0, too,
 * but a width; its state layers have no width. */
static enum gc_arch_kind kind_without_heads(const struct gc_arch *arch, uint32_t index)
{
    uint64_t width;
    if (gc_arch_known(arch, GC_ARCH_SHORT_CONVOLUTION))
        return GC_ARCH_KIND_CONVOLUTION;
    if (!gc_arch_known(arch, GC_ARCH_STATE) && !gc_arch_known(arch, GC_ARCH_DELTA_HEAD_DIM))
        return GC_ARCH_KIND_DENSE; /* DeciLM: layers without attention */
    if (gc_arch_is_type(arch, "nemotron_h, nemotron_h_moe") &&
        gc_arch_layer_number(arch, GC_ARCH_INTERMEDIATE, index, &width) && width > 0)
        return GC_ARCH_KIND_DENSE;
    return GC_ARCH_KIND_STATE;
}

static enum gc_arch_kind kind_by_period(const struct gc_arch *arch, uint32_t index)
{
    const uint64_t period = gc_arch_number(arch, GC_ARCH_ATTENTION_PERIOD, 1);
    const uint64_t offset = gc_arch_number(arch, GC_ARCH_ATTENTION_OFFSET, period - 1);
    return index % period == offset % period ? GC_ARCH_KIND_ATTENTION : GC_ARCH_KIND_STATE;
}

/* The kind of a layer without a list of kinds. */
static enum gc_arch_kind kind_by_rule(const struct gc_arch *arch, uint32_t index)
{
    uint64_t heads;
    if (gc_arch_is_type(
            arch,
            "mamba, mamba2, falcon_mamba, xlstm, rwkv, rwkv5, rwkv6, rwkv7, rwkv6qwen2, arwkv7"))
        return GC_ARCH_KIND_STATE;
    if (gc_arch_is_type(arch, "falcon_h1, falcon-h1"))
        return GC_ARCH_KIND_HYBRID;
    if (gc_arch_layer_number(arch, GC_ARCH_ATTENTION_FLAGS, index, &heads))
        return heads != 0 ? GC_ARCH_KIND_ATTENTION : GC_ARCH_KIND_STATE;
    if (gc_arch_known(arch, GC_ARCH_ATTENTION_NUMBERS))
        return has_index(arch, GC_ARCH_ATTENTION_NUMBERS, index + 1) ? GC_ARCH_KIND_ATTENTION
                                                                     : GC_ARCH_KIND_STATE;
    if (gc_arch_known(arch, GC_ARCH_ATTENTION_LAYERS)) {
        if (has_index(arch, GC_ARCH_ATTENTION_LAYERS, index))
            return gc_arch_is_type(arch, "zamba, zamba2") ? GC_ARCH_KIND_HYBRID
                                                          : GC_ARCH_KIND_ATTENTION;
        return gc_arch_known(arch, GC_ARCH_SHORT_CONVOLUTION) ? GC_ARCH_KIND_CONVOLUTION
                                                              : GC_ARCH_KIND_STATE;
    }
    if (gc_arch_is_type(arch, "bamba"))
        return GC_ARCH_KIND_STATE; /* no layer is listed as an attention layer */
    if (gc_arch_layer_number(arch, GC_ARCH_KV_HEADS, index, &heads) && heads == 0)
        return kind_without_heads(arch, index);
    if (gc_arch_known(arch, GC_ARCH_ATTENTION_PERIOD))
        return kind_by_period(arch, index);
    return GC_ARCH_KIND_ATTENTION;
}

static enum gc_arch_kind kind_of(const struct gc_arch *arch, uint32_t index)
{
    uint32_t count;
    const uint32_t *kinds = gc_arch_items(arch, GC_ARCH_KINDS, &count);
    if (kinds != NULL)
        return index < count ? (enum gc_arch_kind)kinds[index] : GC_ARCH_KIND_UNKNOWN;
    kinds = gc_arch_items(arch, GC_ARCH_KIND_CYCLE, &count);
    if (kinds != NULL)
        return (enum gc_arch_kind)kinds[index % count];
    return kind_by_rule(arch, index);
}

/* llama.cpp keeps everything where its graph of a family has no window, whatever its files say. */
static bool is_window_ignored(const struct gc_arch *arch)
{
    return arch->is_gguf &&
           gc_arch_is_type(arch, "phi3, phimoe, llama, qwen2, qwen2moe, qwen3, qwen3moe, "
                                 "starcoder2");
}

/* Whether a layer has the window, if its kind does not decide that. By a pattern n every n-th layer
 * has none (0: all have one), as in transformers and llama.cpp; a list has a flag for each. */
static bool has_window(const struct gc_arch *arch, uint32_t index)
{
    uint32_t count;
    uint64_t pattern;
    if (gc_arch_number(arch, GC_ARCH_WINDOW_USED, 1) == 0 || is_window_ignored(arch))
        return false;
    if (index < gc_arch_number(arch, GC_ARCH_WINDOW_FROM, 0))
        return false;
    if (!gc_arch_layer_number(arch, GC_ARCH_WINDOW_PATTERN, index, &pattern))
        return true;
    if (gc_arch_items(arch, GC_ARCH_WINDOW_PATTERN, &count) != NULL)
        return pattern != 0;
    return pattern == 0 || (index + 1) % pattern != 0;
}

static bool has_chunk(const struct gc_arch *arch, uint32_t index)
{
    uint64_t rope;
    if (gc_arch_layer_number(arch, GC_ARCH_NO_ROPE_LAYERS, index, &rope))
        return rope != 0;
    return has_window(arch, index);
}

static uint32_t window_of(const struct gc_arch *arch, enum gc_arch_kind kind, uint32_t index)
{
    const uint32_t window = (uint32_t)gc_arch_number(arch, GC_ARCH_WINDOW, 0);
    const uint32_t chunk = (uint32_t)gc_arch_number(arch, GC_ARCH_CHUNK, 0);
    if (kind == GC_ARCH_KIND_FULL || kind == GC_ARCH_KIND_HYBRID)
        return 0;
    if (kind == GC_ARCH_KIND_WINDOW || kind == GC_ARCH_KIND_HYBRID_WINDOW)
        return window;
    if (kind == GC_ARCH_KIND_CHUNK)
        return chunk;
    if (chunk > 0)
        return has_chunk(arch, index) ? chunk : 0;
    return window > 0 && has_window(arch, index) ? window : 0;
}

/* True if the configuration has a window but does not list its layers, and the family is not known
 * to have it in all: the layers may alternate. */
static bool is_window_unclear(const struct gc_arch *arch)
{
    static const char everywhere[] =
        "mistral, ministral, mixtral, phi3, phimoe, starcoder2, moshi, qwen2, qwen2_moe, qwen3, "
        "qwen3_moe, qwen2_vl, qwen2_5_vl, recurrent_gemma, recurrentgemma, griffin";
    if (is_window_ignored(arch))
        return false;
    static const enum gc_arch_key keys_with_layers[] = {
        GC_ARCH_KINDS,       GC_ARCH_KIND_CYCLE, GC_ARCH_WINDOW_PATTERN, GC_ARCH_WINDOW_USED,
        GC_ARCH_WINDOW_FROM, GC_ARCH_CHUNK,      GC_ARCH_NO_ROPE_LAYERS};
    for (size_t i = 0; i < sizeof(keys_with_layers) / sizeof(keys_with_layers[0]); i++) {
        if (gc_arch_known(arch, keys_with_layers[i]))
            return false;
    }
    return gc_arch_number(arch, GC_ARCH_WINDOW, 0) > 0 && !gc_arch_is_type(arch, everywhere);
}

/* True if the configuration has a state but does not list its layers: hybrids use keys of their own
 * for that. */
static bool is_state_unclear(const struct gc_arch *arch, const struct gc_layers *layers)
{
    uint32_t listed;
    (void)gc_arch_items(arch, GC_ARCH_KINDS, &listed);
    if (listed > 0 && listed >= layers->count)
        return false;
    for (uint32_t i = 0; i < layers->count; i++) {
        if (layers->items[i].state != GC_STATE_NONE || !layers->items[i].has_attention)
            return false;
    }
    return gc_arch_known(arch, GC_ARCH_STATE) || gc_arch_known(arch, GC_ARCH_CONVOLUTION) ||
           gc_arch_known(arch, GC_ARCH_LINEAR_KEY_DIM);
}

static void set_kind(const struct gc_arch *arch, struct gc_layers *layers, uint32_t index)
{
    struct gc_layer *layer = &layers->items[index];
    const enum gc_arch_kind kind = kind_of(arch, index);
    const bool is_hybrid = kind == GC_ARCH_KIND_HYBRID || kind == GC_ARCH_KIND_HYBRID_WINDOW;
    switch (kind) {
    case GC_ARCH_KIND_UNKNOWN:
        layers->unknown |= GC_UNKNOWN_KINDS;
        break;
    case GC_ARCH_KIND_STATE:
    case GC_ARCH_KIND_HYBRID:
    case GC_ARCH_KIND_HYBRID_WINDOW:
        layer->state = (uint8_t)state_kind(arch);
        break;
    case GC_ARCH_KIND_CONVOLUTION:
        layer->state = GC_STATE_CONVOLUTION;
        break;
    default:
        break;
    }
    layer->has_attention = is_hybrid || kind == GC_ARCH_KIND_FULL || kind == GC_ARCH_KIND_WINDOW ||
                           kind == GC_ARCH_KIND_CHUNK || kind == GC_ARCH_KIND_ATTENTION;
    layer->window = layer->has_attention ? window_of(arch, kind, index) : 0;
}

static void set_kinds(const struct gc_arch *arch, struct gc_layers *layers, struct gc_notes *notes)
{
    uint32_t count;
    uint64_t shared = gc_arch_number(arch, GC_ARCH_SHARED_KV_LAYERS, 0);
    for (uint32_t i = 0; i < layers->count; i++)
        set_kind(arch, layers, i);
    if (shared > layers->count)
        shared = layers->count;
    for (uint32_t i = layers->count - (uint32_t)shared; i < layers->count; i++)
        layers->items[i].shares_kv = true;
    if (arch->has_hidden_kinds) {
        layers->unknown |= GC_UNKNOWN_KEPT | GC_UNKNOWN_STATE;
        gc_notes_add(
            notes,
            "the configuration does not list the kinds of its layers, which its class computes",
            NULL);
    } else if (is_state_unclear(arch, layers)) {
        layers->unknown |= GC_UNKNOWN_KEPT | GC_UNKNOWN_STATE;
        gc_notes_add(
            notes, "the configuration has a state but not its layers: attention is assumed for all",
            NULL);
    }
    if (is_window_unclear(arch)) {
        layers->unknown |= GC_UNKNOWN_KEPT;
        gc_notes_add(notes, "the configuration has a window but not its layers: assumed for all",
                     NULL);
    }
    /* Cross-layer attention (Brandon et al., 2024): the first of each run has keys and values. */
    const uint64_t run = gc_arch_number(arch, GC_ARCH_CROSS_LAYER_USED, 0) != 0
                             ? gc_arch_number(arch, GC_ARCH_CROSS_LAYER_SHARE, 1)
                             : 1;
    for (uint32_t i = 0; i < layers->count; i++) {
        if (i % run != 0 || has_index(arch, GC_ARCH_CROSS_LAYERS, i))
            layers->items[i].shares_kv = true;
    }
    if (gc_arch_items(arch, GC_ARCH_CROSS_LAYERS, &count) != NULL && count > 0) {
        layers->unknown |= GC_UNKNOWN_KEPT;
        gc_notes_add(
            notes,
            "layers that attend to images keep keys and values of them: not counted, as how many images there are is unknown",
            NULL);
    }
    if (gc_arch_items(arch, GC_ARCH_KINDS, &count) != NULL && count != layers->count)
        gc_notes_add(notes, "the number of layer kinds differs from the number of layers", NULL);
    if ((layers->unknown & GC_UNKNOWN_KINDS) != 0)
        gc_notes_add(
            notes,
            "some layers are of an unknown kind: their keys, values and states are not counted",
            NULL);
}

/* ---- experts ---- */

/* By period n: DeepSeek's frequency counts from the first layer, Qwen's and Llama 4's step takes
 * the last of each n, Jamba's period begins at its offset. */
static bool has_experts(const struct gc_arch *arch, uint32_t index)
{
    uint32_t count;
    uint64_t frequency;
    const uint64_t step = gc_arch_number(arch, GC_ARCH_EXPERT_STEP, 1);
    const uint64_t period = gc_arch_number(arch, GC_ARCH_EXPERT_PERIOD, 1);
    if (gc_arch_known(arch, GC_ARCH_EXPERT_LAYERS))
        return has_index(arch, GC_ARCH_EXPERT_LAYERS, index);
    if (index < gc_arch_number(arch, GC_ARCH_DENSE_LAYERS, 0) ||
        has_index(arch, GC_ARCH_EXPERTLESS_LAYERS, index))
        return false;
    if (gc_arch_layer_number(arch, GC_ARCH_EXPERT_FREQUENCY, index, &frequency)) {
        if (gc_arch_items(arch, GC_ARCH_EXPERT_FREQUENCY, &count) != NULL)
            return frequency != 0;
        return frequency > 0 && index % frequency == 0;
    }
    if (gc_arch_known(arch, GC_ARCH_EXPERT_PERIOD))
        return index % period == gc_arch_number(arch, GC_ARCH_EXPERT_OFFSET, 0) % period;
    return step > 0 && (index + 1) % step == 0;
}

/* If the list of kinds has layers of experts, only these have experts. */
static bool may_have_experts(const struct gc_arch *arch, uint32_t index)
{
    uint32_t count;
    const uint32_t *kinds = gc_arch_items(arch, GC_ARCH_KINDS, &count);
    uint32_t forward_count;
    const uint32_t *forward = gc_arch_items(arch, GC_ARCH_FORWARD_KINDS, &forward_count);
    bool names_experts = false;
    if (forward != NULL)
        return index < forward_count && forward[index] == GC_ARCH_KIND_EXPERTS;
    for (uint32_t i = 0; i < count; i++)
        names_experts = names_experts || kinds[i] == GC_ARCH_KIND_EXPERTS;
    return !names_experts || (index < count && kinds[index] == GC_ARCH_KIND_EXPERTS);
}

/* Where the kinds name feed-forward layers, only these have a feed-forward part. Mamba's own layers
 * have none; Zamba's have it with the attention. */
static bool has_forward(const struct gc_arch *arch, const struct gc_layer *layer, uint32_t index)
{
    uint32_t count;
    const uint32_t *kinds = gc_arch_items(arch, GC_ARCH_KINDS, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (kinds[i] == GC_ARCH_KIND_DENSE || kinds[i] == GC_ARCH_KIND_EXPERTS)
            return index < count && kinds[index] == GC_ARCH_KIND_DENSE;
    }
    if (gc_arch_items(arch, GC_ARCH_FORWARD_KINDS, &count) != NULL)
        return index >= count ||
               gc_arch_items(arch, GC_ARCH_FORWARD_KINDS, &count)[index] != GC_ARCH_KIND_EXPERTS;
    if (gc_arch_is_type(arch, "mamba, mamba2, falcon_mamba"))
        return false;
    return layer->has_attention || !gc_arch_is_type(arch, "zamba, zamba2");
}

static void set_experts(const struct gc_arch *arch, struct gc_layers *layers)
{
    layers->experts = gc_arch_number(arch, GC_ARCH_EXPERTS, 0);
    layers->experts_used = gc_arch_number(arch, GC_ARCH_EXPERTS_USED, 0);
    layers->shared_experts = gc_arch_number(arch, GC_ARCH_SHARED_EXPERTS, 0);
    layers->expert_intermediate = gc_arch_number(arch, GC_ARCH_EXPERT_INTERMEDIATE,
                                                 gc_arch_number(arch, GC_ARCH_INTERMEDIATE, 0));
    layers->shared_intermediate = gc_arch_number(arch, GC_ARCH_SHARED_INTERMEDIATE, 0);
    for (uint32_t i = 0; i < layers->count; i++)
        layers->items[i].dense = has_forward(arch, &layers->items[i], i);
    if (layers->experts < 2)
        return;
    for (uint32_t i = 0; i < layers->count; i++) {
        if (may_have_experts(arch, i) && has_experts(arch, i)) {
            layers->items[i].experts = true;
            layers->items[i].dense = false;
            layers->expert_layer_count++;
        }
    }
}

/* Encoder and decoder: the decoder's layers are the model's, each with cross attention to the
 * encoder's output (Vaswani et al., 2017, section 3.2.3; Raffel et al., 2020 for T5). */

static void set_encoder(const struct gc_arch *arch, struct gc_layers *layers)
{
    struct gc_layer *layer = &layers->encoder;
    const uint64_t heads = gc_arch_number(arch, GC_ARCH_ENCODER_HEADS, 0);
    const uint64_t dim =
        gc_arch_number(arch, GC_ARCH_HEAD_DIM, heads > 0 ? layers->hidden / heads : 0);
    const uint64_t width = gc_arch_number(arch, GC_ARCH_ENCODER_INTERMEDIATE, 0);
    *layer = (struct gc_layer){.has_attention = true,
                               .dense = true,
                               .heads = (uint32_t)heads,
                               .kv_heads = (uint32_t)heads,
                               .key_dim = (uint32_t)dim,
                               .value_dim = (uint32_t)dim,
                               .intermediate = (uint32_t)width};
    if (heads == 0 || dim == 0 || width == 0)
        layers->unknown |= GC_UNKNOWN_ENCODER;
}

static void set_pair(const struct gc_arch *arch, struct gc_layers *layers, struct gc_notes *notes)
{
    if (gc_arch_number(arch, GC_ARCH_ENCODER_DECODER, 0) == 0 || !layers->has_kv_cache)
        return;
    layers->has_cross_attention = true;
    layers->source_tokens = gc_arch_number(arch, GC_ARCH_SOURCE_POSITIONS, 0);
    set_encoder(arch, layers);
    if (layers->source_tokens == 0)
        gc_notes_add(notes, "the encoder's input is assumed to be as long as the context", NULL);
}

/* ---- attention ---- */

/* Without GC_ARCH_HEAD_DIM it is hidden size / heads, in both formats. */
static uint64_t head_dim(const struct gc_arch *arch, const struct gc_layer *layer)
{
    const uint64_t hidden = gc_arch_number(arch, GC_ARCH_HIDDEN, 0);
    if (gc_arch_known(arch, GC_ARCH_HEAD_DIM))
        return arch->fields[GC_ARCH_HEAD_DIM].value;
    return layer->heads > 0 ? hidden / layer->heads : 0;
}

static void set_dims(const struct gc_arch *arch, struct gc_layer *layer)
{
    const bool is_global = layer->window == 0;
    const uint64_t dim = head_dim(arch, layer);
    uint64_t key = gc_arch_number(arch, GC_ARCH_KEY_DIM, dim);
    uint64_t value = gc_arch_number(arch, GC_ARCH_VALUE_DIM,
                                    gc_arch_number(arch, GC_ARCH_LATENT_VALUE_DIM, dim));
    if (is_global) {
        key = gc_arch_number(arch, GC_ARCH_GLOBAL_HEAD_DIM, key);
        value = gc_arch_number(arch, GC_ARCH_GLOBAL_HEAD_DIM, value);
    } else {
        key = gc_arch_number(arch, GC_ARCH_WINDOW_KEY_DIM, key);
        if (!gc_arch_known(arch, GC_ARCH_VALUE_DIM) &&
            !gc_arch_known(arch, GC_ARCH_LATENT_VALUE_DIM))
            value = gc_arch_number(arch, GC_ARCH_WINDOW_KEY_DIM, value);
        value = gc_arch_number(arch, GC_ARCH_WINDOW_VALUE_DIM, value);
    }
    layer->key_dim = (uint32_t)key;
    layer->value_dim = (uint32_t)value;
}

/* Without GC_ARCH_KV_HEADS there are as many heads of keys and values as heads, in both
 * formats. Falcon's first architecture has one head if multi_query is set, whatever its other keys.
 */
static void set_heads(const struct gc_arch *arch, struct gc_layer *layer, uint32_t index)
{
    uint64_t heads = 0;
    uint64_t kv_heads = 0;
    (void)gc_arch_layer_number(arch, GC_ARCH_HEADS, index, &heads);
    if (!gc_arch_layer_number(arch, GC_ARCH_KV_HEADS, index, &kv_heads) ||
        (gc_arch_known(arch, GC_ARCH_MULTI_QUERY_GROUPS) &&
         gc_arch_number(arch, GC_ARCH_MULTI_QUERY_GROUPS, 1) == 0))
        kv_heads = heads;
    if (gc_arch_number(arch, GC_ARCH_MULTI_QUERY, 0) != 0 &&
        gc_arch_number(arch, GC_ARCH_NEW_DECODER, 0) == 0)
        kv_heads = 1;
    if (layer->window == 0)
        kv_heads = gc_arch_number(arch, GC_ARCH_GLOBAL_KV_HEADS, kv_heads);
    else
        kv_heads = gc_arch_number(arch, GC_ARCH_WINDOW_KV_HEADS, kv_heads);
    if (layer->window > 0)
        heads = gc_arch_number(arch, GC_ARCH_WINDOW_HEADS, heads);
    layer->heads = (uint32_t)heads;
    layer->kv_heads = (uint32_t)kv_heads;
    layer->is_repeated =
        gc_arch_is_type(arch, "falcon") && gc_arch_number(arch, GC_ARCH_NEW_DECODER, 0) != 0;
}

static void set_attention(const struct gc_arch *arch, struct gc_layers *layers, uint32_t index)
{
    struct gc_layer *layer = &layers->items[index];
    set_heads(arch, layer, index);
    set_dims(arch, layer);
    layer->is_mla = layers->kv_rank > 0;
    layer->index_dim = (uint32_t)gc_arch_number(arch, GC_ARCH_INDEX_DIM, 0);
}

/* Multi-head latent attention (DeepSeek-V2, section 2.1): a token's keys and values are one latent
 * and one rotary key for all heads. GGUF's key length is rotary + other part. */
static void set_latent(const struct gc_arch *arch, struct gc_layers *layers)
{
    const uint64_t nope = gc_arch_number(arch, GC_ARCH_NOPE_DIM, 0);
    layers->kv_rank = gc_arch_number(arch, GC_ARCH_KV_RANK, 0);
    /* llama.cpp keeps latents only of files with a length of the keys made from them; of others it
     * keeps these keys and values. */
    if (arch->is_gguf && !gc_arch_known(arch, GC_ARCH_LATENT_KEY_DIM))
        layers->kv_rank = 0;
    layers->rope_dim = gc_arch_number(arch, GC_ARCH_ROPE_DIM, 0);
    layers->latent_key_dim = gc_arch_number(arch, GC_ARCH_LATENT_KEY_DIM,
                                            nope > 0 ? nope + layers->rope_dim
                                                     : gc_arch_number(arch, GC_ARCH_KEY_DIM, 0));
    layers->latent_value_dim =
        gc_arch_number(arch, GC_ARCH_LATENT_VALUE_DIM, gc_arch_number(arch, GC_ARCH_VALUE_DIM, 0));
    if (layers->kv_rank > 0 && !gc_arch_known(arch, GC_ARCH_ROPE_DIM))
        layers->unknown |= GC_UNKNOWN_KEPT;
}

/* ---- the whole ---- */

/* Without a count there are as many layers as kinds. GGUF counts layers for multi-token prediction
 * among the layers; runs without it keep nothing for them. */
static uint32_t layer_count(const struct gc_arch *arch)
{
    uint32_t kinds;
    (void)gc_arch_items(arch, GC_ARCH_KINDS, &kinds);
    const uint64_t count = gc_arch_number(arch, GC_ARCH_LAYER_COUNT, kinds);
    return (uint32_t)gc_sub_or_zero_u64(count, gc_arch_number(arch, GC_ARCH_NEXTN_LAYERS, 0));
}

static void set_widths(const struct gc_arch *arch, struct gc_layers *layers)
{
    layers->hidden = gc_arch_number(arch, GC_ARCH_HIDDEN, 0);
    layers->vocab = gc_arch_number(arch, GC_ARCH_VOCAB, 0);
    layers->positions = gc_arch_number(arch, GC_ARCH_POSITIONS, 0);
    if (layers->vocab == 0)
        layers->unknown |= GC_UNKNOWN_VOCAB;
}

static void set_intermediate(const struct gc_arch *arch, struct gc_layers *layers)
{
    for (uint32_t i = 0; i < layers->count; i++) {
        struct gc_layer *layer = &layers->items[i];
        uint64_t width = 0;
        if (gc_arch_layer_number(arch, GC_ARCH_INTERMEDIATE, i, &width) && width == 0)
            layer->dense = false; /* DeciLM: layers without a feed-forward part */
        layer->intermediate = (uint32_t)width;
    }
}

static bool are_heads_known(const struct gc_layer *layer)
{
    return !layer->has_attention || (layer->heads > 0 && layer->key_dim > 0);
}

static bool are_widths_known(const struct gc_layers *layers, const struct gc_layer *layer)
{
    if (layer->experts && (layers->expert_intermediate == 0 || layers->experts_used == 0))
        return false;
    return layers->hidden > 0 && are_heads_known(layer) &&
           (!layer->dense || !layer->has_attention || layer->intermediate > 0);
}

void gc_layers_check(struct gc_layers *layers)
{
    layers->unknown &=
        ~(unsigned)(GC_UNKNOWN_KV | GC_UNKNOWN_WIDTHS | GC_UNKNOWN_HEADS | GC_UNKNOWN_SIZES);
    if (layers->count == 0)
        layers->unknown |= GC_UNKNOWN_LAYERS | GC_UNKNOWN_KV | GC_UNKNOWN_WIDTHS | GC_UNKNOWN_HEADS;
    for (uint32_t i = 0; i < layers->count; i++) {
        const struct gc_layer *layer = &layers->items[i];
        const bool has_row = layer->kv_heads > 0 && layer->key_dim > 0 && layer->value_dim > 0;
        if (layer->has_attention && !layer->is_mla && !has_row)
            layers->unknown |= GC_UNKNOWN_KV;
        if (!are_widths_known(layers, layer))
            layers->unknown |= GC_UNKNOWN_WIDTHS;
        if (!are_heads_known(layer))
            layers->unknown |= GC_UNKNOWN_HEADS;
        if (!layer->is_size_known)
            layers->unknown |= GC_UNKNOWN_SIZES;
    }
    /* An encoder keeps nothing: nothing of that can be unknown. */
    if (!layers->has_kv_cache)
        layers->unknown &=
            ~(unsigned)(GC_UNKNOWN_KV | GC_UNKNOWN_KEPT | GC_UNKNOWN_STATE | GC_UNKNOWN_SIZES);
}

void gc_layers_make(const struct gc_arch *arch, struct gc_layers *layers, struct gc_notes *notes)
{
    memset(layers, 0, sizeof(*layers));
    layers->count = layer_count(arch);
    layers->has_kv_cache = gc_arch_keeps_cache(arch);
    layers->attention_count =
        gc_arch_is_type(arch, "longcat_flash") ? 2 : 1; /* LongCat-Flash, 2025, 2.1 */
    set_widths(arch, layers);
    set_latent(arch, layers);
    set_kinds(arch, layers, notes);
    for (uint32_t i = 0; i < layers->count; i++) {
        if (layers->items[i].has_attention)
            set_attention(arch, layers, i);
    }
    set_experts(arch, layers);
    gc_states_set(arch, layers);
    set_intermediate(arch, layers);
    if (arch->has_own_layers) {
        layers->unknown |= GC_UNKNOWN_KEPT | GC_UNKNOWN_STATE;
        gc_notes_add(notes, "some layers have values of their own: not read", NULL);
    }
    set_pair(arch, layers, notes);
    gc_layers_check(layers);
}

static bool has_part(const struct gc_layer *layer, enum gc_layer_part part)
{
    switch (part) {
    case GC_LAYER_DENSE:
        return layer->dense;
    case GC_LAYER_EXPERTS:
        return layer->experts;
    case GC_LAYER_ATTENTION:
        return layer->has_attention;
    case GC_LAYER_STATE:
        return layer->state != GC_STATE_NONE && layer->state != GC_STATE_CONVOLUTION;
    case GC_LAYER_CONVOLUTION:
        return layer->state == GC_STATE_CONVOLUTION;
    }
    return false;
}

uint32_t gc_layers_count(const struct gc_layers *layers, enum gc_layer_part part)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < layers->count; i++)
        count += has_part(&layers->items[i], part);
    return count;
}
