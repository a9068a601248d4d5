#include "core/report/html.h"

#include "page.h" /* page_head and page_tail, each closed by NUL: scripts/rules.mk */

void gc_html_begin(struct gc_json *json, struct gc_writer *out)
{
    gc_writer_text(out, (const char *)page_head);
    gc_json_init(json, out);
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_write_string(json, "schema", GC_HTML_SCHEMA);
    gc_json_open_array(json, "sides", GC_JSON_LINES);
}

void gc_html_end(struct gc_json *json)
{
    gc_json_end_array(json);
    gc_json_end_object(json);
    gc_writer_text(json->out, (const char *)page_tail);
}
