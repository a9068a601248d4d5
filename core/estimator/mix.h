/* Weights quantised as in the files that people make: bytes by kind of tensor. mixes.def lists the
 * files. */
#ifndef GC_MIX_H
#define GC_MIX_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gc_mix {
#define GC_MIX(id, ...) GC_MIX_##id,
#define GC_MIX_LINEAR(id, ...) GC_MIX_##id,
#include "core/estimator/mixes.def"
    GC_MIX_COUNT
};
#define GC_MIX_NONE GC_MIX_COUNT

/* Kinds of matrices. */
enum gc_weight_kind {
    GC_WEIGHT_MATRIX, /* any other */
    GC_WEIGHT_KEY,
    GC_WEIGHT_VALUE,
    GC_WEIGHT_QKV,
    GC_WEIGHT_ATTENTION_OUTPUT,
    GC_WEIGHT_DOWN,
    GC_WEIGHT_ROUTER,
    GC_WEIGHT_KIND_COUNT
};

/* Elements of a share of the weights. */
struct gc_weight_elements {
    uint64_t vector; /* of tensors with one dimension */
    uint64_t dense[GC_WEIGHT_KIND_COUNT];
    uint64_t expert[GC_WEIGHT_KIND_COUNT];
    /* of those: in rows that are no multiple of 256 */
    uint64_t odd_dense[GC_WEIGHT_KIND_COUNT];
    uint64_t odd_expert[GC_WEIGHT_KIND_COUNT];
};

enum gc_weight_section { GC_WEIGHT_EMBEDDING, GC_WEIGHT_OUTPUT, GC_WEIGHT_LAYER };

/* What of a model decides a tensor's type, beside its kind. */
struct gc_mix_model {
    uint32_t layers;
    uint64_t experts;
    uint64_t group; /* heads that share keys and values */
    bool is_tied;   /* the embedding is the output */
};

struct gc_mix_bytes {
    uint64_t dense;
    uint64_t replicated;
    uint64_t expert;
};

const char *gc_mix_name(enum gc_mix mix);                      /* "Q4_K_M"; NULL for GC_MIX_NONE */
enum gc_mix gc_mix_from_word(const char *word, size_t length); /* any case; GC_MIX_NONE */
/* Whether llama.cpp reads such files; else transformers, vLLM, SGLang and TensorRT-LLM do. */
bool gc_mix_is_gguf(enum gc_mix mix);

/* Bytes of a section; `layer`: of GC_WEIGHT_LAYER. GC_OVERFLOW. Pure. */
enum gc_status gc_mix_count(enum gc_mix mix, const struct gc_mix_model *model,
                            enum gc_weight_section section, uint32_t layer,
                            const struct gc_weight_elements *elements,
                            struct gc_mix_bytes *bytes) GC_CHECKED;

#endif
