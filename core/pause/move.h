/* Moves content of blocks to host memory at the same addresses (GPUCACHE_OVERCOMMIT=spill), so that
 * their memory of the device serves others. */
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

/* Is told of each block, after its move. */
typedef void gc_move_function(void *argument, const struct gc_moved *moved);

/* Moves live blocks whose pages together free `need_bytes` for the context's quota: of any context
 * of the device with the same quota, stream-ordered ones too, the least recently allocated of each
 * pool first, at most GC_MOVE_BLOCKS_MAX; smaller ones than that part of the need stay. Only the
 * extents that lie in a block move. False: nothing is moved, and all is as before: the blocks that
 * may go do not suffice, no host memory, peers, captures, exported or pinned memory, work that does
 * not end in time or that the library does not see, a driver's failure at the first. */
#define GC_MOVE_BLOCKS_MAX 64
bool gc_move_blocks(struct gc_context *context, uint64_t need_bytes, gc_move_function *told,
                    void *argument) GC_CHECKED;

#endif
