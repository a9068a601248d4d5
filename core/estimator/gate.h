/* The gate at a program's start: an estimate made from the options, held against a budget once that
 * is known. Reading the model takes no lock and makes no driver call. */
#ifndef GC_GATE_H
#define GC_GATE_H

#include "core/estimator/estimate.h"
#include "core/log.h"
#include "core/options.h"
#include "core/report.h"

struct gc_gatekeeper;

enum gc_gate_verdict {
    GC_GATE_FITS,
    GC_GATE_EXCEEDS,
    GC_GATE_UNREADABLE, /* there is no estimate: the model could not be read */
};

/* Reads the model that the options name and estimates it; *keeper is NULL if they name none. What
 * is wrong with the model is said by gc_gatekeeper_judge. GC_NO_HOST_MEMORY. */
enum gc_status gc_gatekeeper_open(const struct gc_options *options,
                                  struct gc_gatekeeper **keeper) GC_CHECKED;

/* The first call decides and writes one line where it does not fit or cannot be read; later ones
 * have its answer. Thread-safe; waits for a decision under way, which makes no call of anyone
 * else's. */
enum gc_gate_verdict gc_gatekeeper_judge(struct gc_gatekeeper *keeper, uint64_t budget_bytes,
                                         const struct gc_log *log);

/* For the report; false if there is no estimate. Texts live as long as the keeper does, which is as
 * long as the process. */
bool gc_gatekeeper_tell(const struct gc_gatekeeper *keeper, struct gc_report_estimate *estimate);

#endif
