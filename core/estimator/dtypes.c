/* In what types a model is run: as asked for, else as it says. */
#include "core/estimator/estimator.h"

#include <string.h>

static bool is_computed_in(enum gc_dtype dtype)
{
    return dtype == GC_DTYPE_F16 || dtype == GC_DTYPE_BF16 || dtype == GC_DTYPE_F32 ||
           dtype == GC_DTYPE_F64;
}

/* Weights that are kept in fewer bits, in blocks or as integers are unpacked to be computed with.
 */
static bool can_be_activations(enum gc_dtype asked)
{
    if (asked == GC_DTYPE_NONE)
        return false;
    const struct gc_dtype_info *info = gc_dtype_get_info(asked);
    return info->kind == GC_DTYPE_CLASS_FLOAT && info->block_elements == 1;
}

/* The configuration's type, else that of most weights, if one computes in it. */
static enum gc_dtype own_dtype(const struct gc_estimator *estimator)
{
    const char *word = estimator->arch.dtype;
    const enum gc_dtype told = gc_dtype_from_word(word, strlen(word));
    if (word[0] != '\0' && can_be_activations(told))
        return told;
    return is_computed_in(estimator->main_dtype) ? estimator->main_dtype : GC_DTYPE_NONE;
}

#define DTYPE_PARTS                                                                                \
    (1U << GC_ESTIMATE_state | 1U << GC_ESTIMATE_activation | 1U << GC_ESTIMATE_attention_workspace)

static void set_dtype(const struct gc_estimator *estimator, enum gc_dtype asked,
                      struct gc_estimate *estimate)
{
    const bool is_taken = can_be_activations(asked) && estimator->graph == NULL;
    estimate->dtype = asked;
    if (!is_taken)
        estimate->dtype = estimator->is_gguf ? GC_DTYPE_F32 : own_dtype(estimator);
    if (!estimator->has_layers || is_taken)
        return;
    if (asked != GC_DTYPE_NONE && estimate->dtype != GC_DTYPE_NONE) {
        gc_notes_add(&estimate->notes, "one does not compute in ", gc_dtype_name(asked),
                     ": activations are taken as ", gc_dtype_name(estimate->dtype), NULL);
    } else if (estimator->is_gguf) {
        gc_notes_add(&estimate->notes,
                     "activations are taken as f32, as llama.cpp computes them; --dtype names "
                     "another type",
                     NULL);
    } else if (estimate->dtype == GC_DTYPE_NONE) {
        estimate->unknown_parts |= DTYPE_PARTS;
        gc_notes_add(&estimate->notes,
                     "the type of activations is not told: they are not counted; --dtype names one",
                     NULL);
    }
}

static void set_kv_dtype(const struct gc_estimator *estimator,
                         const struct gc_estimate_request *request, enum gc_dtype asked,
                         struct gc_estimate *estimate)
{
    estimate->kv_dtype = request->kv_dtype != GC_DTYPE_NONE ? request->kv_dtype : asked;
    if (estimate->kv_dtype != GC_DTYPE_NONE) {
        if (request->kv_dtype == GC_DTYPE_NONE && estimator->has_layers &&
            !can_be_activations(asked))
            gc_notes_add(&estimate->notes, "keys and values are taken as ", gc_dtype_name(asked),
                         ", as the weights are; --kv-dtype names another type", NULL);
        return;
    }
    estimate->kv_dtype = estimator->is_gguf ? GC_DTYPE_F16 : own_dtype(estimator);
    if (!estimator->has_layers)
        return;
    if (estimator->is_gguf) {
        gc_notes_add(&estimate->notes,
                     "keys and values are taken as f16, as llama.cpp keeps them; --kv-dtype names "
                     "another type",
                     NULL);
    } else if (estimate->kv_dtype == GC_DTYPE_NONE) {
        estimate->unknown_parts |= 1U << GC_ESTIMATE_kv_cache;
        gc_notes_add(&estimate->notes,
                     "the type of keys and values is not told: they are not counted; --kv-dtype "
                     "names one",
                     NULL);
    }
}

void gc_estimate_dtypes(const struct gc_estimator *estimator,
                        const struct gc_estimate_request *request, struct gc_estimate *estimate)
{
    const enum gc_dtype asked =
        request->dtype != GC_DTYPE_NONE ? request->dtype : estimator->weight_dtype;
    set_dtype(estimator, asked, estimate);
    set_kv_dtype(estimator, request, asked, estimate);
}
