/* Inside the report: stacks. */
#ifndef GC_REPORT_STACKS_H
#define GC_REPORT_STACKS_H

#include "core/io/json.h"
#include "core/report/report.h"

/* An array of a site's frames, innermost first; empty if it is not known. */
void gc_report_json_stack(struct gc_json *json, const struct gc_report *report, uint32_t site);
/* An array of the device's sites, most held at once first. */
void gc_report_json_sites(struct gc_json *json, const struct gc_report *report, uint32_t device);
/* The same for a person: the innermost frames; the first sites. */
void gc_report_text_stack(struct gc_out *out, const struct gc_report *report, uint32_t site);
void gc_report_text_sites(struct gc_out *out, const struct gc_report *report, uint32_t device);

#endif
