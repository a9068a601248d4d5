/* Local search on the peak: first fit again and again, in an order that brings forward what ended
 * too high (Joslin and Clements, "Squeaky wheel optimization", JAIR 10, 1999). */
#ifndef GC_PLANNER_IMPROVE_H
#define GC_PLANNER_IMPROVE_H

#include "core/planner/greedy.h"

/* From greedy->order until the component is good enough, the run is to stop or `rounds` passes in a
 * row bring nothing. Not held back by what the component has already, which is replaced by better
 * alone. */
enum gc_status gc_place_improve(struct gc_place_greedy *greedy, unsigned rounds) GC_CHECKED;

#endif
