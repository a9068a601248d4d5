/* ONNX values other than weights: inputs, outputs, and declared intermediate values. */
#ifndef GC_ONNX_VALUE_H
#define GC_ONNX_VALUE_H

#include "core/model/graph.h"
#include "core/onnx/tensor.h"

/* A ValueInfoProto, or a TypeProto alone, as read. */
struct gc_onnx_value {
    struct gc_model_value declared; /* without dims and symbols, which are below */
    enum gc_type_kind kind;
    uint64_t dims[GC_ONNX_DIMS_MAX];
    const char *symbols[GC_ONNX_DIMS_MAX];
};

/* Every open dimension of an INPUT gets a name: its own, or the input's name and the axis. */
enum gc_status gc_onnx_read_value(struct gc_onnx *onnx, struct gc_protobuf message,
                                  enum gc_model_value_kind kind,
                                  struct gc_onnx_value *content) GC_CHECKED;
/* Fills kind, declared and dims; the caller has cleared kind and declared. */
enum gc_status gc_onnx_read_type(struct gc_onnx *onnx, struct gc_protobuf message,
                                 struct gc_onnx_value *content) GC_CHECKED;

/* Adds the ValueInfoProto. */
enum gc_status gc_onnx_add_value(struct gc_onnx *onnx, struct gc_protobuf message,
                                 enum gc_model_value_kind kind) GC_CHECKED;
/* Removes inputs that are also initializers: older files list them. */
void gc_onnx_drop_weight_values(struct gc_onnx *onnx);

#endif
