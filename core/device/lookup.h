/* Blocks by address, found while other threads allocate and free. */
#ifndef GC_LOOKUP_H
#define GC_LOOKUP_H

#include "core/core.h"
#include "core/pool/block.h"

/* Finds the block that starts at `address` and takes its pool's lock; on failure no lock is held.
 * `interior`: any address inside the block will do. GC_NOT_OURS. GC_INVALID_POINTER: inside a
 * segment, but no block starts there. */
enum gc_status gc_lookup_lock_block(struct gc_core *core, uint64_t address, bool interior,
                                    struct gc_block **block) GC_CHECKED;
/* As above. GC_BUSY: unknown, since a teardown of the block's context is undecided; with `waits`,
 * even after a wait for it. A thread that has stopped the thread caches must not wait: the teardown
 * needs them. */
enum gc_status gc_lookup_lock(struct gc_core *core, uint64_t address, bool interior, bool waits,
                              struct gc_block **block) GC_CHECKED;

/* Whether the program has not freed the block. */
static inline bool gc_lookup_is_live(struct gc_block *block)
{
    const uint8_t state = atomic_load_explicit(&block->state, memory_order_acquire);
    return state == GC_BLOCK_LIVE || state == GC_BLOCK_FREEING;
}

#endif
