/* ONNX tensors: one message each; the data is in the message or in a file beside the model. */
#ifndef GC_ONNX_TENSOR_H
#define GC_ONNX_TENSOR_H

#include "core/onnx/protobuf.h"

#define GC_ONNX_DIMS_MAX 64

struct gc_onnx {
    struct gc_reader *reader;
    struct gc_source *source;
    const struct gc_folder *folder;
    struct gc_strmap external; /* file name → index among the files */
    uint64_t empty;            /* tensors without data */
    const char *empty_name;
    uint64_t foreign_bytes; /* of tensors in attributes of nodes other than Constant */
};

/* A TensorProto as it was read. */
struct gc_onnx_content {
    struct gc_model_tensor tensor; /* its dims are those below */
    uint64_t dims[GC_ONNX_DIMS_MAX];
    uint64_t begin; /* the message's offset in the file, for errors */
    uint64_t typed_bytes;
    uint64_t typed_fixed; /* bytes of float_data and double_data */
    bool has_raw;
    bool is_external;
    const char *location;
    uint64_t external_offset;
    uint64_t external_bytes;
    bool has_external_bytes;
};

/* Fills `content`, which must not move: it points into itself. */
enum gc_status gc_onnx_read_content(struct gc_onnx *onnx, struct gc_protobuf message,
                                    const char *name, struct gc_onnx_content *content) GC_CHECKED;
/* As gc_onnx_read_content, for a SparseTensorProto as a dense tensor. */
enum gc_status gc_onnx_read_sparse(struct gc_onnx *onnx, struct gc_protobuf message,
                                   const char *name, struct gc_onnx_content *dense) GC_CHECKED;
/* Adds the TensorProto; a `name` that is not NULL replaces its own. */
enum gc_status gc_onnx_add_tensor(struct gc_onnx *onnx, struct gc_protobuf message,
                                  const char *name) GC_CHECKED;
/* Adds the SparseTensorProto. It counts as dense in memory, as runtimes store it. */
enum gc_status gc_onnx_add_sparse(struct gc_onnx *onnx, struct gc_protobuf message,
                                  const char *name) GC_CHECKED;
/* Adds a Constant node's list of plain numbers, of one dimension, or of none if `scalar`. */
enum gc_status gc_onnx_add_list(struct gc_onnx *onnx, const char *name, enum gc_dtype dtype,
                                uint64_t count, bool scalar) GC_CHECKED;
/* Only the tensor's size in memory. */
enum gc_status gc_onnx_tensor_bytes(struct gc_onnx *onnx, struct gc_protobuf message,
                                    uint64_t *bytes) GC_CHECKED;

#endif
