/* Helpers that several rules of operators share. */
#ifndef GC_GRAPH_OPS_UTIL_H
#define GC_GRAPH_OPS_UTIL_H

#include "core/graph/ops.h"

/* UNKNOWN where the shape is not known or has no such dimension. */
static inline struct gc_dim gc_shape_dim(const struct gc_shape *shape, uint32_t index)
{
    return shape->is_known && index < shape->rank ? shape->dims[index] : gc_dim_unknown();
}

/* Copies the dims of a known shape; returns the rank. */
static inline uint32_t gc_shape_copy(const struct gc_shape *shape, struct gc_dim *dims)
{
    for (uint32_t i = 0; i < shape->rank; i++)
        dims[i] = shape->dims[i];
    return shape->rank;
}

/* The better known of two dimensions that are equal in a valid graph; not checked. */
static inline struct gc_dim gc_dim_either(struct gc_dim a, struct gc_dim b)
{
    return a.kind == GC_DIM_NUMBER || b.kind == GC_DIM_UNKNOWN ||
                   (a.kind == GC_DIM_SYMBOL && b.kind != GC_DIM_NUMBER)
               ? a
               : b;
}

/* The input's rank, where it is known, must lie in low…high; GC_FORMAT if it does not. */
enum gc_status gc_ops_want_rank(struct gc_infer *infer, uint32_t input, uint32_t low,
                                uint32_t high) GC_CHECKED;
/* An attribute that must lie in low…high; GC_FORMAT if it does not. */
enum gc_status gc_ops_int_within(struct gc_infer *infer, const char *name, int64_t fallback,
                                 int64_t low, int64_t high, int64_t *value) GC_CHECKED;
/* Elements of an input as dimensions: NULL if the content is unknown or not of `count` elements. */
const struct gc_dim *gc_ops_items(const struct gc_infer *infer, uint32_t input, uint32_t count);
/* Makes the output a scalar. */
enum gc_status gc_ops_set_scalar(struct gc_infer *infer, uint32_t output,
                                 enum gc_dtype dtype) GC_CHECKED;
/* Gives the output `rank` unknown dimensions. */
enum gc_status gc_ops_set_open(struct gc_infer *infer, uint32_t output, uint32_t rank) GC_CHECKED;
/* All inputs and output 0 have one shape: merges the known dimensions. */
enum gc_status gc_ops_merge_inputs(struct gc_infer *infer) GC_CHECKED;
/* Passes on the input's dtype and shape. */
enum gc_status gc_ops_pass(struct gc_infer *infer, uint32_t output, uint32_t input) GC_CHECKED;

#endif
