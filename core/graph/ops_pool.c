/* Pools: batch and channels stay, the window makes the rest. */
#include "core/graph/ops_util.h"
#include "core/graph/window.h"

static enum gc_status slide_all(struct gc_infer *infer, const struct gc_shape *x, uint32_t first,
                                struct gc_dim *dims)
{
    const bool round_up = gc_infer_int(infer, "ceil_mode", 0) != 0;
    struct gc_window window;
    enum gc_status status = gc_window_read(infer, x->rank - 2, NULL, 0, &window);
    for (uint32_t i = 0; status == GC_OK && i < x->rank - 2; i++)
        status = gc_window_slide(infer, &window, i, x->dims[first + i], round_up, &dims[first + i]);
    return status;
}

/* Without a dtype: the contrib domain's pools of quantised data have the same shapes. */
static enum gc_status pool(struct gc_infer *infer, uint32_t first)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    gc_infer_set_dtype(infer, 1, GC_DTYPE_I64);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 3, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    gc_shape_copy(x, dims);
    status = slide_all(infer, x, first, dims);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, dims, x->rank);
    if (status == GC_OK && gc_infer_has_output(infer, 1))
        status = gc_infer_set_shape(infer, 1, dims, x->rank);
    return status;
}

/* MaxPool's second output is the indices. */
enum gc_status gc_rule_pool(struct gc_infer *infer)
{
    return pool(infer, 2);
}

/* The contrib domain's, with the channels last if it says so. */
enum gc_status gc_rule_pool_nhwc(struct gc_infer *infer)
{
    return pool(infer, 1);
}

enum gc_status gc_rule_qlinear_pool(struct gc_infer *infer)
{
    return pool(infer, gc_infer_int(infer, "channels_last", 0) != 0 ? 1 : 2);
}

static enum gc_status global_pool(struct gc_infer *infer, uint32_t first)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 2, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    gc_shape_copy(x, dims);
    for (uint32_t i = 0; i < x->rank - 2; i++)
        dims[first + i] = gc_dim_number(1);
    return gc_infer_set_shape(infer, 0, dims, x->rank);
}

enum gc_status gc_rule_global_pool(struct gc_infer *infer)
{
    return global_pool(infer, 2);
}

enum gc_status gc_rule_qlinear_global_pool(struct gc_infer *infer)
{
    return global_pool(infer, gc_infer_int(infer, "channels_last", 0) != 0 ? 1 : 2);
}

/* Data and the places it came from, of one shape; the third input, where there is one, is the shape
 * of the output. */
enum gc_status gc_rule_max_unpool(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_window window;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 3, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    if (gc_infer_has_input(infer, 2)) {
        const struct gc_dim *items = gc_infer_items(infer, 2, x->rank);
        return items == NULL ? gc_infer_set_open(infer, 0, x->rank)
                             : gc_infer_set_shape(infer, 0, items, x->rank);
    }
    status = gc_window_read(infer, x->rank - 2, NULL, 0, &window);
    for (uint32_t i = 0; status == GC_OK && i < x->rank; i++) {
        status = gc_infer_merge_dim(infer, "data and indices", x->dims[i],
                                    gc_shape_dim(gc_infer_shape(infer, 1), i), &dims[i]);
        if (status == GC_OK && i >= 2)
            status = gc_window_spread(infer, &window, i - 2, dims[i], 0, &dims[i]);
    }
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* A region of interest each: boxes are the rows of input 1; RoiAlign's input 2 says of which image
 * each is. */
static enum gc_status set_regions(struct gc_infer *infer, const struct gc_dim *sizes)
{
    struct gc_dim dims[] = {gc_dim_unknown(), gc_shape_dim(gc_infer_shape(infer, 0), 1), sizes[0],
                            sizes[1]};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 4, 4);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 1, 2, 2);
    if (status == GC_OK)
        status = gc_infer_merge_dim(infer, "the regions", gc_shape_dim(gc_infer_shape(infer, 1), 0),
                                    gc_shape_dim(gc_infer_shape(infer, 2), 0), &dims[0]);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, 4);
}

enum gc_status gc_rule_roi_align(struct gc_infer *infer)
{
    const struct gc_dim sizes[] = {gc_dim_number(gc_infer_int(infer, "output_height", 1)),
                                   gc_dim_number(gc_infer_int(infer, "output_width", 1))};
    return set_regions(infer, sizes);
}

enum gc_status gc_rule_max_roi_pool(struct gc_infer *infer)
{
    const int64_t *pooled;
    uint32_t count;
    if (!gc_infer_ints(infer, "pooled_shape", &pooled, &count) || count != 2)
        return gc_infer_fail(infer, "pooled_shape has not two numbers");
    const struct gc_dim sizes[] = {gc_dim_number(pooled[0]), gc_dim_number(pooled[1])};
    return set_regions(infer, sizes);
}
