/* Orders in which items are placed or preferred, each by three properties, most significant first;
 * and the radix sort beneath: eight bits at a time from the lowest, linear, stable, the same on
 * every machine. Digits that all keys share are skipped. */
#ifndef GC_PLANNER_ORDER_H
#define GC_PLANNER_ORDER_H

#include "core/planner/place.h"

struct gc_place_sorter {
    uint64_t *keys; /* double buffers: each digit sorts from one into the other */
    uint64_t *other_keys;
    uint32_t *other_order;
};

bool gc_order_init(struct gc_place_sorter *sorter, struct gc_region *region, uint32_t count);
/* Sorts `order` by sorter->keys, its neighbours, from low to high; stable. The keys are sorted with
 * it. */
void gc_order_sort(struct gc_place_sorter *sorter, uint32_t *order, uint32_t count);

/* GC_PLACE_ORDER(name, first, second, third): no order solves every problem, so all are tried, the
 * most successful first. */
#define GC_PLACE_ORDERS                                                                            \
    GC_PLACE_ORDER(CONTENTION_LENGTH, CONTENTION, LENGTH, AREA)                                    \
    GC_PLACE_ORDER(AREA, AREA, LENGTH, CONTENTION)                                                 \
    GC_PLACE_ORDER(LENGTH, LENGTH, BYTES, CONTENTION)                                              \
    GC_PLACE_ORDER(CONTENTION_AREA, CONTENTION, AREA, LENGTH)                                      \
    GC_PLACE_ORDER(LAST, LAST, AREA, CONTENTION)                                                   \
    GC_PLACE_ORDER(BYTES, BYTES, LENGTH, CONTENTION)                                               \
    GC_PLACE_ORDER(BYTES_LAST, BYTES, LAST, LENGTH)                                                \
    GC_PLACE_ORDER(FIRST, FIRST, AREA, CONTENTION)

enum gc_order_build {
#define GC_PLACE_ORDER(name, first, second, third) GC_PLACE_BY_##name,
    GC_PLACE_ORDERS
#undef GC_PLACE_ORDER
        GC_PLACE_ORDER_COUNT
};

/* Fills `order` with the component's items. */
void gc_order_build(const struct gc_place_component *component, struct gc_place_sorter *sorter,
                    enum gc_order_build by, uint32_t *order);
/* Whether the order's first property is the load, which changes as items are placed. */
bool gc_order_is_by_load(enum gc_order_build by);
/* As gc_order_build, with equal loads everywhere. */
void gc_order_ties(const struct gc_place_component *component, struct gc_place_sorter *sorter,
                   enum gc_order_build by, uint32_t *order);

#endif
