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
    GC_FILE_JSON, /* gc_detect_json tells which */
    GC_FILE_UNKNOWN,
};

/* GC_FORMAT, with the detected kind in the message, for files that are not models. */
enum gc_status gc_detect_format(struct gc_source *source, const char *name,
                                enum gc_file_kind *kind) GC_CHECKED;

enum gc_json_kind {
    GC_JSON_KIND_DESCRIPTION,
    GC_JSON_KIND_INDEX,         /* of shards */
    GC_JSON_KIND_CONFIGURATION, /* a Hugging Face config.json, under any name */
};

/* Decided by the first key that only one kind has. */
enum gc_status gc_detect_json(struct gc_source *source, enum gc_json_kind *kind) GC_CHECKED;

#endif
