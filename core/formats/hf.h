/* A Hugging Face folder: config.json and the weights beside it. */
#ifndef GC_FORMATS_HF_H
#define GC_FORMATS_HF_H

#include "core/reader/source.h"

/* The file of a folder that has the weights, and its kind. */
enum gc_hf_kind { GC_HF_INDEX, GC_HF_SAFETENSORS, GC_HF_GGUF, GC_HF_ONNX, GC_HF_CONFIGURATION };

/* Selects the file to read: safetensors first, an index before a single file, a configuration last.
 * GC_FORMAT if there is no supported file, or several candidates. `name` is in the region. */
enum gc_status gc_hf_find(struct gc_reader *reader, const struct gc_folder *folder,
                          const char **name, enum gc_hf_kind *kind) GC_CHECKED;

/* Reads config.json's keys. A damaged file is GC_FORMAT if `required`, else a warning. A missing
 * file is GC_OK. */
enum gc_status gc_hf_read_config(struct gc_reader *reader, const struct gc_folder *folder,
                                 bool required) GC_CHECKED;

/* Reads a configuration's keys from an open file. */
enum gc_status gc_hf_read_config_file(struct gc_source *source) GC_CHECKED;

/* With "tie_word_embeddings" an output layer may be stored although it repeats the embedding: a
 * warning, as the content is not read. */
void gc_hf_note_tie(struct gc_reader *reader, const char *path);

#endif
