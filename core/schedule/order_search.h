/* An order of a model's units with a low peak: the minimum over all orders, where that can be
 * proven.
 *
 * Pebbling a graph with the fewest bytes is NP-hard (Sethi 1975). A unit that all others precede or
 * follow cuts the graph; the parts between cuts are independent (Ahn et al., "Ordering Chaos:
 * Memory-Aware Scheduling of Irregularly Wired Neural Networks" (SERENITY), MLSys 2020). In a part
 * the search is dynamic programming over the sets of units that have run, in the order of their
 * peaks so far: the shortest path with the maximum in the place of the sum, so the first complete
 * set has the lowest peak. A unit that needs no more than the peak so far and leaves no more bytes
 * than before runs at once: no order gains by its delay, for a later run of it frees no less. A
 * part with too many sets is improved by the same search in windows around its peak (large
 * neighbourhood search).
 *
 * Internal to the room. */
#ifndef GC_SCHEDULE_ORDER_SEARCH_H
#define GC_SCHEDULE_ORDER_SEARCH_H

#include "core/schedule/order_model.h"

typedef bool gc_order_watch(void *argument); /* false: time is up */

struct gc_order_limits {
    uint64_t set_max;      /* sets of all searches together; at least 1 */
    gc_order_watch *watch; /* polled every few thousand sets; NULL: never stopped */
    void *watch_argument;
};

struct gc_order_found {
    uint64_t peak_bytes;
    uint64_t bound_bytes; /* no order has a lower peak */
    uint64_t sets;        /* of units that were looked at */
};

/* order: a valid order of all units, which is improved in place. Memory from `region`.
 * GC_NO_HOST_MEMORY. */
enum gc_status gc_order_search(struct gc_region *region, const struct gc_order_model *model,
                               const struct gc_order_limits *limits, uint32_t *order,
                               struct gc_order_found *found) GC_CHECKED;

#endif
