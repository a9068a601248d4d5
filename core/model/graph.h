/* An ONNX model as a graph: nodes, the values between them, and what is known of their types,
 * shapes and content. core/onnx/ reads it, core/graph/ completes it, core/planner/ and
 * core/estimator/ use it.
 *
 * All indices are into the graph's own lists; GC_GRAPH_NONE: no entry. Calls of local functions are
 * inlined, each call with nodes and values of its own. A graph within a node (If, Loop, Scan) is a
 * scope; its nodes name values of the scopes around it by their indices.
 *
 * A graph is one piece of memory, owned by gc_graph_open's caller; gc_graph_close invalidates all
 * its pointers. Texts are untrusted: print them through gc_text_printable. */
#ifndef GC_GRAPH_H
#define GC_GRAPH_H

#include "core/base/status.h"
#include "core/model/dtype.h"
#include "core/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_GRAPH_NONE UINT32_MAX
#define GC_GRAPH_RANK_MAX 64
#define GC_GRAPH_DATA_MAX 4096 /* elements; the content of larger tensors is not kept */

/* A dimension, or an element of a small tensor. Two dimensions with the same symbol are equal. */
enum gc_dim_kind {
    GC_DIM_UNKNOWN,
    GC_DIM_NUMBER, /* elements may be negative; bool is 0 or 1 */
    GC_DIM_SYMBOL,
    GC_DIM_REAL, /* an element of a floating type */
};

struct gc_dim {
    enum gc_dim_kind kind;
    uint32_t symbol;
    union {
        int64_t number;
        double real;
    };
};

/* If the rank is unknown, `rank` is 0 and there are no dims. */
struct gc_shape {
    bool is_known;
    uint32_t rank;
    const struct gc_dim *dims; /* outermost first */
};

enum gc_type_kind {
    GC_TYPE_UNKNOWN,
    GC_TYPE_TENSOR,
    GC_TYPE_SPARSE,
    GC_TYPE_SEQUENCE, /* dtype and shape are those of its tensors */
    GC_TYPE_OPTIONAL, /* dtype and shape are those of its content */
    GC_TYPE_OPTIONAL_SEQUENCE,
    GC_TYPE_MAP,
};

struct gc_type {
    enum gc_type_kind kind;
    enum gc_dtype dtype; /* GC_DTYPE_NONE: not known */
    struct gc_shape shape;
};

/* The elements of a small tensor in row-major order; `count` agrees with its shape. */
struct gc_data {
    uint32_t count;
    bool is_complete; /* all of them are NUMBER or REAL */
    const struct gc_dim *items;
};

/* A tensor stored in the file: an initializer, or the value of an attribute. */
struct gc_tensor {
    struct gc_type type;        /* all numbers */
    const struct gc_data *data; /* NULL: too large, or of a type that is not kept */
};

struct gc_graph_value {
    const char *name; /* "" for none */
    uint32_t scope;
    uint32_t producer; /* node, or GC_GRAPH_NONE */
    bool is_input;     /* of its scope; an initializer that is also an input may be overridden */
    bool is_output;    /* of its scope, of inner scopes, or of both */
    bool is_initializer;
    bool is_captured; /* used in a scope within its own */
    bool is_constant; /* the same in every run: computed from initializers and Constants only */
    bool is_repeated; /* a Constant of a local function, in a call after its first */
    struct gc_type declared;    /* the file's type; UNKNOWN if it has none */
    struct gc_type type;        /* the type after inference */
    const struct gc_data *data; /* NULL: not known */
};

enum gc_attribute_kind {
    GC_ATTRIBUTE_NONE, /* of a kind that is not kept */
    GC_ATTRIBUTE_INT,
    GC_ATTRIBUTE_REAL,
    GC_ATTRIBUTE_TEXT,
    GC_ATTRIBUTE_TENSOR,
    GC_ATTRIBUTE_GRAPH,
    GC_ATTRIBUTE_INTS,
    GC_ATTRIBUTE_REALS,
    GC_ATTRIBUTE_TEXTS,
    GC_ATTRIBUTE_SPARSE,
    GC_ATTRIBUTE_TYPE,
};

struct gc_graph_attribute {
    const char *name;
    enum gc_attribute_kind kind;
    uint64_t count; /* of a list; the first GC_GRAPH_DATA_MAX are kept */
    union {
        int64_t integer;
        double real;
        const char *text; /* "" if it is not a text */
        const struct gc_tensor *tensor;
        const struct gc_type *type;
        uint32_t scope;
        const int64_t *integers;
        const double *reals;
        const char *const *texts;
    };
};

struct gc_op;

struct gc_graph_node {
    const char *name;         /* "" for none */
    const char *op;           /* its operator's name */
    const char *domain;       /* "" for ONNX's own */
    const struct gc_op *rule; /* its row of core/graph/ops.def; NULL: not known */
    uint32_t scope;
    uint32_t opset; /* the version of `domain` that the scope imports; 0: none */
    uint32_t input_count;
    uint32_t output_count;
    uint32_t attribute_count;
    const uint32_t *inputs;  /* values; GC_GRAPH_NONE for an omitted one */
    const uint32_t *outputs; /* the same */
    const struct gc_graph_attribute *attributes;
    bool is_dead; /* in a branch that is never taken; set by inference */
};

/* Scope 0 is the main graph; a scope has a higher number than its parent. */
struct gc_graph_scope {
    const char *name;
    uint32_t parent; /* GC_GRAPH_NONE for the main graph */
    uint32_t node;   /* the node with the scope as an attribute */
    uint32_t node_count;
    uint32_t input_count;
    uint32_t output_count;
    const uint32_t *nodes; /* in a valid order of execution */
    const uint32_t *inputs;
    const uint32_t *outputs;
    bool is_dead; /* a branch that is never taken; set by inference */
};

struct gc_graph_symbol {
    const char *name; /* as in the file; NULL: found during inference */
    bool is_bound;    /* by gc_graph_infer's dims */
    bool is_loose;    /* may differ between iterations of a loop or branches of an If */
    uint64_t value;
};

/* The coverage of inference, over values that are not dead and have a producer. */
struct gc_graph_coverage {
    uint32_t values;
    uint32_t known;         /* type, and every dimension a number */
    uint32_t open;          /* rank known, a dimension is not a number */
    uint32_t unknown;       /* rank or type are not known */
    uint32_t unknown_nodes; /* of operators missing from core/graph/ops.def */
    uint32_t failed_nodes;  /* their shapes contradict the operator; each has a note */
};

struct gc_graph {
    const char *path;
    struct gc_graph_node *nodes;
    uint32_t node_count;
    struct gc_graph_value *values;
    uint32_t value_count;
    struct gc_graph_scope *scopes;
    uint32_t scope_count;
    struct gc_graph_symbol *symbols;
    uint32_t symbol_count;
    uint32_t opset; /* of ONNX's own domain */
    struct gc_graph_coverage coverage;
    const char *const *notes; /* a line each: contradictions, unusual and unknown parts */
    uint32_t note_count;
};

/* Reads an ONNX file's graph: for weights the shapes alone, for small tensors the content, too,
 * which may lie in files of the same folder. As gc_model_open: blocks on the file system only,
 * allocates from the kernel only, keeps errno; same limits and errors. Thread-safe. GC_FORMAT also:
 * a cycle, a value with two producers, or with none. */
enum gc_status gc_graph_open(const char *path, const struct gc_model_limits *limits,
                             struct gc_graph **graph, struct gc_model_error *error) GC_CHECKED;
void gc_graph_close(struct gc_graph *graph); /* NULL: nothing */

/* Fills in types, shapes, content, symbols, coverage and notes. `dims` is a list: "NAME=N"
 * sets a named dimension, "INPUT.AXIS=N" an unnamed one of an input, "INPUT=N" the value of an
 * input that is one integer; NULL: an empty list. A node that contradicts its operator gets a
 * note, and its outputs keep their declared types. May be called again with other dims.
 * GC_INVALID_ARGUMENT: `dims` is malformed; GC_NO_HOST_MEMORY; GC_OUT_OF_RANGE: the results
 * need more than the limits given to gc_graph_open. Not thread-safe. */
enum gc_status gc_graph_infer(struct gc_graph *graph, const char *dims,
                              struct gc_model_error *error) GC_CHECKED;

/* Bytes of the value; false if unknown or above 64 bits. For a sequence: one element. */
bool gc_graph_value_bytes(const struct gc_graph *graph, uint32_t value, uint64_t *bytes);
/* NULL if there is none. */
const struct gc_graph_attribute *gc_graph_find_attribute(const struct gc_graph_node *node,
                                                         const char *name);

/* The memory of an operator's outputs. */
enum gc_op_memory {
    GC_OP_NONE,    /* memory of their own */
    GC_OP_VIEW,    /* the first output shares the first input's bytes */
    GC_OP_INPLACE, /* element-wise: may overwrite an input of equal size that dies here */
    GC_OP_RANDOM,  /* memory of their own; the content differs in every run */
};
/* GC_OP_NONE for unknown operators. */
enum gc_op_memory gc_graph_node_memory(const struct gc_graph_node *node);

#endif
