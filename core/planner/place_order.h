/* Orders in which items are placed or preferred: by three properties, one after the other. */
#ifndef GC_PLANNER_PLACE_ORDER_H
#define GC_PLANNER_PLACE_ORDER_H

#include "core/planner/place.h"

/* GC_PLACE_ORDER(name, first, second, third): none of them solves all, so many are tried, these
 * from the most to the least successful. */
#define GC_PLACE_ORDERS                                                                            \
    GC_PLACE_ORDER(CONTENTION_LENGTH, CONTENTION, LENGTH, AREA)                                    \
    GC_PLACE_ORDER(AREA, AREA, LENGTH, CONTENTION)                                                 \
    GC_PLACE_ORDER(LENGTH, LENGTH, BYTES, CONTENTION)                                              \
    GC_PLACE_ORDER(CONTENTION_AREA, CONTENTION, AREA, LENGTH)                                      \
    GC_PLACE_ORDER(LAST, LAST, AREA, CONTENTION)                                                   \
    GC_PLACE_ORDER(BYTES, BYTES, LENGTH, CONTENTION)                                               \
    GC_PLACE_ORDER(BYTES_LAST, BYTES, LAST, LENGTH)                                                \
    GC_PLACE_ORDER(FIRST, FIRST, AREA, CONTENTION)

enum gc_place_order {
#define GC_PLACE_ORDER(name, first, second, third) GC_PLACE_BY_##name,
    GC_PLACE_ORDERS
#undef GC_PLACE_ORDER
        GC_PLACE_ORDER_COUNT
};

/* Fills `order` with the part's items. */
void gc_place_order(const struct gc_place_part *part, struct gc_place_sorter *sorter,
                    enum gc_place_order by, uint32_t *order);
/* Its first property is the load, which changes as items are placed. */
bool gc_place_order_is_by_load(enum gc_place_order by);
/* As if the load were the same everywhere. */
void gc_place_order_ties(const struct gc_place_part *part, struct gc_place_sorter *sorter,
                         enum gc_place_order by, uint32_t *order);

#endif
