/* A pool's blocks from inside: what pool.c and pool_segment.c share. The pool's lock is held. */
#ifndef GC_POOL_BLOCK_H
#define GC_POOL_BLOCK_H

#include "core/pool/pool.h"

/* A block record, of which gc_pool_acquire saw to it that there are enough. */
struct gc_block *gc_pool_pop_record_locked(struct gc_pool *pool);
/* The block becomes free as it is, not merged: into the bins, and its segment idle if it is all of
 * it. */
void gc_pool_bin_locked(struct gc_pool *pool, struct gc_block *block);
/* A free block leaves the bins, and its segment the idle ones. */
void gc_pool_unbin_locked(struct gc_pool *pool, struct gc_block *block);
/* Cuts the end off a block that is in no bin and makes it a free block, if it is worth one. */
void gc_pool_split_off_locked(struct gc_pool *pool, struct gc_block *block, uint64_t bytes);
/* The segment joins the idle ones, as the newest; it was none of them. */
void gc_pool_set_idle_locked(struct gc_pool *pool, struct gc_segment *segment);

#endif
