/* All the orders in which what is alive may lie, as a PQ-tree (Booth and Lueker, "Testing for the
 * consecutive ones property", JCSS 13, 1976): leaves are items; the children of a P node may change
 * places, those of a Q node may only be turned round, all together.
 *
 * Changes are logged, so that a search goes back to an earlier state. Nothing here recurses. */
#ifndef GC_PLANNER_PLACE_TREE_H
#define GC_PLANNER_PLACE_TREE_H

#include "core/base/region.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_PLACE_TREE_NONE UINT32_MAX

enum gc_place_tree_kind { GC_PLACE_TREE_LEAF, GC_PLACE_TREE_P, GC_PLACE_TREE_Q };

struct gc_place_tree_node {
    uint32_t parent; /* or NONE: the root, and what is not in the tree */
    uint32_t first;  /* children; NONE of a leaf */
    uint32_t last;
    uint32_t previous; /* siblings */
    uint32_t next;
    uint32_t count; /* children */
    uint32_t stamp; /* when it was logged last */
    enum gc_place_tree_kind kind;
};

/* Of one joining: what is known of the nodes it touches. */
struct gc_place_tree_note {
    uint32_t round; /* of another round: nothing */
    uint32_t label;
    uint32_t leaves;  /* of the joined below it */
    uint32_t touched; /* children that have such leaves; how many of them are done */
    uint32_t done;
    uint32_t full_count; /* children all of whose leaves are joined, in a chain */
    uint32_t full;
    uint32_t chain;
    uint32_t partial_count;
    uint32_t partials[2]; /* children that are Q nodes with what is joined at their end, */
    uint32_t begin;       /* from this child on */
};

struct gc_place_tree_change {
    uint32_t node;
    struct gc_place_tree_node before;
};

struct gc_place_tree {
    struct gc_place_tree_node *nodes; /* leaves first, by their number */
    struct gc_place_tree_note *notes;
    uint32_t *queue;
    uint32_t leaf_count;
    uint32_t node_count;
    uint32_t node_room;
    uint32_t root;
    uint32_t round;
    uint32_t stamp;
    struct gc_place_tree_change *changes; /* the latest; of the oldest there may be none left */
    uint64_t change_begin;
    uint64_t change_count;
    uint64_t change_room;
};

struct gc_place_tree_mark {
    uint64_t change_count;
    uint32_t node_count;
    uint32_t root;
};

/* Siblings next to each other, or a single node. */
struct gc_place_tree_run {
    uint32_t begin;
    uint32_t end; /* the last of them */
};

bool gc_place_tree_init(struct gc_place_tree *tree, struct gc_region *region, uint32_t leaf_count,
                        uint32_t node_room, uint64_t change_room);
/* A tree of these leaves in any order; at least one. */
void gc_place_tree_begin(struct gc_place_tree *tree, const uint32_t *leaves, uint32_t count);

struct gc_place_tree_mark gc_place_tree_mark(struct gc_place_tree *tree);
/* False: that is too long ago, and nothing was undone. */
bool gc_place_tree_undo(struct gc_place_tree *tree, struct gc_place_tree_mark mark);

/* The greatest subtrees of nothing but these leaves, into `tops`; how many. */
uint32_t gc_place_tree_tops(struct gc_place_tree *tree, const uint32_t *leaves, uint32_t count,
                            uint32_t *tops);
/* Only orders in which the leaves are next to each other stay; *run is where they are. False: there
 * is none, or no room for more nodes, and the tree is to be undone. */
bool gc_place_tree_join(struct gc_place_tree *tree, const uint32_t *leaves, uint32_t count,
                        struct gc_place_tree_run *run);
/* Puts other leaves, in any order, in the place of a run; none of them: takes it away. */
void gc_place_tree_replace(struct gc_place_tree *tree, const struct gc_place_tree_run *run,
                           const uint32_t *leaves, uint32_t count);

/* The next leaf below `top` in the order of the tree, from NONE on; NONE: that was the last. */
uint32_t gc_place_tree_next_leaf(const struct gc_place_tree *tree, uint32_t top, uint32_t leaf);

#endif
