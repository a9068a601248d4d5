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

/* Sort keys: the smallest key is the largest item, the longest-lived, the one in the fullest
 * section. */
static uint64_t key_of(const struct gc_place_item *item, enum key key)
{
    uint64_t area;
    switch (key) {
    case BYTES:
        return ~item->bytes;
    case LENGTH:
        return ~item->length;
    case AREA:
        return gc_mul_u64(item->bytes, item->length, &area) ? ~area : 0;
    case CONTENTION:
        return ~item->contention;
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
        for (uint32_t i = 0; i < component->count; i++)
            sorter->keys[i] = key_of(&component->items[order[i]], keys[k]);
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
