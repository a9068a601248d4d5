/* Free blocks of one class, for best fit.
 *
 * A treap ordered by (bytes, address); a block's priority is the mixed bits of its address, so the
 * shape depends on the set alone and no order of requests can unbalance it. Insertion, removal and
 * search are O(log n) expected, iterative, and allocate nothing: the links lie in the free blocks
 * themselves.
 *
 * Invariants: keys rise from left to right; priorities never rise from parent to child; every block
 * in it is GC_BLOCK_FREE. Best fit is the smallest block that is large enough, the lowest of equal
 * ones, which keeps the upper ends of segments free.
 *
 * A set may be ordered by address alone instead, where the free block at an address is asked for.
 *
 * Guarded by the pool's lock. Source: Seidel and Aragon, Randomized Search Trees (1996). */
#ifndef GC_BINS_H
#define GC_BINS_H

#include "core/pool/block.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_bins {
    struct gc_block *root;
    uint64_t count;
    uint64_t bytes;
    bool by_address; /* ordered by address alone; set while it is empty */
};

void gc_bins_insert(struct gc_bins *bins, struct gc_block *block);
/* The block must be in it. */
void gc_bins_remove(struct gc_bins *bins, struct gc_block *block);
/* NULL if no block has `bytes`. The block stays in. By address: the lowest that has, O(n log n). */
struct gc_block *gc_bins_best_fit(const struct gc_bins *bins, uint64_t bytes);
/* The one after `block` in that order, which need not be in; NULL if it is the last. */
struct gc_block *gc_bins_next(const struct gc_bins *bins, const struct gc_block *block);
/* By address only: the block with the highest start at or below `address`, or NULL. */
struct gc_block *gc_bins_at(const struct gc_bins *bins, uint64_t address);
/* 0 if empty. By address: O(n log n). */
uint64_t gc_bins_largest_bytes(const struct gc_bins *bins);
/* Walks everything, O(n): true if the invariants hold. For tests and builds with GC_CHECK. */
bool gc_bins_validate(const struct gc_bins *bins);

#endif
