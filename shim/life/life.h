/* The library's life as wrappers see it. */
#ifndef GC_LIFE_H
#define GC_LIFE_H

#include "shim/shim.h"

/* True if this call is ours to handle: started, not re-entered, not a forked child. Finds the real
 * driver either way, so that GC_CALL works after it. */
bool gc_life_ready(void);

/* The epochs of submitted work, NULL where nothing is followed: passing through, or a forked child.
 * Starts the library if need be. */
struct gc_submissions *gc_life_submissions(void);

/* Whether a program whose CUDA has just been initialised may go on: CUDA_SUCCESS, or the result
 * that cuInit returns instead. Does not return where admission ends the process. */
CUresult gc_admission_check(void);
/* Opens the model that the options name, by `module`; where that is missing, its reason is kept for
 * gc_admission_check. False without host memory. Called once, by the start. */
struct gc_module;
bool gc_admission_prepare(const struct gc_module *module);
/* The estimate, for the report; false if there is none. */
struct gc_report_estimate;
bool gc_admission_report(struct gc_report_estimate *estimate);

#endif
