/* gpucache plan, inside: what was asked for, what is to be placed, what came of it.
 *
 * A source reads one kind of file into a subject: buffers with lifetimes, how each is called, and
 * what there is to tell beside them. The rest, solving, checking and showing, is the same for all.
 * Everything of a subject lies in its region and goes with it. */
#ifndef GC_TOOL_PLAN_H
#define GC_TOOL_PLAN_H

#include "core/config/options.h"
#include "core/estimator/notes.h"
#include "core/io/json.h"
#include "core/plan/placement.h"
#include "tools/base/tool.h"
#include "tools/plan/plan_threads.h"

/* When the buffers of a role are there: always, from their making to their last use, or not planned
 * at all. */
enum plan_keep { PLAN_KEEP, PLAN_USE, PLAN_LEAVE };

struct plan_request {
    const struct tool_command *command; /* whose messages these are */
    const char *path;
    const char *output; /* NULL: none; "-": standard output */
    const char *svg;    /* as that */
    uint64_t capacity_bytes;
    uint64_t alignment; /* 0: the source's own */
    uint64_t deadline_ns;
    uint64_t seed;
    uint64_t node_max;
    unsigned threads;
    bool json;
    /* Of graphs. */
    const char *graph_option; /* one that was given; NULL: none */
    bool strict;
    bool no_in_place;
    uint64_t batch;
    uint64_t seq_len; /* 0: not given */
    enum plan_keep weights;
    enum plan_keep inputs;
    enum plan_keep outputs;
    char dims[GC_OPTION_LIST_BYTES]; /* "name=N,…" */
};

/* How a buffer is shown. */
struct plan_label {
    const char *name; /* as the file calls it; foreign, closed by NUL */
    const char *kind; /* what it is for or what makes it; NULL: the file does not say */
};

/* A colour of the picture and its line in the legend. */
struct plan_group {
    const char *name;
    uint64_t bytes; /* of its buffers, without reuse */
    uint32_t count;
};

#define PLAN_GROUP_MAX 4

struct plan_source;

struct plan_subject {
    const struct plan_source *source;
    struct gc_region region;
    /* Those that stand at the bottom all the time come first, with fixed offsets below base_bytes;
     * what is solved is the rest, above them. */
    struct gc_placement_buffer *buffers;
    struct plan_label *labels; /* as many */
    uint8_t *groups;           /* as many, indices; NULL: all are in group 0 */
    uint32_t count;
    uint32_t base_count;
    uint64_t base_bytes;
    struct plan_group group[PLAN_GROUP_MAX];
    uint32_t group_count;
    uint64_t total_bytes;          /* one after the other, without reuse */
    uint32_t coverage_thousandths; /* of what takes memory, how much has a size that is known */
    const char *time_unit;         /* what lower and upper count: "steps" */
    struct gc_notes notes;
    void *own; /* the source's */
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

/* One kind of file. `read` and `write` say what is wrong and return a tool_status. */
struct plan_source {
    const char *what; /* "a placement problem" */
    bool (*accepts)(const struct tool_file *file);
    /* The region is there and empty. */
    int (*read)(const struct plan_request *request, const struct tool_file *file,
                struct plan_subject *subject);
    /* --output, wherever the path does not end in .json; NULL: the solved CSV. */
    int (*write)(const struct plan_request *request, const struct plan_subject *subject,
                 const struct plan_result *result, struct gc_writer *out);
    /* What there is to tell beside the common figures; NULL: nothing. */
    void (*write_text)(struct gc_writer *out, const struct plan_subject *subject,
                       const struct plan_result *result);
    void (*write_json)(struct gc_json *json, const struct plan_subject *subject,
                       const struct plan_result *result);
    /* What is not in the region; NULL: nothing. Called after a failed read too. */
    void (*close)(struct plan_subject *subject);
};

extern const struct plan_source plan_source_problem;
extern const struct plan_source plan_source_trace;
extern const struct plan_source plan_source_graph;

/* ---- the command line ---- */

/* TOOL_USAGE with a line; request->path is NULL after --help. */
int plan_setup_parse(const struct tool_command *command, int argc, char **argv,
                     struct plan_request *request) GC_CHECKED;
/* TOOL_USAGE with a line: an option was given that means nothing to this kind of file. */
int plan_setup_check(const struct plan_request *request,
                     const struct plan_source *source) GC_CHECKED;

/* ---- solving ---- */

/* Places the subject's buffers and checks the placement by the validator. */
int plan_solve(const struct plan_request *request, struct plan_subject *subject,
               struct plan_result *result) GC_CHECKED;

/* ---- who was there before ---- */

/* For each buffer those whose bytes it takes over: before[first[i]] to before[first[i + 1]], each
 * once. False without memory. */
struct plan_reuse {
    uint32_t *first;
    uint32_t *before;
};
bool plan_reuse_find(struct plan_subject *subject, const struct plan_result *result,
                     struct plan_reuse *reuse);

/* ---- what is shown ---- */

struct plan_view {
    const struct plan_request *request;
    const struct plan_subject *subject;
    const struct plan_result *result;
    struct plan_reuse reuse;
};

void plan_write_text(struct gc_writer *out, const struct plan_view *view);
void plan_write_json(struct gc_writer *out, const struct plan_view *view);
/* False without memory. */
bool plan_write_csv(struct gc_writer *out, const struct plan_view *view);
bool plan_write_svg(struct gc_writer *out, const struct plan_view *view);

/* Peak over lower bound in ten-thousandths; 1 where nothing is placed. */
uint64_t plan_ratio(const struct plan_result *result);

#endif
