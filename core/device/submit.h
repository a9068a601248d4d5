/* The work a program submits, counted so that freed memory is known to be idle without asking the
 * driver.
 *
 * `submitted` counts, for the whole process, calls that may have queued work. A call adds one after
 * the driver took the work and before the program hears of it. So whoever frees a block afterwards
 * reads a count (its stamp) that includes all work that may use it; and a fence that is recorded
 * after the count was read covers all work counted in it. A context's `retired` is the highest
 * count known to be done there: a block is idle once stamp <= retired.
 *
 * One stream: while all work of the process goes to one stream of one context, new work is ordered
 * behind the old by construction, and a freed block may be handed out at once. The first work for
 * another stream ends this for good; so do a second context, a peer, a capture, and whatever may
 * reach memory outside all streams.
 *
 * The end of that time does not wait. Before the first work that follows such a free, the one
 * stream is marked (struct gc_driver, stream_record): the mark covers the work before the free, for
 * which a plain free would have waited, and none of the work behind it. From the end on, work for
 * other streams is made to follow the mark until that is known to be done. */
#ifndef GC_SUBMIT_H
#define GC_SUBMIT_H

#include "core/base/gate.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_context;
struct gc_core;

/* Streams, as their handles, and: */
#define GC_STREAM_NONE UINT64_C(0)       /* no work yet, or no stream named */
#define GC_STREAM_LEGACY UINT64_C(1)     /* CU_STREAM_LEGACY, and NULL where that means it */
#define GC_STREAM_PER_THREAD UINT64_C(2) /* CU_STREAM_PER_THREAD: another one in each thread */
#define GC_STREAM_OTHER UINT64_MAX       /* several, or unknown ones */
/* Set in the name of a stream for work that is not ordered behind the stream's earlier work. */
#define GC_STREAM_UNORDERED (UINT64_C(1) << 63)
/* In `quick_stream`: the next work is to be looked at, whatever its stream. */
#define GC_STREAM_CHECK (UINT64_MAX - 1)
/* In `hindered`: work went to several streams, or may have. */
#define GC_SUBMIT_MULTI_STREAM (1U << 31)

struct gc_submissions {
    _Alignas(64) atomic_uint_fast64_t submitted;
    _Alignas(64) atomic_uint_fast64_t quick_stream; /* work for this one needs no look */
    atomic_bool multi_stream;    /* nothing handed out in that time is busy: work may go anywhere */
    atomic_bool is_conservative; /* work may be submitted unseen */
    atomic_uint_fast64_t only_stream; /* GC_STREAM_NONE: no work yet */
    /* 0: all work so far went to one stream, and frees may count on it. GC_SUBMIT_MULTI_STREAM, and
     * how many threads may be loading code that reaches memory outside all streams: nothing is
     * reused in the order of the one stream meanwhile. */
    atomic_uint reuse_blocked;
    /* Of the memory that was freed in the order of the one stream. */
    _Atomic(struct gc_context *) freed_context;
    atomic_uint synchronous_count; /* blocks of which copies and fills are done when they return */
    _Alignas(64) struct gc_gate gate; /* who submits is inside for the time of the call */
    /* The mark in the one stream, made by one thread at a time; it stays when it was waited for. */
    struct {
        atomic_bool is_locked;
        atomic_bool is_awaited;               /* the time is over: other work follows the mark */
        _Atomic(struct gc_context *) context; /* NULL: there is none */
        uint64_t fence;
        atomic_uint_fast64_t covered; /* all work counted up to here is before it */
    } stream_fence;
};

/* Ends the time of the one stream. Waits only where the driver has no marks. False if work for
 * other streams must not be submitted: the driver failed with *driver_code, or 0 where a capture
 * forbids to wait; who submits next tries again. May call the driver; no lock may be held. */
bool gc_submit_leave_single_stream(struct gc_core *core, int *driver_code);
/* The same for what reaches memory outside all streams (exported memory, network cards): waits on
 * the host until nothing that was handed out in the order of the one stream is busy. */
bool gc_submit_end_single_stream(struct gc_core *core, int *driver_code);

/* A thread is about to load code, before gc_submit_wait_reused; it has. */
static inline void gc_submit_begin_load(struct gc_submissions *work)
{
    /* Sequentially consistent: the partner is gc_context_may_reuse. */
    atomic_fetch_add_explicit(&work->reuse_blocked, 1, memory_order_seq_cst);
}
static inline void gc_submit_end_load(struct gc_submissions *work)
{
    atomic_fetch_sub_explicit(&work->reuse_blocked, 1, memory_order_release);
}

/* Waits on the host until what was handed out in the order of the one stream is idle; the time goes
 * on. False: it is not known to be. */
bool gc_submit_wait_reused(struct gc_core *core);
/* The same, but hardly waits: for memory that need not go back now. */
bool gc_submit_try_wait_reused(struct gc_core *core);
/* The stream is about to be destroyed; its handle may come back for another one, which is not
 * ordered behind what this one has queued. */
void gc_submit_close_stream(struct gc_core *core, uint64_t stream);

/* Before work is submitted to `stream`, GC_STREAM_NONE: to none now. False: it must not be. */
bool gc_submit_begin(struct gc_core *core, uint64_t stream, int *driver_code);

/* Memory of the context that is not known to be idle was freed in the order of the one stream,
 * which is to be marked before its next work. */
static inline void gc_submit_request_fence(struct gc_submissions *work, struct gc_context *context)
{
    /* Sequentially consistent: the partner is gc_submit_begin, which sees the free, or this comes
     * after it. */
    atomic_store_explicit(&work->freed_context, context, memory_order_seq_cst);
    atomic_store_explicit(&work->quick_stream, GC_STREAM_CHECK, memory_order_seq_cst);
}

/* After the driver took it, successfully or not. */
static inline void gc_submit_end(struct gc_submissions *work)
{
    /* Release: pairs with the acquire in gc_submit_free_epoch of a thread that frees what this work
     * uses; its own synchronisation with us orders it anyhow. */
    atomic_fetch_add_explicit(&work->submitted, 1, memory_order_release);
}

/* All work in the count is with the driver already. */
static inline uint64_t gc_submit_count(struct gc_submissions *work)
{
    /* Acquire: pairs with the release in gc_submit_end. */
    return atomic_load_explicit(&work->submitted, memory_order_acquire);
}

/* Whether all work counted so far went to `stream`. Asked after a count was read, it holds for all
 * work in that count. */
static inline bool gc_submit_is_only_stream(struct gc_submissions *work, uint64_t stream)
{
    return (atomic_load_explicit(&work->reuse_blocked, memory_order_acquire) &
            GC_SUBMIT_MULTI_STREAM) == 0 &&
           atomic_load_explicit(&work->only_stream, memory_order_relaxed) == stream;
}

/* What a block that is freed now is stamped with. */
static inline uint64_t gc_submit_free_epoch(struct gc_submissions *work)
{
    if (atomic_load_explicit(&work->is_conservative, memory_order_relaxed))
        return atomic_fetch_add_explicit(&work->submitted, 1, memory_order_acq_rel) + 1;
    return atomic_load_explicit(&work->submitted, memory_order_seq_cst);
}

#endif
