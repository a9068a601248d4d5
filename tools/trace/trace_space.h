/* The address ranges of a device with memory, during a walk: disjoint, by rising address. Adjacent
 * pages are one range, as one piece of address space; segments of the driver stay apart. At most
 * TRACE_SPACE_MAX ranges: further ones are left out and counted, so that a hostile trace costs
 * bounded time. */
#ifndef GC_TRACE_SPACE_H
#define GC_TRACE_SPACE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_SPACE_MAX 65536

struct trace_range {
    uint64_t address;
    uint64_t bytes;
    bool is_pages;
};

struct trace_space {
    struct trace_range *ranges;
    size_t count;
    size_t room;
    uint64_t left_out;
};

/* Zero bytes are an empty space. `address + bytes` does not overflow, bytes > 0. */
enum gc_status trace_space_add(struct trace_space *space, uint64_t address, uint64_t bytes,
                               bool is_pages) GC_CHECKED;
enum gc_status trace_space_remove(struct trace_space *space, uint64_t address,
                                  uint64_t bytes) GC_CHECKED;
/* The range that has the address; NULL: none. Valid until the space changes. */
const struct trace_range *trace_space_find(const struct trace_space *space, uint64_t address);
void trace_space_fini(struct trace_space *space);

#endif
