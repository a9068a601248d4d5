/* The stock of an elastic pool: idle physical pages, bound where they were last used (warm) or
 * nowhere (loose), and the way back to the driver. */
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/direct/elastic_pool.h"

#include <stddef.h>

bool gc_elastic_open_gate(struct gc_context *context, struct gc_wait_set *set)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_open = gc_context_wait_begin_locked(context, set);
    gc_pool_release(&context->pool);
    return is_open;
}

static enum gc_status wait_context(struct gc_context *context, int *driver_code)
{
    struct gc_wait_set set;
    if (context->is_device || gc_context_is_dropped(context))
        return GC_OK;
    if (!gc_elastic_open_gate(context, &set))
        return GC_CAPTURING;
    const enum gc_status status = gc_fence_wait_set(&set, driver_code);
    gc_context_wait_end(&set);
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

/* ---- accounts ---- */

static void add_idle(struct gc_elastic *pool, uint64_t pages)
{
    gc_supply_add(&pool->device->supply, pages * pool->page_bytes);
    if (pool->share != NULL)
        gc_supply_add(&pool->share->supply, pages * pool->page_bytes);
}

static void sub_idle(struct gc_elastic *pool, uint64_t pages)
{
    gc_supply_sub(&pool->device->supply, pages * pool->page_bytes);
    if (pool->share != NULL)
        gc_supply_sub(&pool->share->supply, pages * pool->page_bytes);
}

void gc_elastic_note_created(struct gc_elastic *pool)
{
    atomic_fetch_add_explicit(&pool->device->direct_bytes[GC_DIRECT_ELASTIC], pool->page_bytes,
                              memory_order_relaxed);
    gc_core_confirm(pool->device->core, pool->device, pool->share);
}

static void note_released(struct gc_elastic *pool)
{
    atomic_fetch_sub_explicit(&pool->device->direct_bytes[GC_DIRECT_ELASTIC], pool->page_bytes,
                              memory_order_relaxed);
    gc_share_release(pool->device, pool->share, pool->page_bytes);
}

/* ---- in and out ---- */

static void push_loose_locked(struct gc_elastic *pool, uint64_t handle)
{
    GC_ASSERT(pool->loose_count < pool->page_count);
    pool->loose[pool->loose_count++] = handle;
    add_idle(pool, 1);
}

void gc_elastic_stow_locked(struct gc_elastic *pool, uint32_t index)
{
    struct gc_elastic_page *page = &pool->pages[index];
    if (!page->is_bound) {
        if (page->has_handle)
            push_loose_locked(pool, page->handle);
        page->has_handle = false;
        page->state = GC_ELASTIC_FREE;
        return;
    }
    page->state = GC_ELASTIC_WARM;
    page->previous = pool->warm_last;
    page->next = GC_ELASTIC_PAGE_NONE;
    if (pool->warm_last == GC_ELASTIC_PAGE_NONE)
        pool->warm_first = index;
    else
        pool->pages[pool->warm_last].next = index;
    pool->warm_last = index;
    pool->warm_count++;
    add_idle(pool, 1);
}

void gc_elastic_take_warm_locked(struct gc_elastic *pool, uint32_t index)
{
    struct gc_elastic_page *page = &pool->pages[index];
    if (page->previous == GC_ELASTIC_PAGE_NONE)
        pool->warm_first = page->next;
    else
        pool->pages[page->previous].next = page->next;
    if (page->next == GC_ELASTIC_PAGE_NONE)
        pool->warm_last = page->previous;
    else
        pool->pages[page->next].previous = page->previous;
    page->state = GC_ELASTIC_BUSY;
    pool->warm_count--;
    sub_idle(pool, 1);
}

bool gc_elastic_take_loose_locked(struct gc_elastic *pool, uint64_t *handle)
{
    if (pool->loose_count == 0)
        return false;
    *handle = pool->loose[--pool->loose_count];
    sub_idle(pool, 1);
    return true;
}

/* ---- back to the driver ---- */

/* What one step gives back: pages bound in a row, or one loose handle. */
struct outgoing {
    uint32_t first;
    uint32_t count; /* of bound pages; 0: the loose handle */
    uint64_t loose;
};

/* The longest warm page and those that follow it in the list and in memory. */
static void take_run_locked(struct gc_elastic *pool, uint64_t most, struct outgoing *out)
{
    *out = (struct outgoing){.first = pool->warm_first};
    while (out->count < most && pool->warm_first == out->first + out->count) {
        gc_elastic_take_warm_locked(pool, pool->warm_first);
        out->count++;
    }
}

static bool take_outgoing_locked(struct gc_elastic *pool, uint64_t keep, uint64_t enough,
                                 struct outgoing *out)
{
    const uint64_t most = gc_min_u64(
        gc_sub_or_zero_u64((uint64_t)pool->warm_count + pool->loose_count, keep), enough);
    *out = (struct outgoing){.count = 0};
    if (most == 0)
        return false;
    if (!gc_elastic_take_loose_locked(pool, &out->loose))
        take_run_locked(pool, most, out);
    return true;
}

/* Releases a physical page that is mapped nowhere; on refusal it stays, loose. */
static int release_page(struct gc_elastic *pool, struct gc_context *context, uint64_t handle)
{
    const struct gc_driver *driver = &context->core->driver;
    const int code = driver->page_release(driver->self, context->handle, handle);
    if (code == 0) {
        note_released(pool);
        return 0;
    }
    gc_lock_acquire(&pool->lock);
    push_loose_locked(pool, handle);
    gc_lock_release(&pool->lock);
    return code;
}

/* Unbinds a run and releases its pages; those that the driver keeps stay in the stock. */
static int give_run(struct gc_elastic *pool, struct gc_context *context, const struct outgoing *out,
                    uint64_t *given)
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
            note_released(pool);
            ++*given;
        }
    }
    gc_lock_acquire(&pool->lock);
    for (uint32_t i = out->first; i < out->first + out->count; i++)
        gc_elastic_stow_locked(pool, i);
    pool->figures.unmap_count += is_unmapped ? out->count : 0;
    pthread_cond_broadcast(&pool->changed);
    gc_lock_release(&pool->lock);
    return code;
}

uint64_t gc_elastic_shrink(struct gc_elastic *pool, struct gc_context *context, uint64_t keep,
                           uint64_t enough, int *driver_code)
{
    uint64_t given = 0;
    int code = 0;
    while (code == 0 && given < enough) {
        struct outgoing out;
        gc_device_give_back_begin(pool->device, pool->share);
        gc_lock_acquire(&pool->lock);
        const bool is_any = take_outgoing_locked(pool, keep, enough - given, &out);
        gc_lock_release(&pool->lock);
        if (is_any && out.count > 0)
            code = give_run(pool, context, &out, &given);
        else if (is_any && (code = release_page(pool, context, out.loose)) == 0)
            given++;
        gc_device_give_back_end(pool->device, pool->share);
        if (!is_any)
            break;
    }
    if (code != 0)
        *driver_code = code;
    return given;
}
