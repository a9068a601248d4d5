/* Blocks by their address. */
#ifndef GC_LOOKUP_H
#define GC_LOOKUP_H

#include "core/core.h"
#include "core/pool/block.h"

/* The block that starts at `address`, with its pool's lock held; or none, with no lock held.
 * `interior`: any address inside it will do. GC_NOT_OURS; GC_INVALID_POINTER: inside a segment, but
 * no block starts there. */
enum gc_status gc_lookup_lock_block(struct gc_core *core, uint64_t address, bool interior,
                                    struct gc_block **block) GC_CHECKED;
/* The same. GC_BUSY: it is not known whether a block is there, since its context may be about to
 * end; with `waits` even after waiting for that. A thread that holds the stopped caches must not
 * wait: the end of a context needs them. */
enum gc_status gc_lookup_lock(struct gc_core *core, uint64_t address, bool interior, bool waits,
                              struct gc_block **block) GC_CHECKED;

/* Whether the program still has the block. */
static inline bool gc_lookup_is_live(struct gc_block *block)
{
    const uint8_t state = atomic_load_explicit(&block->state, memory_order_acquire);
    return state == GC_BLOCK_LIVE || state == GC_BLOCK_FREEING;
}

#endif
