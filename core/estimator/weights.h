/* Weights by layer and expert, decided by tensor names as in Hugging Face's transformers and in
 * GGUF. Aliases are not counted. */
#ifndef GC_WEIGHTS_H
#define GC_WEIGHTS_H

#include "core/arch/layers.h"
#include "core/estimator/mix.h"
#include "core/model/model.h"

#define GC_WEIGHT_NO_LAYER UINT32_MAX

struct gc_weight_place {
    uint32_t layer; /* GC_WEIGHT_NO_LAYER: outside the layers */
    bool expert;    /* one of a layer's experts, or all of them in one tensor */
    bool embedding; /* of words or positions, before the layers */
    bool last;      /* of the whole model, after the layers: final norm, output */
    enum gc_weight_kind kind;
};

/* Decided by the name alone. Pure. */
struct gc_weight_place gc_weight_find_place(const char *name);

/* Bytes of one layer, or of the tensors outside the layers. */
struct gc_weight_share {
    uint64_t dense_bytes;      /* of tensors with at least two dimensions */
    uint64_t replicated_bytes; /* of those with fewer: every device of a tensor-parallel group has
                                  them */
    uint64_t expert_bytes;
    struct gc_weight_elements elements;
};

struct gc_weights {
    uint64_t bytes;
    uint64_t expert_bytes;
    uint64_t parameters;
    uint64_t tensors;
    bool is_quantised;                /* some matrices are of blocks, or of integers */
    bool is_packed;                   /* matrices are of integers: quantised by another program */
    uint32_t layer_count;             /* one more than the highest layer named */
    struct gc_weight_share embedding; /* of words and positions */
    struct gc_weight_share first;     /* others before the layers, and unrecognised tensors */
    struct gc_weight_share last;      /* after the layers */
    struct gc_weight_share layers[GC_ARCH_LAYER_MAX];
};

/* `dtype`: the type floating-point tensors are counted in, GC_DTYPE_NONE for their own; quantised
 * and integer ones keep theirs. GC_OVERFLOW if a sum does not fit in 64 bits. */
enum gc_status gc_weights_count(const struct gc_model *model, enum gc_dtype dtype,
                                struct gc_weights *weights) GC_CHECKED;

/* The type of most bytes of floating-point tensors with two dimensions or more; GC_DTYPE_NONE. */
enum gc_dtype gc_weights_main_dtype(const struct gc_model *model);

#endif
