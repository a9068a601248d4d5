/* Rules that many operators share. */
#include "core/graph/engine.h"

/* Output 0 as input 0: element by element. */
enum gc_status gc_rule_same(struct gc_infer *infer)
{
    const enum gc_status status = gc_infer_pass_dtype(infer, 0, 0);
    return status != GC_OK ? status : gc_infer_pass_shape(infer, 0, 0);
}

enum gc_status gc_rule_identity(struct gc_infer *infer)
{
    const enum gc_status status = gc_rule_same(infer);
    return status != GC_OK ? status : gc_infer_pass_data(infer, 0, 0);
}
