/* The allocations of a device that take most of the picture of its memory over time: bytes times
 * lifetime. A bounded binary heap with the least of them on top. */
#ifndef GC_TRACE_BLOCKS_H
#define GC_TRACE_BLOCKS_H

#include "core/base/status.h"
#include "core/io/json.h"
#include "tools/trace/trace_ledger.h"

#include <stddef.h>
#include <stdint.h>

#define TRACE_BLOCKS_MAX 8192

struct trace_block {
    struct trace_allocation allocation;
    uint64_t end_ns; /* UINT64_MAX: never freed */
    double area;
    uint32_t site;
};

struct trace_blocks {
    struct trace_block *blocks;
    size_t count;
    uint64_t left_out;
};

enum gc_status trace_blocks_init(struct trace_blocks *blocks) GC_CHECKED;
void trace_blocks_fini(struct trace_blocks *blocks);
/* `until_ns`: its end, or that of the trace. */
void trace_blocks_add(struct trace_blocks *blocks, const struct trace_allocation *allocation,
                      uint32_t site, uint64_t until_ns, bool is_freed);
/* Rows [begin, end or null, bytes, call site, address, thread, stream] in the order of allocation.
 * Ends the collection. */
void trace_blocks_write(struct trace_blocks *blocks, struct gc_json *json);

#endif
