/* Into whole numbers with a scale, and back. */
#include "core/graph/ops_util.h"

/* Type of the zero point, input 2; else what the attribute says, else u8. */
enum gc_status gc_rule_quantize(struct gc_infer *infer)
{
    if (gc_infer_has_input(infer, 2))
        gc_infer_set_dtype(infer, 0, gc_infer_dtype(infer, 2));
    else
        gc_infer_set_dtype(infer, 0, gc_infer_dtype_attribute(infer, "output_dtype", GC_DTYPE_U8));
    return gc_infer_pass_shape(infer, 0, 0);
}

/* Type of the scale, input 1, unless an attribute says another. */
enum gc_status gc_rule_dequantize(struct gc_infer *infer)
{
    gc_infer_set_dtype(infer, 0,
                       gc_infer_dtype_attribute(infer, "output_dtype", gc_infer_dtype(infer, 1)));
    return gc_infer_pass_shape(infer, 0, 0);
}

/* Outputs: the numbers, their scale, their zero point. */
enum gc_status gc_rule_dynamic_quantize(struct gc_infer *infer)
{
    enum gc_status status = gc_infer_pass_shape(infer, 0, 0);
    gc_infer_set_dtype(infer, 0, GC_DTYPE_U8);
    if (status == GC_OK)
        status = gc_infer_set_scalar(infer, 1, GC_DTYPE_F32);
    return status != GC_OK ? status : gc_infer_set_scalar(infer, 2, GC_DTYPE_U8);
}
