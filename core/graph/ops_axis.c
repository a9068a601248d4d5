/* Operators that work along one axis: normalised exponentials, places of extremes, the largest
 * ones, pieces. */
#include "core/graph/ops_util.h"

/* The axis of an input whose rank is known; the default depends on the opset. */
static enum gc_status read_axis(struct gc_infer *infer, int64_t fallback, uint32_t rank,
                                uint32_t *axis)
{
    return gc_infer_axis(infer, gc_infer_int(infer, "axis", fallback), rank, axis);
}

/* The shape stays; only the axis can be wrong. Before opset 13 the data was flattened to a matrix
 * there, at axis 1 by default. */
enum gc_status gc_rule_softmax(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const int64_t fallback = gc_infer_opset(infer) < 13 && x->rank != 1 ? 1 : -1;
    enum gc_status status = GC_OK;
    uint32_t axis;
    if (x->is_known && x->rank > 0)
        status = read_axis(infer, fallback, x->rank, &axis);
    return status != GC_OK ? status : gc_infer_pass(infer, 0, 0);
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

/* How many are wanted: an attribute before opset 10. */
static struct gc_dim topk_count(const struct gc_infer *infer)
{
    if (gc_infer_opset(infer) < 10)
        return gc_dim_number(gc_infer_int(infer, "k", -1));
    const struct gc_dim *items = gc_infer_items(infer, 1, 1);
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
    bool has_sizes;            /* they are given, known or not */
    const int64_t *attribute;  /* before opset 13 */
    const struct gc_dim *data; /* since */
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
    return gc_infer_merge_dim(infer, "the sum of the sizes and the dimension", sum, whole, &merged);
}

/* Of a vector whose elements are known a piece's are. */
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
