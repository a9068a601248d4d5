/* safetensors: a length, a JSON header, the tensors' bytes. One file, or shards by an index. */
#ifndef GC_FORMATS_SAFETENSORS_H
#define GC_FORMATS_SAFETENSORS_H

#include "core/reader/source.h"

/* Takes a file's tensors. `shard` is what its names are promised under, GC_MODEL_NONE without an
 * index: a name that is not promised is then taken with a warning. */
enum gc_status gc_safetensors_read(struct gc_source *source, uint32_t shard) GC_CHECKED;

/* Reads an index ("weight_map": tensor → file) and then every file it names, from `folder`. What
 * counts is each file's own header; where the index says something else the model is refused. */
enum gc_status gc_safetensors_read_index(struct gc_source *index,
                                         const struct gc_folder *folder) GC_CHECKED;

#endif
