/* The report's figures of devices, entry points, tenants, call sites and plans. Each figure is
 * declared once, with its JSON key, its place in the text and its Prometheus metric; those of plans
 * have a key only, their text and metrics are report_text.c's and report_prom.c's. The tool reads
 * a report back by the same tables, except for the values of GC_FIGURE_PART. */
#ifndef GC_REPORT_TABLES_H
#define GC_REPORT_TABLES_H

#include "core/io/emitter.h"
#include "core/report/report.h"
#include "core/report/snapshot.h"

extern const struct gc_figures gc_report_device_figures; /* of struct gc_device_snapshot */
extern const struct gc_figures gc_report_api_figures;    /* of struct gc_api_figures */
extern const struct gc_figures gc_report_tenant_figures; /* of struct gc_tenant_figures */
extern const struct gc_figures gc_report_site_figures;   /* of struct gc_stack_site: stacks.c */
extern const struct gc_figures gc_report_plan_figures;   /* of struct gc_follow_figures */
extern const struct gc_figures gc_report_reason_figures; /* of the same: why a plan was left */
extern const struct gc_figures gc_report_turn_figures;   /* of struct gc_ledger_turn */

/* The name of an entry point; "?" if there is none of this number. */
const char *gc_report_api_name(const struct gc_report *report, uint16_t api);

/* An object; null if no plan is followed. */
void gc_report_put_plan(struct gc_json *json, const struct gc_follow_figures *plan);

/* ---- call stacks ---- */

/* An array of a site's frames, innermost first; empty if the site is unknown. */
void gc_report_put_stack(struct gc_json *json, const struct gc_report *report, uint32_t site);
/* An array of the device's sites, the largest peak first. */
void gc_report_put_sites(struct gc_json *json, const struct gc_report *report, uint32_t device);
/* The text form: the innermost frames; the first sites. */
void gc_report_print_stack(struct gc_writer *out, const struct gc_report *report, uint32_t site);
void gc_report_print_sites(struct gc_writer *out, const struct gc_report *report, uint32_t device);

#endif
