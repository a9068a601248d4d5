/* Inside report_text.c: lists of a device, and of the process. */
#ifndef GC_REPORT_LISTS_H
#define GC_REPORT_LISTS_H

#include "core/io/writer.h"
#include "core/report/report.h"
#include "core/report/snapshot.h"

/* A foreign text in at most so many columns; `to` has room for one byte more. NULL is "?". */
const char *gc_report_shown(const char *text, size_t columns, char *to);

void gc_report_text_apis(struct gc_out *out, const struct gc_report *report,
                         const struct gc_device_snapshot *device);
void gc_report_text_calls(struct gc_out *out, const struct gc_report *report,
                          const struct gc_device_snapshot *device);
/* Calls that cannot be told to be of a device. */
void gc_report_text_process_calls(struct gc_out *out, const struct gc_report *report);
void gc_report_text_direct(struct gc_out *out, const struct gc_device_snapshot *device);
/* `index`: of the device in the snapshot. */
void gc_report_text_leaks(struct gc_out *out, const struct gc_report *report, uint32_t index);

#endif
