/* Calls that do nothing but submit work: kernels, copies, fills and the rest of the SUBMIT rows,
 * from which all wrappers are made. Each counts, and does nothing else in a process with one
 * context.
 *
 * "Synchronous" calls count like the others: a fill or a copy within the device returns before it
 * is done.
 *
 * With several contexts the addresses of copies and fills are looked at too: under unified
 * addressing the driver finds out whose memory it is, and needs no peer access. A stream of one
 * context then reads or writes memory of another, and a free in the owner has to wait for that
 * stream's context. */
#include "shim/submit.h"

#include "core/pause.h"
#include "shim/mempool.h"
#include "shim/peer.h"
#include "shim/resolve.h"

CUresult gc_submit_begin_other(struct gc_work *work, uint64_t key)
{
    int driver_code = 0;

    gc_shim_enter(GC_API_COUNT);
    const bool may = gc_work_begin(gc_shim.core, work, key, &driver_code);
    gc_shim_leave();
    if (may)
        return CUDA_SUCCESS;
    return driver_code != 0 ? (CUresult)driver_code : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void gc_submit_serve(void)
{
    if (gc_thread.depth != 0 || !gc_shim_ready())
        return;
    gc_shim_enter(GC_API_COUNT);
    gc_core_serve(gc_shim.core);
    gc_shim_leave();
}

void gc_submit_pass_slowly(struct gc_work *work, enum gc_turnstile_mode mode)
{
    gc_shim_enter(GC_API_COUNT); /* a request served meanwhile may call the driver */
    while (mode == GC_TURNSTILE_CLOSED) {
        gc_core_await_resume(gc_shim.core);
        mode = gc_turnstile_enter(&work->turnstile);
    }
    gc_shim_leave();
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
            return CU_STREAM_PER_THREAD;
    return config->hStream;
}

static CUstream stream_at(const CUstream *stream)
{
    return stream == NULL ? NULL : *stream;
}

/* ---- whose memory, in a process with several contexts ---- */

/* Who may do a piece of work: a stream's context need not be the current one. */
struct workers {
    struct gc_context *current;
    struct gc_context *of_stream;
};

static struct workers find_workers(CUstream stream)
{
    return (struct workers){gc_shim_current_context(), gc_shim_stream_context(stream)};
}

static void note_address(uint64_t address, const struct workers *workers)
{
    struct gc_block_info block;
    struct gc_context *owner;

    if (address == 0 || gc_core_find_block(gc_shim.core, address, &block) != GC_OK)
        return;
    owner = gc_core_find_context(gc_shim.core, block.context);
    gc_peer_note(owner, workers->current);
    gc_peer_note(owner, workers->of_stream);
}

static void note_pair(CUstream stream, uint64_t to, uint64_t from)
{
    const struct workers workers = find_workers(stream);

    note_address(to, &workers);
    note_address(from, &workers);
}

static void note_batch(CUstream stream, const CUdeviceptr *to, const CUdeviceptr *from,
                       size_t count)
{
    const struct workers workers = find_workers(stream);

    for (size_t i = 0; i < count; i++) {
        note_address(to == NULL ? 0 : to[i], &workers);
        note_address(from == NULL ? 0 : from[i], &workers);
    }
}

static uint64_t operand_address(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? operand->op.ptr.ptr : 0;
}

static void note_batch_3d(CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *list, size_t count)
{
    const struct workers workers = find_workers(stream);

    for (size_t i = 0; list != NULL && i < count; i++) {
        note_address(operand_address(&list[i].src), &workers);
        note_address(operand_address(&list[i].dst), &workers);
    }
}

#define NOTHING (void)0
#define PAIR(to, from) note_pair(worker, to, from)
#define BATCH(to, from, count) note_batch(worker, to, from, count)
#define BATCH_3D(list, count) note_batch_3d(worker, list, count)
#define ADDRESS(type, device)                                                                      \
    ((type) == CU_MEMORYTYPE_DEVICE || (type) == CU_MEMORYTYPE_UNIFIED ? (device) : 0)
#define SHAPED(copy)                                                                               \
    ((copy) == NULL ? (void)0                                                                      \
                    : note_pair(worker, ADDRESS((copy)->dstMemoryType, (copy)->dstDevice),         \
                                ADDRESS((copy)->srcMemoryType, (copy)->srcDevice)))

/* Whether there may be anything to note. */
static inline bool may_cross_contexts(const struct gc_work *work)
{
    return work != NULL && gc_core_has_several_contexts(gc_shim.core) && gc_thread.depth == 0;
}

/* ---- waiting where the program asked for it ---- */

/* SYNC_MEMOPS, where the driver does not take it: calls that are synchronous by name are so. */
static void wait_for_memops(bool is_per_thread)
{
    CUstream stream = is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;

    if (!gc_stream_is_capturing(stream))
        (void)GC_CALL(NULL, cuStreamSynchronize, stream);
}

#define IS_MEMOP(base, stream)                                                                     \
    (__builtin_strcmp(#stream, "NULL") == 0 && __builtin_memcmp(#base, "cuMem", 5) == 0)

/* ---- the wrappers ---- */

/* The driver's answer; a driver that was loaded after the library had started is found here. */
#define ASK(symbol, arguments)                                                                     \
    (!is_there(GC_ROW_##symbol) ? CUDA_ERROR_NOT_SUPPORTED : GC_REAL(symbol) arguments)

static inline bool is_there(enum gc_row_id row)
{
    return gc_row_real(&gc_rows[row]) != NULL || (gc_resolve_driver(true) && gc_resolve_row(row));
}

#define API(...)
#define USE(...)
#define RUNTIME(...)
#define SUBMIT(symbol, base, version, variant, stream, reach, parameters, arguments)               \
    GC_EXPORT                                                                                      \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        struct gc_work *work;                                                                      \
        CUresult result = gc_submit_enter(                                                         \
            gc_submit_key(stream, GC_VARIANT_##variant == GC_VARIANT_PTSZ), &work);                \
                                                                                                   \
        if (__builtin_expect(result != CUDA_SUCCESS, 0))                                           \
            return result;                                                                         \
        if (may_cross_contexts(work)) {                                                            \
            CUstream worker = stream;                                                              \
            (void)worker;                                                                          \
            gc_shim_enter(GC_API_##symbol);                                                        \
            reach;                                                                                 \
            gc_shim_leave();                                                                       \
        }                                                                                          \
        result = gc_shim_note_result(ASK(symbol, arguments));                                      \
        gc_submit_end(work);                                                                       \
        if (IS_MEMOP(base, stream) &&                                                              \
            atomic_load_explicit(&gc_shim.waits_for_memops, memory_order_relaxed))                 \
            wait_for_memops(GC_VARIANT_##variant == GC_VARIANT_PTSZ);                              \
        return result;                                                                             \
    }
#define PASS(symbol, base, version, variant, parameters, arguments)                                \
    GC_EXPORT                                                                                      \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        gc_shim_count(NULL, GC_API_##symbol);                                                      \
        return ASK(symbol, arguments);                                                             \
    }
#include "shim/api.def"
