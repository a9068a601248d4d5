#include "core/planner/greedy.h"

#include "core/base/bits.h"
#include "core/base/region.h"
#include "core/planner/place.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

static uint64_t whole_words(uint32_t section_count)
{
    return 2 * (uint64_t)section_count / 64 + 1;
}

static void set_whole(struct gc_place_index *index, uint32_t node)
{
    index->is_whole[node / 64] |= UINT64_C(1) << node % 64;
}

static bool is_whole(const struct gc_place_index *index, uint32_t node)
{
    return (index->is_whole[node / 64] >> node % 64 & 1) != 0;
}

static bool index_init(struct gc_place_index *index, struct gc_region *region,
                       uint32_t section_count)
{
    *index = (struct gc_place_index){.region = region, .leaf_count = section_count};
    index->cover = gc_region_alloc(region, section_count * sizeof(struct gc_place_set));
    index->touch =
        gc_region_alloc(region, 2 * (uint64_t)section_count * sizeof(struct gc_place_set));
    index->is_whole = gc_region_alloc(region, whole_words(section_count) * sizeof(uint64_t));
    return index->cover != NULL && index->touch != NULL && index->is_whole != NULL;
}

/* Which nodes make up the items' lives. */
static void index_select(struct gc_place_index *index, const struct gc_place_component *component)
{
    index->leaf_count = component->section_count;
    memset(index->is_whole, 0, whole_words(index->leaf_count) * sizeof(uint64_t));
    for (uint32_t i = 0; i < component->count; i++) {
        uint32_t left = component->items[i].first + index->leaf_count;
        uint32_t right = component->items[i].last + index->leaf_count + 1;
        for (; left < right; left /= 2, right /= 2) {
            if ((left & 1) != 0)
                set_whole(index, left++);
            if ((right & 1) != 0)
                set_whole(index, --right);
        }
    }
}

static void index_clear(struct gc_place_index *index)
{
    const uint32_t section_count = index->leaf_count;
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

static void find_nodes(const struct gc_place_index *index, const struct gc_place_item *item,
                       struct nodes *nodes)
{
    uint32_t left = item->first + index->leaf_count;
    uint32_t right = item->last + index->leaf_count + 1;
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

/* What find_span looks at first is brought near. */
static void prefetch_search(const struct gc_place_set *set)
{
    if (set->count == 0)
        return;
    __builtin_prefetch(set->spans + set->count / 2);
    __builtin_prefetch(set->spans + set->count / 4);
    __builtin_prefetch(set->spans + set->count / 2 + set->count / 4);
}

/* A set, and a span of it: all before end at or below the offset in question. */
struct cursor {
    const struct gc_place_span *spans;
    uint32_t count;
    uint32_t at;
};

/* The first span from the cursor on that ends above `offset`: a galloping search (Bentley and Yao,
 * 1976), for the next is mostly near. */
static uint32_t find_onward(const struct cursor *cursor, uint64_t offset)
{
    uint32_t low = cursor->at;
    uint32_t high = low;
    for (uint32_t step = 1; high < cursor->count && end_of(&cursor->spans[high]) <= offset;
         step *= 2) {
        low = high + 1;
        high = cursor->count - high > step ? high + step : cursor->count;
    }
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (end_of(&cursor->spans[middle]) <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The lowest place from `offset` on in the cursor's set. */
static uint64_t find_gap(struct cursor *cursor, uint64_t offset, uint64_t bytes, uint64_t alignment)
{
    uint32_t i = find_onward(cursor, offset);
    for (; i < cursor->count && offset + bytes > begin_of(&cursor->spans[i]); i++)
        offset = gc_place_align(end_of(&cursor->spans[i]), alignment);
    cursor->at = i;
    return offset;
}

/* The sets are brought near: most of a pass is waiting for them. */
static void prefetch_sets(const struct gc_place_index *index, const struct nodes *nodes)
{
    for (unsigned i = 0; i < nodes->whole_count; i++) {
        __builtin_prefetch(&index->touch[nodes->whole[i]]);
        if (nodes->whole[i] < index->leaf_count)
            __builtin_prefetch(&index->cover[nodes->whole[i]]);
    }
    for (unsigned i = 0; i < nodes->above_count; i++) {
        __builtin_prefetch(&index->touch[nodes->above[i]]);
        __builtin_prefetch(&index->cover[nodes->above[i]]);
    }
}

/* Raises the offset to each set's next gap until it stays. */
static uint64_t index_find(const struct gc_place_index *index, const struct nodes *nodes,
                           uint64_t bytes, uint64_t alignment)
{
    struct cursor cursors[2 * NODES_MAX];
    unsigned count = 0;
    uint64_t offset = 0;
    for (unsigned i = 0; i < nodes->whole_count + nodes->above_count; i++) {
        const struct gc_place_set *set = i < nodes->whole_count
                                             ? &index->touch[nodes->whole[i]]
                                             : &index->cover[nodes->above[i - nodes->whole_count]];
        __builtin_prefetch(set->spans);
        cursors[count] = (struct cursor){set->spans, set->count, 0};
        count += set->count > 0;
    }
    for (unsigned i = 0, quiet = 0; quiet < count; i = i + 1 < count ? i + 1 : 0) {
        const uint64_t before = offset;
        offset = find_gap(&cursors[i], offset, bytes, alignment);
        quiet = offset == before ? quiet + 1 : 1;
    }
    return offset;
}

/* ---- adding ---- */

static uint64_t room_of(unsigned room_class)
{
    const unsigned up = room_class - 1;
    return room_class == 0 ? 1 : (UINT64_C(2) + up % 2) << up / 2;
}

/* A free list, linked through the first bytes of each free array. */
static struct gc_place_span *alloc_spans(struct gc_place_index *index, unsigned room_class)
{
    const uint64_t room = room_of(room_class);
    struct gc_place_span *spans = index->free[room_class];
    if (spans != NULL) {
        memcpy((void *)&index->free[room_class], (const void *)spans, sizeof(void *));
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
    const unsigned room_class = set->count == 0 ? 0 : set->room_class + 1;
    struct gc_place_span *spans =
        room_class < GC_PLACE_ROOM_CLASSES ? alloc_spans(index, room_class) : NULL;
    if (spans == NULL)
        return false;
    if (set->count > 0) {
        memcpy(spans, set->spans, set->count * sizeof(*spans));
        memcpy((void *)set->spans, (const void *)&index->free[set->room_class], sizeof(void *));
        index->free[set->room_class] = set->spans;
    }
    set->spans = spans;
    set->room_class = room_class;
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
        const bool is_full = set->count == 0 || set->count == room_of(set->room_class);
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

static bool index_add(struct gc_place_index *index, const struct nodes *nodes, uint64_t offset,
                      uint64_t bytes)
{
    struct gc_place_set *sets[3 * NODES_MAX];
    unsigned count = 0;
    for (unsigned i = 0; i < nodes->whole_count; i++) {
        sets[count++] = &index->touch[nodes->whole[i]];
        if (nodes->whole[i] < index->leaf_count)
            sets[count++] = &index->cover[nodes->whole[i]];
    }
    for (unsigned i = 0; i < nodes->above_count; i++)
        if (is_whole(index, nodes->above[i]))
            sets[count++] = &index->touch[nodes->above[i]];
    for (unsigned i = 0; i < count; i++)
        prefetch_search(sets[i]);
    for (unsigned i = 0; i < count; i++)
        if (!add_span(index, sets[i], offset, offset + bytes))
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
    if (greedy->component != component)
        index_select(&greedy->index, component);
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
        struct nodes nodes;
        find_nodes(&greedy->index, item, &nodes);
        if (!index_add(&greedy->index, &nodes, item->fixed, item->bytes))
            return false;
    }
    return true;
}

/* The nodes of the order's n-th item, if there is one, ahead of its turn. */
static void look_ahead(const struct gc_place_greedy *greedy, uint32_t n, struct nodes *nodes)
{
    if (n >= greedy->component->count)
        return;
    find_nodes(&greedy->index, &greedy->component->items[greedy->order[n]], nodes);
    prefetch_sets(&greedy->index, nodes);
}

enum gc_status gc_greedy_pass(struct gc_place_greedy *greedy, uint64_t limit, uint64_t *peak)
{
    const struct gc_place_component *component = greedy->component;
    struct gc_place_run *run = greedy->run;
    uint32_t placed = 0;
    struct nodes nodes[2]; /* of this item and the next, in turn */
    *peak = 0;
    index_clear(&greedy->index);
    if (!place_fixed(greedy, peak))
        return GC_NO_HOST_MEMORY;
    look_ahead(greedy, 0, &nodes[0]);
    for (; placed < component->count && *peak <= limit; placed++) {
        const struct nodes *own = &nodes[placed % 2];
        const uint32_t i = greedy->order[placed];
        const struct gc_place_item *item = &component->items[i];
        if (placed % LOOK_ITEMS == LOOK_ITEMS - 1 && !gc_place_run_poll(run))
            break;
        look_ahead(greedy, placed + 1, &nodes[(placed + 1) % 2]);
        if (item->fixed != GC_PLACEMENT_FREE)
            continue;
        const uint64_t offset = index_find(&greedy->index, own, item->bytes, item->alignment);
        if (offset + item->bytes > GC_PLACE_SPAN_MAX)
            break;
        greedy->offsets[i] = offset;
        *peak = gc_max_u64(*peak, gc_place_end(item, offset));
        if (!index_add(&greedy->index, own, offset, item->bytes))
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
