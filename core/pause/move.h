/* Moves a block's content to host memory at the same addresses (GPUCACHE_OVERCOMMIT=spill), so that
 * its memory of the device serves others. */
#ifndef GC_MOVE_H
#define GC_MOVE_H

#include "core/core.h"

struct gc_moved {
    uint64_t address; /* of the block */
    uint64_t block_bytes;
    uint64_t moved_bytes;
    uint64_t device_bytes; /* released */
    uint16_t api;
};

/* Moves the largest live block of the context's pool that frees at least `least_bytes`, the least
 * recently allocated of equal ones. Only the extents that lie in the block move. False: nothing is
 * moved, and all is as before: no such block, no host memory, peers, captures, exported or pinned
 * memory, work that does not end in time or that the library does not see, a driver's failure. */
bool gc_move_largest(struct gc_context *context, uint64_t least_bytes,
                     struct gc_moved *moved) GC_CHECKED;

#endif
