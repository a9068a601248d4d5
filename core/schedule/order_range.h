/* An order under search, and the search of a range of it by the sets of its units that have run.
 * Internal to the room. */
#ifndef GC_SCHEDULE_ORDER_RANGE_H
#define GC_SCHEDULE_ORDER_RANGE_H

#include "core/schedule/order_search.h"

struct gc_order_state {
    struct gc_region *region;
    const struct gc_order_model *model;
    const struct gc_order_limits *limits;
    uint32_t *order;
    uint64_t *costs; /* by position */
    struct gc_order_run run;
    uint64_t bound;
    uint64_t sets;
    uint64_t polls;
    bool is_stopped;
};

/* Whether the limits are reached; the search then stays stopped. */
bool gc_order_range_is_out(struct gc_order_state *state);

/* Back to where no unit has run. */
void gc_order_range_rewind(struct gc_order_state *state);

/* Runs the units of positions [from, to) and sets their costs. */
void gc_order_range_run(struct gc_order_state *state, uint32_t from, uint32_t to);

/* The highest cost of these positions. */
uint64_t gc_order_range_peak(const struct gc_order_state *state, uint32_t from, uint32_t to);

/* The lowest peak of the units of positions [from, to), the others as they are. Improves the order
 * if it finds a peak below the range's. *bound: no order of the range is lower. At the end the run
 * is behind the range. */
enum gc_status gc_order_range_search(struct gc_order_state *state, uint32_t from, uint32_t to,
                                     uint64_t set_max, uint64_t *bound) GC_CHECKED;

#endif
