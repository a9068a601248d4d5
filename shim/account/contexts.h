/* Contexts as they come and go: the records and charges behind the wrappers.
 *
 * An end is begun before the driver is asked, and finished or cancelled after it: in between no
 * thread of the program's is in the context on our account (core/base/gate.h), and a handle that
 * the driver hands out anew is not known for the new one before all of the old one is forgotten. */
#ifndef GC_CONTEXTS_H
#define GC_CONTEXTS_H

#include "shim/account/measure.h"
#include "shim/shim.h"

/* The driver has just made it, under that handle: whatever was known by it is of one that is gone.
 * The `taken` bytes that are charged for it are under its own entry point: a runtime makes contexts
 * in the middle of whatever the program called first. */
void gc_contexts_add(CUcontext handle, struct gc_device *device, enum gc_api api, int64_t taken);

/* NULL if it is not known: then there is nothing to end. */
struct gc_context *gc_contexts_end_begin(CUcontext handle);
/* Ends a teardown: removes all that belonged to the context, or, if the driver refused, nothing. */
void gc_contexts_end(struct gc_context *context, bool is_gone);

/* In a group a context's memory is reserved before it is made, where members know how much that is.
 * False: there is no room. Device NULL: nothing is. */
bool gc_contexts_charge(struct gc_device *device, uint64_t *expected);
/* Then what it took, 0 if there is none, stands in the account in place of what was expected: never
 * both. Returns it. */
int64_t gc_contexts_commit(struct gc_device *device, uint64_t expected,
                           const struct gc_measure *measure, int64_t taken);

/* Records the bytes that a limit of the context changed; they are uncharged with the context. */
void gc_contexts_add_extra(CUcontext context, struct gc_device *device, int64_t bytes);
/* Changes the usage count by `change` and returns it; of contexts whose beginning was not seen it
 * is never 0. */
uint64_t gc_contexts_count_usage(CUcontext context, int change);

#endif
