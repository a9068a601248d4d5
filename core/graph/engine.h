/* Inside inference: the state that helpers, rules and the walk over the nodes share. */
#ifndef GC_GRAPH_ENGINE_H
#define GC_GRAPH_ENGINE_H

#include "core/graph/infer.h"
#include "core/graph/ops.h"
#include "core/model/graph_store.h"

/* Elements of content that a whole graph may keep, and scratch for one rule. */
#define GC_INFER_DATA_TOTAL (UINT32_C(1) << 20)
#define GC_INFER_SCRATCH (4 * GC_GRAPH_DATA_MAX)

/* A graph within a node is at most so deep in others; the reader allows fewer. */
#define GC_INFER_NEST_MAX 70
/* A loop's body is run until what it carries stays the same, at most so often. */
#define GC_INFER_ROUNDS_MAX 5

enum gc_infer_state { GC_INFER_FINE, GC_INFER_UNKNOWN_NODE, GC_INFER_FAILED };

/* A graph that is being walked. */
struct gc_infer_frame {
    uint32_t scope;
    uint32_t position; /* the next node */
    uint32_t node;     /* that it is within; GC_GRAPH_NONE for the main graph */
    uint32_t graph;    /* which of the node's graphs */
    uint32_t round;    /* of a loop: 1, 2, … */
};

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
    struct gc_type unknown_type; /* what inputs that are left out have */
    uint8_t *states;             /* of nodes, enum gc_infer_state */
    uint64_t steps;              /* nodes looked at */
    uint64_t steps_max;          /* beyond it loops are run once, with nothing known */
    uint32_t depth;
    struct gc_infer_frame frames[GC_INFER_NEST_MAX];
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

/* ---- merge.c ---- */

/* A file's type with numbers for what was given by name, and new symbols for what is open. */
enum gc_status gc_infer_import_type(struct gc_infer *infer, const struct gc_type *from,
                                    struct gc_type *to) GC_CHECKED;
/* What the file declares of the value, where inference knows less. */
enum gc_status gc_infer_merge_declared(struct gc_infer *infer, uint32_t value) GC_CHECKED;
/* What holds for both `into` and `other`; *changed if that is less than `into` was. A dimension
 * that differs becomes a loose symbol, which all others agree with. */
enum gc_status gc_infer_join(struct gc_infer *infer, struct gc_type *into,
                             const struct gc_type *other, bool *changed) GC_CHECKED;
bool gc_data_same(const struct gc_data *a, const struct gc_data *b);

/* ---- control.c: If, Loop, Scan ---- */

bool gc_infer_is_control(const struct gc_infer *infer, uint32_t node);
/* Opens the first graph of the node; *frame is not set if there is nothing to walk. */
enum gc_status gc_infer_begin_control(struct gc_infer *infer, uint32_t node) GC_CHECKED;
/* The frame's graph has been walked: it starts again, another is opened, or it is closed. */
enum gc_status gc_infer_end_graph(struct gc_infer *infer, struct gc_infer_frame *frame) GC_CHECKED;
enum gc_status gc_infer_push(struct gc_infer *infer, const struct gc_infer_frame *frame) GC_CHECKED;

/* How many elements a shape has; false if a dimension is no number, or the product passes 64 bits.
 */
bool gc_shape_elements(const struct gc_shape *shape, uint64_t *elements);

#endif
