/* Signals: windows, Fourier transforms, filter banks. */
#include "core/graph/ops_util.h"

/* HannWindow and its like: as many elements as the input says. */
enum gc_status gc_rule_signal_window(struct gc_infer *infer)
{
    const struct gc_dim *items = gc_infer_items(infer, 0, 1);
    const struct gc_dim size = items != NULL ? items[0] : gc_dim_unknown();
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "output_datatype", GC_DTYPE_F32));
    return gc_infer_set_shape(infer, 0, &size, 1);
}

/* Of a real signal the second half mirrors the first. */
static struct gc_dim one_side(struct gc_dim length)
{
    return gc_dim_add(gc_dim_div(length, gc_dim_number(2)), gc_dim_number(1));
}

/* False: it is not known. The axis is an attribute before opset 20, 1 by default; then an input,
 * the last but the one of the parts by default. */
static bool dft_axis(const struct gc_infer *infer, int64_t *axis)
{
    *axis = gc_infer_opset(infer) < 20 ? gc_infer_int(infer, "axis", 1) : -2;
    return gc_infer_opset(infer) < 20 || !gc_infer_has_input(infer, 2) ||
           gc_infer_scalar(infer, 2, axis);
}

/* Of the axis, or of any that it may be. */
static enum gc_status set_length(struct gc_infer *infer, bool is_onesided, struct gc_dim *dims,
                                 uint32_t rank)
{
    const struct gc_dim *length = gc_infer_items(infer, 1, 1);
    const bool has_length = gc_infer_has_input(infer, 1);
    int64_t number;
    uint32_t axis;
    if (!dft_axis(infer, &number)) {
        for (uint32_t i = 0; i + 1 < rank && (has_length || is_onesided); i++)
            dims[i] = gc_dim_unknown();
        return GC_OK;
    }
    const enum gc_status status = gc_infer_axis(infer, number, rank, &axis);
    if (status != GC_OK)
        return status;
    if (has_length)
        dims[axis] = length != NULL ? *length : gc_dim_unknown();
    if (is_onesided)
        dims[axis] = one_side(dims[axis]);
    return GC_OK;
}

/* [batch, signal…, real or complex]; the length of the transform is input 1. */
enum gc_status gc_rule_dft(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const bool is_onesided = gc_infer_int(infer, "onesided", 0) != 0;
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 2, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    /* The inverse of one side is real, of a length that the versions do not agree on. */
    if (is_onesided && gc_infer_int(infer, "inverse", 0) != 0)
        return gc_infer_set_open(infer, 0, x->rank);
    gc_shape_copy(x, dims);
    status = set_length(infer, is_onesided, dims, x->rank);
    dims[x->rank - 1] = gc_dim_number(2);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* Inputs: signal [batch, length, parts], step, window, length of a frame, which is the window's
 * else. Output: [batch, frames, frequencies, 2]. */
enum gc_status gc_rule_stft(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_dim *step = gc_infer_items(infer, 1, 1);
    const struct gc_dim *given = gc_infer_items(infer, 3, 1);
    struct gc_dim frame = gc_shape_dim(gc_infer_shape(infer, 2), 0);
    struct gc_dim frames = gc_dim_unknown();
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 0, 2, 3);
    if (status != GC_OK)
        return status;
    if (gc_infer_has_input(infer, 3))
        frame = given != NULL ? *given : gc_dim_unknown();
    if (step != NULL && step->kind == GC_DIM_NUMBER && step->number > 0)
        frames =
            gc_dim_add(gc_dim_div(gc_dim_sub(gc_shape_dim(x, 1), frame), *step), gc_dim_number(1));
    const struct gc_dim dims[] = {gc_shape_dim(x, 0), frames,
                                  gc_infer_int(infer, "onesided", 1) != 0 ? one_side(frame) : frame,
                                  gc_dim_number(2)};
    return gc_infer_set_shape(infer, 0, dims, 4);
}

/* Inputs: how many bands, length of the transform. */
enum gc_status gc_rule_mel_weights(struct gc_infer *infer)
{
    const struct gc_dim *bands = gc_infer_items(infer, 0, 1);
    const struct gc_dim *length = gc_infer_items(infer, 1, 1);
    const struct gc_dim dims[] = {length != NULL ? one_side(*length) : gc_dim_unknown(),
                                  bands != NULL ? *bands : gc_dim_unknown()};
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "output_datatype", GC_DTYPE_F32));
    return gc_infer_set_shape(infer, 0, dims, 2);
}
