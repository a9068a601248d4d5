/* What a file is: by its content, and by its name where the content says nothing. */
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

/* GC_FORMAT, with what it is instead, for files that are no model. */
enum gc_status gc_detect_format(struct gc_source *source, const char *name,
                                enum gc_file_kind *kind) GC_CHECKED;
/* Of JSON: an index, or a description? Told by the first key that only one of them has. */
enum gc_status gc_detect_is_index(struct gc_source *source, bool *index) GC_CHECKED;

#endif
