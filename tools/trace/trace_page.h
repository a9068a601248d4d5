/* The data of a trace for the report's page, as JSON: for each device its levels over time, the
 * picture of its memory at its peak, call sites, sizes, lifetimes, leaks and failed requests. */
#ifndef GC_TRACE_PAGE_H
#define GC_TRACE_PAGE_H

#include "core/io/json.h"
#include "tools/base/symbols.h"
#include "tools/trace/trace_walk.h"

/* Writes an object. `symbols`: names the frames by the programs' files; NULL: they stay as
 * recorded. After GC_NO_HOST_MEMORY the JSON is incomplete. */
enum gc_status trace_page_write(struct gc_trace_reader reader, struct symbols *symbols,
                                struct gc_json *json) GC_CHECKED;

#endif
