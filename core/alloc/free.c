/* The path of one free: one look-up by address, a claim by compare-and-swap under the pool's lock,
 * then reclaim (core/reclaim/defer.h). The result of the look-up is passed on to the debug aid, to
 * the count of invalid frees and to the free. */
#include "core/debug/debug.h"
#include "core/device/lookup.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

/* One free request. */
struct free_request {
    struct gc_core *core;
    uint64_t address;
    uint16_t api;
    struct gc_block *block;     /* claimed: FREEING, no other thread frees it */
    bool is_cached;             /* refused: the block that starts there is in a thread cache */
    bool is_described;          /* `found` is set; with GPUCACHE_DEBUG only */
    struct gc_block_info found; /* the live block that contains the address */
};

/* The only look-up of a free: claims the live block that starts at the address and returns with its
 * pool's lock held, or counts an invalid free. GC_BUSY: not known whether a pool being torn down
 * contains the address (core/device/lookup.h). `is_final`: the caches are stopped, so a cached
 * block is really freed. */
static enum gc_status claim(struct free_request *request, bool is_final)
{
    struct gc_core *core = request->core;
    struct gc_block *block;
    uint8_t state = GC_BLOCK_LIVE;
    const enum gc_lookup found = gc_lookup_lock(core, request->address, !is_final, &block);
    request->is_cached = false;
    if (found == GC_LOOKUP_NOT_OURS || found == GC_LOOKUP_UNDECIDED)
        return found == GC_LOOKUP_NOT_OURS ? GC_NOT_OURS : GC_BUSY;
    struct gc_pool *pool = gc_block_pool(block);
    /* Races with a thread that frees the block into its cache, without the lock. */
    const bool is_claimed =
        found == GC_LOOKUP_START &&
        atomic_compare_exchange_strong_explicit(&block->state, &state, GC_BLOCK_FREEING,
                                                memory_order_acq_rel, memory_order_relaxed);
    if (core->debug != NULL)
        request->is_described = gc_lookup_describe_locked(block, request->address, &request->found);
    if (is_claimed) {
        request->block = block;
        return GC_OK;
    }
    request->is_cached = found == GC_LOOKUP_START && state == GC_BLOCK_CACHED;
    if (is_final || !request->is_cached)
        gc_counter_add(&pool->context->device->stats.invalid_free_count, 1);
    gc_pool_release(pool);
    return GC_INVALID_POINTER;
}

/* A live block may be CACHED briefly. A thread that frees another address a second time may have
 * found this record before its reuse: it claims the record, sees the new address and unclaims it.
 * While the caches are stopped no thread is between claim and unclaim. */
static enum gc_status claim_or_refuse(struct free_request *request)
{
    for (;;) {
        enum gc_status status = claim(request, false);
        if (!request->is_cached)
            return status == GC_BUSY ? GC_INVALID_POINTER : status;
        gc_tcache_stop_all(request->core);
        status = claim(request, true);
        gc_tcache_resume_all(request->core);
        if (status != GC_BUSY)
            return status;
    }
}

static void report_refused(const struct free_request *request)
{
    const bool is_interior = request->is_described && request->found.address != request->address;
    gc_debug_report_refused_free(request->core, request->address, request->api,
                                 is_interior ? &request->found : NULL);
}

static enum gc_status free_block(struct gc_core *core, uint64_t address, struct gc_context *worker,
                                 uint64_t stream, uint16_t api, int *driver_code)
{
    const uint64_t start_ns = gc_core_now_ns(core);
    const struct gc_defer_order order = {.worker = worker, .stream = stream, .api = api};
    struct free_request request = {.core = core, .address = address, .api = api};
    enum gc_status status = claim_or_refuse(&request);
    if (status == GC_INVALID_POINTER && core->debug != NULL)
        report_refused(&request);
    if (status != GC_OK)
        return status;
    struct gc_context *context = gc_block_pool(request.block)->context;
    status = gc_defer_free_unlock(context, request.block, &order,
                                  request.is_described ? &request.found : NULL, driver_code);
    if (status == GC_OK) {
        const uint64_t end_ns = gc_core_now_ns(core);
        gc_histogram_add(&core->free_ns, end_ns - start_ns);
        gc_publish_device(context->device, end_ns);
        gc_publish_record(context);
    }
    return status;
}

/* A free is counted for the device and the tenant, not for `api`, which only messages name. */
enum gc_status gc_free(struct gc_core *core, uint64_t address, uint16_t api, int *driver_code)
{
    return free_block(core, address, NULL, GC_STREAM_NONE, api, driver_code);
}

enum gc_status gc_free_ordered(struct gc_core *core, uint64_t address, struct gc_context *worker,
                               uint64_t stream, uint16_t api, int *driver_code)
{
    /* The debug aid checks a block once its work has completed: no reuse before that. */
    const bool is_inspected = core->debug != NULL && core->mode == GC_MODE_CACHE;
    const bool is_named = stream != GC_STREAM_NONE && !is_inspected;
    return free_block(core, address, worker, is_named ? stream : GC_STREAM_OTHER, api, driver_code);
}

enum gc_status gc_free_record_stream(struct gc_core *core, uint64_t address, uint64_t stream)
{
    struct gc_block *block;
    (void)stream; /* the free waits for all streams */
    const enum gc_status status = gc_lookup_lock_block(core, address, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    const bool is_live = block->address == address && gc_lookup_is_live(block);
    if (is_live)
        block->is_shared = true;
    gc_pool_release(pool);
    return is_live ? GC_OK : GC_INVALID_POINTER;
}
