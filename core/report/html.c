#include "core/report/html.h"

/* The two halves of the page, put together by scripts/rules.mk from core/page; each closed by NUL.
 */
__asm__(".section .rodata\n"
        "gc_html_head:\n"
        ".incbin \"page_head.html\"\n"
        ".byte 0\n"
        "gc_html_tail:\n"
        ".incbin \"page_tail.html\"\n"
        ".byte 0\n"
        ".previous\n");

extern const char __attribute__((visibility("hidden"))) gc_html_head[];
extern const char __attribute__((visibility("hidden"))) gc_html_tail[];

void gc_html_begin(struct gc_json *json, struct gc_out *out)
{
    gc_out_text(out, gc_html_head);
    gc_json_init(json, out);
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_put_string(json, "schema", GC_HTML_SCHEMA);
    gc_json_open_array(json, "sides", GC_JSON_LINES);
}

void gc_html_end(struct gc_json *json)
{
    gc_json_end_array(json);
    gc_json_end_object(json);
    gc_out_text(json->out, gc_html_tail);
}
