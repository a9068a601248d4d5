/* The interface of the rules in ops.def: the inputs of one node, as far as they are known, and
 * setters for its outputs.
 *
 * A rule sets the outputs it knows and leaves the rest. Everything it sets must be true, because
 * planning relies on it. It never fails because something is unknown, only because the node
 * contradicts its operator. It may run several times for a node of a loop's body, keeps no state,
 * and works in bounded time: rank and data are bounded, counts of inputs and attributes are the
 * file's. */
#ifndef GC_GRAPH_INFER_H
#define GC_GRAPH_INFER_H

#include "core/model/graph.h"

struct gc_infer;

typedef enum gc_status gc_infer_rule(struct gc_infer *infer);

/* ---- the node ---- */

const struct gc_graph_node *gc_infer_node(const struct gc_infer *infer);
uint32_t gc_infer_opset(const struct gc_infer *infer);
uint32_t gc_infer_input_count(const struct gc_infer *infer);
uint32_t gc_infer_output_count(const struct gc_infer *infer);
/* Does the node have this input (output)? An omitted one counts as absent. */
bool gc_infer_has_input(const struct gc_infer *infer, uint32_t input);
bool gc_infer_has_output(const struct gc_infer *infer, uint32_t output);

/* ---- inputs; an omitted one is unknown ---- */

const struct gc_type *gc_infer_type(const struct gc_infer *infer, uint32_t input);
enum gc_dtype gc_infer_dtype(const struct gc_infer *infer, uint32_t input);
const struct gc_shape *gc_infer_shape(const struct gc_infer *infer, uint32_t input);
/* NULL: unknown. Single elements may be UNKNOWN or SYMBOL. */
const struct gc_data *gc_infer_data(const struct gc_infer *infer, uint32_t input);
/* The only element of the input. False if it is not known as a number; a REAL is truncated. */
bool gc_infer_scalar(const struct gc_infer *infer, uint32_t input, int64_t *number);

/* ---- attributes; an absent one, or one of another kind, has the default ---- */

bool gc_infer_has(const struct gc_infer *infer, const char *name);
int64_t gc_infer_int(const struct gc_infer *infer, const char *name, int64_t fallback);
const char *gc_infer_text(const struct gc_infer *infer, const char *name, const char *fallback);
/* False if absent; *ints is NULL and *count 0 then. */
bool gc_infer_ints(const struct gc_infer *infer, const char *name, const int64_t **ints,
                   uint32_t *count);
const struct gc_tensor *gc_infer_tensor(const struct gc_infer *infer, const char *name);
/* An attribute that holds a data type, as Cast's `to`; GC_DTYPE_NONE: its value is no data type. */
enum gc_dtype gc_infer_dtype_attribute(const struct gc_infer *infer, const char *name,
                                       enum gc_dtype fallback);
/* Axes from an attribute (`input` == GC_GRAPH_NONE) or, if that is absent, an input's numbers; made
 * non-negative for `rank`. is_given: the node has axes; is_known: their values are known.
 * GC_FORMAT: one is out of range or a duplicate. */
struct gc_axes {
    bool is_given;
    bool is_known;
    uint32_t count;
    uint32_t list[GC_GRAPH_RANK_MAX];
};
enum gc_status gc_infer_axes(struct gc_infer *infer, const char *attribute, uint32_t input,
                             uint32_t rank, struct gc_axes *axes) GC_CHECKED;
/* One axis, -rank…rank-1, made non-negative. GC_FORMAT: it is out of range. */
enum gc_status gc_infer_axis(struct gc_infer *infer, int64_t axis, uint32_t rank,
                             uint32_t *normal) GC_CHECKED;

/* ---- outputs; omitted ones are ignored ---- */

void gc_infer_set_dtype(struct gc_infer *infer, uint32_t output, enum gc_dtype dtype);
/* At most GC_GRAPH_RANK_MAX dims, none negative, or GC_FORMAT; UNKNOWN ones become new symbols. */
enum gc_status gc_infer_set_shape(struct gc_infer *infer, uint32_t output,
                                  const struct gc_dim *dims, uint32_t rank) GC_CHECKED;
/* For an output that is not a tensor; copies the shape's dims. */
enum gc_status gc_infer_set_type(struct gc_infer *infer, uint32_t output,
                                 const struct gc_type *type) GC_CHECKED;
/* These three pass on the input's dtype, its shape, its content. */
enum gc_status gc_infer_pass_dtype(struct gc_infer *infer, uint32_t output,
                                   uint32_t input) GC_CHECKED;
enum gc_status gc_infer_pass_shape(struct gc_infer *infer, uint32_t output,
                                   uint32_t input) GC_CHECKED;
enum gc_status gc_infer_pass_data(struct gc_infer *infer, uint32_t output,
                                  uint32_t input) GC_CHECKED;
/* Copies content; set dtype and shape first. Drops it if `count` differs from the shape or exceeds
 * GC_GRAPH_DATA_MAX, or if the graph's total exceeds GC_INFER_DATA_TOTAL. */
enum gc_status gc_infer_set_data(struct gc_infer *infer, uint32_t output,
                                 const struct gc_dim *items, uint32_t count) GC_CHECKED;
/* Scratch memory for `count` elements until the rule returns; NULL: no memory (return
 * GC_NO_HOST_MEMORY). */
struct gc_dim *gc_infer_scratch(struct gc_infer *infer, uint32_t count);

/* A contradiction: the line "node "NAME" (OP): text" becomes a note. Returns GC_FORMAT. */
enum gc_status gc_infer_fail(struct gc_infer *infer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- dimensions: UNKNOWN wherever the result is not known for certain ---- */

static inline struct gc_dim gc_dim_number(int64_t number)
{
    return (struct gc_dim){.kind = GC_DIM_NUMBER, .number = number};
}
static inline struct gc_dim gc_dim_real(double real)
{
    return (struct gc_dim){.kind = GC_DIM_REAL, .real = real};
}
static inline struct gc_dim gc_dim_unknown(void)
{
    return (struct gc_dim){.kind = GC_DIM_UNKNOWN};
}
static inline bool gc_dim_is(struct gc_dim dim, int64_t number)
{
    return dim.kind == GC_DIM_NUMBER && dim.number == number;
}
/* True if both are known to be equal; two UNKNOWN never are. */
bool gc_dim_same(struct gc_dim a, struct gc_dim b);
struct gc_dim gc_dim_add(struct gc_dim a, struct gc_dim b);
struct gc_dim gc_dim_sub(struct gc_dim a, struct gc_dim b);
struct gc_dim gc_dim_mul(struct gc_dim a, struct gc_dim b);
/* Rounded down, towards minus infinity; UNKNOWN by 0. */
struct gc_dim gc_dim_div(struct gc_dim a, struct gc_dim b);
/* The product of dims[from…to). */
struct gc_dim gc_dim_product(const struct gc_dim *dims, uint32_t from, uint32_t to);

/* Merges two dims that must be equal: keeps the more precise one. GC_FORMAT: two numbers that
 * differ; `what` names them in the note. */
enum gc_status gc_dim_merge(struct gc_infer *infer, const char *what, struct gc_dim a,
                            struct gc_dim b, struct gc_dim *merged) GC_CHECKED;
/* Numpy's broadcast of two dims, and of two known shapes into dims[GC_GRAPH_RANK_MAX]. */
enum gc_status gc_dim_broadcast(struct gc_infer *infer, struct gc_dim a, struct gc_dim b,
                                struct gc_dim *dim) GC_CHECKED;
enum gc_status gc_dims_broadcast(struct gc_infer *infer, const struct gc_shape *a,
                                 const struct gc_shape *b, struct gc_dim *dims,
                                 uint32_t *rank) GC_CHECKED;
/* The broadcast of inputs [from, to) into `output`; sets nothing if a rank is unknown. */
enum gc_status gc_dims_broadcast_inputs(struct gc_infer *infer, uint32_t from, uint32_t to,
                                        uint32_t output) GC_CHECKED;

#endif
