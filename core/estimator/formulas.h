/* The parts of an estimate, each a formula with its source: bytes from a layer's shape and the size
 * of the work. All are pure; GC_OVERFLOW if a result does not fit in 64 bits. */
#ifndef GC_ESTIMATOR_FORMULAS_H
#define GC_ESTIMATOR_FORMULAS_H

#include "core/arch/layers.h"
#include "core/model/dtype.h"

/* The load of one step. */
struct gc_estimate_load {
    uint64_t batch;          /* sequences at once */
    uint64_t context_tokens; /* of each sequence, future ones included */
    uint64_t step_tokens; /* of each sequence, computed in one step: the whole prompt, or a chunk */
    enum gc_dtype dtype;  /* of activations */
    enum gc_dtype kv_dtype;   /* of keys and values */
    bool scores_materialised; /* attention writes out its scores */
    uint32_t shards;          /* devices that share each layer: tensor parallel; 1: none */
};

/* Tokens of each sequence that an encoder sees. */
static inline uint64_t gc_source_tokens(const struct gc_layers *layers,
                                        const struct gc_estimate_load *work)
{
    return layers->source_tokens > 0 ? layers->source_tokens : work->context_tokens;
}

/* The encoder's step: its whole input at once. */
static inline struct gc_estimate_load gc_encoder_work(const struct gc_layers *layers,
                                                      const struct gc_estimate_load *work)
{
    struct gc_estimate_load encoder = *work;
    encoder.context_tokens = encoder.step_tokens = gc_source_tokens(layers, work);
    return encoder;
}

/* Keys and values of one layer for one token, in bytes: kv_heads·key_dim and kv_heads·value_dim
 * elements, each a row of whole blocks; one row of kv_rank + rope_dim elements for latent attention
 * (DeepSeek-V2, table 1), and an index key where attention is sparse (DeepSeek-V3.2). 0 for a layer
 * that keeps none. Heads are divided over shards, at least one each; latents are not. */
enum gc_status gc_formula_kv_token_bytes(const struct gc_layers *layers,
                                         const struct gc_layer *layer, enum gc_dtype dtype,
                                         uint32_t shards, uint64_t *bytes) GC_CHECKED;

/* The bytes of those tokens beyond a layer's window that are in memory until the next step all the
 * same: transformers' cache is a view of window and step (DynamicSlidingWindowLayer). */
enum gc_status gc_formula_prompt_layer_bytes(const struct gc_layers *layers,
                                             const struct gc_layer *layer,
                                             const struct gc_estimate_load *work,
                                             uint64_t *bytes) GC_CHECKED;

/* Keys and values of one layer for all tokens it keeps, of all sequences: batch · min(tokens,
 * window) · bytes of a token; and, with an encoder, as much for each token that it sees: cross
 * attention has keys and values of its own (Vaswani et al., 2017, section 3.2.3). */
enum gc_status gc_formula_kv_layer_bytes(const struct gc_layers *layers,
                                         const struct gc_layer *layer,
                                         const struct gc_estimate_load *work,
                                         uint64_t *bytes) GC_CHECKED;

/* A layer's state, of fixed size per sequence: convolutions in the type of activations, states in
 * 32 bits; see layers.h for their sizes. */
enum gc_status gc_formula_state_layer_bytes(const struct gc_layers *layers,
                                            const struct gc_layer *layer,
                                            const struct gc_estimate_load *work,
                                            uint64_t *bytes) GC_CHECKED;

/* Scores of one layer: batch · heads · step · context elements where they are written out, as plain
 * softmax(QKᵀ)V does; else two 32-bit figures for each row, as FlashAttention 2 keeps (Dao, 2023,
 * section 3.1 keeps one, its forward pass two). Windows cap the context of single tokens. */
enum gc_status gc_formula_attention_scores_bytes(const struct gc_layer *layer,
                                                 const struct gc_estimate_load *work,
                                                 uint64_t *bytes) GC_CHECKED;

/* The working set of one layer where the class's places are not known (core/classes/frames.h): as
 * for Llama's layers in transformers, T = batch · step tokens, H hidden, in the type of
 * activations, the largest of norm, in 32 bits                         7·T·H attention: queries
 * twice, keys, values, the result T·(3·H + heads·(2·key + value) + kv_heads·(key + value))
 * feed-forward: gate, up, their product    T·(4·H + 3·width) experts: the tokens sorted to them,
 * and the results, or gate, up and their product T·(4·H + used·H + used·max(3·H, 4·width)) a
 * state's input, gate, and result        T·(4·H + 3·channels) Heads, widths and channels are
 * divided over shards. The next layer reuses the memory. */
enum gc_status gc_formula_activation_layer_bytes(const struct gc_layers *layers,
                                                 const struct gc_layer *layer,
                                                 const struct gc_estimate_load *work,
                                                 uint64_t *bytes) GC_CHECKED;

/* What surely lives at once in the widest layer, in elements for each token. */
uint64_t gc_formula_least_elements(const struct gc_layers *layers);

/* Scores over the vocabulary for the last token of each sequence, in 32 bits. */
enum gc_status gc_formula_logits_bytes(const struct gc_layers *layers,
                                       const struct gc_estimate_load *work,
                                       uint64_t *bytes) GC_CHECKED;

/* Token numbers, positions and mask of a step: three times 64 bits each. */
enum gc_status gc_formula_input_bytes(const struct gc_estimate_load *work,
                                      uint64_t *bytes) GC_CHECKED;

#endif
