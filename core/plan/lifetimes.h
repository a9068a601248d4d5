/* Classes of lifetime, relative to the plan's fullest time point: entries alive then are
 * long-lived, all others short-lived. Long-lived blocks that are packed apart from short-lived ones
 * leave no gaps at that time. */
#ifndef GC_LIFETIMES_H
#define GC_LIFETIMES_H

#include "core/base/host_mem.h"
#include "core/plan/plan.h"

#include <stdbool.h>

/* Finds the first time at which the most bytes are alive. O(n log n). GC_NO_HOST_MEMORY. */
enum gc_status gc_lifetimes_find_peak(const struct gc_plan *plan, struct gc_host_mem *host,
                                      uint32_t *time) GC_CHECKED;

static inline bool gc_lifetimes_is_long(const struct gc_plan *plan,
                                        const struct gc_plan_entry *entry, uint32_t fullest)
{
    const bool is_wrapped = entry->upper > plan->end_time && plan->loop_time <= fullest &&
                            fullest - plan->loop_time < entry->upper - plan->end_time;
    return is_wrapped || (entry->lower <= fullest && fullest < entry->upper);
}

#endif
