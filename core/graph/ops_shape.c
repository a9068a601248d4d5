/* Operators that move, repeat, pad, crop or overlay elements: Reshape, Flatten, Squeeze, Unsqueeze,
 * Transpose, Pad, Tile, CenterCropPad, Col2Im, DepthToSpace, SpaceToDepth. */
#include "core/graph/engine.h"
#include "core/graph/fold.h"
#include "core/graph/ops_util.h"

#include <string.h>

static enum gc_status set_view(struct gc_infer *infer, const struct gc_dim *dims, uint32_t rank)
{
    const enum gc_status status = gc_infer_set_shape(infer, 0, dims, rank);
    return status == GC_OK ? gc_infer_pass_data(infer, 0, 0) : status;
}

/* ---- Reshape ---- */

/* A product of dims, numbers apart from the others. */
struct product {
    struct gc_dim number;
    struct gc_dim others[GC_GRAPH_RANK_MAX];
    uint32_t count;
};

static void multiply(struct product *product, struct gc_dim dim)
{
    if (dim.kind == GC_DIM_NUMBER)
        product->number = gc_dim_mul(product->number, dim);
    else
        product->others[product->count++] = dim;
}

/* Removes the factor `dim`; false if the product lacks it. */
static bool divide_out(struct product *product, struct gc_dim dim)
{
    for (uint32_t i = 0; i < product->count; i++) {
        if (gc_dim_same(product->others[i], dim)) {
            product->others[i] = product->others[--product->count];
            return true;
        }
    }
    return false;
}

/* The quotient of `all` and `part`: the value of Reshape's -1. */
static struct gc_dim quotient(struct product *all, const struct product *part)
{
    for (uint32_t i = 0; i < part->count; i++) {
        if (!divide_out(all, part->others[i]))
            return gc_dim_unknown();
    }
    if (all->number.kind != GC_DIM_NUMBER || part->number.kind != GC_DIM_NUMBER ||
        part->number.number == 0)
        return gc_dim_unknown();
    if (all->count == 0)
        return gc_dim_div(all->number, part->number);
    if (all->count == 1 && gc_dim_same(all->number, part->number))
        return all->others[0];
    return gc_dim_is(all->number, 0) ? gc_dim_number(0) : gc_dim_unknown();
}

static enum gc_status check_total(struct gc_infer *infer, const struct gc_dim *dims, uint32_t rank)
{
    const struct gc_shape *from = gc_infer_shape(infer, 0);
    const struct gc_dim before = gc_dim_product(from->dims, 0, from->rank);
    const struct gc_dim after = gc_dim_product(dims, 0, rank);
    if (from->is_known && before.kind == GC_DIM_NUMBER && after.kind == GC_DIM_NUMBER &&
        before.number != after.number)
        return gc_infer_fail(infer, "%lld elements reshaped to %lld", (long long)before.number,
                             (long long)after.number);
    return GC_OK;
}

/* The value of dimension `open`, the -1, from the other dimensions and the input. */
static struct gc_dim left_out(const struct gc_shape *from, const struct gc_dim *dims, uint32_t rank,
                              uint32_t open)
{
    struct product all = {.number = gc_dim_number(1)};
    struct product part = {.number = gc_dim_number(1)};
    if (!from->is_known)
        return gc_dim_unknown();
    for (uint32_t i = 0; i < from->rank; i++)
        multiply(&all, from->dims[i]);
    for (uint32_t i = 0; i < rank; i++) {
        if (i != open)
            multiply(&part, dims[i]);
    }
    return quotient(&all, &part);
}

static enum gc_status reshape(struct gc_infer *infer, const struct gc_dim *wanted, uint32_t rank)
{
    const struct gc_shape *from = gc_infer_shape(infer, 0);
    const bool allows_zero = gc_infer_int(infer, "allowzero", 0) != 0;
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t open = 0;
    uint32_t open_count = 0;
    uint32_t left_out_count = 0;
    if (rank > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(infer, "a shape of %u dimensions; %d are accepted", rank,
                             GC_GRAPH_RANK_MAX);
    for (uint32_t i = 0; i < rank; i++) {
        dims[i] = wanted[i];
        if (gc_dim_is(wanted[i], 0) && !allows_zero && from->is_known && i >= from->rank)
            return gc_infer_fail(infer, "dimension %u is taken from an input of %u dimensions", i,
                                 from->rank);
        if (gc_dim_is(wanted[i], 0) && !allows_zero)
            dims[i] = from->is_known ? from->dims[i] : gc_dim_unknown();
        left_out_count += gc_dim_is(wanted[i], -1);
        if (gc_dim_is(wanted[i], -1))
            dims[i] = gc_dim_unknown();
        if (dims[i].kind != GC_DIM_NUMBER && dims[i].kind != GC_DIM_SYMBOL) {
            open = i;
            open_count++;
        }
    }
    if (left_out_count > 1)
        return gc_infer_fail(infer, "%u dimensions are left out; one may be", left_out_count);
    if (open_count == 1)
        dims[open] = left_out(from, dims, rank, open);
    const enum gc_status status = check_total(infer, dims, rank);
    return status == GC_OK ? set_view(infer, dims, rank) : status;
}

/* Before opset 5 the shape was an attribute. */
enum gc_status gc_rule_reshape(struct gc_infer *infer)
{
    const struct gc_data *data = gc_infer_data(infer, 1);
    const struct gc_shape *wanted = gc_infer_shape(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    const int64_t *ints;
    uint32_t count;
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK)
        return status;
    if (gc_infer_opset(infer) < 5 && gc_infer_ints(infer, "shape", &ints, &count) &&
        count <= GC_GRAPH_RANK_MAX) {
        for (uint32_t i = 0; i < count; i++)
            dims[i] = gc_dim_number(ints[i]);
        return reshape(infer, dims, count);
    }
    if (data != NULL)
        return reshape(infer, data->items, data->count);
    if (wanted->is_known && wanted->rank == 1 && wanted->dims[0].kind == GC_DIM_NUMBER &&
        wanted->dims[0].number <= GC_GRAPH_RANK_MAX) {
        count = (uint32_t)wanted->dims[0].number;
        for (uint32_t i = 0; i < count; i++)
            dims[i] = gc_dim_unknown();
        return reshape(infer, dims, count);
    }
    return GC_OK;
}

/* ---- Flatten ---- */

enum gc_status gc_rule_flatten(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    int64_t axis = gc_infer_int(infer, "axis", 1);
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !shape->is_known)
        return status != GC_OK ? status : gc_ops_set_open(infer, 0, 2);
    const int64_t rank = shape->rank;
    if (axis < -rank || axis > rank)
        return gc_infer_fail(infer, "axis %lld of a tensor of %u dimensions", (long long)axis,
                             shape->rank);
    axis += axis < 0 ? rank : 0;
    const struct gc_dim dims[] = {gc_dim_product(shape->dims, 0, (uint32_t)axis),
                                  gc_dim_product(shape->dims, (uint32_t)axis, shape->rank)};
    return set_view(infer, dims, 2);
}

/* ---- Squeeze, Unsqueeze ---- */

/* Without axes all dimensions of 1 are removed; if a dimension is open, the result's rank is
 * unknown. */
static enum gc_status squeeze_all(struct gc_infer *infer, const struct gc_shape *shape)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i].kind != GC_DIM_NUMBER)
            return GC_OK;
        if (shape->dims[i].number != 1)
            dims[rank++] = shape->dims[i];
    }
    return set_view(infer, dims, rank);
}

enum gc_status gc_rule_squeeze(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    bool goes[GC_GRAPH_RANK_MAX] = {false};
    struct gc_axes axes;
    uint32_t rank = 0;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !shape->is_known)
        return status;
    status = gc_infer_axes(infer, "axes", 1, shape->rank, &axes);
    if (status != GC_OK)
        return status;
    if (!axes.is_given)
        return squeeze_all(infer, shape);
    if (!axes.is_known)
        return axes.count > 0 && axes.count <= shape->rank
                   ? gc_ops_set_open(infer, 0, shape->rank - axes.count)
                   : GC_OK;
    for (uint32_t i = 0; i < axes.count; i++) {
        const struct gc_dim dim = shape->dims[axes.list[i]];
        if (dim.kind == GC_DIM_NUMBER && dim.number != 1)
            return gc_infer_fail(infer, "dimension %u is %lld; only 1 can be squeezed",
                                 axes.list[i], (long long)dim.number);
        goes[axes.list[i]] = true;
    }
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (!goes[i])
            dims[rank++] = shape->dims[i];
    }
    return set_view(infer, dims, rank);
}

/* The number of added axes; 0 if unknown. */
static uint32_t added_count(const struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 1);
    const int64_t *ints;
    uint32_t count;
    if (gc_infer_ints(infer, "axes", &ints, &count))
        return count <= GC_GRAPH_RANK_MAX ? count : 0;
    if (!shape->is_known || shape->rank > 1)
        return 0;
    if (shape->rank == 0)
        return 1;
    return shape->dims[0].kind == GC_DIM_NUMBER && shape->dims[0].number <= GC_GRAPH_RANK_MAX
               ? (uint32_t)shape->dims[0].number
               : 0;
}

enum gc_status gc_rule_unsqueeze(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    bool is_new[GC_GRAPH_RANK_MAX] = {false};
    struct gc_axes axes;
    uint32_t from = 0;
    const uint32_t added = added_count(infer);
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !shape->is_known || added == 0)
        return status;
    const uint32_t rank = shape->rank + added;
    status = gc_infer_axes(infer, "axes", 1, rank, &axes);
    if (status != GC_OK)
        return status;
    if (!axes.is_known || axes.count != added)
        return gc_ops_set_open(infer, 0, rank);
    for (uint32_t i = 0; i < axes.count; i++)
        is_new[axes.list[i]] = true;
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = is_new[i] ? gc_dim_number(1) : shape->dims[from++];
    return set_view(infer, dims, rank);
}

/* Operators that move elements about: another order, more of them at the edges, copies, blocks. */

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

/* Content has at most GC_GRAPH_DATA_MAX elements, so with content the sizes are small. */
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

/* `pads[i]` is the padding before dimension `axes[i]`, `pads[count + i]` after it. */
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
        return gc_ops_set_open(infer, 0, x->rank);
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
        return gc_ops_set_open(infer, 0, x->rank);
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
        return gc_ops_set_open(infer, 0, x->rank);
    if (repeats->count != x->rank)
        return gc_infer_fail(infer, "%u repeats for %u dimensions", repeats->count, x->rank);
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i] = gc_dim_mul(x->dims[i], repeats->items[i]);
    return gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* Moves blocks of the two spatial dimensions into the channels, or out of them. */
static enum gc_status move_blocks(struct gc_infer *infer, bool into_channels)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    int64_t block;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_int_within(infer, "blocksize", 0, 1, INT32_MAX, &block);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 4, 4);
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

/* The axes, by default all, get the sizes in the second input. */
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

/* Inputs: [N, C * block, L], the image's sizes, the block's sizes. Output: [N, C, image…]. */
enum gc_status gc_rule_col2im(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_data *block = gc_infer_data(infer, 2);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_dim count = gc_dim_unknown();
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 3, 3);
    if (status == GC_OK)
        status = gc_dim_merge(infer, "the numbers of image and block",
                              gc_shape_dim(gc_infer_shape(infer, 1), 0),
                              gc_shape_dim(gc_infer_shape(infer, 2), 0), &count);
    if (status != GC_OK || count.kind != GC_DIM_NUMBER)
        return status;
    if (count.number > GC_GRAPH_RANK_MAX - 2)
        return gc_infer_fail(infer, "an image of %lld dimensions", (long long)count.number);
    const uint32_t rank = (uint32_t)count.number;
    const struct gc_dim *image = gc_ops_items(infer, 1, rank);
    dims[0] = gc_shape_dim(x, 0);
    dims[1] = gc_dim_unknown();
    if (block != NULL)
        dims[1] = gc_dim_div(gc_shape_dim(x, 1), gc_dim_product(block->items, 0, block->count));
    for (uint32_t i = 0; i < rank; i++)
        dims[2 + i] = image != NULL ? image[i] : gc_dim_unknown();
    return gc_infer_set_shape(infer, 0, dims, 2 + rank);
}
