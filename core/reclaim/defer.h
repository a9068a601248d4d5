/* Deferred frees: a freed block becomes free once the work that may use it has completed. */
#ifndef GC_DEFER_H
#define GC_DEFER_H

#include "core/device/context.h"

/* How a block is freed. `stream`: in the order of this stream of `worker` (NULL: of the context),
 * without a wait; GC_STREAM_OTHER: in the order of an unnamed stream; GC_STREAM_NONE: a plain free.
 */
struct gc_defer_order {
    struct gc_context *worker;
    uint64_t stream;
    uint16_t api; /* the entry point that frees */
};

/* Frees a claimed block of the context's pool, whose lock is held and is released here. After a
 * free that fails the block is live again. `found`: the block, for the debug aid to inspect first;
 * NULL without the aid. */
enum gc_status gc_defer_free_unlock(struct gc_context *context, struct gc_block *block,
                                    const struct gc_defer_order *order,
                                    const struct gc_block_info *found, int *driver_code) GC_CHECKED;
/* No other process has the block open any more: ends its free, if it was freed. Call without a
 * lock. */
void gc_defer_free_held(struct gc_core *core, uint64_t address, uint64_t id);
/* An allocation of `wanted_bytes` missed: frees pending blocks that have completed. Waits only
 * while more than 1/8 of the device is pending, rather than let the pool grow. True if memory
 * became free. */
bool gc_defer_reclaim(struct gc_context *context, uint64_t wanted_bytes);
/* Frees pending blocks that have completed; waits for nothing. */
void gc_defer_poll(struct gc_context *context);
/* Waits for all pending blocks, unless a capture forbids it, for about limit_ns. True if memory
 * became free. */
bool gc_defer_drain(struct gc_context *context, uint64_t limit_ns);
/* As gc_defer_drain, for the oldest pending blocks only, as far as fences separate them from the
 * rest. *is_under_way: set if there is more to wait for. */
bool gc_defer_wait_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way);
/* Before a context teardown, which destroys its memory: waits for pending blocks that work of other
 * contexts may use, as the driver's own free would have. */
void gc_defer_wait_peers(struct gc_context *context);
/* `completed` may have risen: moves pending blocks that have completed into the bins. True if there
 * were any. */
bool gc_defer_collect(struct gc_context *context);
/* Releases memory of freed blocks of class uncached that an earlier call of the driver did not. */
void gc_defer_release_uncached(struct gc_context *context);
/* The program synchronised `waited`: blocks freed before `epoch` have completed, unless work of
 * other contexts may use them. */
void gc_defer_complete(struct gc_context *context, const struct gc_context *waited, uint64_t epoch);
/* Blocks of the context were flushed from a thread cache to its pool: records a fence if enough are
 * pending, and trims. May call the driver. */
void gc_defer_on_flush(struct gc_context *context);

#endif
