/* Radix sort, eight bits at a time from the lowest: linear, stable, the same on every machine.
 * Digits that all keys share are skipped. */
#include "core/planner/order.h"

#include "core/base/bits.h"
#include "core/base/region.h"
#include "core/planner/place.h"

#include <stddef.h>
#include <string.h>

#define SMALL_COUNT 48U
#define DIGITS 256U

bool gc_order_init(struct gc_place_sorter *sorter, struct gc_region *region, uint32_t count)
{
    sorter->keys = gc_region_alloc(region, count * sizeof(uint64_t));
    sorter->other_keys = gc_region_alloc(region, count * sizeof(uint64_t));
    sorter->other_order = gc_region_alloc(region, count * sizeof(uint32_t));
    return sorter->keys != NULL && sorter->other_keys != NULL && sorter->other_order != NULL;
}

static void sort_small(uint64_t *keys, uint32_t *order, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const uint64_t key = keys[i];
        const uint32_t moving = order[i];
        uint32_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--) {
            keys[at] = keys[at - 1];
            order[at] = order[at - 1];
        }
        keys[at] = key;
        order[at] = moving;
    }
}

void gc_order_sort(struct gc_place_sorter *sorter, uint32_t *order, uint32_t count)
{
    uint64_t *from = sorter->keys;
    uint64_t *to = sorter->other_keys;
    uint32_t *from_order = order;
    uint32_t *to_order = sorter->other_order;
    if (count <= SMALL_COUNT) {
        sort_small(sorter->keys, order, count);
        return;
    }
    for (unsigned shift = 0; shift < 64; shift += 8) {
        uint32_t starts[DIGITS] = {0};
        uint32_t sum = 0;
        for (uint32_t i = 0; i < count; i++)
            starts[from[i] >> shift & (DIGITS - 1)]++;
        if (starts[from[0] >> shift & (DIGITS - 1)] == count)
            continue;
        for (unsigned d = 0; d < DIGITS; d++) {
            const uint32_t here = starts[d];
            starts[d] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t at = starts[from[i] >> shift & (DIGITS - 1)]++;
            to[at] = from[i];
            to_order[at] = from_order[i];
        }
        uint64_t *const keys = from;
        uint32_t *const swapped = from_order;
        from = to;
        to = keys;
        from_order = to_order;
        to_order = swapped;
    }
    if (from_order != order) {
        memcpy(order, from_order, count * sizeof(*order));
        memcpy(sorter->keys, from, count * sizeof(*from));
    }
}

#define KEY_COUNT 3

enum key { BYTES, LENGTH, AREA, CONTENTION, FIRST, LAST };

static const enum key ORDERS[GC_PLACE_ORDER_COUNT][KEY_COUNT] = {
#define GC_PLACE_ORDER(name, first, second, third) {first, second, third},
    GC_PLACE_ORDERS
#undef GC_PLACE_ORDER
};

static uint64_t load_of_node(const struct gc_place_component *component, const uint64_t *most,
                             uint64_t node)
{
    const uint32_t leaf_count = component->section_count;
    return node < leaf_count ? most[node] : component->loads[node - leaf_count];
}

/* Fills the inner nodes: the root is 1, node n has 2n and 2n + 1. */
static void gather_most(const struct gc_place_component *component, uint64_t *most)
{
    for (uint32_t node = component->section_count; node-- > 1;)
        most[node] = gc_max_u64(load_of_node(component, most, 2 * (uint64_t)node),
                                load_of_node(component, most, 2 * (uint64_t)node + 1));
}

static uint64_t length_of(const struct gc_place_component *component, uint32_t i)
{
    const struct gc_placement_buffer *buffer = &component->problem->buffers[component->buffers[i]];
    return buffer->upper - buffer->lower;
}

/* The load of the fullest section of an item's life, by a segment tree of maxima over the loads;
 * `most` has its inner nodes, one for each section. */
static uint64_t contention_of(const struct gc_place_component *component, const uint64_t *most,
                              const struct gc_place_item *item)
{
    const uint64_t leaf_count = component->section_count;
    uint64_t contention = 0;
    uint64_t left = item->first + leaf_count;
    uint64_t right = item->last + leaf_count + 1;
    for (; left < right; left /= 2, right /= 2) {
        if ((left & 1) != 0)
            contention = gc_max_u64(contention, load_of_node(component, most, left++));
        if ((right & 1) != 0)
            contention = gc_max_u64(contention, load_of_node(component, most, --right));
    }
    return contention;
}

/* Sort keys: the smallest key is the largest item, the longest-lived, the one in the fullest
 * section. */
static uint64_t key_of(const struct gc_place_component *component, const uint64_t *most, uint32_t i,
                       enum key key)
{
    const struct gc_place_item *item = &component->items[i];
    uint64_t area;
    switch (key) {
    case BYTES:
        return ~item->bytes;
    case LENGTH:
        return ~length_of(component, i);
    case AREA:
        return gc_mul_u64(item->bytes, length_of(component, i), &area) ? ~area : 0;
    case CONTENTION:
        return ~contention_of(component, most, item);
    case FIRST:
        return item->first;
    default:
        return ~(uint64_t)item->last;
    }
}

static void sort_by(const struct gc_place_component *component, struct gc_place_sorter *sorter,
                    const enum key *keys, unsigned key_count, uint32_t *order)
{
    for (uint32_t i = 0; i < component->count; i++)
        order[i] = i;
    for (unsigned k = key_count; k-- > 0;) {
        uint64_t *most = sorter->other_keys; /* a component has no more sections than items */
        if (keys[k] == CONTENTION)
            gather_most(component, most);
        for (uint32_t i = 0; i < component->count; i++)
            sorter->keys[i] = key_of(component, most, order[i], keys[k]);
        gc_order_sort(sorter, order, component->count);
    }
}

void gc_order_build(const struct gc_place_component *component, struct gc_place_sorter *sorter,
                    enum gc_order_build by, uint32_t *order)
{
    sort_by(component, sorter, ORDERS[by], KEY_COUNT, order);
}

bool gc_order_is_by_load(enum gc_order_build by)
{
    return ORDERS[by][0] == CONTENTION;
}

void gc_order_ties(const struct gc_place_component *component, struct gc_place_sorter *sorter,
                   enum gc_order_build by, uint32_t *order)
{
    const unsigned skipped = gc_order_is_by_load(by);
    sort_by(component, sorter, ORDERS[by] + skipped, KEY_COUNT - skipped, order);
}
