/* The layout of a device's memory at one moment: segments and the blocks in them, for drawing.
 * Small neighbouring blocks are merged, so that the number of blocks is bounded; a merged block has
 * the number of its parts. */
#ifndef GC_TRACE_PICTURE_H
#define GC_TRACE_PICTURE_H

#include "core/io/json.h"
#include "tools/trace/trace_walk.h"

#define TRACE_PICTURE_BLOCKS 8192
#define TRACE_PICTURE_SEGMENTS 2048

/* Writes the members of an object that was begun. GC_NO_HOST_MEMORY with nothing written. `site_of`
 * gives the number of the call site that an allocation is drawn for. */
typedef uint32_t trace_picture_site(void *argument, const struct trace_allocation *allocation);
enum gc_status trace_picture_write(const struct trace_state *state, unsigned device,
                                   trace_picture_site *site_of, void *argument,
                                   struct gc_json *json) GC_CHECKED;

#endif
