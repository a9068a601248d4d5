/* Walks a native trace once: numbers allocations from 1, matches frees, computes sums, and passes
 * each step to an exporter. */
#ifndef GC_TRACE_WALK_H
#define GC_TRACE_WALK_H

#include "core/observe/trace_reader.h"
#include "tools/trace/trace_ledger.h"
#include "tools/trace/trace_space.h"

#define TRACE_DEVICES 256

struct trace_api_sum {
    uint64_t count;
    uint64_t bytes;
};

struct trace_sum {
    uint64_t events; /* allocations, frees and failed requests */
    uint64_t allocs;
    uint64_t frees;
    uint64_t ooms;
    uint64_t unknown_frees; /* frees of addresses that are not live: skipped */
    uint64_t implied_frees; /* the address was allocated again: its free was not recorded */
    uint64_t first_ns;
    uint64_t last_ns;
    uint64_t live_bytes;
    uint64_t live_count;
    uint64_t peak_bytes;
    uint64_t peak_count;        /* live allocations when live_bytes peaked */
    struct trace_api_sum *apis; /* reader->api_count entries */
};

/* One step: an allocation, a free of a live address, a failed request, or a change of the memory
 * behind them. */
struct trace_step {
    enum gc_trace_op op;
    const struct gc_trace_event *event;
    const struct trace_allocation *allocation; /* of ALLOC and FREE, else NULL */
    uint64_t time_ns;                          /* since the first event */
};

/* The state of a walk, valid during a call of the sink. */
struct trace_state {
    const struct gc_trace_reader *reader;
    const struct trace_sum *sum;
    const struct trace_ledger *ledger; /* live allocations */
    const struct trace_space *spaces;  /* TRACE_DEVICES of them */
};

struct trace_sink {
    void *self;
    /* Either may be NULL. A status other than GC_OK ends the walk. */
    enum gc_status (*on_step)(void *self, const struct trace_state *state,
                              const struct trace_step *step);
    enum gc_status (*end)(void *self, const struct trace_state *state);
};

/* Reads `reader` to its end; a copy of it may be walked again. `sink` may be NULL.
 * GC_NO_HOST_MEMORY, or the sink's status. */
enum gc_status trace_walk(struct gc_trace_reader *reader, const struct trace_sink *sink,
                          struct trace_sum *sum) GC_CHECKED;
void trace_sum_fini(struct trace_sum *sum);
/* From the first event to the last. */
uint64_t trace_sum_duration_ns(const struct trace_sum *sum);

#endif
