/* Sequences and optional values. A sequence's type has the shape that all its tensors have; what
 * may differ from one to the next is open in it, and each tensor taken out has sizes of its own. */
#include "core/graph/ops_util.h"

/* The dims of a tensor of the sequence: only numbers hold for every one. */
static void element_dims(const struct gc_shape *shape, struct gc_dim *dims)
{
    for (uint32_t i = 0; i < shape->rank; i++)
        dims[i] = shape->dims[i].kind == GC_DIM_NUMBER ? shape->dims[i] : gc_dim_unknown();
}

/* What holds for both types; dims: where those of the result are kept. */
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
    return gc_infer_set_scalar(infer, 0, GC_DTYPE_I64);
}

/* Joined along an axis that is there, or stacked along a new one. */
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

/* The size that every piece has along the axis, where they are alike. */
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
    const struct gc_graph_attribute *told = gc_graph_attribute(gc_infer_node(infer), "type");
    struct gc_type type = {.dtype = GC_DTYPE_NONE};
    if (gc_infer_has_input(infer, 0))
        type = *gc_infer_type(infer, 0);
    else if (told != NULL && told->kind == GC_ATTRIBUTE_TYPE)
        type = *told->type;
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
    return gc_infer_set_scalar(infer, 0, GC_DTYPE_BOOL);
}
