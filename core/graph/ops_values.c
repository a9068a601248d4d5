/* Rules of operators on shapes: they compute on small tensors of whole numbers, and what they
 * compute becomes other values' shapes. Their results are carried, not only their types. */
#include "core/graph/engine.h"

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

enum gc_status gc_rule_arithmetic(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    if (status != GC_OK)
        return status;
    return gc_infer_broadcast_inputs(infer, 0, gc_infer_input_count(infer), 0);
}

/* If, Loop and Scan are the walk's own. */
enum gc_status gc_rule_control(struct gc_infer *infer)
{
    (void)infer;
    return GC_OK;
}
