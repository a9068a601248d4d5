/* Swap-in: charge, create, map, copy back, all at once. Every step may fail; all is still swapped
 * out then. */
#include "core/backing/map.h"
#include "core/backing/peers.h"
#include "core/backing/segment.h"
#include "core/backing/unmap.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/group/group.h"
#include "core/pause/swap.h"
#include "core/reclaim/reclaim.h"

#include <stddef.h>

/* GC_SWAP_OK: the calling thread swaps in, and captures wait. GC_SWAP_AGAIN: nothing is swapped
 * out, or another thread swaps it in. */
static enum gc_swap_refusal acquire_locked(struct gc_context *context, struct gc_swap **swap)
{
    *swap = context->pool.pages.swap;
    if (*swap == NULL || (*swap)->is_swapping_in)
        return GC_SWAP_AGAIN;
    if (!gc_peers_wait_begin_locked(context, &(*swap)->change.set))
        return GC_SWAP_CAPTURES;
    (*swap)->is_swapping_in = true;
    gc_change_read_peers_locked(&(*swap)->change);
    return GC_SWAP_OK;
}

static enum gc_swap_refusal acquire(struct gc_context *context, struct gc_swap **swap)
{
    gc_pool_acquire_plain(&context->pool);
    const enum gc_swap_refusal refusal = acquire_locked(context, swap);
    gc_pool_release(&context->pool);
    return refusal;
}

/* Drops extents whose blocks were freed meanwhile. */
static void drop_unused(struct gc_swap *swap)
{
    struct gc_pool *pool = &swap->change.context->pool;
    struct gc_device *device = swap->change.context->device;
    struct gc_extent **link = &swap->extents;
    gc_pool_acquire_to_exclude(pool);
    const uint64_t before = pool->pages.idle_count;
    /* While a teardown is undecided the pool has no blocks: all is swapped in then. */
    while (*link != NULL && !pool->is_dropped) {
        struct gc_extent *extent = *link;
        struct gc_mapping *mapping = extent->mappings;
        if (extent->used_count > 0 || gc_pages_stage(mapping) != GC_MAPPING_TO_MAP ||
            !gc_pages_try_exclude_locked(pool, mapping)) {
            link = &extent->next;
            continue;
        }
        *link = extent->next;
        gc_pages_detach_locked(pool, mapping);
        gc_slab_free(&device->mapping_records, mapping);
        if (extent->driver_handle == 0)
            gc_slab_free(&device->extent_records, extent);
        else
            gc_swap_return_locked(pool, extent);
    }
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
}

static int restore(const struct gc_swap *swap)
{
    struct gc_context *context = swap->change.context;
    struct gc_context *worker = gc_swap_worker(context);
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page_bytes = context->pool.pages.page_bytes;
    int code = 0;
    for (const struct gc_extent *extent = swap->extents;
         code == 0 && swap->copy != NULL && extent != NULL; extent = extent->next)
        code = GC_CALL_IF_OPEN(worker, driver->write(driver->self, worker->handle,
                                                     gc_swap_address(&context->pool, extent),
                                                     extent->page_count * page_bytes,
                                                     swap->copy + extent->copy_page * page_bytes));
    return code;
}

/* All extents are back, or none but those that the driver does not unmap. */
static void commit(struct gc_swap *swap, bool is_done)
{
    struct gc_pool *pool = &swap->change.context->pool;
    gc_pool_acquire_plain(pool);
    const uint64_t before = pool->pages.idle_count;
    for (struct gc_extent *extent = swap->extents, *next; extent != NULL; extent = next) {
        next = extent->next;
        if (extent->is_fresh && extent->driver_handle != 0)
            pool->pages.count += extent->page_count;
        extent->is_fresh = false;
        if (!is_done)
            continue;
        gc_pages_set_stage(extent->mappings, GC_MAPPING_NONE);
        extent->mappings->has_access = true;
        gc_swap_return_locked(pool, extent);
    }
    if (is_done)
        swap->extents = NULL;
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
}

static uint64_t missing_pages(const struct gc_swap *swap)
{
    uint64_t count = 0;
    for (const struct gc_extent *extent = swap->extents; extent != NULL; extent = extent->next)
        count += extent->driver_handle == 0 ? extent->page_count : 0;
    return count;
}

static enum gc_status swap_in_all(struct gc_swap *swap, struct gc_swap_result *result)
{
    struct gc_context *context = swap->change.context;
    const uint64_t page_bytes = context->pool.pages.page_bytes;
    drop_unused(swap);
    struct gc_map_op map_op = {.change = swap->change,
                               .context = context,
                               .pool = &context->pool,
                               .failure = &swap->failure,
                               .create_count = missing_pages(swap)};
    const uint64_t bytes = map_op.create_count * page_bytes;
    for (struct gc_extent *extent = swap->extents; extent != NULL; extent = extent->next) {
        extent->is_fresh = extent->driver_handle == 0;
        extent->mappings->link = map_op.maps;
        map_op.maps = extent->mappings;
    }
    swap->failure.driver_code = 0;
    if (!gc_context_charge(context, bytes, &map_op.held, &swap->failure.charge_failure))
        return GC_OUT_OF_MEMORY;
    enum gc_status status = gc_map_call_driver(&map_op);
    if (status == GC_OK) {
        swap->failure.driver_code = restore(swap);
        status = swap->failure.driver_code == 0 ? GC_OK : GC_DRIVER;
    }
    if (status == GC_OK) {
        gc_context_commit(context, &map_op.held);
        result->moved_bytes += bytes;
    } else {
        const uint64_t unused = gc_map_undo_create(&map_op);
        if (unused > 0) {
            gc_context_uncharge(context, unused * page_bytes);
            swap->failure.charge_failure.rollback_count++;
        }
        result->driver_code = swap->failure.driver_code;
    }
    commit(swap, status == GC_OK);
    return status;
}

/* Ends the change if all is back; otherwise the change lasts until the rest is back. */
static void end_swap_in(struct gc_swap *swap, bool is_over)
{
    struct gc_context *context = swap->change.context;
    struct gc_pool *pool = &context->pool;
    gc_peers_wait_end(&swap->change.set);
    gc_pool_acquire_plain(pool);
    swap->is_swapping_in = false;
    if (is_over) {
        pool->pages.swap = NULL;
        pool->pages.is_changing = false;
    }
    gc_lock_broadcast(&pool->pages.changed);
    gc_pool_release(pool);
    if (is_over)
        gc_change_free_swapped(context, swap);
}

/* Memory to reclaim before the next attempt. */
struct missing {
    uint64_t bytes;
    struct gc_segment_failure failure; /* of all attempts so far */
};

static enum gc_swap_refusal try_swap_in(struct gc_context *context, struct missing *missing,
                                        struct gc_swap_result *result)
{
    struct gc_swap *swap;
    const enum gc_swap_refusal refusal = acquire(context, &swap);
    if (refusal != GC_SWAP_OK)
        return refusal;
    swap->failure = missing->failure;
    const enum gc_status status = swap_in_all(swap, result);
    if (status == GC_OK)
        gc_peers_grant_rest(&swap->change);
    missing->bytes = missing_pages(swap) * context->pool.pages.page_bytes;
    missing->failure = swap->failure;
    end_swap_in(swap, status == GC_OK);
    if (status == GC_OUT_OF_MEMORY)
        return GC_SWAP_FULL;
    if (status == GC_NO_HOST_MEMORY)
        return GC_SWAP_HOST;
    return status == GC_OK ? GC_SWAP_OK : GC_SWAP_DRIVER;
}

/* Reclaims in this process, then borrows from its group. Not during an attempt: a thread that tears
 * the context down waits for the attempt, and may itself hold the memory that is needed. */
static bool reclaim_memory(struct gc_reclaim *reclaim, struct gc_borrow *borrow,
                           const struct missing *missing)
{
    const struct gc_charge_failure *charge_failure = &missing->failure.charge_failure;
    return gc_reclaim_step(reclaim, missing->bytes, charge_failure) ||
           (!charge_failure->is_quota_short &&
            gc_borrow_step(reclaim->device, missing->bytes, borrow));
}

bool gc_swap_in(struct gc_context *context, struct gc_swap_result *result)
{
    struct gc_reclaim reclaim;
    struct gc_borrow borrow = {0};
    struct missing missing = {0};
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    gc_reclaim_begin(&reclaim, context->device, context->quota, &context->pool);
    do
        result->refusal = try_swap_in(context, &missing, result);
    while (result->refusal == GC_SWAP_FULL && reclaim_memory(&reclaim, &borrow, &missing));
    return result->refusal == GC_SWAP_OK;
}
