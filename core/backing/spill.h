/* Host memory for blocks that have no room on the device (GPUCACHE_OVERCOMMIT=spill).
 *
 * A block in host memory is a segment of class uncached: addresses and page-locked pages of its
 * own, which go back when the block is freed. It is not charged to the device's accounts and not
 * counted as idle; gc_core.spills has its bytes. So no other request is ever served from it, and
 * the searches for free memory do not know it.
 *
 * Where the driver has pages of host memory and the context maps memory, the block is such pages,
 * mapped at device addresses; else a host allocation that the driver maps for all contexts. */
#ifndef GC_BACKING_SPILL_H
#define GC_BACKING_SPILL_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_change;
struct gc_context;
struct gc_segment;

/* Bytes of host memory for a block. False: too large. */
bool gc_spill_round(const struct gc_context *context, uint64_t bytes, uint64_t *rounded);

/* Sets the segment's address, `bytes` having been set; charges the host memory. The caller has the
 * change. GC_OUT_OF_MEMORY: GPUCACHE_HOST_LIMIT, or no host memory; GC_NOT_SUPPORTED; GC_DRIVER
 * with *code. After a failure nothing is allocated or charged, unless the driver does not take it
 * back: then it stays charged. No lock may be held. */
enum gc_status gc_spill_create(struct gc_context *context, struct gc_segment *segment,
                               int *code) GC_CHECKED;
/* No work uses the memory any more. Returns the driver's code; unless it is 0, all is as before. No
 * lock may be held. */
int gc_spill_release(struct gc_context *context, const struct gc_segment *segment) GC_CHECKED;
/* The context is gone, and the segment in no pool: its memory goes, too. No lock may be held. */
void gc_spill_drop(struct gc_context *context, const struct gc_segment *segment);
/* Maps a page at addresses of the context that have none, and grants its device and the change's
 * peers access. Returns the driver's code; after a failure it is not mapped, unless *is_stuck. */
int gc_spill_map(const struct gc_change *change, uint64_t address, uint64_t bytes, uint64_t handle,
                 bool *is_stuck) GC_CHECKED;
/* Tries twice. False: it is mapped still. */
bool gc_spill_unmap(const struct gc_context *context, uint64_t address, uint64_t bytes);
/* Charges host memory for extents of the context to move to. False: there is none, or the driver
 * has no such pages. */
bool gc_spill_try_hold(struct gc_context *context, uint64_t bytes) GC_CHECKED;
/* Releases the moved extents that no block uses any more. No lock may be held. */
void gc_spill_collect(struct gc_context *context);
/* Grants the peers of the change access to the context's memory on the host. Returns the driver's
 * code of the last refusal, or 0. */
int gc_spill_grant(const struct gc_change *change);

#endif
