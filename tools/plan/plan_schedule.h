/* --reorder and --recompute: another schedule of a graph, its check and its figures. */
#ifndef GC_TOOL_PLAN_SCHEDULE_H
#define GC_TOOL_PLAN_SCHEDULE_H

#include "core/schedule/schedule.h"
#include "tools/plan/plan.h"

struct plan_schedule {
    const struct gc_graph *given;
    struct gc_schedule made;
};

/* Whether the request asks for another schedule. */
bool plan_schedule_is_wanted(const struct plan_request *request);
/* Finds it, within half of the deadline; the subject counts the time. */
int plan_schedule_find(const struct plan_request *request, struct plan_subject *subject,
                       const struct gc_graph *graph, const struct gc_lifetimes_rules *rules,
                       struct plan_schedule *schedule) GC_CHECKED;
/* Checks it with the lifetimes that were found for its graph. */
int plan_schedule_check(const struct plan_request *request, struct plan_subject *subject,
                        const struct plan_schedule *schedule,
                        const struct gc_lifetimes *lifetimes) GC_CHECKED;
void plan_schedule_write_text(struct gc_writer *out, const struct plan_schedule *schedule);
void plan_schedule_write_json(struct gc_json *json, const struct plan_schedule *schedule);

#endif
