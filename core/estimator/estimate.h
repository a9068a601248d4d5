/* The device memory that a model needs to run or to be trained, part by part.
 *
 * An estimator is made once for a model and run many times. A run is one pass over the layers and
 * allocates nothing; for an ONNX graph it plans the graph's memory. Weights, KV cache and states
 * are exact for known parts; activations, inputs and overhead follow the rules in formulas.h. An
 * unknown part is a bit in `unknown_parts` and a note, and the figure is then a lower bound, or
 * approximate where something was assumed. All arithmetic is checked.
 *
 * Thread-safe with a result per thread; an ONNX graph's estimator may be run by one thread at a
 * time. Needs no device. */
#ifndef GC_ESTIMATE_H
#define GC_ESTIMATE_H

#include "core/arch/arch.h"
#include "core/arch/notes.h"
#include "core/estimator/engine.h"
#include "core/estimator/mix.h"
#include "core/model/model.h"
#include "core/report/estimate_record.h"
#include "core/training/training.h"

#define GC_ESTIMATE_COUNT_MAX UINT64_C(1000000000) /* sequences, tokens */
#define GC_ESTIMATE_RANK_MAX UINT64_C(65536)       /* of adapters */
#define GC_ESTIMATE_ALL_EXPERTS UINT64_MAX
#define GC_ESTIMATE_ALL_LAYERS UINT64_MAX
#define GC_ESTIMATE_ENGINE_OVERHEAD UINT64_MAX

/* Size of a CUDA context with lazy loading, if it has not been measured. */
#define GC_ESTIMATE_CONTEXT_BYTES (UINT64_C(300) << 20)

enum gc_split {
    GC_SPLIT_DEFAULT, /* not named by the user: as GC_SPLIT_LAYERS */
    GC_SPLIT_LAYERS,  /* whole layers; devices differ by at most one layer */
    GC_SPLIT_TENSOR,  /* each device has a part of every layer */
};

struct gc_estimate_request {
    uint64_t batch;           /* sequences; at least 1 */
    uint64_t seq_len;         /* tokens of each, future ones included; 0: the model's largest */
    enum gc_engine engine;    /* GC_ENGINE_BY_FILES: chosen by the files */
    uint64_t chunk_tokens;    /* tokens in one step: of all sequences; with transformers of each;
                                 0: as the engine chooses */
    enum gc_dtype dtype;      /* of activations; GC_DTYPE_NONE: the model's own */
    enum gc_dtype kv_dtype;   /* GC_DTYPE_NONE: dtype, else the model's own */
    bool scores_materialised; /* attention writes out its scores */
    enum gc_split split;
    uint32_t device_count;        /* at least 1 */
    uint64_t overhead_millionths; /* fraction of the other parts' sum, added to it;
                                     GC_ESTIMATE_ENGINE_OVERHEAD: the engine's */
    uint64_t context_bytes;       /* on each device, before any allocation */
    uint64_t resident_experts;    /* of each layer; the others are not on the device */
    uint64_t device_layers; /* on the device, from the last on, the output being one, as llama.cpp
                               counts; the others and their cache are in host memory */
    enum gc_mix mix;        /* the weights quantised so; GC_MIX_NONE: as they are */
    uint32_t fraction; /* of a device's memory that the engine uses, in thousandths; 0: its own */
    struct gc_training training;  /* its optimiser GC_OPTIMISER_NONE: inference */
    const uint64_t *memory_bytes; /* of each device, for what engines choose by it; NULL: unknown */
    const char *dims;             /* "name=N,…": open dimensions of an ONNX graph; NULL: none */
};

/* Inference of one sequence of the model's largest context, one device, the engine's overhead. */
void gc_estimate_request_init(struct gc_estimate_request *request);

struct gc_estimate {
    struct gc_estimate_sizes total; /* of all devices */
    struct gc_estimate_sizes devices[GC_ESTIMATE_DEVICE_MAX];
    uint32_t device_count;
    unsigned unknown_parts;           /* bit i: part i is not wholly known: a lower bound */
    unsigned approximate_parts;       /* those of them that may be less as well */
    uint32_t coverage_thousandths;    /* fraction of the parts of a run that is known */
    enum gc_estimate_part overflowed; /* where GC_OVERFLOW happened; else unspecified */
    uint64_t batch;
    uint64_t seq_len; /* 0: unknown */
    enum gc_dtype dtype;
    enum gc_dtype kv_dtype;
    uint64_t experts; /* of each layer with experts; 0: none */
    uint64_t resident_experts;
    uint32_t expert_layer_count;
    uint64_t parameters;
    uint64_t tensor_count;
    uint64_t positions; /* the model's largest context; 0: unknown */
    struct gc_engine_plan plan;
    enum gc_mix mix;
    uint32_t layer_count;       /* 0: unknown */
    uint64_t device_layers;     /* at most layer_count + 1 */
    uint64_t host_weight_bytes; /* weights that the engine or the request keeps in host memory */
    uint64_t usable_bytes[GC_ESTIMATE_DEVICE_MAX]; /* of the memory, by the engine; UINT64_MAX: all
                                                      or unknown */
    uint64_t graph_bytes[GC_ESTIMATE_DEVICE_MAX];  /* recorded CUDA graphs: part of the overhead */
    uint64_t prompt_bytes[GC_ESTIMATE_DEVICE_MAX]; /* of the overhead: tokens beyond windows that
                                                      stay until the next step */
    uint64_t kv_block_bytes[GC_ESTIMATE_DEVICE_MAX]; /* of one block, all layers of the device */
    struct gc_training training;
    uint64_t trained_parameters;
    uint64_t backward_bytes;          /* of training: the peak of the passes on a device, */
    uint64_t step_bytes;              /* and of the optimiser's step */
    uint64_t training_at_least_bytes; /* of inference: what training would take; 0: unknown */
    uint64_t kv_blocks; /* that the engine's pool has on each device; 0: it has none, or unknown */
    struct gc_notes notes;
};

struct gc_estimator;

/* `dtype`: the type floating-point weights are counted in; GC_DTYPE_NONE for their own. The model
 * may be closed before the estimator, unless it is an ONNX graph. GC_NO_HOST_MEMORY; GC_OVERFLOW:
 * the weights do not fit in 64 bits; GC_NOT_SUPPORTED: `dtype` has no fixed size. The model's
 * warnings are among the notes of every estimate. */
enum gc_status gc_estimator_open(const struct gc_model *model, enum gc_dtype dtype,
                                 struct gc_estimator **estimator) GC_CHECKED;
void gc_estimator_close(struct gc_estimator *estimator); /* NULL: nothing */

/* Whether some matrices are of blocks with scales, or of packed integers. */
bool gc_estimator_is_quantised(const struct gc_estimator *estimator);
/* Whether weights can be counted as a gc_mix: there are layers with tensors, not packed ones. */
bool gc_estimator_has_kinds(const struct gc_estimator *estimator);

/* GC_INVALID_ARGUMENT for a count out of its range, or a request that gc_train_find_refusal
 * refuses; GC_OVERFLOW with estimate->overflowed. */
enum gc_status gc_estimator_run(const struct gc_estimator *estimator,
                                const struct gc_estimate_request *request,
                                struct gc_estimate *estimate) GC_CHECKED;

#endif
