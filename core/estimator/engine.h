/* The program that runs a model: how many tokens it computes at once, how it rounds and reserves
 * memory. engines.def lists the programs with their sizes and sources. */
#ifndef GC_ENGINE_H
#define GC_ENGINE_H

#include "core/arch/layers.h"
#include "core/estimator/formulas.h"
#include "core/report/estimate_parts.h"

#define GC_ENGINE_NO_MEMORY 1048576 /* GiB, more than any device: the memory is unknown */

enum gc_engine {
#define GC_ENGINE(id, ...) GC_ENGINE_##id,
#include "core/estimator/engines.def"
    GC_ENGINE_COUNT
};
#define GC_ENGINE_BY_FILES GC_ENGINE_COUNT /* llama.cpp for GGUF, else transformers */

/* Sizes that one run of an engine has. */
struct gc_engine_plan {
    enum gc_engine engine;
    bool by_files;           /* chosen by the model's files */
    uint64_t step_tokens;    /* in one step, of all sequences; 0: as the load says */
    uint64_t output_rows;    /* rows of logits in one step */
    uint64_t captures;       /* steps recorded as CUDA graphs */
    uint64_t context_copies; /* of a step's inputs: stages of a pipeline */
    uint64_t steps;          /* scheduled at once: each keeps its tokens of a window */
    uint32_t window_share;   /* of the context that layers with a window keep, in thousandths; 0:
                                the window and what the steps add */
    uint32_t fraction;       /* of the device's memory that is used, in thousandths */
    uint64_t memory_bytes;   /* of the smallest device; 0: unknown */
};

/* What decides a plan, beside the engine. */
struct gc_engine_load {
    uint64_t batch;
    uint64_t seq_len;
    uint64_t chunk_tokens; /* asked for; 0: the engine's */
    uint64_t memory_bytes; /* of the smallest device; 0: unknown */
    uint32_t fraction;     /* asked for, in thousandths; 0: the engine's */
    uint32_t device_count;
    bool is_tensor_split;
    bool has_kv_cache;
    bool is_mla;
    const char *type; /* of the model */
};

/* "vllm"; NULL for GC_ENGINE_BY_FILES. */
const char *gc_engine_name(enum gc_engine engine);
/* The names joined by ", ", for messages. */
const char *gc_engine_names(void);
/* GC_ENGINE_BY_FILES for any other word. */
enum gc_engine gc_engine_from_word(const char *word);
/* Millionths that the engine's allocator wastes of the other parts. */
uint64_t gc_engine_overhead(enum gc_engine engine);
uint64_t gc_engine_block_tokens(enum gc_engine engine);
/* Whether it takes all usable memory for its cache at the start. */
bool gc_engine_has_pool(enum gc_engine engine);

void gc_engine_make_plan(enum gc_engine engine, const struct gc_engine_load *load,
                         struct gc_engine_plan *plan);

/* The tokens of a sequence, in whole blocks. Saturates. */
uint64_t gc_engine_round(const struct gc_engine_plan *plan, uint64_t tokens);

/* The layer as the engine keeps it: with its heads of keys and values, and the number of tokens of
 * a window: what steps add before the oldest are dropped, in whole blocks, or a share of the
 * context. `context`: rounded tokens of a sequence. */
struct gc_layer gc_engine_kept_layer(const struct gc_engine_plan *plan,
                                     const struct gc_layer *layer, uint64_t context);

/* The load of a step's activations: of all sequences together where the engine bounds a step. */
struct gc_estimate_load gc_engine_step(const struct gc_engine_plan *plan,
                                       const struct gc_estimate_load *work);

/* llama.cpp's compute buffer for one layer and for the output, as ggml's allocator places the
 * graph of a ubatch in 32 bits: T tokens, H hidden, F width, of
 *   residual, its norm, the result, gate, up and their product       T·(3·H + 3·F)
 *   experts: 3·T·used·F, or the results and their weighted copies    T·(4·H + 2·used·H)
 *   queries, keys and values, rotated                                T·(2·H + 2·Q + K + V + …)
 *   the mask in 16 bits, in 32 with scores; the scores themselves
 * or of the output T·(H + vocabulary). Measured: tests/model/llama_cpp.json. GC_OVERFLOW. */
enum gc_status gc_engine_compute_bytes(const struct gc_engine_plan *plan,
                                       const struct gc_layers *layers, const struct gc_layer *layer,
                                       const struct gc_estimate_load *work,
                                       uint64_t *bytes) GC_CHECKED;
enum gc_status gc_engine_output_bytes(const struct gc_engine_plan *plan,
                                      const struct gc_layers *layers, uint32_t shards,
                                      uint64_t *bytes) GC_CHECKED;

/* Memory of recorded CUDA graphs: layers · captures · a constant. */
uint64_t gc_engine_graph_bytes(const struct gc_engine_plan *plan, uint32_t layers);

/* Bytes of a device of `memory` bytes that the engine leaves unused beside `sizes`, of which
 * `context` are a context. 0 where the memory is unknown (UINT64_MAX). */
uint64_t gc_engine_unusable_bytes(const struct gc_engine_plan *plan, uint64_t memory,
                                  uint64_t context, const struct gc_estimate_sizes *sizes);

#endif
