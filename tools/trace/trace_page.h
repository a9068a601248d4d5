/* The data of a trace for the report's page, as JSON: for each device its levels over time, the
 * picture of its memory at its peak, call sites, sizes, lifetimes, leaks and failed requests. */
#ifndef GC_TRACE_PAGE_H
#define GC_TRACE_PAGE_H

#include "core/io/json.h"
#include "tools/trace/trace_walk.h"

/* Writes an object. After GC_NO_HOST_MEMORY the JSON is incomplete. */
enum gc_status trace_page_write(struct gc_trace_reader reader, struct gc_json *json) GC_CHECKED;

#endif
