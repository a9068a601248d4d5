/* Internal to the estimator: the state kept between runs. */
#ifndef GC_ESTIMATOR_H
#define GC_ESTIMATOR_H

#include "core/arch/layers.h"
#include "core/arch/shapes.h"
#include "core/classes/architecture.h"
#include "core/classes/frames.h"
#include "core/estimator/estimate.h"
#include "core/estimator/formulas.h"
#include "core/estimator/weights.h"
#include "core/model/graph.h"
#include "core/training/lora.h"
#include "core/training/rows.h"

struct gc_estimator {
    const struct gc_model *graph; /* of an ONNX model; else NULL */
    struct gc_graph *network;     /* its graph of nodes; NULL if it could not be read */
    bool has_layers;              /* the model has a configuration */
    bool is_gguf;
    bool has_no_weights; /* no tensors, and none follow from the configuration */
    bool is_unshaped;    /* some weights are known by their sums alone */
    enum gc_architecture_known weights_known;
    bool is_indexed_apart;    /* weights are an index's bytes, which the configuration's are not */
    bool is_stored_quantised; /* by another program, before training */
    enum gc_architecture_files files; /* against the configuration */
    enum gc_dtype main_dtype;         /* of the weights; GC_DTYPE_NONE */
    enum gc_dtype weight_dtype;       /* requested by the caller; GC_DTYPE_NONE */
    struct gc_notes notes;
    struct gc_arch arch;
    struct gc_layers layers;
    struct gc_shapes shapes;
    struct gc_frames frames;
    struct gc_weights weights;
    struct gc_training_sums parameters; /* all that training can change */
    uint64_t buffer_bytes;              /* tensors that are no parameters */
    struct gc_lora lora;
    struct gc_training_rows training_rows;
};

/* Marks parts as a lower bound, or as approximate: they may be less as well. */
static inline void gc_estimate_tell(struct gc_estimate *estimate, unsigned parts,
                                    bool is_approximate)
{
    estimate->unknown_parts |= parts;
    if (is_approximate)
        estimate->approximate_parts |= parts;
}

/* All parts but overhead of one device. GC_OVERFLOW with estimate->overflowed. */
enum gc_status gc_split_device(const struct gc_estimator *estimator,
                               const struct gc_estimate_request *request,
                               const struct gc_estimate_load *work, uint32_t device,
                               struct gc_estimate *estimate) GC_CHECKED;

/* All weights, quantised as the request says. GC_OVERFLOW. */
enum gc_status gc_split_weight_bytes(const struct gc_estimator *estimator,
                                     const struct gc_estimate_request *request,
                                     uint64_t *bytes) GC_CHECKED;

/* Sets the first device's inputs, activations and computed weights of an ONNX graph, with open
 * dimensions taken from the request. Sets the bits of parts that are not fully known in
 * estimate->unknown_parts. */
enum gc_status gc_estimator_graph(const struct gc_estimator *estimator,
                                  const struct gc_estimate_request *request,
                                  struct gc_estimate *estimate) GC_CHECKED;

/* Adds notes for values of dimensions that the model does not have. `dims` may be NULL. */
void gc_estimator_note_dims(const struct gc_estimator *estimator, const char *dims,
                            struct gc_notes *notes);

#endif
