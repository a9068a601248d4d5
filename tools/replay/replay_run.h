/* Runs a trace through core over a replay device, several passes, by one thread or several at once.
 *
 * Each allocation is followed by work on its stream, as a program would submit it, so that frees
 * are judged as in a program: with one stream they serve again at once, with several they need
 * fences, which are counted. A stream of 0 is one that the trace does not name: a plain malloc and
 * free; others are allocated and freed in their stream's order. */
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
    const struct gc_plan *plan; /* that the cache follows; NULL: none */
};

struct replay_pass {
    uint64_t driver_calls;
    uint64_t ns; /* of the slowest thread */
    uint64_t hits;
    uint64_t misses;
    uint64_t ooms;
};

struct replay_result {
    uint64_t peak_live_bytes;     /* asked for, of what was served */
    uint64_t peak_reserved_bytes; /* held from the device */
    uint64_t limit_bytes;         /* UINT64_MAX: none */
    uint64_t oom_count;           /* requests that found no memory; their frees are left out */
    uint64_t host_metadata_bytes;
    uint64_t calls[REPLAY_CALL_COUNT];
    struct gc_follow_figures plan;
    const char *fault; /* what the device had to refuse, NULL for nothing: a defect of ours */
    struct replay_pass passes[REPLAY_PASSES_MAX];
};

/* GC_NO_HOST_MEMORY; GC_DRIVER and others that core said where it should not: also a defect. */
enum gc_status replay_run(const struct replay_trace *trace, const struct replay_setup *setup,
                          struct replay_result *result) GC_CHECKED;

#endif
