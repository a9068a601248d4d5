/* The nodes of a PQ-tree, each logged before it changes; for the tree's own parts. */
#ifndef GC_PLANNER_PLACE_TREE_NODE_H
#define GC_PLANNER_PLACE_TREE_NODE_H

#include "core/planner/place_tree.h"

/* A new one without parent and children. */
uint32_t gc_place_tree_add(struct gc_place_tree *tree, enum gc_place_tree_kind kind);
/* Takes a node from its parent. */
void gc_place_tree_unlink(struct gc_place_tree *tree, uint32_t node);
/* Puts a node that is nowhere under `above`, behind `previous`, or first where that is NONE. */
void gc_place_tree_link(struct gc_place_tree *tree, uint32_t above, uint32_t previous,
                        uint32_t node);
void gc_place_tree_append(struct gc_place_tree *tree, uint32_t above, uint32_t node);
/* Puts a node that is nowhere where another was. */
void gc_place_tree_swap(struct gc_place_tree *tree, uint32_t old, uint32_t node);
/* A node with one child gives its place to it. */
void gc_place_tree_dissolve_single(struct gc_place_tree *tree, uint32_t node);
/* Children in reverse. */
void gc_place_tree_turn_round(struct gc_place_tree *tree, uint32_t node);
/* The children of a node take its place among its siblings. */
void gc_place_tree_splice(struct gc_place_tree *tree, uint32_t node);

#endif
