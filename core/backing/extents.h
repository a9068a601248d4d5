/* The extents that serve a block of mapped memory: chosen and charged under the pool's lock, before
 * the driver is called (map.h). */
#ifndef GC_EXTENTS_H
#define GC_EXTENTS_H

#include "core/backing/map.h"

/* No extent is chosen. */
void gc_extents_reset(struct gc_map_op *map_op);
/* Uses what the block, which is split off, can use as it is, and chooses extents for the rest.
 * `is_thrifty`: none is created while one is idle. On failure none is chosen, and the uses are the
 * caller's to undo: GC_OUT_OF_MEMORY; GC_NO_HOST_MEMORY, map_op->lacks_records: try again. */
enum gc_status gc_extents_plan_locked(struct gc_map_op *map_op, bool is_thrifty) GC_CHECKED;

#endif
