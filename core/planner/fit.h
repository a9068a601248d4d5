/* A first placement: online best fit with coalescing, as a plain allocator would serve the items in
 * order of time (Knuth, The Art of Computer Programming 1, 2.5). O(n log n), so every component has
 * a placement at once, whatever its size, and none that is returned is behind a plain allocator's.
 *
 * A fixed item is unknown to an allocator until it begins: free items lie above all of them. */
#ifndef GC_PLANNER_FIT_H
#define GC_PLANNER_FIT_H

#include "core/planner/place.h"

/* Sets the offsets and the peak of every component. Scratch memory is given back. */
enum gc_status gc_fit_components(struct gc_place_run *run) GC_CHECKED;

#endif
