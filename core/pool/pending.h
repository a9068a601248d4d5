/* Freed blocks whose work may not have completed: the common list, in order of epoch, and those of
 * streams. All calls need the pool's lock.
 *
 * Streams: blocks freed in stream order. Such memory serves the same stream at once, because its
 * new use is ordered behind the old one: first fit by address, split, and coalesced with what the
 * stream freed before, as free blocks are. Other requests get it once its epoch is completed, as
 * any pending block, or once the stream has passed a fence recorded behind the free
 * (core/device/fence.h): the program ordered all work that may use the block before the free.
 *
 * The blocks of a stream are in groups of one epoch each, the latest of its blocks; a part of a
 * block stays in its group. A stream has few groups: with all in use the youngest takes later
 * blocks, and its epoch rises. A block that is coalesced may go to a later group and wait longer:
 * only one that is no longer than the block freed now, so that a busy stream keeps no more memory
 * from others than it frees itself.
 *
 * A pool has lists for up to GC_STREAM_LISTS streams; their blocks are PENDING and counted as such.
 * A block that finds no list goes to the pool's common list.
 *
 * The key of a stream is its handle. Its list must be closed before the stream is destroyed, since
 * the driver reuses handles. */
#ifndef GC_PENDING_H
#define GC_PENDING_H

#include "core/pool/bins.h"
#include "core/pool/segment.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_STREAM_LISTS 64
#define GC_STREAM_GROUPS 3
/* The trees of a group: of class small, of class large, of all others. */
#define GC_STREAM_TREES (GC_CLASS_PLANNED + 1)

struct gc_alloc_spec;
struct gc_block;
struct gc_context;
struct gc_pool;

struct gc_stream_group {
    uint64_t epoch;
    /* By address. Places of a plan serve only their plan, dedicated segments only requests for
     * dedicated memory. */
    struct gc_bins trees[GC_STREAM_TREES];
};

struct gc_stream_list {
    uint64_t stream;           /* 0: unused */
    struct gc_context *worker; /* head of the driver context that owns the stream */
    uint64_t serial;           /* changes with each new use of this array element */
    struct gc_stream_group groups[GC_STREAM_GROUPS]; /* the lowest epoch first */
    uint32_t group_count;
    bool is_marked;   /* a fence of the stream covers all epochs up to `covered` */
    bool is_ended;    /* the stream is destroyed: it gets no block from this list */
    uint64_t covered; /* valid with is_marked */
    uint64_t passed;  /* epochs up to this one have completed in this stream */
};

/* Pending blocks, in order of epoch. */
struct gc_pending {
    struct gc_block *first;
    struct gc_block *last;
};
/* Adds a block to the common list. `epoch`: the epoch at which the block was freed
 * (core/device/submit.h). Epochs may arrive out of order. */
void gc_pending_push_locked(struct gc_pool *pool, struct gc_block *block, uint64_t epoch);
/* Removes all blocks with epochs up to `completed`, those in stream lists too. They stay PENDING.
 */
struct gc_pending gc_pending_remove_locked(struct gc_pool *pool, uint64_t completed);
/* Frees all blocks of the list, whose work has completed. True if one is uncached: its segment is
 * to be released. */
bool gc_pending_free_locked(struct gc_pool *pool, struct gc_pending pending);

/* The block may be coalesced: its record is no longer the caller's. False: all lists are used; the
 * block is unchanged. */
bool gc_pending_push_stream_locked(struct gc_pool *pool, struct gc_context *worker, uint64_t stream,
                                   struct gc_block *block, uint64_t epoch);
/* A block for the request, split from what was freed in its stream; in no list. NULL: none. Needs
 * two records. */
struct gc_block *gc_pending_alloc_locked(struct gc_pool *pool, const struct gc_alloc_spec *spec);
/* Removes the blocks of the request's stream that lie in the range of its size at `address`, if
 * their bytes sum to `pending_bytes`, all pending bytes of the range. Else returns false and
 * changes nothing. */
bool gc_pending_remove_range_locked(struct gc_pool *pool, const struct gc_alloc_spec *spec,
                                    uint64_t address, uint64_t pending_bytes,
                                    struct gc_pending *taken);
bool gc_pending_has_stream_locked(struct gc_pool *pool, uint64_t stream);
/* The stream is about to be destroyed. Its blocks stay until the stream passes its fence; without a
 * fence that covers them all they move to the common list. */
void gc_pending_close_stream_locked(struct gc_pool *pool, uint64_t stream);
/* The context is about to be torn down, with its streams and their fences. Its streams' blocks move
 * to the common list, since work of other contexts, for which the streams waited, may still run. */
void gc_pending_drop_worker_locked(struct gc_pool *pool, const struct gc_context *worker);

#endif
