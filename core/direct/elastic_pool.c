/* Elastic pools: create and destroy, figures, and the cache of physical pages. A cached page is
 * still bound where it was last used (idle), or mapped nowhere. Unmapped ones are used and released
 * first, then idle ones in the order in which they became idle (FIFO). */
#include "core/direct/elastic_pool.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/release.h"

#include <stddef.h>

/* The cache's bound: a fraction of the capacity, and at most so many bytes. */
#define CACHE_DIVISOR 8
#define CACHE_MAX_BYTES GC_MIB(256)

/* ---- calls that a capture forbids ---- */

bool gc_elastic_begin_calls(struct gc_context *context, struct gc_wait_set *set)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_open = gc_peers_wait_begin_locked(context, set);
    gc_pool_release(&context->pool);
    return is_open;
}

static enum gc_status wait_context(struct gc_context *context, int *driver_code)
{
    struct gc_wait_set set;
    if (context->is_device || gc_context_is_dropped(context))
        return GC_OK;
    if (!gc_elastic_begin_calls(context, &set))
        return GC_CAPTURING;
    const enum gc_status status = gc_fence_wait_set(&set, driver_code);
    gc_peers_wait_end(&set);
    return status;
}

enum gc_status gc_elastic_wait_device(struct gc_device *device, int *driver_code)
{
    enum gc_status status = GC_OK;
    for (struct gc_context *context = gc_context_first(device); context != NULL && status == GC_OK;
         context = gc_context_next(context))
        status = wait_context(context, driver_code);
    return status;
}

/* ---- the cache: figures ---- */

static void add_idle(struct gc_elastic *pool, uint64_t pages)
{
    gc_idle_add(&pool->device->idle, pages * pool->page_bytes);
    if (pool->quota != NULL)
        gc_idle_add(&pool->quota->idle, pages * pool->page_bytes);
}

static void sub_idle(struct gc_elastic *pool, uint64_t pages)
{
    gc_idle_sub(&pool->device->idle, pages * pool->page_bytes);
    if (pool->quota != NULL)
        gc_idle_sub(&pool->quota->idle, pages * pool->page_bytes);
}

void gc_elastic_count_created(struct gc_elastic *pool)
{
    atomic_fetch_add_explicit(&pool->device->direct_bytes[GC_DIRECT_ELASTIC], pool->page_bytes,
                              memory_order_relaxed);
    gc_direct_commit(pool->device->core, pool->device, pool->quota);
}

static void count_released(struct gc_elastic *pool)
{
    atomic_fetch_sub_explicit(&pool->device->direct_bytes[GC_DIRECT_ELASTIC], pool->page_bytes,
                              memory_order_relaxed);
    gc_quota_uncharge(pool->device, pool->quota, pool->page_bytes);
}

/* ---- the cache: insert and remove ---- */

static void push_unmapped_locked(struct gc_elastic *pool, uint64_t handle)
{
    GC_ASSERT(pool->unmapped_count < pool->page_count);
    pool->unmapped[pool->unmapped_count++] = handle;
    add_idle(pool, 1);
}

void gc_elastic_cache_locked(struct gc_elastic *pool, uint32_t index)
{
    struct gc_elastic_page *page = &pool->pages[index];
    if (!page->is_bound) {
        if (page->has_handle)
            push_unmapped_locked(pool, page->handle);
        page->has_handle = false;
        page->state = GC_ELASTIC_FREE;
        return;
    }
    page->state = GC_ELASTIC_IDLE;
    page->previous = pool->idle_last;
    page->next = GC_ELASTIC_PAGE_NONE;
    if (pool->idle_last == GC_ELASTIC_PAGE_NONE)
        pool->idle_first = index;
    else
        pool->pages[pool->idle_last].next = index;
    pool->idle_last = index;
    pool->idle_count++;
    add_idle(pool, 1);
}

void gc_elastic_remove_idle_locked(struct gc_elastic *pool, uint32_t index)
{
    struct gc_elastic_page *page = &pool->pages[index];
    if (page->previous == GC_ELASTIC_PAGE_NONE)
        pool->idle_first = page->next;
    else
        pool->pages[page->previous].next = page->next;
    if (page->next == GC_ELASTIC_PAGE_NONE)
        pool->idle_last = page->previous;
    else
        pool->pages[page->next].previous = page->previous;
    page->state = GC_ELASTIC_BUSY;
    pool->idle_count--;
    sub_idle(pool, 1);
}

bool gc_elastic_pop_unmapped_locked(struct gc_elastic *pool, uint64_t *handle)
{
    if (pool->unmapped_count == 0)
        return false;
    *handle = pool->unmapped[--pool->unmapped_count];
    sub_idle(pool, 1);
    return true;
}

/* ---- the cache: release to the driver ---- */

/* Released in one step: a run of bound pages, or one unmapped handle. */
struct outgoing {
    uint32_t first;
    uint32_t count; /* of bound pages; 0: the unmapped handle */
    uint64_t unmapped;
};

/* Pops the page idle longest, and those that follow it both in the list and in memory. */
static void pop_run_locked(struct gc_elastic *pool, uint64_t most, struct outgoing *out)
{
    *out = (struct outgoing){.first = pool->idle_first};
    while (out->count < most && pool->idle_first == out->first + out->count) {
        gc_elastic_remove_idle_locked(pool, pool->idle_first);
        out->count++;
    }
}

static bool pop_outgoing_locked(struct gc_elastic *pool, uint64_t keep, uint64_t enough,
                                struct outgoing *out)
{
    const uint64_t most = gc_min_u64(
        gc_sub_or_zero_u64((uint64_t)pool->idle_count + pool->unmapped_count, keep), enough);
    *out = (struct outgoing){.count = 0};
    if (most == 0)
        return false;
    if (!gc_elastic_pop_unmapped_locked(pool, &out->unmapped))
        pop_run_locked(pool, most, out);
    return true;
}

/* Releases a physical page that is mapped nowhere; on an error it stays in the cache. */
static int release_page(struct gc_elastic *pool, struct gc_context *context, uint64_t handle)
{
    const struct gc_driver *driver = &context->core->driver;
    const int code = driver->page_release(driver->self, context->handle, handle);
    if (code == 0) {
        count_released(pool);
        return 0;
    }
    gc_lock_acquire(&pool->lock);
    push_unmapped_locked(pool, handle);
    gc_lock_release(&pool->lock);
    return code;
}

/* Unmaps a run and releases its pages; those that the driver keeps stay in the cache. */
static int release_run(struct gc_elastic *pool, struct gc_context *context,
                       const struct outgoing *out, uint64_t *released)
{
    const struct gc_driver *driver = &context->core->driver;
    int code = driver->page_unmap(driver->self, context->handle,
                                  pool->base + out->first * pool->page_bytes,
                                  out->count * pool->page_bytes);
    const bool is_unmapped = code == 0;
    if (is_unmapped)
        gc_device_trace_memory(context->device, GC_TRACE_UNMAP, GC_TRACE_PAGES,
                               pool->base + out->first * pool->page_bytes,
                               out->count * pool->page_bytes);
    for (uint32_t i = out->first; is_unmapped && i < out->first + out->count; i++) {
        struct gc_elastic_page *page = &pool->pages[i];
        page->is_bound = false;
        page->is_accessible = false;
        if (code == 0)
            code = driver->page_release(driver->self, context->handle, page->handle);
        if (code == 0) {
            page->has_handle = false;
            count_released(pool);
            ++*released;
        }
    }
    gc_lock_acquire(&pool->lock);
    for (uint32_t i = out->first; i < out->first + out->count; i++)
        gc_elastic_cache_locked(pool, i);
    pool->figures.unmap_count += is_unmapped ? out->count : 0;
    gc_lock_broadcast(&pool->changed);
    gc_lock_release(&pool->lock);
    return code;
}

uint64_t gc_elastic_shrink(struct gc_elastic *pool, struct gc_context *context, uint64_t keep,
                           uint64_t enough, int *driver_code)
{
    uint64_t released = 0;
    int code = 0;
    while (code == 0 && released < enough) {
        struct outgoing out;
        gc_device_release_begin(pool->device, pool->quota);
        gc_lock_acquire(&pool->lock);
        const bool is_any = pop_outgoing_locked(pool, keep, enough - released, &out);
        gc_lock_release(&pool->lock);
        if (is_any && out.count > 0)
            code = release_run(pool, context, &out, &released);
        else if (is_any && (code = release_page(pool, context, out.unmapped)) == 0)
            released++;
        gc_device_release_end(pool->device, pool->quota);
        if (!is_any)
            break;
    }
    if (code != 0)
        *driver_code = code;
    return released;
}

/* ---- create and destroy ---- */

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

static uint32_t cache_max_of(const struct gc_elastic *pool)
{
    const uint64_t fraction = gc_max_u64(pool->page_count / CACHE_DIVISOR, 1);
    return (uint32_t)gc_min_u64(fraction, gc_max_u64(CACHE_MAX_BYTES / pool->page_bytes, 1));
}

static enum gc_status reserve(struct gc_elastic *pool, struct gc_context *context, int *driver_code)
{
    const struct gc_driver *driver = &context->core->driver;
    struct gc_wait_set set;
    if (!gc_elastic_begin_calls(context, &set))
        return GC_CAPTURING;
    const int code = GC_CALL_IF_OPEN(
        context,
        driver->address_reserve(driver->self, context->handle, pool->page_count * pool->page_bytes,
                                pool->device->info.page_bytes, &pool->base));
    gc_peers_wait_end(&set);
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
    struct gc_elastic *pool = gc_elastic_create_record(context->device, page_count, page_bytes);
    if (pool == NULL)
        return GC_NO_HOST_MEMORY;
    pool->cache_max = setup->keeps_none ? 0 : cache_max_of(pool);
    pool->api = setup->api;
    pool->quota = setup->quota;
    if (pool->quota != NULL)
        atomic_fetch_add_explicit(&pool->quota->elastic_count, 1, memory_order_relaxed);
    status = reserve(pool, context, driver_code);
    if (status != GC_OK)
        goto fail_reserve;
    *base = pool->base;
    status = gc_elastic_add(core, pool, handle);
    if (status != GC_OK)
        goto fail_add;
    return GC_OK;

fail_add:
    (void)unreserve(pool, context); /* addresses cost nothing */
fail_reserve:
    gc_elastic_destroy_record(pool);
    return status;
}

/* Called when no work uses the pool. Mapped pages join the cache, and the cache is released. Pages
 * that the driver keeps are idle afterwards. */
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
            gc_elastic_cache_locked(pool, i);
    }
    pool->figures.mapped_bytes = 0;
    gc_lock_release(&pool->lock);
    gc_device_uncount_other(pool->device, &entry);
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
    struct gc_wait_set set;
    if (pool == NULL)
        return GC_INVALID_HANDLE;
    enum gc_status status = GC_CAPTURING;
    if (gc_elastic_begin_calls(context, &set)) {
        status = gc_elastic_wait_device(pool->device, driver_code);
        if (status == GC_OK)
            status = tear_down(pool, context, driver_code);
        gc_peers_wait_end(&set);
    }
    gc_elastic_end_close(core, handle, status == GC_OK);
    if (status == GC_OK)
        gc_elastic_destroy_record(pool);
    return status;
}

/* ---- figures, release ---- */

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
    figures->warm_bytes = ((uint64_t)pool->idle_count + pool->unmapped_count) * pool->page_bytes;
    gc_lock_release(&pool->lock);
    figures->base = pool->base;
    figures->page_bytes = pool->page_bytes;
    figures->capacity_bytes = pool->page_count * pool->page_bytes;
    gc_elastic_release(core, pool);
    return GC_OK;
}

enum gc_status gc_elastic_compact(struct gc_core *core, struct gc_context *context, uint64_t handle,
                                  uint64_t *released_bytes, int *driver_code)
{
    struct gc_elastic *pool = gc_elastic_acquire(core, handle);
    struct gc_wait_set set;
    int code = 0;
    if (pool == NULL)
        return GC_INVALID_HANDLE;
    enum gc_status status = GC_CAPTURING;
    if (gc_elastic_begin_calls(context, &set)) {
        *released_bytes = gc_elastic_shrink(pool, context, 0, UINT64_MAX, &code) * pool->page_bytes;
        gc_peers_wait_end(&set);
        status = code == 0 ? GC_OK : GC_DRIVER;
    }
    gc_elastic_release(core, pool);
    if (code != 0)
        *driver_code = code;
    return status;
}

/* A context of the device in which gc_elastic_begin_calls succeeded; NULL: none, or all capture. */
static struct gc_context *enter_any_context(struct gc_device *device, struct gc_wait_set *set)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        if (!context->is_device && !gc_context_is_dropped(context) &&
            gc_elastic_begin_calls(context, set))
            return context;
    }
    return NULL;
}

static uint64_t shrink_pool(struct gc_elastic *pool, const struct gc_quota *quota,
                            uint64_t keep_bytes, uint64_t enough_bytes)
{
    struct gc_device *device = pool->device;
    const uint64_t idle_bytes = gc_quota_idle_bytes(device, quota);
    struct gc_wait_set set;
    int ignored;
    if (idle_bytes <= keep_bytes)
        return 0;
    struct gc_context *context = enter_any_context(device, &set);
    if (context == NULL)
        return 0;
    const uint64_t bytes = gc_min_u64(idle_bytes - keep_bytes, enough_bytes);
    const uint64_t pages = (bytes - 1) / pool->page_bytes + 1;
    const uint64_t released = gc_elastic_shrink(pool, context, 0, pages, &ignored);
    gc_peers_wait_end(&set);
    gc_counter_add(&device->stats.trim_count, released);
    return released * pool->page_bytes;
}

/* The shrinker (core/reclaim/release.h). */
static uint64_t shrink(struct gc_device *device, const struct gc_quota *quota, uint64_t keep_bytes,
                       uint64_t enough_bytes)
{
    struct gc_core *core = device->core;
    uint64_t released = 0;
    uint32_t slot = 0;
    while (released < enough_bytes) {
        struct gc_elastic *pool = gc_elastic_acquire_next(core, device, quota, &slot);
        if (pool == NULL)
            break;
        released += shrink_pool(pool, quota, keep_bytes, enough_bytes - released);
        gc_elastic_release(core, pool);
    }
    return released;
}

void gc_elastic_init(struct gc_core *core)
{
    gc_elastic_init_table(core);
    gc_release_add_shrinker(core, shrink);
}
