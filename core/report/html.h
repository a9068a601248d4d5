/* The page that reports are shown in (core/report/page/): what stands before the data and what
 * behind. The data is a JSON object, in which no "<" is left unescaped (core/io/json.h):
 *
 *   {"schema": "gpucache-page/1", "sides": [{"name", "report", "trace"}, …]}
 *
 * one side, or two to compare; "report" is a gpucache-report/1 or null, "trace" what
 * tools/trace/trace_page.c makes of a trace or null. */
#ifndef GC_HTML_H
#define GC_HTML_H

#include "core/io/json.h"

#define GC_HTML_SCHEMA "gpucache-page/1"

/* Up to the list of sides, which is open then; and from its end on. */
void gc_html_begin(struct gc_json *json, struct gc_writer *out);
void gc_html_end(struct gc_json *json);

#endif
