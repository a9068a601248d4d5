/* A language model's layers as the shapes of its tensors have them: what a configuration leaves
 * out, nests or names in its own way. A stack of layers is the tensors with one prefix and a number
 * ("model.layers.7."); the language model's is the largest one that is not of images, sound, an
 * encoder or a further head.
 *
 * Names are those of Hugging Face's transformers and of GGUF. A plain structure, about 100 KiB, no
 * pointers. Nothing allocates; thread-safe if the structure is not shared. */
#ifndef GC_ARCH_SHAPES_H
#define GC_ARCH_SHAPES_H

#include "core/arch/layers.h"
#include "core/model/model.h"

/* Elements of one layer; 0: no such tensor. */
struct gc_shape_layer {
    uint32_t query;        /* of a token, all heads */
    uint32_t key;          /* of a token, all heads */
    uint32_t value;        /* of a token, all heads */
    uint32_t fused;        /* queries, keys and values of a token in one tensor */
    uint32_t result;       /* of a token, all heads: what the output projection takes */
    uint32_t latent;       /* latent and rotary key of a token */
    uint32_t index;        /* index key of a token, for sparse attention */
    uint32_t cross;        /* keys of a token of the encoder, all heads */
    uint32_t intermediate; /* width of the feed-forward part without experts */
    uint32_t convolved;    /* of short convolutions: channels times tokens, all of them */
    uint32_t decays;       /* of a state: one for each head, or for each element */
    bool has_matrix;       /* a decay for each element of the state */
};

/* Sums of tensors whose layers are not known, only their number. */
struct gc_shape_sums {
    uint64_t key;
    uint64_t value;
    uint64_t fused;
    uint64_t latent;
    uint64_t convolved;
};

struct gc_shapes {
    uint32_t layer_count; /* 0: there is no stack of a language model */
    bool is_packed;       /* weights are packed in integers: their shapes say nothing */
    bool is_partial;      /* without tensors: nothing holds the configuration's cache */
    bool has_cross;       /* a layer attends to an encoder's output */
    bool is_encoder;      /* the stack is an encoder's by its name */
    bool has_sound;       /* tensors convolve sound */
    uint64_t positions;   /* of the encoder, where they are a tensor; 0: unknown */
    uint64_t hidden;      /* 0: unknown */
    uint64_t vocab;       /* 0: unknown */
    struct gc_shape_sums unplaced;
    struct gc_shape_layer layers[GC_ARCH_LAYER_MAX];
};

/* `shapes` is overwritten. `hidden` of the configuration, 0: unknown. */
void gc_shapes_read(const struct gc_model *model, uint64_t hidden, struct gc_shapes *shapes);

/* Sets the values that the configuration does not have. */
void gc_shapes_complete(const struct gc_shapes *shapes, struct gc_arch *arch);

/* Sets each layer's rows of keys and values, index keys, convolutions and width to those of the
 * tensors. Where the configuration has others, the tensors' are taken, with a note. */
void gc_shapes_apply(const struct gc_shapes *shapes, const struct gc_arch *arch,
                     struct gc_layers *layers, struct gc_notes *notes);

/* What gc_shapes_apply does last: says where the cache is not known to be exact. */
void gc_shapes_tell_measured(const struct gc_shapes *shapes, const struct gc_arch *arch,
                             struct gc_layers *layers, struct gc_notes *notes);

#endif
