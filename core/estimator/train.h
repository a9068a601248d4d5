/* Training: parameters, gradients, states and the passes' memory of one device. */
#ifndef GC_TRAIN_H
#define GC_TRAIN_H

#include "core/estimator/estimate.h"

/* Parts of the forward and backward pass, as bits. */
#define GC_TRAIN_PASS_PARTS                                                                        \
    (1U << GC_ESTIMATE_saved_activation | 1U << GC_ESTIMATE_loss | 1U << GC_ESTIMATE_temporary)

/* Why a request cannot be estimated: options that contradict each other, or, with an estimator, a
 * model that cannot be trained. A sentence without its end, or NULL: it can. */
const char *gc_train_find_refusal(const struct gc_estimator *estimator,
                                  const struct gc_estimate_request *request);

/* Sets the type that activations are computed in, given the type that inference would have, and
 * notes and unknown parts. */
void gc_train_set_types(const struct gc_estimator *estimator,
                        const struct gc_estimate_request *request, struct gc_estimate *estimate);

/* All parts but inputs and overhead of one device; devices are alike. GC_OVERFLOW with
 * estimate->overflowed. */
enum gc_status gc_train_device(const struct gc_estimator *estimator,
                               const struct gc_estimate_request *request, uint32_t device,
                               struct gc_estimate *estimate) GC_CHECKED;

/* The least that training takes on one device, without overhead: parameters, gradients and states
 * of AdamW, or the passes with checkpointing where they are known. `request`: a new one with the
 * batch, the context, the attention and the type of parameters. 0: unknown, or not trainable. */
uint64_t gc_train_least_bytes(const struct gc_estimator *estimator,
                              const struct gc_estimate_request *request);

#endif
