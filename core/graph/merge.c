/* Merges two sources of knowledge about one value: the declared and the inferred type, or the types
 * of two branches. */
#include "core/graph/engine.h"

#include "core/io/text.h"

#include <string.h>

static struct gc_dim bound(const struct gc_graph *graph, struct gc_dim dim)
{
    if (dim.kind == GC_DIM_SYMBOL && graph->symbols[dim.symbol].is_bound)
        return gc_dim_number((int64_t)graph->symbols[dim.symbol].value);
    return dim;
}

enum gc_status gc_merge_import_type(struct gc_infer *infer, const struct gc_type *from,
                                    struct gc_type *to)
{
    *to = *from;
    if (!from->shape.is_known)
        return GC_OK;
    struct gc_dim *dims = gc_infer_alloc(infer, from->shape.rank * sizeof(*dims));
    if (dims == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t i = 0; i < from->shape.rank; i++) {
        dims[i] = bound(infer->graph, from->shape.dims[i]);
        if (dims[i].kind != GC_DIM_NUMBER && dims[i].kind != GC_DIM_SYMBOL)
            dims[i] = gc_infer_symbol(infer, false);
    }
    to->shape.dims = dims;
    return GC_OK;
}

static const char *name_of(const struct gc_graph_value *value, char shown[80])
{
    return gc_text_printable(value->name, strlen(value->name), shown, 80);
}

/* Takes the file's dims where they are more precise: a number for a symbol, a named symbol for one
 * without a name. */
static enum gc_status merge_dims(struct gc_infer *infer, struct gc_graph_value *value)
{
    const struct gc_graph *graph = infer->graph;
    const struct gc_shape *declared = &value->declared.shape;
    struct gc_dim dims[GC_GRAPH_RANK_MAX];
    char shown[80];
    bool is_better = false;
    for (uint32_t i = 0; i < declared->rank; i++) {
        const struct gc_dim given_dim = bound(graph, declared->dims[i]);
        dims[i] = value->type.shape.dims[i];
        if (dims[i].kind == GC_DIM_NUMBER) {
            if (given_dim.kind == GC_DIM_NUMBER && given_dim.number != dims[i].number)
                gc_infer_note(infer, "dimension %u of %s: %lld by its inputs, %lld by the file", i,
                              name_of(value, shown), (long long)dims[i].number,
                              (long long)given_dim.number);
            continue;
        }
        if (given_dim.kind != GC_DIM_NUMBER &&
            (given_dim.kind != GC_DIM_SYMBOL || graph->symbols[dims[i].symbol].name != NULL))
            continue;
        dims[i] = given_dim;
        is_better = true;
    }
    if (!is_better)
        return GC_OK;
    struct gc_dim *copy = gc_infer_alloc(infer, declared->rank * sizeof(*copy));
    if (copy == NULL)
        return gc_infer_no_memory(infer);
    memcpy(copy, dims, declared->rank * sizeof(*copy));
    value->type.shape.dims = copy;
    return GC_OK;
}

enum gc_status gc_merge_declared(struct gc_infer *infer, uint32_t index)
{
    struct gc_graph_value *value = &infer->graph->values[index];
    const struct gc_type *declared = &value->declared;
    char shown[80];
    if (declared->kind == GC_TYPE_UNKNOWN)
        return GC_OK;
    if (value->type.kind == GC_TYPE_UNKNOWN)
        return gc_merge_import_type(infer, declared, &value->type);
    if (value->type.kind != declared->kind) {
        gc_infer_note(infer, "%s is of another kind by its inputs than by the file",
                      name_of(value, shown));
        return GC_OK;
    }
    if (value->type.dtype == GC_DTYPE_NONE)
        value->type.dtype = declared->dtype;
    else if (declared->dtype != GC_DTYPE_NONE && declared->dtype != value->type.dtype)
        gc_infer_note(infer, "%s is %s by its inputs, %s by the file", name_of(value, shown),
                      gc_dtype_name(value->type.dtype), gc_dtype_name(declared->dtype));
    if (!declared->shape.is_known)
        return GC_OK;
    if (!value->type.shape.is_known) {
        struct gc_type whole;
        const enum gc_status status = gc_merge_import_type(infer, declared, &whole);
        value->type.shape = whole.shape;
        return status;
    }
    if (declared->shape.rank == value->type.shape.rank)
        return merge_dims(infer, value);
    gc_infer_note(infer, "%s has %u dimensions by its inputs, %u by the file",
                  name_of(value, shown), value->type.shape.rank, declared->shape.rank);
    return GC_OK;
}

static bool agrees(const struct gc_graph *graph, struct gc_dim dim, struct gc_dim other)
{
    return gc_dim_same(dim, other) ||
           (dim.kind == GC_DIM_SYMBOL && graph->symbols[dim.symbol].is_loose);
}

static enum gc_status join_dims(struct gc_infer *infer, struct gc_shape *into,
                                const struct gc_shape *other, bool *changed)
{
    bool differs = false;
    for (uint32_t i = 0; i < into->rank; i++)
        differs = differs || !agrees(infer->graph, into->dims[i], other->dims[i]);
    if (!differs)
        return GC_OK;
    struct gc_dim *dims = gc_infer_alloc(infer, into->rank * sizeof(*dims));
    if (dims == NULL)
        return gc_infer_no_memory(infer);
    for (uint32_t i = 0; i < into->rank; i++)
        dims[i] = agrees(infer->graph, into->dims[i], other->dims[i])
                      ? into->dims[i]
                      : gc_infer_symbol(infer, true);
    into->dims = dims;
    *changed = true;
    return GC_OK;
}

enum gc_status gc_merge_join(struct gc_infer *infer, struct gc_type *into,
                             const struct gc_type *other, bool *changed)
{
    if (into->kind == GC_TYPE_UNKNOWN)
        return GC_OK;
    if (into->kind != other->kind) {
        *into = infer->unknown_type;
        *changed = true;
        return GC_OK;
    }
    if (into->dtype != GC_DTYPE_NONE && into->dtype != other->dtype) {
        into->dtype = GC_DTYPE_NONE;
        *changed = true;
    }
    if (!into->shape.is_known)
        return GC_OK;
    if (other->shape.is_known && other->shape.rank == into->shape.rank)
        return join_dims(infer, &into->shape, &other->shape, changed);
    into->shape = (struct gc_shape){0};
    *changed = true;
    return GC_OK;
}

bool gc_merge_same_data(const struct gc_data *a, const struct gc_data *b)
{
    if (a == NULL || b == NULL || a == b || a->count != b->count)
        return a == b;
    for (uint32_t i = 0; i < a->count; i++) {
        if (!gc_dim_same(a->items[i], b->items[i]))
            return false;
    }
    return true;
}
