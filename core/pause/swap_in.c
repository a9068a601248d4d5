/* Swap-in: charge, create, map, copy back, a chunk after the other. Every step may fail; the chunk
 * is still swapped out then. */
#include "core/backing/copy.h"
#include "core/backing/kept.h"
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
 * out, or another thread moves it. */
static enum gc_swap_refusal acquire_locked(struct gc_context *context, struct gc_swap **swap)
{
    *swap = context->pool.pages.swap;
    if (*swap == NULL || (*swap)->is_moving)
        return GC_SWAP_AGAIN;
    if (!gc_peers_wait_begin_locked(context, &(*swap)->change.set))
        return GC_SWAP_CAPTURES;
    (*swap)->is_moving = true;
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
    struct gc_copy *copies = NULL;
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
        copies = gc_copy_join(extent->copy, copies);
        extent->copy = NULL;
        gc_pages_detach_locked(pool, mapping);
        gc_slab_free(&device->mapping_records, mapping);
        if (extent->driver_handle == 0)
            gc_slab_free(&device->extent_records, extent);
        else
            gc_swap_return_locked(pool, extent);
    }
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
    gc_copy_free(swap->change.context->core, copies);
}

/* ---- chunks ---- */

/* A chunk of extents, linked by `next`: charged, created, mapped. */
struct chunk {
    struct gc_extent *extents;
    struct gc_map_op map_op;
    uint64_t bytes; /* that were created */
};

struct swapping_in {
    struct gc_swap *swap;
    const struct gc_swap_spec *spec;
    struct gc_swap_result *result;
    struct chunk copying;
};

/* Takes the next extents of the swap. False: there are none. */
static bool take_chunk(struct swapping_in *in, struct chunk *chunk)
{
    struct gc_swap *swap = in->swap;
    struct gc_context *context = swap->change.context;
    const uint64_t page_bytes = context->pool.pages.page_bytes;
    uint64_t bytes = 0;
    *chunk = (struct chunk){.map_op = {.change = swap->change,
                                       .context = context,
                                       .pool = &context->pool,
                                       .failure = &swap->failure}};
    while (swap->extents != NULL && bytes < in->spec->chunk_bytes) {
        struct gc_extent *extent = swap->extents;
        swap->extents = extent->next;
        extent->next = chunk->extents;
        chunk->extents = extent;
        extent->is_fresh = extent->driver_handle == 0;
        extent->mappings->link = chunk->map_op.maps;
        chunk->map_op.maps = extent->mappings;
        bytes += extent->page_count * page_bytes;
        if (extent->is_fresh)
            chunk->map_op.create_count += extent->page_count;
    }
    chunk->bytes = chunk->map_op.create_count * page_bytes;
    return chunk->extents != NULL;
}

/* The chunk's extents are the swap's again. A created one that the driver did not release is held,
 * and stays so. */
static void give_back(const struct swapping_in *in, struct chunk *chunk)
{
    struct gc_pool *pool = &in->swap->change.context->pool;
    gc_pool_acquire_plain(pool);
    while (chunk->extents != NULL) {
        struct gc_extent *extent = chunk->extents;
        chunk->extents = extent->next;
        if (extent->is_fresh && extent->driver_handle != 0)
            pool->pages.count += extent->page_count;
        extent->is_fresh = false;
        extent->next = in->swap->extents;
        in->swap->extents = extent;
    }
    gc_pool_release(pool);
}

/* Releases what was created, unless the driver refuses, and takes the charge back. */
static void undo_chunk(struct swapping_in *in, struct chunk *chunk)
{
    struct gc_context *context = in->swap->change.context;
    const uint64_t unused = gc_map_undo_create(&chunk->map_op);
    if (unused > 0) {
        gc_context_uncharge(context, unused * context->pool.pages.page_bytes);
        in->swap->failure.charge_failure.rollback_count++;
    }
    in->result->driver_code = in->swap->failure.driver_code;
    give_back(in, chunk);
}

/* Charges, creates and maps the next chunk; without a status of GC_OK the extents are the swap's.
 */
static enum gc_status map_chunk(struct swapping_in *in, struct chunk *chunk)
{
    struct gc_swap *swap = in->swap;
    struct gc_context *context = swap->change.context;
    struct gc_charge_failure *failure = &swap->failure.charge_failure;
    swap->failure.driver_code = 0;
    if (!take_chunk(in, chunk))
        return GC_OK;
    const bool is_charged =
        in->spec->is_return
            ? gc_quota_charge_return(context->device, context->quota, chunk->bytes,
                                     &chunk->map_op.held)
            : gc_context_charge(context, chunk->bytes, &chunk->map_op.held, failure);
    if (!is_charged) {
        give_back(in, chunk);
        return GC_OUT_OF_MEMORY;
    }
    const enum gc_status status = gc_map_call_driver(&chunk->map_op);
    if (status != GC_OK)
        undo_chunk(in, chunk);
    return status;
}

/* Starts to copy the content of the extents. */
static int restore(const struct swapping_in *in, const struct chunk *chunk)
{
    struct gc_context *context = in->swap->change.context;
    struct gc_context *worker = gc_swap_worker(context);
    int code = 0;
    for (const struct gc_extent *extent = chunk->extents; code == 0 && extent != NULL;
         extent = extent->next)
        if (extent->copy != NULL)
            code = gc_copy_start(worker, extent->copy, false);
    return code;
}

/* The content of the chunk is complete: its extents serve again. */
static void commit(struct swapping_in *in, struct chunk *chunk)
{
    struct gc_context *context = in->swap->change.context;
    struct gc_pool *pool = &context->pool;
    struct gc_copy *copies = NULL;
    if (chunk->extents == NULL)
        return;
    gc_context_commit(context, &chunk->map_op.held);
    gc_pool_acquire_plain(pool);
    const uint64_t before = pool->pages.idle_count;
    while (chunk->extents != NULL) {
        struct gc_extent *extent = chunk->extents;
        chunk->extents = extent->next;
        if (extent->is_fresh)
            pool->pages.count += extent->page_count;
        extent->is_fresh = false;
        copies = gc_copy_join(extent->copy, copies);
        extent->copy = NULL;
        gc_pages_set_stage(extent->mappings, GC_MAPPING_NONE);
        extent->mappings->has_access = true;
        gc_swap_return_locked(pool, extent);
    }
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
    gc_copy_free(context->core, gc_kept_keep(context->core, copies));
    in->result->moved_bytes += chunk->bytes;
    if (in->spec->moved != NULL)
        in->spec->moved(in->spec->argument, chunk->bytes);
}

static int wait_copies(const struct swapping_in *in)
{
    return gc_copy_wait(gc_swap_worker(in->swap->change.context), false);
}

/* Waits until the content of the chunk before is complete. */
static enum gc_status finish_copies(struct swapping_in *in)
{
    const int code = in->copying.extents == NULL ? 0 : wait_copies(in);
    if (code != 0) {
        in->swap->failure.driver_code = code;
        undo_chunk(in, &in->copying);
        return GC_DRIVER;
    }
    commit(in, &in->copying);
    return GC_OK;
}

static enum gc_status start_copies(struct swapping_in *in, struct chunk *chunk)
{
    const int code = restore(in, chunk);
    in->copying = *chunk;
    in->copying.map_op.failure = &in->swap->failure;
    if (code == 0)
        return GC_OK;
    in->swap->failure.driver_code = code;
    (void)wait_copies(in); /* those that were started read from the copies */
    undo_chunk(in, &in->copying);
    return GC_DRIVER;
}

/* While the content of one chunk is copied, the next is charged, created and mapped. */
static enum gc_status swap_in_chunks(struct gc_swap *swap, const struct gc_swap_spec *spec,
                                     struct gc_swap_result *result)
{
    struct swapping_in in = {.swap = swap, .spec = spec, .result = result};
    enum gc_status status;
    drop_unused(swap);
    do {
        struct chunk next;
        status = map_chunk(&in, &next);
        const bool was_copying = in.copying.extents != NULL;
        const enum gc_status finished = finish_copies(&in);
        if (finished != GC_OK) {
            if (status == GC_OK && next.extents != NULL)
                undo_chunk(&in, &next);
            return finished;
        }
        if (status == GC_OK && next.extents != NULL)
            status = start_copies(&in, &next);
        else if (status == GC_OUT_OF_MEMORY && was_copying)
            status = GC_OK; /* the copy took time: there may be room now */
    } while (status == GC_OK && (in.copying.extents != NULL || swap->extents != NULL));
    return status;
}

/* What was freed meanwhile does not come back. */
static uint64_t missing_pages(const struct gc_swap *swap)
{
    uint64_t count = 0;
    for (const struct gc_extent *extent = swap->extents; extent != NULL; extent = extent->next)
        count += extent->driver_handle == 0 && extent->used_count > 0 ? extent->page_count : 0;
    return count;
}

uint64_t gc_swap_missing_bytes(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    const struct gc_swap *swap = pool->pages.swap;
    const uint64_t count = swap == NULL || swap->is_moving ? 0 : missing_pages(swap);
    gc_pool_release(pool);
    return count * pool->pages.page_bytes;
}

/* Ends the change if all is back; otherwise the change lasts until the rest is back. */
static void end_swap_in(struct gc_swap *swap, bool is_over)
{
    struct gc_context *context = swap->change.context;
    struct gc_pool *pool = &context->pool;
    gc_peers_wait_end(&swap->change.set);
    gc_pool_acquire_plain(pool);
    swap->is_moving = false;
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

static enum gc_swap_refusal try_swap_in(struct gc_context *context, const struct gc_swap_spec *spec,
                                        struct missing *missing, struct gc_swap_result *result)
{
    struct gc_swap *swap;
    const enum gc_swap_refusal refusal = acquire(context, &swap);
    if (refusal != GC_SWAP_OK)
        return refusal;
    swap->failure = missing->failure;
    const enum gc_status status = swap_in_chunks(swap, spec, result);
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

bool gc_swap_in_part(struct gc_context *context, const struct gc_swap_spec *spec,
                     struct gc_swap_result *result)
{
    struct missing missing = {0};
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    result->refusal = try_swap_in(context, spec, &missing, result);
    return result->refusal == GC_SWAP_OK;
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
    static const struct gc_swap_spec at_once = {.chunk_bytes = UINT64_MAX};
    struct gc_reclaim reclaim;
    struct gc_borrow borrow = {0};
    struct missing missing = {0};
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    gc_reclaim_begin(&reclaim, context->device, context->quota, &context->pool);
    do
        result->refusal = try_swap_in(context, &at_once, &missing, result);
    while (result->refusal == GC_SWAP_FULL && reclaim_memory(&reclaim, &borrow, &missing));
    gc_borrow_end(context->device, &borrow);
    return result->refusal == GC_SWAP_OK;
}
