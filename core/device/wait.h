/* Waits for a decision of another thread: whether a context that is about to end does, and when
 * what is paused is resumed. */
#ifndef GC_WAIT_H
#define GC_WAIT_H

#include "core/device/context.h"

/* ---- the end of a context ---- */

/* Takes the pool's lock once it is known whether a context that may end does; where that takes
 * longer than 10 s it counts as gone. */
void gc_wait_lock_after_teardown(struct gc_context *context);
/* What was asked of the context while it may have been about to end was refused: true if it stays,
 * so that it is to be asked again. `reattach_count`: of gc_core_reattach_count, read before. No
 * lock. */
bool gc_wait_teardown(struct gc_context *context, unsigned reattach_count);
/* An address is unknown: it may be of a pool that is about to go. STILL: it is, and after 10 s
 * nobody knows yet whether that goes; the address is no one else's to free. */
enum gc_detached { GC_DETACHED_NOT, GC_DETACHED_RESOLVED, GC_DETACHED_STILL };
enum gc_detached gc_wait_detached(struct gc_core *core, uint64_t address);

/* ---- what is paused ---- */

/* Each waits until what is paused there is not. Where no helper hears the requests of others the
 * thread answers them meanwhile, so that it can be resumed at all. No lock may be held, and nobody
 * who is inside the gate may wait here. */
void gc_wait_resume(struct gc_core *core);
void gc_wait_tenant(struct gc_core *core, const struct gc_tenant *tenant);

#endif
