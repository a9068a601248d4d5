/* Contexts as they come and go, for context_api.c and primary_api.c.
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
/* All that was of it goes, or, if the driver declined, nothing. */
void gc_contexts_end(struct gc_context *context, bool is_gone);

/* In a group a context's memory is reserved before it is made, where members know how much that is.
 * False: there is no room. Device NULL: nothing is. */
bool gc_contexts_expect(struct gc_device *device, uint64_t *expected);
/* Then what it took, 0 if there is none, stands in the account in place of what was expected: never
 * both. Returns it. */
int64_t gc_contexts_settle(struct gc_device *device, uint64_t expected,
                           const struct gc_measure *measure, int64_t taken);

/* ---- primary contexts: primary_api.c ---- */

/* One at a time retains, releases or resets the primary context of a device: by whether it is
 * active before and after, a thread knows what its own call did. Nests. No lock is held, and
 * nothing but that is waited for. */
void gc_primary_turn_begin(CUdevice ordinal);
void gc_primary_turn_end(CUdevice ordinal);

/* The context is a green one of the device: from now on it is taken for the primary context. */
void gc_primary_note_green(CUcontext context, CUdevice ordinal);
/* Whether the current context is a green one. */
bool gc_primary_is_green(void);

#endif
