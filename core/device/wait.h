/* Waits for another thread's decision: a context teardown, a resume. */
#ifndef GC_WAIT_H
#define GC_WAIT_H

#include "core/device/context.h"

/* ---- context teardown ---- */

/* Waits until a teardown of this context has finished or was cancelled, then locks the pool. After
 * 10 s the context counts as destroyed (pool.is_dropped). */
void gc_wait_lock_after_teardown(struct gc_context *context);
/* For a call on the context, after it failed, perhaps because of a teardown: waits until the
 * teardown has finished or was cancelled. True: the teardown was cancelled, call again.
 * `reattach_count`: gc_core_reattach_count, read before that call. No lock may be held. */
bool gc_wait_teardown(struct gc_context *context, unsigned reattach_count);
/* The pagemap has no block at the address: waits if a detached pool contains it. NOT: none does.
 * RESOLVED: the teardown has finished or was cancelled. STILL: the teardown lasts more than 10 s;
 * the address must not be freed by another allocator. */
enum gc_detached { GC_DETACHED_NOT, GC_DETACHED_RESOLVED, GC_DETACHED_STILL };
enum gc_detached gc_wait_detached(struct gc_core *core, uint64_t address);

/* ---- pause ---- */

/* Waits until the process, or the tenant, is resumed, and until its memory is resident.
 * Without a helper thread the waiting thread does its work meanwhile (core/pause/ending.c), else
 * nobody could resume it. No lock may be held; a thread inside the gate must not wait here
 * (deadlock). */
void gc_wait_resume(struct gc_core *core);
void gc_wait_tenant(struct gc_core *core, struct gc_tenant *tenant);

#endif
