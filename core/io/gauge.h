/* A figure that rises and falls, with its peak. */
#ifndef GC_GAUGE_H
#define GC_GAUGE_H

#include <stdint.h>

struct gc_gauge {
    uint64_t current;
    uint64_t peak;
};

#endif
