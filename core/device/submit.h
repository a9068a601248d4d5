/* Counts of submitted work, from which core derives without the driver that freed memory is idle.
 *
 * `submitted` counts, for the whole process, the calls that may have queued work. A call is counted
 * after the driver took the work and before the program learns of it. So a thread that frees a
 * block afterwards reads a count, the block's epoch, that includes all work that may use the block;
 * and a fence recorded after the count was read covers all work in the count. A context's
 * `completed` is the highest count known to be done there: a block's work has completed once its
 * epoch <= `completed`.
 *
 * Single-stream mode: while all work of the process goes to one stream of one context, new work is
 * ordered behind old work, and a freed block may be reused at once. The first work for another
 * stream ends the mode permanently; so do a second context, a peer, a capture, and anything that
 * may access memory outside all streams.
 *
 * The end of the mode does not wait. Before the first work after a free in single-stream mode, a
 * fence is recorded in the one stream (struct gc_driver, stream_record): it covers the work before
 * the free, for which a plain free would have waited, and none of the later work. After the end,
 * work for other streams is made to wait for that fence until it is known to be completed. */
#ifndef GC_SUBMIT_H
#define GC_SUBMIT_H

#include "core/base/gate.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_context;
struct gc_core;

/* A stream's value is its handle, or one of these: */
#define GC_STREAM_NONE UINT64_C(0)       /* no work yet, or no stream named */
#define GC_STREAM_LEGACY UINT64_C(1)     /* CU_STREAM_LEGACY, and NULL where NULL is that stream */
#define GC_STREAM_PER_THREAD UINT64_C(2) /* CU_STREAM_PER_THREAD: one per thread */
#define GC_STREAM_OTHER UINT64_MAX       /* several or unknown streams */
/* Set in a stream's value: the work is not ordered behind the stream's earlier work. */
#define GC_STREAM_UNORDERED (UINT64_C(1) << 63)
/* In `quick_stream`: the next work needs gc_submit_begin, in any stream. */
#define GC_STREAM_CHECK (UINT64_MAX - 1)
/* In `reuse_blocked`: work went to several streams, or may have. */
#define GC_SUBMIT_MULTI_STREAM (1U << 31)

struct gc_submissions {
    _Alignas(64) atomic_uint_fast64_t submitted;
    /* work for this stream needs no gc_submit_begin */
    _Alignas(64) atomic_uint_fast64_t quick_stream;
    /* The mode has ended and all memory reused in it is idle: any stream may get work. */
    atomic_bool multi_stream;
    /* Work may be submitted without being counted. */
    atomic_bool is_conservative;
    atomic_uint_fast64_t only_stream; /* GC_STREAM_NONE: no work yet */
    /* 0: all work so far went to one stream, and frees may rely on it. Else GC_SUBMIT_MULTI_STREAM,
     * and the number of threads that may be loading code that accesses memory outside all streams:
     * no block is reused in stream order meanwhile. */
    atomic_uint reuse_blocked;
    /* The context of the memory freed last in the order of the single stream. */
    _Atomic(struct gc_context *) freed_context;
    /* Blocks whose copies and fills are complete when their calls return. */
    atomic_uint synchronous_count;
    _Alignas(64) struct gc_gate gate; /* a thread that submits work is inside during the call */
    /* The fence in the single stream. One thread at a time records it; waits do not release it. */
    struct {
        atomic_bool is_locked;
        atomic_bool is_waited_for; /* the mode has ended: other work waits for the fence */
        _Atomic(struct gc_context *) context; /* NULL: no fence */
        uint64_t fence;
        atomic_uint_fast64_t covered; /* all work counted up to here is before the fence */
    } stream_fence;
};

/* Ends single-stream mode. Waits only if the driver has no fences. False: work for other streams
 * must not be submitted. *driver_code is then the driver's error, or 0 if a capture forbids the
 * wait; the next thread that submits retries. May call the driver; no lock is held. */
bool gc_submit_leave_single_stream(struct gc_core *core, int *driver_code);
/* Ends the mode for memory that becomes accessible outside all streams (exported memory, network
 * cards): waits on the host until all blocks reused in stream order are idle. */
bool gc_submit_end_single_stream(struct gc_core *core, int *driver_code);

/* gc_submit_begin_load: before code is loaded, followed by gc_submit_wait_reused.
 * gc_submit_end_load: after the code is loaded. */
static inline void gc_submit_begin_load(struct gc_submissions *work)
{
    /* Sequentially consistent: the partner is gc_context_may_reuse. */
    atomic_fetch_add_explicit(&work->reuse_blocked, 1, memory_order_seq_cst);
}
static inline void gc_submit_end_load(struct gc_submissions *work)
{
    atomic_fetch_sub_explicit(&work->reuse_blocked, 1, memory_order_release);
}

/* Waits on the host until all blocks reused in stream order are idle; the mode continues. False:
 * not known to be idle. */
bool gc_submit_wait_reused(struct gc_core *core);
/* As gc_submit_wait_reused, for at most 10 ms: for memory whose release can be postponed. */
bool gc_submit_try_wait_reused(struct gc_core *core);
/* As gc_submit_wait_reused, for about limit_ns. */
bool gc_submit_wait_reused_for(struct gc_core *core, uint64_t limit_ns);
/* The stream is about to be destroyed. Its handle may be reused for another stream, which is not
 * ordered behind this stream's queued work. */
void gc_submit_close_stream(struct gc_core *core, uint64_t stream);

/* Before work is submitted to `stream`. GC_STREAM_NONE: only ends single-stream mode. False: the
 * work must not be submitted. */
bool gc_submit_begin(struct gc_core *core, uint64_t stream, int *driver_code);

/* Memory of the context that is not known to be idle was freed in the order of the single stream:
 * requests a fence in the stream before its next work. */
static inline void gc_submit_request_fence(struct gc_submissions *work, struct gc_context *context)
{
    /* Sequentially consistent: the partner is gc_submit_begin. Either that call sees freed_context,
     * or its store of quick_stream precedes this one. */
    atomic_store_explicit(&work->freed_context, context, memory_order_seq_cst);
    atomic_store_explicit(&work->quick_stream, GC_STREAM_CHECK, memory_order_seq_cst);
}

/* Call after the driver's call that submits the work, whether or not that succeeded. */
static inline void gc_submit_end(struct gc_submissions *work)
{
    /* Release: pairs with the acquire in gc_submit_epoch_of_free of a thread that frees a block
     * this work uses; the program's own synchronisation orders the two as well. */
    atomic_fetch_add_explicit(&work->submitted, 1, memory_order_release);
}

/* The count of work; the driver has all of that work. */
static inline uint64_t gc_submit_count(struct gc_submissions *work)
{
    /* Acquire: pairs with the release in gc_submit_end. */
    return atomic_load_explicit(&work->submitted, memory_order_acquire);
}

/* Whether all work counted so far went to `stream`. If gc_submit_count was read before, the result
 * holds for all work in that count. */
static inline bool gc_submit_is_only_stream(struct gc_submissions *work, uint64_t stream)
{
    return (atomic_load_explicit(&work->reuse_blocked, memory_order_acquire) &
            GC_SUBMIT_MULTI_STREAM) == 0 &&
           atomic_load_explicit(&work->only_stream, memory_order_relaxed) == stream;
}

/* The epoch of a block that is freed now. */
static inline uint64_t gc_submit_epoch_of_free(struct gc_submissions *work)
{
    if (atomic_load_explicit(&work->is_conservative, memory_order_relaxed))
        return atomic_fetch_add_explicit(&work->submitted, 1, memory_order_acq_rel) + 1;
    return atomic_load_explicit(&work->submitted, memory_order_seq_cst);
}

#endif
