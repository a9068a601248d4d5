/* Physical memory of a context's pool, out of the device and back: its addresses stay, and so do
 * its blocks. What blocks use is copied to host memory, or dropped where the caller says so; what
 * is idle is given back.
 *
 * Swapping out is a change of mappings (arena.h) that lasts until all is back: blocks whose pages
 * are away are freed as ever, but a request that needs pages waits. The program must submit no work
 * meanwhile that uses the memory; the caller sees to that (core/base/gate.h). Captures are held up while
 * pages move, not while they are away.
 *
 * Memory that is not mapped page by page stays where it is: driver allocations, elastic pools. A
 * context that captures, or whose memory others reach, is refused. */
#ifndef GC_SWAP_H
#define GC_SWAP_H

#include "core/core.h"

struct gc_pool;
struct gc_swap;

/* Whether a swap would be refused now; GC_SWAP_OK: not for these reasons. No driver call. */
enum gc_swap_refusal gc_swap_check(struct gc_context *context);

/* Whether a thread brings it back. Called with the pool's lock held. */
bool gc_swap_is_coming_locked(const struct gc_swap *swap);

/* What a dropped pool had swapped out, or NULL; the change that it was is over. Called with the
 * pool's lock held, while nobody brings it back. */
struct gc_swap *gc_swap_take_locked(struct gc_pool *pool);
/* Frees host memory only. NULL is ignored. No lock. */
void gc_swap_forget(struct gc_context *context, struct gc_swap *swap);

#endif
