/* The report's figures about this process beside those of core. */
#ifndef GC_EXIT_REPORT_H
#define GC_EXIT_REPORT_H

#include "core/io/process.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_exit_report {
    struct gc_process process;
    int64_t start_unix;   /* seconds */
    uint64_t start_ns;    /* of CLOCK_MONOTONIC */
    bool is_plan_refused; /* GPUCACHE_PLAN could not be read */
};

/* Writes the report to the place that GPUCACHE_REPORT names; a failure is logged. `report`: a const
 * struct gc_exit_report. For gc_deep_run, once core exists; not thread-safe. */
void gc_exit_report_write(void *report);

#endif
