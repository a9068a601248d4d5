/* Operators that move elements about: another order, more of them at the edges, copies, blocks. */
#include "core/graph/ops_util.h"

/* ---- Transpose ---- */

static enum gc_status read_order(struct gc_infer *infer, uint32_t rank, uint32_t *order)
{
    const int64_t *perm;
    bool is_taken[GC_GRAPH_RANK_MAX] = {false};
    uint32_t count;
    for (uint32_t i = 0; i < rank; i++)
        order[i] = rank - 1 - i;
    if (!gc_infer_ints(infer, "perm", &perm, &count))
        return GC_OK;
    if (count != rank)
        return gc_infer_fail(infer, "perm has %u numbers for %u dimensions", count, rank);
    for (uint32_t i = 0; i < rank; i++) {
        const enum gc_status status = gc_infer_axis(infer, perm[i], rank, &order[i]);
        if (status != GC_OK)
            return status;
        if (is_taken[order[i]])
            return gc_infer_fail(infer, "perm names dimension %u twice", order[i]);
        is_taken[order[i]] = true;
    }
    return GC_OK;
}

/* Content of at most GC_GRAPH_DATA_MAX elements, so the sizes are small where there is any. */
static enum gc_status transpose_data(struct gc_infer *infer, const struct gc_shape *x,
                                     const uint32_t *order)
{
    const struct gc_data *data = gc_infer_data(infer, 0);
    uint64_t step[GC_GRAPH_RANK_MAX];
    uint64_t stride = 1;
    if (data == NULL || data->count == 0)
        return GC_OK;
    struct gc_dim *moved = gc_infer_scratch(infer, data->count);
    if (moved == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = x->rank; i-- > 0;) {
        if (x->dims[i].kind != GC_DIM_NUMBER)
            return GC_OK;
        step[i] = stride;
        stride *= (uint64_t)x->dims[i].number;
    }
    if (stride != data->count)
        return GC_OK;
    for (uint32_t to = 0; to < data->count; to++) {
        uint64_t rest = to;
        uint64_t from = 0;
        for (uint32_t i = x->rank; i-- > 0;) {
            const uint64_t size = (uint64_t)x->dims[order[i]].number;
            from += rest % size * step[order[i]];
            rest /= size;
        }
        moved[to] = data->items[from];
    }
    return gc_infer_set_data(infer, 0, moved, data->count);
}

enum gc_status gc_rule_transpose(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t order[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK && x->is_known)
        status = read_order(infer, x->rank, order);
    if (status != GC_OK || !x->is_known)
        return status;
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i] = x->dims[order[i]];
    status = gc_infer_set_shape(infer, 0, dims, x->rank);
    return status != GC_OK ? status : transpose_data(infer, x, order);
}

/* ---- Pad ---- */

/* What is added before dimension `axes[i]`, and at `count + i` behind it. */
static enum gc_status pad_dims(struct gc_infer *infer, const struct gc_axes *axes,
                               const struct gc_dim *pads, struct gc_dim *dims)
{
    for (uint32_t i = 0; i < axes->count; i++) {
        struct gc_dim *dim = &dims[axes->list[i]];
        const struct gc_dim old = *dim;
        *dim = gc_dim_add(gc_dim_add(old, pads[i]), pads[axes->count + i]);
        if (dim->kind == GC_DIM_NUMBER && dim->number < 0)
            return gc_infer_fail(infer, "pads leave %lld of dimension %u", (long long)dim->number,
                                 axes->list[i]);
    }
    return GC_OK;
}

static enum gc_status pad_by_attribute(struct gc_infer *infer, const struct gc_shape *x,
                                       const struct gc_axes *axes)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_dim pads[2 * GC_GRAPH_RANK_MAX] = {gc_dim_unknown()};
    const int64_t *list;
    uint32_t count;
    if (!gc_infer_ints(infer, "pads", &list, &count) || count != 2 * x->rank)
        return gc_infer_fail(infer, "pads has not two numbers for each of %u dimensions", x->rank);
    for (uint32_t i = 0; i < count; i++)
        pads[i] = gc_dim_number(list[i]);
    gc_shape_copy(x, dims);
    const enum gc_status status = pad_dims(infer, axes, pads, dims);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

static enum gc_status pad_by_input(struct gc_infer *infer, const struct gc_shape *x,
                                   const struct gc_axes *axes)
{
    const struct gc_data *pads = gc_infer_data(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX] = {gc_dim_unknown()};
    if (pads == NULL)
        return gc_infer_set_open(infer, 0, x->rank);
    if (pads->count != 2 * axes->count)
        return gc_infer_fail(infer, "%u pads for %u dimensions", pads->count, axes->count);
    gc_shape_copy(x, dims);
    const enum gc_status status = pad_dims(infer, axes, pads->items, dims);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

enum gc_status gc_rule_pad(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_axes axes = {.is_given = false};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !x->is_known)
        return status;
    if (gc_infer_has_input(infer, 3))
        status = gc_infer_axes(infer, NULL, 3, x->rank, &axes);
    if (status != GC_OK)
        return status;
    if (axes.is_given && !axes.is_known)
        return gc_infer_set_open(infer, 0, x->rank);
    if (!axes.is_given) {
        axes.count = x->rank;
        for (uint32_t i = 0; i < x->rank; i++)
            axes.list[i] = i;
    }
    return gc_infer_opset(infer) < 11 ? pad_by_attribute(infer, x, &axes)
                                      : pad_by_input(infer, x, &axes);
}

/* ---- the others ---- */

enum gc_status gc_rule_tile(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_data *repeats = gc_infer_data(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !x->is_known)
        return status;
    if (repeats == NULL)
        return gc_infer_set_open(infer, 0, x->rank);
    if (repeats->count != x->rank)
        return gc_infer_fail(infer, "%u repeats for %u dimensions", repeats->count, x->rank);
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i] = gc_dim_mul(x->dims[i], repeats->items[i]);
    return gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* Blocks of the two spatial dimensions into the channels or out of them. */
static enum gc_status move_blocks(struct gc_infer *infer, bool into_channels)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    int64_t block;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_int_within(infer, "blocksize", 0, 1, INT32_MAX, &block);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 4, 4);
    if (status != GC_OK)
        return status;
    const struct gc_dim side = gc_dim_number(block);
    const struct gc_dim area = gc_dim_number(block * block);
    struct gc_dim dims[] = {gc_shape_dim(x, 0), gc_shape_dim(x, 1), gc_shape_dim(x, 2),
                            gc_shape_dim(x, 3)};
    for (uint32_t i = 1; i < 4; i++) {
        const struct gc_dim factor = i == 1 ? area : side;
        if (into_channels == (i == 1)) {
            dims[i] = gc_dim_mul(dims[i], factor);
            continue;
        }
        if (dims[i].kind == GC_DIM_NUMBER && dims[i].number % factor.number != 0)
            return gc_infer_fail(infer, "dimension %u, %lld, is no multiple of %lld", i,
                                 (long long)dims[i].number, (long long)factor.number);
        dims[i] = gc_dim_div(dims[i], factor);
    }
    return gc_infer_set_shape(infer, 0, dims, 4);
}

enum gc_status gc_rule_depth_to_space(struct gc_infer *infer)
{
    return move_blocks(infer, false);
}

enum gc_status gc_rule_space_to_depth(struct gc_infer *infer)
{
    return move_blocks(infer, true);
}

/* Axes, all by default, become what the second input says. */
enum gc_status gc_rule_center_crop_pad(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_data *sizes = gc_infer_data(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_axes axes;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK && x->is_known)
        status = gc_infer_axes(infer, "axes", GC_GRAPH_NONE, x->rank, &axes);
    if (status != GC_OK || !x->is_known)
        return status;
    const uint32_t count = axes.is_given ? axes.count : x->rank;
    if (sizes != NULL && sizes->count != count)
        return gc_infer_fail(infer, "%u sizes for %u dimensions", sizes->count, count);
    gc_shape_copy(x, dims);
    for (uint32_t i = 0; i < count; i++)
        dims[axes.is_given ? axes.list[i] : i] = sizes != NULL ? sizes->items[i] : gc_dim_unknown();
    return gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* [N, C * block, L] and an image's and a block's sizes: [N, C, image…]. */
enum gc_status gc_rule_col2im(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_data *block = gc_infer_data(infer, 2);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_dim count = gc_dim_unknown();
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 3, 3);
    if (status == GC_OK)
        status = gc_infer_merge_dim(infer, "the numbers of image and block",
                                    gc_shape_dim(gc_infer_shape(infer, 1), 0),
                                    gc_shape_dim(gc_infer_shape(infer, 2), 0), &count);
    if (status != GC_OK || count.kind != GC_DIM_NUMBER)
        return status;
    if (count.number > GC_GRAPH_RANK_MAX - 2)
        return gc_infer_fail(infer, "an image of %lld dimensions", (long long)count.number);
    const uint32_t rank = (uint32_t)count.number;
    const struct gc_dim *image = gc_infer_items(infer, 1, rank);
    dims[0] = gc_shape_dim(x, 0);
    dims[1] = gc_dim_unknown();
    if (block != NULL)
        dims[1] = gc_dim_div(gc_shape_dim(x, 1), gc_dim_product(block->items, 0, block->count));
    for (uint32_t i = 0; i < rank; i++)
        dims[2 + i] = image != NULL ? image[i] : gc_dim_unknown();
    return gc_infer_set_shape(infer, 0, dims, 2 + rank);
}
