/* The heap is a list of blocks by address, as boundary tags make it: taken ones, and holes between
 * them. Holes are also nodes of a treap by size, then address (Seidel and Aragon, Algorithmica 16,
 * 1996). The heap ends where its last taken block does. */
#include "core/planner/fit.h"

#include "core/base/bits.h"
#include "core/planner/order.h"

#define NONE UINT32_MAX

struct block {
    uint64_t offset;
    uint64_t bytes;
    uint32_t below; /* its neighbours in the heap */
    uint32_t above;
    uint32_t smaller; /* of a hole: its children in the treap; of an unused block: the next one */
    uint32_t larger;
    bool is_hole;
};

struct heap {
    struct block *blocks;
    uint32_t used;   /* blocks that have been used */
    uint32_t unused; /* the first of those that are so no more */
    uint32_t root;   /* of the holes */
    uint32_t last;   /* the topmost taken block */
    uint64_t begin;
};

/* ---- holes ---- */

static bool is_before(const struct heap *heap, uint32_t a, uint32_t b)
{
    const struct block *first = &heap->blocks[a];
    const struct block *second = &heap->blocks[b];
    return first->bytes != second->bytes ? first->bytes < second->bytes
                                         : first->offset < second->offset;
}

static bool is_over(uint32_t a, uint32_t b)
{
    return gc_mix_u64(a) > gc_mix_u64(b);
}

static void add_hole(struct heap *heap, uint32_t hole)
{
    struct block *blocks = heap->blocks;
    uint32_t *link = &heap->root;
    while (*link != NONE && is_over(*link, hole))
        link = is_before(heap, hole, *link) ? &blocks[*link].smaller : &blocks[*link].larger;
    uint32_t rest = *link;
    uint32_t *smaller = &blocks[hole].smaller;
    uint32_t *larger = &blocks[hole].larger;
    *link = hole;
    while (rest != NONE) {
        uint32_t **side = is_before(heap, rest, hole) ? &smaller : &larger;
        **side = rest;
        *side = side == &smaller ? &blocks[rest].larger : &blocks[rest].smaller;
        rest = **side;
    }
    *smaller = NONE;
    *larger = NONE;
    blocks[hole].is_hole = true;
}

static void remove_hole(struct heap *heap, uint32_t hole)
{
    struct block *blocks = heap->blocks;
    uint32_t *link = &heap->root;
    while (*link != hole)
        link = is_before(heap, hole, *link) ? &blocks[*link].smaller : &blocks[*link].larger;
    uint32_t smaller = blocks[hole].smaller;
    uint32_t larger = blocks[hole].larger;
    while (smaller != NONE && larger != NONE) {
        if (is_over(smaller, larger)) {
            *link = smaller;
            link = &blocks[smaller].larger;
            smaller = *link;
        } else {
            *link = larger;
            link = &blocks[larger].smaller;
            larger = *link;
        }
    }
    *link = smaller != NONE ? smaller : larger;
    blocks[hole].is_hole = false;
}

/* The smallest hole of at least `bytes`, the lowest of several; or NONE. */
static uint32_t find_hole(const struct heap *heap, uint64_t bytes)
{
    uint32_t found = NONE;
    for (uint32_t at = heap->root; at != NONE;) {
        const bool is_enough = heap->blocks[at].bytes >= bytes;
        found = is_enough ? at : found;
        at = is_enough ? heap->blocks[at].smaller : heap->blocks[at].larger;
    }
    return found;
}

/* ---- the list ---- */

/* Adds a block above another one; NONE: at the bottom. */
static uint32_t add_block(struct heap *heap, uint32_t below, uint64_t offset, uint64_t bytes)
{
    const uint32_t added = heap->unused != NONE ? heap->unused : heap->used++;
    struct block *block = &heap->blocks[added];
    if (added == heap->unused)
        heap->unused = block->smaller;
    *block = (struct block){.offset = offset, .bytes = bytes, .below = below, .above = NONE};
    if (below != NONE) {
        block->above = heap->blocks[below].above;
        heap->blocks[below].above = added;
    }
    if (block->above != NONE)
        heap->blocks[block->above].below = added;
    if (below == heap->last)
        heap->last = added;
    return added;
}

static void drop_block(struct heap *heap, uint32_t dropped)
{
    struct block *block = &heap->blocks[dropped];
    if (block->below != NONE)
        heap->blocks[block->below].above = block->above;
    if (block->above != NONE)
        heap->blocks[block->above].below = block->below;
    if (dropped == heap->last)
        heap->last = block->below;
    block->smaller = heap->unused;
    heap->unused = dropped;
}

static uint32_t take(struct heap *heap, uint64_t bytes, uint64_t alignment, uint64_t granule)
{
    uint32_t taken = find_hole(heap, bytes);
    if (taken != NONE && gc_place_align(heap->blocks[taken].offset, alignment) + bytes >
                             heap->blocks[taken].offset + heap->blocks[taken].bytes)
        taken = find_hole(heap, bytes + alignment - granule);
    if (taken == NONE) {
        const uint32_t last = heap->last;
        const uint64_t end =
            last == NONE ? heap->begin : heap->blocks[last].offset + heap->blocks[last].bytes;
        taken = add_block(heap, last, end, gc_place_align(end, alignment) + bytes - end);
    } else {
        remove_hole(heap, taken);
    }
    const uint64_t begin = heap->blocks[taken].offset;
    const uint64_t end = begin + heap->blocks[taken].bytes;
    const uint64_t offset = gc_place_align(begin, alignment);
    heap->blocks[taken].bytes = offset + bytes - begin;
    if (offset + bytes < end)
        add_hole(heap, add_block(heap, taken, offset + bytes, end - offset - bytes));
    if (offset > begin) {
        const uint32_t hole = taken;
        taken = add_block(heap, hole, offset, bytes);
        heap->blocks[hole].bytes = offset - begin;
        add_hole(heap, hole);
    }
    return taken;
}

static void give(struct heap *heap, uint32_t given)
{
    struct block *block = &heap->blocks[given];
    const uint32_t neighbours[] = {block->below, block->above};
    for (unsigned side = 0; side < 2; side++) {
        const uint32_t other = neighbours[side];
        if (other == NONE || !heap->blocks[other].is_hole)
            continue;
        remove_hole(heap, other);
        block->offset = gc_min_u64(block->offset, heap->blocks[other].offset);
        block->bytes += heap->blocks[other].bytes;
        drop_block(heap, other);
    }
    if (given == heap->last)
        drop_block(heap, given);
    else
        add_hole(heap, given);
}

/* ---- the run ---- */

struct fit {
    struct gc_region scratch;
    struct gc_place_sorter sorter;
    uint32_t *by_start;
    uint32_t *by_end;
    uint32_t *block_of; /* items */
    struct heap heap;
    uint64_t room; /* blocks */
};

/* Blocks that can be in use at once: the items alive, and a hole below each. */
static uint64_t count_blocks(const struct fit *fit, const struct gc_place_component *component)
{
    const struct gc_place_item *items = component->items;
    uint32_t ended = 0;
    uint64_t most = 0;
    for (uint32_t n = 0; n < component->count; n++) {
        while (items[fit->by_end[ended]].last < items[fit->by_start[n]].first)
            ended++;
        most = gc_max_u64(most, n + UINT64_C(1) - ended);
    }
    return 2 * most + 1;
}

static bool init(struct fit *fit, const struct gc_place_components *components)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < components->count; p++)
        count = components->components[p].count > count ? components->components[p].count : count;
    const uint64_t bytes = count * sizeof(uint32_t);
    fit->by_start = gc_region_alloc(&fit->scratch, bytes);
    fit->by_end = gc_region_alloc(&fit->scratch, bytes);
    fit->block_of = gc_region_alloc(&fit->scratch, bytes);
    return fit->by_start != NULL && fit->by_end != NULL && fit->block_of != NULL &&
           gc_order_init(&fit->sorter, &fit->scratch, count);
}

/* The items by start and by end, and room for their blocks. */
static bool prepare(struct fit *fit, const struct gc_placement_problem *problem,
                    const struct gc_place_component *component)
{
    for (uint32_t i = 0; i < component->count; i++) {
        fit->by_start[i] = i;
        fit->sorter.keys[i] = problem->buffers[component->buffers[i]].lower;
    }
    gc_order_sort(&fit->sorter, fit->by_start, component->count);
    for (uint32_t i = 0; i < component->count; i++) {
        fit->by_end[i] = i;
        fit->sorter.keys[i] = component->items[i].last;
    }
    gc_order_sort(&fit->sorter, fit->by_end, component->count);
    const uint64_t room = count_blocks(fit, component);
    if (room > fit->room) {
        fit->heap.blocks = gc_region_alloc(&fit->scratch, room * sizeof(struct block));
        fit->room = room;
    }
    return fit->heap.blocks != NULL;
}

static void place_fixed(struct heap *heap, struct gc_place_component *component)
{
    *heap = (struct heap){.blocks = heap->blocks, .unused = NONE, .root = NONE, .last = NONE};
    component->peak = 0;
    for (uint32_t i = 0; i < component->count && component->fixed_count > 0; i++) {
        const struct gc_place_item *item = &component->items[i];
        if (item->fixed == GC_PLACEMENT_FREE)
            continue;
        component->offsets[i] = item->fixed;
        component->peak = gc_max_u64(component->peak, gc_place_end(item, item->fixed));
        heap->begin = gc_max_u64(heap->begin, item->fixed + item->bytes);
    }
}

static void place_free(struct fit *fit, struct gc_place_component *component)
{
    const struct gc_place_item *items = component->items;
    uint32_t ended = 0;
    for (uint32_t n = 0; n < component->count; n++) {
        const uint32_t i = fit->by_start[n];
        for (; items[fit->by_end[ended]].last < items[i].first; ended++)
            if (items[fit->by_end[ended]].fixed == GC_PLACEMENT_FREE)
                give(&fit->heap, fit->block_of[fit->by_end[ended]]);
        if (items[i].fixed != GC_PLACEMENT_FREE)
            continue;
        fit->block_of[i] = take(&fit->heap, items[i].bytes, items[i].alignment, component->granule);
        component->offsets[i] = fit->heap.blocks[fit->block_of[i]].offset;
        component->peak =
            gc_max_u64(component->peak, gc_place_end(&items[i], component->offsets[i]));
    }
}

enum gc_status gc_fit_components(struct gc_place_run *run)
{
    struct fit fit = {.room = 0};
    gc_region_init(&fit.scratch,
                   gc_sub_or_zero_u64(run->region->bytes_max, gc_region_bytes(run->region)));
    bool has_memory = init(&fit, &run->components);
    for (uint32_t p = 0; has_memory && p < run->components.count; p++) {
        struct gc_place_component *component = &run->components.components[p];
        has_memory = prepare(&fit, run->problem, component);
        if (!has_memory)
            break;
        place_fixed(&fit.heap, component);
        place_free(&fit, component);
    }
    gc_region_fini(&fit.scratch);
    return has_memory ? GC_OK : GC_NO_HOST_MEMORY;
}
