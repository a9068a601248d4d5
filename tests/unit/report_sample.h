/* For tests: a report with something in every field. */
#ifndef GC_TEST_REPORT_SAMPLE_H
#define GC_TEST_REPORT_SAMPLE_H

#include "core/report/report.h"

/* Static storage, the same at each call. `program` may be NULL for a plain one. */
const struct gc_report *report_sample(const char *program);

#define REPORT_SAMPLE_API_COUNT 14
#define REPORT_SAMPLE_LEAK_COUNT 12 /* listed; the device has 1234 */
#define REPORT_SAMPLE_GROUP_COUNT 3

#endif
