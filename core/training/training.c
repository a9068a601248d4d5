#include "core/training/training.h"

#include "core/base/bits.h"
#include "core/model/checked.h"

#define BUCKET_ELEMENTS UINT64_C(500000000)
#define LIVE_ELEMENTS UINT64_C(1000000000)
#define SUB_GROUP_ELEMENTS UINT64_C(1000000000)
#define HALF_BYTES 2

/* The parameters' bytes for each element, rounded up. */
static uint64_t element_bytes(uint64_t bytes, uint64_t elements)
{
    return elements > 0 ? gc_divide_up_u64(bytes, elements) : 0;
}

/* A layer's parameters are gathered before it is computed and released after it, unless they are
 * used again soon: up to LIVE_ELEMENTS stay, at least the largest tensor. */
static uint64_t gathered_bytes(struct gc_sum *sum, const struct gc_training_model *model,
                               uint64_t all_bytes)
{
    const uint64_t elements = gc_sum_add(sum, model->trained.elements, model->frozen_elements);
    const uint64_t largest =
        gc_max_u64(gc_training_largest(&model->trained), model->frozen_largest);
    const uint64_t live =
        gc_sum_mul(sum, gc_max_u64(LIVE_ELEMENTS, largest), element_bytes(all_bytes, elements));
    return gc_min_u64(live, all_bytes);
}

/* Stage 3 steps over one group of its parameters after the other; the last tensor of a group may
 * exceed SUB_GROUP_ELEMENTS. */
static uint64_t sub_group_bytes(struct gc_sum *sum, const struct gc_training_sums *trained,
                                uint32_t devices, uint64_t step_bytes)
{
    const uint64_t last = gc_divide_up_u64(gc_training_largest(trained), devices);
    return gc_sum_mul(sum, SUB_GROUP_ELEMENTS + last, element_bytes(step_bytes, trained->elements));
}

/* Parameters and gradients of 16 bits: the states have the parameters in 32 bits, the step the
 * gradients. */
static void divide(struct gc_sum *sum, const struct gc_training *training,
                   const struct gc_training_model *model, uint32_t devices,
                   struct gc_training_need *need)
{
    const uint64_t elements = model->trained.elements;
    uint64_t trained = model->trained.bytes;
    if (model->has_masters) {
        trained = need->gradients = gc_sum_mul(sum, elements, HALF_BYTES);
        need->states = gc_sum_add(sum, need->states, model->trained.bytes);
        need->step = gc_sum_add(sum, need->step, model->trained.bytes);
    }
    need->weights = gc_sum_add(sum, trained, model->frozen_bytes);
    need->buffers = gc_sum_mul(sum, BUCKET_ELEMENTS, element_bytes(need->gradients, elements));
    need->states = gc_divide_up_u64(need->states, devices);
    const uint64_t step = need->step;
    need->step = gc_divide_up_u64(need->step, devices);
    if (training->zero_stage >= 2)
        need->gradients = gc_divide_up_u64(need->gradients, devices);
    if (training->zero_stage >= 3) {
        need->backward = gathered_bytes(sum, model, need->weights);
        need->weights = gc_divide_up_u64(need->weights, devices);
        need->step = gc_min_u64(need->step, sub_group_bytes(sum, &model->trained, devices, step));
    }
}

enum gc_status gc_training_find_need(const struct gc_training *training,
                                     const struct gc_training_model *model, uint32_t devices,
                                     struct gc_training_need *need)
{
    struct gc_sum sum = {false};
    const struct gc_training_sums *trained = &model->trained;
    *need = (struct gc_training_need){.gradients = trained->bytes};
    need->weights = gc_sum_add(&sum, trained->bytes, model->frozen_bytes);
    if (gc_optimiser_state_bytes(training->optimiser, trained, &need->states) != GC_OK ||
        gc_optimiser_step_bytes(training->optimiser, trained, &need->step) != GC_OK)
        return GC_OVERFLOW;
    if (gc_training_is_divided(training))
        divide(&sum, training, model, devices, need);
    else if (training->zero_stage == 0)
        need->buffers = need->gradients;
    return gc_sum_status(&sum);
}
