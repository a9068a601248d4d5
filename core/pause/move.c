/* A move, while no work is under way: copy each extent of the block to a page of host memory, then
 * exchange the mappings, then release the device's pages.
 *
 * Until the exchange nothing that the program sees has changed. An exchange that fails is undone by
 * mapping the device's page again, which still has the content: the page is released only when all
 * are exchanged. */
#include "core/pause/move.h"

#include "core/backing/change.h"
#include "core/backing/spill.h"
#include "core/backing/unmap.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/pause/pause.h"
#include "core/pause/swap.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

#define TIMEOUT_MS 1000
#define COPY_BYTES (UINT64_C(64) << 20) /* at once */

struct move {
    struct gc_context *context;
    uint64_t least_bytes;
    struct gc_change change;
    struct gc_block *block;
    struct gc_extent *extents; /* linked by `next` */
    uint64_t bytes;            /* of these */
    uint8_t *buffer;
    uint64_t buffer_bytes;
    uint64_t aside;      /* addresses for the copies */
    bool is_aside_stuck; /* they are mapped still: the driver does not unmap them */
    struct gc_moved *moved;
};

/* ---- the choice ---- */

/* An extent that lies in the block, whole, and has no other address. */
static bool is_movable(const struct gc_span *span, const struct gc_mapping *mapping)
{
    return mapping != NULL && mapping->first >= span->whole_first &&
           gc_pages_end_of(mapping) <= span->whole_end && mapping->extent->user == mapping &&
           mapping->extent->mapping_count == 1 && !mapping->extent->is_away &&
           mapping->has_access && gc_pages_stage(mapping) == GC_MAPPING_NONE;
}

static uint64_t movable_pages(const struct gc_pool *pool, const struct gc_block *block)
{
    const struct gc_span span = gc_pages_span_of_block_locked(pool, block);
    uint64_t pages = 0;
    for (uint64_t i = span.first; i < span.end; i = gc_pages_run_end(span.arena, i, span.end))
        if (is_movable(&span, span.arena->slots[i]))
            pages += span.arena->slots[i]->extent->page_count;
    return pages;
}

/* The thread caches are stopped: a live block is the program's. */
static bool is_candidate(const struct gc_block *block)
{
    return atomic_load_explicit(&block->state, memory_order_acquire) == GC_BLOCK_LIVE &&
           !block->is_pinned && !block->is_exported && !block->is_synchronous &&
           !block->is_spilled && !block->is_ordered;
}

static struct gc_block *largest_locked(const struct gc_pool *pool, uint64_t least_pages)
{
    struct gc_block *largest = NULL;
    uint64_t most = 0;
    for (const struct gc_arena *arena = pool->pages.arenas; arena != NULL; arena = arena->next) {
        if (arena->segment->size_class != GC_CLASS_LARGE)
            continue;
        for (struct gc_block *block = arena->segment->first; block != NULL; block = block->next) {
            if (!is_candidate(block))
                continue;
            const uint64_t pages = movable_pages(pool, block);
            const bool is_older =
                largest != NULL && pages == most && block->live.id < largest->live.id;
            if (pages < least_pages || pages == 0 || (pages <= most && !is_older))
                continue;
            largest = block;
            most = pages;
        }
    }
    return largest;
}

/* From now on the block's free waits for all streams, and its memory serves nobody else. */
static void mark_block(struct move *move)
{
    struct gc_block *block = move->block;
    block->is_spilled = true;
    block->is_shared = true;
    atomic_store_explicit(&block->tcache_number, 0, memory_order_relaxed);
    *move->moved = (struct gc_moved){
        .address = block->address, .block_bytes = block->bytes, .api = block->api};
}

static void take_extents_locked(struct move *move)
{
    struct gc_pool *pool = &move->context->pool;
    const struct gc_span span = gc_pages_span_of_block_locked(pool, move->block);
    for (uint64_t i = span.first; i < span.end; i = gc_pages_run_end(span.arena, i, span.end)) {
        struct gc_mapping *mapping = span.arena->slots[i];
        if (!is_movable(&span, mapping))
            continue;
        struct gc_extent *extent = mapping->extent;
        gc_pages_set_stage(mapping, GC_MAPPING_TO_UNMAP);
        gc_pages_set_away_locked(pool, extent, true);
        extent->next = move->extents;
        move->extents = extent;
        move->bytes += extent->page_count * pool->pages.page_bytes;
        move->buffer_bytes =
            gc_max_u64(move->buffer_bytes, extent->page_count * pool->pages.page_bytes);
    }
}

static bool choose(struct move *move)
{
    struct gc_pool *pool = &move->context->pool;
    const uint64_t page_bytes = pool->pages.page_bytes;
    gc_tcache_stop_all(move->context->core);
    gc_tcache_flush_context(move->context);
    gc_pool_acquire_plain(pool);
    move->block = largest_locked(pool, (move->least_bytes + page_bytes - 1) / page_bytes);
    if (move->block != NULL) {
        mark_block(move);
        take_extents_locked(move);
    }
    gc_pool_release(pool);
    gc_tcache_resume_all(move->context->core);
    return move->block != NULL;
}

/* Nothing moves. The block may have been freed meanwhile: its extents are idle then. */
static void unchoose(struct move *move)
{
    struct gc_pool *pool = &move->context->pool;
    gc_pool_acquire_plain(pool);
    const uint64_t before = pool->pages.idle_count;
    for (struct gc_extent *extent = move->extents, *next; extent != NULL; extent = next) {
        next = extent->next;
        gc_pages_set_stage(extent->user, GC_MAPPING_NONE);
        extent->user->has_access = true;
        gc_swap_return_locked(pool, extent);
    }
    if (move->moved->moved_bytes == 0 && move->block->address == move->moved->address)
        move->block->is_spilled = false;
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
}

/* ---- the copies ---- */

static uint64_t bytes_of(const struct move *move, const struct gc_extent *extent)
{
    return extent->page_count * move->context->pool.pages.page_bytes;
}

static int copy_extent(const struct move *move, const struct gc_extent *extent, uint64_t to)
{
    const struct gc_driver *driver = &move->context->core->driver;
    struct gc_context *worker = gc_swap_worker(move->context);
    const uint64_t from = gc_swap_address(&move->context->pool, extent);
    const uint64_t bytes = bytes_of(move, extent);
    int code = 0;
    for (uint64_t at = 0; at < bytes && code == 0; at += move->buffer_bytes) {
        const uint64_t piece = gc_min_u64(bytes - at, move->buffer_bytes);
        code = GC_CALL_IF_OPEN(
            worker, driver->read(driver->self, worker->handle, from + at, piece, move->buffer));
        if (code == 0)
            code = GC_CALL_IF_OPEN(
                worker, driver->write(driver->self, worker->handle, to + at, piece, move->buffer));
    }
    return code;
}

/* Tries twice, as where a pool is dropped. */
static bool unmap_aside(const struct move *move, uint64_t bytes)
{
    const struct gc_context *context = move->context;
    const struct gc_driver *driver = &context->core->driver;
    int code = -1;
    for (unsigned i = 0; code != 0 && i < 2; i++)
        code = driver->page_unmap(driver->self, context->handle, move->aside, bytes);
    return code == 0;
}

/* A page of host memory with the extent's content; it is mapped nowhere. 0: a failure, which leaves
 * nothing unless the driver does not take it back (*is_stuck). */
static uint64_t copy_to_host(struct move *move, const struct gc_extent *extent, bool *is_stuck)
{
    struct gc_context *context = move->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t bytes = bytes_of(move, extent);
    uint64_t handle = 0;
    int code = GC_CALL_IF_OPEN(
        context, driver->page_create_host(driver->self, context->handle, bytes, &handle));
    if (code != 0)
        return 0;
    code = GC_CALL_IF_OPEN(
        context, driver->page_map(driver->self, context->handle, move->aside, bytes, handle));
    if (code != 0)
        goto fail;
    code = GC_CALL_IF_OPEN(context, driver->page_set_access(driver->self, context->handle,
                                                            move->aside, bytes, NULL, 0));
    if (code == 0)
        code = copy_extent(move, extent, move->aside);
    if (!unmap_aside(move, bytes)) {
        *is_stuck = true;
        move->is_aside_stuck = true;
        return 0;
    }
    if (code == 0)
        return handle;
fail:
    *is_stuck = driver->page_release(driver->self, context->handle, handle) != 0;
    return 0;
}

/* Maps a page at the extent's addresses, which have none. */
static bool map_page(const struct move *move, const struct gc_extent *extent, uint64_t handle)
{
    struct gc_context *context = move->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t address = gc_swap_address(&context->pool, extent);
    const uint64_t bytes = bytes_of(move, extent);
    if (GC_CALL_IF_OPEN(
            context, driver->page_map(driver->self, context->handle, address, bytes, handle)) != 0)
        return false;
    if (GC_CALL_IF_OPEN(context, driver->page_set_access(driver->self, context->handle, address,
                                                         bytes, NULL, 0)) == 0)
        return true;
    (void)driver->page_unmap(driver->self, context->handle, address, bytes);
    return false;
}

/* ---- the exchange ---- */

enum exchange { EXCHANGED, AS_BEFORE, LOST };

/* The extent's addresses show the page on the host instead of the device's. */
static enum exchange exchange(const struct move *move, struct gc_extent *extent, uint64_t handle)
{
    if (gc_change_unmap(move->context, extent->user) != 0)
        return AS_BEFORE;
    if (map_page(move, extent, handle))
        return EXCHANGED;
    return map_page(move, extent, extent->driver_handle) ? AS_BEFORE : LOST;
}

/* The driver maps neither page at addresses that it has just unmapped: work that uses them fails.
 * The extent stays away, so that it never serves another block. */
static void lose(const struct move *move, const struct gc_extent *extent)
{
    struct gc_pool *pool = &move->context->pool;
    gc_pool_acquire_plain(pool);
    gc_pages_set_stage(extent->user, GC_MAPPING_NONE);
    extent->user->has_access = false;
    gc_pool_release(pool);
    gc_log_write(move->context->core->log, GC_LOG_ERROR,
                 "device %d: the driver does not map memory at 0x%llx again, where it was mapped; "
                 "work that uses it will fail",
                 move->context->device->info.ordinal,
                 (unsigned long long)gc_swap_address(pool, extent));
    gc_context_set_faulted(move->context, true);
}

static void commit(struct move *move, struct gc_extent *extent, uint64_t handle)
{
    struct gc_context *context = move->context;
    struct gc_pool *pool = &context->pool;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t device_handle = extent->driver_handle;
    gc_pool_acquire_plain(pool);
    extent->driver_handle = handle;
    extent->is_host = true;
    gc_pages_set_stage(extent->user, GC_MAPPING_NONE);
    extent->next = pool->pages.hosted;
    pool->pages.hosted = extent;
    pool->pages.count -= extent->page_count;
    gc_pool_release(pool);
    move->moved->moved_bytes += bytes_of(move, extent);
    /* A page that the driver keeps stays charged. */
    if (driver->page_release(driver->self, context->handle, device_handle) != 0)
        return;
    gc_change_uncharge_pages(context, extent->page_count);
    move->moved->device_bytes += bytes_of(move, extent);
}

static enum exchange move_extent(struct move *move, struct gc_extent *extent, bool *is_stuck)
{
    struct gc_context *context = move->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t handle = copy_to_host(move, extent, is_stuck);
    if (handle == 0)
        return AS_BEFORE;
    const enum exchange result = exchange(move, extent, handle);
    if (result == EXCHANGED) {
        commit(move, extent, handle);
        return EXCHANGED;
    }
    *is_stuck = driver->page_release(driver->self, context->handle, handle) != 0;
    if (result == LOST)
        lose(move, extent);
    return result;
}

/* One extent after the other: a failure leaves those before it moved. */
static void move_extents(struct move *move)
{
    bool is_stuck = false;
    uint64_t stuck_bytes = 0;
    while (move->extents != NULL) {
        struct gc_extent *extent = move->extents;
        struct gc_extent *next = extent->next;
        const enum exchange result = move_extent(move, extent, &is_stuck);
        if (result != AS_BEFORE)
            move->extents = next;
        if (result != EXCHANGED) {
            stuck_bytes = is_stuck ? bytes_of(move, extent) : 0;
            break;
        }
    }
    gc_core_sub_spilled(move->context->device,
                        move->bytes - move->moved->moved_bytes - stuck_bytes);
}

/* ---- as a whole ---- */

static void move_chosen(struct move *move)
{
    struct gc_context *context = move->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t aside_bytes = move->buffer_bytes;
    int ignored;
    if (gc_fence_synchronize(context, GC_FOREVER, &ignored) != GC_OK ||
        !gc_spill_try_hold(context, move->bytes))
        return;
    move->buffer_bytes = gc_min_u64(aside_bytes, COPY_BYTES);
    move->buffer = gc_host_mem_map(&context->core->host, move->buffer_bytes);
    const bool has_aside =
        move->buffer != NULL &&
        GC_CALL_IF_OPEN(context,
                        driver->address_reserve(driver->self, context->handle, aside_bytes,
                                                context->pool.pages.page_bytes, &move->aside)) == 0;
    if (has_aside) {
        move_extents(move);
        if (!move->is_aside_stuck)
            (void)driver->address_free(driver->self, context->handle, move->aside, aside_bytes);
    } else {
        gc_core_sub_spilled(context->device, move->bytes);
    }
    if (move->buffer != NULL)
        gc_host_mem_unmap(&context->core->host, move->buffer, move->buffer_bytes);
}

static bool move_without_work(void *argument)
{
    struct move *move = argument;
    if (gc_swap_check(move->context) != GC_SWAP_OK ||
        gc_change_begin(move->context, &move->change) != GC_OK)
        return false;
    if (choose(move)) {
        move_chosen(move);
        if (move->extents != NULL)
            unchoose(move);
    }
    gc_change_end(&move->change);
    gc_spill_collect(move->context); /* the block may have been freed meanwhile */
    return move->moved->moved_bytes > 0;
}

bool gc_move_largest(struct gc_context *context, uint64_t least_bytes, struct gc_moved *moved)
{
    struct move move = {.context = context, .least_bytes = least_bytes, .moved = moved};
    GC_ASSERT(gc_lock_held_count() == 0);
    *moved = (struct gc_moved){.address = 0};
    if (context->is_device || context->core->driver.page_create_host == NULL ||
        context->pool.pages.page_bytes == 0 || gc_swap_check(context) != GC_SWAP_OK)
        return false;
    gc_pool_acquire_plain(&context->pool);
    const uint64_t page_bytes = context->pool.pages.page_bytes;
    const bool has_any =
        largest_locked(&context->pool, (least_bytes + page_bytes - 1) / page_bytes) != NULL;
    gc_pool_release(&context->pool);
    return has_any && gc_pause_during(context->core, TIMEOUT_MS, move_without_work, &move);
}
