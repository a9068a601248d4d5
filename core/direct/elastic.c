/* Allocating and deallocating in an elastic pool.
 *
 * An allocation makes its pages busy. A page without physical memory gets a handle: an unmapped one
 * of the cache, else that of the page idle longest (a victim), else a new one. Then all pages are
 * bound and become mapped at once. After a failure the pages go into the cache, bound or not, and
 * pages above the cache's bound are released. */
#include "core/direct/elastic.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/direct/elastic_pool.h"
#include "core/reclaim/refusal.h"

#include <stddef.h>

/* Attempts to create a page, each after idle memory was released. */
#define CREATE_ATTEMPTS 8

/* Pages of one operation. */
struct range {
    uint32_t first;
    uint32_t count;
};

/* An allocation under way. */
struct alloc_request {
    struct gc_elastic *pool;
    struct gc_context *context;
    struct range range;
    uint32_t victims;       /* chained by `next` */
    uint32_t create_count;  /* pages to create */
    uint64_t charged_bytes; /* for pages that are not created yet */
    uint32_t bound_count;
    uint32_t unbound_count;
    uint32_t created_count;
    int driver_code;
};

static enum gc_status range_of(const struct gc_elastic *pool, uint64_t offset, uint64_t bytes,
                               struct range *range)
{
    const uint64_t capacity = pool->page_count * pool->page_bytes;
    if (bytes == 0)
        return GC_INVALID_ARGUMENT;
    if (offset >= capacity || bytes > capacity - offset)
        return GC_OUT_OF_RANGE;
    if (offset % pool->page_bytes != 0 || bytes % pool->page_bytes != 0)
        return GC_MISALIGNED;
    range->first = (uint32_t)(offset / pool->page_bytes);
    range->count = (uint32_t)(bytes / pool->page_bytes);
    return GC_OK;
}

/* Takes a reference on the pool, to be released, and finds the pages of the range. */
static enum gc_status acquire_range(struct gc_core *core, uint64_t handle, uint64_t offset,
                                    uint64_t bytes, struct gc_elastic **pool, struct range *range)
{
    *pool = gc_elastic_acquire(core, handle);
    if (*pool == NULL)
        return GC_INVALID_HANDLE;
    const enum gc_status status = range_of(*pool, offset, bytes, range);
    if (status != GC_OK)
        gc_elastic_release(core, *pool);
    return status;
}

static bool has_busy_locked(const struct gc_elastic *pool, struct range range)
{
    for (uint32_t i = 0; i < range.count; i++) {
        if (pool->pages[range.first + i].state == GC_ELASTIC_BUSY)
            return true;
    }
    return false;
}

/* Waits until no page of the range is busy. Whether then all are mapped; if not `wanted`: none. */
static bool wait_locked(struct gc_elastic *pool, struct range range, bool wanted)
{
    while (has_busy_locked(pool, range))
        gc_lock_wait(&pool->lock, &pool->changed);
    for (uint32_t i = 0; i < range.count; i++) {
        if ((pool->pages[range.first + i].state == GC_ELASTIC_MAPPED) != wanted)
            return false;
    }
    return true;
}

static void count_mapped_locked(struct gc_elastic *pool, struct range range)
{
    struct gc_elastic_figures *figures = &pool->figures;
    const uint64_t bytes = range.count * pool->page_bytes;
    const struct gc_entry entry = {.requested_bytes = bytes, .bytes = bytes, .api = pool->api};
    for (uint32_t i = 0; i < range.count; i++)
        pool->pages[range.first + i].state = GC_ELASTIC_MAPPED;
    figures->mapped_bytes += bytes;
    figures->mapped_peak_bytes = gc_max_u64(figures->mapped_peak_bytes, figures->mapped_bytes);
    gc_device_count_other(pool->device, &entry);
}

/* ---- allocate ---- */

/* Takes the page idle longest as a victim. Pages of the range are busy, so never one of them. */
static bool pop_victim_locked(struct alloc_request *alloc)
{
    struct gc_elastic *pool = alloc->pool;
    const uint32_t victim = pool->idle_first;
    if (victim == GC_ELASTIC_PAGE_NONE)
        return false;
    gc_elastic_remove_idle_locked(pool, victim);
    pool->pages[victim].next = alloc->victims;
    alloc->victims = victim;
    return true;
}

static void acquire_pages_locked(struct alloc_request *alloc)
{
    struct gc_elastic *pool = alloc->pool;
    for (uint32_t i = 0; i < alloc->range.count; i++) {
        if (pool->pages[alloc->range.first + i].state == GC_ELASTIC_IDLE)
            gc_elastic_remove_idle_locked(pool, alloc->range.first + i);
        pool->pages[alloc->range.first + i].state = GC_ELASTIC_BUSY;
    }
    for (uint32_t i = 0; i < alloc->range.count; i++) {
        struct gc_elastic_page *page = &pool->pages[alloc->range.first + i];
        if (page->has_handle)
            continue;
        page->has_handle = gc_elastic_pop_unmapped_locked(pool, &page->handle);
        if (!page->has_handle && !pop_victim_locked(alloc))
            alloc->create_count++;
    }
}

static enum gc_status fail_driver(struct alloc_request *alloc, int code)
{
    alloc->driver_code = code;
    return code == alloc->context->core->driver.out_of_memory ? GC_OUT_OF_MEMORY : GC_DRIVER;
}

/* Unmaps the first victim's physical page and moves the handle to `page`. */
static enum gc_status remap_victim(struct alloc_request *alloc, struct gc_elastic_page *page)
{
    struct gc_elastic *pool = alloc->pool;
    const struct gc_driver *driver = &alloc->context->core->driver;
    struct gc_elastic_page *victim = &pool->pages[alloc->victims];
    const int code =
        driver->page_unmap(driver->self, alloc->context->handle,
                           pool->base + alloc->victims * pool->page_bytes, pool->page_bytes);
    if (code != 0)
        return fail_driver(alloc, code);
    gc_device_trace_memory(alloc->context->device, GC_TRACE_UNMAP, GC_TRACE_PAGES,
                           pool->base + alloc->victims * pool->page_bytes, pool->page_bytes);
    alloc->unbound_count++;
    page->handle = victim->handle;
    page->has_handle = true;
    const uint32_t freed = alloc->victims;
    alloc->victims = victim->next;
    gc_lock_acquire(&pool->lock);
    victim->has_handle = false;
    victim->is_bound = false;
    victim->is_accessible = false;
    gc_elastic_cache_locked(pool, freed);
    gc_lock_broadcast(&pool->changed);
    gc_lock_release(&pool->lock);
    return GC_OK;
}

static bool reclaim_memory(const struct alloc_request *alloc)
{
    struct gc_device *device = alloc->pool->device;
    const struct gc_driver *driver = &device->core->driver;
    return gc_direct_reclaim(device->core, device, alloc->charged_bytes, true) ||
           (driver->reclaim != NULL &&
            driver->reclaim(driver->self, alloc->context->handle, alloc->charged_bytes));
}

static enum gc_status create_page(struct alloc_request *alloc, struct gc_elastic_page *page)
{
    struct gc_elastic *pool = alloc->pool;
    const struct gc_driver *driver = &alloc->context->core->driver;
    int code =
        GC_CALL_IF_OPEN(alloc->context, driver->page_create(driver->self, alloc->context->handle,
                                                            pool->page_bytes, &page->handle));
    for (unsigned i = 0;
         i < CREATE_ATTEMPTS && code == driver->out_of_memory && reclaim_memory(alloc); i++)
        code = GC_CALL_IF_OPEN(alloc->context,
                               driver->page_create(driver->self, alloc->context->handle,
                                                   pool->page_bytes, &page->handle));
    if (code != 0)
        return fail_driver(alloc, code);
    page->has_handle = true;
    alloc->charged_bytes -= pool->page_bytes;
    alloc->created_count++;
    gc_elastic_count_created(pool);
    return GC_OK;
}

static enum gc_status bind_page(struct alloc_request *alloc, uint32_t index)
{
    struct gc_elastic *pool = alloc->pool;
    const struct gc_driver *driver = &alloc->context->core->driver;
    struct gc_elastic_page *page = &pool->pages[index];
    enum gc_status status = GC_OK;
    if (!page->has_handle)
        status = alloc->victims != GC_ELASTIC_PAGE_NONE ? remap_victim(alloc, page)
                                                        : create_page(alloc, page);
    if (status != GC_OK || page->is_bound)
        return status;
    const int code =
        GC_CALL_IF_OPEN(alloc->context, driver->page_map(driver->self, alloc->context->handle,
                                                         pool->base + index * pool->page_bytes,
                                                         pool->page_bytes, page->handle));
    if (code != 0)
        return fail_driver(alloc, code);
    gc_device_trace_memory(alloc->context->device, GC_TRACE_MAP, GC_TRACE_PAGES,
                           pool->base + index * pool->page_bytes, pool->page_bytes);
    page->is_bound = true;
    alloc->bound_count++;
    return GC_OK;
}

/* One driver call for each run of newly bound pages. */
static enum gc_status set_access(struct alloc_request *alloc)
{
    struct gc_elastic *pool = alloc->pool;
    const struct gc_driver *driver = &alloc->context->core->driver;
    const uint32_t end = alloc->range.first + alloc->range.count;
    for (uint32_t i = alloc->range.first, from = i; i < end; from = ++i) {
        while (i < end && !pool->pages[i].is_accessible)
            i++;
        if (i == from)
            continue;
        const int code = GC_CALL_IF_OPEN(
            alloc->context, driver->page_set_access(driver->self, alloc->context->handle,
                                                    pool->base + from * pool->page_bytes,
                                                    (i - from) * pool->page_bytes, NULL, 0));
        if (code != 0)
            return fail_driver(alloc, code);
        while (from < i)
            pool->pages[from++].is_accessible = true;
    }
    return GC_OK;
}

static enum gc_status serve(struct alloc_request *alloc)
{
    struct gc_elastic *pool = alloc->pool;
    const uint64_t bytes = alloc->create_count * pool->page_bytes;
    enum gc_status status = GC_OK;
    if (bytes != 0 && !gc_direct_try_charge(pool->device->core, pool->device, pool->quota, bytes))
        return GC_OUT_OF_MEMORY;
    alloc->charged_bytes = bytes;
    for (uint32_t i = 0; i < alloc->range.count && status == GC_OK; i++)
        status = bind_page(alloc, alloc->range.first + i);
    return status == GC_OK ? set_access(alloc) : status;
}

static void finish(struct alloc_request *alloc, bool is_served)
{
    struct gc_elastic *pool = alloc->pool;
    gc_direct_uncharge(pool->device->core, pool->device, pool->quota, alloc->charged_bytes);
    gc_lock_acquire(&pool->lock);
    pool->figures.map_count += alloc->bound_count;
    pool->figures.unmap_count += alloc->unbound_count;
    pool->figures.create_count += alloc->created_count;
    if (is_served) {
        count_mapped_locked(pool, alloc->range);
        pool->figures.allocate_count++;
    }
    for (uint32_t i = 0; !is_served && i < alloc->range.count; i++)
        gc_elastic_cache_locked(pool, alloc->range.first + i);
    while (alloc->victims != GC_ELASTIC_PAGE_NONE) {
        const uint32_t victim = alloc->victims;
        alloc->victims = pool->pages[victim].next;
        gc_elastic_cache_locked(pool, victim);
    }
    gc_lock_broadcast(&pool->changed);
    gc_lock_release(&pool->lock);
}

static enum gc_status allocate(struct gc_elastic *pool, struct gc_context *context,
                               struct range range, int *driver_code)
{
    struct alloc_request alloc = {
        .pool = pool, .context = context, .range = range, .victims = GC_ELASTIC_PAGE_NONE};
    const struct gc_entry entry = {.requested_bytes = range.count * pool->page_bytes,
                                   .api = pool->api};
    struct gc_wait_set set;
    int ignored;
    if (!gc_elastic_begin_calls(context, &set))
        return GC_CAPTURING;
    gc_lock_acquire(&pool->lock);
    const bool is_free = wait_locked(pool, range, false);
    if (is_free)
        acquire_pages_locked(&alloc);
    gc_lock_release(&pool->lock);
    enum gc_status status = is_free ? serve(&alloc) : GC_ALREADY_MAPPED;
    if (is_free)
        finish(&alloc, status == GC_OK);
    const struct gc_charge_failure failure = {.is_driver_short = alloc.driver_code != 0};
    if (status == GC_DRIVER)
        *driver_code = alloc.driver_code;
    else if (status == GC_OUT_OF_MEMORY)
        gc_refusal_count(pool->device, pool->quota, &entry, alloc.create_count * pool->page_bytes,
                         &failure);
    if (status != GC_OK && is_free)
        gc_elastic_shrink(pool, context, pool->cache_max, UINT64_MAX, &ignored);
    gc_peers_wait_end(&set);
    return status;
}

enum gc_status gc_elastic_allocate(struct gc_core *core, struct gc_context *context,
                                   uint64_t handle, uint64_t offset, uint64_t bytes,
                                   int *driver_code)
{
    struct gc_elastic *pool;
    struct range range;
    enum gc_status status = acquire_range(core, handle, offset, bytes, &pool, &range);
    if (status != GC_OK)
        return status;
    status = allocate(pool, context, range, driver_code);
    if (status == GC_OK)
        gc_device_set_used(core);
    gc_elastic_release(core, pool);
    return status;
}

/* ---- deallocate ---- */

static void end_use(struct gc_elastic *pool, struct range range, bool is_idle)
{
    struct gc_elastic_figures *figures = &pool->figures;
    const uint64_t bytes = range.count * pool->page_bytes;
    const struct gc_entry entry = {.requested_bytes = bytes, .bytes = bytes, .api = pool->api};
    gc_lock_acquire(&pool->lock);
    for (uint32_t i = 0; i < range.count; i++) {
        if (is_idle)
            gc_elastic_cache_locked(pool, range.first + i);
        else
            pool->pages[range.first + i].state = GC_ELASTIC_MAPPED;
    }
    if (is_idle) {
        figures->mapped_bytes -= bytes;
        figures->deallocate_count++;
        gc_device_uncount_other(pool->device, &entry);
    }
    gc_lock_broadcast(&pool->changed);
    gc_lock_release(&pool->lock);
}

static enum gc_status deallocate(struct gc_elastic *pool, struct gc_context *context,
                                 struct range range, bool is_idle, int *driver_code)
{
    struct gc_wait_set set;
    enum gc_status status = GC_OK;
    int ignored;
    if (!gc_elastic_begin_calls(context, &set))
        return GC_CAPTURING;
    gc_lock_acquire(&pool->lock);
    const bool is_mapped = wait_locked(pool, range, true);
    for (uint32_t i = 0; is_mapped && i < range.count; i++)
        pool->pages[range.first + i].state = GC_ELASTIC_BUSY;
    gc_lock_release(&pool->lock);
    if (!is_mapped)
        status = GC_NOT_MAPPED;
    else if (!is_idle)
        status = gc_elastic_wait_device(pool->device, driver_code);
    if (is_mapped)
        end_use(pool, range, status == GC_OK);
    /* A driver error here only leaves pages in the cache. */
    if (status == GC_OK)
        gc_elastic_shrink(pool, context, pool->cache_max, UINT64_MAX, &ignored);
    gc_peers_wait_end(&set);
    return status;
}

enum gc_status gc_elastic_deallocate(struct gc_core *core, struct gc_context *context,
                                     uint64_t handle, uint64_t offset, uint64_t bytes, bool is_idle,
                                     int *driver_code)
{
    struct gc_elastic *pool;
    struct range range;
    enum gc_status status = acquire_range(core, handle, offset, bytes, &pool, &range);
    if (status != GC_OK)
        return status;
    status = deallocate(pool, context, range, is_idle, driver_code);
    gc_elastic_release(core, pool);
    return status;
}

/* ---- queries ---- */

enum gc_status gc_elastic_is_mapped(struct gc_core *core, uint64_t handle, uint64_t offset,
                                    uint64_t bytes, bool *is_mapped)
{
    struct gc_elastic *pool = gc_elastic_acquire(core, handle);
    if (pool == NULL)
        return GC_INVALID_HANDLE;
    const uint64_t capacity = pool->page_count * pool->page_bytes;
    enum gc_status status = GC_OK;
    if (bytes == 0) {
        status = GC_INVALID_ARGUMENT;
    } else if (offset >= capacity || bytes > capacity - offset) {
        status = GC_OUT_OF_RANGE;
    } else {
        const uint64_t last = (offset + bytes - 1) / pool->page_bytes;
        bool is_all = true;
        gc_lock_acquire(&pool->lock);
        for (uint64_t i = offset / pool->page_bytes; is_all && i <= last; i++)
            is_all = pool->pages[i].state == GC_ELASTIC_MAPPED;
        gc_lock_release(&pool->lock);
        *is_mapped = is_all;
    }
    gc_elastic_release(core, pool);
    return status;
}
