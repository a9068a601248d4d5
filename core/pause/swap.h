/* Physical memory of a context's pool, out of the device and back: its addresses stay, and so do
 * its blocks. What blocks use is copied to host memory, or dropped where the caller says so; what
 * is idle is given back.
 *
 * Swapping out is a change of mappings (arena.h) that lasts until all is back: blocks whose pages
 * are away are freed as ever, but a request that needs pages waits. The program must submit no work
 * meanwhile that uses the memory; the caller sees to that (core/base/gate.h). Captures are held up
 * while pages move, not while they are away.
 *
 * Memory that is not mapped page by page stays where it is: driver allocations, elastic pools. A
 * context that captures, or whose memory others reach, is refused. */
#ifndef GC_SWAP_H
#define GC_SWAP_H

#include "core/backing/swapped.h"
#include "core/core.h"

/* Whether a swap would be refused now; GC_SWAP_OK: not for these reasons. No driver call. */
enum gc_swap_refusal gc_swap_check(struct gc_context *context);

/* A short text; static storage. */
const char *gc_swap_refusal_text(enum gc_swap_refusal refusal);
/* Takes the physical memory of the context's pool away, its content to host memory if
 * `keeps_content`. No work of the program may be under way that no wait of the context covers, none
 * may be submitted until it is back. True if it did, though pages may stay that the driver did not
 * unmap; else nothing has changed. */
bool gc_core_swap_out(struct gc_context *context, bool keeps_content,
                      struct gc_swap_result *result);
/* And back, at the same addresses. False: it is away as before, or part of it; try again.
 * GC_SWAP_CAPTURES: when the capture is over. */
bool gc_core_swap_in(struct gc_context *context, struct gc_swap_result *result);
bool gc_context_is_swapped(struct gc_context *context);

/* ---- for swap_out.c and swap_in.c ---- */

/* The context in which contents are copied: of memory of the device, one of the device. */
struct gc_context *gc_swap_worker(struct gc_context *context);
/* The address of its slot. */
uint64_t gc_swap_address(const struct gc_pool *pool, const struct gc_swapped_slot *swapped);
/* The end of the run of neighbours that starts at `i`. */
uint64_t gc_swap_run_end(const struct gc_swap *swap, uint64_t i);
/* The page is the slot's again. One that is not in use after all, or whose block was freed
 * meanwhile, is idle. */
void gc_swap_commit_page_locked(struct gc_pool *pool, struct gc_slot *slot, struct gc_page *page);

#endif
