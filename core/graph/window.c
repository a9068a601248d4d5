/* Sizes: onnx/docs/Operators.md, Conv, ConvTranspose, MaxPool. */
#include "core/graph/window.h"

#include <string.h>

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

enum gc_status gc_window_read(struct gc_infer *infer, uint32_t rank, const struct gc_shape *weight,
                              uint32_t first, struct gc_window *window)
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

/* What the kernel covers, its holes included. */
static int64_t extent(const struct gc_window *window, uint32_t index)
{
    return window->dilation[index] * (window->kernel[index] - 1) + 1;
}

/* A window that would start in the padding behind the data is left out: what every implementation
 * does, and the specification since version 22 of the pools. */
static int64_t positions(const struct gc_window *window, uint32_t index, int64_t in, int64_t span,
                         bool round_up)
{
    const int64_t stride = window->stride[index];
    int64_t steps = span / stride;
    if (round_up && span % stride != 0 && (steps + 1) * stride < in + window->pad_begin[index])
        steps++;
    return steps + 1;
}

enum gc_status gc_window_slide(struct gc_infer *infer, const struct gc_window *window,
                               uint32_t index, struct gc_dim in, bool round_up, struct gc_dim *out)
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

enum gc_status gc_window_spread(struct gc_infer *infer, const struct gc_window *window,
                                uint32_t index, struct gc_dim in, int64_t more, struct gc_dim *out)
{
    const int64_t stride = window->stride[index];
    *out = gc_dim_unknown();
    if (window->kernel[index] == 0)
        return GC_OK;
    /* Padding that is chosen cuts what passes in * stride, and adds nothing. */
    int64_t change = extent(window, index) - stride + more;
    if (window->pads == GC_WINDOW_SAME && change > 0)
        change = 0;
    change -= window->pad_begin[index] + window->pad_end[index];
    *out = gc_dim_add(gc_dim_mul(in, gc_dim_number(stride)), gc_dim_number(change));
    if (out->kind == GC_DIM_NUMBER && out->number < 0)
        return gc_infer_fail(infer, "padding leaves %lld of a dimension", (long long)out->number);
    return GC_OK;
}
