/* Operators of the contrib domain, com.microsoft, that are no attention and no product: what
 * optimisers and quantisers put into a graph.
 * Source: onnxruntime/docs/ContribOperators.md. */
#include "core/graph/ops_util.h"

/* Inputs: tokens [batch, length], segments, three tables, scale, bias, mask. Outputs: the embedded
 * [batch, length, width], how long each mask is, the sum before normalisation. */
enum gc_status gc_rule_embed_layer_normalization(struct gc_infer *infer)
{
    const struct gc_shape *tokens = gc_infer_shape(infer, 0);
    struct gc_dim dims[] = {gc_shape_dim(tokens, 0), gc_shape_dim(tokens, 1),
                            gc_shape_dim(gc_infer_shape(infer, 2), 1)};
    enum gc_status status = gc_infer_want_rank(infer, 0, 2, 2);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 0, 2);
    if (status == GC_OK)
        status = gc_infer_pass_dtype(infer, 2, 2);
    gc_infer_set_dtype(infer, 1, GC_DTYPE_I32);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, dims, 3);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 2, dims, 3);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 1, dims, 1);
}

/* Inputs: a, its scale and zero point, b, its scale and zero point, the result's. */
enum gc_status gc_rule_qlinear_broadcast(struct gc_infer *infer)
{
    const struct gc_shape *a = gc_infer_shape(infer, 0);
    const struct gc_shape *b = gc_infer_shape(infer, 3);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t rank;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !a->is_known || !b->is_known)
        return status;
    status = gc_infer_broadcast(infer, a, b, dims, &rank);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, rank);
}

/* Inputs: the result's scale and zero point, then data, scale and zero point of each part. */
enum gc_status gc_rule_qlinear_concat(struct gc_infer *infer)
{
    const struct gc_shape *first = gc_infer_shape(infer, 2);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t axis;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 2);
    if (status != GC_OK || !first->is_known)
        return status;
    status = gc_infer_axis(infer, gc_infer_int(infer, "axis", 0), first->rank, &axis);
    gc_shape_copy(first, dims);
    for (uint32_t i = 5; i < gc_infer_input_count(infer) && status == GC_OK; i += 3) {
        const struct gc_shape *part = gc_infer_shape(infer, i);
        if (part->is_known && part->rank != first->rank)
            return gc_infer_fail(infer, "parts of %u and %u dimensions", first->rank, part->rank);
        for (uint32_t j = 0; j < first->rank && status == GC_OK; j++) {
            if (j != axis)
                status = gc_infer_merge_dim(infer, "the parts' dimensions", dims[j],
                                            gc_shape_dim(part, j), &dims[j]);
        }
        dims[axis] = gc_dim_add(dims[axis], gc_shape_dim(part, axis));
    }
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, first->rank);
}

/* BiasSplitGelu: the last dimension is halved. */
enum gc_status gc_rule_split_gelu(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX] = {gc_dim_unknown()};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 1, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    const uint32_t last = gc_shape_copy(x, dims) - 1;
    dims[last] = gc_dim_div(dims[last], gc_dim_number(2));
    return gc_infer_set_shape(infer, 0, dims, last + 1);
}

/* SkipGroupNorm: the result and the sum that was normalised. */
enum gc_status gc_rule_same_twice(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass(infer, 0, 0);
    return status != GC_OK ? status : gc_infer_pass(infer, 1, 0);
}

/* Table [buckets, heads], lengths of query and key: [1, heads, query, key]. */
enum gc_status gc_rule_relative_position_bias(struct gc_infer *infer)
{
    const struct gc_dim *query = gc_infer_items(infer, 1, 1);
    const struct gc_dim *key = gc_infer_items(infer, 2, 1);
    const struct gc_dim dims[] = {gc_dim_number(1), gc_shape_dim(gc_infer_shape(infer, 0), 1),
                                  query != NULL ? *query : gc_dim_unknown(),
                                  key != NULL ? *key : gc_dim_unknown()};
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, 4);
}

/* GatherBlockQuantized: rows of a packed table, input 0, unpacked in the type of the scales,
 * input 2. In bytes the last dimension holds several elements each. */
enum gc_status gc_rule_gather_packed(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *index = gc_infer_shape(infer, 1);
    struct gc_dim dims[2 * GC_GRAPH_RANK_MAX];
    uint32_t rank = 0;
    uint32_t axis;
    int64_t bits;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 2);
    if (status == GC_OK)
        status = gc_infer_int_within(infer, "bits", 4, 1, 8, &bits);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 1, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known || !index->is_known ||
        gc_infer_dtype(infer, 0) == GC_DTYPE_NONE)
        return status;
    status = gc_infer_axis(infer, gc_infer_int(infer, "gather_axis", 0), x->rank, &axis);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i != axis) {
            dims[rank++] = x->dims[i];
            continue;
        }
        for (uint32_t j = 0; j < index->rank; j++)
            dims[rank++] = index->dims[j];
    }
    if (gc_infer_dtype(infer, 0) == GC_DTYPE_U8 && axis + 1 < x->rank)
        dims[rank - 1] = gc_dim_mul(dims[rank - 1], gc_dim_number(8 / bits));
    return gc_infer_set_shape(infer, 0, dims, rank);
}
