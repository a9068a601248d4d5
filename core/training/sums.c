#include "core/training/sums.h"

#include "core/base/bits.h"
#include "core/io/text.h"
#include "core/model/checked.h"

#include <string.h>

/* Keeps the sizes in falling order; the smallest are dropped. */
static void add_size(struct gc_training_sums *sums, uint64_t elements, uint64_t layer,
                     uint64_t count)
{
    struct gc_training_size *sizes = sums->sizes;
    unsigned at = 0;
    while (at < GC_TRAINING_SIZE_MAX && sizes[at].elements > elements)
        at++;
    if (at == GC_TRAINING_SIZE_MAX)
        return;
    if (sizes[at].elements == elements) {
        sizes[at].is_pair |= layer != 0 && (layer == sizes[at].layer || count > 1);
        if (sizes[at].layer == 0)
            sizes[at].layer = layer;
        return;
    }
    memmove(&sizes[at + 1], &sizes[at], (GC_TRAINING_SIZE_MAX - 1 - at) * sizeof(sizes[0]));
    sizes[at] = (struct gc_training_size){elements, layer, layer != 0 && count > 1};
}

enum gc_status gc_training_sums_add(struct gc_training_sums *sums,
                                    const struct gc_training_tensor *tensor, uint64_t count)
{
    struct gc_sum sum = {false};
    const uint64_t all = gc_sum_mul(&sum, tensor->elements, count);
    const bool is_blocked = tensor->elements >= GC_TRAINING_SMALL && !tensor->is_embedding;
    const uint64_t blocks = gc_divide_up_u64(tensor->elements, GC_TRAINING_BLOCK);
    sums->elements = gc_sum_add(&sum, sums->elements, all);
    sums->bytes = gc_sum_add(&sum, sums->bytes, gc_sum_mul(&sum, all, tensor->element_bytes));
    sums->factored = gc_sum_add(&sum, sums->factored, gc_sum_mul(&sum, tensor->factored, count));
    if (is_blocked)
        sums->blocks = gc_sum_add(&sum, sums->blocks, gc_sum_mul(&sum, blocks, count));
    else
        sums->unblocked = gc_sum_add(&sum, sums->unblocked, all);
    add_size(sums, tensor->elements, tensor->layer, count);
    return gc_sum_status(&sum);
}

uint64_t gc_training_largest(const struct gc_training_sums *sums)
{
    return sums->sizes[0].elements;
}

uint64_t gc_training_largest_pair(const struct gc_training_sums *sums)
{
    for (unsigned i = 0; i < GC_TRAINING_SIZE_MAX; i++) {
        if (sums->sizes[i].is_pair)
            return sums->sizes[i].elements;
    }
    return 0;
}

/* ---- names ---- */

/* The part before "weight", or the last; not NUL-terminated. */
static const char *module_of(const char *name, size_t *length)
{
    static const char ending[] = ".weight";
    size_t end = strlen(name);
    if (gc_text_has_ending(name, end, ending))
        end -= sizeof(ending) - 1;
    size_t start = end;
    while (start > 0 && name[start - 1] != '.')
        start--;
    *length = end - start;
    return name + start;
}

/* "embed_tokens", "word_embeddings", "relative_attention_bias". */
bool gc_training_is_embedding(const char *name)
{
    static const char whole[] = "wte, wpe, shared, relative_attention_bias";
    size_t length;
    const char *module = module_of(name, &length);
    return gc_text_find_word(whole, module, length) >= 0 || strstr(module, "embed") != NULL;
}

uint64_t gc_training_layer(const char *name)
{
    uint64_t hash = GC_HASH_FNV1A;
    for (const char *at = name; *at != '\0'; at++) {
        const size_t digits = at == name || at[-1] == '.' ? strspn(at, "0123456789") : 0;
        hash = gc_hash_fnv1a(hash, (unsigned char)*at);
        if (digits > 0 && (at[digits] == '.' || at[digits] == '\0')) {
            for (size_t i = 1; i < digits; i++)
                hash = gc_hash_fnv1a(hash, (unsigned char)at[i]);
            return hash;
        }
    }
    return 0;
}

/* A bias of more than two dimensions is GPT-2's mask. */
static bool is_buffer(const struct gc_model_tensor *tensor)
{
    static const char buffers[] = "running_mean, running_var, inv_freq, masked_bias";
    size_t length;
    const char *module = module_of(tensor->name, &length);
    return gc_text_find_word(buffers, module, length) >= 0 ||
           (tensor->dim_count > 2 && gc_text_find_word("bias", module, length) >= 0);
}

bool gc_training_is_parameter(const struct gc_model_tensor *tensor)
{
    const struct gc_dtype_info *info = gc_dtype_get_info(tensor->dtype);
    return info->kind == GC_DTYPE_CLASS_FLOAT && info->block_elements == 1 && !is_buffer(tensor);
}

/* Rows and columns of each matrix: of the last two dimensions. */
static uint64_t factored_of(const struct gc_model_tensor *tensor)
{
    const uint32_t count = tensor->dim_count;
    if (count < 2 || tensor->dims[count - 1] == 0 || tensor->dims[count - 2] == 0)
        return tensor->elements;
    return tensor->elements / tensor->dims[count - 1] + tensor->elements / tensor->dims[count - 2];
}

static enum gc_status add_tensor(struct gc_training_sums *sums,
                                 const struct gc_model_tensor *tensor, enum gc_dtype dtype)
{
    const enum gc_dtype counted = dtype != GC_DTYPE_NONE ? dtype : tensor->dtype;
    const struct gc_training_tensor added = {
        .elements = tensor->elements,
        .factored = factored_of(tensor),
        .element_bytes = gc_dtype_get_info(counted)->block_bytes,
        .is_embedding = gc_training_is_embedding(tensor->name),
        .layer = gc_training_layer(tensor->name),
    };
    return gc_training_sums_add(sums, &added, 1);
}

enum gc_status gc_training_sums_count(const struct gc_model *model, enum gc_dtype dtype,
                                      struct gc_training_sums *sums, uint64_t *other_bytes)
{
    memset(sums, 0, sizeof(*sums));
    *other_bytes = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        enum gc_status status = GC_OK;
        if (tensor->alias_of != GC_MODEL_NONE)
            continue;
        if (gc_training_is_parameter(tensor))
            status = add_tensor(sums, tensor, dtype);
        else if (!gc_add_u64(*other_bytes, tensor->bytes, other_bytes))
            status = GC_OVERFLOW;
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

enum gc_status gc_training_sums_retype(struct gc_training_sums *sums, uint64_t element_bytes)
{
    return gc_mul_u64(sums->elements, element_bytes, &sums->bytes) ? GC_OK : GC_OVERFLOW;
}

void gc_training_sums_scale(struct gc_training_sums *sums, uint64_t bytes)
{
    const uint64_t before = sums->bytes;
    uint64_t *const counts[] = {&sums->elements, &sums->bytes, &sums->factored, &sums->unblocked,
                                &sums->blocks};
    for (unsigned i = 0; before > 0 && i < sizeof(counts) / sizeof(counts[0]); i++)
        *counts[i] = gc_scale_u64(*counts[i], bytes, before);
}
