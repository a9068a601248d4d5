/* A Hugging Face folder: config.json and the weights beside it. */
#ifndef GC_FORMATS_HF_H
#define GC_FORMATS_HF_H

#include "core/reader/source.h"

/* Which file of a folder holds the weights, and of what kind it is. */
enum gc_hf_kind { GC_HF_INDEX, GC_HF_SAFETENSORS, GC_HF_GGUF, GC_HF_ONNX };

/* The one to read: safetensors before all others, by index before the single file. GC_FORMAT if
 * there is none that can be read, or several and no telling which. `name` is in the region. */
enum gc_status gc_hf_find(struct gc_reader *reader, const struct gc_folder *folder,
                          const char **name, enum gc_hf_kind *kind) GC_CHECKED;

/* Takes config.json's keys. `required`: GC_FORMAT where it is damaged; else that is a warning. A
 * folder without one is GC_OK. */
enum gc_status gc_hf_read_config(struct gc_reader *reader, const struct gc_folder *folder,
                                 bool required) GC_CHECKED;

/* With "tie_word_embeddings" an output layer that is stored all the same is the embedding once
 * more: it becomes its alias, which is told. */
void gc_hf_tie(struct gc_reader *reader, const char *path);

#endif
