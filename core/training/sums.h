/* A model's parameters as training counts them: those that it changes, and the others. */
#ifndef GC_TRAINING_SUMS_H
#define GC_TRAINING_SUMS_H

#include "core/base/status.h"
#include "core/model/model.h"

#include <stdint.h>

#define GC_TRAINING_SIZE_MAX 8

/* Tensors of one number of elements. */
struct gc_training_size {
    uint64_t elements;
    uint64_t layer; /* the first one's that is in a layer */
    bool is_pair;   /* that layer has another */
};

/* Sums over tensors that are trained. */
struct gc_training_sums {
    uint64_t elements;
    uint64_t bytes;
    uint64_t
        factored; /* rows and columns of those with two dimensions or more, elements of others */
    uint64_t unblocked; /* elements of embeddings, and of tensors below GC_TRAINING_SMALL */
    uint64_t blocks;    /* of GC_TRAINING_BLOCK elements, of the others */
    struct gc_training_size sizes[GC_TRAINING_SIZE_MAX]; /* the largest, in falling order */
};

#define GC_TRAINING_SMALL 4096
#define GC_TRAINING_BLOCK 256

struct gc_training_tensor {
    uint64_t elements;
    uint64_t factored; /* see above */
    uint64_t element_bytes;
    bool is_embedding;
    uint64_t layer; /* a number of the layer's own; 0: it is outside of layers */
};

/* Adds `count` equal tensors. GC_OVERFLOW. */
enum gc_status gc_training_sums_add(struct gc_training_sums *sums,
                                    const struct gc_training_tensor *tensor,
                                    uint64_t count) GC_CHECKED;

/* Elements of the largest tensor; 0: there is none. */
uint64_t gc_training_largest(const struct gc_training_sums *sums);

/* Elements of the largest tensor that is not the only one of its size in its layer: one may follow
 * the other. Tensors of different layers, the embedding and the output stand apart. */
uint64_t gc_training_largest_pair(const struct gc_training_sums *sums);

/* The identity of a tensor's layer, a hash of its name's beginning, "model.layers.3"; 0: it is in
 * none. Two layers of one hash, one pair of names of 2^64, would count as one: its largest tensors
 * would pass for a pair. */
uint64_t gc_training_layer(const char *name);

/* Whether a tensor is an embedding of words or positions, by its name as in transformers. */
bool gc_training_is_embedding(const char *name);

/* Whether training changes a tensor: floating-point numbers, in no blocks, that are no buffer of a
 * module (running_mean, running_var: torch/nn/modules/batchnorm.py; masks of GPT-2, inv_freq). */
bool gc_training_is_parameter(const struct gc_model_tensor *tensor);

/* The model's parameters; `dtype`: the type that they are counted in, GC_DTYPE_NONE: their own.
 * `other_bytes`: of the tensors that are no parameters. Aliases are not counted. GC_OVERFLOW. */
enum gc_status gc_training_sums_count(const struct gc_model *model, enum gc_dtype dtype,
                                      struct gc_training_sums *sums,
                                      uint64_t *other_bytes) GC_CHECKED;

/* The same parameters with `element_bytes` for each element. GC_OVERFLOW. */
enum gc_status gc_training_sums_retype(struct gc_training_sums *sums,
                                       uint64_t element_bytes) GC_CHECKED;

/* The sums of `bytes` in the same types; 0 to 0. The largest tensors stay as they are. */
void gc_training_sums_scale(struct gc_training_sums *sums, uint64_t bytes);

#endif
