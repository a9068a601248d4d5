/* Which layer is what: by a word for each layer, else by period and offset, else by the family; and
 * which of those with attention have a window. */
#include "core/base/bits.h"
#include "core/estimator/layers.h"
#include "core/io/text.h"

#include <string.h>

static bool is_type(const struct gc_arch *arch, const char *types)
{
    const size_t length = strlen(arch->type);
    return length > 0 && gc_text_find_word(types, arch->type, length) >= 0;
}

/* What "state" means in this model. */
static enum gc_state_kind state_kind(const struct gc_arch *arch)
{
    if (is_type(arch, "rwkv, rwkv5, rwkv6, rwkv7, rwkv6qwen2, arwkv7"))
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

/* GGUF says by 0 heads of keys and values that a layer has no attention. Nemotron-H's feed-forward
 * layers are such too; they have a width where its state layers have none. */
static enum gc_arch_kind kind_without_heads(const struct gc_arch *arch, uint32_t index)
{
    uint64_t width;
    if (gc_arch_known(arch, GC_ARCH_SHORT_CONVOLUTION))
        return GC_ARCH_KIND_CONVOLUTION;
    if (!gc_arch_known(arch, GC_ARCH_STATE))
        return GC_ARCH_KIND_DENSE; /* DeciLM: layers without attention */
    if (is_type(arch, "nemotron_h, nemotron_h_moe") &&
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

/* Where no word says it. */
static enum gc_arch_kind kind_by_rule(const struct gc_arch *arch, uint32_t index)
{
    uint64_t heads;
    if (is_type(
            arch,
            "mamba, mamba2, falcon_mamba, xlstm, rwkv, rwkv5, rwkv6, rwkv7, rwkv6qwen2, arwkv7"))
        return GC_ARCH_KIND_STATE;
    if (is_type(arch, "falcon_h1, falcon-h1"))
        return GC_ARCH_KIND_HYBRID;
    if (gc_arch_layer_number(arch, GC_ARCH_ATTENTION_FLAGS, index, &heads))
        return heads != 0 ? GC_ARCH_KIND_ATTENTION : GC_ARCH_KIND_STATE;
    if (gc_arch_known(arch, GC_ARCH_ATTENTION_NUMBERS))
        return has_index(arch, GC_ARCH_ATTENTION_NUMBERS, index + 1) ? GC_ARCH_KIND_ATTENTION
                                                                     : GC_ARCH_KIND_STATE;
    if (gc_arch_known(arch, GC_ARCH_ATTENTION_LAYERS)) {
        if (has_index(arch, GC_ARCH_ATTENTION_LAYERS, index))
            return is_type(arch, "zamba, zamba2") ? GC_ARCH_KIND_HYBRID : GC_ARCH_KIND_ATTENTION;
        return gc_arch_known(arch, GC_ARCH_SHORT_CONVOLUTION) ? GC_ARCH_KIND_CONVOLUTION
                                                              : GC_ARCH_KIND_STATE;
    }
    if (is_type(arch, "bamba"))
        return GC_ARCH_KIND_STATE; /* none of its layers is named as one with attention */
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

/* Whether the window holds in a layer whose word does not say. A pattern n leaves every n-th layer
 * without one (0: none), as transformers and llama.cpp have it; a list says it for each layer. */
static bool has_window(const struct gc_arch *arch, uint32_t index)
{
    uint32_t count;
    uint64_t pattern;
    if (gc_arch_number(arch, GC_ARCH_WINDOW_USED, 1) == 0)
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
    if (kind == GC_ARCH_KIND_FULL)
        return 0;
    if (kind == GC_ARCH_KIND_WINDOW)
        return window;
    if (kind == GC_ARCH_KIND_CHUNK)
        return chunk;
    if (chunk > 0)
        return has_chunk(arch, index) ? chunk : 0;
    return window > 0 && has_window(arch, index) ? window : 0;
}

/* A window that is told without a word in which layers, in a family that is not known to have it in
 * all: its layers may as well take turns. */
static bool is_window_unclear(const struct gc_arch *arch)
{
    static const char everywhere[] =
        "mistral, ministral, mixtral, phi3, phimoe, starcoder2, moshi, qwen2, qwen2_moe, qwen3, "
        "qwen3_moe, qwen2_vl, qwen2_5_vl, recurrent_gemma, recurrentgemma, griffin";
    static const enum gc_arch_key said[] = {GC_ARCH_KINDS,       GC_ARCH_WINDOW_PATTERN,
                                            GC_ARCH_WINDOW_USED, GC_ARCH_WINDOW_FROM,
                                            GC_ARCH_CHUNK,       GC_ARCH_NO_ROPE_LAYERS};
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        if (gc_arch_known(arch, said[i]))
            return false;
    }
    return gc_arch_number(arch, GC_ARCH_WINDOW, 0) > 0 && !is_type(arch, everywhere);
}

/* A state that is told without a word in which layers: hybrids say that by names of their own. */
static bool is_state_unclear(const struct gc_arch *arch, const struct gc_layers *layers)
{
    for (uint32_t i = 0; i < layers->count; i++) {
        if (layers->items[i].state != GC_STATE_NONE || !layers->items[i].attends)
            return false;
    }
    return gc_arch_known(arch, GC_ARCH_STATE) || gc_arch_known(arch, GC_ARCH_CONVOLUTION) ||
           gc_arch_known(arch, GC_ARCH_LINEAR_KEY_DIM);
}

static void set_kind(const struct gc_arch *arch, struct gc_layers *layers, uint32_t index)
{
    struct gc_layer *layer = &layers->items[index];
    const enum gc_arch_kind kind = kind_of(arch, index);
    const bool is_hybrid = kind == GC_ARCH_KIND_HYBRID;
    layer->dense = true;
    switch (kind) {
    case GC_ARCH_KIND_UNKNOWN:
        layers->unknown |= GC_UNKNOWN_KINDS;
        break;
    case GC_ARCH_KIND_STATE:
    case GC_ARCH_KIND_HYBRID:
        layer->state = (uint8_t)state_kind(arch);
        break;
    case GC_ARCH_KIND_CONVOLUTION:
        layer->state = GC_STATE_CONVOLUTION;
        break;
    default:
        break;
    }
    layer->attends = is_hybrid || kind == GC_ARCH_KIND_FULL || kind == GC_ARCH_KIND_WINDOW ||
                     kind == GC_ARCH_KIND_CHUNK || kind == GC_ARCH_KIND_ATTENTION;
    layer->window = layer->attends ? window_of(arch, kind, index) : 0;
}

void gc_layers_set_kinds(const struct gc_arch *arch, struct gc_layers *layers,
                         struct gc_notes *notes)
{
    uint32_t count;
    uint64_t shared = gc_arch_number(arch, GC_ARCH_SHARED_KV_LAYERS, 0);
    for (uint32_t i = 0; i < layers->count; i++)
        set_kind(arch, layers, i);
    if (shared > layers->count)
        shared = layers->count;
    for (uint32_t i = layers->count - (uint32_t)shared; i < layers->count; i++)
        layers->items[i].shares_kv = true;
    if (is_state_unclear(arch, layers)) {
        layers->unknown |= GC_UNKNOWN_KV | GC_UNKNOWN_STATE;
        gc_notes_add(notes, "a state is told, but not in which layers: attention is taken for all",
                     NULL);
    }
    if (is_window_unclear(arch)) {
        layers->unknown |= GC_UNKNOWN_KV;
        gc_notes_add(notes, "a window is told, but not in which layers: taken for all", NULL);
    }
    if (gc_arch_items(arch, GC_ARCH_CROSS_LAYERS, &count) != NULL && count > 0) {
        layers->unknown |= GC_UNKNOWN_KV;
        gc_notes_add(notes,
                     "layers that attend to images keep keys and values of those, how many is not "
                     "told: they are taken as the others are",
                     NULL);
    }
    if (gc_arch_items(arch, GC_ARCH_KINDS, &count) != NULL && count != layers->count)
        gc_notes_add(notes, "the kinds of layers are not as many as the layers", NULL);
    if ((layers->unknown & GC_UNKNOWN_KINDS) != 0)
        gc_notes_add(
            notes,
            "some layers are of a kind that is not known here: what they keep is not counted",
            NULL);
}
