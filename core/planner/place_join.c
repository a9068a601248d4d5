/* Joining leaves of a PQ-tree: bottom up, each node once all of its children that hold some of them
 * are done. The cases are those of Booth and Lueker: a node is full of what is joined, or partial,
 * a Q node with the full ones last, or, where all meet, leaves them in a row. */
#include "core/planner/place_tree_node.h"

#define NONE GC_PLACE_TREE_NONE

enum { EMPTY, FULL, PARTIAL };

static struct gc_place_tree_note *note_of(struct gc_place_tree *tree, uint32_t node)
{
    struct gc_place_tree_note *note = &tree->notes[node];
    if (note->round != tree->round)
        *note = (struct gc_place_tree_note){
            .round = tree->round, .label = EMPTY, .full = NONE, .chain = NONE};
    return note;
}

static uint32_t label_of(const struct gc_place_tree *tree, uint32_t node)
{
    return node != NONE && tree->notes[node].round == tree->round ? tree->notes[node].label : EMPTY;
}

/* The full children of a node as one, out of it; NONE if there are none. */
static uint32_t take_full(struct gc_place_tree *tree, uint32_t node)
{
    const struct gc_place_tree_note *note = &tree->notes[node];
    const uint32_t head = note->full;
    if (note->full_count == 0)
        return NONE;
    if (note->full_count == 1) {
        gc_place_tree_unlink(tree, head);
        return head;
    }
    const uint32_t all = gc_place_tree_add(tree, GC_PLACE_TREE_P);
    for (uint32_t child = head; child != NONE; child = tree->notes[child].chain) {
        gc_place_tree_unlink(tree, child);
        gc_place_tree_append(tree, all, child);
    }
    note_of(tree, all)->label = FULL;
    return all;
}

/* What becomes of a P node below the root of what is joined; the node that stands in its place. */
static uint32_t settle_p(struct gc_place_tree *tree, uint32_t node)
{
    const struct gc_place_tree_note *note = &tree->notes[node];
    if (note->full_count == tree->nodes[node].count) {
        tree->notes[node].label = FULL;
        return node;
    }
    if (note->partial_count > 1)
        return NONE;
    uint32_t partial = note->partials[0];
    const bool has_partial = note->partial_count == 1;
    const uint32_t full = take_full(tree, node);
    if (has_partial)
        gc_place_tree_unlink(tree, partial);
    else
        partial = gc_place_tree_add(tree, GC_PLACE_TREE_Q);
    gc_place_tree_swap(tree, node, partial);
    uint32_t rest = node;
    if (tree->nodes[node].count == 1) {
        rest = tree->nodes[node].first;
        gc_place_tree_unlink(tree, rest);
    }
    if (tree->nodes[node].count > 0 || rest != node)
        gc_place_tree_link(tree, partial, NONE, rest);
    if (full != NONE)
        gc_place_tree_append(tree, partial, full);
    struct gc_place_tree_note *settled = note_of(tree, partial);
    settled->label = PARTIAL;
    if (!has_partial)
        settled->begin = full;
    return partial;
}

static uint32_t settle_q(struct gc_place_tree *tree, uint32_t node)
{
    struct gc_place_tree_note *note = &tree->notes[node];
    if (note->full_count == tree->nodes[node].count) {
        note->label = FULL;
        return node;
    }
    if (note->partial_count > 1)
        return NONE;
    const uint32_t first = label_of(tree, tree->nodes[node].first);
    const uint32_t last = label_of(tree, tree->nodes[node].last);
    if (last != FULL && (first == FULL || last == EMPTY))
        gc_place_tree_turn_round(tree, node);
    uint32_t at = tree->nodes[node].last;
    uint32_t begin = NONE;
    uint32_t met = 0;
    for (; label_of(tree, at) == FULL; at = tree->nodes[at].previous) {
        begin = at;
        met++;
    }
    if (met != note->full_count)
        return NONE;
    if (note->partial_count == 1) {
        if (label_of(tree, at) != PARTIAL)
            return NONE;
        begin = tree->notes[at].begin;
        gc_place_tree_splice(tree, at);
    }
    note->begin = begin;
    note->label = PARTIAL;
    return node;
}

static bool join_at_p(struct gc_place_tree *tree, uint32_t node, struct gc_place_tree_run *run)
{
    const struct gc_place_tree_note *note = &tree->notes[node];
    const uint32_t partial_count = note->partial_count;
    const uint32_t one = note->partials[0];
    const uint32_t other = note->partials[1];
    if (note->full_count == tree->nodes[node].count) {
        *run = (struct gc_place_tree_run){node, node};
        return true;
    }
    if (partial_count > 2)
        return false;
    const uint32_t full = take_full(tree, node);
    if (partial_count == 0) {
        gc_place_tree_append(tree, node, full);
        *run = (struct gc_place_tree_run){full, full};
        return true;
    }
    if (full != NONE)
        gc_place_tree_append(tree, one, full);
    run->begin = tree->notes[one].begin;
    run->end = tree->nodes[one].last;
    if (partial_count == 2) {
        run->end = tree->notes[other].begin;
        gc_place_tree_turn_round(tree, other);
        gc_place_tree_unlink(tree, other);
        gc_place_tree_append(tree, one, other);
        gc_place_tree_splice(tree, other);
    }
    gc_place_tree_dissolve_single(tree, node);
    return true;
}

/* Two partial children and no full one: side by side? */
static bool find_pair(const struct gc_place_tree *tree, const struct gc_place_tree_note *note,
                      uint32_t *before, uint32_t *behind)
{
    const uint32_t one = note->partials[0];
    const uint32_t other = note->partials[1];
    const bool is_first = tree->nodes[one].next == other;
    *before = is_first ? one : other;
    *behind = is_first ? other : one;
    return is_first || tree->nodes[one].previous == other;
}

/* The full children in a row, and what is partial at its ends. */
static bool find_row(const struct gc_place_tree *tree, const struct gc_place_tree_note *note,
                     struct gc_place_tree_run *row, uint32_t *before, uint32_t *behind)
{
    const struct gc_place_tree_node *nodes = tree->nodes;
    uint32_t met = 1;
    *row = (struct gc_place_tree_run){note->full, note->full};
    for (; label_of(tree, nodes[row->begin].previous) == FULL; met++)
        row->begin = nodes[row->begin].previous;
    for (; label_of(tree, nodes[row->end].next) == FULL; met++)
        row->end = nodes[row->end].next;
    *before = nodes[row->begin].previous;
    *behind = nodes[row->end].next;
    if (label_of(tree, *before) != PARTIAL)
        *before = NONE;
    if (label_of(tree, *behind) != PARTIAL)
        *behind = NONE;
    return met == note->full_count &&
           (uint32_t)(*before != NONE) + (*behind != NONE) == note->partial_count;
}

static bool join_at_q(struct gc_place_tree *tree, uint32_t node, struct gc_place_tree_run *run)
{
    const struct gc_place_tree_note *note = &tree->notes[node];
    uint32_t before;
    uint32_t behind;
    if (note->full_count == tree->nodes[node].count) {
        *run = (struct gc_place_tree_run){node, node};
        return true;
    }
    if (note->partial_count > 2 ||
        !(note->full_count == 0 ? find_pair(tree, note, &before, &behind)
                                : find_row(tree, note, run, &before, &behind)))
        return false;
    if (before != NONE) {
        run->begin = tree->notes[before].begin;
        gc_place_tree_splice(tree, before);
    }
    if (behind != NONE) {
        run->end = tree->notes[behind].begin;
        gc_place_tree_turn_round(tree, behind);
        gc_place_tree_splice(tree, behind);
    }
    return true;
}

uint32_t gc_place_tree_tops(struct gc_place_tree *tree, const uint32_t *leaves, uint32_t count,
                            uint32_t *tops)
{
    uint32_t top_count = 0;
    tree->round++;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t node = leaves[n];
        note_of(tree, node)->label = FULL;
        while (tree->nodes[node].parent != NONE) {
            node = tree->nodes[node].parent;
            struct gc_place_tree_note *note = note_of(tree, node);
            if (++note->full_count < tree->nodes[node].count)
                break;
            note->label = FULL;
        }
    }
    for (uint32_t n = 0; n < count; n++) {
        uint32_t node = leaves[n];
        while (label_of(tree, tree->nodes[node].parent) == FULL)
            node = tree->nodes[node].parent;
        if (tree->notes[node].done++ == 0)
            tops[top_count++] = node;
    }
    return top_count;
}

/* Counts, from the leaves up to where their ways have met, the children each node has to wait for.
 * Some ways may go on a little beyond. Returns how many nodes are above the leaves. */
static uint32_t climb(struct gc_place_tree *tree, const uint32_t *leaves, uint32_t count)
{
    uint32_t head = 0;
    uint32_t tail = 0;
    bool at_root = false;
    for (uint32_t n = 0; n < count; n++) {
        note_of(tree, leaves[n]);
        tree->queue[tail++] = leaves[n];
    }
    while (tail - head > 1 || (at_root && tail > head)) {
        const uint32_t parent = tree->nodes[tree->queue[head++]].parent;
        if (parent == NONE) {
            at_root = true;
            continue;
        }
        const bool is_new = tree->notes[parent].round != tree->round;
        note_of(tree, parent)->touched++;
        if (is_new)
            tree->queue[tail++] = parent;
    }
    return tail - count;
}

/* Tells the parent; true: all it waited for is done. */
static bool hand_up(struct gc_place_tree *tree, uint32_t node, uint32_t leaves)
{
    const uint32_t above = tree->nodes[node].parent;
    struct gc_place_tree_note *parent = &tree->notes[above];
    if (label_of(tree, node) == FULL) {
        tree->notes[node].chain = parent->full;
        parent->full = node;
        parent->full_count++;
    } else {
        if (parent->partial_count < 2)
            parent->partials[parent->partial_count] = node;
        parent->partial_count++;
    }
    parent->leaves += leaves;
    parent->done++;
    return parent->done == parent->touched;
}

bool gc_place_tree_join(struct gc_place_tree *tree, const uint32_t *leaves, uint32_t count,
                        struct gc_place_tree_run *run)
{
    uint32_t head = 0;
    uint32_t tail = 0;
    tree->round++;
    /* Each node makes up to two of itself, and who comes in their place may need one. */
    if (2 * (uint64_t)climb(tree, leaves, count) + 1 > tree->node_room - tree->node_count)
        return false;
    for (uint32_t n = 0; n < count; n++) {
        tree->notes[leaves[n]].leaves = 1;
        tree->queue[tail++] = leaves[n];
    }
    while (head < tail) {
        uint32_t node = tree->queue[head++];
        const uint32_t below = tree->notes[node].leaves;
        const enum gc_place_tree_kind kind = tree->nodes[node].kind;
        if (below == count && kind == GC_PLACE_TREE_LEAF) {
            *run = (struct gc_place_tree_run){node, node};
            return true;
        }
        if (below == count)
            return kind == GC_PLACE_TREE_P ? join_at_p(tree, node, run)
                                           : join_at_q(tree, node, run);
        if (kind == GC_PLACE_TREE_LEAF)
            tree->notes[node].label = FULL;
        else
            node = kind == GC_PLACE_TREE_P ? settle_p(tree, node) : settle_q(tree, node);
        if (node == NONE)
            return false;
        if (hand_up(tree, node, below))
            tree->queue[tail++] = tree->nodes[node].parent;
    }
    return false;
}
