/* Constant folding: arithmetic on the elements of tensors that broadcast. */
#ifndef GC_GRAPH_FOLD_H
#define GC_GRAPH_FOLD_H

#include "core/graph/ops_util.h"

/* Combines two elements; UNKNOWN if the result is not certain. */
typedef struct gc_dim gc_fold_combine(struct gc_dim a, struct gc_dim b);
typedef struct gc_dim gc_fold_change(struct gc_dim a);

gc_fold_combine gc_fold_add;
gc_fold_combine gc_fold_mul;
gc_fold_combine gc_fold_smaller;
gc_fold_combine gc_fold_larger;

/* Converts an element to the type: rounded; UNKNOWN if it would wrap. */
struct gc_dim gc_fold_narrow(enum gc_dtype dtype, struct gc_dim item);

/* Computes the output's content from the inputs', combined from left to right; shape and dtype of
 * the output must be set. Sets nothing if an input or the shape is unknown. */
enum gc_status gc_fold_combined(struct gc_infer *infer, gc_fold_combine *combine) GC_CHECKED;
enum gc_status gc_fold_changed(struct gc_infer *infer, gc_fold_change *change) GC_CHECKED;

/* The number of the output's elements; false if its content cannot be kept. */
bool gc_fold_room(const struct gc_infer *infer, uint32_t output, uint32_t *count);
/* Is the input's content known, with at least one element and a shape of numbers only? */
bool gc_fold_has_content(const struct gc_infer *infer, uint32_t input);
/* Maps element `index` of shape `to` to its element of shape `from`, which is broadcast to `to`;
 * all dims are numbers. */
uint32_t gc_fold_source(const struct gc_shape *from, const struct gc_shape *to, uint32_t index);

#endif
