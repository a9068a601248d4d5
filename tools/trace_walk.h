/* Walks a native trace once: numbers allocations from 1, matches frees, writes CSV, sums up. */
#ifndef GC_TRACE_WALK_H
#define GC_TRACE_WALK_H

#include "core/out.h"
#include "core/trace_reader.h"

struct trace_api_sum {
    uint64_t count;
    uint64_t bytes;
};

struct trace_sum {
    uint64_t events; /* allocations, frees and failed requests */
    uint64_t allocs;
    uint64_t frees;
    uint64_t ooms;
    uint64_t unknown_frees; /* of an address that was not live: skipped */
    uint64_t implied_frees; /* the address was handed out again: its free was not recorded */
    uint64_t first_ns;
    uint64_t last_ns;
    uint64_t live_bytes;
    uint64_t live_count;
    uint64_t peak_bytes;
    uint64_t peak_count;        /* live allocations when live_bytes peaked */
    struct trace_api_sum *apis; /* reader->api_count entries */
};

/* Reads `reader` to its end. `csv` may be NULL. GC_NO_HOST_MEMORY; a failed write shows in `csv`.
 */
enum gc_status trace_walk(struct gc_trace_reader *reader, struct gc_out *csv,
                          struct trace_sum *sum) GC_CHECKED;
void trace_sum_fini(struct trace_sum *sum);

#endif
