/* The layers of a model, derived from its configuration: heads, windows, state, experts.
 * arch_families.def has the rules of single families; layers.c the others, each with its source.
 *
 * A value that cannot be derived stays unknown: a bit in `unknown`, never a guess. */
#ifndef GC_LAYERS_H
#define GC_LAYERS_H

#include "core/arch/arch.h"
#include "core/arch/notes.h"

enum gc_state_kind {
    GC_STATE_NONE,
    GC_STATE_SPACE,     /* Mamba, Mamba 2, gated delta: convolution and a matrix for each channel */
    GC_STATE_RECURRENT, /* linear recurrent unit */
    GC_STATE_WKV,       /* RWKV */
    GC_STATE_CONVOLUTION, /* gated short convolution */
    GC_STATE_KIND_COUNT
};

enum gc_unknown {
    GC_UNKNOWN_LAYERS = 1,
    GC_UNKNOWN_KV = 2,       /* heads of keys and values, or their sizes */
    GC_UNKNOWN_SIZES = 256,  /* a state's size in a layer */
    GC_UNKNOWN_KEPT = 128,   /* how many tokens a layer keeps */
    GC_UNKNOWN_STATE = 4,    /* a state's size */
    GC_UNKNOWN_WIDTHS = 8,   /* hidden size, heads or feed-forward width: activations */
    GC_UNKNOWN_HEADS = 1024, /* of attention: its workspace */
    GC_UNKNOWN_VOCAB = 16,   /* logits */
    GC_UNKNOWN_KINDS = 32,   /* the kind of a layer */
    GC_UNKNOWN_ENCODER = 64, /* encoder and cross attention are not counted */
    GC_UNKNOWN_ARCHITECTURE =
        512, /* of a GGUF file: what llama.cpp makes for it was not measured */
};

/* Elements of a layer for each sequence. */
struct gc_state_size {
    uint64_t native; /* in the type of activations: convolutions, lightning attention */
    uint64_t wide;   /* in 32 bits: other states */
};

struct gc_layer {
    bool has_attention;
    bool is_mla;    /* keys and values as one latent of rank kv_rank with a rotary part */
    bool shares_kv; /* uses keys and values that are not its own: an earlier layer's, an image's */
    bool is_repeated; /* transformers repeats its keys and values for each head and keeps all */
    bool experts;
    bool dense; /* has a feed-forward part without experts */
    uint8_t state;
    uint32_t window; /* tokens kept at most; 0: all */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t key_dim;
    uint32_t value_dim;
    uint32_t intermediate;
    uint32_t index_dim; /* of an index key of sparse attention; 0: none */
    bool is_size_known; /* of a state */
    struct gc_state_size size;
};

struct gc_layers {
    uint32_t count;
    uint32_t expert_layer_count;
    unsigned unknown;  /* bits of gc_unknown */
    bool has_kv_cache; /* false: an encoder, which keeps nothing for the next token */
    uint64_t hidden;
    uint64_t vocab;
    uint64_t positions; /* 0: unknown */
    uint64_t kv_rank;
    uint64_t attention_count; /* of a layer with attention, each with keys and values of its own */
    uint64_t rope_dim;
    uint64_t latent_key_dim;
    uint64_t latent_value_dim;
    uint64_t experts;
    uint64_t experts_used;
    uint64_t shared_experts;
    uint64_t expert_intermediate;
    uint64_t shared_intermediate;
    uint64_t state_channels[GC_STATE_KIND_COUNT]; /* of a token in a layer of the kind */
    bool has_cross_attention; /* each layer also attends to the encoder's output */
    uint64_t source_tokens;   /* fixed length of the encoder's input; 0: as long as the context */
    bool is_source_unknown;   /* the length of the encoder's input: not counted in the cache */
    struct gc_layer encoder;  /* one of its layers */
    struct gc_layer items[GC_ARCH_LAYER_MAX];
};

/* Never fails: missing values show in `unknown` and in the notes. */
void gc_layers_make(const struct gc_arch *arch, struct gc_layers *layers, struct gc_notes *notes);

/* Sets the bits of heads, sizes and widths in `unknown` by the layers as they are now. */
void gc_layers_check(struct gc_layers *layers);

/* A part of a layer; a layer may have several. */
enum gc_layer_part {
    GC_LAYER_DENSE,   /* a feed-forward part without experts */
    GC_LAYER_EXPERTS, /* a feed-forward part of experts */
    GC_LAYER_ATTENTION,
    GC_LAYER_STATE,       /* a state space, linear attention, a recurrent unit */
    GC_LAYER_CONVOLUTION, /* a gated short convolution */
};

/* The number of layers with this part. Pure. */
uint32_t gc_layers_count(const struct gc_layers *layers, enum gc_layer_part part);

/* Internal to arch (states.c): sets each layer's state size and the channels of each kind; the
 * layers' kinds are set before. */
void gc_states_set(const struct gc_arch *arch, struct gc_layers *layers);

#endif
