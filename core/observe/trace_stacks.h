/* Call stacks in the trace (GPUCACHE_STACKS with GPUCACHE_TRACE): each text of a frame and each
 * stack is written once, and the number of its stack before each allocation. */
#ifndef GC_TRACE_STACKS_H
#define GC_TRACE_STACKS_H

#include "core/observe/stacks.h"
#include "core/observe/trace.h"

/* Call it before the allocation's own event. Thread-safe; `stack` as gc_stacks_capture returned it,
 * GC_STACK_NONE records nothing. */
void gc_trace_stacks_record(struct gc_trace *trace, struct gc_stack_table *stacks, uint32_t stack,
                            uint8_t device, uint64_t address, uint64_t time_ns);

#endif
