/* A JSON description, for models without a file of another format:
 *   {"tensors": [{"name": "w", "dtype": "bf16", "shape": [4096, 4096]}, …],
 *    "config": {"num_hidden_layers": 32, …}}
 * "dtype" takes any spelling. "config" is optional and has the keys of a Hugging Face config.json.
 * "alias_of" names an earlier tensor in the same memory. */
#ifndef GC_FORMATS_DESCRIPTION_H
#define GC_FORMATS_DESCRIPTION_H

#include "core/reader/source.h"

enum gc_status gc_description_read(struct gc_source *source) GC_CHECKED;

#endif
