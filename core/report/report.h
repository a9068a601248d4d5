/* The report: a snapshot and what is known of the process, as text or as JSON (schema
 * gpucache-report/1).
 *
 * The library fills struct gc_report from its core, the tool from a JSON file; both are written by
 * the same two functions. Nothing here calls libc's malloc or stdio: the process may be at its end
 * in any state. Written with write(2) through a buffer on the stack. */
#ifndef GC_REPORT_H
#define GC_REPORT_H

#include "core/base/status.h"
#include "core/core.h"
#include "core/io/json.h"
#include "core/io/log.h"
#include "core/io/process.h"
#include "core/observe/stacks.h"
#include "core/report/estimate_record.h"
#include "core/report/snapshot.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_REPORT_SCHEMA "gpucache-report/1"
#define GC_REPORT_LEAK_MAX                                                                         \
    1000 /* leaks listed for one device; leak_count says how many there are */

/* A variable that was set, by the environment or the configuration file. */
struct gc_report_setting {
    const char *name;
    const char *value;
};

/* What the process is and was told. All strings are borrowed; NULL is written as "". */
struct gc_report_facts {
    const struct gc_process *process;
    const char *version;
    const char *mode; /* "cache", "track", "off" */
    const char *backend;
    const char *reuse;
    uint64_t start_unix; /* seconds */
    uint64_t duration_ns;
    int driver_version; /* as cuDriverGetVersion says: 13000 */
    const char *const *warnings;
    uint32_t warning_count;
    const struct gc_report_setting *settings;
    uint32_t setting_count;
    const struct gc_report_estimate *estimate; /* NULL: none was made */
};

struct gc_report_leaks {
    const struct gc_leak *leaks;
    uint32_t count; /* at most GC_REPORT_LEAK_MAX */
};

#define GC_REPORT_SITE_MAX 200 /* listed for one device, those with most at once */

struct gc_report_sites {
    const struct gc_stack_site *sites;
    uint32_t count;
};

/* Where allocations came from; zero bytes: nobody took note. */
struct gc_report_stacks {
    const void *source;
    /* As gc_stacks_frame. */
    bool (*frame)(const void *source, uint32_t site, uint32_t index,
                  char text[GC_STACK_TEXT_BYTES]);
    const struct gc_report_sites *sites; /* one per device of the snapshot; NULL: none listed */
    uint64_t lost;                       /* allocations that have no stack */
};

struct gc_report {
    struct gc_report_facts facts;
    const struct gc_snapshot *snapshot;
    const char *const *api_names;        /* snapshot->api_count of them */
    const struct gc_report_leaks *leaks; /* one per device of the snapshot */
    struct gc_report_stacks stacks;
};

/* The key of a kind of direct memory in "direct_bytes": "memory", "managed", … */
#define GC_REPORT_KEY_BYTES 16
const char *gc_report_direct_key(enum gc_direct_kind kind, char key[GC_REPORT_KEY_BYTES]);

/* The most that was held from the driver, of all devices, and what of it was of contexts: 0 where
 * that could not be measured, and then it is not in the first either. Saturating. */
uint64_t gc_report_measured_bytes(const struct gc_snapshot *snapshot);
uint64_t gc_report_context_bytes(const struct gc_snapshot *snapshot);

/* Calls `visit` with a sentence, without a full stop, for each figure that asks for something to be
 * done, the most urgent first; then with the warnings. The text is gone after the call. */
typedef void gc_advice_visit(void *argument, const char *sentence);
void gc_report_advise(const struct gc_report *report, gc_advice_visit *visit, void *argument);

/* Write to an open descriptor. GC_IO if a write failed. */
enum gc_status gc_report_write_json(const struct gc_report *report, int fd) GC_CHECKED;
/* The same as the value of a key that was written. */
void gc_report_write_json_to(const struct gc_report *report, struct gc_json *json);
/* A page that stands alone: what it needs is in it. */
enum gc_status gc_report_write_html(const struct gc_report *report, int fd) GC_CHECKED;
/* Prometheus' text format. */
enum gc_status gc_report_write_prom(const struct gc_report *report, int fd) GC_CHECKED;
enum gc_status gc_report_write_text(const struct gc_report *report, int fd) GC_CHECKED;

/* All that is due at exit: takes the snapshot and the leaks from `core` and writes the report to
 * where `destination` (the value of GPUCACHE_REPORT) says. A file appears whole or not at all: it
 * is written beside its place and renamed; a symbolic link at the last component is refused. A
 * failure gives one line in the log and GC_IO. */
enum gc_status gc_report_emit(struct gc_core *core, const struct gc_report_facts *facts,
                              const char *const *api_names, const char *destination,
                              const struct gc_log *log) GC_CHECKED;

#endif
