/* Constants, and operators on shapes: they compute on small tensors of whole numbers, and the
 * results become shapes of other values, so content is carried, not only types. */
#include "core/graph/engine.h"
#include "core/graph/fold.h"
#include "core/graph/ops_util.h"

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

enum gc_status gc_rule_shape(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    gc_infer_set_dtype(infer, 0, GC_DTYPE_I64);
    if (!shape->is_known) {
        const struct gc_dim unknown = gc_dim_unknown();
        return gc_infer_set_shape(infer, 0, &unknown, 1);
    }
    const int64_t rank = shape->rank;
    int64_t start = gc_infer_int(infer, "start", 0);
    int64_t end = gc_infer_int(infer, "end", rank);
    start = clamp(start < 0 ? start + rank : start, 0, rank);
    end = clamp(end < 0 ? end + rank : end, start, rank);
    const struct gc_dim count = gc_dim_number(end - start);
    const enum gc_status status = gc_infer_set_shape(infer, 0, &count, 1);
    if (status != GC_OK)
        return status;
    return gc_infer_set_data(infer, 0, shape->dims + start, (uint32_t)(end - start));
}

enum gc_status gc_rule_size(struct gc_infer *infer)
{
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    const enum gc_status status = gc_ops_set_scalar(infer, 0, GC_DTYPE_I64);
    if (status != GC_OK || !shape->is_known)
        return status;
    const struct gc_dim product = gc_dim_product(shape->dims, 0, shape->rank);
    return gc_infer_set_data(infer, 0, &product, 1);
}

/* ---- Constant ---- */

static enum gc_status set_tensor(struct gc_infer *infer, const struct gc_tensor *tensor)
{
    struct gc_graph_value *value = gc_infer_output(infer, 0);
    if (value == NULL || tensor == NULL)
        return GC_OK;
    value->type = tensor->type;
    value->data = tensor->data;
    return GC_OK;
}

static enum gc_status set_ints(struct gc_infer *infer, const int64_t *ints, uint64_t count)
{
    const bool is_kept = count <= GC_GRAPH_DATA_MAX;
    struct gc_dim *items = gc_infer_scratch(infer, is_kept ? (uint32_t)count : 0);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint64_t i = 0; is_kept && i < count; i++)
        items[i] = gc_dim_number(ints[i]);
    return gc_infer_set_data(infer, 0, items, is_kept ? (uint32_t)count : UINT32_MAX);
}

static enum gc_status set_reals(struct gc_infer *infer, const double *reals, uint64_t count)
{
    const bool is_kept = count <= GC_GRAPH_DATA_MAX;
    struct gc_dim *items = gc_infer_scratch(infer, is_kept ? (uint32_t)count : 0);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint64_t i = 0; is_kept && i < count; i++)
        items[i] = gc_dim_real(reals[i]);
    return gc_infer_set_data(infer, 0, items, is_kept ? (uint32_t)count : UINT32_MAX);
}

static enum gc_status set_attribute(struct gc_infer *infer,
                                    const struct gc_graph_attribute *attribute)
{
    const struct gc_dim count = gc_dim_number((int64_t)attribute->count);
    const bool is_list = attribute->kind == GC_ATTRIBUTE_INTS ||
                         attribute->kind == GC_ATTRIBUTE_REALS ||
                         attribute->kind == GC_ATTRIBUTE_TEXTS;
    const bool is_int = attribute->kind == GC_ATTRIBUTE_INT || attribute->kind == GC_ATTRIBUTE_INTS;
    const bool is_real =
        attribute->kind == GC_ATTRIBUTE_REAL || attribute->kind == GC_ATTRIBUTE_REALS;
    gc_infer_set_dtype(infer, 0, is_int ? GC_DTYPE_I64 : is_real ? GC_DTYPE_F32 : GC_DTYPE_TEXT);
    const enum gc_status status = gc_infer_set_shape(infer, 0, &count, is_list);
    if (status != GC_OK)
        return status;
    if (is_int)
        return set_ints(infer, is_list ? attribute->integers : &attribute->integer,
                        is_list ? attribute->count : 1);
    return is_real ? set_reals(infer, is_list ? attribute->reals : &attribute->real,
                               is_list ? attribute->count : 1)
                   : GC_OK;
}

/* The first attribute present of value, value_int, value_floats, … */
enum gc_status gc_rule_constant(struct gc_infer *infer)
{
    const struct gc_graph_node *node = gc_infer_node(infer);
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        const struct gc_graph_attribute *attribute = &node->attributes[i];
        switch (attribute->kind) {
        case GC_ATTRIBUTE_TENSOR:
        case GC_ATTRIBUTE_SPARSE:
            return set_tensor(infer, attribute->tensor);
        case GC_ATTRIBUTE_INT:
        case GC_ATTRIBUTE_INTS:
        case GC_ATTRIBUTE_REAL:
        case GC_ATTRIBUTE_REALS:
        case GC_ATTRIBUTE_TEXT:
        case GC_ATTRIBUTE_TEXTS:
            return set_attribute(infer, attribute);
        default:
            break;
        }
    }
    return gc_infer_fail(infer, "no value");
}

/* ---- ConstantOfShape, Range ---- */

/* Reals never become shapes: no more are kept than scales and limits have. */
#define REALS_MAX 256

static enum gc_status fill(struct gc_infer *infer, const struct gc_tensor *tensor)
{
    const bool is_given = tensor != NULL && tensor->data != NULL && tensor->data->count == 1;
    const struct gc_dim item = is_given ? tensor->data->items[0] : gc_dim_real(0);
    uint32_t count;
    if ((tensor != NULL && !is_given) || !gc_fold_room(infer, 0, &count) ||
        (item.kind == GC_DIM_REAL && count > REALS_MAX))
        return GC_OK;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t i = 0; i < count; i++)
        items[i] = item;
    return gc_infer_set_data(infer, 0, items, count);
}

enum gc_status gc_rule_constant_of_shape(struct gc_infer *infer)
{
    const struct gc_tensor *tensor = gc_infer_tensor(infer, "value");
    const struct gc_data *data = gc_infer_data(infer, 0);
    const struct gc_shape *shape = gc_infer_shape(infer, 0);
    gc_infer_set_dtype(infer, 0, tensor != NULL ? tensor->type.dtype : GC_DTYPE_F32);
    if (data != NULL) {
        const enum gc_status status = gc_infer_set_shape(infer, 0, data->items, data->count);
        return status == GC_OK ? fill(infer, tensor) : status;
    }
    if (shape->is_known && shape->rank == 1 && shape->dims[0].kind == GC_DIM_NUMBER &&
        shape->dims[0].number <= GC_GRAPH_RANK_MAX)
        return gc_ops_set_open(infer, 0, (uint32_t)shape->dims[0].number);
    return GC_OK;
}

static const struct gc_dim *only_item(const struct gc_infer *infer, uint32_t input)
{
    return gc_ops_items(infer, input, 1);
}

/* The number of elements from start to limit; for integers also their values. */
static enum gc_status count_up(struct gc_infer *infer, int64_t start, int64_t limit, int64_t delta)
{
    uint64_t count = 0;
    if (delta > 0 && limit > start)
        count = ((uint64_t)limit - (uint64_t)start - 1) / (uint64_t)delta + 1;
    else if (delta < 0 && limit < start)
        count = ((uint64_t)start - (uint64_t)limit - 1) / (0 - (uint64_t)delta) + 1;
    const struct gc_dim dim = count <= INT64_MAX ? gc_dim_number((int64_t)count) : gc_dim_unknown();
    const enum gc_status status = gc_infer_set_shape(infer, 0, &dim, 1);
    if (status != GC_OK || count > GC_GRAPH_DATA_MAX)
        return status;
    struct gc_dim *items = gc_infer_scratch(infer, (uint32_t)count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t i = 0; i < count; i++)
        items[i] = gc_dim_number((int64_t)((uint64_t)start + i * (uint64_t)delta));
    return gc_infer_set_data(infer, 0, items, (uint32_t)count);
}

static struct gc_dim count_reals(double start, double limit, double delta)
{
    const double most = 4503599627370496.0; /* 2^52 */
    const double steps = (limit - start) / delta;
    if (!(steps > 0))
        return delta != 0 && steps <= 0 ? gc_dim_number(0) : gc_dim_unknown();
    if (!(steps < most))
        return gc_dim_unknown();
    const int64_t whole = (int64_t)steps;
    return gc_dim_number(whole + ((double)whole < steps));
}

enum gc_status gc_rule_range(struct gc_infer *infer)
{
    const struct gc_dim *start = only_item(infer, 0);
    const struct gc_dim *limit = only_item(infer, 1);
    const struct gc_dim *delta = only_item(infer, 2);
    struct gc_dim dim = gc_dim_unknown();
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK || start == NULL || limit == NULL || delta == NULL)
        return status != GC_OK ? status : gc_infer_set_shape(infer, 0, &dim, 1);
    if (gc_dim_is(*delta, 0))
        return gc_infer_fail(infer, "a range in steps of 0");
    if (start->kind == GC_DIM_NUMBER && limit->kind == GC_DIM_NUMBER &&
        delta->kind == GC_DIM_NUMBER)
        return count_up(infer, start->number, limit->number, delta->number);
    if (start->kind == GC_DIM_REAL && limit->kind == GC_DIM_REAL && delta->kind == GC_DIM_REAL)
        dim = count_reals(start->real, limit->real, delta->real);
    else if (gc_dim_is(*start, 0) && gc_dim_is(*delta, 1))
        dim = *limit;
    return gc_infer_set_shape(infer, 0, &dim, 1);
}

/* control.c infers If, Loop and Scan. */
enum gc_status gc_rule_control(struct gc_infer *infer)
{
    (void)infer;
    return GC_OK;
}

/* Operators with an output of the shape of an attribute or of another tensor: random numbers,
 * EyeLike. */

/* RandomNormal, RandomUniform. */
enum gc_status gc_rule_random(struct gc_infer *infer)
{
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    const int64_t *shape;
    uint32_t rank;
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "dtype", GC_DTYPE_F32));
    if (!gc_infer_ints(infer, "shape", &shape, &rank))
        return gc_infer_fail(infer, "no shape");
    if (rank > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(infer, "%u dimensions; %d are accepted", rank, GC_GRAPH_RANK_MAX);
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = gc_dim_number(shape[i]);
    return gc_infer_set_shape(infer, 0, dims, rank);
}

/* RandomNormalLike, RandomUniformLike, Bernoulli, EyeLike: the input's type, unless an attribute
 * gives one. */
enum gc_status gc_rule_like(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0,
                       gc_infer_dtype_attribute(infer, "dtype", gc_infer_dtype(infer, 0)));
    return gc_infer_pass_shape(infer, 0, 0);
}

enum gc_status gc_rule_multinomial(struct gc_infer *infer)
{
    const struct gc_dim dims[] = {gc_shape_dim(gc_infer_shape(infer, 0), 0),
                                  gc_dim_number(gc_infer_int(infer, "sample_size", 1))};
    gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "dtype", GC_DTYPE_I32));
    const enum gc_status status = gc_ops_want_rank(infer, 0, 2, 2);
    return status != GC_OK ? status : gc_infer_set_shape(infer, 0, dims, 2);
}
