/* The report: a snapshot and facts of the process, as text, JSON (schema gpucache-report/1), HTML
 * or Prometheus metrics.
 *
 * The library fills struct gc_report from its core, the tool from a JSON file; the same functions
 * write both. Nothing here calls libc's malloc or stdio, since a process may exit in any state:
 * output goes through a buffer on the stack to write(2). */
#ifndef GC_REPORT_H
#define GC_REPORT_H

#include "core/base/status.h"
#include "core/core.h"
#include "core/io/json.h"
#include "core/io/log.h"
#include "core/io/process.h"
#include "core/observe/spills.h"
#include "core/observe/stacks.h"
#include "core/report/estimate_record.h"
#include "core/report/snapshot.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_REPORT_SCHEMA "gpucache-report/1"
/* Leaks listed for one device; leak_count has the number of all. */
#define GC_REPORT_LEAK_MAX 1000

/* A variable that was set, by the environment or the configuration file. */
struct gc_report_setting {
    const char *name;
    const char *value;
};

/* Facts and settings of the process. All strings are borrowed; NULL is written as "". */
struct gc_report_facts {
    const struct gc_process *process;
    const char *version;
    const char *mode; /* "cache", "track", "off" */
    const char *backend;
    const char *reuse;
    uint64_t start_unix; /* seconds */
    uint64_t duration_ns;
    int driver_version; /* of cuDriverGetVersion: 13000 */
    const char *const *warnings;
    uint32_t warning_count;
    const struct gc_report_setting *settings;
    uint32_t setting_count;
    const struct gc_report_estimate *estimate; /* NULL: none */
};

struct gc_report_leaks {
    const struct gc_leak *leaks;        /* the largest first */
    const struct gc_leak_group *groups; /* those of the most bytes first */
    uint32_t count;                     /* of either at most GC_REPORT_LEAK_MAX */
    uint32_t group_count;
};

/* Blocks in host memory, by time. */
struct gc_report_spills {
    const struct gc_spilled *blocks;
    uint32_t count; /* at most GC_SPILLS_MAX */
};

/* Call sites listed for one device, those with the largest peaks. */
#define GC_REPORT_SITE_MAX 200

struct gc_report_sites {
    const struct gc_stack_site *sites;
    uint32_t count;
};

/* Call stacks of allocations; all 0: none recorded. */
struct gc_report_stacks {
    const void *source;
    /* As gc_stacks_frame. */
    bool (*frame)(const void *source, uint32_t site, uint32_t index,
                  char text[GC_STACK_TEXT_BYTES]);
    /* The index of the program's own frame; NULL: gc_report_find_own finds it. */
    uint32_t (*own)(const void *source, uint32_t site);
    const struct gc_report_sites *sites; /* one per device of the snapshot; NULL: none listed */
    uint64_t lost;                       /* allocations without a stack */
};

struct gc_report {
    struct gc_report_facts facts;
    const struct gc_snapshot *snapshot;
    const char *const *api_names;          /* snapshot->api_count of them */
    const struct gc_report_leaks *leaks;   /* one per device of the snapshot */
    const struct gc_report_spills *spills; /* as many; NULL: none listed */
    struct gc_report_stacks stacks;
};

/* The key of a kind of direct memory in "direct_bytes": "memory", "managed", … */
#define GC_REPORT_KEY_BYTES 16
const char *gc_report_direct_key(enum gc_direct_kind kind, char key[GC_REPORT_KEY_BYTES]);

/* The peak of reserved memory of all devices, and the contexts' part of that peak: 0 if the part
 * could not be measured; the peak then excludes it, too. Saturating. */
uint64_t gc_snapshot_measured_bytes(const struct gc_snapshot *snapshot);
uint64_t gc_snapshot_context_bytes(const struct gc_snapshot *snapshot);

/* The worst problem of the run. */
enum gc_verdict_kind {
#define GC_VERDICT(name, key, judge) GC_VERDICT_##name,
#include "core/report/verdicts.def"
#undef GC_VERDICT
    GC_VERDICT_KIND_COUNT
};
#define GC_VERDICT_BYTES 200

/* Writes the verdict as a sentence without a full stop: the worst problem with its figure, or "no
 * problem found". */
enum gc_verdict_kind gc_report_judge(const struct gc_report *report, char text[GC_VERDICT_BYTES]);

/* Calls `visit` with a sentence, without a full stop, for each figure that needs action, the most
 * urgent first; then with the warnings. The text is valid only during the call. */
typedef void gc_advice_visit(void *argument, const char *sentence);
void gc_report_advise(const struct gc_report *report, gc_advice_visit *visit, void *argument);

/* Write to an open descriptor. GC_IO if a write failed. */
enum gc_status gc_report_write_json(const struct gc_report *report, int fd) GC_CHECKED;
/* Writes the report as the value of a key that is written already. */
void gc_report_write_json_to(const struct gc_report *report, struct gc_json *json);
/* A self-contained page. */
enum gc_status gc_report_write_html(const struct gc_report *report, int fd) GC_CHECKED;
/* Prometheus' text format. */
enum gc_status gc_report_write_prom(const struct gc_report *report, int fd) GC_CHECKED;
enum gc_status gc_report_write_text(const struct gc_report *report, int fd) GC_CHECKED;

/* Writes the report at exit: takes the snapshot and the leaks from `core` and writes to
 * `destination` (the value of GPUCACHE_REPORT). A file appears whole or not at all: it is written
 * beside its path and renamed. A symbolic link as the last component is refused. A failure is
 * logged in one line and returns GC_IO. */
enum gc_status gc_report_emit(struct gc_core *core, const struct gc_report_facts *facts,
                              const char *const *api_names, const char *destination,
                              const struct gc_log *log) GC_CHECKED;

#endif
