/* Removes a tenant: closes its pools, so that no block is or becomes live; waits for pending
 * blocks; releases all memory to the driver; drops the records with their address ranges. If a step
 * fails the pools are opened again. */
#include "core/backing/spill.h"
#include "core/device/publish.h"
#include "core/device/tenant.h"
#include "core/device/wait.h"

#include "core/alloc/teardown.h"
#include "core/backing/change.h"
#include "core/base/assert.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

typedef enum gc_status step(struct gc_context *record);

/* Visits all records of the tenant on all devices; stops at the first failure. */
static enum gc_status visit_records(struct gc_tenant *tenant, step *visit)
{
    enum gc_status status = GC_OK;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(tenant->core, i);
        struct gc_context *record = device == NULL ? NULL : gc_context_first(device);
        for (; record != NULL && status == GC_OK; record = gc_context_next(record))
            if (record->tenant == tenant && !gc_context_is_dropped(record))
                status = visit(record);
    }
    return status;
}

/* ---- closing ---- */

/* Whether any block is live, or being allocated or freed. */
static bool is_used_locked(const struct gc_pool *pool)
{
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        for (const struct gc_block *block = segment->first; block != NULL; block = block->next)
            if (block->state != GC_BLOCK_FREE && block->state != GC_BLOCK_PENDING)
                return true;
    }
    return false;
}

/* Flushes the thread caches and closes the pool, which serves nothing from then on. */
static enum gc_status close_record(struct gc_context *record)
{
    struct gc_pool *pool = &record->pool;
    gc_tcache_stop_all(record->core);
    gc_tcache_flush_context(record);
    gc_pool_acquire_plain(pool);
    const bool is_used = is_used_locked(pool);
    if (!is_used)
        pool->is_closed = true;
    gc_pool_release(pool);
    gc_tcache_resume_all(record->core);
    return is_used ? GC_BUSY : GC_OK;
}

static enum gc_status open_record(struct gc_context *record)
{
    gc_pool_acquire_plain(&record->pool);
    record->pool.is_closed = false;
    gc_pool_release(&record->pool);
    return GC_OK;
}

/* ---- releasing ---- */

static enum gc_status drain_record(struct gc_context *record)
{
    int ignored;
    const enum gc_status status = gc_fence_synchronize(record, GC_FOREVER, &ignored);
    if (status != GC_OK)
        return status;
    gc_defer_collect(record);
    gc_spill_collect(record);
    return GC_OK;
}

/* Whether all driver memory is released; reserved addresses may be left. */
static bool is_empty(struct gc_pool *pool)
{
    gc_pool_acquire_plain(pool);
    bool is_empty = pool->pages.count == 0 && pool->pages.hosted == NULL;
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next)
        is_empty &= segment->arena != NULL;
    gc_pool_release(pool);
    return is_empty;
}

static enum gc_status empty_record(struct gc_context *record)
{
    struct gc_pool *pool = &record->pool;
    gc_release_pool(record);
    /* If the driver refused another thread's release, that memory is idle again. */
    if (gc_device_wait_releases(record->device, record->quota, GC_RECLAIM_WAIT_NS))
        gc_release_pool(record);
    if (!is_empty(pool) && !gc_context_is_dropped(record))
        return gc_capture_is_of_context(record) ? GC_CAPTURING : GC_DRIVER;
    const enum gc_status status = gc_range_release(record);
    return status == GC_INVALID_ARGUMENT ? GC_OK : status; /* dropped: destroyed with its handle */
}

/* Runs after empty_record: the record holds no driver memory. */
static enum gc_status drop_record(struct gc_context *record)
{
    if (gc_teardown_drop_record(record))
        gc_context_unlink_record(record);
    return GC_OK;
}

/* ---- the tenant ---- */

static enum gc_status begin_removal(struct gc_tenant *tenant)
{
    enum gc_status status = GC_OK;
    gc_lock_acquire(&tenant->core->registry);
    const unsigned state = atomic_load_explicit(&tenant->state, memory_order_relaxed);
    if (state == GC_TENANT_REMOVED)
        status = GC_INVALID_ARGUMENT;
    else if (state == GC_TENANT_REMOVING || gc_tenant_is_out(tenant))
        status = GC_BUSY;
    else
        atomic_store_explicit(&tenant->state, GC_TENANT_REMOVING, memory_order_release);
    gc_lock_release(&tenant->core->registry);
    return status;
}

static void end_removal(struct gc_tenant *tenant, enum gc_tenant_state state)
{
    gc_lock_acquire(&tenant->core->registry);
    atomic_store_explicit(&tenant->state, (unsigned)state, memory_order_release);
    gc_lock_release(&tenant->core->registry);
}

/* Whether the tenant has non-pool allocations. Its pools are closed, so the figures are exact. */
static bool has_direct(const struct gc_tenant *tenant)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        /* Acquire: pairs with the release in gc_tenant_quota. */
        const struct gc_quota *quota =
            atomic_load_explicit(&tenant->quotas[i], memory_order_acquire);
        if (quota != NULL &&
            (atomic_load_explicit(&quota->allocated.current, memory_order_relaxed) > 0 ||
             atomic_load_explicit(&quota->elastic_count, memory_order_relaxed) > 0))
            return true;
    }
    return false;
}

static enum gc_status remove_records(struct gc_tenant *tenant)
{
    static step *const steps[] = {drain_record, empty_record, drop_record};
    enum gc_status status = visit_records(tenant, close_record);
    if (status == GC_OK && has_direct(tenant))
        status = GC_BUSY;
    for (unsigned i = 0; status == GC_OK && i < sizeof(steps) / sizeof(steps[0]); i++)
        status = visit_records(tenant, steps[i]);
    return status;
}

/* What is away between two turns comes back when it is needed; freed memory takes no room. */
static bool comes_back(const struct gc_tenant *tenant)
{
    return gc_tenant_is_away(tenant) && !gc_tenant_is_paused(tenant) && !has_direct(tenant);
}

enum gc_status gc_tenant_remove(struct gc_core *core, struct gc_tenant *tenant)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    enum gc_status status;
    while ((status = begin_removal(tenant)) == GC_BUSY && comes_back(tenant))
        gc_wait_tenant(core, tenant);
    if (status != GC_OK)
        return status;
    status = remove_records(tenant);
    if (status != GC_OK)
        (void)visit_records(tenant, open_record);
    end_removal(tenant, status == GC_OK ? GC_TENANT_REMOVED : GC_TENANT_OPEN);
    if (status == GC_OK)
        gc_publish_remove_tenant(tenant);
    return status;
}
