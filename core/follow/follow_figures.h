/* The figures of a plan replay, for the report. */
#ifndef GC_FOLLOW_FIGURES_H
#define GC_FOLLOW_FIGURES_H

#include <stdint.h>

/* All zero: no plan is followed. */
struct gc_follow_figures {
    uint64_t entry_count;
    uint64_t peak_bytes; /* of the plan */
    uint64_t used_bytes; /* the end of the highest place that was allocated */
    uint64_t followed_count;
    uint64_t followed_bytes;
#define GC_FOLLOW_REASON(name, key, text) uint64_t key##_count, key##_bytes;
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    uint64_t iterations; /* times that the replay reached the plan's end */
    uint64_t resyncs;    /* times that the replay found its position after a deviation */
};

#endif
