/* Frees: a block is taken from the program by its address, and given to reclaim. */
#include "core/debug/debug.h"
#include "core/device/lookup.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

static enum gc_status refuse_free(struct gc_core *core, uint64_t address)
{
    struct gc_block *block;
    if (gc_lookup_lock_block(core, address, true, &block) == GC_OK) {
        struct gc_pool *pool = gc_block_pool(block);
        gc_pool_release(pool);
        gc_counter_add(&pool->context->device->stats.invalid_free_count, 1);
    }
    return GC_INVALID_POINTER;
}

/* Takes a live block from the program, with its pool's lock; *is_cached: it is in a magazine.
 * `waits`: as for gc_lookup_lock. */
static enum gc_status take_live(struct gc_core *core, uint64_t address, bool waits,
                                struct gc_block **block, bool *is_cached)
{
    const enum gc_status status = gc_lookup_lock(core, address, false, waits, block);
    uint8_t state = GC_BLOCK_LIVE;
    *is_cached = false;
    if (status != GC_OK)
        return status;
    /* Against a thread that frees it without the lock. */
    if (atomic_compare_exchange_strong_explicit(&(*block)->state, &state, GC_BLOCK_FREEING,
                                                memory_order_acq_rel, memory_order_relaxed))
        return GC_OK;
    *is_cached = state == GC_BLOCK_CACHED;
    gc_pool_release(gc_block_pool(*block));
    return GC_INVALID_POINTER;
}

/* One that is in a magazine may be there for a moment only: another thread, that frees an address
 * twice, had found a record which is this block's by now. It gives way. */
static enum gc_status take_freed(struct gc_core *core, uint64_t address, struct gc_block **block)
{
    for (;;) {
        bool is_cached;
        enum gc_status status = take_live(core, address, true, block, &is_cached);
        if (!is_cached)
            return status;
        gc_tcache_stop_all(core);
        status = take_live(core, address, false, block, &is_cached);
        gc_tcache_resume_all(core);
        if (status != GC_BUSY)
            return status;
    }
}

static enum gc_status free_block(struct gc_core *core, uint64_t address, struct gc_context *worker,
                                 uint64_t stream, int *driver_code)
{
    const uint64_t start_ns = gc_core_now_ns(core);
    struct gc_block *block;
    enum gc_status status = take_freed(core, address, &block);
    if (status == GC_BUSY)
        return GC_INVALID_POINTER;
    if (status == GC_INVALID_POINTER)
        return refuse_free(core, address);
    if (status != GC_OK)
        return status;
    struct gc_context *context = gc_block_pool(block)->context;
    status = gc_defer_free_unlock(context, block, worker, stream, driver_code);
    if (status == GC_OK) {
        const uint64_t end_ns = gc_core_now_ns(core);
        gc_histogram_add(&core->free_ns, end_ns - start_ns);
        gc_publish_device(context->device, end_ns);
        gc_publish_record(context);
    }
    return status;
}

/* A free is counted for the device; figures by entry point are those of allocations. */
enum gc_status gc_core_free(struct gc_core *core, uint64_t address, uint16_t api, int *driver_code)
{
    if (core->debug != NULL)
        gc_debug_before_free(core, address, api);
    return free_block(core, address, NULL, GC_STREAM_NONE, driver_code);
}

enum gc_status gc_core_free_ordered(struct gc_core *core, uint64_t address,
                                    struct gc_context *worker, uint64_t stream, uint16_t api,
                                    int *driver_code)
{
    /* What is looked at when it is idle must not serve before. */
    const bool is_inspected = core->debug != NULL && core->mode == GC_MODE_CACHE;
    const bool is_named = stream != GC_STREAM_NONE && !is_inspected;
    if (core->debug != NULL)
        gc_debug_before_free(core, address, api);
    return free_block(core, address, worker, is_named ? stream : GC_STREAM_OTHER, driver_code);
}

enum gc_status gc_core_record_stream(struct gc_core *core, uint64_t address, uint64_t stream)
{
    struct gc_block *block;
    (void)stream; /* which one does not matter: the free waits for all */
    const enum gc_status status = gc_lookup_lock_block(core, address, false, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    const bool is_live = gc_lookup_is_live(block);
    if (is_live)
        block->is_shared = true;
    gc_pool_release(pool);
    return is_live ? GC_OK : GC_INVALID_POINTER;
}
