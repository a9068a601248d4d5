/* The report's part about the estimate: for report_json.c and report_text.c. */
#ifndef GC_REPORT_ESTIMATE_H
#define GC_REPORT_ESTIMATE_H

#include "core/io/json.h"
#include "core/io/writer.h"
#include "core/report/report.h"

/* The keys "estimate" and "gate"; both null where none was made. */
void gc_report_estimate_json(struct gc_json *json, const struct gc_report *report);
/* Nothing where none was made. 80 columns. */
void gc_report_estimate_text(struct gc_out *out, const struct gc_report *report);

#endif
