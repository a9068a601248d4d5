/* Inside inference: the state that helpers, rules and the walk over the nodes share. */
#ifndef GC_GRAPH_ENGINE_H
#define GC_GRAPH_ENGINE_H

#include "core/graph/infer.h"
#include "core/graph/ops.h"
#include "core/graph_store.h"

/* Elements of content that a whole graph may keep, and scratch for one rule. */
#define GC_INFER_DATA_TOTAL (UINT32_C(1) << 20)
#define GC_INFER_SCRATCH (4 * GC_GRAPH_DATA_MAX)

struct gc_infer {
    struct gc_graph_store *store;
    struct gc_graph *graph;
    struct gc_region *region; /* the store's results */
    struct gc_model_error *error;
    const struct gc_graph_node *node;
    uint32_t symbol_room;
    const char **notes;
    uint32_t note_count;
    uint64_t data_items; /* kept so far */
    struct gc_dim *scratch;
    uint32_t scratch_used;
    struct gc_type untold; /* what inputs that are left out have */
};

/* Memory of the results; NULL with the error written. */
void *gc_infer_alloc(struct gc_infer *infer, uint64_t bytes);
/* The status that goes with it. */
enum gc_status gc_infer_no_memory(const struct gc_infer *infer);
/* A new symbol; UNKNOWN if there is no memory for one. */
struct gc_dim gc_infer_symbol(struct gc_infer *infer, bool is_loose);
/* A line of the notes, the node's name before it. */
void gc_infer_note(struct gc_infer *infer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The value of the node's output; NULL if it is left out. */
struct gc_graph_value *gc_infer_output(const struct gc_infer *infer, uint32_t output);

/* How many elements a shape has; false if a dimension is no number, or the product passes 64 bits.
 */
bool gc_shape_elements(const struct gc_shape *shape, uint64_t *elements);

#endif
