/* Contexts from creation to destruction: the records and charges behind the wrappers.
 *
 * A teardown is begun before the driver call, and finished or cancelled after it: in between no
 * call of the library enters the context (core/base/gate.h), and a handle that the driver reuses is
 * recorded for the new context only after all of the old one is removed. */
#ifndef GC_CONTEXTS_H
#define GC_CONTEXTS_H

#include "shim/account/measure.h"
#include "shim/shim.h"

/* The driver has just made the context under that handle: anything recorded under the handle
 * belongs to a destroyed context. The `taken` bytes are accounted under `api`, the call that made
 * the context, not the outermost call: a runtime makes contexts in any of its calls. */
void gc_contexts_add(CUcontext handle, struct gc_device *device, enum gc_api api, int64_t taken);

/* Begins a teardown. NULL: the context is not known, so there is nothing to end. */
struct gc_context *gc_contexts_end_begin(CUcontext handle);
/* Ends a teardown: removes all that belonged to the context, or, if the driver refused, nothing. */
void gc_contexts_end(struct gc_context *context, bool is_gone);

/* Before a context is created in a group: charges *expected, the memory that members measured for
 * one. False: over the limit. 0 is charged where none was measured, or the device is NULL. */
bool gc_contexts_charge(struct gc_device *device, uint64_t *expected);
/* Replaces the expected bytes in the account by the measured ones, 0 if there are none: never both.
 * Returns the measured bytes. */
int64_t gc_contexts_commit(struct gc_device *device, uint64_t expected,
                           const struct gc_measure *measure, int64_t taken);

/* Records the bytes that a limit of the context changed; they are uncharged with the context. */
void gc_contexts_add_extra(CUcontext context, struct gc_device *device, int64_t bytes);
/* Changes the usage count by `change` and returns it; never 0 for a context whose creation was not
 * seen. */
uint64_t gc_contexts_count_usage(CUcontext context, int change);

#endif
