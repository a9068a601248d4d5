/* Reduce*: one element out of many along some axes. */
#include "core/graph/engine.h"
#include "core/graph/fold.h"

struct reduction {
    bool goes[GC_GRAPH_RANK_MAX];
    bool keeps;    /* the axes, as 1 */
    bool is_known; /* which axes they are */
};

static enum gc_status read_axes(struct gc_infer *infer, const struct gc_shape *shape,
                                struct reduction *reduction)
{
    struct gc_axes axes;
    *reduction = (struct reduction){.keeps = gc_infer_int(infer, "keepdims", 1) != 0};
    const enum gc_status status = gc_infer_axes(infer, "axes", 1, shape->rank, &axes);
    if (status != GC_OK)
        return status;
    const bool is_all = !axes.is_given && gc_infer_int(infer, "noop_with_empty_axes", 0) == 0;
    reduction->is_known = axes.is_known;
    for (uint32_t i = 0; is_all && i < shape->rank; i++)
        reduction->goes[i] = true;
    for (uint32_t i = 0; axes.is_known && i < axes.count; i++)
        reduction->goes[axes.list[i]] = true;
    if (!axes.is_known && !reduction->keeps && axes.count > 0 && axes.count <= shape->rank)
        return gc_infer_set_open(infer, 0, shape->rank - axes.count);
    if (!axes.is_known && reduction->keeps)
        return gc_infer_set_open(infer, 0, shape->rank);
    return GC_OK;
}

/* The place in the output of an element of the input. */
static uint32_t place_of(const struct gc_shape *shape, const struct reduction *reduction,
                         uint32_t index)
{
    uint64_t place = 0;
    uint64_t stride = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        const uint32_t dim = (uint32_t)shape->dims[i].number;
        if (!reduction->goes[i]) {
            place += index % dim * stride;
            stride *= dim;
        }
        index /= dim;
    }
    return (uint32_t)place;
}

static enum gc_status reduce_content(struct gc_infer *infer, const struct reduction *reduction,
                                     gc_fold_combine *combine)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    const struct gc_data *data = gc_infer_data(infer, 0);
    bool has_one[GC_GRAPH_DATA_MAX] = {false};
    uint32_t count;
    if (!gc_fold_has_content(infer, 0) || !gc_fold_room(infer, 0, &count))
        return GC_OK;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t k = 0; k < data->count; k++) {
        const uint32_t place = place_of(shape, reduction, k);
        items[place] = has_one[place] ? combine(items[place], data->items[k]) : data->items[k];
        has_one[place] = true;
    }
    for (uint32_t k = 0; k < count; k++)
        items[k] = gc_fold_narrow(gc_infer_dtype(infer, 0), items[k]);
    return gc_infer_set_data(infer, 0, items, count);
}

static enum gc_status reduce(struct gc_infer *infer, gc_fold_combine *combine)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct reduction reduction;
    uint32_t rank = 0;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !shape->is_known)
        return status;
    status = read_axes(infer, shape, &reduction);
    if (status != GC_OK || !reduction.is_known)
        return status;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (!reduction.goes[i])
            dims[rank++] = shape->dims[i];
        else if (reduction.keeps)
            dims[rank++] = gc_dim_number(1);
    }
    status = gc_infer_set_shape(infer, 0, dims, rank);
    return status == GC_OK && combine != NULL ? reduce_content(infer, &reduction, combine) : status;
}

enum gc_status gc_rule_reduce(struct gc_infer *infer)
{
    return reduce(infer, NULL);
}

enum gc_status gc_rule_reduce_prod(struct gc_infer *infer)
{
    return reduce(infer, gc_fold_mul);
}

enum gc_status gc_rule_reduce_sum(struct gc_infer *infer)
{
    return reduce(infer, gc_fold_add);
}

enum gc_status gc_rule_reduce_max(struct gc_infer *infer)
{
    return reduce(infer, gc_fold_larger);
}

enum gc_status gc_rule_reduce_min(struct gc_infer *infer)
{
    return reduce(infer, gc_fold_smaller);
}
