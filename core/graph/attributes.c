/* Attributes, as rules ask for them. */
#include "core/graph/engine.h"

#include <string.h>

const struct gc_graph_attribute *gc_graph_attribute(const struct gc_graph_node *node,
                                                    const char *name)
{
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        if (strcmp(node->attributes[i].name, name) == 0)
            return &node->attributes[i];
    }
    return NULL;
}

static const struct gc_graph_attribute *find(const struct gc_infer *infer, const char *name,
                                             enum gc_attribute_kind kind)
{
    const struct gc_graph_attribute *attribute = gc_graph_attribute(infer->node, name);
    return attribute != NULL && attribute->kind == kind ? attribute : NULL;
}

bool gc_infer_has(const struct gc_infer *infer, const char *name)
{
    return gc_graph_attribute(infer->node, name) != NULL;
}

int64_t gc_infer_int(const struct gc_infer *infer, const char *name, int64_t fallback)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_INT);
    return attribute != NULL ? attribute->integer : fallback;
}

const char *gc_infer_text(const struct gc_infer *infer, const char *name, const char *fallback)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_TEXT);
    return attribute != NULL ? attribute->text : fallback;
}

bool gc_infer_ints(const struct gc_infer *infer, const char *name, const int64_t **ints,
                   uint32_t *count)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_INTS);
    const bool is_whole = attribute != NULL && attribute->count <= GC_GRAPH_DATA_MAX;
    *ints = is_whole ? attribute->integers : NULL;
    *count = is_whole ? (uint32_t)attribute->count : 0;
    return is_whole;
}

const struct gc_tensor *gc_infer_tensor(const struct gc_infer *infer, const char *name)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_TENSOR);
    return attribute != NULL ? attribute->tensor : NULL;
}

enum gc_dtype gc_infer_dtype_attribute(const struct gc_infer *infer, const char *name,
                                       enum gc_dtype fallback)
{
    const struct gc_graph_attribute *attribute = find(infer, name, GC_ATTRIBUTE_INT);
    if (attribute == NULL)
        return fallback;
    return attribute->integer > 0 ? gc_dtype_from_onnx((uint64_t)attribute->integer)
                                  : GC_DTYPE_NONE;
}

enum gc_status gc_infer_axis(struct gc_infer *infer, int64_t axis, uint32_t rank, uint32_t *normal)
{
    *normal = 0;
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return gc_infer_fail(infer, "axis %lld of a tensor of %u dimensions", (long long)axis,
                             rank);
    *normal = (uint32_t)(axis < 0 ? axis + rank : axis);
    return GC_OK;
}

static enum gc_status take_axes(struct gc_infer *infer, const int64_t *list, uint32_t count,
                                uint32_t rank, struct gc_axes *axes)
{
    bool seen[GC_GRAPH_RANK_MAX] = {false};
    axes->is_given = count > 0;
    axes->is_known = true;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t axis;
        const enum gc_status status = gc_infer_axis(infer, list[i], rank, &axis);
        if (status != GC_OK)
            return status;
        if (seen[axis])
            return gc_infer_fail(infer, "axis %lld twice", (long long)list[i]);
        seen[axis] = true;
        axes->list[axes->count++] = axis;
    }
    return GC_OK;
}

enum gc_status gc_infer_axes(struct gc_infer *infer, const char *attribute, uint32_t input,
                             uint32_t rank, struct gc_axes *axes)
{
    int64_t numbers[GC_GRAPH_RANK_MAX];
    const int64_t *ints;
    uint32_t count;
    *axes = (struct gc_axes){.is_known = true};
    if (rank > GC_GRAPH_RANK_MAX)
        return gc_infer_fail(infer, "axes of a tensor of %u dimensions", rank);
    if (attribute != NULL && gc_infer_ints(infer, attribute, &ints, &count))
        return take_axes(infer, ints, count, rank, axes);
    if (input == GC_GRAPH_NONE || !gc_infer_has_input(infer, input))
        return GC_OK;
    if (gc_infer_numbers(infer, input, numbers, GC_GRAPH_RANK_MAX, &count))
        return take_axes(infer, numbers, count, rank, axes);
    const struct gc_shape *shape = gc_infer_shape(infer, input);
    axes->is_given = !shape->is_known || shape->rank != 1 || !gc_dim_is(shape->dims[0], 0);
    axes->is_known = false;
    if (shape->is_known && shape->rank == 1 && shape->dims[0].kind == GC_DIM_NUMBER &&
        shape->dims[0].number <= GC_GRAPH_RANK_MAX)
        axes->count = (uint32_t)shape->dims[0].number; /* how many, not which */
    return GC_OK;
}
