/* Allocating and deallocating in an elastic pool.
 *
 * An allocation makes its pages busy, takes what they lack from the stock (loose pages, then the
 * longest warm ones of other places, the donors), creates the rest, binds, and makes the whole
 * mapped at once. A failure on the way stows everything as it then is: pages that were bound are
 * warm, the others' physical pages loose, and the excess goes back to the driver. */
#include "core/direct/elastic.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/direct/elastic_pool.h"

#include <stddef.h>

/* How often the driver is asked again after idle memory went back to it. */
#define CREATE_ATTEMPTS 8

/* Pages of one operation. */
struct range {
    uint32_t first;
    uint32_t count;
};

/* An allocation on its way. */
struct order {
    struct gc_elastic *pool;
    struct gc_context *context;
    struct range range;
    uint32_t donors;         /* chained by `next` */
    uint32_t create_count;   /* pages neither there nor in the stock */
    uint64_t reserved_bytes; /* for those not created yet */
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

/* The pool, to be released, and its pages that the range names. */
static enum gc_status enter(struct gc_core *core, uint64_t handle, uint64_t offset, uint64_t bytes,
                            struct gc_elastic **pool, struct range *range)
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

/* Once no page of the range is busy: whether the mapped ones are all (`wanted`) or none of it. */
static bool await_locked(struct gc_elastic *pool, struct range range, bool wanted)
{
    while (has_busy_locked(pool, range))
        gc_lock_wait(&pool->lock, &pool->changed);
    for (uint32_t i = 0; i < range.count; i++) {
        if ((pool->pages[range.first + i].state == GC_ELASTIC_MAPPED) != wanted)
            return false;
    }
    return true;
}

static void note_mapped_locked(struct gc_elastic *pool, struct range range)
{
    struct gc_elastic_figures *figures = &pool->figures;
    const uint64_t bytes = range.count * pool->page_bytes;
    const struct gc_entry entry = {.requested_bytes = bytes, .bytes = bytes, .api = pool->api};
    for (uint32_t i = 0; i < range.count; i++)
        pool->pages[range.first + i].state = GC_ELASTIC_MAPPED;
    figures->mapped_bytes += bytes;
    figures->mapped_peak_bytes = gc_max_u64(figures->mapped_peak_bytes, figures->mapped_bytes);
    gc_device_note_other(pool->device, &entry);
}

/* ---- allocate ---- */

/* Takes a donor: the longest warm page, which is none of the range, since those are busy. */
static bool take_donor_locked(struct order *order)
{
    struct gc_elastic *pool = order->pool;
    const uint32_t donor = pool->warm_first;
    if (donor == GC_ELASTIC_PAGE_NONE)
        return false;
    gc_elastic_take_warm_locked(pool, donor);
    pool->pages[donor].next = order->donors;
    order->donors = donor;
    return true;
}

static void claim_locked(struct order *order)
{
    struct gc_elastic *pool = order->pool;
    for (uint32_t i = 0; i < order->range.count; i++) {
        if (pool->pages[order->range.first + i].state == GC_ELASTIC_WARM)
            gc_elastic_take_warm_locked(pool, order->range.first + i);
        pool->pages[order->range.first + i].state = GC_ELASTIC_BUSY;
    }
    for (uint32_t i = 0; i < order->range.count; i++) {
        struct gc_elastic_page *page = &pool->pages[order->range.first + i];
        if (page->has_handle)
            continue;
        page->has_handle = gc_elastic_take_loose_locked(pool, &page->handle);
        if (!page->has_handle && !take_donor_locked(order))
            order->create_count++;
    }
}

static enum gc_status fail_driver(struct order *order, int code)
{
    order->driver_code = code;
    return code == order->context->core->driver.out_of_memory ? GC_OUT_OF_MEMORY : GC_DRIVER;
}

/* The donor's physical page becomes the page's. */
static enum gc_status take_from_donor(struct order *order, struct gc_elastic_page *page)
{
    struct gc_elastic *pool = order->pool;
    const struct gc_driver *driver = &order->context->core->driver;
    struct gc_elastic_page *donor = &pool->pages[order->donors];
    const int code =
        driver->page_unmap(driver->self, order->context->handle,
                           pool->base + order->donors * pool->page_bytes, pool->page_bytes);
    if (code != 0)
        return fail_driver(order, code);
    gc_device_trace_memory(order->context->device, GC_TRACE_UNMAP, GC_TRACE_PAGES,
                           pool->base + order->donors * pool->page_bytes, pool->page_bytes);
    order->unbound_count++;
    page->handle = donor->handle;
    page->has_handle = true;
    const uint32_t freed = order->donors;
    order->donors = donor->next;
    gc_lock_acquire(&pool->lock);
    donor->has_handle = false;
    donor->is_bound = false;
    donor->is_accessible = false;
    gc_elastic_stow_locked(pool, freed);
    pthread_cond_broadcast(&pool->changed);
    gc_lock_release(&pool->lock);
    return GC_OK;
}

static bool make_room(const struct order *order)
{
    struct gc_device *device = order->pool->device;
    const struct gc_driver *driver = &device->core->driver;
    return gc_core_relieve(device->core, device, order->reserved_bytes) ||
           (driver->relieve != NULL &&
            driver->relieve(driver->self, order->context->handle, order->reserved_bytes));
}

static enum gc_status create_page(struct order *order, struct gc_elastic_page *page)
{
    struct gc_elastic *pool = order->pool;
    const struct gc_driver *driver = &order->context->core->driver;
    int code =
        GC_IN_CONTEXT(order->context, driver->page_create(driver->self, order->context->handle,
                                                          pool->page_bytes, &page->handle));
    for (unsigned i = 0; i < CREATE_ATTEMPTS && code == driver->out_of_memory && make_room(order);
         i++)
        code =
            GC_IN_CONTEXT(order->context, driver->page_create(driver->self, order->context->handle,
                                                              pool->page_bytes, &page->handle));
    if (code != 0)
        return fail_driver(order, code);
    page->has_handle = true;
    order->reserved_bytes -= pool->page_bytes;
    order->created_count++;
    gc_elastic_note_created(pool);
    return GC_OK;
}

static enum gc_status bind_page(struct order *order, uint32_t index)
{
    struct gc_elastic *pool = order->pool;
    const struct gc_driver *driver = &order->context->core->driver;
    struct gc_elastic_page *page = &pool->pages[index];
    enum gc_status status = GC_OK;
    if (!page->has_handle)
        status = order->donors != GC_ELASTIC_PAGE_NONE ? take_from_donor(order, page)
                                                       : create_page(order, page);
    if (status != GC_OK || page->is_bound)
        return status;
    const int code =
        GC_IN_CONTEXT(order->context, driver->page_map(driver->self, order->context->handle,
                                                       pool->base + index * pool->page_bytes,
                                                       pool->page_bytes, page->handle));
    if (code != 0)
        return fail_driver(order, code);
    gc_device_trace_memory(order->context->device, GC_TRACE_MAP, GC_TRACE_PAGES,
                           pool->base + index * pool->page_bytes, pool->page_bytes);
    page->is_bound = true;
    order->bound_count++;
    return GC_OK;
}

/* One call for each run of pages that were bound anew. */
static enum gc_status open_access(struct order *order)
{
    struct gc_elastic *pool = order->pool;
    const struct gc_driver *driver = &order->context->core->driver;
    const uint32_t end = order->range.first + order->range.count;
    for (uint32_t i = order->range.first, from = i; i < end; from = ++i) {
        while (i < end && !pool->pages[i].is_accessible)
            i++;
        if (i == from)
            continue;
        const int code = GC_IN_CONTEXT(
            order->context, driver->page_set_access(driver->self, order->context->handle,
                                                    pool->base + from * pool->page_bytes,
                                                    (i - from) * pool->page_bytes, NULL, 0));
        if (code != 0)
            return fail_driver(order, code);
        while (from < i)
            pool->pages[from++].is_accessible = true;
    }
    return GC_OK;
}

static enum gc_status serve(struct order *order)
{
    struct gc_elastic *pool = order->pool;
    const uint64_t bytes = order->create_count * pool->page_bytes;
    enum gc_status status = GC_OK;
    if (bytes != 0 && !gc_core_try_reserve(pool->device->core, pool->device, pool->share, bytes))
        return GC_OUT_OF_MEMORY;
    order->reserved_bytes = bytes;
    for (uint32_t i = 0; i < order->range.count && status == GC_OK; i++)
        status = bind_page(order, order->range.first + i);
    return status == GC_OK ? open_access(order) : status;
}

static void finish(struct order *order, bool is_served)
{
    struct gc_elastic *pool = order->pool;
    gc_core_unreserve(pool->device->core, pool->device, pool->share, order->reserved_bytes);
    gc_lock_acquire(&pool->lock);
    pool->figures.map_count += order->bound_count;
    pool->figures.unmap_count += order->unbound_count;
    pool->figures.create_count += order->created_count;
    if (is_served) {
        note_mapped_locked(pool, order->range);
        pool->figures.allocate_count++;
    }
    for (uint32_t i = 0; !is_served && i < order->range.count; i++)
        gc_elastic_stow_locked(pool, order->range.first + i);
    while (order->donors != GC_ELASTIC_PAGE_NONE) {
        const uint32_t donor = order->donors;
        order->donors = pool->pages[donor].next;
        gc_elastic_stow_locked(pool, donor);
    }
    pthread_cond_broadcast(&pool->changed);
    gc_lock_release(&pool->lock);
}

static enum gc_status allocate(struct gc_elastic *pool, struct gc_context *context,
                               struct range range, int *driver_code)
{
    struct order order = {
        .pool = pool, .context = context, .range = range, .donors = GC_ELASTIC_PAGE_NONE};
    const struct gc_entry entry = {.requested_bytes = range.count * pool->page_bytes,
                                   .api = pool->api};
    struct gc_wait_set gate;
    int ignored;
    if (!gc_elastic_open_gate(context, &gate))
        return GC_CAPTURING;
    gc_lock_acquire(&pool->lock);
    const bool is_free = await_locked(pool, range, false);
    if (is_free)
        claim_locked(&order);
    gc_lock_release(&pool->lock);
    enum gc_status status = is_free ? serve(&order) : GC_ALREADY_MAPPED;
    if (is_free)
        finish(&order, status == GC_OK);
    if (status == GC_DRIVER)
        *driver_code = order.driver_code;
    else if (status == GC_OUT_OF_MEMORY)
        gc_share_note_oom(pool->device, pool->share, &entry);
    if (status != GC_OK && is_free)
        gc_elastic_shrink(pool, context, pool->stock_max, UINT64_MAX, &ignored);
    gc_context_wait_end(&gate);
    return status;
}

enum gc_status gc_elastic_allocate(struct gc_core *core, struct gc_context *context,
                                   uint64_t handle, uint64_t offset, uint64_t bytes,
                                   int *driver_code)
{
    struct gc_elastic *pool;
    struct range range;
    enum gc_status status = enter(core, handle, offset, bytes, &pool, &range);
    if (status != GC_OK)
        return status;
    status = allocate(pool, context, range, driver_code);
    if (status == GC_OK)
        gc_core_note_use(core);
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
            gc_elastic_stow_locked(pool, range.first + i);
        else
            pool->pages[range.first + i].state = GC_ELASTIC_MAPPED;
    }
    if (is_idle) {
        figures->mapped_bytes -= bytes;
        figures->deallocate_count++;
        gc_device_note_other_gone(pool->device, &entry);
    }
    pthread_cond_broadcast(&pool->changed);
    gc_lock_release(&pool->lock);
}

static enum gc_status deallocate(struct gc_elastic *pool, struct gc_context *context,
                                 struct range range, bool is_idle, int *driver_code)
{
    struct gc_wait_set gate;
    enum gc_status status = GC_OK;
    int ignored;
    if (!gc_elastic_open_gate(context, &gate))
        return GC_CAPTURING;
    gc_lock_acquire(&pool->lock);
    const bool is_mapped = await_locked(pool, range, true);
    for (uint32_t i = 0; is_mapped && i < range.count; i++)
        pool->pages[range.first + i].state = GC_ELASTIC_BUSY;
    gc_lock_release(&pool->lock);
    if (!is_mapped)
        status = GC_NOT_MAPPED;
    else if (!is_idle)
        status = gc_elastic_wait_device(pool->device, driver_code);
    if (is_mapped)
        end_use(pool, range, status == GC_OK);
    /* A refusal here leaves pages in the stock, nothing worse. */
    if (status == GC_OK)
        gc_elastic_shrink(pool, context, pool->stock_max, UINT64_MAX, &ignored);
    gc_context_wait_end(&gate);
    return status;
}

enum gc_status gc_elastic_deallocate(struct gc_core *core, struct gc_context *context,
                                     uint64_t handle, uint64_t offset, uint64_t bytes, bool is_idle,
                                     int *driver_code)
{
    struct gc_elastic *pool;
    struct range range;
    enum gc_status status = enter(core, handle, offset, bytes, &pool, &range);
    if (status != GC_OK)
        return status;
    status = deallocate(pool, context, range, is_idle, driver_code);
    gc_elastic_release(core, pool);
    return status;
}

/* ---- questions ---- */

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
