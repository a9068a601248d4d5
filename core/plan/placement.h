/* Placement of buffers whose lifetimes are known (dynamic storage allocation): each gets an offset
 * so that no two that are alive at once overlap, and the highest end, the peak, is as low as can
 * be.
 *
 * Minimising the peak is NP-hard; what is returned is always valid (checked by code that shares
 * nothing with the solver) and says whether it is proven to be the best. */
#ifndef GC_PLANNER_PLACEMENT_H
#define GC_PLANNER_PLACEMENT_H

#include "core/base/region.h"
#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_PLACEMENT_FREE UINT64_MAX      /* a buffer whose offset is to be found */
#define GC_PLACEMENT_UNLIMITED UINT64_MAX /* no capacity: the peak is minimised */
#define GC_PLACEMENT_NODES_UNLIMITED 0

struct gc_placement_buffer {
    uint64_t lower; /* alive in [lower, upper); lower < upper */
    uint64_t upper;
    uint64_t bytes;     /* 0: takes no room */
    uint64_t alignment; /* of its offset; any number, 0 and 1: none */
    uint64_t fixed;     /* its offset, or GC_PLACEMENT_FREE */
};

struct gc_placement_problem {
    const struct gc_placement_buffer *buffers;
    uint32_t count;
    uint64_t capacity_bytes; /* any placement within it will do, or GC_PLACEMENT_UNLIMITED */
};

/* What is known while the search goes on; true: go on, false: stop and give the best so far. */
typedef bool gc_placement_progress(void *argument, uint64_t lower_bound_bytes, uint64_t peak_bytes,
                                   uint64_t nodes);

struct gc_placement_options {
    uint64_t seed;
    uint64_t node_max;            /* steps of search, GC_PLACEMENT_NODES_UNLIMITED: no limit */
    gc_placement_progress *watch; /* called every few thousand nodes; NULL: never stopped */
    void *watch_argument;
    /* For several runs side by side: of the searches that take turns only every share_count-th,
     * from share_index on; 0: all of them. */
    uint32_t share_index;
    uint32_t share_count;
};

struct gc_placement {
    uint64_t *offsets; /* as many as buffers */
    uint64_t peak_bytes;
    uint64_t lower_bound_bytes; /* no placement has a lower peak */
    uint64_t nodes;             /* steps of search taken */
    bool optimal;               /* no placement has a lower peak than this one */
    bool fits;                  /* in the capacity */
};

/* Memory comes from `region`, which also holds placement->offsets. The same problem, seed and
 * node_max give the same placement as long as `watch` lets it go on. One thread.
 * GC_INVALID_ARGUMENT: a buffer that breaks the rules above, or two fixed ones that overlap (see
 * gc_placement_check); GC_OVERFLOW: the sizes add up to more than 64 bits; GC_NO_HOST_MEMORY. */
enum gc_status gc_placement_solve(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_placement_options *options,
                                  struct gc_placement *placement) GC_CHECKED;

/* The validator: independent of the solver. GC_INVALID_ARGUMENT with the first two buffers that are
 * in each other's way (or one, twice, that is misplaced); *peak_bytes is what the offsets really
 * take. O(n log n); memory from `region`, NULL offsets: checks the fixed ones alone. */
struct gc_placement_fault {
    uint32_t first;
    uint32_t second;
    const char *what; /* "overlap", "no lifetime" and the like */
};
enum gc_status gc_placement_check(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const uint64_t *offsets, uint64_t *peak_bytes,
                                  struct gc_placement_fault *fault) GC_CHECKED;

#endif
