/* The memory of training beside activations: parameters, gradients, the optimiser's states, and the
 * buffers of data-parallel training, on each of equal devices.
 *
 *   E  trained elements      P  their bytes      N  devices
 *
 *                     parameters   gradients   states                  buffers
 *   one device        P            P           of the optimiser
 *   mixed precision   4·E          4·E         of the optimiser, for 32 bits (torch.autocast)
 *   --zero 0          as above                                         gradients once more
 *   --zero 1          P            P           / N                     a bucket of gradients
 *   --zero 2          P            P / N       / N                     a bucket of gradients
 *   --zero 3          P / N        P / N       / N                     a bucket, gathered
 * parameters
 *
 * --zero 1 to 3 of parameters in 16 bits: P is 2·E, the states are 4·E more and those of 32 bits,
 * and the step has the gradients in 32 bits, 4·E / N; mixed precision adds nothing. In stage 3 the
 * step has temporaries of one sub-group of parameters alone.
 *
 * Sources: DistributedDataParallel's gradient_as_bucket_view (torch); Rajbhandari et al., 2020,
 * ZeRO, section 5; DeepSpeed's defaults (runtime/zero/config.py): reduce_bucket_size 5e8 elements,
 * a buffer of that size (stage_1_and_2.py, stage3.py), stage3_max_live_parameters 1e9,
 * sub_group_size 1e9; its bf16 and fp16 modes always keep 32-bit masters. Pure. */
#ifndef GC_TRAINING_H
#define GC_TRAINING_H

#include "core/training/optimiser.h"

#define GC_TRAINING_NO_ZERO UINT32_MAX
#define GC_TRAINING_ZERO_MAX 3

/* What a request says of training. */
struct gc_training {
    enum gc_optimiser optimiser; /* GC_OPTIMISER_NONE: inference */
    bool is_mixed;               /* parameters in 32 bits, computed in 16 */
    bool is_checkpointed;        /* a layer's activations are computed again in the backward pass */
    uint32_t zero_stage;         /* GC_TRAINING_NO_ZERO: none */
    uint64_t lora_rank;          /* 0: all parameters are trained */
};

/* Of a model, or of its adapters. */
struct gc_training_model {
    struct gc_training_sums trained; /* in the type that they are kept in, masters in theirs */
    bool has_masters;      /* ZeRO divides: 16-bit parameters have masters, copies in 32 bits */
    uint64_t frozen_bytes; /* parameters that are not trained, and buffers */
    uint64_t frozen_elements;
    uint64_t frozen_largest; /* elements of the largest frozen tensor */
};

/* On each device, in bytes. */
struct gc_training_need {
    uint64_t weights;
    uint64_t gradients; /* all */
    uint64_t states;
    uint64_t buffers;  /* always */
    uint64_t backward; /* in the forward and backward pass alone */
    uint64_t step;     /* in the optimiser's step alone */
};

static inline bool gc_training_is_asked(const struct gc_training *training)
{
    return training->optimiser != GC_OPTIMISER_NONE;
}

/* Whether stages of ZeRO divide anything: 0 is plain data parallel. */
static inline bool gc_training_is_divided(const struct gc_training *training)
{
    return training->zero_stage != GC_TRAINING_NO_ZERO && training->zero_stage > 0;
}

/* Devices that gradients are divided over. */
static inline uint32_t gc_training_gradient_parts(const struct gc_training *training,
                                                  uint32_t devices)
{
    return gc_training_is_divided(training) && training->zero_stage >= 2 ? devices : 1;
}

/* GC_OVERFLOW. */
enum gc_status gc_training_find_need(const struct gc_training *training,
                                     const struct gc_training_model *model, uint32_t devices,
                                     struct gc_training_need *need) GC_CHECKED;

#endif
