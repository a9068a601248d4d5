/* Fences: marks in the work of a context and its peers, by which core learns how far that work has
 * come without waiting for it. A context has a short ring of open ones, oldest first, guarded by
 * its pool's lock; the driver is asked outside it, by one thread at a time.
 *
 * A fence's mark is the count of work (work.h) read before the driver was asked: when the fence has
 * completed, all work counted up to the mark is done and the context's `retired` rises to it. While
 * a context of the set captures, nothing is recorded or waited for. */
#ifndef GC_FENCE_H
#define GC_FENCE_H

#include "core/base/status.h"
#include "core/pool/pending.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_PEER_MAX 63
#define GC_FENCES_MAX 4

struct gc_context;
struct gc_wait_set;

struct gc_fence_member {
    struct gc_context *context;
    uint64_t handle; /* the driver's */
};

struct gc_fence {
    uint64_t epoch;
    uint32_t count; /* of members: the context itself and its peers */
    struct gc_fence_member members[1 + GC_PEER_MAX];
};

struct gc_fences {
    bool is_asking;        /* a thread is at the driver; the ring is its own */
    bool is_at_streams;    /* a thread is at the driver with the lists' marks; never for long */
    bool is_tried;         /* one was recorded, or could not be */
    uint64_t missed_bytes; /* asked for in vain since fences were last asked */
    uint32_t first;
    uint32_t count;
    uint64_t covered_bytes; /* of the pool's unfenced memory, by a fence recorded now */
    uint64_t covered_count;
    uint64_t considered_bytes; /* of it, when a fence for it was last thought of */
    uint64_t considered_count;
    struct gc_fence ring[GC_FENCES_MAX];
    struct gc_stream_list streams[GC_STREAM_LISTS];        /* the pool's */
    struct gc_fence_member stream_fences[GC_STREAM_LISTS]; /* of the pool's lists; handle 0: none */
};

/* Records a fence unless the ring is full or another thread is at it. False if none was recorded.
 * May call the driver; no lock may be held, here and below. */
bool gc_fence_record(struct gc_context *context);
/* Asks how far the open fences have come. True if `retired` has risen. */
bool gc_fence_poll(struct gc_context *context);
/* Waits for the oldest open fence, for about limit_ns. True if `retired` has risen; false if there
 * is none, the wait failed, or, with *is_under_way set, it came to its end or another thread is at
 * it. */
bool gc_fence_wait_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way);
/* The mark of the oldest open fence; 0: there is none. */
uint64_t gc_fence_oldest_epoch(struct gc_context *context);
/* No thread is about to mark a stream, or to ask for a mark: one that is destroyed is not touched
 * after this. The pool's lock is held, and released meanwhile. */
void gc_fence_wait_streams_locked(struct gc_context *context);
/* Marks the streams in whose order memory was freed, each by itself: for memory that a fence of the
 * whole context does not free, since other streams of it go on. `only`: that stream, which is about
 * to be destroyed, even if it is marked already; GC_STREAM_NONE: all. */
void gc_fence_record_streams(struct gc_context *context, uint64_t only);
/* Asks how far these have come, and waits for one, for about limit_ns. True if any was passed;
 * *is_under_way is set if one was not. */
bool gc_fence_poll_streams(struct gc_context *context, uint64_t limit_ns, bool *is_under_way);
/* Waits for all work of the contexts of the set, which is announced. GC_DRIVER: the wait failed,
 * the context is suspect. */
enum gc_status gc_fence_wait_set(const struct gc_wait_set *set, int *driver_code) GC_CHECKED;
/* Waits for all work submitted so far, for about limit_ns in each context; GC_FOREVER: no end.
 * GC_CAPTURING: a capture forbids it. GC_BUSY: some goes on, or it cannot be waited for with an
 * end. GC_DRIVER: the wait failed, the context is suspect. */
enum gc_status gc_fence_synchronize(struct gc_context *context, uint64_t limit_ns,
                                    int *driver_code) GC_CHECKED;
/* Before a capture, in which none can be recorded: a fence for what is pending and has none. */
void gc_fence_mark_pending(struct gc_context *context);
/* The context was dropped: its open fences are forgotten. */
void gc_fence_drop(struct gc_context *context);

/* ---- patience ---- */

/* How long a request that is short waits while nothing becomes free. Work may wait for the very
 * thread that asks, which a plain driver would have refused. */
#define GC_RECLAIM_WAIT_NS UINT64_C(30000000000)
/* And how long one fence is waited for before something else is looked at. */
#define GC_RECLAIM_STEP_NS UINT64_C(10000000)

#endif
