/* Local search on the peak: first fit again and again, each time moving forward the items that
 * ended too high (Joslin and Clements, "Squeaky wheel optimization", JAIR 10, 1999). */
#ifndef GC_PLANNER_IMPROVE_H
#define GC_PLANNER_IMPROVE_H

#include "core/planner/greedy.h"

/* Starts from greedy->order; ends when the component is good enough, the run stops, or `rounds`
 * passes in a row bring no gain. The component's placement is replaced only by a better one. */
enum gc_status gc_improve(struct gc_place_greedy *greedy, unsigned rounds) GC_CHECKED;

#endif
