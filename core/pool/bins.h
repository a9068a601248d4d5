/* Free blocks of one size class and kind, for best fit or first fit; or pending ones of a stream
 * (pending.h).
 *
 * A treap ordered by (bytes, address), or by address alone. A block's priority is a hash of its
 * address, so the shape depends on the set alone and no order of requests can unbalance it. Each
 * node knows the longest block of its subtree, so that the lowest block that is large enough is
 * found in O(log n) expected. Nothing is allocated: links and lengths lie in the blocks'
 * records.
 *
 * Invariants: keys rise from left to right; priorities never rise from parent to child; every block
 * in the tree is FREE, or with is_pending PENDING; `longest` is the maximum over the subtree.
 *
 * Guarded by the pool's lock. Source: Seidel and Aragon, Randomized Search Trees (1996); the
 * augmented tree as in Cormen et al., chapter 14. */
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
    bool is_pending; /* of pending blocks; likewise */
};

void gc_bins_insert(struct gc_bins *bins, struct gc_block *block);
/* The block must be in the tree. */
void gc_bins_remove(struct gc_bins *bins, struct gc_block *block);
/* By address: a block of the tree gets other bounds; it has the same neighbours in the tree. */
void gc_bins_resize(struct gc_bins *bins, struct gc_block *block, uint64_t address, uint64_t bytes);
/* O(log n): whether the block is in this tree. */
bool gc_bins_has(const struct gc_bins *bins, const struct gc_block *block);
/* By (bytes, address): the smallest block that is large enough, and of equal ones the lowest, which
 * keeps the upper ends of segments free. NULL: none. The block stays in the tree. */
struct gc_block *gc_bins_best_fit(const struct gc_bins *bins, uint64_t bytes);
/* By address: the lowest block from `address` on that is large enough, or NULL. */
struct gc_block *gc_bins_first_fit(const struct gc_bins *bins, uint64_t address, uint64_t bytes);
/* The next block after `block`, or the first for NULL, in the tree's order that is large enough. */
struct gc_block *gc_bins_next_fit(const struct gc_bins *bins, const struct gc_block *block,
                                  uint64_t bytes);
/* The block after `block` in the tree's order, or NULL; `block` itself need not be in the tree. */
struct gc_block *gc_bins_next(const struct gc_bins *bins, const struct gc_block *block);
/* By address: the block with the highest start at or below `address`, or NULL. */
struct gc_block *gc_bins_at(const struct gc_bins *bins, uint64_t address);
/* 0 if empty. */
uint64_t gc_bins_largest_bytes(const struct gc_bins *bins);
/* Walks the tree, O(n): true if the invariants hold. For the tests. */
bool gc_bins_validate(const struct gc_bins *bins);

#endif
