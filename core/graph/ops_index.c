/* Operators that pick elements by index, put them somewhere, or pick by their content. */
#include "core/graph/ops_util.h"

/* GatherElements: an element for each of the indices, input 1. */
enum gc_status gc_rule_gather_elements(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *index = gc_infer_shape(infer, 1);
    uint32_t axis;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK && x->is_known)
        status = gc_infer_axis(infer, gc_infer_int(infer, "axis", 0), x->rank, &axis);
    if (status == GC_OK && x->is_known && index->is_known && x->rank != index->rank)
        status =
            gc_infer_fail(infer, "indices of %u dimensions into data of %u", index->rank, x->rank);
    return status != GC_OK ? status : gc_infer_pass_shape(infer, 0, 1);
}

/* The last dimension of the indices says how many of the data's, behind the batch, one picks by. */
enum gc_status gc_rule_gather_nd(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *index = gc_infer_shape(infer, 1);
    struct gc_dim dims[2 * GC_GRAPH_RANK_MAX];
    int64_t batch;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_int_within(infer, "batch_dims", 0, 0, GC_GRAPH_RANK_MAX, &batch);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 1, 1, GC_GRAPH_RANK_MAX);
    if (status != GC_OK || !x->is_known || !index->is_known)
        return status;
    const struct gc_dim depth = index->dims[index->rank - 1];
    if (depth.kind != GC_DIM_NUMBER)
        return GC_OK;
    if (batch >= index->rank || depth.number > (int64_t)x->rank - batch)
        return gc_infer_fail(infer, "indices of %lld behind %lld dimensions into data of %u",
                             (long long)depth.number, (long long)batch, x->rank);
    uint32_t rank = index->rank - 1;
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = index->dims[i];
    for (uint32_t i = (uint32_t)(batch + depth.number); i < x->rank; i++)
        dims[rank++] = x->dims[i];
    return gc_infer_set_shape(infer, 0, dims, rank);
}

enum gc_status gc_rule_one_hot(struct gc_infer *infer)
{
    const struct gc_shape *index = gc_infer_shape(infer, 0);
    const struct gc_dim *depth = gc_infer_items(infer, 1, 1);
    struct gc_dim dims[GC_GRAPH_RANK_MAX + 1];
    uint32_t axis;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 2);
    if (status != GC_OK || !index->is_known)
        return status;
    status = gc_infer_axis(infer, gc_infer_int(infer, "axis", -1), index->rank + 1, &axis);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < index->rank; i++)
        dims[i < axis ? i : i + 1] = index->dims[i];
    dims[axis] = depth != NULL ? *depth : gc_dim_unknown();
    return gc_infer_set_shape(infer, 0, dims, index->rank + 1);
}

/* How many of known elements are not 0. */
static struct gc_dim count_set(const struct gc_data *data)
{
    int64_t count = 0;
    if (data == NULL)
        return gc_dim_unknown();
    for (uint32_t i = 0; i < data->count; i++) {
        if (data->items[i].kind == GC_DIM_NUMBER)
            count += data->items[i].number != 0;
        else if (data->items[i].kind == GC_DIM_REAL)
            count += data->items[i].real != 0;
        else
            return gc_dim_unknown();
    }
    return gc_dim_number(count);
}

enum gc_status gc_rule_compress(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX] = {count_set(gc_infer_data(infer, 1))};
    const struct gc_dim count = dims[0];
    uint32_t axis;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 1, 1, 1);
    if (status != GC_OK)
        return status;
    if (!gc_infer_has(infer, "axis"))
        return gc_infer_set_shape(infer, 0, dims, 1);
    if (!x->is_known)
        return GC_OK;
    status = gc_infer_axis(infer, gc_infer_int(infer, "axis", 0), x->rank, &axis);
    if (status != GC_OK)
        return status;
    gc_shape_copy(x, dims);
    dims[axis] = count;
    return gc_infer_set_shape(infer, 0, dims, x->rank);
}

/* The places of known elements that are not 0: a row of the result for each dimension. */
static enum gc_status set_places(struct gc_infer *infer, const struct gc_shape *x,
                                 const struct gc_data *data, int64_t count)
{
    uint32_t found = 0;
    const uint32_t columns = (uint32_t)count;
    if (columns == 0 || x->rank > GC_GRAPH_DATA_MAX / columns)
        return GC_OK;
    struct gc_dim *places = gc_infer_scratch(infer, columns * x->rank);
    if (places == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < data->count; i++) {
        const struct gc_dim item = data->items[i];
        int64_t rest = i;
        if (item.kind == GC_DIM_NUMBER ? item.number == 0 : item.real == 0)
            continue;
        for (uint32_t dim = x->rank; dim-- > 0;) {
            if (x->dims[dim].kind != GC_DIM_NUMBER || x->dims[dim].number == 0)
                return GC_OK;
            places[dim * columns + found] = gc_dim_number(rest % x->dims[dim].number);
            rest /= x->dims[dim].number;
        }
        found++;
    }
    return gc_infer_set_data(infer, 0, places, columns * x->rank);
}

/* Exporters count with it: of a tensor that is known the places are. */
enum gc_status gc_rule_non_zero(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_data *data = gc_infer_data(infer, 0);
    const struct gc_dim count = count_set(data);
    /* Of a scalar implementations make one row or none. */
    const struct gc_dim rows =
        x->is_known && x->rank > 0 ? gc_dim_number(x->rank) : gc_dim_unknown();
    const struct gc_dim dims[] = {rows, count};
    gc_infer_set_dtype(infer, 0, GC_DTYPE_I64);
    const enum gc_status status = gc_infer_set_shape(infer, 0, dims, 2);
    if (status != GC_OK || count.kind != GC_DIM_NUMBER || rows.kind != GC_DIM_NUMBER)
        return status;
    return set_places(infer, x, data, count.number);
}

/* Outputs: elements or slices, where each first was, which of them each is, how often. */
enum gc_status gc_rule_unique(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX] = {gc_dim_unknown()};
    uint32_t rank = 1;
    uint32_t axis = 0;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    struct gc_dim all = x->is_known ? gc_dim_product(x->dims, 0, x->rank) : gc_dim_unknown();
    for (uint32_t i = 1; i < 4; i++)
        gc_infer_set_dtype(infer, i, GC_DTYPE_I64);
    if (status == GC_OK && gc_infer_has(infer, "axis") && x->is_known) {
        status = gc_infer_axis(infer, gc_infer_int(infer, "axis", 0), x->rank, &axis);
        rank = gc_shape_copy(x, dims);
        all = x->dims[axis < x->rank ? axis : 0];
        dims[axis] = gc_dim_unknown();
    }
    if (status == GC_OK && (x->is_known || !gc_infer_has(infer, "axis")))
        status = gc_infer_set_shape(infer, 0, dims, rank);
    if (status == GC_OK)
        status = gc_infer_set_open(infer, 1, 1);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 2, &all, 1);
    return status != GC_OK ? status : gc_infer_set_open(infer, 3, 1);
}

/* Boxes that stay: [how many, batch and class and box]. */
enum gc_status gc_rule_non_max_suppression(struct gc_infer *infer)
{
    const struct gc_dim dims[] = {gc_dim_unknown(), gc_dim_number(3)};
    enum gc_status status = gc_infer_want_rank(infer, 0, 3, 3);
    if (status == GC_OK)
        status = gc_infer_want_rank(infer, 1, 3, 3);
    gc_infer_set_dtype(infer, 0, GC_DTYPE_I64);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, 2);
}
