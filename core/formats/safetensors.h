/* safetensors: a length, a JSON header, the tensors' bytes. One file, or shards by an index. */
#ifndef GC_FORMATS_SAFETENSORS_H
#define GC_FORMATS_SAFETENSORS_H

#include "core/reader/source.h"

/* Reads a file's tensors. `shard` is its number in the index, GC_MODEL_NONE without one. A name
 * that the index does not promise is added with a warning. */
enum gc_status gc_safetensors_read(struct gc_source *source, uint32_t shard) GC_CHECKED;

/* Reads an index ("weight_map": tensor → file) and then every file it names, from `folder`. The
 * files' headers prevail. GC_FORMAT: a listed tensor is missing or elsewhere. */
enum gc_status gc_safetensors_read_index(struct gc_source *index,
                                         const struct gc_folder *folder) GC_CHECKED;

#endif
