/* Free blocks of one size class, for best fit.
 *
 * A treap ordered by (bytes, address). A block's priority is a hash of its address, so the shape
 * depends on the set alone and no order of requests can unbalance it. Insertion, removal and search
 * are iterative, take O(log n) expected and allocate nothing: the links lie in the free blocks'
 * records.
 *
 * Invariants: keys rise from left to right; priorities never rise from parent to child; every block
 * in the tree is GC_BLOCK_FREE. Best fit is the smallest block that is large enough, and the lowest
 * of equal ones, which keeps the upper ends of segments free.
 *
 * A tree may be ordered by address alone instead, for finding the free block at an address.
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
    bool by_address; /* ordered by address alone; set while the tree is empty */
};

void gc_bins_insert(struct gc_bins *bins, struct gc_block *block);
/* The block must be in the tree. */
void gc_bins_remove(struct gc_bins *bins, struct gc_block *block);
/* NULL if no block has `bytes`. The block stays in the tree. By address: the lowest that is large
 * enough, O(n log n). */
struct gc_block *gc_bins_best_fit(const struct gc_bins *bins, uint64_t bytes);
/* The block after `block` in the tree's order, or NULL; `block` itself need not be in the tree. */
struct gc_block *gc_bins_next(const struct gc_bins *bins, const struct gc_block *block);
/* By address only: the block with the highest start at or below `address`, or NULL. */
struct gc_block *gc_bins_at(const struct gc_bins *bins, uint64_t address);
/* 0 if empty. By address: O(n log n). */
uint64_t gc_bins_largest_bytes(const struct gc_bins *bins);
/* Walks the tree, O(n): true if the invariants hold. For the tests. */
bool gc_bins_validate(const struct gc_bins *bins);

#endif
