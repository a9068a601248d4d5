/* Parts of tensors: Gather, Concat, Slice, Expand, with content; Scatter and the operators that
 * pick by index or by content. */
#include "core/graph/engine.h"
#include "core/graph/fold.h"
#include "core/graph/ops_util.h"

#include <string.h>

/* ---- Gather ---- */

static struct gc_dim picked(const struct gc_data *data, uint32_t outer, int64_t dim,
                            struct gc_dim index, uint32_t inner, uint32_t inner_count)
{
    if (index.kind != GC_DIM_NUMBER || index.number < -dim || index.number >= dim)
        return gc_dim_unknown();
    const int64_t at = index.number < 0 ? index.number + dim : index.number;
    return data->items[((int64_t)outer * dim + at) * inner_count + inner];
}

static enum gc_status gather_content(struct gc_infer *infer, uint32_t axis)
{
    const struct gc_shape *from = gc_infer_shape(infer, 0);
    const struct gc_data *data = gc_infer_data(infer, 0);
    const struct gc_data *indices = gc_infer_data(infer, 1);
    uint32_t count;
    uint32_t inner_count = 1;
    if (!gc_fold_has_content(infer, 0) || !gc_fold_has_content(infer, 1) ||
        !gc_fold_room(infer, 0, &count))
        return GC_OK;
    /* The product is at most GC_GRAPH_DATA_MAX, since the content is kept. */
    for (uint32_t i = axis + 1; i < from->rank; i++)
        inner_count *= (uint32_t)from->dims[i].number;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t inner = k % inner_count;
        const uint32_t index = k / inner_count % indices->count;
        const uint32_t outer = k / inner_count / indices->count;
        items[k] =
            picked(data, outer, from->dims[axis].number, indices->items[index], inner, inner_count);
    }
    return gc_infer_set_data(infer, 0, items, count);
}

enum gc_status gc_rule_gather(struct gc_infer *infer)
{
    const struct gc_shape *from = gc_infer_shape(infer, 0);
    const struct gc_shape *indices = gc_infer_shape(infer, 1);
    struct gc_dim dims[2 * GC_GRAPH_RANK_MAX];
    uint32_t axis;
    uint32_t rank = 0;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !from->is_known)
        return status;
    status = gc_infer_axis(infer, gc_infer_int(infer, "axis", 0), from->rank, &axis);
    if (status != GC_OK || !indices->is_known)
        return status;
    for (uint32_t i = 0; i < axis; i++)
        dims[rank++] = from->dims[i];
    for (uint32_t i = 0; i < indices->rank; i++)
        dims[rank++] = indices->dims[i];
    for (uint32_t i = axis + 1; i < from->rank; i++)
        dims[rank++] = from->dims[i];
    status = gc_infer_set_shape(infer, 0, dims, rank);
    return status == GC_OK ? gather_content(infer, axis) : status;
}

/* ---- Concat ---- */

/* An input of unknown content counts as UNKNOWN elements: the others' content is kept. */
static void concat_one(const struct gc_infer *infer, uint32_t input, uint32_t outer, uint32_t chunk,
                       struct gc_dim *to)
{
    const struct gc_data *data =
        gc_fold_has_content(infer, input) ? gc_infer_data(infer, input) : NULL;
    for (uint32_t i = 0; i < chunk; i++)
        to[i] = data != NULL ? data->items[(uint64_t)outer * chunk + i] : gc_dim_unknown();
}

static enum gc_status concat_content(struct gc_infer *infer, uint32_t axis)
{
    const struct gc_shape *shape = &gc_infer_output(infer, 0)->type.shape;
    uint32_t count;
    uint32_t outer_count = 1;
    bool has_content = false;
    for (uint32_t i = 0; i < gc_infer_input_count(infer); i++)
        has_content = has_content || gc_fold_has_content(infer, i);
    if (!has_content || !gc_fold_room(infer, 0, &count) || count == 0)
        return GC_OK;
    for (uint32_t i = 0; i < axis; i++)
        outer_count *= (uint32_t)shape->dims[i].number;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    uint32_t at = 0;
    for (uint32_t outer = 0; outer < outer_count; outer++) {
        for (uint32_t i = 0; i < gc_infer_input_count(infer); i++) {
            uint64_t elements;
            if (!gc_infer_elements(gc_infer_shape(infer, i), &elements) ||
                elements / outer_count > count - at)
                return GC_OK;
            const uint32_t chunk = (uint32_t)(elements / outer_count);
            concat_one(infer, i, outer, chunk, items + at);
            at += chunk;
        }
    }
    return at == count ? gc_infer_set_data(infer, 0, items, count) : GC_OK;
}

static enum gc_status join(struct gc_infer *infer, uint32_t input, uint32_t axis,
                           struct gc_dim *dims, uint32_t rank)
{
    const struct gc_shape *shape = gc_infer_shape(infer, input);
    if (!shape->is_known) {
        dims[axis] = gc_dim_unknown();
        return GC_OK;
    }
    if (shape->rank != rank)
        return gc_infer_fail(infer, "input %u has %u dimensions, another %u", input, shape->rank,
                             rank);
    for (uint32_t i = 0; i < rank; i++) {
        if (i == axis) {
            dims[i] = input == 0 ? shape->dims[i] : gc_dim_add(dims[i], shape->dims[i]);
            continue;
        }
        const enum gc_status status =
            gc_dim_merge(infer, "inputs' dimensions", dims[i], shape->dims[i], &dims[i]);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

/* An input of unknown shape makes the sum of lengths unknown. */
static bool all_known(const struct gc_infer *infer)
{
    for (uint32_t i = 0; i < gc_infer_input_count(infer); i++) {
        if (!gc_infer_shape(infer, i)->is_known)
            return false;
    }
    return true;
}

enum gc_status gc_rule_concat(struct gc_infer *infer)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    const struct gc_shape *known = NULL;
    uint32_t axis;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    for (uint32_t i = 0; known == NULL && i < gc_infer_input_count(infer); i++)
        known = gc_infer_shape(infer, i)->is_known ? gc_infer_shape(infer, i) : NULL;
    if (status != GC_OK || known == NULL)
        return status;
    const int64_t fallback = gc_infer_opset(infer) < 4 ? 1 : 0;
    status = gc_infer_axis(infer, gc_infer_int(infer, "axis", fallback), known->rank, &axis);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < known->rank; i++)
        dims[i] = gc_dim_unknown();
    for (uint32_t i = 0; status == GC_OK && i < gc_infer_input_count(infer); i++)
        status = join(infer, i, axis, dims, known->rank);
    if (!all_known(infer))
        dims[axis] = gc_dim_unknown();
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, dims, known->rank);
    return status == GC_OK && gc_infer_has_output(infer, 0) ? concat_content(infer, axis) : status;
}

/* ---- Slice ---- */

/* Start and step of each axis; open: unknown. */
struct cuts {
    bool is_open[GC_GRAPH_RANK_MAX];
    int64_t start[GC_GRAPH_RANK_MAX];
    int64_t step[GC_GRAPH_RANK_MAX];
};

#define SLICE_FAR INT32_MAX /* exporters write this, or more, for "to the end" */

struct slice {
    struct gc_dim start;
    struct gc_dim end;
    struct gc_dim step;
};

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The number of elements if start, end and step are numbers. */
static int64_t cut_number(const struct slice *slice, int64_t dim, int64_t *start)
{
    const int64_t step = slice->step.number;
    const bool is_back = step < 0;
    int64_t first = slice->start.number;
    int64_t end = slice->end.number;
    *start = 0;
    if (dim == 0)
        return 0;
    first = first < 0 ? first + dim : first;
    end = end < 0 ? end + dim : end;
    first = clamp(first, 0, is_back ? dim - 1 : dim);
    end = clamp(end, is_back ? -1 : 0, dim);
    *start = first;
    if (is_back)
        return first > end ? (int64_t)(((uint64_t)(first - end) - 1) / (0 - (uint64_t)step)) + 1
                           : 0;
    return end > first ? (end - first - 1) / step + 1 : 0;
}

static struct gc_dim cut(const struct slice *slice, struct gc_dim dim, int64_t *start,
                         bool *is_open)
{
    const struct gc_dim *first = &slice->start;
    const struct gc_dim *end = &slice->end;
    *start = 0;
    *is_open = true;
    if (slice->step.kind != GC_DIM_NUMBER || slice->step.number == 0)
        return gc_dim_unknown();
    if (first->kind == GC_DIM_NUMBER && end->kind == GC_DIM_NUMBER && dim.kind == GC_DIM_NUMBER) {
        *is_open = false;
        return gc_dim_number(cut_number(slice, dim.number, start));
    }
    if (slice->step.number == 1 && gc_dim_is(*first, 0) &&
        (gc_dim_same(*end, dim) || (end->kind == GC_DIM_NUMBER && end->number >= SLICE_FAR)))
        return dim;
    if (slice->step.number == -1 && gc_dim_is(*first, -1) && end->kind == GC_DIM_NUMBER &&
        end->number <= -SLICE_FAR)
        return dim;
    return gc_dim_unknown();
}

static enum gc_status slice_content(struct gc_infer *infer, const struct cuts *cuts)
{
    const struct gc_shape *from = gc_infer_shape(infer, 0);
    const struct gc_data *data = gc_infer_data(infer, 0);
    const struct gc_shape *to = &gc_infer_output(infer, 0)->type.shape;
    uint32_t count;
    if (!gc_fold_has_content(infer, 0) || !gc_fold_room(infer, 0, &count))
        return GC_OK;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t rest = k;
        int64_t source = 0;
        int64_t stride = 1;
        for (uint32_t i = from->rank; i-- > 0;) {
            const int64_t at = rest % to->dims[i].number;
            rest = (uint32_t)(rest / to->dims[i].number);
            source += (cuts->start[i] + at * cuts->step[i]) * stride;
            stride *= from->dims[i].number;
        }
        items[k] = data->items[source];
    }
    return gc_infer_set_data(infer, 0, items, count);
}

/* The n-th of the starts, ends, axes or steps: an attribute's before opset 10, then an input's. */
static struct gc_dim bound_of(const struct gc_infer *infer, const char *name, uint32_t input,
                              uint32_t n, int64_t fallback)
{
    const int64_t *ints;
    uint32_t count;
    if (gc_infer_opset(infer) < 10)
        return gc_infer_ints(infer, name, &ints, &count) && n < count ? gc_dim_number(ints[n])
                                                                      : gc_dim_number(fallback);
    if (!gc_infer_has_input(infer, input))
        return gc_dim_number(fallback);
    const struct gc_data *data = gc_infer_data(infer, input);
    return data != NULL && n < data->count ? data->items[n] : gc_dim_unknown();
}

/* The number of axes to slice; false if unknown. */
static bool cut_count(const struct gc_infer *infer, uint32_t *count)
{
    const int64_t *ints;
    if (gc_infer_opset(infer) < 10)
        return gc_infer_ints(infer, "starts", &ints, count);
    for (uint32_t input = 1; input < 5; input++) {
        const struct gc_shape *shape = gc_infer_shape(infer, input);
        if (shape->is_known && shape->rank == 1 && shape->dims[0].kind == GC_DIM_NUMBER &&
            shape->dims[0].number <= GC_GRAPH_RANK_MAX) {
            *count = (uint32_t)shape->dims[0].number;
            return true;
        }
    }
    return false;
}

static enum gc_status cut_axis(struct gc_infer *infer, uint32_t n, uint32_t rank,
                               struct gc_dim *dims, struct cuts *cuts, bool *knows_axis)
{
    const struct gc_dim axis = bound_of(infer, "axes", 3, n, n);
    const struct slice slice = {
        .start = bound_of(infer, "starts", 1, n, 0),
        .end = bound_of(infer, "ends", 2, n, 0),
        .step = bound_of(infer, "steps", 4, n, 1),
    };
    uint32_t normal;
    *knows_axis = axis.kind == GC_DIM_NUMBER;
    if (!*knows_axis)
        return GC_OK;
    const enum gc_status status = gc_infer_axis(infer, axis.number, rank, &normal);
    if (status != GC_OK)
        return status;
    dims[normal] = cut(&slice, dims[normal], &cuts->start[normal], &cuts->is_open[normal]);
    cuts->step[normal] = slice.step.number;
    return GC_OK;
}

enum gc_status gc_rule_slice(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct cuts cuts = {.start = {0}};
    uint32_t count = 0;
    bool is_complete = true;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || !shape->is_known)
        return status;
    gc_shape_copy(shape, dims);
    for (uint32_t i = 0; i < shape->rank; i++)
        cuts.step[i] = 1;
    if (!cut_count(infer, &count))
        return gc_ops_set_open(infer, 0, shape->rank);
    for (uint32_t n = 0; n < count; n++) {
        bool knows_axis;
        status = cut_axis(infer, n, shape->rank, dims, &cuts, &knows_axis);
        if (status != GC_OK)
            return status;
        if (!knows_axis)
            return gc_ops_set_open(infer, 0, shape->rank);
    }
    for (uint32_t i = 0; i < shape->rank; i++)
        is_complete = is_complete && !cuts.is_open[i];
    status = gc_infer_set_shape(infer, 0, dims, shape->rank);
    return status == GC_OK && is_complete && gc_infer_has_output(infer, 0)
               ? slice_content(infer, &cuts)
               : status;
}

/* ---- Expand ---- */

/* The shape to broadcast with, as far as it is known; false: not even its rank. */
static bool expand_target(const struct gc_infer *infer, struct gc_dim *dims,
                          struct gc_shape *target)
{
    const struct gc_data *data = gc_infer_data(infer, 1);
    const struct gc_dim count = gc_shape_dim(gc_infer_shape(infer, 1), 0);
    *target = (struct gc_shape){.is_known = true, .dims = dims};
    if (count.kind != GC_DIM_NUMBER || count.number > GC_GRAPH_RANK_MAX)
        return false;
    target->rank = (uint32_t)count.number;
    for (uint32_t i = 0; i < target->rank; i++)
        dims[i] = data != NULL && i < data->count ? data->items[i] : gc_dim_unknown();
    return true;
}

enum gc_status gc_rule_expand(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    struct gc_dim wanted[GC_GRAPH_RANK_MAX];
    struct gc_shape target;
    uint32_t rank;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 1, 1, 1);
    if (status != GC_OK || !shape->is_known || !expand_target(infer, wanted, &target))
        return status;
    status = gc_dims_broadcast(infer, shape, &target, dims, &rank);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, dims, rank);
    uint32_t count;
    if (status != GC_OK || !gc_fold_has_content(infer, 0) || !gc_fold_room(infer, 0, &count))
        return status;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t k = 0; k < count; k++)
        items[k] = gc_infer_data(infer, 0)
                       ->items[gc_fold_source(shape, &gc_infer_output(infer, 0)->type.shape, k)];
    return gc_infer_set_data(infer, 0, items, count);
}

/* Operators that pick elements by index, put them somewhere, or pick by their content. */

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

/* The last dimension of the indices is the number of data dimensions, after the batch, that one
 * index tuple selects. */
enum gc_status gc_rule_gather_nd(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_shape *index = gc_infer_shape(infer, 1);
    struct gc_dim dims[2 * GC_GRAPH_RANK_MAX];
    int64_t batch;
    enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status == GC_OK)
        status = gc_ops_int_within(infer, "batch_dims", 0, 0, GC_GRAPH_RANK_MAX, &batch);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 1, 1, GC_GRAPH_RANK_MAX);
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
    const struct gc_dim *depth = gc_ops_items(infer, 1, 1);
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

/* The number of elements that are not 0; UNKNOWN if an element is unknown. */
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
        status = gc_ops_want_rank(infer, 1, 1, 1);
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

/* The indices of known elements that are not 0: a row of the result for each dimension. */
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

/* Exporters count with NonZero: for known content the positions are known. */
enum gc_status gc_rule_non_zero(struct gc_infer *infer)
{
    const struct gc_shape *x = gc_infer_shape(infer, 0);
    const struct gc_data *data = gc_infer_data(infer, 0);
    const struct gc_dim count = count_set(data);
    /* For a scalar, implementations return one row or none. */
    const struct gc_dim rows =
        x->is_known && x->rank > 0 ? gc_dim_number(x->rank) : gc_dim_unknown();
    const struct gc_dim dims[] = {rows, count};
    gc_infer_set_dtype(infer, 0, GC_DTYPE_I64);
    const enum gc_status status = gc_infer_set_shape(infer, 0, dims, 2);
    if (status != GC_OK || count.kind != GC_DIM_NUMBER || rows.kind != GC_DIM_NUMBER)
        return status;
    return set_places(infer, x, data, count.number);
}

/* Outputs: the unique elements or slices, their first positions, the inverse map, their counts. */
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
        status = gc_ops_set_open(infer, 1, 1);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 2, &all, 1);
    return status != GC_OK ? status : gc_ops_set_open(infer, 3, 1);
}

/* Output: [number of boxes that stay, 3]: batch, class and box index of each. */
enum gc_status gc_rule_non_max_suppression(struct gc_infer *infer)
{
    const struct gc_dim dims[] = {gc_dim_unknown(), gc_dim_number(3)};
    enum gc_status status = gc_ops_want_rank(infer, 0, 3, 3);
    if (status == GC_OK)
        status = gc_ops_want_rank(infer, 1, 3, 3);
    gc_infer_set_dtype(infer, 0, GC_DTYPE_I64);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, 2);
}
