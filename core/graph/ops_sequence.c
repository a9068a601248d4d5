/* Sequences and optional values, recurrent networks, signals. A sequence's type has the shape that
 * all its tensors share; dimensions that may differ are open, and become new symbols in each
 * tensor taken out. */
#include "core/graph/ops_util.h"

#include <string.h>

/* The dims of a tensor of the sequence: only numbers hold for every one. */
static void element_dims(const struct gc_shape *shape, struct gc_dim *dims)
{
    for (uint32_t i = 0; i < shape->rank; i++)
        dims[i] = shape->dims[i].kind == GC_DIM_NUMBER ? shape->dims[i] : gc_dim_unknown();
}

/* The join of both types; `dims` is memory for the result's. */
static void unite(struct gc_type *type, const struct gc_type *other, struct gc_dim *dims)
{
    const struct gc_shape *shape = &other->shape;
    if (type->dtype == GC_DTYPE_NONE)
        type->dtype = other->dtype;
    if (!type->shape.is_known || !shape->is_known || type->shape.rank != shape->rank) {
        type->shape = (struct gc_shape){.is_known = false};
        return;
    }
    for (uint32_t i = 0; i < shape->rank; i++) {
        const struct gc_dim dim = type->shape.dims[i];
        dims[i] = gc_dim_same(dim, shape->dims[i]) ? dim : gc_dim_unknown();
    }
    type->shape.dims = dims;
}

enum gc_status gc_rule_sequence_construct(struct gc_infer *infer)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_type type = *gc_infer_type(infer, 0);
    for (uint32_t i = 1; i < gc_infer_input_count(infer); i++)
        unite(&type, gc_infer_type(infer, i), dims);
    type.kind = GC_TYPE_SEQUENCE;
    return gc_infer_set_type(infer, 0, &type);
}

enum gc_status gc_rule_sequence_empty(struct gc_infer *infer)
{
    const struct gc_type type = {
        .kind = GC_TYPE_SEQUENCE,
        .dtype = gc_infer_dtype_attribute(infer, "dtype", GC_DTYPE_F32),
    };
    return gc_infer_set_type(infer, 0, &type);
}

enum gc_status gc_rule_sequence_insert(struct gc_infer *infer)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_type type = *gc_infer_type(infer, 0);
    unite(&type, gc_infer_type(infer, 1), dims);
    type.kind = GC_TYPE_SEQUENCE;
    return gc_infer_set_type(infer, 0, &type);
}

enum gc_status gc_rule_sequence_erase(struct gc_infer *infer)
{
    return gc_infer_set_type(infer, 0, gc_infer_type(infer, 0));
}

enum gc_status gc_rule_sequence_at(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    gc_infer_set_dtype(infer, 0, gc_infer_dtype(infer, 0));
    if (!shape->is_known)
        return GC_OK;
    element_dims(shape, dims);
    return gc_infer_set_shape(infer, 0, dims, shape->rank);
}

enum gc_status gc_rule_sequence_length(struct gc_infer *infer)
{
    return gc_ops_set_scalar(infer, 0, GC_DTYPE_I64);
}

/* Concatenates along an existing axis, or stacks along a new one. */
enum gc_status gc_rule_concat_from_sequence(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    const uint32_t more = gc_infer_int(infer, "new_axis", 0) != 0;
    struct gc_dim old[GC_GRAPH_RANK_MAX];
    struct gc_dim dims[GC_GRAPH_RANK_MAX + 1];
    uint32_t axis;
    gc_infer_set_dtype(infer, 0, gc_infer_dtype(infer, 0));
    if (!shape->is_known)
        return GC_OK;
    const enum gc_status status =
        gc_infer_axis(infer, gc_infer_int(infer, "axis", 0), shape->rank + more, &axis);
    if (status != GC_OK)
        return status;
    element_dims(shape, old);
    for (uint32_t i = 0; i < shape->rank; i++)
        dims[i < axis ? i : i + more] = old[i];
    dims[axis] = gc_dim_unknown();
    return gc_infer_set_shape(infer, 0, dims, shape->rank + more);
}

/* The size of every piece along the axis; UNKNOWN unless all are known to be equal. */
static struct gc_dim piece_size(const struct gc_infer *infer, struct gc_dim whole)
{
    const struct gc_data *sizes = gc_infer_data(infer, 1);
    if (!gc_infer_has_input(infer, 1))
        return gc_dim_number(1);
    if (sizes == NULL || sizes->count == 0)
        return gc_dim_unknown();
    const struct gc_dim size = sizes->items[0];
    if (gc_infer_shape(infer, 1)->rank == 0) {
        const bool is_even = whole.kind == GC_DIM_NUMBER && size.kind == GC_DIM_NUMBER &&
                             size.number > 0 && whole.number % size.number == 0;
        return is_even ? size : gc_dim_unknown();
    }
    for (uint32_t i = 1; i < sizes->count; i++) {
        if (!gc_dim_same(size, sizes->items[i]))
            return gc_dim_unknown();
    }
    return size;
}

enum gc_status gc_rule_split_to_sequence(struct gc_infer *infer)
{
    struct gc_type type = *gc_infer_type(infer, 0);
    const bool keep = gc_infer_has_input(infer, 1) || gc_infer_int(infer, "keepdims", 1) != 0;
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    uint32_t rank = 0;
    uint32_t axis;
    type.kind = GC_TYPE_SEQUENCE;
    if (!type.shape.is_known)
        return gc_infer_set_type(infer, 0, &type);
    const enum gc_status status =
        gc_infer_axis(infer, gc_infer_int(infer, "axis", 0), type.shape.rank, &axis);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < type.shape.rank; i++) {
        if (i != axis)
            dims[rank++] = type.shape.dims[i];
        else if (keep)
            dims[rank++] = piece_size(infer, type.shape.dims[i]);
    }
    type.shape.rank = rank;
    type.shape.dims = dims;
    return gc_infer_set_type(infer, 0, &type);
}

/* ---- optional values ---- */

enum gc_status gc_rule_optional(struct gc_infer *infer)
{
    const struct gc_graph_attribute *attribute =
        gc_graph_find_attribute(gc_infer_node(infer), "type");
    struct gc_type type = {.dtype = GC_DTYPE_NONE};
    if (gc_infer_has_input(infer, 0))
        type = *gc_infer_type(infer, 0);
    else if (attribute != NULL && attribute->kind == GC_ATTRIBUTE_TYPE)
        type = *attribute->type;
    if (type.kind == GC_TYPE_UNKNOWN)
        return GC_OK;
    type.kind = type.kind == GC_TYPE_SEQUENCE ? GC_TYPE_OPTIONAL_SEQUENCE : GC_TYPE_OPTIONAL;
    return gc_infer_set_type(infer, 0, &type);
}

enum gc_status gc_rule_optional_get_element(struct gc_infer *infer)
{
    struct gc_type type = *gc_infer_type(infer, 0);
    if (type.kind == GC_TYPE_OPTIONAL)
        type.kind = GC_TYPE_TENSOR;
    else if (type.kind == GC_TYPE_OPTIONAL_SEQUENCE)
        type.kind = GC_TYPE_SEQUENCE;
    return gc_infer_set_type(infer, 0, &type);
}

enum gc_status gc_rule_optional_has_element(struct gc_infer *infer)
{
    return gc_ops_set_scalar(infer, 0, GC_DTYPE_BOOL);
}

/* LSTM, GRU, RNN: X [steps, batch, size] (layout 1: batch first), W [directions, gates, size].
 * Outputs: Y [steps, directions, batch, hidden], then the last states [directions, batch, hidden].
 */

static struct gc_dim hidden_size(const struct gc_infer *infer)
{
    const int64_t hidden = gc_infer_int(infer, "hidden_size", 0);
    /* Else the last dimension of the recurrent weight. */
    return hidden > 0 ? gc_dim_number(hidden) : gc_shape_dim(gc_infer_shape(infer, 2), 2);
}

static enum gc_status set_states(struct gc_infer *infer, bool batch_first, struct gc_dim count,
                                 struct gc_dim batch, struct gc_dim hidden)
{
    const struct gc_dim dims[] = {batch_first ? batch : count, batch_first ? count : batch, hidden};
    enum gc_status status = GC_OK;
    for (uint32_t i = 1; i < 3 && status == GC_OK; i++) {
        status = gc_infer_pass_dtype(infer, i, 0);
        if (status == GC_OK)
            status = gc_infer_set_shape(infer, i, dims, 3);
    }
    return status;
}

enum gc_status gc_rule_recurrent(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const char *direction = gc_infer_text(infer, "direction", "forward");
    const struct gc_dim count = gc_dim_number(strcmp(direction, "bidirectional") == 0 ? 2 : 1);
    const struct gc_dim hidden = hidden_size(infer);
    const bool batch_first = gc_infer_int(infer, "layout", 0) != 0;
    const struct gc_dim steps = gc_shape_dim(x, batch_first ? 1 : 0);
    const struct gc_dim batch = gc_shape_dim(x, batch_first ? 0 : 1);
    const struct gc_dim sequence[] = {steps, count, batch, hidden};
    const struct gc_dim batched[] = {batch, steps, count, hidden};
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 3, 3);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, batch_first ? batched : sequence, 4);
    return status != GC_OK ? status : set_states(infer, batch_first, count, batch, hidden);
}

/* The contrib domain's DynamicQuantizeLSTM: its weights are transposed and do not give the size. */
enum gc_status gc_rule_recurrent_quantised(struct gc_infer *infer)
{
    return gc_infer_int(infer, "hidden_size", 0) > 0 ? gc_rule_recurrent(infer) : GC_OK;
}

/* Signals: windows, Fourier transforms, filter banks. */

/* HannWindow and its like: the input is the number of elements. */
enum gc_status gc_rule_signal_window(struct gc_infer *infer)
{
    const struct gc_dim *items = gc_ops_items(infer, 0, 1);
    const struct gc_dim size = items != NULL ? items[0] : gc_dim_unknown();
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "output_datatype", GC_DTYPE_F32));
    return gc_infer_set_shape(infer, 0, &size, 1);
}

/* For a real signal the second half of the spectrum mirrors the first. */
static struct gc_dim one_side(struct gc_dim length)
{
    return gc_dim_add(gc_dim_div(length, gc_dim_number(2)), gc_dim_number(1));
}

/* False: the axis is not known. Before opset 20 an attribute has it, 1 by default; then an
 * input, by default the axis before that of the parts. */
static bool dft_axis(const struct gc_infer *infer, int64_t *axis)
{
    *axis = gc_infer_opset(infer) < 20 ? gc_infer_int(infer, "axis", 1) : -2;
    return gc_infer_opset(infer) < 20 || !gc_infer_has_input(infer, 2) ||
           gc_infer_scalar(infer, 2, axis);
}

/* Sets the axis's length. For an unknown axis all dims but the last become unknown. */
static enum gc_status set_length(struct gc_infer *infer, bool is_onesided, struct gc_dim *dims,
                                 uint32_t rank)
{
    const struct gc_dim *length = gc_ops_items(infer, 1, 1);
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
        status = gc_ops_want_rank(infer, 0, 2, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known)
        return status;
    /* The inverse of one side is real, of a length that differs between opset versions. */
    if (is_onesided && gc_infer_int(infer, "inverse", 0) != 0)
        return gc_ops_set_open(infer, 0, x->rank);
    gc_shape_copy(x, dims);
    status = set_length(infer, is_onesided, dims, x->rank);
    dims[x->rank - 1] = gc_dim_number(2);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* Inputs: signal [batch, length, parts], step, window, length of a frame, by default the
 * window's. Output: [batch, frames, frequencies, 2]. */
enum gc_status gc_rule_stft(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_dim *step = gc_ops_items(infer, 1, 1);
    const struct gc_dim *given = gc_ops_items(infer, 3, 1);
    struct gc_dim frame = gc_shape_dim(gc_infer_shape(infer, 2), 0);
    struct gc_dim frames = gc_dim_unknown();
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 0, 2, 3);
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

/* Inputs: number of bands, length of the transform. */
enum gc_status gc_rule_mel_weights(struct gc_infer *infer)
{
    const struct gc_dim *bands = gc_ops_items(infer, 0, 1);
    const struct gc_dim *length = gc_ops_items(infer, 1, 1);
    const struct gc_dim dims[] = {length != NULL ? one_side(*length) : gc_dim_unknown(),
                                  bands != NULL ? *bands : gc_dim_unknown()};
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "output_datatype", GC_DTYPE_F32));
    return gc_infer_set_shape(infer, 0, dims, 2);
}
