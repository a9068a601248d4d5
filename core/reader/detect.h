/* Detects a file's format: by its content, else by its name. */
#ifndef GC_READER_DETECT_H
#define GC_READER_DETECT_H

#include "core/reader/source.h"

/* The format's own bound on a safetensors header. */
#define GC_SAFETENSORS_HEADER_BYTES_MAX UINT64_C(100000000)

enum gc_file_kind {
    GC_FILE_SAFETENSORS,
    GC_FILE_GGUF,
    GC_FILE_ONNX,
    GC_FILE_JSON, /* an index of shards, or a description */
    GC_FILE_UNKNOWN,
};

/* GC_FORMAT, with the detected kind in the message, for files that are not models. */
enum gc_status gc_detect_format(struct gc_source *source, const char *name,
                                enum gc_file_kind *kind) GC_CHECKED;
/* Is this JSON an index or a description? Decided by the first key that only one of them has. */
enum gc_status gc_detect_is_index(struct gc_source *source, bool *index) GC_CHECKED;

#endif
