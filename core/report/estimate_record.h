/* The estimate of a model's memory for the report: sizes, notes, devices. The estimator fills the
 * record; the report writes it beside the measured figures. */
#ifndef GC_ESTIMATE_RECORD_H
#define GC_ESTIMATE_RECORD_H

#include "core/io/json.h"
#include "core/io/writer.h"
#include "core/report/estimate_parts.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_report;

#define GC_ESTIMATE_DEVICE_MAX 64

#define GC_NOTES_MAX 24
#define GC_NOTE_BYTES 192

/* Short remarks for people: facts of the model that are unknown, values that were assumed. */
struct gc_notes {
    uint32_t count; /* of texts */
    uint32_t lost;  /* remarks beyond GC_NOTES_MAX */
    char texts[GC_NOTES_MAX][GC_NOTE_BYTES];
};

/* One device's part of an estimate; the index is its ordinal. */
struct gc_report_estimate_device {
    uint64_t peak_bytes;
    uint64_t budget_bytes; /* UINT64_MAX: none */
};

/* The estimated need of the model of GPUCACHE_MODEL. */
struct gc_report_estimate {
    const char *model;
    uint64_t batch;
    uint64_t seq_len; /* 0: unknown */
    struct gc_estimate_sizes sizes;
    uint64_t context_bytes; /* part of the overhead: the contexts of all devices */
    uint32_t coverage_thousandths;
    uint64_t budget_bytes; /* of all devices; UINT64_MAX: none */
    bool fits;
    uint32_t device_count;
    struct gc_report_estimate_device devices[GC_ESTIMATE_DEVICE_MAX];
    const struct gc_notes *notes;
};

/* The keys "estimate" and "gate"; both null without an estimate. */
void gc_report_estimate_json(struct gc_json *json, const struct gc_report *report);
/* Writes nothing without an estimate. 80 columns. */
void gc_report_estimate_text(struct gc_writer *out, const struct gc_report *report);

#endif
