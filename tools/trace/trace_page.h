/* What the report's page shows of a trace, as JSON: for each device its levels over time, the
 * picture of its memory at its peak, call sites, sizes, lifetimes, leaks and failed requests. */
#ifndef GC_TRACE_PAGE_H
#define GC_TRACE_PAGE_H

#include "core/io/json.h"
#include "tools/trace/trace_walk.h"

/* Writes an object. GC_NO_HOST_MEMORY: what was written is no whole JSON then. */
enum gc_status trace_page_write(struct gc_trace_reader reader, struct gc_json *json) GC_CHECKED;

#endif
