/* Stream-ordered allocation: cuMemAllocAsync and its kin.
 *
 * The device's default pool is served from the cache: a block that is freed in a stream's order may
 * serve that stream at once, all others once a fence has completed (core/pool/pending.h). Other
 * pools, and the default one where the program set properties that the cache lacks, are the
 * driver's: an allocation is recorded (ASYNC, not charged), its pool is charged for the bytes that
 * the driver reserves, see shim/account/mempool.c. An allocation in a capturing stream is a graph
 * node: graph_api.c accounts for its memory. */
#include "core/device/submit.h"
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/graph_memory.h"
#include "shim/account/mempool.h"
#include "shim/account/peer.h"
#include "shim/account/primary.h"
#include "shim/account/tenant.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/driver.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"

/* The longest wait for the free of an allocation that is undone. */
#define UNDO_NS UINT64_C(2000000000)

/* The differences between the wrappers of one kind. */
struct async_call {
    enum gc_api symbol;
    CUstream stream;   /* explicit */
    CUstream given;    /* as the program gave it */
    CUmemoryPool pool; /* of cuMemAllocFromPoolAsync */
    bool names_pool;
};

static CUresult driver_alloc(const struct gc_direct_request *request, const struct async_call *call,
                             CUdeviceptr *dptr, size_t bytes)
{
    switch (call->symbol) {
    case GC_API_cuMemAllocAsync:
        return GC_DIRECT_CALL(request, bytes, cuMemAllocAsync, dptr, bytes, call->given);
    case GC_API_cuMemAllocAsync_ptsz:
        return GC_DIRECT_CALL(request, bytes, cuMemAllocAsync_ptsz, dptr, bytes, call->given);
    case GC_API_cuMemAllocFromPoolAsync:
        return GC_DIRECT_CALL(request, bytes, cuMemAllocFromPoolAsync, dptr, bytes, call->pool,
                              call->given);
    case GC_API_cuMemAllocFromPoolAsync_ptsz:
        return GC_DIRECT_CALL(request, bytes, cuMemAllocFromPoolAsync_ptsz, dptr, bytes, call->pool,
                              call->given);
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

/* The stream may belong to another context, and so to another device, than the current one. */
static void choose_device(struct gc_direct_request *request, CUstream stream)
{
    struct gc_context *context = gc_account_stream_context(stream);

    if (context != NULL) {
        request->context = context;
        request->device = gc_context_device(context);
    }
}

/* *pool is NULL where the driver will refuse the call. False: no host memory for the pool's record;
 * its memory could not be charged. */
static bool find_pool(const struct gc_direct_request *request, const struct async_call *call,
                      struct gc_mempool **pool)
{
    CUmemoryPool handle = call->pool;

    *pool = NULL;
    if (request->device == NULL)
        return true;
    if (!call->names_pool && GC_USE(cuDeviceGetMemPool, &handle,
                                    gc_device_get_info(request->device)->ordinal) != CUDA_SUCCESS)
        return true;
    if (handle == NULL)
        return true;
    /* A default pool belongs to its own device, which may not be the stream's. */
    struct gc_device *device = call->names_pool ? gc_mempool_plain_device(handle) : NULL;
    *pool = gc_mempool_find(handle, device != NULL ? device : request->device);
    return *pool != NULL;
}

/* The pool grew past the limit: the allocation is undone. */
static void undo_alloc(const struct gc_direct_request *request, const struct async_call *call,
                       struct gc_mempool *pool, CUdeviceptr dptr)
{
    (void)GC_CALL_RELIEVED(request->device, cuMemFreeAsync, dptr, call->stream);
    if (!gc_capture_is_any() && request->context != NULL)
        (void)gc_driver_wait_stream(gc_context_handle(request->context), call->stream, UNDO_NS);
    gc_mempool_trim_one(pool);
}

/* *is_over: the pool grew past the limit, and the allocation was undone. */
static CUresult try_alloc(struct gc_direct_request *request, const struct async_call *call,
                          struct gc_mempool *pool, CUdeviceptr *dptr, size_t bytes, bool *is_over)
{
    struct gc_mempool_reservation claim = {.stream = call->stream};
    CUdeviceptr address = 0;

    *is_over = false;
    if (!gc_mempool_reserve(pool, bytes, &claim)) {
        request->is_refused = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = driver_alloc(request, call, &address, bytes);
    bool fits = gc_mempool_commit(pool, &claim);
    if (result == CUDA_SUCCESS && !fits) {
        undo_alloc(request, call, pool, address);
        *is_over = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *dptr = address;
    return result;
}

static CUresult alloc_from_pool(struct gc_direct_request *request, const struct async_call *call,
                                struct gc_mempool *pool, CUdeviceptr *dptr, size_t bytes)
{
    bool is_over;

    if (gc_mempool_device(pool) != NULL)
        request->device = gc_mempool_device(pool);
    CUresult result = try_alloc(request, call, pool, dptr, bytes, &is_over);
    if (is_over)
        result = try_alloc(request, call, pool, dptr, bytes, &is_over);
    if (result != CUDA_SUCCESS)
        return result;
    gc_direct_record(request, GC_DIRECT_ASYNC, *dptr, bytes);
    gc_mempool_record(pool, *dptr);
    return CUDA_SUCCESS;
}

/* ---- served from the cache ---- */

/* Core's key for the stream of `context`; 0: its order is unknown. A green context's legacy stream
 * has the same handle as its primary context's. */
static uint64_t order_key(CUstream stream, const struct gc_context *context)
{
    const uint16_t number = gc_context_number(context);

    if (stream == CU_STREAM_LEGACY && gc_primary_is_green())
        return 0;
    if (stream == CU_STREAM_PER_THREAD || stream == CU_STREAM_LEGACY)
        return gc_driver_name_stream(stream, number);
    return (uintptr_t)stream;
}

/* *is_blocking: the stream and the legacy stream wait for each other. False: the driver knows no
 * such stream. */
static bool find_blocking(CUstream stream, bool *is_blocking)
{
    unsigned flags = 0;

    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD &&
        GC_USE(cuStreamGetFlags, stream, &flags) != CUDA_SUCCESS)
        return false;
    *is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    return true;
}

/* In the driver an allocation or a free is an operation, which orders its stream against the legacy
 * or the blocking ones. So an empty operation is queued where several streams may have work. */
static CUresult place_in_order(struct gc_context *context, CUstream stream, bool is_blocking)
{
    struct gc_submissions *work = gc_core_submissions(gc_shim.core);
    const uint64_t only = atomic_load_explicit(&work->only_stream, memory_order_relaxed);

    if (!is_blocking || only == GC_STREAM_NONE || gc_submit_is_only_stream(work, (uintptr_t)stream))
        return CUDA_SUCCESS;
    return gc_driver_place(gc_context_handle(context), stream);
}

static bool is_served(const struct gc_direct_request *request, const struct async_call *call)
{
    const struct gc_options *options = gc_shim.options;
    CUmemoryPool pool = call->pool;

    /* The debug aids check this memory, too, even where its frees wait. */
    if (options->mode != GC_MODE_CACHE ||
        (options->reuse != GC_REUSE_FENCE && options->debug == 0) || request->context == NULL)
        return false;
    /* For a faulted context the driver returns the error. */
    if (gc_context_ordered(request->context) == NULL || gc_context_is_faulted(request->context))
        return false;
    if (!call->names_pool && GC_USE(cuDeviceGetMemPool, &pool,
                                    gc_device_get_info(request->device)->ordinal) != CUDA_SUCCESS)
        return false;
    return gc_mempool_is_plain(pool, request->device);
}

/* Whether a call of this thread in `stream`, a stream of `context`, may be served. If not, the
 * driver returns its error from a call that neither takes nor releases memory. */
static bool is_working(const struct gc_context *context, CUstream stream, bool *is_blocking)
{
    struct gc_context *current;

    return context != NULL && !gc_context_is_faulted(context) &&
           gc_account_check_state(false, &current) == CUDA_SUCCESS &&
           find_blocking(stream, is_blocking);
}

/* *is_answered: false where memory that outlives contexts cannot be allocated now. */
static CUresult serve(const struct gc_direct_request *request, const struct async_call *call,
                      CUdeviceptr *dptr, size_t bytes, bool is_blocking, bool *is_answered)
{
    struct gc_context *ordered = gc_context_ordered(request->context);
    struct gc_context *target = ordered == NULL ? NULL : gc_tenants_target(ordered);
    struct gc_request wanted = {.bytes = bytes,
                                .stream = order_key(call->stream, request->context),
                                .api = (uint16_t)request->api,
                                .is_ordered = true};
    uint64_t address = 0;
    int driver_code = 0;

    *is_answered = true;
    if (target == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    wanted.is_trial = gc_mempool_may_reclaim();
    gc_tcache_flush_stats(gc_thread.tcache);
    enum gc_status status = gc_alloc(gc_shim.core, target, &wanted, &address, &driver_code);
    if (status == GC_OUT_OF_MEMORY && wanted.is_trial) {
        (void)gc_mempool_reclaim(request->device);
        wanted.is_trial = false;
        status = gc_alloc(gc_shim.core, target, &wanted, &address, &driver_code);
    }
    *is_answered = status != GC_NOT_SUPPORTED;
    if (status != GC_OK)
        return gc_shim_result(status, driver_code);
    CUresult result = place_in_order(request->context, call->stream, is_blocking);
    if (result == CUDA_SUCCESS)
        *dptr = address;
    else
        (void)!gc_free(gc_shim.core, address, wanted.api, &driver_code);
    return result;
}

static CUresult alloc_async(const struct async_call *call, CUdeviceptr *dptr, size_t bytes)
{
    struct gc_direct_request request;
    struct gc_mempool *pool;
    bool is_blocking;
    CUresult result;

    gc_direct_begin(&request, call->symbol);
    if (request.context == NULL || dptr == NULL || bytes == 0)
        return gc_direct_end(&request, driver_alloc(&request, call, dptr, bytes));
    choose_device(&request, call->stream);
    if (gc_capture_is_stream_capturing(call->stream)) {
        result = driver_alloc(&request, call, dptr, bytes);
        if (result == CUDA_SUCCESS)
            gc_graph_expect(request.device);
        return gc_direct_end(&request, result);
    }
    if (is_served(&request, call) && is_working(request.context, call->stream, &is_blocking)) {
        bool is_answered;
        result = serve(&request, call, dptr, bytes, is_blocking, &is_answered);
        request.is_refused = is_answered; /* core has counted a refusal */
        if (is_answered)
            return gc_direct_end(&request, result);
    }
    if (!find_pool(&request, call, &pool)) {
        gc_direct_log_lost(request.api, GC_NO_HOST_MEMORY);
        return gc_direct_end(&request, CUDA_ERROR_OUT_OF_MEMORY);
    }
    result = pool ? alloc_from_pool(&request, call, pool, dptr, bytes)
                  : driver_alloc(&request, call, dptr, bytes);
    return gc_direct_end(&request, result);
}

#define ALLOC_ASYNC(name, is_per_thread)                                                           \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(name, dptr, bytes, stream);                                          \
        GC_SET_CALLER();                                                                           \
        const struct async_call call = {.symbol = GC_API_##name,                                   \
                                        .stream = gc_capture_stream_handle(stream, is_per_thread), \
                                        .given = stream};                                          \
        return alloc_async(&call, dptr, bytes);                                                    \
    } while (0)

GC_EXPORT
CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    ALLOC_ASYNC(cuMemAllocAsync, false);
}

GC_EXPORT
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    ALLOC_ASYNC(cuMemAllocAsync_ptsz, true);
}

#define ALLOC_FROM_POOL(name, is_per_thread)                                                       \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(name, dptr, bytes, pool, stream);                                    \
        GC_SET_CALLER();                                                                           \
        const struct async_call call = {.symbol = GC_API_##name,                                   \
                                        .stream = gc_capture_stream_handle(stream, is_per_thread), \
                                        .given = stream,                                           \
                                        .pool = pool,                                              \
                                        .names_pool = true};                                       \
        return alloc_async(&call, dptr, bytes);                                                    \
    } while (0)

GC_EXPORT
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, false);
}

GC_EXPORT
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                      CUstream stream)
{
    ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, true);
}

/* ---- free ---- */

/* Frees a block of the cache, however allocated, in the stream's order, without a wait. While the
 * stream captures, the driver accepts only memory of graph nodes. */
static CUresult free_cached(enum gc_api api, const struct gc_block_info *block, CUdeviceptr dptr,
                            CUstream stream)
{
    struct gc_context *context = gc_account_stream_context(stream);
    bool is_blocking;
    int driver_code = 0;

    if (gc_capture_is_stream_capturing(stream))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_working(context, stream, &is_blocking)) {
        CUresult result = GC_CALL_RELIEVED(NULL, cuMemFreeAsync, 0, stream);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
            return result;
        if (!find_blocking(stream, &is_blocking))
            is_blocking = false;
    }
    /* The stream may belong to another context than the block: the free waits for both. */
    CUresult result = context == NULL ? CUDA_SUCCESS : place_in_order(context, stream, is_blocking);
    if (result != CUDA_SUCCESS)
        return result;
    struct gc_context *owner = gc_context_find(gc_shim.core, block->context);
    const bool is_own =
        context != NULL && owner != NULL &&
        (gc_context_is_of_device(owner) ? gc_context_device(owner) == gc_context_device(context)
                                        : owner == context);
    if (!is_own)
        gc_peer_add(owner, context);
    /* All work that may use the block is ordered before the free, in a stream of any context. */
    const uint64_t order = context == NULL ? 0 : order_key(stream, context);
    gc_tcache_flush_stats(gc_thread.tcache);
    enum gc_status status =
        gc_free_ordered(gc_shim.core, dptr, context, order, (uint16_t)api, &driver_code);
    return gc_shim_result(status, driver_code);
}

/* Without a cache, or for memory taken while a capture was open, each block is an allocation of the
 * driver's own, which the driver checks and frees. */
static CUresult free_block(enum gc_api api, const struct gc_block_info *block, CUdeviceptr dptr,
                           CUstream stream)
{
    int driver_code = 0;

    if (gc_shim.options->mode == GC_MODE_CACHE && !block->is_plain)
        return free_cached(api, block, dptr, stream);
    gc_tcache_flush_stats(gc_thread.tcache);
    enum gc_status status =
        gc_free_ordered(gc_shim.core, dptr, NULL, (uintptr_t)stream, (uint16_t)api, &driver_code);
    return gc_shim_result(status, driver_code);
}

static CUresult free_of_pool(const struct gc_direct_request *request, enum gc_api symbol,
                             CUdeviceptr dptr, CUstream given, CUstream stream)
{
    struct gc_direct_release release;
    CUresult result;

    gc_mempool_on_free(dptr, stream);
    gc_direct_free_begin(&release, dptr);
    result = symbol == GC_API_cuMemFreeAsync
                 ? GC_CALL_RELIEVED(request->device, cuMemFreeAsync, dptr, given)
                 : GC_CALL_RELIEVED(request->device, cuMemFreeAsync_ptsz, dptr, given);
    gc_direct_free_end(&release, result == CUDA_SUCCESS && dptr != 0);
    return result;
}

static CUresult free_async(enum gc_api symbol, CUdeviceptr dptr, CUstream given, CUstream stream)
{
    struct gc_direct_request request;
    struct gc_block_info block = {.address = 0};
    CUresult result;

    gc_direct_begin(&request, symbol);
    if (dptr != 0 && gc_lookup_block(gc_shim.core, dptr, &block) != GC_NOT_OURS) {
        result = free_block(request.api, &block, dptr, stream);
    } else {
        result = free_of_pool(&request, symbol, dptr, given, stream);
        if (result == CUDA_ERROR_INVALID_VALUE)
            gc_debug_report_unknown_free(gc_shim.core, dptr, (uint16_t)request.api);
    }
    return gc_direct_end(&request, result);
}

GC_EXPORT
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemFreeAsync, dptr, stream);
    return free_async(GC_API_cuMemFreeAsync, dptr, stream, gc_capture_stream_handle(stream, false));
}

GC_EXPORT
CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemFreeAsync_ptsz, dptr, stream);
    return free_async(GC_API_cuMemFreeAsync_ptsz, dptr, stream,
                      gc_capture_stream_handle(stream, true));
}
