/* ONNX's values that are no weights: inputs, outputs, and what the file tells of those between. */
#ifndef GC_ONNX_VALUE_H
#define GC_ONNX_VALUE_H

#include "core/model/graph.h"
#include "core/onnx/tensor.h"

/* A ValueInfoProto, or the TypeProto alone, as it was read. */
struct gc_onnx_value {
    struct gc_model_value declared; /* without dims and symbols: they are below */
    enum gc_type_kind kind;
    uint64_t dims[GC_ONNX_DIMS_MAX];
    const char *symbols[GC_ONNX_DIMS_MAX];
};

/* The open dimensions of an INPUT all have names: those without one get the input's and the axis.
 */
enum gc_status gc_onnx_read_value(struct gc_onnx *onnx, struct gc_protobuf message,
                                  enum gc_model_value_kind kind,
                                  struct gc_onnx_value *content) GC_CHECKED;
/* Into kind, port and dims; the caller has cleared kind and port. */
enum gc_status gc_onnx_read_type(struct gc_onnx *onnx, struct gc_protobuf message,
                                 struct gc_onnx_value *content) GC_CHECKED;

/* Adds the ValueInfoProto. */
enum gc_status gc_onnx_add_value(struct gc_onnx *onnx, struct gc_protobuf message,
                                 enum gc_model_value_kind kind) GC_CHECKED;
/* Takes out the inputs that are initializers too: older files list them. */
void gc_onnx_drop_weight_values(struct gc_onnx *onnx);

#endif
