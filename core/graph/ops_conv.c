/* Convolutions: the output has the batch of the data, the filters of the weight and what the window
 * makes of each spatial dimension. */
#include "core/graph/ops_util.h"
#include "core/graph/window.h"

/* The rank of data and weight, whichever is known; 0 if neither is. */
static enum gc_status common_rank(struct gc_infer *infer, uint32_t data, uint32_t weight,
                                  uint32_t *rank)
{
    const struct gc_shape *x = gc_infer_shape(infer, data);
    const struct gc_shape *w = gc_infer_shape(infer, weight);
    enum gc_status status = gc_infer_want_rank(infer, data, 3, GC_GRAPH_RANK_MAX);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, weight, 3, GC_GRAPH_RANK_MAX);
    *rank = x->is_known ? x->rank : w->rank;
    if (status == GC_OK && x->is_known && w->is_known && x->rank != w->rank)
        status = gc_infer_fail(infer, "data has %u dimensions and the weight %u", x->rank, w->rank);
    return status;
}

static enum gc_status convolve(struct gc_infer *infer, uint32_t data, uint32_t weight)
{
    const struct gc_shape *x = gc_infer_shape(infer, data);
    const struct gc_shape *w = gc_infer_shape(infer, weight);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_window window;
    uint32_t rank;
    enum gc_status status = common_rank(infer, data, weight, &rank);
    if (status != GC_OK || rank == 0)
        return status;
    status = gc_window_read(infer, rank - 2, w, 2, &window);
    dims[0] = gc_shape_dim(x, 0);
    dims[1] = gc_shape_dim(w, 0);
    for (uint32_t i = 2; status == GC_OK && i < rank; i++)
        status = gc_window_slide(infer, &window, i - 2, gc_shape_dim(x, i), false, &dims[i]);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, rank);
}

enum gc_status gc_rule_conv(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : convolve(infer, 0, 1);
}

enum gc_status gc_rule_conv_integer(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0, GC_DTYPE_I32);
    return convolve(infer, 0, 1);
}

/* Inputs: x, its scale and zero point, w, its scale and zero point, y's scale and zero point. */
enum gc_status gc_rule_qlinear_conv(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 7);
    return status != GC_OK ? status : convolve(infer, 0, 3);
}

/* output_padding and output_shape, a number for each spatial dimension, or NULL. */
static enum gc_status read_sizes(struct gc_infer *infer, const char *name, uint32_t rank,
                                 const int64_t **sizes)
{
    uint32_t count;
    if (!gc_infer_ints(infer, name, sizes, &count))
        return GC_OK;
    if (count != rank)
        return gc_infer_fail(infer, "%s has %u numbers; %u are accepted", name, count, rank);
    for (uint32_t i = 0; i < rank; i++) {
        if ((*sizes)[i] < 0 || (*sizes)[i] > INT32_MAX)
            return gc_infer_fail(infer, "%s has %lld; 0 to %d are accepted", name,
                                 (long long)(*sizes)[i], INT32_MAX);
    }
    return GC_OK;
}

static enum gc_status spread(struct gc_infer *infer, const struct gc_shape *x,
                             const struct gc_shape *w, struct gc_dim *dims, uint32_t rank)
{
    const int64_t *padding = NULL;
    const int64_t *sizes = NULL;
    struct gc_window window;
    enum gc_status status = gc_window_read(infer, rank - 2, w, 2, &window);
    if (status == GC_OK)
        status = read_sizes(infer, "output_padding", rank - 2, &padding);
    if (status == GC_OK)
        status = read_sizes(infer, "output_shape", rank - 2, &sizes);
    for (uint32_t i = 0; status == GC_OK && i < rank - 2; i++) {
        if (sizes != NULL)
            dims[2 + i] = gc_dim_number(sizes[i]);
        else
            status = gc_window_spread(infer, &window, i, gc_shape_dim(x, 2 + i),
                                      padding != NULL ? padding[i] : 0, &dims[2 + i]);
    }
    return status;
}

enum gc_status gc_rule_conv_transpose(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *w = gc_infer_shape(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    int64_t group = 1;
    uint32_t rank = 0;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = common_rank(infer, 0, 1, &rank);
    if (status == GC_OK)
        status = gc_infer_int_within(infer, "group", 1, 1, INT32_MAX, &group);
    if (status != GC_OK || rank == 0)
        return status;
    dims[0] = gc_shape_dim(x, 0);
    dims[1] = gc_dim_mul(gc_shape_dim(w, 1), gc_dim_number(group));
    status = spread(infer, x, w, dims, rank);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, rank);
}
