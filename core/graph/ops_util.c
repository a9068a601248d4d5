#include "core/graph/ops_util.h"

enum gc_status gc_ops_want_rank(struct gc_infer *infer, uint32_t input, uint32_t low, uint32_t high)
{
    const struct gc_shape *shape = gc_infer_shape(infer, input);
    if (!shape->is_known || (shape->rank >= low && shape->rank <= high))
        return GC_OK;
    if (low == high)
        return gc_infer_fail(infer, "input %u has %u dimensions; %u are accepted", input,
                             shape->rank, low);
    return gc_infer_fail(infer, "input %u has %u dimensions; %u to %u are accepted", input,
                         shape->rank, low, high);
}

enum gc_status gc_ops_int_within(struct gc_infer *infer, const char *name, int64_t fallback,
                                 int64_t low, int64_t high, int64_t *value)
{
    *value = gc_infer_int(infer, name, fallback);
    if (*value >= low && *value <= high)
        return GC_OK;
    return gc_infer_fail(infer, "%s is %lld; %lld to %lld are accepted", name, (long long)*value,
                         (long long)low, (long long)high);
}

const struct gc_dim *gc_ops_items(const struct gc_infer *infer, uint32_t input, uint32_t count)
{
    const struct gc_data *data = gc_infer_data(infer, input);
    return data != NULL && data->count == count ? data->items : NULL;
}

enum gc_status gc_ops_set_scalar(struct gc_infer *infer, uint32_t output, enum gc_dtype dtype)
{
    const struct gc_dim none = gc_dim_unknown();
    gc_infer_set_dtype(infer, output, dtype);
    return gc_infer_set_shape(infer, output, &none, 0);
}

enum gc_status gc_ops_set_open(struct gc_infer *infer, uint32_t output, uint32_t rank)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    if (rank > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(infer, "%u dimensions; %d are accepted", rank, GC_GRAPH_RANK_MAX);
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = gc_dim_unknown();
    return gc_infer_set_shape(infer, output, dims, rank);
}

enum gc_status gc_ops_pass(struct gc_infer *infer, uint32_t output, uint32_t input)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, output, input);
    return status != GC_OK ? status : gc_infer_pass_shape(infer, output, input);
}

enum gc_status gc_ops_merge_inputs(struct gc_infer *infer)
{
    const struct gc_shape *first = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    enum gc_status status = GC_OK;
    if (!first->is_known)
        return GC_OK;
    gc_shape_copy(first, dims);
    for (uint32_t i = 1; i < gc_infer_input_count(infer); i++) {
        status = gc_ops_want_rank(infer, i, first->rank, first->rank);
        for (uint32_t j = 0; j < first->rank && status == GC_OK; j++)
            status = gc_dim_merge(infer, "dimensions of the inputs", dims[j],
                                  gc_shape_dim(gc_infer_shape(infer, i), j), &dims[j]);
        if (status != GC_OK)
            return status;
    }
    return gc_infer_set_shape(infer, 0, dims, first->rank);
}
