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
 * another stream ends this for good, before that work is submitted; so do a second context, a peer
 * and a capture. */
#ifndef GC_WORK_H
#define GC_WORK_H

#include "core/turnstile.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_core;

#define GC_STREAM_NONE UINT64_C(0)   /* no work yet, or no stream named */
#define GC_STREAM_LEGACY UINT64_C(1) /* CU_STREAM_LEGACY, and NULL where that means it */
/* Stands for any stream that is certainly not the only one: per-thread default streams. */
#define GC_STREAM_OTHER UINT64_MAX

struct gc_work {
    _Alignas(64) atomic_uint_fast64_t submitted;
    _Alignas(64) atomic_uint_fast64_t only_stream; /* GC_STREAM_NONE: no work yet */
    atomic_bool is_single;       /* all work so far went to one stream: frees may count on it */
    atomic_bool has_left;        /* nothing handed out in that time is busy: work may go anywhere */
    atomic_bool is_conservative; /* work may be submitted unseen */
    struct gc_turnstile turnstile; /* who submits is inside for the time of the call */
};

/* Ends the time of the one stream: waits where memory was handed out in stream order that is not
 * known to be idle. False if it is not known to be idle now: the driver failed with *driver_code,
 * or 0 where a capture forbids to wait. No work may be submitted then; who submits next tries
 * again. May call the driver; no lock may be held. */
bool gc_work_leave_single(struct gc_core *core, int *driver_code);

/* Before work is submitted to `stream` (a GC_STREAM_ value or a handle). False: it must not be. */
static inline bool gc_work_begin(struct gc_core *core, struct gc_work *work, uint64_t stream,
                                 int *driver_code)
{
    /* Acquire: pairs with the release in gc_work_leave_single. While another thread leaves, work
     * for the one stream goes on and all other work waits too. */
    if (atomic_load_explicit(&work->has_left, memory_order_acquire))
        return true;
    uint64_t only = GC_STREAM_NONE;
    const bool is_only =
        atomic_compare_exchange_strong_explicit(&work->only_stream, &only, stream,
                                                memory_order_relaxed, memory_order_relaxed) ||
        only == stream;
    return (is_only && stream != GC_STREAM_OTHER) || gc_work_leave_single(core, driver_code);
}

/* After the driver took it, successfully or not. */
static inline void gc_work_end(struct gc_work *work)
{
    /* Release: pairs with the acquire in gc_work_stamp of a thread that frees what this work uses;
     * its own synchronisation with us orders it anyhow. */
    atomic_fetch_add_explicit(&work->submitted, 1, memory_order_release);
}

/* All work in the count is with the driver already. */
static inline uint64_t gc_work_count(struct gc_work *work)
{
    /* Acquire: pairs with the release in gc_work_end. */
    return atomic_load_explicit(&work->submitted, memory_order_acquire);
}

/* Whether all work counted so far went to `stream`. Asked after a count was read, it holds for all
 * work in that count. */
static inline bool gc_work_is_only_stream(struct gc_work *work, uint64_t stream)
{
    return atomic_load_explicit(&work->is_single, memory_order_acquire) &&
           atomic_load_explicit(&work->only_stream, memory_order_relaxed) == stream;
}

/* What a block that is freed now is stamped with. */
static inline uint64_t gc_work_stamp(struct gc_work *work)
{
    if (atomic_load_explicit(&work->is_conservative, memory_order_relaxed))
        return atomic_fetch_add_explicit(&work->submitted, 1, memory_order_acq_rel) + 1;
    return atomic_load_explicit(&work->submitted, memory_order_seq_cst);
}

#endif
