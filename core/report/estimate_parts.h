/* The parts of an estimate, as estimate_parts.def lists them, and their sizes. */
#ifndef GC_ESTIMATE_PARTS_H
#define GC_ESTIMATE_PARTS_H

#include <stdbool.h>
#include <stdint.h>

enum gc_estimate_part {
#define GC_ESTIMATE_PART(name, ...) GC_ESTIMATE_##name,
#include "core/report/estimate_parts.def"
#undef GC_ESTIMATE_PART
    GC_ESTIMATE_PART_COUNT
};

const char *gc_estimate_part_key(enum gc_estimate_part part);   /* "weight_bytes" */
const char *gc_estimate_part_label(enum gc_estimate_part part); /* "weights" */
/* Whether a part belongs to training, or to inference. */
bool gc_estimate_part_is_of(enum gc_estimate_part part, bool training);

struct gc_estimate_sizes {
    uint64_t parts[GC_ESTIMATE_PART_COUNT];
    uint64_t peak_bytes; /* their sum */
};

#endif
