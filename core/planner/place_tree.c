#include "core/planner/place_tree_node.h"

#include <string.h>

#define NONE GC_PLACE_TREE_NONE

bool gc_place_tree_init(struct gc_place_tree *tree, struct gc_region *region, uint32_t leaf_count,
                        uint32_t node_room, uint64_t change_room)
{
    *tree = (struct gc_place_tree){
        .leaf_count = leaf_count, .node_room = node_room, .change_room = change_room};
    tree->nodes = gc_region_alloc(region, node_room * sizeof(*tree->nodes));
    tree->notes = gc_region_alloc(region, node_room * sizeof(*tree->notes));
    tree->queue = gc_region_alloc(region, node_room * sizeof(*tree->queue));
    tree->changes = gc_region_alloc(region, change_room * sizeof(*tree->changes));
    return tree->nodes != NULL && tree->notes != NULL && tree->queue != NULL &&
           tree->changes != NULL;
}

/* ---- nodes, each logged before it changes ---- */

static struct gc_place_tree_node *touch(struct gc_place_tree *tree, uint32_t node)
{
    struct gc_place_tree_node *touched = &tree->nodes[node];
    if (touched->stamp == tree->stamp)
        return touched;
    if (tree->change_count - tree->change_begin == tree->change_room) {
        const uint64_t half = tree->change_room / 2;
        memmove(tree->changes, tree->changes + half,
                (tree->change_room - half) * sizeof(*tree->changes));
        tree->change_begin += half;
    }
    tree->changes[tree->change_count++ - tree->change_begin] =
        (struct gc_place_tree_change){node, *touched};
    touched->stamp = tree->stamp;
    return touched;
}

uint32_t gc_place_tree_add(struct gc_place_tree *tree, enum gc_place_tree_kind kind)
{
    const uint32_t node = tree->node_count++;
    tree->nodes[node] = (struct gc_place_tree_node){.parent = NONE,
                                                    .first = NONE,
                                                    .last = NONE,
                                                    .previous = NONE,
                                                    .next = NONE,
                                                    .stamp = tree->stamp,
                                                    .kind = kind};
    tree->notes[node].round = 0;
    return node;
}

void gc_place_tree_unlink(struct gc_place_tree *tree, uint32_t node)
{
    struct gc_place_tree_node *self = touch(tree, node);
    struct gc_place_tree_node *parent = touch(tree, self->parent);
    if (self->previous != NONE)
        touch(tree, self->previous)->next = self->next;
    else
        parent->first = self->next;
    if (self->next != NONE)
        touch(tree, self->next)->previous = self->previous;
    else
        parent->last = self->previous;
    parent->count--;
    self->parent = NONE;
}

/* Puts a node that is nowhere under `above`, behind `previous`, or first where that is NONE. */
void gc_place_tree_link(struct gc_place_tree *tree, uint32_t above, uint32_t previous,
                        uint32_t node)
{
    struct gc_place_tree_node *self = touch(tree, node);
    struct gc_place_tree_node *parent = touch(tree, above);
    const uint32_t next = previous != NONE ? tree->nodes[previous].next : parent->first;
    self->parent = above;
    self->previous = previous;
    self->next = next;
    if (previous != NONE)
        touch(tree, previous)->next = node;
    else
        parent->first = node;
    if (next != NONE)
        touch(tree, next)->previous = node;
    else
        parent->last = node;
    parent->count++;
}

void gc_place_tree_append(struct gc_place_tree *tree, uint32_t above, uint32_t node)
{
    gc_place_tree_link(tree, above, tree->nodes[above].last, node);
}

/* Puts a node that is nowhere where another was. */
void gc_place_tree_swap(struct gc_place_tree *tree, uint32_t old, uint32_t node)
{
    const uint32_t parent = tree->nodes[old].parent;
    const uint32_t previous = tree->nodes[old].previous;
    if (parent == NONE) {
        tree->root = node;
        return;
    }
    gc_place_tree_unlink(tree, old);
    gc_place_tree_link(tree, parent, previous, node);
}

/* A node with one child gives its place to it. */
void gc_place_tree_dissolve_single(struct gc_place_tree *tree, uint32_t node)
{
    if (tree->nodes[node].count != 1)
        return;
    const uint32_t child = tree->nodes[node].first;
    gc_place_tree_unlink(tree, child);
    gc_place_tree_swap(tree, node, child);
}

void gc_place_tree_turn_round(struct gc_place_tree *tree, uint32_t node)
{
    struct gc_place_tree_node *self = touch(tree, node);
    for (uint32_t child = self->first; child != NONE;) {
        struct gc_place_tree_node *turned = touch(tree, child);
        const uint32_t next = turned->next;
        turned->next = turned->previous;
        turned->previous = next;
        child = next;
    }
    const uint32_t first = self->first;
    self->first = self->last;
    self->last = first;
}

/* The children of a Q node take its place among its siblings. */
void gc_place_tree_splice(struct gc_place_tree *tree, uint32_t node)
{
    const uint32_t above = tree->nodes[node].parent;
    uint32_t previous = tree->nodes[node].previous;
    gc_place_tree_unlink(tree, node);
    for (uint32_t child = tree->nodes[node].first; child != NONE;) {
        const uint32_t next = tree->nodes[child].next;
        gc_place_tree_link(tree, above, previous, child);
        previous = child;
        child = next;
    }
}

static uint32_t gather(struct gc_place_tree *tree, const uint32_t *leaves, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        struct gc_place_tree_node *leaf = touch(tree, leaves[n]);
        const uint32_t stamp = leaf->stamp;
        *leaf = (struct gc_place_tree_node){.parent = NONE,
                                            .first = NONE,
                                            .last = NONE,
                                            .previous = NONE,
                                            .next = NONE,
                                            .stamp = stamp,
                                            .kind = GC_PLACE_TREE_LEAF};
    }
    if (count == 1)
        return leaves[0];
    const uint32_t node = gc_place_tree_add(tree, GC_PLACE_TREE_P);
    for (uint32_t n = 0; n < count; n++)
        gc_place_tree_append(tree, node, leaves[n]);
    return node;
}

void gc_place_tree_begin(struct gc_place_tree *tree, const uint32_t *leaves, uint32_t count)
{
    memset(tree->nodes, 0, tree->leaf_count * sizeof(*tree->nodes));
    memset(tree->notes, 0, tree->node_room * sizeof(*tree->notes));
    tree->node_count = tree->leaf_count;
    tree->round = 0;
    tree->stamp = 1;
    tree->root = gather(tree, leaves, count);
    tree->change_begin = 0;
    tree->change_count = 0;
}

/* ---- going back ---- */

struct gc_place_tree_mark gc_place_tree_mark(struct gc_place_tree *tree)
{
    tree->stamp++;
    return (struct gc_place_tree_mark){tree->change_count, tree->node_count, tree->root};
}

bool gc_place_tree_undo(struct gc_place_tree *tree, struct gc_place_tree_mark mark)
{
    if (mark.change_count < tree->change_begin)
        return false;
    while (tree->change_count > mark.change_count) {
        const struct gc_place_tree_change *change =
            &tree->changes[--tree->change_count - tree->change_begin];
        tree->nodes[change->node] = change->before;
    }
    tree->node_count = mark.node_count;
    tree->root = mark.root;
    tree->stamp++;
    return true;
}

void gc_place_tree_replace(struct gc_place_tree *tree, const struct gc_place_tree_run *run,
                           const uint32_t *leaves, uint32_t count)
{
    const uint32_t above = tree->nodes[run->begin].parent;
    const uint32_t previous = tree->nodes[run->begin].previous;
    for (uint32_t at = run->begin; above != NONE && at != NONE;) {
        const uint32_t next = at == run->end ? NONE : tree->nodes[at].next;
        gc_place_tree_unlink(tree, at);
        at = next;
    }
    const uint32_t node = count > 0 ? gather(tree, leaves, count) : NONE;
    if (above == NONE) {
        tree->root = node;
        return;
    }
    if (node != NONE)
        gc_place_tree_link(tree, above, previous, node);
    gc_place_tree_dissolve_single(tree, above);
}

uint32_t gc_place_tree_next_leaf(const struct gc_place_tree *tree, uint32_t top, uint32_t leaf)
{
    const struct gc_place_tree_node *nodes = tree->nodes;
    uint32_t node = top;
    if (leaf != NONE) {
        for (node = leaf; node != top && nodes[node].next == NONE;)
            node = nodes[node].parent;
        if (node == top)
            return NONE;
        node = nodes[node].next;
    }
    while (nodes[node].first != NONE)
        node = nodes[node].first;
    return node;
}
