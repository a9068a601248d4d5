/* Calls that only submit work: kernels, copies, fills and the rest of the SUBMIT rows, from which
 * all these wrappers are made. In a process with one context each call is only counted.
 *
 * "Synchronous" calls are counted like the others: a fill or a copy within the device is not done
 * when its call returns.
 *
 * With several contexts the owners of the memory that the work may reach are noted (reach.h). While
 * the memory of a tenant is out the addresses that the call names are checked too: work on the
 * tenant's memory waits. */
#include "shim/account/tenant.h"
#include "shim/driver/capture_guard.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/reach.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

#include "core/base/clock.h"
#include "core/device/wait.h"
#include "core/pause/pause.h"

__attribute__((cold)) CUresult gc_shim_submit_begin_slow(uint64_t key)
{
    int driver_code = 0;

    gc_shim_enter(GC_API_COUNT);
    const bool may = gc_submit_begin(gc_shim.core, key, &driver_code);
    gc_shim_leave();
    if (may)
        return CUDA_SUCCESS;
    return driver_code != 0 ? (CUresult)driver_code : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Serves the requests of other processes. */
static __attribute__((cold)) void serve(void)
{
    if (gc_thread.depth != 0 || !gc_life_ready())
        return;
    gc_shim_enter(GC_API_COUNT);
    gc_serve_requests(gc_shim.core);
    gc_shim_leave();
}

static inline __attribute__((always_inline)) CUresult enter(uint64_t key,
                                                            struct gc_submissions **work,
                                                            const void *caller)
{
    CUresult result = gc_shim_submit_begin(key, work);

    if (*work == NULL)
        return result;
    if (__builtin_expect(gc_doorbell_is_rung(&gc_shim.doorbell), 0))
        serve();
    if (result == CUDA_SUCCESS)
        gc_shim_submit_enter_gate(*work, caller);
    return result;
}

CUresult gc_shim_submit_enter(uint64_t key, struct gc_submissions **work, const void *caller)
{
    return enter(key, work, caller);
}

/* ---- while memory is out ---- */

__attribute__((cold)) void gc_shim_submit_enter_gate_slow(struct gc_submissions *work,
                                                          enum gc_gate_mode mode,
                                                          const void *caller)
{
    gc_shim_enter(GC_API_COUNT); /* a request served meanwhile may call the driver */
    struct gc_tenant *tenant = gc_tenants_of_work(caller);
    if (tenant != NULL)
        atomic_store_explicit(&tenant->turn.worked_ns, gc_clock_ns(), memory_order_relaxed);
    while (mode != GC_GATE_OPEN) {
        if (mode == GC_GATE_CLOSED) {
            gc_wait_resume(gc_shim.core);
        } else {
            if (tenant == NULL || !gc_tenant_is_out(tenant))
                break;
            gc_submitter_leave(work, gc_shim_submitter());
            gc_wait_tenant(gc_shim.core, tenant);
        }
        mode = gc_submitter_try_enter(work, gc_shim_submitter());
    }
    gc_shim_leave();
}

/* Leaves the gate, waits until the tenant's memory is back, and enters the gate again: for a call
 * whose memory is known, so that the thread's own tenant may be out meanwhile. */
static __attribute__((cold)) void wait_tenant(struct gc_submissions *work, struct gc_tenant *tenant)
{
    gc_submitter_leave(work, gc_shim_submitter());
    gc_shim_enter(GC_API_COUNT);
    gc_wait_tenant(gc_shim.core, tenant);
    while (gc_submitter_try_enter(work, gc_shim_submitter()) == GC_GATE_CLOSED)
        gc_wait_resume(gc_shim.core);
    gc_shim_leave();
}

static struct gc_tenant *find_out(uint64_t to, uint64_t from)
{
    struct gc_tenant *tenant = gc_pause_find(gc_shim.core, to);

    return tenant != NULL ? tenant : gc_pause_find(gc_shim.core, from);
}

void gc_shim_submit_wait_memory(struct gc_submissions *work, uint64_t to, uint64_t from)
{
    struct gc_tenant *tenant;

    while (gc_shim_submit_is_guarded(work) && (tenant = find_out(to, from)) != NULL)
        wait_tenant(work, tenant);
}

/* ---- which stream ---- */

/* A kernel that may start before its stream's earlier ones have ended is not ordered behind them.
 */
static CUstream stream_of(const CUlaunchConfig *config)
{
    if (config == NULL)
        return NULL;
    for (unsigned i = 0; config->attrs != NULL && i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
            config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            return (CUstream)((uintptr_t)config->hStream | GC_STREAM_UNORDERED); /* NOLINT */
    return config->hStream;
}

#define SEVERAL_STREAMS ((CUstream)(uintptr_t)GC_STREAM_OTHER) /* NOLINT: no handle */

static CUstream stream_at(const CUstream *stream)
{
    return stream == NULL ? NULL : *stream;
}

/* ---- the memory that work may reach: with several contexts, and while memory of a tenant is out
 * (reach.h) ---- */

/* Whether a search may find anything. */
static inline bool must_search(const struct gc_submissions *work)
{
    return work != NULL &&
           (gc_contexts_are_several(gc_shim.core) || gc_shim_submit_is_guarded(work)) &&
           gc_thread.depth == 0;
}

/* True: it waited for a tenant whose memory was out, so the memory must be searched again. */
static bool wait_out(const struct gc_reach *reach, struct gc_submissions *work)
{
    if (reach->out_tenant == NULL)
        return false;
    wait_tenant(work, reach->out_tenant);
    return true;
}

/* ---- calls that are synchronous by request ---- */

/* While a block has SYNC_MEMOPS, which the driver refuses for mapped memory, the library waits
 * after each call that is synchronous by its name. */
static __attribute__((cold)) void wait_for_memops(bool is_per_thread)
{
    CUstream stream = is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;

    if (!gc_capture_is_stream_capturing(stream))
        (void)GC_CALL(NULL, cuStreamSynchronize, stream);
}

/* ---- one call of a SUBMIT row ---- */

/* Lies on the wrapper's stack. The functions below do everything but the driver call, so that the
 * many wrappers, one for each SUBMIT row, are small. */
struct call {
    struct gc_submissions *work; /* NULL: the call is not counted */
    uint64_t key;                /* of the stream */
    const void *caller;
    CUresult result;   /* the wrapper's, where the driver must not be called */
    unsigned attempts; /* made after the driver ran out of memory */
};

/* Finds the driver's function of a row whose slot is empty; NULL: the driver has none. This finds a
 * driver that was loaded after the library had started. */
static __attribute__((cold)) void *find_real(enum gc_row_id row)
{
    return gc_resolve_driver(true) && gc_resolve_row(row) ? gc_row_real_at(row) : NULL;
}

/* Enters the gate and returns the driver's function. NULL: the wrapper returns call->result. */
static __attribute__((hot)) void *begin_call(struct call *call, CUstream stream, bool is_per_thread,
                                             enum gc_row_id row)
{
    struct gc_submissions *work;
    void *real;
    const uint64_t key = gc_shim_submit_key(stream, is_per_thread);
    const CUresult result = enter(key, &work, call->caller);

    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        call->result = result;
        return NULL;
    }
    call->work = work;
    call->key = key;
    real = gc_row_real_at(row);
    if (__builtin_expect(real == NULL, 0)) {
        real = find_real(row);
        if (real == NULL) {
            gc_shim_submit_end(work, key);
            call->result = CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return real;
}

/* After an error: true if the call is to be made again. The thread has then left the gate. */
static __attribute__((cold)) bool must_repeat(struct call *call, CUresult result, enum gc_api api)
{
    gc_shim_on_error(result);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    gc_shim_submit_end(call->work, call->key);
    if (gc_relieve_outside(api, call->attempts++))
        return true;
    if (call->work != NULL) /* as the caller expects */
        gc_shim_submit_enter_gate(call->work, call->caller);
    return false;
}

static __attribute__((hot)) CUresult end_call(const struct call *call, CUresult result)
{
    gc_shim_submit_end(call->work, call->key);
    return result;
}

/* For a call that is synchronous by its name. */
static __attribute__((hot)) CUresult end_synchronous_call(const struct call *call, CUresult result,
                                                          bool is_per_thread)
{
    (void)end_call(call, result);
    if (call->work != NULL &&
        atomic_load_explicit(&call->work->synchronous_count, memory_order_relaxed) != 0)
        wait_for_memops(is_per_thread);
    return result;
}

/* The rows' `wait` column. */
#define END_CALL_ASYNC(call, result, is_per_thread) end_call(call, result)
#define END_CALL_SYNC(call, result, is_per_thread) end_synchronous_call(call, result, is_per_thread)

/* A function for each word of the rows' `reach` column: notes the owners of the memory that the
 * operands name, and waits while a tenant owns that memory whose memory is out. */
#define SEARCH(name, word, parameters, ...)                                                        \
    static __attribute__((hot)) void name parameters                                               \
    {                                                                                              \
        bool is_out = must_search(call->work);                                                     \
                                                                                                   \
        while (__builtin_expect(is_out, 0)) {                                                      \
            gc_shim_enter(GC_API_COUNT);                                                           \
            struct gc_reach reach =                                                                \
                gc_reach_of_stream(stream, gc_shim_submit_is_guarded(call->work));                 \
            word(&reach, ##__VA_ARGS__);                                                           \
            gc_shim_leave();                                                                       \
            is_out = wait_out(&reach, call->work);                                                 \
        }                                                                                          \
    }
SEARCH(search_any, GC_REACH_ANY, (const struct call *call, CUstream stream))
SEARCH(search_pair, GC_REACH_PAIR,
       (const struct call *call, CUstream stream, uint64_t to, uint64_t from), to, from)
SEARCH(search_batch, GC_REACH_BATCH,
       (const struct call *call, CUstream stream, const CUdeviceptr *to, const CUdeviceptr *from,
        size_t count),
       to, from, count)
SEARCH(search_batch_3d, GC_REACH_BATCH_3D,
       (const struct call *call, CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *list, size_t count),
       list, count)
SEARCH(search_mem_ops, GC_REACH_MEM_OPS,
       (const struct call *call, CUstream stream, const CUstreamBatchMemOpParams *list,
        size_t count),
       list, count)
SEARCH(search_unpacked, GC_REACH_UNPACKED,
       (const struct call *call, CUstream stream, const CUmemDecompressParams *list, size_t count),
       list, count)

/* SEARCH_CALL(call, stream, WORD, (operands)) */
#define SEARCH_CALL(call, stream, word, operands)                                                  \
    GC_REACH_WITH(SEARCH_##word, call, stream, GC_REACH_LIST operands)
#define SEARCH_KERNEL(call, stream, ...) (void)0
#define SEARCH_NOTHING(call, stream, ...) (void)0
#define SEARCH_ANY(call, stream, ...) search_any(call, stream)
#define SEARCH_PAIR(call, stream, to, from)                                                        \
    search_pair(call, stream, (uintptr_t)(to), (uintptr_t)(from))
#define SEARCH_SHAPED(call, stream, copy)                                                          \
    search_pair(call, stream, GC_REACH_SHAPED_TO(copy), GC_REACH_SHAPED_FROM(copy))
#define SEARCH_BATCH(call, stream, ...) search_batch(call, stream, __VA_ARGS__)
#define SEARCH_BATCH_3D(call, stream, ...) search_batch_3d(call, stream, __VA_ARGS__)
#define SEARCH_MEM_OPS(call, stream, ...) search_mem_ops(call, stream, __VA_ARGS__)
#define SEARCH_UNPACKED(call, stream, ...) search_unpacked(call, stream, __VA_ARGS__)

/* ---- the short way of a call ---- */

/* Enters the gate if nothing is to be done before the call, as a rule: no other process asks for
 * anything, no memory is out, the stream needs no care, and no memory is to be searched for.
 * False: the thread is outside, and takes the long way. `work` is that of the thread's line: NULL
 * for a thread without one, and in a forked child. */
static inline __attribute__((always_inline)) bool enter_plain(const struct gc_submissions *work,
                                                              struct gc_submitter *line,
                                                              CUstream stream, bool is_per_thread,
                                                              bool is_searched)
{
    if (!GC_LIKELY(work != NULL))
        return false;
    /* As in gc_shim_submit_begin. The key of a stream with a name of its own is its handle; no
     * other handle is quick. */
    const uint64_t quick = atomic_load_explicit(&work->quick_stream, memory_order_seq_cst);
    if (!GC_LIKELY(quick == (uintptr_t)stream ||
                   atomic_load_explicit(&work->multi_stream, memory_order_acquire) ||
                   (stream == NULL && !is_per_thread && quick == GC_STREAM_LEGACY)))
        return false;
    if (!GC_LIKELY(!gc_doorbell_is_rung(&gc_shim.doorbell)) ||
        (is_searched && atomic_load_explicit(&work->has_several_contexts, memory_order_relaxed)))
        return false;
    return gc_submitter_enter_open(work, line);
}

/* Returns `result`, so that its register need not be saved on the short way. */
static __attribute__((cold, noinline)) CUresult count_plain(struct gc_submissions *work,
                                                            CUstream stream, bool is_per_thread,
                                                            CUresult result)
{
    if (gc_stream_list_is_needed())
        gc_stream_list_count(gc_shim_submit_key(stream, is_per_thread));
    gc_submitter_end(work, gc_thread.submitter);
    return result;
}

/* After an error: true if the call is to be made again, the long way. */
static __attribute__((cold, noinline)) bool must_repeat_plain(CUresult result, enum gc_api api)
{
    gc_shim_on_error(result);
    return result == CUDA_ERROR_OUT_OF_MEMORY && gc_relieve_outside(api, 0);
}

/* The short way is for the rows that programs call most, by the words in their columns `wait` and
 * `reach`: kernels, and copies and fills that may have memory to search for. The compiler optimises
 * the many others for size; the functions that they call are `hot`. */
#define HAS_PLAIN(wait, word) CHOOSE_##wait(word, true, true, false)
#define IS_SEARCHED(wait, word) CHOOSE_##wait(word, false, true, true)
#define SIZE(wait, word) CHOOSE_##wait(word, , , __attribute__((cold)))
#define CHOOSE_ASYNC(word, kernel, pair, other) CHOOSE_##word(kernel, pair, other)
#define CHOOSE_SYNC(word, kernel, pair, other) other
#define CHOOSE_KERNEL(kernel, pair, other) kernel
#define CHOOSE_PAIR(kernel, pair, other) pair
#define CHOOSE_NOTHING(kernel, pair, other) other
#define CHOOSE_ANY(kernel, pair, other) other
#define CHOOSE_SHAPED(kernel, pair, other) other
#define CHOOSE_BATCH(kernel, pair, other) other
#define CHOOSE_BATCH_3D(kernel, pair, other) other
#define CHOOSE_MEM_OPS(kernel, pair, other) other
#define CHOOSE_UNPACKED(kernel, pair, other) other

/* ---- the wrappers ---- */

#define API(...)
#define USE(...)
#define RUNTIME(...)
#define SUBMIT(symbol, base, version, variant, stream, wait, word, operands, parameters,           \
               arguments)                                                                          \
    GC_EXPORT                                                                                      \
    SIZE(wait, word)                                                                               \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        CUresult(*real) parameters = GC_REAL(symbol);                                              \
        const bool is_per_thread = GC_VARIANT_##variant == GC_VARIANT_PTSZ;                        \
        const CUstream target = (stream);                                                          \
        unsigned attempts = 0;                                                                     \
        CUresult result;                                                                           \
        struct call call;                                                                          \
        if (HAS_PLAIN(wait, word) && GC_LIKELY(real != NULL)) {                                    \
            struct gc_submitter *line = gc_thread.submitter;                                       \
            struct gc_submissions *work = line->work;                                              \
                                                                                                   \
            if (enter_plain(work, line, target, is_per_thread, IS_SEARCHED(wait, word))) {         \
                result = real arguments;                                                           \
                if (!gc_submit_is_counted(work))                                                   \
                    result = count_plain(work, target, is_per_thread, result);                     \
                gc_submitter_move(line, -1U);                                                      \
                if (GC_LIKELY(result == CUDA_SUCCESS) ||                                           \
                    !must_repeat_plain(result, GC_API_##symbol))                                   \
                    return result;                                                                 \
                attempts = 1;                                                                      \
            }                                                                                      \
        }                                                                                          \
        call.caller = GC_CALLER;                                                                   \
        call.attempts = attempts;                                                                  \
        do {                                                                                       \
            real = begin_call(&call, target, is_per_thread, GC_ROW_##symbol);                      \
            if (__builtin_expect(real == NULL, 0))                                                 \
                return call.result;                                                                \
            SEARCH_CALL(&call, target, word, operands);                                            \
            result = real arguments;                                                               \
        } while (__builtin_expect(result != CUDA_SUCCESS, 0) &&                                    \
                 must_repeat(&call, result, GC_API_##symbol));                                     \
        return END_CALL_##wait(&call, result, is_per_thread);                                      \
    }
#define PASS(symbol, base, version, variant, parameters, arguments)                                \
    GC_EXPORT                                                                                      \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        unsigned attempts = 0;                                                                     \
        CUresult result;                                                                           \
        if (gc_row_real_at(GC_ROW_##symbol) == NULL && find_real(GC_ROW_##symbol) == NULL) {       \
            gc_shim_count(NULL, GC_API_##symbol);                                                  \
            return CUDA_ERROR_NOT_SUPPORTED;                                                       \
        }                                                                                          \
        do {                                                                                       \
            gc_shim_count(NULL, GC_API_##symbol);                                                  \
            result = gc_shim_check_result(GC_REAL(symbol) arguments);                              \
        } while (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) &&                        \
                 gc_relieve_outside(GC_API_##symbol, attempts++));                                 \
        return result;                                                                             \
    }
#include "shim/api.def"
