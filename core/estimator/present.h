/* An estimate for people and for programs. */
#ifndef GC_PRESENT_H
#define GC_PRESENT_H

#include "core/estimator/fit.h"
#include "core/io/json.h"
#include "core/io/writer.h"

struct gc_answer {
    const char *model; /* its path */
    const struct gc_estimate *estimate;
    const struct gc_fit *fit;                 /* NULL: there is no budget */
    const struct gc_estimate_budget *budget;  /* NULL with fit */
    const struct gc_suggestions *suggestions; /* NULL with fit */
};

/* One object; docs/estimate.md lists the keys. */
void gc_present_json(struct gc_json *json, const struct gc_answer *answer);
/* Only the object's members, into an open object. */
void gc_present_members(struct gc_json *json, const struct gc_answer *answer);
/* The members lower_bounds, the parts that may be more, and approximate, those of them that may be
 * less as well. */
void gc_present_lower_bounds(struct gc_json *json, const struct gc_estimate *estimate);
/* The model, the load and the program that the figures are for. */
void gc_present_title(struct gc_writer *out, const char *model, const struct gc_estimate *estimate);
/* The title, part by part, then the budget and suggestions, then the notes. 80 columns. */
void gc_present_text(struct gc_writer *out, const struct gc_answer *answer);
/* "-" without a budget; "?" where the known parts fit, which proves no fit. */
const char *gc_present_verdict(const struct gc_fit *fit);
/* For several estimates: a line each, under a head. */
void gc_present_head(struct gc_writer *out);
void gc_present_foot(struct gc_writer *out); /* if one of the lines is a lower bound */
void gc_present_line(struct gc_writer *out, const struct gc_answer *answer);

#endif
