/* Waits for a decision of another thread: the outcome of a context teardown, or a resume. */
#ifndef GC_WAIT_H
#define GC_WAIT_H

#include "core/device/context.h"

/* ---- teardown ---- */

/* Takes the pool's lock once no teardown of the context is undecided; after 10 s the context counts
 * as destroyed. */
void gc_wait_lock_after_teardown(struct gc_context *context);
/* For a call that was refused during an undecided teardown. True: the context stays, so the call is
 * to be retried. `reattach_count`: of gc_core_reattach_count, read before. No lock is held. */
bool gc_wait_teardown(struct gc_context *context, unsigned reattach_count);
/* For an address that was not found: it may belong to a pool whose teardown is undecided. STILL: it
 * does, and after 10 s there is no decision; no other free of the address is correct. */
enum gc_detached { GC_DETACHED_NOT, GC_DETACHED_RESOLVED, GC_DETACHED_STILL };
enum gc_detached gc_wait_detached(struct gc_core *core, uint64_t address);

/* ---- pause ---- */

/* Each waits until the process, or the tenant, is resumed. If no helper thread listens, the calling
 * thread serves requests meanwhile, so that a resume can arrive. No lock is held, and the thread is
 * not inside the gate. */
void gc_wait_resume(struct gc_core *core);
void gc_wait_tenant(struct gc_core *core, const struct gc_tenant *tenant);

#endif
