/* Ordered sets of address ranges, and a best-fit allocator of ranges built from two of them.
 *
 * A tree is a treap: a binary search tree on (start, end) that is also a heap on random priorities,
 * so its expected depth is logarithmic whatever the order of insertions. Nodes are embedded in the
 * caller's structures. Nothing here locks: callers hold the lock of what they keep in the set. */
#ifndef SIM_MEMORY_TREE_H
#define SIM_MEMORY_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_node {
    struct sim_node *left;
    struct sim_node *right;
    uint64_t start;
    uint64_t end; /* one past the last address */
    uint32_t priority;
};

struct sim_tree {
    struct sim_node *root;
    uint64_t count;
};

#define SIM_CONTAINER(embedded, type, member)                                                      \
    ((type *)(void *)((char *)(embedded)-offsetof(type, member)))

/* The node's start and end must be set; ranges of one tree do not overlap unless the caller allows
 * it. */
void sim_tree_insert(struct sim_tree *tree, struct sim_node *node);
void sim_tree_remove(struct sim_tree *tree, struct sim_node *node);
/* The range that contains the address, or NULL. */
struct sim_node *sim_tree_find(const struct sim_tree *tree, uint64_t address);
/* The first node whose (start, end) is not below the pair, or NULL. */
struct sim_node *sim_tree_lower_bound(const struct sim_tree *tree, uint64_t start, uint64_t end);
/* The last node whose start is at or below the address, or NULL. */
struct sim_node *sim_tree_floor(const struct sim_tree *tree, uint64_t address);
/* The first range that overlaps [start, end), or NULL. */
struct sim_node *sim_tree_overlap(const struct sim_tree *tree, uint64_t start, uint64_t end);

/* Free ranges, kept by address for merging and by size for best fit. */
struct sim_ranges {
    struct sim_tree by_start;
    struct sim_tree by_size;
    uint64_t free_bytes;
    uint64_t boundary; /* ranges never merge across a multiple of this; 0: always */
};

/* Adds [start, start+bytes), merged with its neighbours; the merged range goes to *start, *bytes.
 */
bool sim_ranges_give(struct sim_ranges *ranges, uint64_t *start, uint64_t *bytes);
/* Takes the smallest range that holds `bytes` at a multiple of `alignment` (a power of two). */
bool sim_ranges_take(struct sim_ranges *ranges, uint64_t bytes, uint64_t alignment,
                     uint64_t *start);
/* Takes exactly [start, start+bytes) if all of it is free. */
bool sim_ranges_take_at(struct sim_ranges *ranges, uint64_t start, uint64_t bytes);
/* The first free range at or after the address: false at the end. */
bool sim_ranges_next(const struct sim_ranges *ranges, uint64_t from, uint64_t *start,
                     uint64_t *bytes);
void sim_ranges_fini(struct sim_ranges *ranges);

#endif
