#include "core/html.h"

/* The two halves of the page, put together by scripts/rules.mk from core/page. */
__asm__(".section .rodata\n"
        "gc_html_head:\n"
        ".incbin \"page_head.html\"\n"
        "gc_html_head_end:\n"
        "gc_html_tail:\n"
        ".incbin \"page_tail.html\"\n"
        "gc_html_tail_end:\n"
        ".previous\n");

#define IN_ASSEMBLY extern const char __attribute__((visibility("hidden")))

IN_ASSEMBLY gc_html_head[];
IN_ASSEMBLY gc_html_head_end[];
IN_ASSEMBLY gc_html_tail[];
IN_ASSEMBLY gc_html_tail_end[];

void gc_html_begin(struct gc_json *json, struct gc_out *out)
{
    gc_out_bytes(out, gc_html_head, (size_t)(gc_html_head_end - gc_html_head));
    gc_json_init(json, out);
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_put_string(json, "schema", GC_HTML_SCHEMA);
    gc_json_key(json, "sides");
    gc_json_begin_array(json, GC_JSON_LINES);
}

void gc_html_end(struct gc_json *json)
{
    gc_json_end_array(json);
    gc_json_end_object(json);
    gc_out_bytes(json->out, gc_html_tail, (size_t)(gc_html_tail_end - gc_html_tail));
}
