/* The output of `gpucache replay`: text, or one JSON object. */
#ifndef GC_REPLAY_PRINT_H
#define GC_REPLAY_PRINT_H

#include "core/io/writer.h"
#include "tools/replay/replay_run.h"

/* A way to serve requests: a row of the table. */
struct replay_policy {
    const char *name;    /* value of --policy */
    const char *backend; /* value of --backend; NULL: does not apply */
    enum gc_mode mode;
    enum gc_backend gc_backend;
};

struct replay_request {
    const char *path;
    const struct replay_policy *policies; /* those to run */
    size_t policy_count;
    int device;            /* -1: the one with the most events */
    uint64_t memory_bytes; /* 0: derived from the trace */
    struct replay_setup setup;
    bool json;
};

/* `results`: one for each policy. */
void replay_print_text(struct gc_writer *out, const struct replay_request *request,
                       const struct replay_trace *trace, const struct replay_result *results);
void replay_print_json(struct gc_writer *out, const struct replay_request *request,
                       const struct replay_trace *trace, const struct replay_result *results);

#endif
