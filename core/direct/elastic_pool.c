/* Elastic pools, each as a whole: beginning and end, figures, what it gives back. */
#include "core/direct/elastic_pool.h"

#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>

/* The stock's bound: a share of the capacity, and not more than this. */
#define STOCK_SHARE 8
#define STOCK_MAX_BYTES GC_MIB(256)

static uint64_t pages_bytes(const struct gc_elastic *pool)
{
    return pool->page_count * sizeof(*pool->pages);
}

static uint64_t loose_bytes(const struct gc_elastic *pool)
{
    return pool->page_count * sizeof(*pool->loose);
}

void gc_elastic_destroy_record(struct gc_elastic *pool)
{
    struct gc_host *host = &pool->device->host;
    if (pool->share != NULL)
        atomic_fetch_sub_explicit(&pool->share->elastic_count, 1, memory_order_relaxed);
    pthread_cond_destroy(&pool->changed);
    gc_lock_fini(&pool->lock);
    gc_host_unmap(host, pool->loose, loose_bytes(pool));
    gc_host_unmap(host, pool->pages, pages_bytes(pool));
    gc_host_unmap(host, pool, sizeof(*pool));
}

static struct gc_elastic *create_record(struct gc_device *device, uint64_t page_count,
                                        uint64_t page_bytes)
{
    struct gc_elastic *pool = gc_host_map(&device->host, sizeof(*pool));
    if (pool == NULL)
        return NULL;
    pool->device = device;
    pool->page_bytes = page_bytes;
    pool->page_count = (uint32_t)page_count;
    pool->warm_first = GC_ELASTIC_PAGE_NONE;
    pool->warm_last = GC_ELASTIC_PAGE_NONE;
    pool->pages = gc_host_map(&device->host, pages_bytes(pool));
    if (pool->pages == NULL)
        goto fail_pages;
    pool->loose = gc_host_map(&device->host, loose_bytes(pool));
    if (pool->loose == NULL)
        goto fail_loose;
    gc_lock_init(&pool->lock, GC_RANK_ELASTIC);
    pthread_cond_init(&pool->changed, NULL);
    return pool;

fail_loose:
    gc_host_unmap(&device->host, pool->pages, pages_bytes(pool));
fail_pages:
    gc_host_unmap(&device->host, pool, sizeof(*pool));
    return NULL;
}

static enum gc_status plan_pages(const struct gc_device *device,
                                 const struct gc_elastic_setup *setup, uint64_t *page_bytes,
                                 uint64_t *page_count)
{
    const uint64_t unit = device->info.page_bytes;
    if (unit == 0)
        return GC_NOT_SUPPORTED;
    *page_bytes = setup->page_bytes == 0 ? unit : setup->page_bytes;
    if (*page_bytes % unit != 0 || setup->capacity_bytes == 0)
        return GC_INVALID_ARGUMENT;
    *page_count = (setup->capacity_bytes - 1) / *page_bytes + 1;
    uint64_t bytes;
    if (*page_count > GC_ELASTIC_PAGES_MAX || !gc_mul_u64(*page_count, *page_bytes, &bytes))
        return GC_INVALID_ARGUMENT;
    return GC_OK;
}

static uint32_t stock_of(const struct gc_elastic *pool)
{
    const uint64_t share = gc_max_u64(pool->page_count / STOCK_SHARE, 1);
    return (uint32_t)gc_min_u64(share, gc_max_u64(STOCK_MAX_BYTES / pool->page_bytes, 1));
}

static enum gc_status reserve(struct gc_elastic *pool, struct gc_context *context, int *driver_code)
{
    const struct gc_driver *driver = &context->core->driver;
    struct gc_wait_set gate;
    if (!gc_elastic_open_gate(context, &gate))
        return GC_CAPTURING;
    const int code =
        GC_IN_CONTEXT(context, driver->address_reserve(driver->self, context->handle,
                                                       pool->page_count * pool->page_bytes,
                                                       pool->device->info.page_bytes, &pool->base));
    gc_context_wait_end(&gate);
    if (code == 0)
        return GC_OK;
    *driver_code = code;
    return code == driver->out_of_memory ? GC_OUT_OF_MEMORY : GC_DRIVER;
}

static int unreserve(struct gc_elastic *pool, struct gc_context *context)
{
    const struct gc_driver *driver = &context->core->driver;
    return driver->address_free(driver->self, context->handle, pool->base,
                                pool->page_count * pool->page_bytes);
}

enum gc_status gc_elastic_create(struct gc_core *core, struct gc_context *context,
                                 const struct gc_elastic_setup *setup, uint64_t *handle,
                                 uint64_t *base, int *driver_code)
{
    uint64_t page_bytes;
    uint64_t page_count;
    enum gc_status status = plan_pages(context->device, setup, &page_bytes, &page_count);
    if (status == GC_OK)
        status = gc_elastic_make_table(core);
    if (status != GC_OK)
        return status;
    struct gc_elastic *pool = create_record(context->device, page_count, page_bytes);
    if (pool == NULL)
        return GC_NO_HOST_MEMORY;
    pool->stock_max = setup->keeps_none ? 0 : stock_of(pool);
    pool->api = setup->api;
    pool->share = setup->share;
    if (pool->share != NULL)
        atomic_fetch_add_explicit(&pool->share->elastic_count, 1, memory_order_relaxed);
    status = reserve(pool, context, driver_code);
    if (status != GC_OK)
        goto fail_reserve;
    *base = pool->base;
    status = gc_elastic_enter(core, pool, handle);
    if (status != GC_OK)
        goto fail_enter;
    return GC_OK;

fail_enter:
    (void)unreserve(pool, context); /* addresses cost nothing */
fail_reserve:
    gc_elastic_destroy_record(pool);
    return status;
}

/* All of it is idle: what was mapped joins the stock, and the stock goes. What the driver keeps is
 * warm afterwards. */
static enum gc_status tear_down(struct gc_elastic *pool, struct gc_context *context,
                                int *driver_code)
{
    int code = 0;
    gc_lock_acquire(&pool->lock);
    const uint64_t mapped_bytes = pool->figures.mapped_bytes;
    const struct gc_entry entry = {
        .requested_bytes = mapped_bytes, .bytes = mapped_bytes, .api = pool->api};
    for (uint32_t i = 0; i < pool->page_count; i++) {
        if (pool->pages[i].state == GC_ELASTIC_MAPPED)
            gc_elastic_stow_locked(pool, i);
    }
    pool->figures.mapped_bytes = 0;
    gc_lock_release(&pool->lock);
    gc_device_note_other_gone(pool->device, &entry);
    gc_elastic_shrink(pool, context, 0, UINT64_MAX, &code);
    if (code == 0)
        code = unreserve(pool, context);
    if (code == 0)
        return GC_OK;
    *driver_code = code;
    return GC_DRIVER;
}

enum gc_status gc_elastic_destroy(struct gc_core *core, struct gc_context *context, uint64_t handle,
                                  int *driver_code)
{
    struct gc_elastic *pool = gc_elastic_begin_close(core, handle);
    struct gc_wait_set gate;
    if (pool == NULL)
        return GC_INVALID_HANDLE;
    enum gc_status status = GC_CAPTURING;
    if (gc_elastic_open_gate(context, &gate)) {
        status = gc_elastic_wait_device(pool->device, driver_code);
        if (status == GC_OK)
            status = tear_down(pool, context, driver_code);
        gc_context_wait_end(&gate);
    }
    gc_elastic_end_close(core, handle, status == GC_OK);
    if (status == GC_OK)
        gc_elastic_destroy_record(pool);
    return status;
}

/* ---- what concerns a whole pool ---- */

enum gc_status gc_elastic_read(struct gc_core *core, uint64_t handle,
                               struct gc_elastic_figures *figures)
{
    struct gc_elastic *pool = gc_elastic_acquire(core, handle);
    uint64_t run = 0;
    if (pool == NULL)
        return GC_INVALID_HANDLE;
    gc_lock_acquire(&pool->lock);
    *figures = pool->figures;
    for (uint32_t i = 0; i < pool->page_count; i++) {
        const bool is_free = pool->pages[i].state != GC_ELASTIC_MAPPED;
        run = is_free ? run + 1 : 0;
        figures->free_bytes += is_free ? pool->page_bytes : 0;
        figures->largest_free_bytes =
            gc_max_u64(figures->largest_free_bytes, run * pool->page_bytes);
    }
    figures->warm_bytes = ((uint64_t)pool->warm_count + pool->loose_count) * pool->page_bytes;
    gc_lock_release(&pool->lock);
    figures->base = pool->base;
    figures->page_bytes = pool->page_bytes;
    figures->capacity_bytes = pool->page_count * pool->page_bytes;
    gc_elastic_release(core, pool);
    return GC_OK;
}

enum gc_status gc_elastic_compact(struct gc_core *core, struct gc_context *context, uint64_t handle,
                                  uint64_t *given_bytes, int *driver_code)
{
    struct gc_elastic *pool = gc_elastic_acquire(core, handle);
    struct gc_wait_set gate;
    int code = 0;
    if (pool == NULL)
        return GC_INVALID_HANDLE;
    enum gc_status status = GC_CAPTURING;
    if (gc_elastic_open_gate(context, &gate)) {
        *given_bytes = gc_elastic_shrink(pool, context, 0, UINT64_MAX, &code) * pool->page_bytes;
        gc_context_wait_end(&gate);
        status = code == 0 ? GC_OK : GC_DRIVER;
    }
    gc_elastic_release(core, pool);
    if (code != 0)
        *driver_code = code;
    return status;
}

/* A context of the device to make calls in, with its gate open; NULL: none, or all capture. */
static struct gc_context *enter_any_context(struct gc_device *device, struct gc_wait_set *gate)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        if (!context->is_device && !gc_context_is_dropped(context) &&
            gc_elastic_open_gate(context, gate))
            return context;
    }
    return NULL;
}

uint64_t gc_elastic_give_back_of(struct gc_elastic *pool, const struct gc_share *share,
                                 uint64_t keep_bytes, uint64_t enough_bytes)
{
    struct gc_device *device = pool->device;
    const uint64_t idle_bytes = gc_share_idle_bytes(device, share);
    struct gc_wait_set gate;
    int ignored;
    if (idle_bytes <= keep_bytes)
        return 0;
    struct gc_context *context = enter_any_context(device, &gate);
    if (context == NULL)
        return 0;
    const uint64_t bytes = gc_min_u64(idle_bytes - keep_bytes, enough_bytes);
    const uint64_t pages = (bytes - 1) / pool->page_bytes + 1;
    const uint64_t given = gc_elastic_shrink(pool, context, 0, pages, &ignored);
    gc_context_wait_end(&gate);
    gc_counter_add(&device->stats.trim_count, given);
    return given * pool->page_bytes;
}
