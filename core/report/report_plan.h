/* The report's part about a plan of the run that is followed. */
#ifndef GC_REPORT_PLAN_H
#define GC_REPORT_PLAN_H

#include "core/io/json.h"
#include "core/io/writer.h"
#include "core/report/snapshot.h"

/* The key "plan", null where there is none. */
void gc_report_plan_json(struct gc_json *json, const struct gc_follow_figures *plan);
/* Nothing where there is none. */
void gc_report_plan_text(struct gc_out *out, const struct gc_follow_figures *plan);

#endif
