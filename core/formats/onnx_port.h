/* ONNX's values that are no weights: inputs, outputs, and what the file tells of those between. */
#ifndef GC_FORMATS_ONNX_PORT_H
#define GC_FORMATS_ONNX_PORT_H

#include "core/formats/onnx_tensor.h"

/* Adds the ValueInfoProto. */
enum gc_status gc_onnx_add_port(struct gc_onnx *onnx, struct gc_protobuf message,
                                enum gc_model_port_kind kind) GC_CHECKED;
/* Takes out the inputs that are initializers too: older files list them. */
void gc_onnx_drop_weight_ports(struct gc_onnx *onnx);

#endif
