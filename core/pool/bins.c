#include "core/pool/bins.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/pool/pagemap.h"

#include <stddef.h>

/* Callers pass `by_address` as a constant, so that the order is chosen once per operation. */
static inline bool is_before(const struct gc_block *a, const struct gc_block *b, bool by_address)
{
    if (by_address)
        return a->address < b->address;
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

/* Of the record's own address: a block keeps it while its bounds change. */
static uint64_t priority(const struct gc_block *block)
{
    return gc_mix_u64((uint64_t)(uintptr_t)block);
}

/* ---- the longest block of a subtree ---- */

/* In granules, at most what the field holds: longer blocks compare as equal. */
static uint32_t length_of(uint64_t bytes)
{
    return (uint32_t)gc_min_u64(bytes >> GC_GRANULE_BITS, UINT32_MAX);
}

static uint32_t longest_of(const struct gc_block *block)
{
    uint32_t longest = length_of(block->bytes);
    if (block->bin.left != NULL && block->bin.left->longest > longest)
        longest = block->bin.left->longest;
    if (block->bin.right != NULL && block->bin.right->longest > longest)
        longest = block->bin.right->longest;
    return longest;
}

static void update_longest(struct gc_block *block)
{
    block->longest = longest_of(block);
}

/* Updates the nodes on the path from `node` to where `block` is or was, the lowest first.
 * Recursive: the depth is O(log n) expected. */
static void update_path(struct gc_block *node, const struct gc_block *block, bool by_address)
{
    if (node == NULL)
        return;
    if (node != block)
        update_path(is_before(node, block, by_address) ? node->bin.right : node->bin.left, block,
                    by_address);
    update_longest(node);
}

/* The block, which had `length`, has left the tree or become shorter. Only nodes that were not
 * longer can have changed: the lower part of its path. */
static inline void shorten(struct gc_bins *bins, const struct gc_block *block, uint32_t length,
                           bool by_address)
{
    struct gc_block *node = bins->root;
    while (node != NULL && node != block && node->longest > length)
        node = is_before(node, block, by_address) ? node->bin.right : node->bin.left;
    update_path(node, block, by_address);
}

static inline void lengthen(struct gc_bins *bins, const struct gc_block *block, uint32_t length,
                            bool by_address)
{
    struct gc_block *node = bins->root;
    for (;;) {
        if (node->longest < length)
            node->longest = length;
        if (node == block)
            return;
        node = is_before(node, block, by_address) ? node->bin.right : node->bin.left;
    }
}

/* ---- insert and remove ---- */

/* Splits `tree`: the blocks before `block` go to *before, the others to *after. */
static void split(struct gc_block *tree, const struct gc_block *block, bool by_address,
                  struct gc_block **before, struct gc_block **after)
{
    if (tree == NULL) {
        *before = NULL;
        *after = NULL;
    } else if (is_before(tree, block, by_address)) {
        *before = tree;
        split(tree->bin.right, block, by_address, &tree->bin.right, after);
        update_longest(tree);
    } else {
        *after = tree;
        split(tree->bin.left, block, by_address, before, &tree->bin.left);
        update_longest(tree);
    }
}

static inline void insert(struct gc_bins *bins, struct gc_block *block, bool by_address)
{
    const uint64_t own = priority(block);
    const uint32_t length = length_of(block->bytes);
    struct gc_block **link = &bins->root;
    while (*link != NULL && priority(*link) >= own) {
        struct gc_block *node = *link;
        if (node->longest < length)
            node->longest = length;
        link = is_before(node, block, by_address) ? &node->bin.right : &node->bin.left;
    }
    struct gc_block *below = *link;
    *link = block;
    split(below, block, by_address, &block->bin.left, &block->bin.right);
    update_longest(block);
    bins->count++;
    bins->bytes += block->bytes;
}

static enum gc_block_state state_in(const struct gc_bins *bins)
{
    return bins->is_pending ? GC_BLOCK_PENDING : GC_BLOCK_FREE;
}

void gc_bins_insert(struct gc_bins *bins, struct gc_block *block)
{
    GC_ASSERT(block->state == state_in(bins));
    if (bins->by_address)
        insert(bins, block, true);
    else
        insert(bins, block, false);
}

/* Joins two trees, all blocks of `left` before those of `right`: the higher priority on top. */
static struct gc_block *join(struct gc_block *left, struct gc_block *right)
{
    if (left == NULL || right == NULL)
        return left != NULL ? left : right;
    struct gc_block *top = priority(left) >= priority(right) ? left : right;
    if (top == left)
        left->bin.right = join(left->bin.right, right);
    else
        right->bin.left = join(left, right->bin.left);
    update_longest(top);
    return top;
}

static inline void remove_block(struct gc_bins *bins, struct gc_block *block, bool by_address)
{
    struct gc_block **link = &bins->root;
    while (*link != block) {
        GC_ASSERT(*link != NULL);
        link = is_before(*link, block, by_address) ? &(*link)->bin.right : &(*link)->bin.left;
    }
    *link = join(block->bin.left, block->bin.right);
    shorten(bins, block, length_of(block->bytes), by_address);
    bins->count--;
    bins->bytes -= block->bytes;
}

void gc_bins_remove(struct gc_bins *bins, struct gc_block *block)
{
    if (bins->by_address)
        remove_block(bins, block, true);
    else
        remove_block(bins, block, false);
}

void gc_bins_resize(struct gc_bins *bins, struct gc_block *block, uint64_t address, uint64_t bytes)
{
    const uint32_t before = length_of(block->bytes);
    const uint32_t after = length_of(bytes);
    GC_ASSERT(bins->by_address);
    bins->bytes += bytes - block->bytes;
    block->address = address;
    block->bytes = bytes;
    if (after < before)
        shorten(bins, block, before, true);
    else
        lengthen(bins, block, after, true);
}

/* ---- search ---- */

bool gc_bins_has(const struct gc_bins *bins, const struct gc_block *block)
{
    const struct gc_block *node = bins->root;
    while (node != NULL && node != block)
        node = is_before(node, block, bins->by_address) ? node->bin.right : node->bin.left;
    return node != NULL;
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

/* The lowest block of the subtree that is long enough; there is one. */
static struct gc_block *lowest_fit(struct gc_block *node, uint32_t length)
{
    for (;;) {
        struct gc_block *left = node->bin.left;
        if (left != NULL && left->longest >= length)
            node = left;
        else if (length_of(node->bytes) >= length)
            return node;
        else
            node = node->bin.right;
    }
}

struct gc_block *gc_bins_first_fit(const struct gc_bins *bins, uint64_t address, uint64_t bytes)
{
    const uint32_t length = length_of(bytes);
    struct gc_block *lowest = NULL; /* it, or a block right of it, is long enough */
    struct gc_block *node = bins->root;
    GC_ASSERT(bins->by_address);
    if (address == 0)
        return node != NULL && node->longest >= length ? lowest_fit(node, length) : NULL;
    while (node != NULL) {
        const struct gc_block *right = node->bin.right;
        if (node->address < address) {
            node = node->bin.right;
            continue;
        }
        if (length_of(node->bytes) >= length || (right != NULL && right->longest >= length))
            lowest = node;
        node = node->bin.left;
    }
    if (lowest == NULL || length_of(lowest->bytes) >= length)
        return lowest;
    return lowest_fit(lowest->bin.right, length);
}

struct gc_block *gc_bins_best_fit(const struct gc_bins *bins, uint64_t bytes)
{
    struct gc_block *best = NULL;
    struct gc_block *block = bins->root;
    GC_ASSERT(!bins->by_address);
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

struct gc_block *gc_bins_next_fit(const struct gc_bins *bins, const struct gc_block *block,
                                  uint64_t bytes)
{
    if (bins->by_address)
        return gc_bins_first_fit(bins, block == NULL ? 0 : block->address + 1, bytes);
    return block == NULL ? gc_bins_best_fit(bins, bytes) : gc_bins_next(bins, block);
}

uint64_t gc_bins_largest_bytes(const struct gc_bins *bins)
{
    return bins->root == NULL ? 0 : (uint64_t)bins->root->longest << GC_GRANULE_BITS;
}

/* State of a validating walk. */
struct walk {
    const struct gc_block *last;
    uint64_t count;
    uint64_t bytes;
    enum gc_block_state state;
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
    walk->ok = walk->ok && block->state == walk->state &&
               (walk->last == NULL || is_before(walk->last, block, walk->by_address)) &&
               (left == NULL || priority(left) <= priority(block)) &&
               (right == NULL || priority(right) <= priority(block)) &&
               block->longest == longest_of(block);
    walk->last = block;
    walk->count++;
    walk->bytes += block->bytes;
    walk_tree(right, walk);
}

bool gc_bins_validate(const struct gc_bins *bins)
{
    struct walk walk = {.state = state_in(bins), .by_address = bins->by_address, .ok = true};
    walk_tree(bins->root, &walk);
    return walk.ok && walk.count == bins->count && walk.bytes == bins->bytes;
}
