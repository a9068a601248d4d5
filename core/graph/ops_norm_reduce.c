/* Operators along axes: normalisation, reductions, softmax, ArgMax, TopK, Split. */
#include "core/graph/engine.h"
#include "core/graph/fold.h"
#include "core/graph/ops_util.h"

#include <string.h>

/* Outputs 1… of BatchNormalization are one number for each channel: mean and variance; before opset
 * 14 also those that training keeps. */
enum gc_status gc_rule_batch_normalization(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim channels = gc_shape_dim(x, 1);
    enum gc_status status = gc_ops_pass(infer, 0, 0);
    if (x->is_known && x->rank == 1)
        channels = gc_dim_number(1);
    for (uint32_t i = 1; i < 5 && status == GC_OK; i++)
        status = gc_dim_merge(infer, "the channels", gc_shape_dim(gc_infer_shape(infer, i), 0),
                              channels, &channels);
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
    enum gc_status status = gc_ops_pass(infer, 0, 0);
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

/* Output 1 is the mean, 2 the inverse deviation. RMSNormalization and the contrib domain's
 * SimplifiedLayerNormalization have no mean: the inverse deviation is their output 1. */
enum gc_status gc_rule_layer_normalization(struct gc_infer *infer)
{
    return set_statistics(infer, 1, 2);
}

enum gc_status gc_rule_rms_normalization(struct gc_infer *infer)
{
    return set_statistics(infer, 1, 1);
}

/* The contrib domain's SkipLayerNormalization. Inputs: data, the skip added to it. Outputs: the
 * result, mean and inverse deviation over the last dimension, the sum that was normalised. */
enum gc_status gc_rule_skip_layer_normalization(struct gc_infer *infer)
{
    enum gc_status status = set_statistics(infer, 1, 2);
    if (status == GC_OK)
        status = gc_ops_pass(infer, 3, 0);
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
        return gc_ops_set_scalar(infer, 0, gc_infer_dtype(infer, 0));
    if (!targets->is_known || targets->rank == GC_GRAPH_RANK_MAX)
        return GC_OK;
    status = gc_ops_want_rank(infer, 0, targets->rank + 1, targets->rank + 1);
    for (uint32_t i = 0; i < targets->rank && status == GC_OK; i++)
        status = gc_dim_merge(infer, "dimensions of scores and targets",
                              gc_shape_dim(scores, i == 0 ? 0 : i + 1), targets->dims[i], &dims[i]);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, targets->rank);
}

/* Output 1: the logarithms of the probabilities. */
enum gc_status gc_rule_cross_entropy_loss(struct gc_infer *infer)
{
    const enum gc_status status = gc_rule_loss(infer);
    return status != GC_OK ? status : gc_ops_pass(infer, 1, 0);
}

/* Reduce*: one element out of many along some axes. */

struct reduction {
    bool goes[GC_GRAPH_RANK_MAX];
    bool keeps;    /* reduced axes stay, as 1 */
    bool is_known; /* the reduced axes are known */
};

static enum gc_status read_axes(struct gc_infer *infer, const struct gc_shape *shape,
                                struct reduction *reduction)
{
    struct gc_axes axes;
    *reduction = (struct reduction){.keeps = gc_infer_int(infer, "keepdims", 1) != 0};
    const enum gc_status status = gc_infer_axes(infer, "axes", 1, shape->rank, &axes);
    if (status != GC_OK)
        return status;
    const bool is_all = !axes.is_given && gc_infer_int(infer, "noop_with_empty_axes", 0) == 0;
    reduction->is_known = axes.is_known;
    for (uint32_t i = 0; is_all && i < shape->rank; i++)
        reduction->goes[i] = true;
    for (uint32_t i = 0; axes.is_known && i < axes.count; i++)
        reduction->goes[axes.list[i]] = true;
    if (!axes.is_known && !reduction->keeps && axes.count > 0 && axes.count <= shape->rank)
        return gc_ops_set_open(infer, 0, shape->rank - axes.count);
    if (!axes.is_known && reduction->keeps)
        return gc_ops_set_open(infer, 0, shape->rank);
    return GC_OK;
}

/* The index in the output of element `index` of the input. */
static uint32_t place_of(const struct gc_shape *shape, const struct reduction *reduction,
                         uint32_t index)
{
    uint64_t place = 0;
    uint64_t stride = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        const uint32_t dim = (uint32_t)shape->dims[i].number;
        if (!reduction->goes[i]) {
            place += index % dim * stride;
            stride *= dim;
        }
        index /= dim;
    }
    return (uint32_t)place;
}

static enum gc_status reduce_content(struct gc_infer *infer, const struct reduction *reduction,
                                     gc_fold_combine *combine)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    const struct gc_data *data = gc_infer_data(infer, 0);
    bool has_one[GC_GRAPH_DATA_MAX] = {false};
    uint32_t count;
    if (!gc_fold_has_content(infer, 0) || !gc_fold_room(infer, 0, &count))
        return GC_OK;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t k = 0; k < data->count; k++) {
        const uint32_t place = place_of(shape, reduction, k);
        items[place] = has_one[place] ? combine(items[place], data->items[k]) : data->items[k];
        has_one[place] = true;
    }
    for (uint32_t k = 0; k < count; k++)
        items[k] = gc_fold_narrow(gc_infer_dtype(infer, 0), items[k]);
    return gc_infer_set_data(infer, 0, items, count);
}

static enum gc_status reduce(struct gc_infer *infer, gc_fold_combine *combine)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct reduction reduction;
    uint32_t rank = 0;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !shape->is_known)
        return status;
    status = read_axes(infer, shape, &reduction);
    if (status != GC_OK || !reduction.is_known)
        return status;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (!reduction.goes[i])
            dims[rank++] = shape->dims[i];
        else if (reduction.keeps)
            dims[rank++] = gc_dim_number(1);
    }
    status = gc_infer_set_shape(infer, 0, dims, rank);
    return status == GC_OK && combine != NULL ? reduce_content(infer, &reduction, combine) : status;
}

enum gc_status gc_rule_reduce(struct gc_infer *infer)
{
    return reduce(infer, NULL);
}

enum gc_status gc_rule_reduce_prod(struct gc_infer *infer)
{
    return reduce(infer, gc_fold_mul);
}

enum gc_status gc_rule_reduce_sum(struct gc_infer *infer)
{
    return reduce(infer, gc_fold_add);
}

enum gc_status gc_rule_reduce_max(struct gc_infer *infer)
{
    return reduce(infer, gc_fold_larger);
}

enum gc_status gc_rule_reduce_min(struct gc_infer *infer)
{
    return reduce(infer, gc_fold_smaller);
}

/* Operators that work along one axis: Softmax and its kin, ArgMax and ArgMin, TopK, Split. */

/* The axis of an input whose rank is known; the default depends on the opset. */
static enum gc_status read_axis(struct gc_infer *infer, int64_t fallback, uint32_t rank,
                                uint32_t *axis)
{
    return gc_infer_axis(infer, gc_infer_int(infer, "axis", fallback), rank, axis);
}

/* The shape stays; only the axis can be wrong. Before opset 13 the data was flattened to a matrix
 * at the axis, 1 by default. */
enum gc_status gc_rule_softmax(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const int64_t fallback = gc_infer_opset(infer) < 13 && x->rank != 1 ? 1 : -1;
    enum gc_status status = GC_OK;
    uint32_t axis;
    if (x->is_known && x->rank > 0)
        status = read_axis(infer, fallback, x->rank, &axis);
    return status != GC_OK ? status : gc_ops_pass(infer, 0, 0);
}

enum gc_status gc_rule_arg_extreme(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const bool keep = gc_infer_int(infer, "keepdims", 1) != 0;
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t rank = 0;
    uint32_t axis;
    gc_infer_set_dtype(infer, 0, GC_DTYPE_I64);
    if (!x->is_known)
        return GC_OK;
    const enum gc_status status = read_axis(infer, 0, x->rank, &axis);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i != axis)
            dims[rank++] = x->dims[i];
        else if (keep)
            dims[rank++] = gc_dim_number(1);
    }
    return gc_infer_set_shape(infer, 0, dims, rank);
}

/* TopK's k: an attribute before opset 10. */
static struct gc_dim topk_count(const struct gc_infer *infer)
{
    if (gc_infer_opset(infer) < 10)
        return gc_dim_number(gc_infer_int(infer, "k", -1));
    const struct gc_dim *items = gc_ops_items(infer, 1, 1);
    return items != NULL ? items[0] : gc_dim_unknown();
}

enum gc_status gc_rule_topk(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_dim count = topk_count(infer);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t axis;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    gc_infer_set_dtype(infer, 1, GC_DTYPE_I64);
    if (status != GC_OK || !x->is_known)
        return status;
    status = read_axis(infer, -1, x->rank, &axis);
    if (status != GC_OK)
        return status;
    gc_shape_copy(x, dims);
    if (count.kind == GC_DIM_NUMBER && dims[axis].kind == GC_DIM_NUMBER &&
        count.number > dims[axis].number)
        return gc_infer_fail(infer, "the largest %lld of %lld are asked for",
                             (long long)count.number, (long long)dims[axis].number);
    dims[axis] = count;
    status = gc_infer_set_shape(infer, 0, dims, x->rank);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 1, dims, x->rank);
}

/* ---- Split ---- */

struct split {
    uint32_t pieces;
    bool has_sizes;            /* sizes are given, known or not */
    const int64_t *attribute;  /* before opset 13 */
    const struct gc_dim *data; /* since opset 13 */
};

static enum gc_status read_split(struct gc_infer *infer, struct split *split)
{
    uint32_t count = 0;
    *split = (struct split){.pieces = gc_infer_output_count(infer)};
    if (gc_infer_opset(infer) < 13) {
        split->has_sizes = gc_infer_ints(infer, "split", &split->attribute, &count);
    } else if (gc_infer_has_input(infer, 1)) {
        const struct gc_data *data = gc_infer_data(infer, 1);
        split->has_sizes = true;
        split->data = data != NULL ? data->items : NULL;
        count = data != NULL ? data->count : split->pieces;
    } else if (gc_infer_int(infer, "num_outputs", split->pieces) != split->pieces) {
        return gc_infer_fail(infer, "num_outputs is not the number of its outputs, %u",
                             split->pieces);
    }
    if (split->has_sizes && count != split->pieces)
        return gc_infer_fail(infer, "%u sizes for %u outputs", count, split->pieces);
    return GC_OK;
}

/* Equal pieces; since opset 18 the last may be smaller. */
static enum gc_status equal_piece(struct gc_infer *infer, uint32_t pieces, uint32_t piece,
                                  struct gc_dim whole, struct gc_dim *size)
{
    const int64_t count = pieces;
    *size = pieces == 1 ? whole : gc_dim_unknown();
    if (pieces == 1 || whole.kind != GC_DIM_NUMBER)
        return GC_OK;
    if (gc_infer_opset(infer) < 18 && whole.number % count != 0)
        return gc_infer_fail(infer, "%lld in %lld equal pieces", (long long)whole.number,
                             (long long)count);
    const int64_t chunk = whole.number / count + (whole.number % count != 0);
    const bool is_last = piece + 1 == pieces;
    int64_t before;
    if (__builtin_mul_overflow(chunk, count - 1, &before) || before > whole.number)
        return gc_infer_fail(infer, "%lld in %lld pieces of %lld", (long long)whole.number,
                             (long long)count, (long long)chunk);
    *size = gc_dim_number(is_last ? whole.number - before : chunk);
    return GC_OK;
}

static struct gc_dim given_piece(const struct split *split, uint32_t piece)
{
    if (split->attribute != NULL)
        return gc_dim_number(split->attribute[piece]);
    return split->data != NULL ? split->data[piece] : gc_dim_unknown();
}

/* Given sizes must add up to the dimension, where all of them are known. */
static enum gc_status check_sum(struct gc_infer *infer, const struct split *split,
                                struct gc_dim whole)
{
    struct gc_dim sum = gc_dim_number(0);
    struct gc_dim merged;
    if (!split->has_sizes)
        return GC_OK;
    for (uint32_t i = 0; i < split->pieces; i++)
        sum = gc_dim_add(sum, given_piece(split, i));
    return gc_dim_merge(infer, "the sum of the sizes and the dimension", sum, whole, &merged);
}

/* If a vector's elements are known, so are its pieces'. */
static enum gc_status pass_elements(struct gc_infer *infer, uint32_t piece, struct gc_dim size,
                                    uint32_t *at)
{
    const struct gc_data *data = gc_infer_data(infer, 0);
    if (data == NULL || size.kind != GC_DIM_NUMBER || *at > data->count ||
        size.number > data->count - *at)
        return GC_OK;
    const uint32_t from = *at;
    *at += (uint32_t)size.number;
    return gc_infer_set_data(infer, piece, data->items + from, (uint32_t)size.number);
}

static enum gc_status cut(struct gc_infer *infer, const struct split *split,
                          const struct gc_shape *x, uint32_t axis)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t at = 0;
    enum gc_status status = check_sum(infer, split, x->dims[axis]);
    gc_shape_copy(x, dims);
    for (uint32_t i = 0; status == GC_OK && i < split->pieces; i++) {
        if (split->has_sizes)
            dims[axis] = given_piece(split, i);
        else
            status = equal_piece(infer, split->pieces, i, x->dims[axis], &dims[axis]);
        if (status == GC_OK)
            status = gc_infer_set_shape(infer, i, dims, x->rank);
        if (status == GC_OK && x->rank == 1)
            status = pass_elements(infer, i, dims[axis], &at);
    }
    return status;
}

enum gc_status gc_rule_split(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct split split;
    uint32_t axis;
    enum gc_status status = read_split(infer, &split);
    for (uint32_t i = 0; status == GC_OK && i < split.pieces; i++)
        status = gc_infer_pass_dtype(infer, i, 0);
    if (status != GC_OK || !x->is_known)
        return status;
    status = read_axis(infer, 0, x->rank, &axis);
    return status != GC_OK ? status : cut(infer, &split, x, axis);
}
