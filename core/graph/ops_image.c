/* Images: resized, sampled by a grid. */
#include "core/graph/ops_util.h"

#include <string.h>

#define SIZE_MAX_EXACT 9.0e15 /* below 2^53 */

/* Cut to whole. False: it is no size. */
static bool cut_size(double size, struct gc_dim *dim)
{
    if (!(size >= 0 && size < SIZE_MAX_EXACT))
        return false;
    *dim = gc_dim_number((int64_t)size);
    return true;
}

static enum gc_status scale_dim(struct gc_infer *infer, struct gc_dim scale, struct gc_dim *dim)
{
    if (scale.kind == GC_DIM_NUMBER)
        scale = gc_dim_real((double)scale.number);
    if (scale.kind == GC_DIM_REAL && scale.real == 1)
        return GC_OK;
    if (scale.kind != GC_DIM_REAL || dim->kind != GC_DIM_NUMBER) {
        *dim = gc_dim_unknown();
        return GC_OK;
    }
    const int64_t size = dim->number;
    if (cut_size((double)size * scale.real, dim))
        return GC_OK;
    return gc_infer_fail(infer, "%lld scaled by %g", (long long)size, scale.real);
}

/* ---- Resize ---- */

/* keep_aspect_ratio_policy: one scale for all axes, the smallest or the largest of theirs. */
static enum gc_status set_sizes_by_ratio(struct gc_infer *infer, const struct gc_axes *axes,
                                         const struct gc_dim *sizes, bool is_largest,
                                         struct gc_dim *dims)
{
    float best = 0; /* the reference computes these in single precision */
    bool is_known = axes->count > 0;
    for (uint32_t i = 0; i < axes->count; i++) {
        const struct gc_dim dim = dims[axes->list[i]];
        if (dim.kind != GC_DIM_NUMBER || sizes[i].kind != GC_DIM_NUMBER || dim.number == 0) {
            is_known = false;
            break;
        }
        const float scale = (float)sizes[i].number / (float)dim.number;
        if (i == 0 || (is_largest ? scale > best : scale < best))
            best = scale;
    }
    for (uint32_t i = 0; i < axes->count; i++) {
        struct gc_dim *dim = &dims[axes->list[i]];
        const int64_t size = is_known ? dim->number : 0;
        *dim = gc_dim_unknown();
        if (is_known && !cut_size((double)((float)size * best) + 0.5, dim))
            return gc_infer_fail(infer, "%lld scaled by %g", (long long)size, (double)best);
    }
    return GC_OK;
}

static enum gc_status set_sizes(struct gc_infer *infer, const struct gc_axes *axes,
                                const struct gc_dim *sizes, struct gc_dim *dims)
{
    const char *policy = gc_infer_text(infer, "keep_aspect_ratio_policy", "stretch");
    if (strcmp(policy, "not_larger") == 0)
        return set_sizes_by_ratio(infer, axes, sizes, false, dims);
    if (strcmp(policy, "not_smaller") == 0)
        return set_sizes_by_ratio(infer, axes, sizes, true, dims);
    for (uint32_t i = 0; i < axes->count; i++)
        dims[axes->list[i]] = sizes[i].kind != GC_DIM_REAL ? sizes[i] : gc_dim_unknown();
    return GC_OK;
}

/* A list that is empty says nothing, as one that is left out. */
static bool is_told(const struct gc_infer *infer, uint32_t input)
{
    return gc_infer_has_input(infer, input) &&
           !gc_dim_is(gc_shape_dim(gc_infer_shape(infer, input), 0), 0);
}

static enum gc_status resize(struct gc_infer *infer, const struct gc_axes *axes,
                             struct gc_dim *dims)
{
    const bool is_first = gc_infer_opset(infer) < 11; /* scales alone, the second input */
    const bool by_sizes = !is_first && is_told(infer, 3);
    const uint32_t input = is_first ? 1 : by_sizes ? 3 : 2;
    const struct gc_data *list = gc_infer_data(infer, input);
    enum gc_status status = GC_OK;
    if (list != NULL && list->count != axes->count)
        return gc_infer_fail(infer, "%u %s for %u dimensions", list->count,
                             by_sizes ? "sizes" : "scales", axes->count);
    if (list != NULL && by_sizes)
        return set_sizes(infer, axes, list->items, dims);
    for (uint32_t i = 0; i < axes->count && status == GC_OK; i++) {
        struct gc_dim *dim = &dims[axes->list[i]];
        if (list != NULL)
            status = scale_dim(infer, list->items[i], dim);
        else
            *dim = gc_dim_unknown();
    }
    return status;
}

static void all_axes(uint32_t rank, struct gc_axes *axes)
{
    *axes = (struct gc_axes){.is_known = true, .count = rank};
    for (uint32_t i = 0; i < rank; i++)
        axes->list[i] = i;
}

enum gc_status gc_rule_resize(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_axes axes;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !x->is_known)
        return status;
    status = gc_infer_axes(infer, "axes", GC_GRAPH_NONE, x->rank, &axes);
    if (status != GC_OK)
        return status;
    if (!axes.is_given)
        all_axes(x->rank, &axes);
    gc_shape_copy(x, dims);
    status = resize(infer, &axes, dims);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* Scales are an attribute before opset 9. */
enum gc_status gc_rule_upsample(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_graph_attribute *scales = gc_graph_attribute(gc_infer_node(infer), "scales");
    const bool by_attribute = gc_infer_opset(infer) < 9;
    const struct gc_data *list = by_attribute ? NULL : gc_infer_data(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !x->is_known)
        return status;
    if (by_attribute && (scales == NULL || scales->kind != GC_ATTRIBUTE_REALS))
        return gc_infer_fail(infer, "no scales");
    if (!by_attribute && list == NULL)
        return gc_infer_set_open(infer, 0, x->rank);
    if ((by_attribute ? scales->count : list->count) != x->rank)
        return gc_infer_fail(infer, "its scales are not %u, as its dimensions", x->rank);
    gc_shape_copy(x, dims);
    for (uint32_t i = 0; i < x->rank && status == GC_OK; i++)
        status = scale_dim(infer, by_attribute ? gc_dim_real(scales->reals[i]) : list->items[i],
                           &dims[i]);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* ---- grids ---- */

/* [N, C, …] at the places of a grid [N, sizes…, how many coordinates]: [N, C, sizes…]. */
enum gc_status gc_rule_grid_sample(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *grid = gc_infer_shape(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 3, GC_GRAPH_RANK_MAX);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 1, 3, GC_GRAPH_RANK_MAX);
    if (status == GC_OK && x->is_known && grid->is_known && x->rank != grid->rank)
        status =
            gc_infer_fail(infer, "a grid of %u dimensions for data of %u", grid->rank, x->rank);
    const uint32_t rank = x->is_known ? x->rank : grid->rank;
    if (status != GC_OK || rank == 0)
        return status;
    status = gc_infer_merge_dim(infer, "the batches of data and grid", gc_shape_dim(x, 0),
                                gc_shape_dim(grid, 0), &dims[0]);
    dims[1] = gc_shape_dim(x, 1);
    for (uint32_t i = 2; i < rank; i++)
        dims[i] = gc_shape_dim(grid, i - 1);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, rank);
}

/* Input 1 is [N, C, sizes…]: a grid [N, sizes…, how many]. */
enum gc_status gc_rule_affine_grid(struct gc_infer *infer)
{
    const struct gc_dim count = gc_shape_dim(gc_infer_shape(infer, 1), 0);
    const struct gc_dim *size;
    struct gc_dim dims[5];
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || count.kind != GC_DIM_NUMBER)
        return status;
    if (count.number != 4 && count.number != 5)
        return gc_infer_fail(infer, "%lld sizes; 4 or 5 are accepted", (long long)count.number);
    const uint32_t rank = (uint32_t)count.number;
    size = gc_infer_items(infer, 1, rank);
    dims[0] = size != NULL ? size[0] : gc_shape_dim(gc_infer_shape(infer, 0), 0);
    for (uint32_t i = 2; i < rank; i++)
        dims[i - 1] = size != NULL ? size[i] : gc_dim_unknown();
    dims[rank - 1] = gc_dim_number(rank - 2);
    return gc_infer_set_shape(infer, 0, dims, rank);
}

/* An encoded file's pixels. */
enum gc_status gc_rule_image_decoder(struct gc_infer *infer)
{
    const bool is_gray = strcmp(gc_infer_text(infer, "pixel_format", "RGB"), "Grayscale") == 0;
    const struct gc_dim dims[] = {gc_dim_unknown(), gc_dim_unknown(),
                                  gc_dim_number(is_gray ? 1 : 3)};
    gc_infer_set_dtype(infer, 0, GC_DTYPE_U8);
    return gc_infer_set_shape(infer, 0, dims, 3);
}
