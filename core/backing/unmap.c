/* Releases idle pages, the longest idle first: pop them, unmap, release; pages that the driver
 * refuses become idle again. Neighbouring slots are unmapped in one call. */
#include "core/backing/unmap.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>

/* ---- release ---- */

static void choose_locked(struct gc_purge_list *purge, uint64_t enough_bytes)
{
    struct gc_pool *pool = &purge->change.context->pool;
    const uint64_t before = pool->pages.idle_count;
    struct gc_page **link = &purge->first;
    for (uint64_t bytes = 0; bytes < enough_bytes; bytes += pool->pages.page_bytes) {
        struct gc_page *page = gc_pages_pop_idle_locked(pool);
        if (page == NULL)
            break;
        for (struct gc_slot *slot = page->first; slot != NULL; slot = slot->next)
            slot->stage = GC_SLOT_PENDING;
        purge->is_mapped |= page->mapping_count > 0;
        page->next = NULL;
        *link = page;
        link = &page->next;
    }
    gc_pages_publish_idle_locked(pool, before);
}

static const struct gc_arena *arena_of(const struct gc_pool *pool, const struct gc_slot *slot)
{
    const struct gc_arena *arena = pool->pages.arenas;
    while ((uintptr_t)slot - (uintptr_t)arena->slots >= arena->slot_count * sizeof(*slot))
        arena = arena->next;
    return arena;
}

/* Unmaps the run of pending slots around `slot` in one call. */
static bool unmap_around(struct gc_context *context, struct gc_slot *slot)
{
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page_bytes = context->pool.pages.page_bytes;
    const struct gc_arena *arena = arena_of(&context->pool, slot);
    struct gc_slot *first = slot;
    const struct gc_slot *end = slot + 1;
    while (first > arena->slots && first[-1].stage == GC_SLOT_PENDING)
        first--;
    while (end < arena->slots + arena->touched_count && end->stage == GC_SLOT_PENDING)
        end++;
    const uint64_t address =
        arena->segment->address + (uint64_t)(first - arena->slots) * page_bytes;
    if (driver->page_unmap(driver->self, context->handle, address,
                           (uint64_t)(end - first) * page_bytes) != 0)
        return false;
    gc_device_trace_memory(context->device, GC_TRACE_UNMAP, GC_TRACE_PAGES, address,
                           (uint64_t)(end - first) * page_bytes);
    for (; first < end; first++)
        first->stage = GC_SLOT_UNMAPPED;
    return true;
}

void gc_unmap_pages(const struct gc_purge_list *purge)
{
    for (const struct gc_page *page = purge->first; page != NULL; page = page->next) {
        for (struct gc_slot *slot = page->first; slot != NULL; slot = slot->next) {
            if (slot->stage == GC_SLOT_PENDING && !unmap_around(purge->change.context, slot))
                return;
        }
    }
}

void gc_unmap_detach_locked(struct gc_pool *pool, const struct gc_page *page)
{
    struct gc_slot *next;
    for (struct gc_slot *slot = page->first; slot != NULL; slot = next) {
        next = slot->next;
        if (slot->stage == GC_SLOT_UNMAPPED)
            gc_pages_detach_locked(pool, slot);
        slot->stage = GC_SLOT_NONE;
    }
}

void gc_unmap_detach(const struct gc_purge_list *purge)
{
    struct gc_pool *pool = &purge->change.context->pool;
    gc_pool_acquire_plain(pool);
    for (const struct gc_page *page = purge->first; page != NULL; page = page->next)
        gc_unmap_detach_locked(pool, page);
    gc_pool_release(pool);
}

uint64_t gc_unmap_release(struct gc_purge_list *purge)
{
    struct gc_context *context = purge->change.context;
    const struct gc_driver *driver = &context->core->driver;
    struct gc_page **link = &purge->first;
    bool goes_on = true;
    uint64_t count = 0;
    while (*link != NULL) {
        struct gc_page *page = *link;
        const bool may_go = goes_on && page->mapping_count == 0;
        goes_on = goes_on && (!may_go || driver->page_release(driver->self, context->handle,
                                                              page->handle) == 0);
        if (may_go && goes_on) {
            *link = page->next;
            gc_slab_free(&context->device->page_records, page);
            count++;
        } else {
            link = &page->next;
        }
    }
    return count;
}

void gc_unmap_make_idle_locked(struct gc_pool *pool, struct gc_page *page)
{
    const uint64_t before = pool->pages.idle_count;
    while (page != NULL) {
        struct gc_page *next = page->next;
        gc_pages_make_idle_locked(pool, page);
        page = next;
    }
    gc_pages_publish_idle_locked(pool, before);
}

static uint64_t release_chosen(struct gc_purge_list *purge)
{
    struct gc_context *context = purge->change.context;
    struct gc_pool *pool = &context->pool;
    int ignored;
    if (purge->is_mapped && gc_submit_quiesce(context, &ignored))
        gc_unmap_pages(purge);
    gc_unmap_detach(purge);
    const uint64_t count = gc_unmap_release(purge);
    gc_pool_acquire_plain(pool);
    pool->pages.count -= count;
    gc_unmap_make_idle_locked(pool, purge->first);
    gc_pool_release(pool);
    if (count > 0)
        gc_change_uncharge_pages(context, count);
    return count * pool->pages.page_bytes;
}

uint64_t gc_unmap_release_idle(struct gc_context *context, uint64_t enough_bytes)
{
    struct gc_pool *pool = &context->pool;
    struct gc_purge_list purge = {.first = NULL};
    GC_ASSERT(gc_lock_held_count() == 0);
    if (pool->pages.page_bytes == 0 || gc_change_try_begin(context, &purge.change) != GC_OK)
        return 0;
    gc_pool_acquire_plain(pool);
    choose_locked(&purge, enough_bytes);
    gc_pool_release(pool);
    const uint64_t released = release_chosen(&purge);
    gc_change_end(&purge.change);
    return released;
}
