/* Releases idle extents, as few as are needed: take them, unmap, release; those that the driver
 * refuses become idle again. */
#include "core/backing/unmap.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>

/* ---- release ---- */

/* The largest extent within `pages`; the smallest beyond, if that is at most half too large or
 * there is no other: few calls, and little too much. */
static struct gc_extent *victim_of(const struct gc_pool *pool, bool of_small, uint64_t pages)
{
    struct gc_extent *within = gc_pages_largest_idle_locked(pool, of_small, pages);
    struct gc_extent *beyond = gc_pages_smallest_idle_locked(pool, of_small, pages);
    const bool is_close = beyond != NULL && beyond->page_count - pages <= pages / 2;
    return within == NULL || is_close ? beyond : within;
}

static struct gc_extent *next_victim(const struct gc_pool *pool, uint64_t pages)
{
    struct gc_extent *extent = victim_of(pool, false, pages);
    return extent != NULL ? extent : victim_of(pool, true, pages);
}

static void choose_locked(struct gc_purge_list *purge, uint64_t enough_bytes)
{
    struct gc_pool *pool = &purge->change.context->pool;
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t before = pool->pages.idle_count;
    uint64_t pages = enough_bytes / page_bytes + (enough_bytes % page_bytes != 0);
    while (pages > 0) {
        struct gc_extent *extent = next_victim(pool, pages);
        if (extent == NULL || !gc_pages_try_take_locked(pool, extent))
            break;
        extent->is_away = true;
        for (struct gc_mapping *mapping = extent->mappings; mapping != NULL;
             mapping = mapping->next)
            gc_pages_set_stage(mapping, GC_MAPPING_TO_UNMAP);
        purge->is_mapped |= extent->mappings != NULL;
        extent->next = purge->first;
        purge->first = extent;
        pages -= gc_min_u64(pages, extent->page_count);
    }
    gc_pages_publish_idle_locked(pool, before);
}

/* The mapping in use last: while another one is left the extent is as it was. */
static bool unmap_extent(struct gc_context *context, const struct gc_extent *extent)
{
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = mapping->next) {
        if (mapping != extent->user && gc_pages_stage(mapping) == GC_MAPPING_TO_UNMAP &&
            gc_change_unmap(context, mapping) != 0)
            return false;
    }
    return extent->user == NULL || gc_pages_stage(extent->user) != GC_MAPPING_TO_UNMAP ||
           gc_change_unmap(context, extent->user) == 0;
}

void gc_unmap_extents(const struct gc_purge_list *purge)
{
    const struct gc_extent *extent = purge->first;
    while (extent != NULL && unmap_extent(purge->change.context, extent))
        extent = extent->next;
}

bool gc_unmap_settle_locked(struct gc_pool *pool, struct gc_mapping *mapping)
{
    const bool is_gone = gc_pages_stage(mapping) == GC_MAPPING_UNMAPPED;
    gc_pages_set_stage(mapping, GC_MAPPING_NONE);
    if (is_gone) {
        gc_pages_detach_locked(pool, mapping);
        gc_slab_free(&pool->context->device->mapping_records, mapping);
    }
    return is_gone;
}

uint64_t gc_unmap_release(struct gc_purge_list *purge)
{
    struct gc_context *context = purge->change.context;
    const struct gc_driver *driver = &context->core->driver;
    struct gc_extent **link = &purge->first;
    bool goes_on = true;
    uint64_t count = 0;
    while (*link != NULL) {
        struct gc_extent *extent = *link;
        const bool may_go = goes_on && extent->mapping_count == 0;
        goes_on = goes_on && (!may_go || driver->page_release(driver->self, context->handle,
                                                              extent->driver_handle) == 0);
        if (may_go && goes_on) {
            *link = extent->next;
            count += extent->page_count;
            gc_slab_free(&context->device->extent_records, extent);
        } else {
            link = &extent->next;
        }
    }
    return count;
}

void gc_unmap_make_idle_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    const uint64_t before = pool->pages.idle_count;
    while (extent != NULL) {
        struct gc_extent *next = extent->next;
        extent->is_away = false;
        gc_pages_make_idle_locked(pool, extent);
        extent = next;
    }
    gc_pages_publish_idle_locked(pool, before);
}

static void detach(const struct gc_purge_list *purge)
{
    struct gc_pool *pool = &purge->change.context->pool;
    gc_pool_acquire_plain(pool);
    for (struct gc_extent *extent = purge->first; extent != NULL; extent = extent->next) {
        for (struct gc_mapping *mapping = extent->mappings, *next; mapping != NULL;
             mapping = next) {
            next = mapping->next;
            (void)gc_unmap_settle_locked(pool, mapping);
        }
    }
    gc_pool_release(pool);
}

static uint64_t release_chosen(struct gc_purge_list *purge)
{
    struct gc_context *context = purge->change.context;
    struct gc_pool *pool = &context->pool;
    int ignored;
    if (purge->is_mapped && gc_submit_quiesce(context, &ignored))
        gc_unmap_extents(purge);
    detach(purge);
    const uint64_t count = gc_unmap_release(purge);
    gc_pool_acquire_plain(pool);
    pool->pages.count -= count;
    gc_unmap_make_idle_locked(pool, purge->first);
    gc_pool_release(pool);
    if (count > 0)
        gc_change_uncharge_pages(context, count);
    return count * pool->pages.page_bytes;
}

/* ---- addresses ---- */

/* Excludes the mappings of the arena that serve nobody. Returns them, linked, before `list`. */
static struct gc_mapping *choose_useless_locked(struct gc_pool *pool, struct gc_arena *arena,
                                                struct gc_mapping *list)
{
    for (uint64_t i = 0; i < arena->touched_count;
         i = gc_pages_run_end(arena, i, arena->touched_count)) {
        struct gc_mapping *mapping = arena->slots[i];
        if (mapping == NULL || mapping->extent->user == mapping || mapping->extent->is_away ||
            !gc_pages_try_exclude_locked(pool, mapping))
            continue;
        gc_pages_set_stage(mapping, GC_MAPPING_TO_UNMAP);
        mapping->link = list;
        list = mapping;
    }
    return list;
}

void gc_unmap_useless(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_mapping *list = NULL;
    int ignored;
    gc_pool_acquire_to_exclude(pool);
    for (struct gc_arena *arena = pool->pages.arenas; arena != NULL; arena = arena->next)
        list = choose_useless_locked(pool, arena, list);
    gc_pool_release(pool);
    if (list != NULL && gc_submit_quiesce(context, &ignored)) {
        for (struct gc_mapping *mapping = list; mapping != NULL; mapping = mapping->link)
            if (gc_change_unmap(context, mapping) != 0)
                break;
    }
    gc_pool_acquire_plain(pool);
    for (struct gc_mapping *next; list != NULL; list = next) {
        next = list->link;
        if (!gc_unmap_settle_locked(pool, list))
            gc_pages_keep_locked(pool, list);
    }
    gc_pool_release(pool);
}

/* ---- release, as a whole ---- */

uint64_t gc_unmap_release_idle(struct gc_context *context, uint64_t enough_bytes)
{
    struct gc_pool *pool = &context->pool;
    struct gc_purge_list purge = {.first = NULL};
    GC_ASSERT(gc_lock_held_count() == 0);
    if (pool->pages.page_bytes == 0 || gc_change_try_begin(context, &purge.change) != GC_OK)
        return 0;
    gc_pool_acquire_to_exclude(pool);
    choose_locked(&purge, enough_bytes);
    gc_pool_release(pool);
    const uint64_t released = release_chosen(&purge);
    gc_change_end(&purge.change);
    return released;
}
