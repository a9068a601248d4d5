/* Computing on content: elements of tensors that broadcast. */
#ifndef GC_GRAPH_FOLD_H
#define GC_GRAPH_FOLD_H

#include "core/graph/ops_util.h"

/* Two elements into one; UNKNOWN where that is not certain. */
typedef struct gc_dim gc_fold_combine(struct gc_dim a, struct gc_dim b);
typedef struct gc_dim gc_fold_change(struct gc_dim a);

gc_fold_combine gc_fold_add;
gc_fold_combine gc_fold_mul;
gc_fold_combine gc_fold_smaller;
gc_fold_combine gc_fold_larger;

/* The element that fits the type: rounded, and UNKNOWN where it would wrap. */
struct gc_dim gc_fold_narrow(enum gc_dtype dtype, struct gc_dim item);

/* The output's content out of all inputs', taken together two by two from the left, or of the
 * first one's. Shape and dtype of the output are set. Nothing is set where one of the inputs or
 * the shape is not known. */
enum gc_status gc_fold_combined(struct gc_infer *infer, gc_fold_combine *combine) GC_CHECKED;
enum gc_status gc_fold_changed(struct gc_infer *infer, gc_fold_change *change) GC_CHECKED;

/* Elements of the output, if content may be kept of it; false if not. */
bool gc_fold_room(const struct gc_infer *infer, uint32_t output, uint32_t *count);
/* Is the input's content kept, with at least one element, and its shape all numbers? */
bool gc_fold_has_content(const struct gc_infer *infer, uint32_t input);
/* Which element of a tensor of shape `from` the element `index` of shape `to` is, when it is
 * broadcast to that; all dims are numbers. */
uint32_t gc_fold_source(const struct gc_shape *from, const struct gc_shape *to, uint32_t index);

#endif
