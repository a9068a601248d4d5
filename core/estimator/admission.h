/* The gate at a program's start: an estimate made from the options, held against a budget once that
 * is known. Reading the model takes no lock and makes no driver call. */
#ifndef GC_ADMISSION_H
#define GC_ADMISSION_H

#include "core/base/status.h"
#include "core/report/model_module.h"

/* Reads the model that the options name and estimates it; *keeper is NULL if they name none. What
 * is wrong with the model is said by gc_admission_decide. GC_NO_HOST_MEMORY. */
enum gc_status gc_admission_open(const struct gc_options *options,
                                 struct gc_admission_state **admission) GC_CHECKED;

/* How many devices the options split the model over: what gc_admission_decide wants to know of. */
uint32_t gc_admission_device_count(const struct gc_admission_state *admission);

/* The first call decides and says where it does not fit or cannot be read, and what would fit;
 * later ones have its answer. Each device's share must fit in that device's budget. Thread-safe;
 * waits for a decision under way, which makes no call of anyone else's. */
enum gc_admission_verdict gc_admission_decide(struct gc_admission_state *admission,
                                              const struct gc_admission_devices *devices,
                                              const struct gc_log *log);

/* For the report; false if there is no estimate. Texts live as long as the keeper does, which is as
 * long as the process. */
bool gc_admission_describe(const struct gc_admission_state *admission,
                           struct gc_report_estimate *estimate);

#endif
