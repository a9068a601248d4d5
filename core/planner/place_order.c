#include "core/planner/place_order.h"

#include "core/base/bits.h"

#include <stddef.h>

#define KEY_COUNT 3

enum key { BYTES, LENGTH, AREA, CONTENTION, FIRST, LAST };

static const enum key ORDERS[GC_PLACE_ORDER_COUNT][KEY_COUNT] = {
#define GC_PLACE_ORDER(name, first, second, third) {first, second, third},
    GC_PLACE_ORDERS
#undef GC_PLACE_ORDER
};

/* What is smallest comes first: the largest, the longest-lived, those of the fullest section. */
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

static void sort_by(const struct gc_place_part *part, struct gc_place_sorter *sorter,
                    const enum key *keys, unsigned key_count, uint32_t *order)
{
    for (uint32_t i = 0; i < part->count; i++)
        order[i] = i;
    for (unsigned k = key_count; k-- > 0;) {
        for (uint32_t i = 0; i < part->count; i++)
            sorter->keys[i] = key_of(&part->items[order[i]], keys[k]);
        gc_place_sort(sorter, order, part->count);
    }
}

void gc_place_order(const struct gc_place_part *part, struct gc_place_sorter *sorter,
                    enum gc_place_order by, uint32_t *order)
{
    sort_by(part, sorter, ORDERS[by], KEY_COUNT, order);
}

bool gc_place_order_is_by_load(enum gc_place_order by)
{
    return ORDERS[by][0] == CONTENTION;
}

void gc_place_order_ties(const struct gc_place_part *part, struct gc_place_sorter *sorter,
                         enum gc_place_order by, uint32_t *order)
{
    const unsigned skipped = gc_place_order_is_by_load(by);
    sort_by(part, sorter, ORDERS[by] + skipped, KEY_COUNT - skipped, order);
}
