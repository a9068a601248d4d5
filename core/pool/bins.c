#include "core/pool/bins.h"

#include "core/base/assert.h"
#include "core/base/bits.h"

#include <stddef.h>

/* Callers pass `by_address` as a constant, so that the order is chosen once per operation. */
static inline bool is_before(const struct gc_block *a, const struct gc_block *b, bool by_address)
{
    if (by_address)
        return a->address < b->address;
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

static uint64_t priority(const struct gc_block *block)
{
    return gc_mix_u64(block->address);
}

/* Splits `tree`: the blocks before `block` go to *before, the others to *after. */
static inline void split(struct gc_block *tree, const struct gc_block *block, bool by_address,
                         struct gc_block **before, struct gc_block **after)
{
    while (tree != NULL) {
        if (is_before(tree, block, by_address)) {
            *before = tree;
            before = &tree->bin.right;
            tree = tree->bin.right;
        } else {
            *after = tree;
            after = &tree->bin.left;
            tree = tree->bin.left;
        }
    }
    *before = NULL;
    *after = NULL;
}

static inline void insert(struct gc_bins *bins, struct gc_block *block, bool by_address)
{
    const uint64_t own = priority(block);
    struct gc_block **link = &bins->root;
    while (*link != NULL && priority(*link) >= own)
        link = is_before(*link, block, by_address) ? &(*link)->bin.right : &(*link)->bin.left;
    struct gc_block *below = *link;
    *link = block;
    split(below, block, by_address, &block->bin.left, &block->bin.right);
    bins->count++;
    bins->bytes += block->bytes;
}

void gc_bins_insert(struct gc_bins *bins, struct gc_block *block)
{
    GC_ASSERT(block->state == GC_BLOCK_FREE);
    if (bins->by_address)
        insert(bins, block, true);
    else
        insert(bins, block, false);
}

static inline struct gc_block **find_link(struct gc_bins *bins, const struct gc_block *block,
                                          bool by_address)
{
    struct gc_block **link = &bins->root;
    while (*link != block) {
        GC_ASSERT(*link != NULL);
        link = is_before(*link, block, by_address) ? &(*link)->bin.right : &(*link)->bin.left;
    }
    return link;
}

void gc_bins_remove(struct gc_bins *bins, struct gc_block *block)
{
    struct gc_block **link =
        bins->by_address ? find_link(bins, block, true) : find_link(bins, block, false);
    /* The two subtrees take the block's place, the higher priority on top at each step. */
    struct gc_block *left = block->bin.left;
    struct gc_block *right = block->bin.right;
    while (left != NULL && right != NULL) {
        if (priority(left) >= priority(right)) {
            *link = left;
            link = &left->bin.right;
            left = left->bin.right;
        } else {
            *link = right;
            link = &right->bin.left;
            right = right->bin.left;
        }
    }
    *link = left != NULL ? left : right;
    bins->count--;
    bins->bytes -= block->bytes;
}

struct gc_block *gc_bins_at(const struct gc_bins *bins, uint64_t address)
{
    struct gc_block *nearest = NULL;
    struct gc_block *block = bins->root;
    GC_ASSERT(bins->by_address);
    while (block != NULL) {
        if (block->address <= address) {
            nearest = block;
            block = block->bin.right;
        } else {
            block = block->bin.left;
        }
    }
    return nearest;
}

static struct gc_block *first_fit(const struct gc_bins *bins, uint64_t bytes)
{
    struct gc_block *block = bins->root;
    while (block != NULL && block->bin.left != NULL)
        block = block->bin.left;
    while (block != NULL && block->bytes < bytes)
        block = gc_bins_next(bins, block);
    return block;
}

struct gc_block *gc_bins_best_fit(const struct gc_bins *bins, uint64_t bytes)
{
    struct gc_block *best = NULL;
    struct gc_block *block = bins->root;
    if (bins->by_address)
        return first_fit(bins, bytes);
    while (block != NULL) {
        if (block->bytes >= bytes) {
            best = block;
            block = block->bin.left;
        } else {
            block = block->bin.right;
        }
    }
    return best;
}

static inline struct gc_block *next_of(const struct gc_bins *bins, const struct gc_block *block,
                                       bool by_address)
{
    struct gc_block *next = NULL;
    struct gc_block *candidate = bins->root;
    while (candidate != NULL) {
        if (is_before(block, candidate, by_address)) {
            next = candidate;
            candidate = candidate->bin.left;
        } else {
            candidate = candidate->bin.right;
        }
    }
    return next;
}

struct gc_block *gc_bins_next(const struct gc_bins *bins, const struct gc_block *block)
{
    return bins->by_address ? next_of(bins, block, true) : next_of(bins, block, false);
}

static uint64_t largest_of_all(const struct gc_bins *bins)
{
    uint64_t largest = 0;
    for (const struct gc_block *block = first_fit(bins, 1); block != NULL;
         block = gc_bins_next(bins, block))
        largest = gc_max_u64(largest, block->bytes);
    return largest;
}

uint64_t gc_bins_largest_bytes(const struct gc_bins *bins)
{
    const struct gc_block *block = bins->root;
    if (bins->by_address)
        return largest_of_all(bins);
    while (block != NULL && block->bin.right != NULL)
        block = block->bin.right;
    return block == NULL ? 0 : block->bytes;
}

/* State of a validating walk. */
struct walk {
    const struct gc_block *last;
    uint64_t count;
    uint64_t bytes;
    bool by_address;
    bool ok;
};

static void walk_tree(const struct gc_block *block, struct walk *walk)
{
    if (block == NULL || !walk->ok)
        return;
    const struct gc_block *left = block->bin.left;
    const struct gc_block *right = block->bin.right;
    walk_tree(left, walk);
    walk->ok = walk->ok && block->state == GC_BLOCK_FREE &&
               (walk->last == NULL || is_before(walk->last, block, walk->by_address)) &&
               (left == NULL || priority(left) <= priority(block)) &&
               (right == NULL || priority(right) <= priority(block));
    walk->last = block;
    walk->count++;
    walk->bytes += block->bytes;
    walk_tree(right, walk);
}

bool gc_bins_validate(const struct gc_bins *bins)
{
    struct walk walk = {.by_address = bins->by_address, .ok = true};
    walk_tree(bins->root, &walk);
    return walk.ok && walk.count == bins->count && walk.bytes == bins->bytes;
}
