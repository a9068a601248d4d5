/* Low-rank adapters (LoRA; Hu et al., 2021): beside a matrix with `columns` inputs and `rows`
 * outputs, two matrices with rank · columns and rank · rows elements, which alone are trained. All
 * linear layers but the output get them, as with PEFT's target_modules="all-linear": the matrices
 * of the layers that are no embeddings, and no experts, which transformers keeps in one tensor. */
#ifndef GC_LORA_H
#define GC_LORA_H

#include "core/training/sums.h"

#define GC_LORA_SHAPE_MAX 64

struct gc_lora_shape {
    uint64_t rows;
    uint64_t columns;
    uint64_t count;
};

/* The matrices that get adapters, by shape. */
struct gc_lora {
    uint32_t shape_count;
    bool is_cut; /* more shapes than there is room for */
    struct gc_lora_shape shapes[GC_LORA_SHAPE_MAX];
};

void gc_lora_read(const struct gc_model *model, struct gc_lora *lora);

/* Elements of the largest matrix that gets adapters. Saturates. */
uint64_t gc_lora_largest(const struct gc_lora *lora);

/* The adapters. GC_OVERFLOW. */
enum gc_status gc_lora_sums(const struct gc_lora *lora, uint64_t rank, uint64_t element_bytes,
                            struct gc_training_sums *sums) GC_CHECKED;

#endif
