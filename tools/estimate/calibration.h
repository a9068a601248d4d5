/* Compares an estimate with the measured run and derives the overhead and, if the run could measure
 * it, the memory of a context.
 *
 * The file has KEY=value lines, GPUCACHE_OVERHEAD and GPUCACHE_CONTEXT_MEMORY: the library reads it
 * as its configuration (GPUCACHE_CONFIG), gpucache estimate by --calibration. */
#ifndef GC_CALIBRATION_H
#define GC_CALIBRATION_H

#include "core/estimator/estimate.h"
#include "core/io/json.h"
#include "tools/base/tool.h"

struct calibration {
    struct tool_file report; /* the report; no longer mapped */
    char program[256];
    char host[256];
    uint64_t estimated_bytes;     /* the peak without the context */
    uint64_t parts_bytes;         /* the peak without context and overhead */
    uint64_t measured_bytes;      /* peak reserved from the driver, all devices, without contexts */
    uint64_t context_bytes;       /* largest over the devices; 0: not measured */
    uint64_t overhead_millionths; /* measured / parts - 1; 0 if the run used less */
};

/* Reads a JSON report of a run of this model. Reasons for doubt become notes of the estimate: the
 * run had another estimate, parts are lower bounds. TOOL_FAILED, with a line. */
int calibration_measure(const struct tool_command *command, const char *report_path,
                        struct gc_estimate *estimate, uint64_t context_bytes,
                        struct calibration *calibration) GC_CHECKED;
/* Writes the file; nothing if `path` is NULL. The report itself is never overwritten. */
int calibration_store(const struct tool_command *command, const struct calibration *calibration,
                      const char *path) GC_CHECKED;
/* Reads both values; without a context in the file *context_bytes is not changed. */
int calibration_load(const struct tool_command *command, const char *path,
                     uint64_t *overhead_millionths, uint64_t *context_bytes) GC_CHECKED;

/* Writes a member "calibration". */
void calibration_write_json(struct gc_json *json, const struct calibration *calibration);
void calibration_print_text(struct gc_writer *out, const struct calibration *calibration);

#endif
