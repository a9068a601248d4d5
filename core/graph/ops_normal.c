/* Normalisation: the data's shape, and statistics of it where they are asked for. */
#include "core/graph/ops_util.h"

#include <string.h>

/* Outputs 1… of BatchNormalization are one number for each channel: mean and variance; before opset
 * 14 also those that training keeps. */
enum gc_status gc_rule_batch_normalization(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim channels = gc_shape_dim(x, 1);
    enum gc_status status = gc_infer_pass(infer, 0, 0);
    if (x->is_known && x->rank == 1)
        channels = gc_dim_number(1);
    for (uint32_t i = 1; i < 5 && status == GC_OK; i++)
        status = gc_infer_merge_dim(infer, "the channels",
                                    gc_shape_dim(gc_infer_shape(infer, i), 0), channels, &channels);
    for (uint32_t i = 1; i < 5 && status == GC_OK; i++) {
        status = gc_infer_pass_dtype(infer, i, i % 2 == 1 ? 3 : 4);
        if (status == GC_OK)
            status = gc_infer_set_shape(infer, i, &channels, 1);
    }
    return status;
}

/* The statistics, outputs `first`…last, have the normalised dimensions as 1. */
static enum gc_status set_statistics(struct gc_infer *infer, uint32_t first, uint32_t last)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const enum gc_dtype dtype = gc_infer_dtype_attribute(infer, "stash_type", GC_DTYPE_F32);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t axis;
    enum gc_status status = gc_infer_pass(infer, 0, 0);
    for (uint32_t i = first; i <= last; i++)
        gc_infer_set_dtype(infer, i, dtype);
    if (status != GC_OK || !x->is_known)
        return status;
    status = gc_infer_axis(infer, gc_infer_int(infer, "axis", -1), x->rank, &axis);
    if (status != GC_OK)
        return status;
    gc_shape_copy(x, dims);
    for (uint32_t i = axis; i < x->rank; i++)
        dims[i] = gc_dim_number(1);
    for (uint32_t i = first; i <= last && status == GC_OK; i++)
        status = gc_infer_set_shape(infer, i, dims, x->rank);
    return status;
}

/* Output 1 is the mean, 2 the inverse of the deviation; of RMSNormalization and the contrib
 * domain's SimplifiedLayerNormalization only the latter. */
enum gc_status gc_rule_layer_normalization(struct gc_infer *infer)
{
    return set_statistics(infer, 1, 2);
}

enum gc_status gc_rule_rms_normalization(struct gc_infer *infer)
{
    return set_statistics(infer, 1, 1);
}

/* The contrib domain's SkipLayerNormalization: data, what is added to it; outputs: the result, mean
 * and inverse deviation over the last dimension, the sum that was normalised. */
enum gc_status gc_rule_skip_layer_normalization(struct gc_infer *infer)
{
    enum gc_status status = set_statistics(infer, 1, 2);
    if (status == GC_OK)
        status = gc_infer_pass(infer, 3, 0);
    return status;
}

/* ---- losses ---- */

/* Scores [batch, class, …] and targets [batch, …]: a loss for each target, or one of all. */
enum gc_status gc_rule_loss(struct gc_infer *infer)
{
    const struct gc_shape *scores = gc_infer_shape(infer, 0);
    const struct gc_shape *targets = gc_infer_shape(infer, 1);
    const char *reduction = gc_infer_text(infer, "reduction", "mean");
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK)
        return status;
    if (strcmp(reduction, "none") != 0)
        return gc_infer_set_scalar(infer, 0, gc_infer_dtype(infer, 0));
    if (!targets->is_known || targets->rank == GC_GRAPH_RANK_MAX)
        return GC_OK;
    status = gc_infer_want_rank(infer, 0, targets->rank + 1, targets->rank + 1);
    for (uint32_t i = 0; i < targets->rank && status == GC_OK; i++)
        status = gc_infer_merge_dim(infer, "dimensions of scores and targets",
                                    gc_shape_dim(scores, i == 0 ? 0 : i + 1), targets->dims[i],
                                    &dims[i]);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, targets->rank);
}

/* Output 1: the logarithms of the probabilities. */
enum gc_status gc_rule_cross_entropy_loss(struct gc_infer *infer)
{
    const enum gc_status status = gc_rule_loss(infer);
    return status != GC_OK ? status : gc_infer_pass(infer, 1, 0);
}
