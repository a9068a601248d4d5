#include "core/estimator/layers.h"
#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

/* ---- attention ---- */

/* Without a key of its own a head's size is hidden size over heads: so in both formats. */
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
        value = gc_arch_number(arch, GC_ARCH_WINDOW_VALUE_DIM, value);
    }
    layer->key_dim = (uint32_t)key;
    layer->value_dim = (uint32_t)value;
}

/* Without a key of their own there are as many heads of keys and values as heads: so in both
 * formats. Falcon's first architecture has one where it says multi_query, whatever else it says. */
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
    layer->heads = (uint32_t)heads;
    layer->kv_heads = (uint32_t)kv_heads;
}

static void set_attention(const struct gc_arch *arch, struct gc_layers *layers, uint32_t index)
{
    struct gc_layer *layer = &layers->items[index];
    set_heads(arch, layer, index);
    set_dims(arch, layer);
    layer->latent = layers->kv_rank > 0;
    if (layer->heads == 0 || layer->key_dim == 0)
        layers->unknown |= GC_UNKNOWN_WIDTHS;
    if (!layer->latent && (layer->kv_heads == 0 || layer->key_dim == 0 || layer->value_dim == 0))
        layers->unknown |= GC_UNKNOWN_KV;
}

/* Multi-head latent attention (DeepSeek-V2, section 2.1): a token's keys and values are one latent
 * and one rotary key for all heads. GGUF tells keys as rotary + other part. */
static void set_latent(const struct gc_arch *arch, struct gc_layers *layers)
{
    const uint64_t nope = gc_arch_number(arch, GC_ARCH_NOPE_DIM, 0);
    layers->kv_rank = gc_arch_number(arch, GC_ARCH_KV_RANK, 0);
    layers->rope_dim = gc_arch_number(arch, GC_ARCH_ROPE_DIM, 0);
    layers->index_dim = gc_arch_number(arch, GC_ARCH_INDEX_DIM, 0);
    layers->latent_key_dim = gc_arch_number(arch, GC_ARCH_LATENT_KEY_DIM,
                                            nope > 0 ? nope + layers->rope_dim
                                                     : gc_arch_number(arch, GC_ARCH_KEY_DIM, 0));
    layers->latent_value_dim =
        gc_arch_number(arch, GC_ARCH_LATENT_VALUE_DIM, gc_arch_number(arch, GC_ARCH_VALUE_DIM, 0));
    if (layers->kv_rank > 0 && !gc_arch_known(arch, GC_ARCH_ROPE_DIM))
        layers->unknown |= GC_UNKNOWN_KV;
}

/* ---- the whole ---- */

static bool has_type(const struct gc_arch *arch, const char *types)
{
    const size_t length = strlen(arch->type);
    return length > 0 && gc_text_find_word(types, arch->type, length) >= 0;
}

/* Families that see their whole input at once and keep nothing of it. */
static bool is_encoder(const struct gc_arch *arch)
{
    static const char types[] =
        "bert, roberta, xlm-roberta, distilbert, albert, electra, deberta, deberta-v2, mpnet, "
        "bert-generation, big_bird, camembert, data2vec-text, ernie, megatron-bert, rembert, "
        "roberta-prelayernorm, roc_bert, roformer, xlm-roberta-xl, xmod, "
        "modernbert, modern-bert, nomic_bert, nomic-bert, nomic-bert-moe, jina-bert-v2, vit, "
        "clip_vision_model, siglip_vision_model, dinov2, swin, convnext, resnet";
    if (gc_arch_known(arch, GC_ARCH_CAUSAL))
        return gc_arch_number(arch, GC_ARCH_CAUSAL, 1) == 0;
    if (gc_arch_number(arch, GC_ARCH_DECODER, 0) != 0)
        return false;
    return has_type(arch, types);
}

/* Where only their kinds are told, there are as many layers. GGUF counts the layers that predict
 * further tokens among the layers; runs without that prediction keep nothing for them. */
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
    if (layers->hidden == 0)
        layers->unknown |= GC_UNKNOWN_WIDTHS;
    if (layers->vocab == 0)
        layers->unknown |= GC_UNKNOWN_VOCAB;
}

/* GPT-2, Falcon, BLOOM and MPT have no width of their own unless told: four times the hidden size,
 * as their classes have it. */
static void set_intermediate(const struct gc_arch *arch, struct gc_layers *layers)
{
    static const char fourfold[] =
        "gpt2, gptj, gpt_neo, gpt_bigcode, codegen, falcon, RefinedWeb, RefinedWebModel, bloom, mpt";
    const bool is_fourfold = has_type(arch, fourfold);
    for (uint32_t i = 0; i < layers->count; i++) {
        struct gc_layer *layer = &layers->items[i];
        uint64_t width = is_fourfold ? 4 * layers->hidden : 0;
        const bool is_told = gc_arch_layer_number(arch, GC_ARCH_INTERMEDIATE, i, &width);
        layer->intermediate = (uint32_t)width;
        if (!is_told && !is_fourfold && layer->attends && !layer->experts)
            layers->unknown |= GC_UNKNOWN_WIDTHS;
    }
}

void gc_layers_make(const struct gc_arch *arch, struct gc_layers *layers, struct gc_notes *notes)
{
    memset(layers, 0, sizeof(*layers));
    layers->count = layer_count(arch);
    layers->caches = !is_encoder(arch);
    layers->attentions = has_type(arch, "longcat_flash") ? 2 : 1; /* LongCat-Flash, 2025, 2.1 */
    set_widths(arch, layers);
    set_latent(arch, layers);
    gc_layers_set_kinds(arch, layers, notes);
    for (uint32_t i = 0; i < layers->count; i++) {
        if (layers->items[i].attends)
            set_attention(arch, layers, i);
    }
    gc_layers_set_experts(arch, layers);
    gc_layers_set_states(arch, layers);
    set_intermediate(arch, layers);
    if (layers->count == 0)
        layers->unknown |= GC_UNKNOWN_LAYERS | GC_UNKNOWN_KV | GC_UNKNOWN_WIDTHS;
    if (arch->has_own_layers) {
        layers->unknown |= GC_UNKNOWN_KV | GC_UNKNOWN_STATE | GC_UNKNOWN_WIDTHS;
        gc_notes_add(notes, "some layers have values of their own: not read", NULL);
    }
    gc_layers_set_pair(arch, layers, notes);
}
