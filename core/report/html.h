/* The HTML page of a report (core/report/page/): the parts before and after its data. The data is a
 * JSON object in which every "<" is escaped (core/io/json.h):
 *
 *   {"schema": "gpucache-page/1", "sides": [{"name", "report", "trace"}, …]}
 *
 * one side, or two to compare; "report" is a gpucache-report/1 or null, "trace" the
 * data that tools/trace/trace_page.c writes or null. */
#ifndef GC_HTML_H
#define GC_HTML_H

#include "core/io/json.h"

#define GC_HTML_SCHEMA "gpucache-page/1"

/* Writes the page up to the list of sides, and from the end of that list on. */
void gc_html_begin(struct gc_json *json, struct gc_writer *out);
void gc_html_end(struct gc_json *json);

#endif
