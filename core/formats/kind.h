/* What a file is: by its content, and by its name where the content says nothing. */
#ifndef GC_FORMATS_KIND_H
#define GC_FORMATS_KIND_H

#include "core/formats/source.h"

enum gc_kind {
    GC_KIND_SAFETENSORS,
    GC_KIND_GGUF,
    GC_KIND_ONNX,
    GC_KIND_JSON, /* an index of shards, or a description */
    GC_KIND_UNKNOWN,
};

/* GC_FORMAT, with what it is instead, for files that are no model. */
enum gc_status gc_kind_tell(struct gc_source *source, const char *name,
                            enum gc_kind *kind) GC_CHECKED;
/* Of JSON: an index, or a description? Told by the first key that only one of them has. */
enum gc_status gc_kind_is_index(struct gc_source *source, bool *index) GC_CHECKED;

#endif
