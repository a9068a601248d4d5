/* The first part of a GGUF file: little-endian values one after the other, and the typed keys. */
#ifndef GC_FORMATS_GGUF_KEYS_H
#define GC_FORMATS_GGUF_KEYS_H

#include "core/formats/source.h"

#define GC_GGUF_TEXT_MAX 65535 /* of a key or a name: the format's own bound */

struct gc_gguf {
    struct gc_source *source;
    struct gc_load *load;
    uint64_t position; /* in the file, of what is read next */
    const char *what;  /* what is being read, for messages */
    uint64_t tensor_count;
    uint64_t key_count;
    uint64_t alignment;
    uint64_t split_count; /* 0: no shards */
    uint64_t split_number;
    uint64_t split_tensors; /* of all shards; 0: not told */
};

enum gc_status gc_gguf_u32(struct gc_gguf *gguf, uint32_t *value) GC_CHECKED;
enum gc_status gc_gguf_u64(struct gc_gguf *gguf, uint64_t *value) GC_CHECKED;
/* A text of 1 to GC_GGUF_TEXT_MAX bytes; *text is valid until the next read. */
enum gc_status gc_gguf_text(struct gc_gguf *gguf, const char **text, size_t *length) GC_CHECKED;

/* Magic, version and counts. */
enum gc_status gc_gguf_read_head(struct gc_gguf *gguf) GC_CHECKED;
/* All keys; `keep`: into the load's metas. Those that the reading itself needs go into *gguf. */
enum gc_status gc_gguf_read_keys(struct gc_gguf *gguf, bool keep) GC_CHECKED;

#endif
