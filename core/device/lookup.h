/* Blocks by their address, found while other threads allocate, free and tear contexts down:
 * optimistic look-up. The pagemap (core/pool/pagemap.h, which has the bound) is read without a
 * lock, then again under the lock of the candidate's pool; a candidate that changed is looked up
 * anew. */
#ifndef GC_LOOKUP_H
#define GC_LOOKUP_H

#include "core/core.h"
#include "core/pool/block.h"

/* How an address relates to the blocks. */
enum gc_lookup {
    GC_LOOKUP_START,     /* a block starts there; its pool's lock is held */
    GC_LOOKUP_INSIDE,    /* a block contains it; its pool's lock is held */
    GC_LOOKUP_NOT_OURS,  /* no block contains it; no lock is held */
    GC_LOOKUP_UNDECIDED, /* the context that had it is being torn down; no lock is held */
};

/* Finds the block that contains `address` and locks its pool. `waits`: if a context that is being
 * torn down had the address, waits for the decision; UNDECIDED only after 10 s. A thread that holds
 * the stopped caches must not wait: teardown needs the caches, too (deadlock). */
enum gc_lookup gc_lookup_lock(struct gc_core *core, uint64_t address, bool waits,
                              struct gc_block **block) GC_CHECKED;
/* As gc_lookup_lock with `waits`. GC_OK: START or INSIDE. GC_NOT_OURS; GC_INVALID_POINTER:
 * UNDECIDED. */
enum gc_status gc_lookup_lock_block(struct gc_core *core, uint64_t address,
                                    struct gc_block **block) GC_CHECKED;

/* Describes a live block if `address` is within its requested bytes. False: the address is not, or
 * the block is freed. The pool's lock is held. */
bool gc_lookup_describe_locked(struct gc_block *block, uint64_t address,
                               struct gc_block_info *info) GC_CHECKED;

/* Whether the block is live, or its free is under way. */
static inline bool gc_lookup_is_live(struct gc_block *block)
{
    const uint8_t state = atomic_load_explicit(&block->state, memory_order_acquire);
    return state == GC_BLOCK_LIVE || state == GC_BLOCK_FREEING;
}

#endif
