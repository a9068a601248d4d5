#include "core/planner/place_sweep_state.h"

#define NONE GC_PLACE_SWEEP_NONE
#define SIBLINGS_MAX 16U /* looked at for who ends together */
#define HOLES_MOVED_MAX 32U

bool gc_place_sweep_find_open(struct gc_place_sweep *sweep, uint32_t moment)
{
    const struct gc_place_brim *brim = &sweep->brim;
    sweep->open_end_count = 0;
    sweep->open_start_count = 0;
    for (uint32_t n = brim->end_begin[moment - 1]; n < brim->end_begin[moment]; n++)
        if (sweep->states[brim->ends[n]] == GC_PLACE_SWEEP_ALIVE)
            sweep->open_ends[sweep->open_end_count++] = brim->ends[n];
    for (uint32_t n = brim->start_begin[moment]; n < brim->start_begin[moment + 1]; n++)
        if (sweep->states[brim->starts[n]] == GC_PLACE_SWEEP_WAITING)
            sweep->open_starts[sweep->open_start_count++] = brim->starts[n];
    return sweep->open_end_count > 0;
}

static uint64_t bytes_below(const struct gc_place_sweep *sweep, uint32_t top)
{
    uint64_t bytes = 0;
    for (uint32_t leaf = gc_place_tree_next_leaf(&sweep->tree, top, NONE); leaf != NONE;
         leaf = gc_place_tree_next_leaf(&sweep->tree, top, leaf))
        bytes += sweep->brim.leaves[leaf].bytes;
    return bytes;
}

void gc_place_sweep_find_gaps(struct gc_place_sweep *sweep)
{
    struct gc_place_fill *fill = &sweep->fill;
    fill->gap_count =
        gc_place_tree_tops(&sweep->tree, sweep->open_ends, sweep->open_end_count, sweep->gaps);
    for (uint32_t n = 0; n < fill->gap_count; n++) {
        const uint32_t gap = sweep->gaps[n];
        const uint64_t bytes = bytes_below(sweep, gap);
        uint32_t at = n;
        for (; at > 0 && fill->gap_bytes[at - 1] < bytes; at--) {
            sweep->gaps[at] = sweep->gaps[at - 1];
            fill->gap_bytes[at] = fill->gap_bytes[at - 1];
        }
        sweep->gaps[at] = gap;
        fill->gap_bytes[at] = bytes;
    }
}

static bool ends_with(const struct gc_place_sweep *sweep, uint32_t node, uint32_t last)
{
    return node != NONE && sweep->tree.nodes[node].kind == GC_PLACE_TREE_LEAF &&
           sweep->brim.leaves[node].last == last;
}

/* Something lies beside the gap, or may, that ends with what could fill it. */
static bool has_partner(const struct gc_place_sweep *sweep, uint32_t gap, uint32_t last)
{
    const struct gc_place_tree_node *nodes = sweep->tree.nodes;
    const uint32_t parent = nodes[gap].parent;
    if (parent == NONE)
        return false;
    if (nodes[parent].kind == GC_PLACE_TREE_Q)
        return ends_with(sweep, nodes[gap].previous, last) ||
               ends_with(sweep, nodes[gap].next, last);
    uint32_t child = nodes[parent].first;
    for (unsigned n = 0; n < SIBLINGS_MAX && child != NONE; n++, child = nodes[child].next)
        if (ends_with(sweep, child, last))
            return true;
    return false;
}

void gc_place_sweep_find_ways(struct gc_place_sweep *sweep, struct gc_place_sweep_group *group)
{
    struct gc_place_fill *fill = &sweep->fill;
    fill->item_count = sweep->open_start_count;
    for (uint32_t n = 0; n < fill->item_count; n++) {
        const struct gc_place_brim_leaf *leaf = &sweep->brim.leaves[sweep->open_starts[n]];
        fill->item_bytes[n] = leaf->bytes;
        fill->item_ends[n] = leaf->last;
        fill->partners[n] = 0;
        for (uint32_t g = 0; g < fill->gap_count && g < GC_PLACE_FILL_MAX; g++)
            if (has_partner(sweep, sweep->gaps[g], leaf->last))
                fill->partners[n] |= UINT64_C(1) << g;
    }
    gc_place_fill_find(fill);
    group->way_begin = sweep->way_count;
    for (uint32_t n = 0; n < fill->way_count && sweep->way_count < sweep->way_room; n++)
        sweep->ways[sweep->way_count++] =
            (struct gc_place_sweep_way){fill->ways[n].gaps, fill->ways[n].items, NONE};
    group->way = group->way_begin;
    group->way_end = sweep->way_count;
    group->may_move_holes = sweep->brim.leaf_count > sweep->brim.item_count;
}

void gc_place_sweep_move_holes(struct gc_place_sweep *sweep, struct gc_place_sweep_group *group)
{
    const struct gc_place_brim *brim = &sweep->brim;
    unsigned added = 0;
    for (uint32_t h = brim->item_count; h < brim->leaf_count && added < HOLES_MOVED_MAX; h++) {
        if (sweep->states[h] != GC_PLACE_SWEEP_ALIVE || brim->leaves[h].last + 1 == group->moment ||
            sweep->way_count == sweep->way_room)
            continue;
        sweep->ways[sweep->way_count++] = (struct gc_place_sweep_way){UINT64_MAX, UINT64_MAX, h};
        added++;
    }
    group->way_end = sweep->way_count;
    group->may_move_holes = false;
}
