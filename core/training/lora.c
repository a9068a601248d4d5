#include "core/training/lora.h"

#include "core/io/text.h"
#include "core/model/checked.h"

#include <string.h>

static bool is_target(const struct gc_model_tensor *tensor)
{
    return tensor->dim_count == 2 && tensor->alias_of == GC_MODEL_NONE &&
           gc_text_ends_with(tensor->name, ".weight") && gc_training_is_parameter(tensor) &&
           !gc_training_is_embedding(tensor->name) && gc_training_layer(tensor->name) != 0 &&
           strstr(tensor->name, ".experts.") == NULL; /* experts have a number of their own */
}

static void add_shape(struct gc_lora *lora, const uint64_t *dims)
{
    for (uint32_t i = 0; i < lora->shape_count; i++) {
        struct gc_lora_shape *shape = &lora->shapes[i];
        if (shape->rows == dims[0] && shape->columns == dims[1]) {
            shape->count++;
            return;
        }
    }
    if (lora->shape_count == GC_LORA_SHAPE_MAX) {
        lora->is_cut = true;
        return;
    }
    lora->shapes[lora->shape_count++] = (struct gc_lora_shape){dims[0], dims[1], 1};
}

void gc_lora_read(const struct gc_model *model, struct gc_lora *lora)
{
    memset(lora, 0, sizeof(*lora));
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        if (is_target(&model->tensors[i]))
            add_shape(lora, model->tensors[i].dims);
    }
}

uint64_t gc_lora_largest(const struct gc_lora *lora)
{
    struct gc_sum sum = {false};
    uint64_t most = 0;
    for (uint32_t i = 0; i < lora->shape_count; i++)
        most = gc_max_u64(most, gc_sum_mul(&sum, lora->shapes[i].rows, lora->shapes[i].columns));
    return most;
}

enum gc_status gc_lora_sums(const struct gc_lora *lora, uint64_t rank, uint64_t element_bytes,
                            struct gc_training_sums *sums)
{
    memset(sums, 0, sizeof(*sums));
    for (uint32_t i = 0; i < lora->shape_count; i++) {
        const struct gc_lora_shape *shape = &lora->shapes[i];
        const uint64_t widths[] = {shape->columns, shape->rows};
        for (unsigned side = 0; side < sizeof(widths) / sizeof(widths[0]); side++) {
            struct gc_sum sum = {false};
            const struct gc_training_tensor tensor = {
                .elements = gc_sum_mul(&sum, rank, widths[side]),
                .factored = gc_sum_add(&sum, rank, widths[side]),
                .element_bytes = element_bytes,
                .layer = 1,
            };
            if (sum.overflowed || gc_training_sums_add(sums, &tensor, shape->count) != GC_OK)
                return GC_OVERFLOW;
        }
    }
    return GC_OK;
}
