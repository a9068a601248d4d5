/* Swaps the physical memory of a context's pool out of the device and in again. Addresses and
 * blocks stay. Pages in use are copied to host memory, or dropped at the caller's request; idle
 * pages are released.
 *
 * A swapped pool is under one change of mappings (core/backing/change.h) until all pages are back:
 * its blocks can be freed, but a request that needs pages waits. The caller ensures that no work
 * which uses the memory is submitted meanwhile (core/base/gate.h). Captures wait while pages move,
 * not while they are swapped out.
 *
 * Only mapped memory is swapped; driver allocations and elastic pools stay. The swap fails for a
 * context that captures, and for memory that other contexts or processes can access. */
#ifndef GC_SWAP_H
#define GC_SWAP_H

#include "core/backing/swapped.h"
#include "core/core.h"

/* The reason why a swap would fail now; GC_SWAP_OK: none of those known without a driver call. */
enum gc_swap_refusal gc_swap_check(struct gc_context *context);

/* A short text; static storage. */
const char *gc_swap_refusal_text(enum gc_swap_refusal refusal);
/* Releases the physical memory of the context's pool, after a copy of its content to host memory if
 * `keeps_content`. The caller ensures that the wait for the context's work covers all work of the
 * program, and that no work is submitted until the memory is back. True: done, but pages that the
 * driver did not unmap stay. False: nothing has changed. */
bool gc_swap_out(struct gc_context *context, bool keeps_content, struct gc_swap_result *result);
/* Swaps the pool in again, at the same addresses. False: all or part is still swapped out; try
 * again (after the capture, if that is the reason: GC_SWAP_CAPTURES). */
bool gc_swap_in(struct gc_context *context, struct gc_swap_result *result);
bool gc_swap_is_out(struct gc_context *context);

/* ---- for swap_out.c and swap_in.c ---- */

/* The context in which contents are copied. For the device's own pool: any of the device. */
struct gc_context *gc_swap_worker(struct gc_context *context);
/* Where the extent is used. */
uint64_t gc_swap_address(const struct gc_pool *pool, const struct gc_extent *extent);
/* The extent is in the pool's sums again; idle, if no block uses it any more. */
void gc_swap_return_locked(struct gc_pool *pool, struct gc_extent *extent);

#endif
