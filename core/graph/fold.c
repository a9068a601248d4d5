#include "core/graph/fold.h"

#include "core/graph/engine.h"

struct gc_dim gc_fold_narrow(enum gc_dtype dtype, struct gc_dim item)
{
    const struct gc_dtype_info *info = gc_dtype_get_info(dtype);
    if (item.kind == GC_DIM_REAL && dtype == GC_DTYPE_F32)
        return gc_dim_real((double)(float)item.real);
    if (item.kind != GC_DIM_NUMBER || info->kind != GC_DTYPE_CLASS_INTEGER)
        return item;
    const bool is_signed = info->name[0] == 'i';
    const unsigned bits = 8U * info->block_bytes / info->block_elements;
    if (!is_signed && item.number < 0)
        return gc_dim_unknown();
    if (bits >= 64)
        return item;
    const int64_t limit = INT64_C(1) << (is_signed ? bits - 1 : bits);
    return item.number < limit && item.number >= -limit ? item : gc_dim_unknown();
}

bool gc_fold_room(const struct gc_infer *infer, uint32_t output, uint32_t *count)
{
    const struct gc_graph_value *value = gc_infer_output(infer, output);
    uint64_t elements;
    if (value == NULL || !gc_infer_elements(&value->type.shape, &elements) ||
        elements > GC_GRAPH_DATA_MAX)
        return false;
    *count = (uint32_t)elements;
    return true;
}

uint32_t gc_fold_source(const struct gc_shape *from, const struct gc_shape *to, uint32_t index)
{
    uint64_t source = 0;
    uint64_t stride = 1;
    for (uint32_t i = 0; i < to->rank && i < from->rank; i++) {
        const uint64_t to_dim = (uint64_t)to->dims[to->rank - 1 - i].number;
        const uint64_t from_dim = (uint64_t)from->dims[from->rank - 1 - i].number;
        const uint64_t at = to_dim > 0 ? index % to_dim : 0;
        source += from_dim > 1 ? at * stride : 0;
        stride *= from_dim;
        index = to_dim > 0 ? (uint32_t)(index / to_dim) : 0;
    }
    return (uint32_t)source;
}

bool gc_fold_has_content(const struct gc_infer *infer, uint32_t input)
{
    uint64_t elements;
    const struct gc_data *data = gc_infer_data(infer, input);
    return data != NULL && gc_infer_elements(gc_infer_shape(infer, input), &elements) &&
           elements == data->count && elements > 0;
}

enum gc_status gc_fold_combined(struct gc_infer *infer, gc_fold_combine *combine)
{
    const struct gc_graph_value *value = gc_infer_output(infer, 0);
    const enum gc_dtype dtype = gc_infer_dtype(infer, 0);
    uint32_t count;
    if (!gc_fold_room(infer, 0, &count))
        return GC_OK;
    for (uint32_t i = 0; i < gc_infer_input_count(infer); i++) {
        if (!gc_fold_has_content(infer, i))
            return GC_OK;
    }
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t k = 0; k < count; k++) {
        for (uint32_t i = 0; i < gc_infer_input_count(infer); i++) {
            const uint32_t at = gc_fold_source(gc_infer_shape(infer, i), &value->type.shape, k);
            const struct gc_dim item = gc_infer_data(infer, i)->items[at];
            items[k] = i == 0 ? item : combine(items[k], item);
        }
        items[k] = gc_fold_narrow(dtype, items[k]);
    }
    return gc_infer_set_data(infer, 0, items, count);
}

enum gc_status gc_fold_changed(struct gc_infer *infer, gc_fold_change *change)
{
    const struct gc_data *data = gc_infer_data(infer, 0);
    const struct gc_graph_value *value = gc_infer_output(infer, 0);
    uint32_t count;
    if (data == NULL || !gc_fold_room(infer, 0, &count) || count != data->count)
        return GC_OK;
    struct gc_dim *items = gc_infer_scratch(infer, count);
    if (items == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t i = 0; i < count; i++)
        items[i] = gc_fold_narrow(value->type.dtype, change(data->items[i]));
    return gc_infer_set_data(infer, 0, items, count);
}
