/* Admission control at a program's start: an estimate from the options, compared with the budget
 * once that is known. Reading the model takes no lock and makes no driver call. */
#ifndef GC_ADMISSION_H
#define GC_ADMISSION_H

#include "core/base/status.h"
#include "core/report/model_module.h"

/* Reads the model that the options name and estimates it; *admission is NULL if they name no model.
 * gc_admission_decide reports a faulty model. GC_NO_HOST_MEMORY. */
enum gc_status gc_admission_open(const struct gc_options *options,
                                 struct gc_admission_state **admission) GC_CHECKED;

/* The number of devices that the options split the model over; gc_admission_decide needs their
 * budgets. */
uint32_t gc_admission_device_count(const struct gc_admission_state *admission);

/* The first call decides, and logs a model that does not fit or cannot be read, with suggestions;
 * later calls return its verdict. Each device's part must fit in that device's budget. Thread-safe;
 * waits for a decision in progress, which calls no foreign code. */
enum gc_admission_verdict gc_admission_decide(struct gc_admission_state *admission,
                                              const struct gc_admission_devices *devices,
                                              const struct gc_log *log);

/* For the report; false if there is no estimate. Texts live as long as the admission state: until
 * the process ends. */
bool gc_admission_describe(const struct gc_admission_state *admission,
                           struct gc_report_estimate *estimate);

#endif
