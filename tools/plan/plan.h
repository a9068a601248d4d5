/* gpucache plan, internal: the request, the subject and the result.
 *
 * A source reads one kind of file into a subject: buffers with lifetimes, their names, and remarks.
 * Solving, checking and output are common to all sources. A subject owns its memory: its region is
 * freed as a whole. */
#ifndef GC_TOOL_PLAN_H
#define GC_TOOL_PLAN_H

#include "core/arch/notes.h"
#include "core/config/options.h"
#include "core/io/json.h"
#include "core/plan/placement.h"
#include "core/plan/plan.h"
#include "core/schedule/run_place.h"
#include "tools/base/tool.h"
#include "tools/plan/plan_threads.h"

/* Lifetimes of the buffers of a role: the whole run, from creation to last use, or not planned. */
enum plan_keep { PLAN_KEEP, PLAN_USE, PLAN_LEAVE };

struct plan_request {
    const struct tool_command *command; /* command named in messages */
    const char *path;
    const char *output; /* NULL: none; "-": standard output */
    const char *svg;    /* like output */
    uint64_t capacity_bytes;
    uint64_t alignment;   /* 0: the source's default */
    uint64_t deadline_ns; /* from begin_ns on, when the command began */
    uint64_t begin_ns;
    uint64_t seed;
    uint64_t node_max;
    unsigned threads;
    bool json;
    /* Options of graphs. */
    const char *graph_option; /* one that is present; NULL: none */
    bool strict;
    bool no_in_place;
    bool reorder;
    uint64_t recompute_ppm; /* extra work in millionths; 0: no node is repeated */
    uint64_t batch;
    uint64_t seq_len; /* 0: default */
    enum plan_keep weights;
    enum plan_keep inputs;
    enum plan_keep outputs;
    char dims[GC_OPTION_LIST_BYTES]; /* "name=N,…" */
};

/* Labels of a buffer. */
struct plan_label {
    const char *name; /* name in the file; untrusted, NUL-terminated */
    const char *kind; /* purpose or producer; NULL: not in the file */
};

/* A colour of the picture and its line in the legend. */
struct plan_group {
    const char *name;
    uint64_t bytes; /* sum of its buffers, without reuse */
    uint32_t count;
};

#define PLAN_GROUP_MAX 4

struct plan_source;

struct plan_subject {
    const struct plan_source *source;
    struct gc_region region;
    /* Buffers that live all the time come first, at fixed offsets below base_bytes. The rest is
     * solved, above them. */
    struct gc_placement_buffer *buffers;
    struct plan_label *labels; /* one for each buffer */
    uint8_t *groups;           /* group of each buffer; NULL: all are in group 0 */
    uint32_t count;
    uint32_t base_count;
    uint64_t base_bytes;
    struct plan_group group[PLAN_GROUP_MAX];
    uint32_t group_count;
    uint64_t total_bytes;          /* one after the other, without reuse */
    uint32_t coverage_thousandths; /* fraction of the memory users with a known size */
    const char *time_unit;         /* unit of lower and upper: "steps" */
    uint64_t spent_ns;             /* of the deadline, before the placement */
    struct gc_notes notes;
    void *own; /* private to the source */
};

struct plan_result {
    uint64_t *offsets; /* as many as buffers, in the subject's region */
    uint64_t lower_bound_bytes;
    uint64_t peak_bytes;
    uint64_t nodes;
    uint64_t solve_ns;
    bool optimal;
    bool fits;
};

/* One kind of file. `read` and `write` print a line on errors and return a tool_status. */
struct plan_source {
    const char *what; /* "a placement problem" */
    bool (*accepts)(const struct tool_file *file);
    /* The region is initialised and empty. */
    int (*read)(const struct plan_request *request, const struct tool_file *file,
                struct plan_subject *subject);
    /* Writes --output, if the path does not end in .json; NULL: the problem's CSV with offsets. */
    int (*write)(const struct plan_request *request, const struct plan_subject *subject,
                 const struct plan_result *result, struct gc_writer *out);
    /* Figures besides the common ones; NULL: none. */
    void (*write_text)(struct gc_writer *out, const struct plan_subject *subject,
                       const struct plan_result *result);
    void (*write_json)(struct gc_json *json, const struct plan_subject *subject,
                       const struct plan_result *result);
    /* Places the buffers behind the base; NULL: all of them, as they are. `solve` with `argument`
     * solves a problem on the request's threads. */
    enum gc_status (*place)(struct plan_subject *subject, uint64_t capacity_bytes,
                            const struct gc_placement_options *options, gc_run_solve *solve,
                            void *argument, struct gc_placement *placement);
    /* The same for rules beyond those of placements, by code independent of the solver; NULL: none.
     * A fault is the text. */
    enum gc_status (*check)(const struct plan_subject *subject, const uint64_t *offsets,
                            struct gc_plan_error *error);
    /* Frees resources outside the region; NULL: none. Called after a failed read too. */
    void (*close)(struct plan_subject *subject);
};

extern const struct plan_source plan_source_problem;
extern const struct plan_source plan_source_trace;
extern const struct plan_source plan_source_graph;

/* ---- the command line ---- */

/* TOOL_USAGE with a line; request->path is NULL after --help. */
int plan_setup_parse(const struct tool_command *command, int argc, char **argv,
                     struct plan_request *request) GC_CHECKED;
/* TOOL_USAGE with a line if an option does not apply to this kind of file. */
int plan_setup_check(const struct plan_request *request,
                     const struct plan_source *source) GC_CHECKED;

/* ---- solving ---- */

/* Places the subject's buffers and checks the placement with the validator. */
int plan_solve(const struct plan_request *request, struct plan_subject *subject,
               struct plan_result *result) GC_CHECKED;

/* ---- reuse ---- */

/* For each buffer i, the earlier buffers whose bytes it reuses: before[first[i]] to
 * before[first[i + 1]], each once. False if memory runs out. */
struct plan_reuse {
    uint32_t *first;
    uint32_t *before;
};
bool plan_reuse_find(struct plan_subject *subject, const struct plan_result *result,
                     struct plan_reuse *reuse);

/* ---- output ---- */

struct plan_view {
    const struct plan_request *request;
    const struct plan_subject *subject;
    const struct plan_result *result;
    struct plan_reuse reuse; /* of JSON alone */
};

bool plan_output_is_json(const struct plan_request *request);
void plan_write_text(struct gc_writer *out, const struct plan_view *view);
/* A line of the text: a size with the exact number of bytes. */
void plan_write_size(struct gc_writer *out, const char *label, uint64_t bytes, const char *note);
void plan_write_json(struct gc_writer *out, const struct plan_view *view);
/* False if memory runs out. */
bool plan_write_csv(struct gc_writer *out, const struct plan_view *view);
bool plan_write_svg(struct gc_writer *out, const struct plan_view *view);

/* Peak over lower bound in ten-thousandths; 1.0 if nothing is placed. */
uint64_t plan_ratio(const struct plan_result *result);

#endif
