/* Internal to inference: the state shared by helpers, rules and the walk over the nodes. */
#ifndef GC_GRAPH_ENGINE_H
#define GC_GRAPH_ENGINE_H

#include "core/graph/infer.h"
#include "core/graph/ops.h"
#include "core/model/graph_store.h"

/* Limits in elements: the content kept for a whole graph, and the scratch of one rule. */
#define GC_INFER_DATA_TOTAL (UINT32_C(1) << 20)
#define GC_INFER_SCRATCH (4 * GC_GRAPH_DATA_MAX)

/* The maximum nesting of graphs; the reader allows fewer. */
#define GC_INFER_NEST_MAX 70
/* The maximum number of walks of a loop's body. */
#define GC_INFER_ROUNDS_MAX 5

enum gc_infer_state { GC_INFER_FINE, GC_INFER_UNKNOWN_NODE, GC_INFER_FAILED };

/* A graph that is being walked. */
struct gc_infer_frame {
    uint32_t scope;
    uint32_t position; /* the next node */
    uint32_t node;     /* the node that contains it; GC_GRAPH_NONE for the main graph */
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
    struct gc_type unknown_type; /* the type of omitted inputs */
    uint8_t *states;             /* of nodes, enum gc_infer_state */
    uint64_t steps;              /* nodes visited */
    uint64_t steps_max;          /* beyond this a loop's body is walked once, with nothing known */
    uint32_t depth;
    struct gc_infer_frame frames[GC_INFER_NEST_MAX];
};

/* Memory for results; NULL after writing the error. */
void *gc_infer_alloc(struct gc_infer *infer, uint64_t bytes);
/* The status for a NULL of gc_infer_alloc. */
enum gc_status gc_infer_no_memory(const struct gc_infer *infer);
/* A new symbol; UNKNOWN if there is no memory for one. */
struct gc_dim gc_infer_symbol(struct gc_infer *infer, bool is_loose);
/* Adds a note, prefixed with the node's name. */
void gc_infer_note(struct gc_infer *infer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The value of the node's output; NULL if it is omitted. */
struct gc_graph_value *gc_infer_output(const struct gc_infer *infer, uint32_t output);

/* ---- merge.c ---- */

/* Copies a file's type: bound names become numbers, open dimensions new symbols. */
enum gc_status gc_merge_import_type(struct gc_infer *infer, const struct gc_type *from,
                                    struct gc_type *to) GC_CHECKED;
/* Adds the file's declaration where inference knows less about the value. */
enum gc_status gc_merge_declared(struct gc_infer *infer, uint32_t value) GC_CHECKED;
/* The join of `into` and `other` in the lattice of types; sets *changed if it is less precise than
 * `into` was. A dimension that differs becomes a loose symbol, which agrees with every other. */
enum gc_status gc_merge_join(struct gc_infer *infer, struct gc_type *into,
                             const struct gc_type *other, bool *changed) GC_CHECKED;
bool gc_merge_same_data(const struct gc_data *a, const struct gc_data *b);

/* ---- control.c: If, Loop, Scan ---- */

bool gc_control_is_node(const struct gc_infer *infer, uint32_t node);
/* Opens the node's first graph, if it has one to walk. */
enum gc_status gc_control_begin(struct gc_infer *infer, uint32_t node) GC_CHECKED;
/* Called when the frame's graph has been walked: walks it again, opens the next graph, or closes
 * the node. */
enum gc_status gc_control_end_graph(struct gc_infer *infer,
                                    struct gc_infer_frame *frame) GC_CHECKED;
enum gc_status gc_infer_push(struct gc_infer *infer, const struct gc_infer_frame *frame) GC_CHECKED;

/* The number of elements of a shape; false if a dimension is no number or the product overflows. */
bool gc_infer_elements(const struct gc_shape *shape, uint64_t *elements);

#endif
