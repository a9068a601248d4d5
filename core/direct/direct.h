/* Records of direct memory (non-pool allocations): how the kinds of core/observe/direct.def are
 * counted. */
#ifndef GC_DIRECT_H
#define GC_DIRECT_H

#include "core/core.h"

/* True for kinds of device memory that the program allocates: each record counts as an allocation,
 * as requested and allocated bytes, and as a leak if it is never freed. Other kinds appear under
 * their entry point and in direct_bytes only. */
bool gc_direct_is_allocation(enum gc_direct_kind kind);

/* Uncounts and uncharges a record that was destroyed with its context. */
void gc_direct_destroyed(const struct gc_direct *direct);

#endif
