/* What a report says of this process beside core's figures. */
#ifndef GC_EXIT_REPORT_H
#define GC_EXIT_REPORT_H

#include "core/io/process.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_exit_report {
    struct gc_process process;
    uint64_t start_unix;  /* seconds */
    uint64_t start_ns;    /* of CLOCK_MONOTONIC */
    bool is_plan_refused; /* GPUCACHE_PLAN could not be read */
};

/* Writes the report where GPUCACHE_REPORT says; a failure is logged. `report`: a const struct
 * gc_exit_report. For gc_deep_run, once core is there; not thread-safe. */
void gc_exit_report_write(void *report);

#endif
