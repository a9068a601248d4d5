/* Internal to the reader of graphs: builds a struct gc_graph while it walks an ONNX file. */
#ifndef GC_ONNX_GRAPH_H
#define GC_ONNX_GRAPH_H

#include "core/base/strmap.h"
#include "core/model/graph_store.h"
#include "core/onnx/tensor.h"
#include "core/onnx/value.h"

#define GC_ONNX_NEST_MAX 66          /* depth of open nodes, graphs and calls */
#define GC_ONNX_NODES_MAX (1U << 18) /* nodes and calls: nested calls multiply */

struct gc_onnx_import {
    const char *domain; /* "" for ONNX's own */
    uint32_t version;
};

struct gc_onnx_imports {
    struct gc_onnx_import *list;
    uint32_t count;
    uint32_t room;
};

struct gc_onnx_function {
    const char *name; /* for messages */
    struct gc_protobuf message;
    struct gc_onnx_imports imports;
    uint32_t calls; /* so far */
};

/* Attributes of a node or a call. */
struct gc_onnx_attributes {
    struct gc_graph_attribute *list;
    uint32_t count;
};

/* A name space: one for each open graph and call. */
struct gc_onnx_space {
    struct gc_strmap names; /* → value; GC_GRAPH_NONE: omitted by the caller */
    uint32_t parent;        /* space; GC_GRAPH_NONE for calls, which see no outer names */
    uint32_t scope;
    const struct gc_onnx_imports *imports;
    struct gc_onnx_attributes attributes; /* of the call */
    const char *prefix;                   /* of values' names */
    bool is_repeated;                     /* not its function's first call, or within such a call */
    uint32_t pending_begin;
};

/* A use of a name without a producer so far. */
struct gc_onnx_pending {
    uint32_t *slot;
    const char *name;
    uint32_t scope; /* of the user */
};

enum gc_onnx_frame_kind { GC_ONNX_FRAME_GRAPH, GC_ONNX_FRAME_NODE, GC_ONNX_FRAME_CALL };

struct gc_onnx_frame {
    enum gc_onnx_frame_kind kind;
    struct gc_protobuf message;
    uint32_t space;
    struct gc_onnx_function *function; /* of NODE: the function it calls */
    uint32_t node;                     /* of NODE, GC_GRAPH_NONE for a call */
    const char *name;                  /* of the node */
    uint32_t *inputs;
    uint32_t *outputs;
    uint32_t input_count; /* filled so far */
    uint32_t output_count;
    struct gc_onnx_attributes attributes;
};

struct gc_onnx_builder {
    struct gc_onnx onnx;
    struct gc_graph_store *store;
    struct gc_graph *graph;
    uint32_t node_room;
    uint32_t value_room;
    uint32_t scope_room;
    uint32_t symbol_room;
    uint32_t steps; /* nodes and calls so far */
    uint64_t data_items;
    struct gc_strmap symbols;
    struct gc_strmap function_names;
    struct gc_onnx_function *functions;
    uint32_t function_count;
    uint32_t function_room;
    struct gc_onnx_imports imports;
    struct gc_onnx_pending *pending;
    uint32_t pending_count;
    uint32_t pending_room;
    uint32_t depth;
    uint32_t space_count;
    struct gc_onnx_frame frames[GC_ONNX_NEST_MAX];
    struct gc_onnx_space spaces[GC_ONNX_NEST_MAX];
};

void *gc_onnx_alloc(struct gc_onnx_builder *builder, uint64_t bytes);

/* ---- names.c: spaces, values, symbols ---- */

/* "PREFIX/NAME", or the name alone; NULL: no memory. */
const char *gc_onnx_join(struct gc_onnx_builder *builder, const char *prefix, const char *name);
enum gc_status gc_onnx_open_space(struct gc_onnx_builder *builder, const struct gc_onnx_space *like,
                                  uint32_t *space) GC_CHECKED;
/* Moves unresolved uses to the outer space. GC_FORMAT: there is no outer space. */
enum gc_status gc_onnx_close_space(struct gc_onnx_builder *builder) GC_CHECKED;
/* The value of that name in this space; added if absent. */
enum gc_status gc_onnx_put_value(struct gc_onnx_builder *builder, uint32_t space, const char *name,
                                 uint32_t *value) GC_CHECKED;
/* Resolves a use of a name into *slot, now or when the space is closed; "" is GC_GRAPH_NONE. */
enum gc_status gc_onnx_use_value(struct gc_onnx_builder *builder, uint32_t space,
                                 const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field, uint32_t *slot) GC_CHECKED;
bool gc_onnx_is_made(const struct gc_graph_value *value);
enum gc_status gc_onnx_type(struct gc_onnx_builder *builder, const struct gc_onnx_value *declared,
                            struct gc_type *type) GC_CHECKED;
enum gc_status gc_onnx_add_node(struct gc_onnx_builder *builder, uint32_t *node) GC_CHECKED;

/* ---- call.c: all of a graph but its nodes ---- */

enum gc_status gc_onnx_open_scope(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                  uint32_t parent_space, uint32_t node, uint32_t *space) GC_CHECKED;
/* ---- content.c: small tensors with their elements ---- */

/* A TensorProto, with content if it is small. */
enum gc_status gc_onnx_small_tensor(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                    const char **name, struct gc_tensor *tensor) GC_CHECKED;
enum gc_status gc_onnx_sparse_tensor(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                     const char **name, struct gc_tensor *tensor) GC_CHECKED;

/* ---- attribute.c ---- */

/* `graph` is the message of a graph attribute, else empty. */
enum gc_status gc_onnx_read_attribute(struct gc_onnx_builder *builder, uint32_t space,
                                      struct gc_protobuf message,
                                      struct gc_graph_attribute *attribute,
                                      struct gc_protobuf *graph) GC_CHECKED;

/* ---- call.c: local functions ---- */

enum gc_status gc_onnx_add_function(struct gc_onnx_builder *builder,
                                    struct gc_protobuf message) GC_CHECKED;
enum gc_status gc_onnx_read_import(struct gc_onnx_builder *builder, struct gc_protobuf message,
                                   struct gc_onnx_imports *imports) GC_CHECKED;
/* NULL: none. */
struct gc_onnx_function *gc_onnx_find_function(const struct gc_onnx_builder *builder,
                                               const char *domain, const char *name,
                                               const char *overload);
enum gc_status gc_onnx_begin_call(struct gc_onnx_builder *builder,
                                  struct gc_onnx_frame *frame) GC_CHECKED;
enum gc_status gc_onnx_end_call(struct gc_onnx_builder *builder,
                                const struct gc_onnx_frame *frame) GC_CHECKED;

#endif
