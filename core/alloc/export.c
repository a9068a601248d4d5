/* Blocks accessed from outside: through an exported handle, or unseen, which forbids a swap-out.
 * The driver's handle opens its whole allocation, from its base, so only a dedicated block may have
 * one; a process may keep it open after the free, so its memory is never reused. A block of mapped
 * memory has a handle of the library's own (core/share). */
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/lookup.h"
#include "core/device/registry.h"
#include "core/reclaim/tcache.h"
#include "core/share/share.h"

static bool is_live(struct gc_block *block)
{
    return atomic_load_explicit(&block->state, memory_order_acquire) == GC_BLOCK_LIVE;
}

static uint64_t read_ordered_epoch(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const uint64_t epoch = context->pool.ordered_epoch;
    gc_pool_release(&context->pool);
    return epoch;
}

/* Memory reused in a stream's order may still be used by work of its former block, for which other
 * processes do not wait. That is work submitted before the former block was freed: in the single
 * stream's order, work for which the driver's own free would have waited. GC_BUSY: it goes on after
 * GC_RECLAIM_WAIT_NS in all. Without fences the wait is for all work, and has no end of its own. */
static enum gc_status wait_former_use(struct gc_context *context, int *driver_code)
{
    *driver_code = 0;
    if (context->core->mode != GC_MODE_CACHE)
        return GC_OK;
    const uint64_t end_ns = gc_core_now_ns(context->core) + GC_RECLAIM_WAIT_NS;
    (void)gc_fence_poll(context); /* the work may be over, and later work need not be */
    const bool is_idle = gc_submit_quiesce(context, driver_code);
    if (*driver_code != 0)
        return GC_DRIVER;
    if (is_idle && gc_context_has_completed(context, read_ordered_epoch(context)))
        return GC_OK;
    (void)gc_fence_record(context); /* shows whether the driver has fences */
    if (gc_context_is_fenceless(context))
        return gc_fence_synchronize(context, GC_FOREVER, driver_code);
    const uint64_t left_ns = gc_sub_or_zero_u64(end_ns, gc_core_now_ns(context->core));
    return is_idle && left_ns > 0 ? gc_fence_synchronize(context, left_ns, driver_code) : GC_BUSY;
}

static void bar_from_caches(struct gc_device *device)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        gc_tcache_flush_context(context);
        gc_pool_acquire_plain(&context->pool);
        gc_pool_bar_from_caches_locked(&context->pool);
        gc_pool_release(&context->pool);
    }
}

void gc_export_expect_registration(struct gc_core *core)
{
    /* First: another thread may be at it, and this one returns when it is done. */
    gc_tcache_stop_all(core);
    const bool is_known =
        atomic_exchange_explicit(&core->is_registered, true, memory_order_relaxed);
    /* Blocks made so far may lie in several extents: as they lie they serve nobody again. */
    for (int i = 0; !is_known && i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device != NULL)
            bar_from_caches(device);
    }
    gc_tcache_resume_all(core);
}

enum gc_status gc_export_leave_single_stream(struct gc_core *core, int *driver_code)
{
    if (gc_submit_end_single_stream(core, driver_code))
        return GC_OK;
    return *driver_code == 0 ? GC_CAPTURING : GC_DRIVER;
}

enum gc_status gc_export_block(struct gc_core *core, uint64_t address, int *driver_code)
{
    struct gc_block *block;
    enum gc_status status = gc_lookup_lock_block(core, address, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    const bool is_cut = gc_block_segment(block)->size_class < GC_CLASS_CUT_COUNT;
    if (!is_live(block))
        status = GC_INVALID_POINTER;
    else if (!gc_pool_is_dedicated_locked(block))
        status = GC_NOT_SUPPORTED;
    else
        gc_pool_export_locked(block);
    gc_pool_release(pool);
    if (status != GC_OK || core->mode != GC_MODE_CACHE)
        return status;
    return is_cut ? wait_former_use(pool->context, driver_code)
                  : gc_export_leave_single_stream(core, driver_code);
}

/* Marks the block: from now on other processes may open it, and no pause moves it. */
static enum gc_status mark_shared(struct gc_core *core, uint64_t address,
                                  struct gc_block_info *info)
{
    struct gc_block *block;
    enum gc_status status = gc_lookup_lock_block(core, address, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    if (!is_live(block) || !gc_lookup_describe_locked(block, address, info)) {
        status = GC_INVALID_POINTER;
    } else if (!info->is_mapped || info->is_ordered || info->is_spilled) {
        status = GC_NOT_SUPPORTED;
    } else {
        gc_pool_pin_locked(pool, block);
        block->is_exported = true;
    }
    gc_pool_release(pool);
    return status;
}

enum gc_status gc_export_share(struct gc_core *core, uint64_t address, void *handle,
                               int *driver_code)
{
    struct gc_block_info info;
    enum gc_status status = mark_shared(core, address, &info);
    if (status == GC_OK)
        status = wait_former_use(info.owner, driver_code);
    return status == GC_OK ? gc_share_make_handle(core, info.address, info.id, handle) : status;
}

enum gc_status gc_export_set_synchronous(struct gc_core *core, uint64_t address, bool is_it)
{
    struct gc_block *block;
    enum gc_status status = gc_lookup_lock_block(core, address, &block);
    if (status != GC_OK)
        return status == GC_NOT_OURS ? gc_import_set_synchronous(core, address, is_it) : status;
    struct gc_pool *pool = gc_block_pool(block);
    if (is_live(block))
        gc_pool_set_synchronous_locked(pool, block, is_it);
    else
        status = GC_INVALID_POINTER;
    gc_pool_release(pool);
    return status;
}

/* Pins one block; *next is its end. */
static enum gc_status pin_block(struct gc_core *core, uint64_t address, uint64_t *next)
{
    struct gc_block *block;
    const enum gc_status status = gc_lookup_lock_block(core, address, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    if (is_live(block))
        gc_pool_pin_locked(pool, block);
    *next = block->address + block->bytes;
    gc_pool_release(pool);
    return GC_OK;
}

void gc_export_pin(struct gc_core *core, uint64_t address, uint64_t bytes)
{
    const uint64_t end = address + bytes;
    while (address < end && pin_block(core, address, &address) == GC_OK)
        ;
}
