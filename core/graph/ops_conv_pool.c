/* Operators with a window over the spatial dimensions: convolutions and pools; and images, resized
 * or sampled by a grid. Sizes as in onnx/docs/Operators.md: Conv, ConvTranspose, MaxPool. */
#include "core/graph/infer.h"
#include "core/graph/ops_util.h"

#include <string.h>

#define GC_WINDOW_RANK_MAX (GC_GRAPH_RANK_MAX - 2)

enum gc_window_pads { GC_WINDOW_EXPLICIT, GC_WINDOW_SAME };

struct gc_window {
    uint32_t rank; /* spatial dimensions */
    enum gc_window_pads pads;
    int64_t kernel[GC_WINDOW_RANK_MAX]; /* 0: not known */
    int64_t stride[GC_WINDOW_RANK_MAX];
    int64_t dilation[GC_WINDOW_RANK_MAX];
    int64_t pad_begin[GC_WINDOW_RANK_MAX];
    int64_t pad_end[GC_WINDOW_RANK_MAX];
};

#define ATTRIBUTE_MAX INT32_MAX

/* `count` numbers in low…ATTRIBUTE_MAX, or *list NULL where the attribute is not there. */
static enum gc_status read_list(struct gc_infer *infer, const char *name, uint32_t count,
                                int64_t low, const int64_t **list)
{
    uint32_t found;
    if (!gc_infer_ints(infer, name, list, &found))
        return GC_OK;
    if (found != count)
        return gc_infer_fail(infer, "%s has %u numbers; %u are accepted", name, found, count);
    for (uint32_t i = 0; i < count; i++) {
        if ((*list)[i] < low || (*list)[i] > ATTRIBUTE_MAX)
            return gc_infer_fail(infer, "%s has %lld; %lld to %d are accepted", name,
                                 (long long)(*list)[i], (long long)low, ATTRIBUTE_MAX);
    }
    return GC_OK;
}

static enum gc_status read_pads(struct gc_infer *infer, struct gc_window *window)
{
    const char *mode = gc_infer_text(infer, "auto_pad", "NOTSET");
    const int64_t *pads = NULL;
    const bool is_set = strcmp(mode, "NOTSET") == 0 || mode[0] == '\0';
    if (strncmp(mode, "SAME_", 5) == 0)
        window->pads = GC_WINDOW_SAME;
    else if (!is_set && strcmp(mode, "VALID") != 0)
        return gc_infer_fail(infer, "auto_pad is none of NOTSET, VALID, SAME_UPPER, SAME_LOWER");
    if (!is_set)
        return GC_OK;
    const enum gc_status status =
        read_list(infer, "pads", 2 * window->rank, -(int64_t)ATTRIBUTE_MAX, &pads);
    for (uint32_t i = 0; pads != NULL && status == GC_OK && i < window->rank; i++) {
        window->pad_begin[i] = pads[i];
        window->pad_end[i] = pads[window->rank + i];
    }
    return status;
}

static int64_t kernel_of_weight(const struct gc_shape *weight, uint32_t index)
{
    if (weight == NULL || !weight->is_known || index >= weight->rank ||
        weight->dims[index].kind != GC_DIM_NUMBER || weight->dims[index].number > ATTRIBUTE_MAX)
        return 0;
    return weight->dims[index].number;
}

static enum gc_status window_read(struct gc_infer *infer, uint32_t rank,
                                  const struct gc_shape *weight, uint32_t first,
                                  struct gc_window *window)
{
    const int64_t *kernel = NULL;
    const int64_t *strides = NULL;
    const int64_t *dilations = NULL;
    *window = (struct gc_window){.rank = rank, .pads = GC_WINDOW_EXPLICIT};
    if (rank > GC_WINDOW_RANK_MAX)
        return gc_infer_fail(infer, "%u spatial dimensions; %d are accepted", rank,
                             GC_WINDOW_RANK_MAX);
    enum gc_status status = read_list(infer, "kernel_shape", rank, 1, &kernel);
    if (status == GC_OK)
        status = read_list(infer, "strides", rank, 1, &strides);
    if (status == GC_OK)
        status = read_list(infer, "dilations", rank, 1, &dilations);
    if (status == GC_OK)
        status = read_pads(infer, window);
    for (uint32_t i = 0; status == GC_OK && i < rank; i++) {
        window->kernel[i] = kernel != NULL ? kernel[i] : kernel_of_weight(weight, first + i);
        window->stride[i] = strides != NULL ? strides[i] : 1;
        window->dilation[i] = dilations != NULL ? dilations[i] : 1;
    }
    return status;
}

/* The extent of the dilated kernel. */
static int64_t extent(const struct gc_window *window, uint32_t index)
{
    return window->dilation[index] * (window->kernel[index] - 1) + 1;
}

/* A window that would start in the padding behind the data is left out: so do all implementations
 * and, since version 22 of the pools, the specification. */
static int64_t positions(const struct gc_window *window, uint32_t index, int64_t in, int64_t span,
                         bool round_up)
{
    const int64_t stride = window->stride[index];
    int64_t steps = span / stride;
    if (round_up && span % stride != 0 && (steps + 1) * stride < in + window->pad_begin[index])
        steps++;
    return steps + 1;
}

static enum gc_status window_slide(struct gc_infer *infer, const struct gc_window *window,
                                   uint32_t index, struct gc_dim in, bool round_up,
                                   struct gc_dim *out)
{
    const int64_t stride = window->stride[index];
    *out = gc_dim_unknown();
    if (window->pads == GC_WINDOW_SAME) {
        *out = stride == 1
                   ? in
                   : gc_dim_div(gc_dim_add(in, gc_dim_number(stride - 1)), gc_dim_number(stride));
        return GC_OK;
    }
    if (window->kernel[index] == 0)
        return GC_OK;
    const int64_t change =
        window->pad_begin[index] + window->pad_end[index] - extent(window, index);
    if (in.kind != GC_DIM_NUMBER) {
        if (stride == 1)
            *out = gc_dim_add(in, gc_dim_number(change + 1));
        else if (!round_up)
            *out =
                gc_dim_add(gc_dim_div(gc_dim_add(in, gc_dim_number(change)), gc_dim_number(stride)),
                           gc_dim_number(1));
        return GC_OK;
    }
    const struct gc_dim span = gc_dim_add(in, gc_dim_number(change));
    if (in.number > INT64_MAX / 4 || span.kind != GC_DIM_NUMBER || span.number < 0)
        return gc_infer_fail(infer, "a window of %lld does not fit into %lld and its padding",
                             (long long)extent(window, index), (long long)in.number);
    *out = gc_dim_number(positions(window, index, in.number, span.number, round_up));
    return GC_OK;
}

static enum gc_status window_spread(struct gc_infer *infer, const struct gc_window *window,
                                    uint32_t index, struct gc_dim in, int64_t more,
                                    struct gc_dim *out)
{
    const int64_t stride = window->stride[index];
    *out = gc_dim_unknown();
    if (window->kernel[index] == 0)
        return GC_OK;
    /* SAME padding cuts the output down to in * stride, but never extends it. */
    int64_t change = extent(window, index) - stride + more;
    if (window->pads == GC_WINDOW_SAME && change > 0)
        change = 0;
    change -= window->pad_begin[index] + window->pad_end[index];
    *out = gc_dim_add(gc_dim_mul(in, gc_dim_number(stride)), gc_dim_number(change));
    if (out->kind == GC_DIM_NUMBER && out->number < 0)
        return gc_infer_fail(infer, "padding leaves %lld of a dimension", (long long)out->number);
    return GC_OK;
}

/* Convolutions: the output has the data's batch, the weight's filters and, for each spatial
 * dimension, the number of window positions. */

/* The rank of data and weight, whichever is known; 0 if neither is. */
static enum gc_status common_rank(struct gc_infer *infer, uint32_t data, uint32_t weight,
                                  uint32_t *rank)
{
    const struct gc_shape *x = gc_infer_shape(infer, data);
    const struct gc_shape *w = gc_infer_shape(infer, weight);
    enum gc_status status = gc_ops_want_rank(infer, data, 3, GC_GRAPH_RANK_MAX);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, weight, 3, GC_GRAPH_RANK_MAX);
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
    status = window_read(infer, rank - 2, w, 2, &window);
    dims[0] = gc_shape_dim(x, 0);
    dims[1] = gc_shape_dim(w, 0);
    for (uint32_t i = 2; status == GC_OK && i < rank; i++)
        status = window_slide(infer, &window, i - 2, gc_shape_dim(x, i), false, &dims[i]);
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
    enum gc_status status = window_read(infer, rank - 2, w, 2, &window);
    if (status == GC_OK)
        status = read_sizes(infer, "output_padding", rank - 2, &padding);
    if (status == GC_OK)
        status = read_sizes(infer, "output_shape", rank - 2, &sizes);
    for (uint32_t i = 0; status == GC_OK && i < rank - 2; i++) {
        if (sizes != NULL)
            dims[2 + i] = gc_dim_number(sizes[i]);
        else
            status = window_spread(infer, &window, i, gc_shape_dim(x, 2 + i),
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
        status = gc_ops_int_within(infer, "group", 1, 1, INT32_MAX, &group);
    if (status != GC_OK || rank == 0)
        return status;
    dims[0] = gc_shape_dim(x, 0);
    dims[1] = gc_dim_mul(gc_shape_dim(w, 1), gc_dim_number(group));
    status = spread(infer, x, w, dims, rank);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, rank);
}

/* Pools: batch and channels stay, window positions replace the spatial dimensions. */

static enum gc_status slide_all(struct gc_infer *infer, const struct gc_shape *x, uint32_t first,
                                struct gc_dim *dims)
{
    const bool round_up = gc_infer_int(infer, "ceil_mode", 0) != 0;
    struct gc_window window;
    enum gc_status status = window_read(infer, x->rank - 2, NULL, 0, &window);
    for (uint32_t i = 0; status == GC_OK && i < x->rank - 2; i++)
        status = window_slide(infer, &window, i, x->dims[first + i], round_up, &dims[first + i]);
    return status;
}

/* Of any dtype: the contrib domain's pools of quantised data have the same shapes. */
static enum gc_status pool(struct gc_infer *infer, uint32_t first)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    gc_infer_set_dtype(infer, 1, GC_DTYPE_I64);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 3, GC_GRAPH_RANK_MAX);
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

/* The contrib domain's pools: NhwcMaxPool has channels last, QLinear* if an attribute is set. */
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
        status = gc_ops_want_rank(infer, 0, 2, GC_GRAPH_RANK_MAX);
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

/* Inputs: data and its indices before pooling, of one shape; the third, if present, is the output's
 * shape. */
enum gc_status gc_rule_max_unpool(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_window window;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 3, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    if (gc_infer_has_input(infer, 2)) {
        const struct gc_dim *items = gc_ops_items(infer, 2, x->rank);
        return items == NULL ? gc_ops_set_open(infer, 0, x->rank)
                             : gc_infer_set_shape(infer, 0, items, x->rank);
    }
    status = window_read(infer, x->rank - 2, NULL, 0, &window);
    for (uint32_t i = 0; status == GC_OK && i < x->rank; i++) {
        status = gc_dim_merge(infer, "data and indices", x->dims[i],
                              gc_shape_dim(gc_infer_shape(infer, 1), i), &dims[i]);
        if (status == GC_OK && i >= 2)
            status = window_spread(infer, &window, i - 2, dims[i], 0, &dims[i]);
    }
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* Output: an entry for each region of interest, a row of input 1. RoiAlign's input 2 has the image
 * of each region. */
static enum gc_status set_regions(struct gc_infer *infer, const struct gc_dim *sizes)
{
    struct gc_dim dims[] = {gc_dim_unknown(), gc_shape_dim(gc_infer_shape(infer, 0), 1), sizes[0],
                            sizes[1]};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 4, 4);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 1, 2, 2);
    if (status == GC_OK)
        status = gc_dim_merge(infer, "the regions", gc_shape_dim(gc_infer_shape(infer, 1), 0),
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

/* Images: resized, sampled by a grid. */

#define SIZE_MAX_EXACT 9.0e15 /* below 2^53 */

/* Truncates `size` to an integer. False: it is negative or too large. */
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

/* keep_aspect_ratio_policy: one scale for all axes, the smallest or largest of all. */
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

/* An empty list counts as an omitted one. */
static bool is_told(const struct gc_infer *infer, uint32_t input)
{
    return gc_infer_has_input(infer, input) &&
           !gc_dim_is(gc_shape_dim(gc_infer_shape(infer, input), 0), 0);
}

static enum gc_status resize(struct gc_infer *infer, const struct gc_axes *axes,
                             struct gc_dim *dims)
{
    const bool is_first = gc_infer_opset(infer) < 11; /* input 1: scales; no sizes */
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
    const struct gc_graph_attribute *scales =
        gc_graph_find_attribute(gc_infer_node(infer), "scales");
    const bool by_attribute = gc_infer_opset(infer) < 9;
    const struct gc_data *list = by_attribute ? NULL : gc_infer_data(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !x->is_known)
        return status;
    if (by_attribute && (scales == NULL || scales->kind != GC_ATTRIBUTE_REALS))
        return gc_infer_fail(infer, "no scales");
    if (!by_attribute && list == NULL)
        return gc_ops_set_open(infer, 0, x->rank);
    if ((by_attribute ? scales->count : list->count) != x->rank)
        return gc_infer_fail(infer, "its scales are not %u, as its dimensions", x->rank);
    gc_shape_copy(x, dims);
    for (uint32_t i = 0; i < x->rank && status == GC_OK; i++)
        status = scale_dim(infer, by_attribute ? gc_dim_real(scales->reals[i]) : list->items[i],
                           &dims[i]);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* ---- grids ---- */

/* Inputs: [N, C, …], a grid [N, sizes…, number of coordinates]. Output: [N, C, sizes…]. */
enum gc_status gc_rule_grid_sample(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *grid = gc_infer_shape(infer, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 3, GC_GRAPH_RANK_MAX);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 1, 3, GC_GRAPH_RANK_MAX);
    if (status == GC_OK && x->is_known && grid->is_known && x->rank != grid->rank)
        status =
            gc_infer_fail(infer, "a grid of %u dimensions for data of %u", grid->rank, x->rank);
    const uint32_t rank = x->is_known ? x->rank : grid->rank;
    if (status != GC_OK || rank == 0)
        return status;
    status = gc_dim_merge(infer, "the batches of data and grid", gc_shape_dim(x, 0),
                          gc_shape_dim(grid, 0), &dims[0]);
    dims[1] = gc_shape_dim(x, 1);
    for (uint32_t i = 2; i < rank; i++)
        dims[i] = gc_shape_dim(grid, i - 1);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, rank);
}

/* Input 1 is [N, C, sizes…]. Output: a grid [N, sizes…, number of sizes]. */
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
    size = gc_ops_items(infer, 1, rank);
    dims[0] = size != NULL ? size[0] : gc_shape_dim(gc_infer_shape(infer, 0), 0);
    for (uint32_t i = 2; i < rank; i++)
        dims[i - 1] = size != NULL ? size[i] : gc_dim_unknown();
    dims[rank - 1] = gc_dim_number(rank - 2);
    return gc_infer_set_shape(infer, 0, dims, rank);
}

/* Output: an encoded file's pixels. */
enum gc_status gc_rule_image_decoder(struct gc_infer *infer)
{
    const bool is_gray = strcmp(gc_infer_text(infer, "pixel_format", "RGB"), "Grayscale") == 0;
    const struct gc_dim dims[] = {gc_dim_unknown(), gc_dim_unknown(),
                                  gc_dim_number(is_gray ? 1 : 3)};
    gc_infer_set_dtype(infer, 0, GC_DTYPE_U8);
    return gc_infer_set_shape(infer, 0, dims, 3);
}
