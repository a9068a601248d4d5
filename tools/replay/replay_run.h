/* Runs a trace through core over a replay device, in several passes, on one or several threads.
 *
 * Each allocation is followed by work on its stream, as in a program, so that frees have the cost
 * of a program: with one stream a block is reusable at once, with several a free needs fences,
 * which are counted. Stream 0 means that the trace names no stream: a plain malloc and free; others
 * are stream-ordered. */
#ifndef GC_REPLAY_RUN_H
#define GC_REPLAY_RUN_H

#include "core/base/status.h"
#include "core/config/options.h"
#include "core/report/snapshot.h"
#include "tools/replay/replay_device.h"
#include "tools/replay/replay_trace.h"

#define REPLAY_PASSES_MAX 1000
#define REPLAY_THREADS_MAX 64

struct replay_setup {
    enum gc_mode mode;       /* GC_MODE_TRACK: every request goes to the driver */
    enum gc_backend backend; /* GC_BACKEND_VMM or GC_BACKEND_DRIVER */
    struct gc_size_spec limit;
    uint64_t memory_bytes; /* of the device */
    unsigned passes;
    unsigned threads;
    const struct gc_plan *plan; /* the plan that the cache replays; NULL: none */
};

struct replay_pass {
    uint64_t driver_calls;
    uint64_t driver_ns; /* of those calls, modelled */
    uint64_t ns;        /* of the slowest thread */
    uint64_t hits;
    uint64_t misses;
    uint64_t ooms;
};

struct replay_result {
    uint64_t peak_live_bytes;     /* requested, of served allocations */
    uint64_t peak_reserved_bytes; /* reserved from the device */
    uint64_t limit_bytes;         /* UINT64_MAX: none */
    uint64_t oom_count;           /* failed requests; their frees are left out */
    uint64_t host_metadata_bytes;
    uint64_t peak_handle_count; /* physical handles and plain allocations */
    uint64_t calls[REPLAY_CALL_COUNT];
    struct gc_follow_figures plan;
    const char *fault; /* first refused call, a defect of ours; NULL: none */
    struct replay_pass passes[REPLAY_PASSES_MAX];
};

/* GC_NO_HOST_MEMORY; GC_DRIVER and other statuses are defects. */
enum gc_status replay_run(const struct replay_trace *trace, const struct replay_setup *setup,
                          struct replay_result *result) GC_CHECKED;

#endif
