/* The report's part about tenants: for report_json.c, report_text.c and what reads a report back.
 */
#ifndef GC_REPORT_TENANT_H
#define GC_REPORT_TENANT_H

#include "core/io/json.h"
#include "core/io/writer.h"
#include "core/report/snapshot.h"

/* X(field): plain numbers of struct gc_tenant_figures, under their own names. */
#define GC_REPORT_TENANT_COUNTS(X)                                                                 \
    X(pending_bytes)                                                                               \
    X(idle_bytes)                                                                                  \
    X(alloc_count)                                                                                 \
    X(free_count)                                                                                  \
    X(hit_count)                                                                                   \
    X(miss_count)                                                                                  \
    X(oom_count)

/* The key "tenants" of a device. */
void gc_report_tenants_json(struct gc_json *json, const struct gc_device_snapshot *device);
/* A table; nothing where there are none. */
void gc_report_tenants_text(struct gc_out *out, const struct gc_device_snapshot *device);

#endif
