/* Serialises changes of a pool's mappings (one flag and a condition variable per pool), and
 * destroys the mapped memory of a dropped pool. */
#include "core/backing/change.h"

#include "core/backing/copy.h"

#include "core/backing/swapped.h"
#include "core/base/assert.h"
#include "core/device/registry.h"
#include "core/device/wait.h"

#include <stddef.h>

/* ---- changes ---- */

static void add_device(struct gc_change *change, int ordinal)
{
    bool is_known = ordinal == change->context->device->info.ordinal;
    for (uint32_t i = 0; i < change->peer_count; i++)
        is_known |= change->peers[i] == ordinal;
    if (!is_known && change->peer_count < GC_PEER_MAX)
        change->peers[change->peer_count++] = ordinal;
}

void gc_change_read_peers_locked(struct gc_change *change)
{
    const struct gc_context *context = change->context;
    for (uint32_t i = 0; i < context->peer_count; i++) {
        if (!gc_context_is_dropped(context->peers[i]))
            add_device(change, context->peers[i]->device->info.ordinal);
    }
    /* Also devices that have no context yet. */
    for (int i = 0; context->is_device && i < GC_DEVICE_MAX; i++) {
        if (gc_device_is_open_to(context->device, i))
            add_device(change, i);
    }
}

/* Whether a thread swaps more memory out, or in. */
static bool is_moving_locked(const struct gc_swap *swap)
{
    return swap->is_moving;
}

/* Events that a change waits for. */
#define WAITS_FOR_SWAP 1U    /* all swapped-out memory is swapped in */
#define WAITS_FOR_WORK 2U    /* submitted work completes: a capture forbids the change */
#define WAITS_FOR_SWAP_IN 4U /* a swap-in that is under way ends */

static bool must_wait_locked(const struct gc_pages *pages, unsigned kind)
{
    return pages->is_changing &&
           (pages->swap == NULL || (kind & WAITS_FOR_SWAP) != 0 ||
            ((kind & WAITS_FOR_SWAP_IN) != 0 && is_moving_locked(pages->swap)));
}

/* Whether the change waits for swapped-out memory that no thread swaps in yet. */
static bool waits_for_resume_locked(const struct gc_pages *pages, unsigned kind)
{
    return pages->swap != NULL && (kind & WAITS_FOR_SWAP) != 0 && !is_moving_locked(pages->swap);
}

/* GC_BUSY: the memory is out; the caller waits until it comes back, and tries again. */
static enum gc_status begin_locked(struct gc_change *change, unsigned kind)
{
    struct gc_pool *pool = &change->context->pool;
    while (must_wait_locked(&pool->pages, kind)) {
        if (waits_for_resume_locked(&pool->pages, kind))
            return gc_core_is_shut_down(change->context->core) ? GC_DRIVER : GC_BUSY;
        gc_lock_wait(&pool->lock, &pool->pages.changed);
    }
    if (pool->is_dropped || gc_context_is_dropped(change->context))
        return GC_INVALID_ARGUMENT;
    if (pool->pages.is_changing)
        return GC_DRIVER;
    if ((kind & WAITS_FOR_WORK) != 0 && !gc_peers_wait_begin_locked(change->context, &change->set))
        return GC_DRIVER;
    pool->pages.is_changing = true;
    gc_change_read_peers_locked(change);
    return GC_OK;
}

static enum gc_status begin_change(struct gc_context *context, struct gc_change *change,
                                   unsigned kind)
{
    for (;;) {
        *change = (struct gc_change){.context = context};
        gc_pool_acquire_plain(&context->pool);
        const enum gc_status status = begin_locked(change, kind);
        gc_pool_release(&context->pool);
        if (status != GC_BUSY)
            return status;
        gc_wait_resume(context->core);
        if (context->tenant != NULL)
            gc_wait_tenant(context->core, context->tenant);
    }
}

enum gc_status gc_change_begin(struct gc_context *context, struct gc_change *change)
{
    return begin_change(context, change, WAITS_FOR_SWAP | WAITS_FOR_WORK);
}

enum gc_status gc_change_try_begin(struct gc_context *context, struct gc_change *change)
{
    return begin_change(context, change, 0);
}

enum gc_status gc_change_begin_access(struct gc_context *context, struct gc_change *change)
{
    return begin_change(context, change, WAITS_FOR_SWAP_IN);
}

void gc_change_end(struct gc_change *change)
{
    struct gc_pool *pool = &change->context->pool;
    gc_pool_acquire_plain(pool);
    pool->pages.is_changing = false;
    gc_lock_broadcast(&pool->pages.changed);
    gc_pool_release(pool);
    GC_ASSERT(gc_pool_validate(pool));
    gc_peers_wait_end(&change->set);
}

int gc_change_unmap(struct gc_context *context, struct gc_mapping *mapping)
{
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t address = gc_pages_address_of(&context->pool, mapping);
    const uint64_t bytes = mapping->extent->page_count * context->pool.pages.page_bytes;
    const int code = driver->page_unmap(driver->self, context->handle, address, bytes);
    if (code == 0) {
        gc_device_trace_memory(context->device, GC_TRACE_UNMAP, GC_TRACE_PAGES, address, bytes);
        gc_pages_set_stage(mapping, GC_MAPPING_UNMAPPED);
    }
    return code;
}

/* ---- teardown ---- */

static bool is_being_changed_locked(const struct gc_pages *pages)
{
    return pages->holder_count > 0 ||
           (pages->is_changing && (pages->swap == NULL || is_moving_locked(pages->swap)));
}

void gc_change_hold_locked(struct gc_pool *pool)
{
    pool->pages.holder_count++;
}

void gc_change_let_go(struct gc_pool *pool)
{
    gc_pool_acquire_plain(pool);
    pool->pages.holder_count--;
    gc_lock_broadcast(&pool->pages.changed);
    gc_pool_release(pool);
}

bool gc_change_is_active_locked(const struct gc_pool *pool)
{
    return is_being_changed_locked(&pool->pages);
}

void gc_change_wait(struct gc_pool *pool)
{
    gc_pool_acquire_plain(pool);
    while (is_being_changed_locked(&pool->pages))
        gc_lock_wait(&pool->lock, &pool->pages.changed);
    gc_pool_release(pool);
}

/* Detaches the swapped-out memory of a dropped pool (NULL: none) and ends its change. The caller
 * has checked that no thread swaps it in. */
static struct gc_swap *detach_swap_locked(struct gc_pool *pool)
{
    struct gc_pages *pages = &pool->pages;
    struct gc_swap *swap = pages->swap;
    if (swap != NULL) {
        pages->swap = NULL;
        pages->is_changing = false;
        gc_lock_broadcast(&pages->changed);
    }
    return swap;
}

void gc_change_free_swapped(struct gc_context *context, struct gc_swap *swap)
{
    if (swap == NULL)
        return;
    for (struct gc_extent *extent = swap->extents; extent != NULL; extent = extent->next) {
        gc_copy_free(context->core, extent->copy);
        extent->copy = NULL;
    }
    gc_host_mem_unmap(&context->core->host, swap, swap->host_bytes);
}

/* The idle extents that are mapped nowhere, linked by `next`; all idle lists are empty then. The
 * others are found by their mappings. */
static struct gc_extent *empty_idle_lists_locked(struct gc_pool *pool)
{
    struct gc_pages *pages = &pool->pages;
    struct gc_extent *unmapped = NULL;
    for (unsigned i = 0; i < 2 * GC_IDLE_LISTS; i++) {
        const struct gc_extent_list *list = &pages->idle[i % 2][i / 2];
        while (list->oldest != NULL) {
            struct gc_extent *extent = list->oldest;
            gc_pages_take_dropped_locked(pool, extent);
            if (extent->mapping_count > 0)
                continue;
            extent->next = unmapped;
            unmapped = extent;
        }
    }
    return unmapped;
}

bool gc_change_detach_leftovers_locked(struct gc_pool *pool, struct gc_leftovers *leftovers)
{
    struct gc_pages *pages = &pool->pages;
    if (is_being_changed_locked(pages))
        return false;
    struct gc_swap *swap = detach_swap_locked(pool);
    const uint64_t before = pages->idle_count;
    *leftovers = (struct gc_leftovers){.swap = swap,
                                       .arenas = pages->arenas,
                                       .range_address = pages->range_address,
                                       .range_bytes = pages->range_bytes,
                                       .unmapped = empty_idle_lists_locked(pool),
                                       .page_count = pages->count};
    pages->arenas = NULL;
    pages->range_address = 0;
    pages->range_bytes = 0;
    pages->stuck_count = 0;
    pages->mapping_count = 0;
    pages->is_short = false;
    pages->is_exact = false;
    pages->peak_bytes = 0;
    pages->peak_change = 0;
    pages->change_count = 0;
    pages->count = 0;
    pages->hosted = NULL; /* found by their mappings */
    gc_pages_publish_idle_locked(pool, before);
    return true;
}

void gc_change_destroy_arena(struct gc_context *context, struct gc_arena *arena)
{
    gc_slab_free(&context->device->segments, arena->segment);
    gc_host_mem_unreserve(arena, gc_arena_host_bytes(arena->slot_count));
}

/* Returns the number of pages that the device still holds. */
static uint64_t destroy_extent(struct gc_context *context, struct gc_extent *extent)
{
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t pages = extent->page_count;
    const bool is_gone =
        extent->driver_handle == 0 ||
        (driver->page_release(driver->self, context->handle, extent->driver_handle) == 0 &&
         !extent->is_stuck);
    const bool is_host = extent->is_host;
    gc_slab_free(&context->device->extent_records, extent);
    if (!is_host)
        return is_gone ? 0 : pages;
    if (is_gone) /* else it stays counted, and is no page of the device */
        gc_core_sub_spilled(context->device, pages * context->pool.pages.page_bytes);
    return 0;
}

/* Tries twice. */
static void unmap(struct gc_context *context, struct gc_mapping *mapping)
{
    int code = -1;
    for (unsigned i = 0; code != 0 && i < 2; i++)
        code = gc_change_unmap(context, mapping);
    mapping->extent->is_stuck |= code != 0;
}

/* Unmaps each extent everywhere before it is released. Returns the number of pages that the driver
 * did not unmap or release: they stay charged. */
static uint64_t destroy_arena(struct gc_context *context, struct gc_arena *arena)
{
    uint64_t stuck = 0;
    for (uint64_t i = 0; i < arena->touched_count;) {
        struct gc_mapping *mapping = arena->slots[i];
        i = gc_pages_run_end(arena, i, arena->touched_count);
        if (mapping == NULL)
            continue;
        struct gc_extent *extent = mapping->extent;
        if (gc_pages_stage(mapping) != GC_MAPPING_TO_MAP) /* else it is swapped out */
            unmap(context, mapping);
        gc_slab_free(&context->device->mapping_records, mapping);
        if (--extent->mapping_count == 0)
            stuck += destroy_extent(context, extent);
    }
    return stuck;
}

static void free_addresses(struct gc_context *context, const struct gc_leftovers *leftovers)
{
    const struct gc_driver *driver = &context->core->driver;
    struct gc_arena *next;
    for (struct gc_arena *arena = leftovers->arenas; arena != NULL; arena = next) {
        next = arena->next;
        gc_pagemap_drop(&context->core->pagemap, arena->segment->address, arena->segment->bytes);
        if (leftovers->range_bytes == 0)
            (void)driver->address_free(driver->self, context->handle, arena->segment->address,
                                       arena->segment->bytes);
        gc_host_mem_uncount(&context->device->host, gc_arena_host_bytes(arena->touched_count));
        gc_change_destroy_arena(context, arena);
    }
    if (leftovers->range_bytes != 0)
        (void)driver->address_free(driver->self, context->handle, leftovers->range_address,
                                   leftovers->range_bytes);
}

void gc_change_uncharge_pages(struct gc_context *context, uint64_t count)
{
    gc_context_sub_pages(context, count * context->pool.pages.page_bytes);
    gc_context_uncharge(context, count * context->pool.pages.page_bytes);
}

void gc_change_destroy_leftovers(struct gc_context *context, const struct gc_leftovers *leftovers)
{
    uint64_t stuck = 0;
    GC_ASSERT(gc_lock_held_count() == 0);
    gc_change_free_swapped(context, leftovers->swap);
    for (struct gc_extent *extent = leftovers->unmapped; extent != NULL;) {
        struct gc_extent *next = extent->next;
        stuck += destroy_extent(context, extent);
        extent = next;
    }
    for (struct gc_arena *arena = leftovers->arenas; arena != NULL; arena = arena->next)
        stuck += destroy_arena(context, arena);
    free_addresses(context, leftovers);
    if (leftovers->page_count > 0)
        gc_change_uncharge_pages(context, leftovers->page_count - stuck);
}

void gc_change_free_records(struct gc_pool *pool)
{
    gc_change_free_swapped(pool->context, pool->pages.swap);
    pool->pages.swap = NULL;
    while (pool->pages.arenas != NULL) {
        struct gc_arena *arena = pool->pages.arenas;
        pool->pages.arenas = arena->next;
        gc_change_destroy_arena(pool->context, arena);
    }
}
