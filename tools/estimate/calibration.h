/* An estimate beside what a run really took, and what follows: the overhead, and what a context
 * takes where the run could measure it.
 *
 * Kept as a file of KEY=value lines, GPUCACHE_OVERHEAD and GPUCACHE_CONTEXT_MEMORY: the library
 * reads it as its configuration (GPUCACHE_CONFIG), gpucache estimate by --calibration. */
#ifndef GC_CALIBRATION_H
#define GC_CALIBRATION_H

#include "core/estimator/estimate.h"
#include "core/io/json.h"
#include "tools/base/tool.h"

struct calibration {
    struct tool_file report; /* what was measured; no longer mapped */
    char program[256];
    char host[256];
    uint64_t estimated_bytes;     /* the peak, without what the context takes */
    uint64_t parts_bytes;         /* the same without overhead */
    uint64_t measured_bytes;      /* held from the driver at most, of all devices; no contexts */
    uint64_t context_bytes;       /* of the device whose contexts took most; 0: not measured */
    uint64_t overhead_millionths; /* measured over parts, above 1; 0 where less was needed */
};

/* From a JSON report of a run of this model. What speaks against it becomes a note of the estimate:
 * the run's own was another one, parts are lower bounds. TOOL_FAILED, with a line. */
int calibration_measure(const struct tool_command *command, const char *report_path,
                        struct gc_estimate *estimate, uint64_t context_bytes,
                        struct calibration *calibration) GC_CHECKED;
/* Where `path` is NULL nothing is written; the report is not written over. */
int calibration_store(const struct tool_command *command, const struct calibration *calibration,
                      const char *path) GC_CHECKED;
/* Both values; a context that is not in the file leaves *context_bytes as it is. */
int calibration_load(const struct tool_command *command, const char *path,
                     uint64_t *overhead_millionths, uint64_t *context_bytes) GC_CHECKED;

/* A member "calibration". */
void calibration_write_json(struct gc_json *json, const struct calibration *calibration);
void calibration_print_text(struct gc_writer *out, const struct calibration *calibration);

#endif
