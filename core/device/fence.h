/* Fences: events in the work of a context and its peers, from which core learns without waiting
 * which work has completed. A context has a ring of up to four open fences, oldest first, guarded
 * by its pool's lock. One thread at a time calls the driver for the ring, without the lock.
 *
 * Epoch-based reclamation on the device: a fence closes the epoch (submit.h) before it is
 * recorded. When the fence has completed, all work up to the epoch is done and the
 * context's `completed` rises to it. While the context, a peer or a roaming context captures, no
 * fence is recorded or waited for. */
#ifndef GC_FENCE_H
#define GC_FENCE_H

#include "core/base/status.h"
#include "core/pool/pending.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GC_PEER_MAX 63
#define GC_FENCES_MAX 4

struct gc_context;
struct gc_wait_set;

struct gc_fence_member {
    struct gc_context *context;
    uint64_t handle; /* the driver's fence */
};

struct gc_fence {
    uint64_t epoch;
    uint32_t count; /* members: the context and its peers */
    struct gc_fence_member members[1 + GC_PEER_MAX];
};

struct gc_fences {
    /* A thread calls the driver for the ring, and owns it. */
    bool is_ring_owned;
    /* A thread calls the driver for the stream fences; never for long. */
    bool are_streams_owned;
    atomic_bool is_tried;   /* a fence was recorded, or failed */
    atomic_bool is_refused; /* the driver had no memory for the last one */
    /* Requested bytes that found no free block since the fences were last queried. */
    uint64_t missed_bytes;
    uint32_t first;
    uint32_t count;
    uint64_t covered_bytes; /* pool.unfenced_bytes at the start of the recording */
    uint64_t covered_count;
    /* pool.unfenced_bytes when recording a fence was last considered. */
    uint64_t considered_bytes;
    uint64_t considered_count;
    struct gc_fence ring[GC_FENCES_MAX];
    struct gc_stream_list streams[GC_STREAM_LISTS];        /* gc_pool.streams points here */
    struct gc_fence_member stream_fences[GC_STREAM_LISTS]; /* of the stream lists; handle 0: none */
};

/* Records a fence unless the ring is full or another thread owns it. False: none was recorded. May
 * call the driver; no lock is held, here and below. */
bool gc_fence_record(struct gc_context *context);
/* Queries the open fences. True if `completed` has risen. */
bool gc_fence_poll(struct gc_context *context);
/* Waits for the oldest open fence, for about limit_ns. True if `completed` has risen. False: no
 * fence is open, or the wait failed; or, with *is_under_way set, it timed out or another thread
 * owns the ring. */
bool gc_fence_wait_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way);
/* The epoch of the oldest open fence; 0: none. */
uint64_t gc_fence_oldest_epoch(struct gc_context *context);
/* Waits until no thread records or queries stream fences, so that the caller may destroy a stream.
 * The pool's lock is held; it is released during the wait. */
void gc_fence_wait_streams_locked(struct gc_context *context);
/* Records a fence in each stream in whose order memory was freed: a fence of the whole context
 * would wait for its other streams too. `only`: that stream alone, which is about to be destroyed,
 * even if it has a fence; GC_STREAM_NONE: all. */
void gc_fence_record_streams(struct gc_context *context, uint64_t only);
/* Queries the stream fences and waits for one of them, for about limit_ns. True if any has
 * completed; sets *is_under_way if one has not. */
bool gc_fence_poll_streams(struct gc_context *context, uint64_t limit_ns, bool *is_under_way);
/* Waits for all work of the contexts of an announced set. GC_DRIVER: the wait failed; the context
 * is faulted. */
enum gc_status gc_fence_wait_set(const struct gc_wait_set *set, int *driver_code) GC_CHECKED;
/* Waits for all work submitted so far, for about limit_ns in all; GC_FOREVER: unbounded.
 * GC_CAPTURING: a capture forbids it. GC_BUSY: timed out, or the driver has no bounded wait.
 * GC_DRIVER: the wait failed; the context is faulted. */
enum gc_status gc_fence_synchronize(struct gc_context *context, uint64_t limit_ns,
                                    int *driver_code) GC_CHECKED;
/* Before a capture, in which no fence can be recorded: records one for pending blocks without a
 * fence. */
void gc_fence_record_pending(struct gc_context *context);
/* The context was dropped: releases its fences. */
void gc_fence_drop(struct gc_context *context);

/* ---- timeouts ---- */

/* The longest wait of a request that is out of memory, while no memory becomes free. Work may
 * depend on the very thread that requests; the plain driver would have failed at once. */
#define GC_RECLAIM_WAIT_NS UINT64_C(30000000000)
/* The longest wait before the driver's call is made again, where the driver itself has no memory
 * for a call that is no request for memory. The plain driver would have returned the error at once.
 */
#define GC_RELIEF_WAIT_NS UINT64_C(250000000)
/* The wait for one fence before other sources of memory are tried. */
#define GC_RECLAIM_STEP_NS UINT64_C(10000000)

#endif
