/* The size of a layer's state by the configuration: Mamba's, a recurrent unit's, RWKV's, a short
 * convolution's. */
#include "core/arch/layers.h"

#include "core/base/bits.h"

/* Channels of a state-space layer; Mamba's own configuration calls them intermediate_size. */
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

/* Tokens of a convolution that are kept: transformers keeps the newest too, llama.cpp does not. */
static uint64_t kept_tokens(const struct gc_arch *arch, uint64_t kernel)
{
    return arch->is_gguf ? gc_sub_or_zero_u64(kernel, 1) : kernel;
}

/* Mamba (Gu and Dao, 2023) keeps inner × state and the columns of its convolution; Mamba 2
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
    /* Kimi Linear (2025): queries, keys and values are convolved, each head has a square matrix. */
    if (gc_arch_known(arch, GC_ARCH_DELTA_HEAD_DIM)) {
        state = gc_arch_number(arch, GC_ARCH_DELTA_HEAD_DIM, 0);
        groups = gc_arch_number(arch, GC_ARCH_HEADS, 0);
        inner = groups * state;
    }
    size->native = kept_tokens(arch, kernel) * (inner + 2 * groups * state);
    size->wide = inner * state;
    *channels = inner;
    return kernel > 0 && inner > 0 && state > 0;
}

/* RWKV 5 and later keep a matrix for each head and shifted tokens, by default two, RWKV 4 five
 * vectors. */
static bool set_wkv(const struct gc_arch *arch, struct gc_state_size *size)
{
    const uint64_t hidden = gc_arch_number(arch, GC_ARCH_HIDDEN, 0);
    const uint64_t head = gc_arch_number(arch, GC_ARCH_WKV_HEAD_DIM, 0);
    const uint64_t shifts = gc_arch_number(arch, GC_ARCH_TOKEN_SHIFTS, 2);
    size->wide = head > 0 ? hidden * head + shifts * hidden : 5 * hidden;
    return hidden > 0;
}

/* Griffin (De et al., 2024): a vector and a convolution, by default of four tokens. */
static bool set_recurrent(const struct gc_arch *arch, struct gc_state_size *size)
{
    const uint64_t width = gc_arch_number(arch, GC_ARCH_RECURRENT_WIDTH, 0);
    const uint64_t kernel = gc_arch_number(arch, GC_ARCH_CONVOLUTION, 0);
    size->native = gc_sub_or_zero_u64(kernel, 1) * width;
    size->wide = width;
    return width > 0 && kernel > 0;
}

static bool set_convolution(const struct gc_arch *arch, struct gc_state_size *size)
{
    const uint64_t hidden = gc_arch_number(arch, GC_ARCH_HIDDEN, 0);
    const uint64_t kernel = gc_arch_number(arch, GC_ARCH_SHORT_CONVOLUTION, 0);
    size->native = kept_tokens(arch, kernel) * hidden;
    return hidden > 0 && kernel > 0;
}

/* No product here can pass 64 bits: the ranges of arch_keys.def keep each below 2^60. */
void gc_states_set(const struct gc_arch *arch, struct gc_layers *layers)
{
    bool known[GC_STATE_KIND_COUNT] = {true};
    struct gc_state_size sizes[GC_STATE_KIND_COUNT] = {0};
    known[GC_STATE_SPACE] =
        set_space(arch, &sizes[GC_STATE_SPACE], &layers->state_channels[GC_STATE_SPACE]);
    known[GC_STATE_RECURRENT] = set_recurrent(arch, &sizes[GC_STATE_RECURRENT]);
    known[GC_STATE_WKV] = set_wkv(arch, &sizes[GC_STATE_WKV]);
    known[GC_STATE_CONVOLUTION] = set_convolution(arch, &sizes[GC_STATE_CONVOLUTION]);
    for (uint32_t i = 0; i < layers->count; i++) {
        struct gc_layer *layer = &layers->items[i];
        layer->is_size_known = known[layer->state];
        layer->size = sizes[layer->state];
    }
}
