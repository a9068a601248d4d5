/* LSTM, GRU, RNN: X [steps, batch, size] (layout 1: batch first), W [directions, gates, size].
 * Outputs: Y [steps, directions, batch, hidden], then the last states [directions, batch, hidden].
 */
#include "core/graph/ops_util.h"

#include <string.h>

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
        status = gc_infer_want_rank(infer, 0, 3, 3);
    if (status == GC_OK)
        status = gc_infer_set_shape(infer, 0, batch_first ? batched : sequence, 4);
    return status != GC_OK ? status : set_states(infer, batch_first, count, batch, hidden);
}

/* The contrib domain's DynamicQuantizeLSTM: its weights lie the other way round, and do not tell.
 */
enum gc_status gc_rule_recurrent_quantised(struct gc_infer *infer)
{
    return gc_infer_int(infer, "hidden_size", 0) > 0 ? gc_rule_recurrent(infer) : GC_OK;
}
