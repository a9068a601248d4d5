/* A trace as `gpucache replay` runs it, independent of its format: events in order, each allocation
 * in a slot that is reused after its free, so that replay needs a table of only as many addresses
 * as were live at once.
 *
 * Readers pass allocations and frees under their own keys (numbers of a CSV, addresses of a log).
 * Allocations that are live at the end of the trace are freed by appended events. */
#ifndef GC_REPLAY_BUILDER_H
#define GC_REPLAY_BUILDER_H

#include "core/base/status.h"
#include "tools/trace/trace_ledger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct replay_event {
    uint64_t bytes; /* 0: a free */
    uint64_t stream;
    uint32_t slot;
};

struct replay_trace {
    const char *format; /* static text */
    int device;         /* device of the events */
    struct replay_event *events;
    size_t count;        /* closing frees included */
    size_t closing;      /* frees of allocations live at the end */
    uint32_t slot_count; /* most allocations live at once */
    uint64_t allocs;
    uint64_t peak_live_bytes; /* as requested */
    uint64_t unknown_frees;   /* frees of keys that are not live: left out */
    uint64_t implied_frees;   /* a live key was allocated again: its free was not recorded */
    uint64_t left_out;        /* other rows: failed requests, other devices, other actions */
    uint64_t elsewhere;       /* of them: allocations and frees of other devices */
    bool torn;                /* a native trace whose last record is incomplete */
};

/* The position and the text of an error in a trace. */
struct replay_error {
    uint64_t line; /* from 1; 0: not in a line */
    char text[256];
};

struct replay_builder {
    struct replay_trace *trace;
    struct trace_ledger live; /* key → slot + 1, bytes */
    uint32_t *free_slots;
    size_t free_count;
    size_t room; /* of trace->events */
    uint64_t live_bytes;
};

/* Fills the caller's `trace`. End it with replay_trace_fini, also after errors. */
void replay_builder_init(struct replay_builder *builder, struct replay_trace *trace);
bool replay_builder_is_live(const struct replay_builder *builder, uint64_t key);
/* `bytes` > 0. A live key is freed first and counted as implied. */
enum gc_status replay_builder_alloc(struct replay_builder *builder, uint64_t key, uint64_t bytes,
                                    uint64_t stream) GC_CHECKED;
/* A key that is not live is counted and left out. */
enum gc_status replay_builder_free(struct replay_builder *builder, uint64_t key,
                                   uint64_t stream) GC_CHECKED;
/* Frees all live allocations. */
enum gc_status replay_builder_close(struct replay_builder *builder) GC_CHECKED;
void replay_builder_fini(struct replay_builder *builder);
void replay_trace_fini(struct replay_trace *trace);

/* Writes the error's text; returns GC_FORMAT. */
enum gc_status replay_refuse(struct replay_error *error, uint64_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4))) GC_CHECKED;

#endif
