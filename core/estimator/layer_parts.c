/* Experts and states of layers. */
#include "core/base/bits.h"
#include "core/estimator/layers.h"

/* ---- experts ---- */

static bool is_listed(const struct gc_arch *arch, enum gc_arch_key key, uint32_t index)
{
    uint32_t count;
    const uint32_t *items = gc_arch_items(arch, key, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (items[i] == index)
            return true;
    }
    return false;
}

/* By period n: DeepSeek's frequency counts from the first layer, Qwen's and Llama 4's step takes
 * the last of each n, Jamba's period begins at its offset. */
static bool has_experts(const struct gc_arch *arch, uint32_t index)
{
    uint32_t count;
    uint64_t frequency;
    const uint64_t step = gc_arch_number(arch, GC_ARCH_EXPERT_STEP, 1);
    const uint64_t period = gc_arch_number(arch, GC_ARCH_EXPERT_PERIOD, 1);
    if (gc_arch_known(arch, GC_ARCH_EXPERT_LAYERS))
        return is_listed(arch, GC_ARCH_EXPERT_LAYERS, index);
    if (index < gc_arch_number(arch, GC_ARCH_DENSE_LAYERS, 0) ||
        is_listed(arch, GC_ARCH_EXPERTLESS_LAYERS, index))
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

/* Where every layer is named, only some of the names leave room for experts. */
static bool may_have_experts(const struct gc_arch *arch, uint32_t index)
{
    uint32_t count;
    const uint32_t *kinds = gc_arch_items(arch, GC_ARCH_KINDS, &count);
    bool names_experts = false;
    for (uint32_t i = 0; i < count; i++)
        names_experts = names_experts || kinds[i] == GC_ARCH_KIND_EXPERTS;
    return !names_experts || (index < count && kinds[index] == GC_ARCH_KIND_EXPERTS);
}

void gc_layers_set_experts(const struct gc_arch *arch, struct gc_layers *layers)
{
    layers->experts = gc_arch_number(arch, GC_ARCH_EXPERTS, 0);
    layers->experts_used = gc_arch_number(arch, GC_ARCH_EXPERTS_USED, 0);
    layers->shared_experts = gc_arch_number(arch, GC_ARCH_SHARED_EXPERTS, 0);
    layers->expert_intermediate = gc_arch_number(arch, GC_ARCH_EXPERT_INTERMEDIATE,
                                                 gc_arch_number(arch, GC_ARCH_INTERMEDIATE, 0));
    layers->shared_intermediate = gc_arch_number(arch, GC_ARCH_SHARED_INTERMEDIATE, 0);
    if (layers->experts < 2)
        return;
    for (uint32_t i = 0; i < layers->count; i++) {
        if (may_have_experts(arch, i) && has_experts(arch, i)) {
            layers->items[i].experts = true;
            layers->expert_layer_count++;
        }
    }
    if (layers->expert_intermediate == 0 || layers->experts_used == 0)
        layers->unknown |= GC_UNKNOWN_WIDTHS;
}

/* ---- states ---- */

/* Channels of a state-space layer. Mamba's own configuration has them as its width. */
static uint64_t state_inner(const struct gc_arch *arch)
{
    const uint64_t heads = gc_arch_number(arch, GC_ARCH_STATE_HEADS, 0);
    const uint64_t dim = gc_arch_number(arch, GC_ARCH_STATE_HEAD_DIM, 0);
    const uint64_t expand = gc_arch_number(arch, GC_ARCH_STATE_EXPAND, 0);
    if (gc_arch_known(arch, GC_ARCH_STATE_INNER))
        return arch->fields[GC_ARCH_STATE_INNER].value;
    if (heads > 0 && dim > 0)
        return heads * dim;
    if (expand > 0)
        return expand * gc_arch_number(arch, GC_ARCH_HIDDEN, 0);
    return gc_arch_known(arch, GC_ARCH_HEADS) ? 0 : gc_arch_number(arch, GC_ARCH_INTERMEDIATE, 0);
}

/* Mamba (Gu and Dao, 2023) keeps inner × state and kernel - 1 columns of its convolution; Mamba 2
 * convolves the inputs and outputs of the state's groups too. Gated delta networks are the same
 * with value heads for channels and keys for the state. */
static bool set_space(const struct gc_arch *arch, struct gc_state_size *size, uint64_t *channels)
{
    const uint64_t kernel = gc_arch_number(arch, GC_ARCH_CONVOLUTION, 0);
    uint64_t inner = state_inner(arch);
    uint64_t state = gc_arch_number(arch, GC_ARCH_STATE, 0);
    uint64_t groups = gc_arch_number(arch, GC_ARCH_STATE_GROUPS, 0);
    if (gc_arch_known(arch, GC_ARCH_LINEAR_KEY_DIM)) {
        inner = gc_arch_number(arch, GC_ARCH_LINEAR_VALUE_HEADS, 0) *
                gc_arch_number(arch, GC_ARCH_LINEAR_VALUE_DIM, 0);
        state = gc_arch_number(arch, GC_ARCH_LINEAR_KEY_DIM, 0);
        groups = gc_arch_number(arch, GC_ARCH_LINEAR_KEY_HEADS, 0);
    }
    size->convolution = gc_sub_or_zero_u64(kernel, 1) * (inner + 2 * groups * state);
    size->state = inner * state;
    *channels = inner;
    return kernel > 0 && inner > 0 && state > 0;
}

/* RWKV 5 and later keep a matrix for each head and two shifted tokens, RWKV 4 five vectors. */
static bool set_wkv(const struct gc_arch *arch, struct gc_state_size *size)
{
    const uint64_t hidden = gc_arch_number(arch, GC_ARCH_HIDDEN, 0);
    const uint64_t head = gc_arch_number(arch, GC_ARCH_WKV_HEAD_DIM, 0);
    size->state = head > 0 ? hidden * head + 2 * hidden : 5 * hidden;
    return hidden > 0;
}

/* Griffin (De et al., 2024): a vector and a convolution of four tokens unless told otherwise. */
static bool set_recurrent(const struct gc_arch *arch, struct gc_state_size *size)
{
    const uint64_t width = gc_arch_number(arch, GC_ARCH_RECURRENT_WIDTH, 0);
    const uint64_t kernel = gc_arch_number(arch, GC_ARCH_CONVOLUTION, 0);
    size->convolution = gc_sub_or_zero_u64(kernel, 1) * width;
    size->state = width;
    return width > 0 && kernel > 0;
}

static bool set_convolution(const struct gc_arch *arch, struct gc_state_size *size)
{
    const uint64_t hidden = gc_arch_number(arch, GC_ARCH_HIDDEN, 0);
    const uint64_t kernel = gc_arch_number(arch, GC_ARCH_SHORT_CONVOLUTION, 0);
    size->convolution = gc_sub_or_zero_u64(kernel, 1) * hidden;
    return hidden > 0 && kernel > 0;
}

/* No product here can pass 64 bits: the ranges of arch_keys.def keep each below 2^60. */
void gc_layers_set_states(const struct gc_arch *arch, struct gc_layers *layers)
{
    bool known[GC_STATE_KIND_COUNT] = {true};
    known[GC_STATE_SPACE] =
        set_space(arch, &layers->states[GC_STATE_SPACE], &layers->state_channels[GC_STATE_SPACE]);
    known[GC_STATE_RECURRENT] = set_recurrent(arch, &layers->states[GC_STATE_RECURRENT]);
    known[GC_STATE_WKV] = set_wkv(arch, &layers->states[GC_STATE_WKV]);
    known[GC_STATE_CONVOLUTION] = set_convolution(arch, &layers->states[GC_STATE_CONVOLUTION]);
    for (uint32_t i = 0; i < layers->count; i++) {
        if (!known[layers->items[i].state])
            layers->unknown |= GC_UNKNOWN_STATE;
    }
}
