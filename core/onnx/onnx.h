/* ONNX: a protobuf message. Weights are initializers and the values of Constant nodes, in the main
 * graph, in graphs within nodes and in local functions; their bytes may lie beside the model. */
#ifndef GC_ONNX_H
#define GC_ONNX_H

#include "core/reader/source.h"

/* Reads the model's tensors, its inputs and outputs, and the keys ir_version, opset, producer. */
enum gc_status gc_onnx_read(struct gc_source *source, const struct gc_folder *folder) GC_CHECKED;

#endif
