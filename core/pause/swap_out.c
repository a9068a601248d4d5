/* Swap-out: check, choose the pages in use, wait for the context's work, copy, unmap, release.
 * Every step may fail; the extents and their mappings then record how far it got. */
#include "core/backing/unmap.h"
#include "core/base/assert.h"
#include "core/device/registry.h"
#include "core/io/meminfo.h"
#include "core/pause/swap.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/release.h"

#include <stddef.h>

/* Copies may take this much of the available host memory. */
#define HOST_MAX_PERCENT 90

const char *gc_swap_refusal_text(enum gc_swap_refusal refusal)
{
    static const char *const texts[GC_SWAP_REFUSAL_COUNT] = {
        [GC_SWAP_OK] = "done",
        [GC_SWAP_AGAIN] = "it is paused already, or was not",
        [GC_SWAP_CAPTURES] = "a graph is being captured",
        [GC_SWAP_PEERS] = "other devices or contexts have access to the memory",
        [GC_SWAP_EXPORTED] = "other processes or devices may have the memory open",
        [GC_SWAP_NOT_MAPPED] = "the memory is not mapped page by page (backend `driver`)",
        [GC_SWAP_HOST] = "not enough host memory for the copy",
        [GC_SWAP_FULL] = "not enough free memory on the device, or within a limit",
        [GC_SWAP_BUSY] = "work under way did not complete in time",
        [GC_SWAP_UNSEEN] = "work may be submitted that the library does not see",
        [GC_SWAP_DRIVER] = "a driver call failed",
    };
    return (unsigned)refusal < GC_SWAP_REFUSAL_COUNT ? texts[refusal] : "?";
}

bool gc_swap_is_out(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_swapped = context->pool.pages.swap != NULL;
    gc_pool_release(&context->pool);
    return is_swapped;
}

/* ---- checks ---- */

static bool has_peers_locked(const struct gc_context *context)
{
    bool has_peers = context->is_crowded;
    /* A pause waits for all contexts of a device, so those may access the device's own pool. */
    for (uint32_t i = 0; i < context->peer_count; i++)
        has_peers |= !gc_context_is_dropped(context->peers[i]) &&
                     (!context->is_device || context->peers[i]->device != context->device);
    return has_peers;
}

static enum gc_swap_refusal check_locked(const struct gc_context *context)
{
    const struct gc_pool *pool = &context->pool;
    if (pool->pages.swap != NULL)
        return GC_SWAP_AGAIN;
    if (has_peers_locked(context))
        return GC_SWAP_PEERS;
    bool has_uncached = false;
    bool has_plain = false;
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        has_uncached |=
            segment->size_class == GC_CLASS_UNCACHED && !segment->is_idle && !segment->is_plain;
        has_plain |= segment->arena == NULL;
    }
    if (pool->pages.arenas == NULL)
        return has_plain ? GC_SWAP_NOT_MAPPED : GC_SWAP_OK;
    return has_uncached || pool->pinned_count > 0 ? GC_SWAP_EXPORTED : GC_SWAP_OK;
}

enum gc_swap_refusal gc_swap_check(struct gc_context *context)
{
    if (gc_capture_is_of_context(context))
        return GC_SWAP_CAPTURES;
    gc_pool_acquire_plain(&context->pool);
    const enum gc_swap_refusal refusal = check_locked(context);
    gc_pool_release(&context->pool);
    return refusal;
}

/* ---- swap-out ---- */

static struct gc_swap *create_swap(struct gc_context *context)
{
    struct gc_swap *swap = gc_host_mem_map(&context->core->host, sizeof(*swap));
    if (swap != NULL)
        swap->host_bytes = sizeof(*swap);
    return swap;
}

/* The mappings of an extent in use that serve nobody are excluded first. False: records are
 * lacking; the extent stays. */
static bool choose_mappings_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = mapping->next) {
        if (mapping != extent->user && !gc_pages_try_exclude_locked(pool, mapping))
            return false;
    }
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = mapping->next)
        gc_pages_set_stage(mapping, GC_MAPPING_TO_UNMAP);
    return true;
}

/* Adds all extents in use to the purge list. */
static void choose_arena_locked(struct gc_swap *swap, struct gc_arena *arena,
                                struct gc_purge_list *purge)
{
    struct gc_pool *pool = &swap->change.context->pool;
    for (uint64_t i = 0; i < arena->touched_count;
         i = gc_pages_run_end(arena, i, arena->touched_count)) {
        struct gc_extent *extent = arena->slots[i] != NULL ? arena->slots[i]->extent : NULL;
        if (extent == NULL || extent->user != arena->slots[i] ||
            !choose_mappings_locked(pool, extent))
            continue;
        gc_pages_set_away_locked(pool, extent, true);
        extent->copy_page = swap->copy_bytes / pool->pages.page_bytes;
        swap->copy_bytes += extent->page_count * pool->pages.page_bytes;
        extent->next = purge->first;
        purge->first = extent;
    }
}

static void choose(struct gc_swap *swap, struct gc_purge_list *purge)
{
    struct gc_pool *pool = &swap->change.context->pool;
    gc_pool_acquire_to_exclude(pool);
    for (struct gc_arena *arena = pool->pages.arenas; arena != NULL; arena = arena->next)
        choose_arena_locked(swap, arena, purge);
    gc_pool_release(pool);
}

uint64_t gc_swap_address(const struct gc_pool *pool, const struct gc_extent *extent)
{
    return gc_pages_address_of(pool, extent->user);
}

struct gc_context *gc_swap_worker(struct gc_context *context)
{
    struct gc_context *worker = gc_context_worker(context);
    return worker != NULL ? worker : context;
}

static enum gc_swap_refusal save(struct gc_swap *swap, const struct gc_purge_list *purge,
                                 struct gc_swap_result *result)
{
    struct gc_context *context = swap->change.context;
    struct gc_context *worker = gc_swap_worker(context);
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page_bytes = context->pool.pages.page_bytes;
    if (swap->copy_bytes == 0)
        return GC_SWAP_OK;
    if (swap->copy_bytes > gc_meminfo_available_bytes() / 100 * HOST_MAX_PERCENT)
        return GC_SWAP_HOST;
    swap->copy = gc_host_mem_map(&context->core->host, swap->copy_bytes);
    if (swap->copy == NULL)
        return GC_SWAP_HOST;
    for (const struct gc_extent *extent = purge->first; extent != NULL; extent = extent->next) {
        result->driver_code =
            GC_CALL_IF_OPEN(worker, driver->read(driver->self, worker->handle,
                                                 gc_swap_address(&context->pool, extent),
                                                 extent->page_count * page_bytes,
                                                 swap->copy + extent->copy_page * page_bytes));
        if (result->driver_code != 0)
            return GC_SWAP_DRIVER;
    }
    return GC_SWAP_OK;
}

void gc_swap_return_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    gc_pages_set_away_locked(pool, extent, false);
    if (extent->used_count == 0)
        gc_pages_make_idle_locked(pool, extent);
}

/* The user mapping of an extent that is mapped nowhere any more keeps its slots. */
static void detach_others_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    struct gc_mapping *user = extent->user;
    const bool is_out = gc_pages_stage(user) == GC_MAPPING_UNMAPPED;
    if (is_out) {
        gc_pages_set_stage(user, GC_MAPPING_TO_MAP);
        user->has_access = false;
    }
    struct gc_mapping *next;
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = next) {
        next = mapping->next;
        if (mapping != user || !is_out)
            (void)gc_unmap_settle_locked(pool, mapping);
    }
}

/* Moves the extents that are unmapped everywhere to the swap; the others stay as they are. */
static void divide(struct gc_swap *swap, struct gc_purge_list *purge)
{
    struct gc_pool *pool = &swap->change.context->pool;
    gc_pool_acquire_plain(pool);
    const uint64_t before = pool->pages.idle_count;
    while (purge->first != NULL) {
        struct gc_extent *extent = purge->first;
        purge->first = extent->next;
        detach_others_locked(pool, extent);
        if (gc_pages_stage(extent->user) == GC_MAPPING_TO_MAP && extent->mapping_count == 1) {
            extent->next = swap->extents;
            swap->extents = extent;
        } else {
            gc_swap_return_locked(pool, extent);
        }
    }
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
}

/* Releases the extents; one that the driver does not release stays the swap's. */
static uint64_t release(struct gc_swap *swap)
{
    struct gc_context *context = swap->change.context;
    struct gc_pool *pool = &context->pool;
    const struct gc_driver *driver = &context->core->driver;
    uint64_t count = 0;
    for (struct gc_extent *extent = swap->extents; extent != NULL; extent = extent->next) {
        if (driver->page_release(driver->self, context->handle, extent->driver_handle) != 0)
            continue;
        extent->driver_handle = 0;
        count += extent->page_count;
    }
    gc_pool_acquire_plain(pool);
    pool->pages.count -= count;
    gc_pool_release(pool);
    if (count > 0)
        gc_change_uncharge_pages(context, count);
    return count * pool->pages.page_bytes;
}

static enum gc_swap_refusal swap_out(struct gc_swap *swap, bool keeps_content,
                                     struct gc_swap_result *result)
{
    struct gc_context *context = swap->change.context;
    struct gc_purge_list purge = {.change = swap->change};
    enum gc_swap_refusal refusal = GC_SWAP_OK;
    choose(swap, &purge);
    const enum gc_status status = gc_fence_synchronize(context, GC_FOREVER, &result->driver_code);
    if (status != GC_OK)
        refusal = status == GC_CAPTURING ? GC_SWAP_CAPTURES : GC_SWAP_DRIVER;
    else if (keeps_content)
        refusal = save(swap, &purge, result);
    if (refusal == GC_SWAP_OK)
        gc_unmap_extents(&purge);
    divide(swap, &purge);
    if (refusal == GC_SWAP_OK)
        result->moved_bytes += release(swap);
    return refusal;
}

static bool fail(struct gc_swap_result *result, enum gc_swap_refusal refusal)
{
    result->refusal = refusal;
    return false;
}

/* Swaps out under a change that has begun; on success the change belongs to the swap. */
static enum gc_swap_refusal swap_out_changing(struct gc_change *change, bool keeps_content,
                                              struct gc_swap_result *result)
{
    struct gc_context *context = change->context;
    struct gc_pool *pool = &context->pool;
    struct gc_swap *swap = create_swap(context);
    if (swap == NULL)
        return GC_SWAP_HOST;
    swap->change = *change;
    swap->change.set = (struct gc_wait_set){.count = 0}; /* the caller keeps the set */
    const enum gc_swap_refusal refusal = swap_out(swap, keeps_content, result);
    if (refusal != GC_SWAP_OK) {
        gc_change_free_swapped(context, swap);
        return refusal;
    }
    gc_pool_acquire_plain(pool);
    pool->pages.swap = swap;
    gc_lock_broadcast(&pool->pages.changed); /* requests that need no page go on */
    gc_pool_release(pool);
    gc_peers_wait_end(&change->set);
    return GC_SWAP_OK;
}

bool gc_swap_out(struct gc_context *context, bool keeps_content, struct gc_swap_result *result)
{
    struct gc_change change;
    *result = (struct gc_swap_result){.refusal = gc_swap_check(context)};
    if (result->refusal != GC_SWAP_OK)
        return false;
    /* Blocks in thread caches count as used until they are in the pool. */
    (void)gc_reclaim_collect(context->device, context->quota, GC_RECLAIM_WAIT_NS);
    (void)gc_release_idle(context->device, context->quota, 0, UINT64_MAX);
    const enum gc_status status = gc_change_begin(context, &change);
    if (status == GC_DRIVER)
        return fail(result, GC_SWAP_CAPTURES);
    if (status != GC_OK)
        return fail(result, GC_SWAP_AGAIN);
    result->refusal = swap_out_changing(&change, keeps_content, result);
    if (result->refusal != GC_SWAP_OK)
        gc_change_end(&change);
    return result->refusal == GC_SWAP_OK;
}
