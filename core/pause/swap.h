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
/* How to move. Chunks are whole extents: the content of one is copied while the one before is
 * released, or the one after is mapped. A single chunk is all or nothing. */
struct gc_swap_spec {
    bool keeps_content; /* out: otherwise it is lost */
    bool is_drained;    /* out: work that uses the memory has ended; other work may be under way */
    bool is_return;     /* in: the process's own limit and the tenant's do not apply */
    uint64_t wanted_bytes; /* out: at least so much, if there is so much; UINT64_MAX: all */
    uint64_t chunk_bytes;
    /* After each chunk has left the device and the account, or is resident; may be NULL. */
    void (*moved)(void *argument, uint64_t bytes);
    void *argument;
};

/* Releases physical memory of the context's pool, after a copy of its content to host memory. More
 * calls swap out more. The caller ensures that the wait for the context's work covers all work of
 * the program, and that no work is submitted until all memory is back. True: done, but pages that
 * the driver did not unmap stay. False: chunks before the failure are swapped out. */
bool gc_swap_out(struct gc_context *context, const struct gc_swap_spec *spec,
                 struct gc_swap_result *result);
/* All, or nothing. */
static inline bool gc_swap_out_all(struct gc_context *context, bool keeps_content,
                                   struct gc_swap_result *result)
{
    const struct gc_swap_spec all = {
        .keeps_content = keeps_content, .wanted_bytes = UINT64_MAX, .chunk_bytes = UINT64_MAX};
    return gc_swap_out(context, &all, result);
}
/* Swaps the pool in again, at the same addresses, while there is room. False: all or part is still
 * swapped out; try again (GC_SWAP_FULL: when there is room; GC_SWAP_CAPTURES: after the capture).
 */
bool gc_swap_in_part(struct gc_context *context, const struct gc_swap_spec *spec,
                     struct gc_swap_result *result);
/* As that, all at once; reclaims and borrows room. */
bool gc_swap_in(struct gc_context *context, struct gc_swap_result *result);
/* Bytes that have to come back; 0: none, though a swap may be to end. */
uint64_t gc_swap_missing_bytes(struct gc_context *context);
bool gc_swap_is_out(struct gc_context *context);

/* ---- for swap_out.c and swap_in.c ---- */

/* The context in which contents are copied. For the device's own pool: any of the device. */
struct gc_context *gc_swap_worker(struct gc_context *context);
/* Where the extent is used. */
uint64_t gc_swap_address(const struct gc_pool *pool, const struct gc_extent *extent);
/* The extent is in the pool's sums again; idle, if no block uses it any more. */
void gc_swap_return_locked(struct gc_pool *pool, struct gc_extent *extent);

#endif
