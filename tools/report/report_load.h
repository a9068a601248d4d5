/* A JSON report, read back into the structures that it was written from. */
#ifndef GC_REPORT_LOAD_H
#define GC_REPORT_LOAD_H

#include "core/report/report.h"
#include "core/report/snapshot.h"
#include "tools/report/report_stacks.h"

struct report_loaded {
    struct gc_report report;
    /* targets of the pointers in `report` */
    struct gc_process process;
    struct gc_snapshot snapshot;
    struct gc_report_leaks *leaks;
    struct report_stacks stacks;
    struct gc_report_sites *sites;
    struct gc_report_spills *spills;
    struct gc_report_estimate estimate;
    struct gc_notes estimate_notes;
    const char **api_names;
    const char **warnings;
    struct gc_report_setting *settings;
    /* "one_bytes, other_count": keys that the library did not write yet; 0 here */
    char absent[512];
    char absent_note[768]; /* the last warning, if keys are absent */
    void *json;            /* owns the strings */
    void *api_numbers;
};

/* GC_FORMAT, with the error in `why`, if `text` is not a report of this schema with every key in
 * its type; GC_NO_HOST_MEMORY. Unknown keys are ignored. Keys newer than the schema's first version
 * may be missing: a warning of the report names them. */
enum gc_status report_load(const char *text, size_t bytes, struct report_loaded *loaded, char *why,
                           size_t why_bytes) GC_CHECKED;
void report_unload(struct report_loaded *loaded);

#endif
