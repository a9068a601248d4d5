/* Element by element, or nearly: operators whose output has the shape of an input or of the
 * broadcast of several. */
#include "core/graph/ops_util.h"

/* SwiGLU: a gate and what it lets through, of one shape. */
enum gc_status gc_rule_gate(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : gc_infer_merge_inputs(infer);
}

/* The same bits as another type of as many. */
enum gc_status gc_rule_bit_cast(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "to", GC_DTYPE_NONE));
    return gc_infer_pass_shape(infer, 0, 0);
}

/* Bitwise*, BitShift, Mean, Sum: all inputs broadcast. Before opset 8 they did not. */
enum gc_status gc_rule_broadcast(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK)
        return status;
    if (gc_infer_opset(infer) < 8)
        return gc_infer_merge_inputs(infer);
    return gc_infer_broadcast_inputs(infer, 0, gc_infer_input_count(infer), 0);
}

/* IsNaN, IsInf, RegexFullMatch. */
enum gc_status gc_rule_test(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0, GC_DTYPE_BOOL);
    return gc_infer_pass_shape(infer, 0, 0);
}

/* Output 1 is the mask: of the data's type before ONNX's opset 10. */
enum gc_status gc_rule_dropout(struct gc_infer *infer)
{
    const bool is_old = gc_infer_node(infer)->domain[0] == '\0' && gc_infer_opset(infer) < 10;
    enum gc_status status = gc_infer_pass(infer, 0, 0);
    if (is_old && status == GC_OK)
        status = gc_infer_pass_dtype(infer, 1, 0);
    else
        gc_infer_set_dtype(infer, 1, GC_DTYPE_BOOL);
    return status != GC_OK ? status : gc_infer_pass_shape(infer, 1, 0);
}

/* ---- texts ---- */

/* A text for each that is left: at most as many as there were. */
enum gc_status gc_rule_string_normalizer(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    gc_infer_set_dtype(infer, 0, GC_DTYPE_TEXT);
    const enum gc_status status = gc_infer_want_rank(infer, 0, 1, 2);
    if (status != GC_OK || !x->is_known)
        return status;
    const struct gc_dim dims[] = {gc_dim_number(1), gc_dim_unknown()};
    return x->rank == 2 ? gc_infer_set_shape(infer, 0, dims, 2) : gc_infer_set_open(infer, 0, 1);
}

/* The pieces in one more dimension, and how many each text has. */
enum gc_status gc_rule_string_split(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX + 1];
    gc_infer_set_dtype(infer, 0, GC_DTYPE_TEXT);
    gc_infer_set_dtype(infer, 1, GC_DTYPE_I64);
    if (!x->is_known)
        return GC_OK;
    gc_shape_copy(x, dims);
    dims[x->rank] = gc_dim_unknown();
    const enum gc_status status = gc_infer_set_shape(infer, 0, dims, x->rank + 1);
    return status != GC_OK ? status : gc_infer_pass_shape(infer, 1, 0);
}

/* A column for each n-gram: one more than the largest index. */
enum gc_status gc_rule_tf_idf(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const int64_t *indexes;
    uint32_t count;
    int64_t largest = -1;
    gc_infer_set_dtype(infer, 0, GC_DTYPE_F32);
    const enum gc_status status = gc_infer_want_rank(infer, 0, 1, 2);
    if (status != GC_OK || !x->is_known)
        return status;
    if (!gc_infer_ints(infer, "ngram_indexes", &indexes, &count))
        return gc_infer_set_open(infer, 0, x->rank);
    for (uint32_t i = 0; i < count; i++)
        largest = indexes[i] > largest ? indexes[i] : largest;
    const struct gc_dim columns = gc_dim_add(gc_dim_number(largest), gc_dim_number(1));
    const struct gc_dim dims[] = {x->rank == 2 ? x->dims[0] : columns, columns};
    return gc_infer_set_shape(infer, 0, dims, x->rank);
}
