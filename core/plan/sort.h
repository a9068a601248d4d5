/* Keys in rising order, in place: heapsort, for which no order of keys is a bad one. */
#ifndef GC_PLANNER_RUN_SORT_H
#define GC_PLANNER_RUN_SORT_H

#include <stdint.h>

void gc_run_sort(uint64_t *keys, uint32_t count);

#endif
