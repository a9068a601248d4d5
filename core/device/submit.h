/* Submitted work, from which core derives without the driver that freed memory is idle: epoch-based
 * reclamation, where fences and not submissions raise the epoch.
 *
 * `submitted` is the last epoch in which any thread of the process may have queued work. A thread
 * raises it to the epoch that it reads after the driver took the work and before the program learns
 * of it: one store for each epoch. A thread that frees a block afterwards reads the block's epoch
 * there. A fence first closes the current epoch: it counts one up, then makes every thread's
 * earlier loads and stores take place (gc_submit_close_epoch). All work of the closed epochs is
 * then in the driver's hands, so a fence recorded afterwards covers it. A context's `completed` is
 * the highest epoch known to be done there: a block's work has completed once its epoch <=
 * `completed`. The room's README has the proof, tests/model/test_submit_model.c checks it.
 *
 * A thread that submits is inside the gate from before the driver's call until the epoch is raised.
 * It counts itself in a line of its own (struct gc_submitter), so that no submission writes memory
 * that another thread's reads.
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
#include <stddef.h>
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

/* Flags in `epoch`: no epoch is as high, so that a submission that tests its epoch need not test
 * them. FENCED: the kernel refuses barriers, and each thread that submits makes a fence of its own.
 * LISTED: the platform notes each submission. */
#define GC_SUBMIT_FENCED (UINT64_C(1) << 63)
#define GC_SUBMIT_LISTED (UINT64_C(1) << 62)
#define GC_SUBMIT_FLAGS (GC_SUBMIT_FENCED | GC_SUBMIT_LISTED)

struct gc_submissions {
    /* One line, which each submission reads. Fences write it, the first submission after a fence,
     * and in single-stream mode the first free after a submission. */
    _Alignas(64) atomic_uint_fast64_t epoch;
    atomic_uint_fast64_t submitted;
    /* work for this stream needs no gc_submit_begin */
    atomic_uint_fast64_t quick_stream;
    /* A thread that submits work is inside during the call; `inside` counts the threads without a
     * line of their own. */
    struct gc_gate gate;
    /* Blocks whose copies and fills are complete when their calls return. */
    atomic_uint synchronous_count;
    /* The mode has ended and all memory reused in it is idle: any stream may get work. */
    atomic_bool multi_stream;
    /* Work may be submitted without being counted. */
    atomic_bool is_conservative;
    atomic_bool has_several_contexts; /* more than one was ever added */
    /* GC_SUBMIT_FENCED is set, and no thread is left that does not know it. */
    atomic_bool is_fenced;
    _Alignas(64) atomic_uint_fast64_t only_stream; /* GC_STREAM_NONE: no work yet */
    /* 0: all work so far went to one stream, and frees may rely on it. Else GC_SUBMIT_MULTI_STREAM,
     * and the number of threads that may be loading code that accesses memory outside all streams:
     * no block is reused in stream order meanwhile. */
    atomic_uint reuse_blocked;
    /* The context of the memory freed last in the order of the single stream. */
    _Atomic(struct gc_context *) freed_context;
    _Atomic(struct gc_submitter_page *) pages; /* the lines of all threads; the list only grows */
    atomic_uint line_count;                    /* lines in use */
    /* The fence in the single stream. One thread at a time records it; waits do not release it. */
    struct {
        atomic_bool is_locked;
        atomic_bool is_waited_for; /* the mode has ended: other work waits for the fence */
        _Atomic(struct gc_context *) context; /* NULL: no fence */
        uint64_t fence;
        atomic_uint_fast64_t covered; /* all work of the epochs up to this is before the fence */
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
    /* Sequentially consistent: the partner is gc_submit_begin. Either that call sees freed_context
     * and the context's reused_epoch, or its store of quick_stream precedes the load and the store
     * of it here. */
    if (atomic_load_explicit(&work->freed_context, memory_order_seq_cst) != context)
        atomic_store_explicit(&work->freed_context, context, memory_order_seq_cst);
    if (atomic_load_explicit(&work->quick_stream, memory_order_seq_cst) != GC_STREAM_CHECK)
        atomic_store_explicit(&work->quick_stream, GC_STREAM_CHECK, memory_order_seq_cst);
}

/* ---- epochs ---- */

void gc_submitter_raise(struct gc_submissions *work);

/* After the driver's call that submits the work, for a thread with a line: whether work of the
 * current epoch is counted, and no flag is set. */
static inline bool gc_submit_is_counted(const struct gc_submissions *work)
{
    /* For the compiler only: the driver's call comes before the load. The processor's part is the
     * barrier in gc_submit_close_epoch, or the fence in gc_submitter_raise. */
    atomic_signal_fence(memory_order_seq_cst);
    const uint64_t epoch = atomic_load_explicit(&work->epoch, memory_order_relaxed);
    return __builtin_expect(atomic_load_explicit(&work->submitted, memory_order_relaxed) >= epoch,
                            1);
}

/* From now on gc_submit_is_counted is always false. */
static inline void gc_submit_set_listed(struct gc_submissions *work)
{
    atomic_fetch_or_explicit(&work->epoch, GC_SUBMIT_LISTED, memory_order_relaxed);
}

/* Call after the driver's call that submits the work, whether or not that succeeded. For a thread
 * with a line: gc_submitter_end. */
static inline void gc_submit_end(struct gc_submissions *work)
{
    /* The partner is the addition in gc_submit_open_epoch: either the driver has the work before a
     * fence is recorded, or the work gets a later epoch. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!gc_submit_is_counted(work))
        gc_submitter_raise(work);
}

/* Closes the current epoch, and returns it: work counted from now on has a later one. Not yet known
 * is whether the driver has all work of the closed epochs: call gc_submitter_settle before a fence
 * is recorded, and before anything is read that such work's thread had written. Calls nothing. */
static inline uint64_t gc_submit_open_epoch(struct gc_submissions *work)
{
    return atomic_fetch_add_explicit(&work->epoch, 1, memory_order_seq_cst) & ~GC_SUBMIT_FLAGS;
}

/* As gc_submit_open_epoch; also, blocks freed from now on have a later epoch than the returned one,
 * even if no work is submitted. */
static inline uint64_t gc_submit_advance(struct gc_submissions *work)
{
    const uint64_t epoch = gc_submit_open_epoch(work);
    gc_submit_end(work);
    return epoch;
}

/* On return, all that a thread did before it read an epoch or a count that is closed now has taken
 * place, and the caller sees it: the driver has the work. A system call; no lock may be held. */
void gc_submitter_barrier(struct gc_submissions *work);
/* The same for threads that counted work: without the system call where the caller alone has a
 * line. */
void gc_submitter_settle(struct gc_submissions *work);

/* Closes the current epoch, and returns it; the driver has all work of the closed epochs. Only this
 * way, or with the two functions above, an epoch may become a context's `completed`. */
static inline uint64_t gc_submit_close_epoch(struct gc_submissions *work)
{
    const uint64_t epoch = gc_submit_open_epoch(work);
    gc_submitter_settle(work);
    return epoch;
}

/* Whether all work counted so far went to `stream`. If gc_submit_close_epoch was called before, the
 * result holds for all work of that epoch. */
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
        gc_submit_end(work); /* work that was not counted came before the free */
    return atomic_load_explicit(&work->submitted, memory_order_seq_cst);
}

/* ---- inside the gate ---- */

/* A thread's line: it alone writes `inside`. In memory that the kernel wipes on fork. */
struct gc_submitter {
    _Alignas(64) atomic_uint inside; /* how often: a signal handler may submit, too */
    atomic_bool is_used;
    struct gc_submissions *work; /* NULL in a forked child */
    atomic_uintptr_t owner;      /* pthread_self() */
};

/* For gc_core_create and gc_core_destroy. */
void gc_submitters_init(struct gc_core *core);
void gc_submitters_fini(struct gc_core *core);

/* A line for the calling thread; NULL: there is none, and it passes NULL below. Takes no lock. */
struct gc_submitter *gc_submitter_create(struct gc_core *core);
/* At the thread's end. */
void gc_submitter_destroy(struct gc_submitter *line);

/* Not atomic: a signal handler that submits leaves the count as it finds it. */
static inline void gc_submitter_move(struct gc_submitter *line, unsigned by)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    /* As below, in one instruction; a store is a release. */
    __asm__ volatile("addl %1, %0" : "+m"(line->inside) : "ir"(by) : "memory", "cc");
#else
    /* Release: pairs with the acquire in gc_submitter_drain_gate. */
    atomic_store_explicit(&line->inside,
                          atomic_load_explicit(&line->inside, memory_order_relaxed) + by,
                          memory_order_release);
#endif
}

/* Enters a gate that is open; false: the thread is outside. */
static inline __attribute__((always_inline)) bool gc_submitter_enter_open(
    const struct gc_submissions *work, struct gc_submitter *line)
{
    gc_submitter_move(line, 1);
    /* For the compiler only; the processor's barrier is in gc_submitter_close_gate. */
    atomic_signal_fence(memory_order_seq_cst);
    /* Acquire: pairs with gc_gate_set, after memory was moved. */
    const uint32_t word = atomic_load_explicit(&work->gate.word, memory_order_acquire);
    if (__builtin_expect((word & (GC_GATE_MODES | GC_GATE_FENCED)) == 0, 1))
        return true;
    gc_submitter_move(line, -1U);
    return false;
}
_Static_assert(GC_GATE_OPEN == 0, "tested with a bit");

/* As gc_submit_end. */
static inline void gc_submitter_end(struct gc_submissions *work, const struct gc_submitter *line)
{
    if (line == NULL)
        gc_submit_end(work);
    else if (!gc_submit_is_counted(work))
        gc_submitter_raise(work);
}

/* As gc_gate_try_enter. */
enum gc_gate_mode gc_submitter_try_enter(struct gc_submissions *work, struct gc_submitter *line);

static inline void gc_submitter_leave(struct gc_submissions *work, struct gc_submitter *line)
{
    if (line != NULL)
        gc_submitter_move(line, -1U);
    else
        gc_gate_leave(&work->gate);
}

/* Closes the gate: a thread that enters from now on finds it closed. */
void gc_submitter_close_gate(struct gc_submissions *work);
/* As gc_gate_drain. */
bool gc_submitter_drain_gate(struct gc_submissions *work, uint32_t timeout_ms);

#endif
