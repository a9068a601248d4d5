/* Counts the work that the program submits (core/device/submit.h). A wrapper that submits names the
 * stream before the driver call, and the memory that the work may reach (a word of reach.h), and
 * counts after it:
 *
 *     CUresult result = GC_SUBMIT_CALL_IF_OPEN(stream, is_per_thread, ANY, GC_CALL(device, cuX,
 * …));
 *
 * A wrapper beneath another one counts, too. The library's own work is not counted: it uses no
 * memory of the program. */
#ifndef GC_SHIM_SUBMIT_H
#define GC_SHIM_SUBMIT_H

#include "core/device/submit.h"
#include "shim/account/hot.h"
#include "shim/driver/stream_list.h"
#include "shim/life/life.h"
#include "shim/wrap/reach.h"

/* The stream's handle without GC_STREAM_UNORDERED. */
static inline CUstream gc_shim_submit_stream(CUstream stream)
{
    return (CUstream)((uintptr_t)stream & ~GC_STREAM_UNORDERED); /* NOLINT: handles are integers */
}

/* The stream a call names, as a key of core/device/submit.h. `is_per_thread`: an entry point of the
 * flavour in which NULL is the thread's own stream. */
static inline uint64_t gc_shim_submit_key(CUstream named, bool is_per_thread)
{
    const uint64_t unordered = (uintptr_t)named & GC_STREAM_UNORDERED;
    CUstream stream = gc_shim_submit_stream(named);

    if (stream == CU_STREAM_PER_THREAD || (stream == NULL && is_per_thread)) {
        if (!gc_thread.has_own_stream)
            gc_stream_list_add_own();
        return GC_STREAM_PER_THREAD | unordered;
    }
    return (stream == NULL ? GC_STREAM_LEGACY : (uintptr_t)stream) | unordered;
}

/* The slow path of gc_submit_begin: CUDA_SUCCESS, or the error that the call must return. */
CUresult gc_shim_submit_begin_slow(uint64_t key);

/* *work: NULL where nothing is counted. Any result but CUDA_SUCCESS: the driver could not wait
 * until the memory that the work might use is idle; submit nothing. */
static inline CUresult gc_shim_submit_begin(uint64_t key, struct gc_submissions **work)
{
    *work = gc_life_submissions();
    /* The fast path of gc_submit_begin, which handles all other cases. Sequentially consistent: the
     * partner is gc_submit_request_fence. */
    if (*work != NULL && !atomic_load_explicit(&(*work)->multi_stream, memory_order_acquire) &&
        atomic_load_explicit(&(*work)->quick_stream, memory_order_seq_cst) != key)
        return gc_shim_submit_begin_slow(key);
    return CUDA_SUCCESS;
}

/* The return address of a wrapper, which identifies the calling tenant: a paused one waits. Use it
 * in wrappers only. */
#define GC_CALLER __builtin_return_address(0)

/* For a gate that is not open: waits while the gate is closed or the calling tenant's memory is
 * out. On return the thread is inside the gate. */
void gc_shim_submit_enter_gate_slow(struct gc_submissions *work, enum gc_gate_mode mode,
                                    const void *caller);

/* The thread's line for core; NULL: it has none. */
static inline struct gc_submitter *gc_shim_submitter(void)
{
    return gc_thread.submitter != &gc_shim_no_submitter ? gc_thread.submitter : NULL;
}

/* Enters the gate; the thread is inside until gc_shim_submit_leave. Its line is the same then:
 * gc_thread.submitter changes outside the gate only. */
static inline void gc_shim_submit_enter_gate(struct gc_submissions *work, const void *caller)
{
    if (__builtin_expect(!gc_thread.has_sought_submitter, 0))
        gc_hot_prepare_submitter();
    const enum gc_gate_mode mode = gc_submitter_try_enter(work, gc_shim_submitter());

    if (__builtin_expect(mode != GC_GATE_OPEN, 0))
        gc_shim_submit_enter_gate_slow(work, mode, caller);
}

/* Whether the memory of a tenant may be out: valid while the thread is inside the gate, else stale
 * at once. */
static inline bool gc_shim_submit_is_guarded(const struct gc_submissions *work)
{
    return __builtin_expect(gc_gate_mode_of(gc_gate_read(&work->gate)) != GC_GATE_OPEN, 0);
}

/* Inside the gate: while the memory at `to` or `from` is of a tenant whose memory is out, leaves
 * the gate, waits until the tenant is resumed, and enters again. The caller holds no lock, at any
 * depth of wrappers. */
void gc_shim_submit_wait_memory(struct gc_submissions *work, uint64_t to, uint64_t from);

/* Begins a submission and enters the gate; the thread is inside until gc_shim_submit_end. Where
 * *work is NULL the doorbell is not read: a forked child has no ledger. */
CUresult gc_shim_submit_enter(uint64_t key, struct gc_submissions **work, const void *caller);

/* Leaves the gate where nothing was submitted. */
static inline void gc_shim_submit_leave(struct gc_submissions *work)
{
    if (work != NULL)
        gc_submitter_leave(work, gc_shim_submitter());
}

/* The driver has the work in the stream `key`, or has refused it. */
static inline void gc_shim_submit_end(struct gc_submissions *work, uint64_t key)
{
    if (work != NULL) {
        if (__builtin_expect(gc_stream_list_is_needed(), 0))
            gc_stream_list_count(key);
        gc_submitter_end(work, gc_shim_submitter());
    }
    gc_shim_submit_leave(work);
}

/* A call that reads the pool's memory at `address` and queues no work. `call` is evaluated once the
 * memory is present: after a wait while that memory is swapped out. */
#define GC_CALL_WHEN_PRESENT(address, call)                                                        \
    ({                                                                                             \
        struct gc_submissions *held_ = gc_life_submissions();                                      \
        if (held_ != NULL) {                                                                       \
            gc_shim_submit_enter_gate(held_, GC_CALLER);                                           \
            gc_shim_submit_wait_memory(held_, (address), 0);                                       \
        }                                                                                          \
        CUresult answer_ = (call);                                                                 \
        gc_shim_submit_leave(held_);                                                               \
        answer_;                                                                                   \
    })

/* Counts `call` as work submitted to the stream. `call` is evaluated last, and only where work may
 * be submitted; otherwise the value is the error for the program. */
#define GC_SUBMIT_CALL_IF_OPEN(stream, is_per_thread, reach, call)                                 \
    ({                                                                                             \
        struct gc_submissions *work_;                                                              \
        const uint64_t key_ = gc_shim_submit_key((stream), (is_per_thread));                       \
        CUresult submitted_ = gc_shim_submit_enter(key_, &work_, GC_CALLER);                       \
        if (submitted_ == CUDA_SUCCESS) {                                                          \
            GC_SUBMIT_REACH_##reach(work_, (stream));                                              \
            submitted_ = (call);                                                                   \
            gc_shim_submit_end(work_, key_);                                                       \
        }                                                                                          \
        submitted_;                                                                                \
    })

#endif
