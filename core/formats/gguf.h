/* GGUF, versions 2 and 3, little-endian: keys, tensor descriptions, aligned data; one file or
 * shards NAME-00001-of-0000N.gguf. */
#ifndef GC_FORMATS_GGUF_H
#define GC_FORMATS_GGUF_H

#include "core/reader/source.h"

/* Reads the file's tensors and keys. If the keys make the file one of several shards, reads the
 * tensors of all shards from `folder`. `name` is the file's own name in `folder`. */
enum gc_status gc_gguf_read(struct gc_source *source, const struct gc_folder *folder,
                            const char *name) GC_CHECKED;

#endif
