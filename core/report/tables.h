/* The report's figures of devices, entry points, tenants, call sites and plans. Each figure is
 * declared once, with its JSON key, its place in the text and its Prometheus metric; those of plans
 * have a key only, their text and metrics are report_text.c's and report_prom.c's. The tool reads
 * a report back by the same tables, except for the values of GC_FIGURE_PART. */
#ifndef GC_REPORT_TABLES_H
#define GC_REPORT_TABLES_H

#include "core/io/emitter.h"
#include "core/report/report.h"
#include "core/report/snapshot.h"

struct gc_sentence; /* core/report/sentence.h */

extern const struct gc_figures gc_report_device_figures; /* of struct gc_device_snapshot */
extern const struct gc_figures gc_report_api_figures;    /* of struct gc_api_figures */
extern const struct gc_figures gc_report_tenant_figures; /* of struct gc_tenant_figures */
extern const struct gc_figures gc_report_site_figures;   /* of struct gc_stack_site: stacks.c */
extern const struct gc_figures gc_report_plan_figures;   /* of struct gc_follow_figures */
extern const struct gc_figures gc_report_reason_figures; /* of the same: why a plan was left */
extern const struct gc_figures gc_report_turn_figures;   /* of struct gc_ledger_turn */

/* The name of an entry point; "?" if there is none of this number. */
static inline const char *gc_report_api_name(const struct gc_report *report, uint16_t api)
{
    return api < report->snapshot->api_count ? report->api_names[api] : "?";
}

/* An object; null if no plan is followed. */
void gc_report_put_plan(struct gc_json *json, const struct gc_follow_figures *plan);

/* ---- call stacks ---- */

/* The index of the program's own frame in a stack: of the innermost frame of a Python file that is
 * not installed; without Python, of the innermost frame of the program itself or of an object that
 * is no installed library. Without such a frame, the innermost one outside the runtimes of CUDA, C
 * and Python. 0 without any. */
uint32_t gc_report_find_own(bool (*frame)(const void *source, uint32_t site, uint32_t index,
                                          char text[GC_STACK_TEXT_BYTES]),
                            const void *source, uint32_t site);
/* The frames of a site from the program's own on, which is number 0. False after the last frame, or
 * if the site has no stack. */
bool gc_report_outer_frame(const struct gc_report *report, uint32_t site, uint32_t index,
                           char text[GC_STACK_TEXT_BYTES]);
/* The own frame without folders: "step (train.py:12)", "step+0x1a (train)", "libtrain.so+0x345". */
bool gc_report_short_frame(const struct gc_report *report, uint32_t site,
                           char text[GC_STACK_TEXT_BYTES]);
/* Writes the key "frame": the own frame, or null. */
void gc_report_put_own(struct gc_json *json, const struct gc_report *report, uint32_t site);

/* An array of a site's frames, innermost first; empty if the site is unknown. */
void gc_report_put_stack(struct gc_json *json, const struct gc_report *report, uint32_t site);
/* An array of the device's sites, the largest peak first. */
void gc_report_put_sites(struct gc_json *json, const struct gc_report *report, uint32_t device);
/* The text form: the frames from the program's own on; the first sites. */
void gc_report_print_stack(struct gc_writer *out, const struct gc_report *report, uint32_t site);
void gc_report_print_sites(struct gc_writer *out, const struct gc_report *report, uint32_t device);

/* ---- leaks ---- */

extern const struct gc_figures gc_report_leak_figures; /* of struct gc_leak_group */

/* Joins groups whose entry points are equal and whose frames read the same from the program's own
 * frame on; returns the number of groups left, those of the most bytes first. */
uint32_t gc_report_join_leaks(const struct gc_report *report, struct gc_leak_group *groups,
                              uint32_t count);
void gc_report_put_leak_groups(struct gc_json *json, const struct gc_report *report,
                               uint32_t device);
void gc_report_print_leaks(struct gc_writer *out, const struct gc_report *report, uint32_t device);

/* ---- problems, shared by verdict and advice ---- */

/* Free memory that lies in pieces, worth a word; 0: none. */
uint64_t gc_report_fragmented_bytes(const struct gc_device_snapshot *device);
/* Allocations that did not follow the plan, if they are more than one in ten. */
uint64_t gc_report_unplanned_count(const struct gc_device_snapshot *device);
bool gc_report_waits_for_turns(const struct gc_report *report);
bool gc_report_frees_wait(const struct gc_report *report);
/* Adds the call site with the most leaked bytes, if its stack is known. */
void gc_report_add_leak_site(struct gc_sentence *sentence, const struct gc_report *report,
                             uint32_t device);

#endif
