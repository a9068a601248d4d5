/* A plain description, for what no other format says:
 *   {"tensors": [{"name": "w", "dtype": "bf16", "shape": [4096, 4096]}, …],
 *    "config": {"num_hidden_layers": 32, …}}
 * dtype by any of its spellings; config, which may be left out, with the keys of a Hugging Face
 * config.json. "alias_of": the name of a tensor before it that is the same memory. */
#ifndef GC_FORMATS_DESCRIPTION_H
#define GC_FORMATS_DESCRIPTION_H

#include "core/reader/source.h"

enum gc_status gc_description_read(struct gc_source *source) GC_CHECKED;

#endif
