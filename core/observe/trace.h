/* The recorder of allocation events: a versioned binary file, written in order and flushed at exit.
 * After a crash the file is readable up to the last flush. */
#ifndef GC_TRACE_H
#define GC_TRACE_H

#include "core/base/status.h"
#include "core/io/log.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_trace;

enum gc_trace_op {
    GC_TRACE_ALLOC = 1, /* pool or plain memory: exported as `a` */
    GC_TRACE_FREE = 2,  /* exported as `f` */
    GC_TRACE_OOM = 3,   /* a request that failed */
    /* The levels of a device have changed: `address` is the bytes reserved, `bytes` those pending,
     * `stream` the limit (UINT64_MAX: none). */
    GC_TRACE_LEVELS = 4,
    /* Memory was added to the pools, or removed: a segment, or pages. */
    GC_TRACE_MAP = 5, /* `stream` is enum gc_trace_memory */
    GC_TRACE_UNMAP = 6,
    /* Call stacks: the fields address, bytes and stream have a part of a frame's text, which is
     * number `thread`, from byte `api` on; or numbers of texts, from frame `api` of the stack with
     * number `thread` on, 0 behind the last. */
    GC_TRACE_TEXT = 7,
    GC_TRACE_FRAMES = 8,
    /* The allocation of `address` that follows comes from the stack with number `bytes`. */
    GC_TRACE_STACK = 9,
};

enum gc_trace_memory { GC_TRACE_SEGMENT = 0, GC_TRACE_PAGES = 1 };

struct gc_trace_event {
    uint8_t op;
    uint8_t device;
    uint16_t api;
    uint32_t thread; /* small number; 0: the recorder assigns it */
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    uint64_t time_ns; /* driver clock */
};

/* Creates the file at `path`; %p, %h and %n are expanded as core/io/process.h describes. Never
 * follows a symlink as the last component, never truncates a file that is not a gpucache trace.
 * api_names go into the header, so that the file is self-contained. A failure is one line in `log`,
 * which is borrowed until close and may be NULL. */
enum gc_status gc_trace_open(const char *path, const char *const *api_names, uint16_t api_count,
                             const struct gc_log *log, struct gc_trace **trace) GC_CHECKED;
/* Thread-safe, no allocation. After a failed write recording stops; one line is logged and the
 * program is not affected. `trace` may be NULL here and below. */
void gc_trace_record(struct gc_trace *trace, const struct gc_trace_event *event);
/* Records the levels of a device if they differ from the last recorded ones. If only the pending
 * bytes changed, at most once a millisecond: records of levels stay rare beside events. */
struct gc_trace_levels {
    uint64_t reserved_bytes;
    uint64_t pending_bytes;
    uint64_t limit_bytes; /* UINT64_MAX: none */
};
void gc_trace_record_levels(struct gc_trace *trace, uint8_t device,
                            const struct gc_trace_levels *levels, uint64_t time_ns);
/* For signal handlers: whether the interrupted thread is inside gc_trace_record. */
bool gc_trace_is_recording(void);
/* The file has call stacks from now on: it becomes one of version 3. */
void gc_trace_set_stacks(struct gc_trace *trace);
void gc_trace_flush(struct gc_trace *trace);
/* Flushes and frees. Not thread-safe. */
void gc_trace_close(struct gc_trace *trace);

#endif
