/* Deferred frees: freed memory becomes free memory once the work that may use it is done. */
#ifndef GC_DEFER_H
#define GC_DEFER_H

#include "core/device/context.h"

/* Frees a live block of the context's pool, whose lock is held and is released here. `stream`, of
 * `worker` (NULL: of the context): in its order, without a wait; GC_STREAM_OTHER: of one that is
 * not named; GC_STREAM_NONE: a plain free. */
enum gc_status gc_defer_free_unlock(struct gc_context *context, struct gc_block *block,
                                    struct gc_context *worker, uint64_t stream,
                                    int *driver_code) GC_CHECKED;
/* An allocation of `wanted_bytes` misses: makes pending memory free as far as that costs no wait;
 * beyond the share of the device that may be pending it waits rather than let the pool grow. True
 * if memory became free.
 */
bool gc_defer_reclaim(struct gc_context *context, uint64_t wanted_bytes);
/* What is pending and is done by now becomes free; waits for nothing. */
void gc_defer_poll(struct gc_context *context);
/* Waits for all that is pending, if there is any and no capture forbids it, for about limit_ns.
 * True if memory became free. */
bool gc_defer_drain(struct gc_context *context, uint64_t limit_ns);
/* The same for the oldest pending memory only, where fences can tell it from the rest, and for
 * about limit_ns. *is_under_way: set if there is more to wait for. */
bool gc_defer_wait_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way);
/* The context is about to end, and its memory with it: what was freed is waited for as the plain
 * driver's free would have, where work of other contexts may use it. */
void gc_defer_wait_peers(struct gc_context *context);
/* `retired` may have risen: what is pending and idle now goes into the bins. True if anything did.
 */
bool gc_defer_collect(struct gc_context *context);
/* The program itself waited for the work of `waited`: what was freed before `epoch` is idle, unless
 * others' work may use it. */
void gc_defer_complete(struct gc_context *context, const struct gc_context *waited, uint64_t epoch);
/* Blocks of the context went from a magazine to its pool: what their number calls for is done. May
 * call the driver. */
void gc_defer_on_flush(struct gc_context *context);

#endif
