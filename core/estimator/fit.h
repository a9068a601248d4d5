/* Whether an estimate fits, its deficit, and suggestions that would fit. */
#ifndef GC_ESTIMATOR_FIT_H
#define GC_ESTIMATOR_FIT_H

#include "core/estimator/estimate.h"

#define GC_ESTIMATE_NO_BUDGET UINT64_MAX

struct gc_estimate_budget {
    uint64_t device_bytes[GC_ESTIMATE_DEVICE_MAX]; /* GC_ESTIMATE_NO_BUDGET: without limit */
};

void gc_fit_set_budget(struct gc_estimate_budget *budget, uint64_t bytes);

struct gc_fit {
    bool fits;
    bool lower_bound;       /* some parts are unknown: the model may need more */
    uint64_t budget_bytes;  /* of all devices; GC_ESTIMATE_NO_BUDGET if one has no limit */
    uint64_t usable_bytes;  /* of the budget, by the engine */
    uint64_t deficit_bytes; /* missing bytes, summed over devices */
    uint32_t device;        /* the device with the largest deficit */
    uint64_t device_deficit_bytes;
    enum gc_estimate_part largest; /* the largest part on that device */
};

/* Pure. Sums are saturated. */
void gc_fit_check(const struct gc_estimate *estimate, const struct gc_estimate_budget *budget,
                  struct gc_fit *fit);

enum gc_suggestion_kind {
    GC_SUGGESTION_COUNT,
    GC_SUGGESTION_FEWEST,
    GC_SUGGESTION_DTYPE,
    GC_SUGGESTION_MIX,
    GC_SUGGESTION_OPTIMISER,
    GC_SUGGESTION_FLAG,
};

/* The largest value that would fit, with everything else as requested; of devices the smallest. */
enum gc_suggestion_state {
    GC_SUGGESTION_NONE,         /* does not apply, or changes nothing */
    GC_SUGGESTION_NOTHING_FITS, /* no value fits */
    GC_SUGGESTION_SOME,         /* `value` fits and the next one does not */
    GC_SUGGESTION_ALL, /* every value fits, up to the limit of the model or of this program */
};

struct gc_suggestion {
    enum gc_suggestion_state state;
    uint64_t value; /* 0 if nothing fits */
};

struct gc_suggestions {
#define GC_SUGGESTION(field, ...) struct gc_suggestion field;
#include "core/estimator/suggestions.def"
#undef GC_SUGGESTION
};

/* Runs whole estimates, which are monotonic in each value; verifies that the value fits and the
 * next does not. An estimate that overflows does not fit. GC_INVALID_ARGUMENT as gc_estimator_run.
 */
enum gc_status gc_fit_suggest(const struct gc_estimator *estimator,
                              const struct gc_estimate_request *request,
                              const struct gc_estimate_budget *budget,
                              struct gc_suggestions *suggestions) GC_CHECKED;

#endif
