/* Placement of buffers with known lifetimes (dynamic storage allocation): each gets an offset so
 * that no two that are alive at once overlap, and the highest end, the peak, is as low as possible.
 *
 * Minimising the peak is NP-hard. A returned placement is always valid (checked by code that shares
 * nothing with the solver); `optimal` marks one that is proven best. */
#ifndef GC_PLANNER_PLACEMENT_H
#define GC_PLANNER_PLACEMENT_H

#include "core/base/region.h"
#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_PLACEMENT_FREE UINT64_MAX      /* the solver finds this buffer's offset */
#define GC_PLACEMENT_UNLIMITED UINT64_MAX /* no capacity: the peak is minimised */
#define GC_PLACEMENT_NODES_UNLIMITED 0

struct gc_placement_buffer {
    uint64_t lower; /* alive in [lower, upper); lower < upper */
    uint64_t upper;
    uint64_t bytes;     /* 0: takes no space */
    uint64_t alignment; /* of its offset; any number, 0 and 1: none */
    uint64_t fixed;     /* its offset, or GC_PLACEMENT_FREE */
};

struct gc_placement_problem {
    const struct gc_placement_buffer *buffers;
    uint32_t count;
    uint64_t capacity_bytes; /* any placement within it is good enough, or GC_PLACEMENT_UNLIMITED */
};

/* Called during the search with the current bounds. True: continue. False: stop and return the best
 * placement so far. */
typedef bool gc_placement_progress(void *argument, uint64_t lower_bound_bytes, uint64_t peak_bytes,
                                   uint64_t nodes);

struct gc_placement_options {
    uint64_t seed;
    uint64_t node_max;            /* steps of search, GC_PLACEMENT_NODES_UNLIMITED: no limit */
    gc_placement_progress *watch; /* called every few thousand nodes; NULL: never stopped */
    void *watch_argument;
    /* For parallel runs: of the alternating searches this run executes every share_count-th, from
     * share_index on; share_count 0: all. */
    uint32_t share_index;
    uint32_t share_count;
};

struct gc_placement {
    uint64_t *offsets; /* one for each buffer */
    uint64_t peak_bytes;
    uint64_t lower_bound_bytes; /* no placement has a lower peak */
    uint64_t nodes;             /* steps of search taken */
    bool optimal;               /* no placement has a lower peak than this one */
    bool fits;                  /* in the capacity */
};

/* Memory comes from `region`, which also holds placement->offsets. Equal problem, seed and node_max
 * give an equal placement as long as `watch` does not stop it. One thread. GC_INVALID_ARGUMENT: a
 * buffer breaks the rules above, or two fixed ones overlap (see gc_placement_check). GC_OVERFLOW:
 * the sizes add up to more than 64 bits. GC_NO_HOST_MEMORY. */
enum gc_status gc_solve_placement(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_placement_options *options,
                                  struct gc_placement *placement) GC_CHECKED;

/* The validator, independent of the solver. GC_INVALID_ARGUMENT: *fault names the first two buffers
 * that overlap, or a misplaced buffer twice. *peak_bytes is the actual peak of the offsets. O(n log
 * n). Memory is within `region`'s limit, and freed. NULL offsets: checks only the fixed ones. */
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
