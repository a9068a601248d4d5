/* Small ONNX models, written byte by byte: parts are bytes that go into other parts. A test must
 * not make more than a few hundred of them; all are freed by onnx_reset. */
#ifndef ONNX_SAMPLE_H
#define ONNX_SAMPLE_H

#include "core/model/graph.h"

struct onnx_part {
    uint8_t *bytes;
    size_t used;
    size_t room;
};

enum onnx_type { ONNX_FLOAT = 1, ONNX_INT64 = 7, ONNX_BOOL = 9 };

void onnx_reset(void);
struct onnx_part *onnx_part(void);
void onnx_put_int(struct onnx_part *to, unsigned field, uint64_t value);
void onnx_put_text(struct onnx_part *to, unsigned field, const char *text);
void onnx_put_part(struct onnx_part *to, unsigned field, const struct onnx_part *inner);

/* ValueInfoProto. `shape` is "N,3,?", "" for a scalar, NULL for none. */
struct onnx_part *onnx_value(const char *name, enum onnx_type type, const char *shape);
/* TensorProto of INT64 or BOOL; dims as in "2,2", "" for a scalar. */
struct onnx_part *onnx_ints(const char *name, enum onnx_type type, const char *dims,
                            const int64_t *values, size_t count);
/* TensorProto of FLOAT, all zero. */
struct onnx_part *onnx_zeros(const char *name, const char *dims, size_t count);
/* NodeProto. `inputs` and `outputs` are "a,,b"; "" for none. */
struct onnx_part *onnx_node(const char *op, const char *inputs, const char *outputs);
/* An attribute of a node. */
void onnx_int(struct onnx_part *node, const char *name, int64_t value);
void onnx_tensor(struct onnx_part *node, const char *name, const struct onnx_part *tensor);
void onnx_graph(struct onnx_part *node, const char *name, const struct onnx_part *graph);
/* One that refers to the call's. */
void onnx_refer(struct onnx_part *node, const char *name, const char *of_call, unsigned kind);
/* Fields of GraphProto, of ModelProto and of FunctionProto. */
enum { ONNX_NODE = 1, ONNX_INITIALIZER = 5, ONNX_INPUT = 11, ONNX_OUTPUT = 12, ONNX_INFO = 13 };
/* FunctionProto of domain "f"; its nodes are put with field ONNX_FUNCTION_NODE. */
enum { ONNX_FUNCTION_NODE = 7 };
struct onnx_part *onnx_function(const char *name, const char *inputs, const char *outputs);
/* GraphProto with an input x of [N, 4] and an output y, and a node more in one. */
struct onnx_part *onnx_sample_graph(void);
void onnx_add(struct onnx_part *graph, const char *op, const char *inputs, const char *outputs);
/* ModelProto of opset 17 with the graph; further functions are put with field 25. */
enum { ONNX_FUNCTION = 25 };
struct onnx_part *onnx_model(const struct onnx_part *graph);
void onnx_write(const char *path, const struct onnx_part *model);

/* The value of that name; fails the test if there is none. */
const struct gc_graph_value *onnx_find(const struct gc_graph *graph, const char *name);
/* Its shape as "N,3,?": names of symbols, "?" for those without; "none" if its rank is not known.
 */
const char *onnx_shape(const struct gc_graph *graph, const char *name);

#endif
