#include "core/planner/greedy.h"

#include "core/base/bits.h"
#include "core/base/region.h"
#include "core/planner/place.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ROOM_LOG2_MIN 0
#define BLOCK_SPANS 4096U
#define NODES_MAX 128 /* two paths up a tree of 2^32 leaves, and their children */

/* Memory for spans; kept when the index is cleared. */
struct gc_place_block {
    struct gc_place_block *next;
    uint64_t room;
    uint64_t used;
    struct gc_place_span spans[];
};

/* The tree nodes of one item: `whole` make up its lifetime, `above` are their ancestors. */
struct nodes {
    uint32_t whole[NODES_MAX];
    uint32_t above[NODES_MAX];
    unsigned whole_count;
    unsigned above_count;
};

static bool index_init(struct gc_place_index *index, struct gc_region *region,
                       uint32_t section_count)
{
    *index = (struct gc_place_index){.region = region, .leaf_count = section_count};
    index->cover = gc_region_alloc(region, section_count * sizeof(struct gc_place_set));
    index->touch =
        gc_region_alloc(region, 2 * (uint64_t)section_count * sizeof(struct gc_place_set));
    return index->cover != NULL && index->touch != NULL;
}

static void index_clear(struct gc_place_index *index, uint32_t section_count)
{
    index->leaf_count = section_count;
    memset(index->cover, 0, section_count * sizeof(struct gc_place_set));
    memset(index->touch, 0, 2 * (uint64_t)section_count * sizeof(struct gc_place_set));
    memset(index->free, 0, sizeof(index->free));
    for (struct gc_place_block *block = index->blocks; block != NULL; block = block->next) {
        block->used = 0;
        if (block == index->block)
            break; /* those behind are empty */
    }
    index->block = index->blocks;
}

static void find_nodes(const struct gc_place_index *index, uint32_t first, uint32_t last,
                       struct nodes *nodes)
{
    uint32_t left = first + index->leaf_count;
    uint32_t right = last + index->leaf_count + 1;
    uint32_t low = 0; /* the lowest of the nodes at either end: all ancestors are theirs */
    uint32_t high = 0;
    nodes->whole_count = 0;
    nodes->above_count = 0;
    for (; left < right; left /= 2, right /= 2) {
        if ((left & 1) != 0) {
            low = low == 0 ? left : low;
            nodes->whole[nodes->whole_count++] = left++;
        }
        if ((right & 1) != 0) {
            nodes->whole[nodes->whole_count++] = --right;
            high = high == 0 ? right : high;
        }
    }
    for (low /= 2, high /= 2; low != high;) {
        uint32_t *deeper = low > high ? &low : &high;
        nodes->above[nodes->above_count++] = *deeper;
        *deeper /= 2;
    }
    for (; low > 0; low /= 2)
        nodes->above[nodes->above_count++] = low;
}

static uint64_t begin_of(const struct gc_place_span *span)
{
    return (uint64_t)span->begin_high << 32 | span->begin_low;
}

static uint64_t end_of(const struct gc_place_span *span)
{
    return (uint64_t)span->end_high << 32 | span->end_low;
}

static struct gc_place_span make_span(uint64_t begin, uint64_t end)
{
    return (struct gc_place_span){(uint32_t)begin, (uint32_t)end, (uint16_t)(begin >> 32),
                                  (uint16_t)(end >> 32)};
}

/* The first span that ends above `offset`. A branchless binary search: its steps are unpredictable.
 */
static uint32_t find_span(const struct gc_place_set *set, uint64_t offset)
{
    uint32_t first = 0;
    uint32_t left = set->count;
    while (left > 1) {
        const uint32_t half = left / 2;
        first += (uint32_t)(end_of(&set->spans[first + half - 1]) <= offset) * half;
        left -= half;
    }
    return first + (uint32_t)(left == 1 && end_of(&set->spans[first]) <= offset);
}

/* The lowest place from `offset` on in one set. */
static uint64_t find_gap(const struct gc_place_set *set, uint64_t offset, uint64_t bytes,
                         uint64_t alignment)
{
    for (uint32_t i = find_span(set, offset); i < set->count; i++) {
        if (offset + bytes <= begin_of(&set->spans[i]))
            break;
        offset = gc_place_align(end_of(&set->spans[i]), alignment);
    }
    return offset;
}

/* Raises the offset to each set's next gap until it stays. */
static uint64_t index_find(const struct gc_place_index *index, uint32_t first, uint32_t last,
                           uint64_t bytes, uint64_t alignment)
{
    struct nodes nodes;
    uint64_t offset = 0;
    uint64_t before;
    find_nodes(index, first, last, &nodes);
    do {
        before = offset;
        for (unsigned i = 0; i < nodes.whole_count; i++)
            offset = find_gap(&index->touch[nodes.whole[i]], offset, bytes, alignment);
        for (unsigned i = 0; i < nodes.above_count; i++)
            offset = find_gap(&index->cover[nodes.above[i]], offset, bytes, alignment);
    } while (offset != before);
    return offset;
}

/* ---- adding ---- */

/* A free list, linked through the first bytes of each free array. */
static struct gc_place_span *alloc_spans(struct gc_place_index *index, unsigned room_log2)
{
    const uint64_t room = UINT64_C(1) << room_log2;
    struct gc_place_span *spans = index->free[room_log2];
    if (spans != NULL) {
        memcpy((void *)&index->free[room_log2], (const void *)spans, sizeof(void *));
        return spans;
    }
    struct gc_place_block *block = index->block;
    while (block != NULL && block->room - block->used < room && block->next != NULL)
        block = block->next;
    if (block == NULL || block->room - block->used < room) {
        const uint64_t block_room = room > BLOCK_SPANS ? room : BLOCK_SPANS;
        struct gc_place_block *added =
            gc_region_alloc(index->region, sizeof(*added) + block_room * sizeof(added->spans[0]));
        if (added == NULL)
            return NULL;
        added->room = block_room;
        if (block == NULL)
            index->blocks = added;
        else
            block->next = added;
        block = added;
    }
    index->block = block;
    spans = block->spans + block->used;
    block->used += room;
    return spans;
}

static bool grow(struct gc_place_index *index, struct gc_place_set *set)
{
    const unsigned room_log2 = set->count == 0 ? ROOM_LOG2_MIN : set->room_log2 + 1;
    struct gc_place_span *spans =
        room_log2 < GC_PLACE_ROOM_LOG2_MAX ? alloc_spans(index, room_log2) : NULL;
    if (spans == NULL)
        return false;
    if (set->count > 0) {
        memcpy(spans, set->spans, set->count * sizeof(*spans));
        memcpy((void *)set->spans, (const void *)&index->free[set->room_log2], sizeof(void *));
        index->free[set->room_log2] = set->spans;
    }
    set->spans = spans;
    set->room_log2 = room_log2;
    return true;
}

/* Coalesces [begin, end) with the spans it overlaps or touches. */
static bool add_span(struct gc_place_index *index, struct gc_place_set *set, uint64_t begin,
                     uint64_t end)
{
    uint32_t from = begin == 0 ? 0 : find_span(set, begin - 1);
    uint32_t to = from;
    for (; to < set->count && begin_of(&set->spans[to]) <= end; to++) {
        begin = gc_min_u64(begin, begin_of(&set->spans[to]));
        end = gc_max_u64(end, end_of(&set->spans[to]));
    }
    if (to == from) {
        const bool is_full = set->count == 0 || set->count == 1U << set->room_log2;
        if (is_full && !grow(index, set))
            return false;
        memmove(set->spans + from + 1, set->spans + from,
                (set->count - from) * sizeof(set->spans[0]));
        set->count++;
    } else if (to > from + 1) {
        memmove(set->spans + from + 1, set->spans + to, (set->count - to) * sizeof(set->spans[0]));
        set->count -= to - from - 1;
    }
    set->spans[from] = make_span(begin, end);
    return true;
}

static bool index_add(struct gc_place_index *index, uint32_t first, uint32_t last, uint64_t offset,
                      uint64_t bytes)
{
    struct nodes nodes;
    find_nodes(index, first, last, &nodes);
    for (unsigned i = 0; i < nodes.whole_count; i++) {
        const uint32_t node = nodes.whole[i];
        const bool is_leaf = node >= index->leaf_count;
        if (!add_span(index, &index->touch[node], offset, offset + bytes) ||
            (!is_leaf && !add_span(index, &index->cover[node], offset, offset + bytes)))
            return false;
    }
    for (unsigned i = 0; i < nodes.above_count; i++)
        if (!add_span(index, &index->touch[nodes.above[i]], offset, offset + bytes))
            return false;
    return true;
}

#define LOOK_ITEMS 32U /* items between two polls of the clock */

enum gc_status gc_greedy_init(struct gc_place_greedy *greedy, struct gc_place_run *run)
{
    struct gc_region *region = run->region;
    uint32_t count = 0;
    uint32_t sections = 0;
    for (uint32_t p = 0; p < run->components.count; p++) {
        const struct gc_place_component *component = &run->components.components[p];
        count = component->count > count ? component->count : count;
        sections = component->section_count > sections ? component->section_count : sections;
    }
    *greedy = (struct gc_place_greedy){.run = run};
    greedy->order = gc_region_alloc(region, count * sizeof(*greedy->order));
    greedy->offsets = gc_region_alloc(region, count * sizeof(*greedy->offsets));
    if (greedy->order == NULL || greedy->offsets == NULL ||
        !gc_order_init(&greedy->sorter, region, count) ||
        !index_init(&greedy->index, region, sections))
        return GC_NO_HOST_MEMORY;
    return GC_OK;
}

void gc_greedy_select(struct gc_place_greedy *greedy, struct gc_place_component *component)
{
    greedy->component = component;
}

static bool place_fixed(struct gc_place_greedy *greedy, uint64_t *peak)
{
    const struct gc_place_component *component = greedy->component;
    for (uint32_t i = 0; i < component->count && component->fixed_count > 0; i++) {
        const struct gc_place_item *item = &component->items[i];
        if (item->fixed == GC_PLACEMENT_FREE)
            continue;
        if (item->fixed + item->bytes > GC_PLACE_SPAN_MAX) {
            *peak = UINT64_MAX;
            return true;
        }
        greedy->offsets[i] = item->fixed;
        *peak = gc_max_u64(*peak, gc_place_end(item, item->fixed));
        if (!index_add(&greedy->index, item->first, item->last, item->fixed, item->bytes))
            return false;
    }
    return true;
}

enum gc_status gc_greedy_pass(struct gc_place_greedy *greedy, uint64_t limit, uint64_t *peak)
{
    const struct gc_place_component *component = greedy->component;
    struct gc_place_run *run = greedy->run;
    uint32_t placed = 0;
    *peak = 0;
    index_clear(&greedy->index, component->section_count);
    if (!place_fixed(greedy, peak))
        return GC_NO_HOST_MEMORY;
    for (; placed < component->count && *peak <= limit; placed++) {
        const uint32_t i = greedy->order[placed];
        const struct gc_place_item *item = &component->items[i];
        if (placed % LOOK_ITEMS == LOOK_ITEMS - 1 && !gc_place_run_poll(run))
            break;
        if (item->fixed != GC_PLACEMENT_FREE)
            continue;
        const uint64_t offset =
            index_find(&greedy->index, item->first, item->last, item->bytes, item->alignment);
        if (offset + item->bytes > GC_PLACE_SPAN_MAX)
            break;
        greedy->offsets[i] = offset;
        *peak = gc_max_u64(*peak, gc_place_end(item, offset));
        if (!index_add(&greedy->index, item->first, item->last, offset, item->bytes))
            return GC_NO_HOST_MEMORY;
    }
    gc_place_run_step(run, placed);
    if (*peak > limit || placed < component->count)
        *peak = UINT64_MAX;
    return GC_OK;
}

bool gc_greedy_save(struct gc_place_greedy *greedy, uint64_t peak)
{
    struct gc_place_component *component = greedy->component;
    if (peak >= component->peak)
        return false;
    memcpy(component->offsets, greedy->offsets, component->count * sizeof(component->offsets[0]));
    component->peak = peak;
    return true;
}
