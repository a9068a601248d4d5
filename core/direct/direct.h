/* Records of direct memory: what the kinds of direct.def mean for the figures, and their end. */
#ifndef GC_DIRECT_H
#define GC_DIRECT_H

#include "core/core.h"

/* True for memory the program asked for as such: it counts as an allocation, as requested and
 * allocated bytes, and as a leak if it stays. The others show under their entry point and in
 * direct_bytes only. */
bool gc_direct_is_allocation(enum gc_direct_kind kind);

/* Settles the accounts of a direct record that went with its context. */
void gc_direct_destroyed(const struct gc_direct *direct);

#endif
