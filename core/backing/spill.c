/* Creates and releases host memory at device addresses: reserve, create, map, grant access, and
 * backwards. The mapping alone keeps the pages: their handle is released at once. */
#include "core/backing/spill.h"

#include "core/backing/change.h"
#include "core/backing/host.h"
#include "core/backing/kept.h"
#include "core/backing/unmap.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/pool/segment.h"

#include <stddef.h>

#define HOST_PAGE UINT64_C(4096)

/* Charges; gives kept copies and the host store's free memory back if it must. */
static bool charge(struct gc_core *core, uint64_t bytes)
{
    return gc_host_budget_try_charge(&core->host_budget, bytes, false) ||
           (gc_kept_purge(core, bytes) + gc_host_trim(core) > 0 &&
            gc_host_budget_try_charge(&core->host_budget, bytes, false));
}

/* ---- pages ---- */

static bool may_map(const struct gc_context *context)
{
    const struct gc_driver *driver = &context->core->driver;
    return context->pool.pages.page_bytes != 0 && driver->page_create_host != NULL;
}

/* A page that is created. False: the driver keeps it. */
static bool release_page(const struct gc_context *context, uint64_t handle)
{
    const struct gc_driver *driver = &context->core->driver;
    return driver->page_release(driver->self, context->handle, handle) == 0;
}

int gc_spill_map(const struct gc_change *change, uint64_t address, uint64_t bytes, uint64_t handle,
                 bool *is_stuck)
{
    struct gc_context *context = change->context;
    const struct gc_driver *driver = &context->core->driver;
    int code = GC_CALL_IF_OPEN(
        context, driver->page_map(driver->self, context->handle, address, bytes, handle));
    if (code != 0)
        return code;
    code =
        GC_CALL_IF_OPEN(context, driver->page_set_access(driver->self, context->handle, address,
                                                         bytes, change->peers, change->peer_count));
    if (code != 0)
        *is_stuck = !gc_spill_unmap(context, address, bytes);
    return code;
}

bool gc_spill_unmap(const struct gc_context *context, uint64_t address, uint64_t bytes)
{
    const struct gc_driver *driver = &context->core->driver;
    int code = -1;
    for (unsigned i = 0; code != 0 && i < 2; i++)
        code = driver->page_unmap(driver->self, context->handle, address, bytes);
    return code == 0;
}

/* Creates a page and maps it at the reserved address; the mapping alone keeps it then. *is_stuck: a
 * failure that could not be undone. */
static int map_page(const struct gc_change *change, uint64_t address, uint64_t bytes,
                    bool *is_stuck)
{
    struct gc_context *context = change->context;
    const struct gc_driver *driver = &context->core->driver;
    uint64_t handle = 0;
    int code = GC_CALL_IF_OPEN(
        context, driver->page_create_host(driver->self, context->handle, bytes, &handle));
    if (code != 0)
        return code;
    code = gc_spill_map(change, address, bytes, handle, is_stuck);
    if (code == 0) {
        code = driver->page_release(driver->self, context->handle, handle);
        if (code == 0)
            return 0;
        *is_stuck = !gc_spill_unmap(context, address, bytes);
    }
    if (!*is_stuck)
        *is_stuck = !release_page(context, handle);
    return code;
}

static int create_mapped(struct gc_context *context, struct gc_segment *segment, bool *is_stuck)
{
    const struct gc_driver *driver = &context->core->driver;
    struct gc_change change = {.context = context};
    uint64_t address = 0;
    gc_pool_acquire_plain(&context->pool);
    gc_change_read_peers_locked(&change);
    gc_pool_release(&context->pool);
    int code = GC_CALL_IF_OPEN(
        context, driver->address_reserve(driver->self, context->handle, segment->bytes,
                                         context->pool.pages.page_bytes, &address));
    if (code != 0)
        return code;
    code = map_page(&change, address, segment->bytes, is_stuck);
    if (code != 0) {
        if (!*is_stuck)
            (void)driver->address_free(driver->self, context->handle, address, segment->bytes);
        return code;
    }
    segment->address = address;
    segment->is_host_allocation = false;
    return 0;
}

static int release_mapped(const struct gc_context *context, const struct gc_segment *segment)
{
    const struct gc_driver *driver = &context->core->driver;
    const int code =
        driver->page_unmap(driver->self, context->handle, segment->address, segment->bytes);
    /* Addresses that the driver does not take back stay reserved, without memory. */
    if (code == 0)
        (void)driver->address_free(driver->self, context->handle, segment->address, segment->bytes);
    return code;
}

/* ---- host allocations ---- */

/* Memory that a driver context owns serves no pool of a device. */
static int create_allocated(struct gc_context *context, struct gc_segment *segment)
{
    const struct gc_driver *driver = &context->core->driver;
    if (driver->host_alloc == NULL || context->is_device)
        return driver->not_supported;
    segment->is_host_allocation = true;
    return GC_CALL_IF_OPEN(context, driver->host_alloc(driver->self, context->handle,
                                                       segment->bytes, &segment->address));
}

static int release_allocated(struct gc_context *context, const struct gc_segment *segment)
{
    const struct gc_driver *driver = &context->core->driver;
    const int code = GC_CALL_IF_OPEN(
        context, driver->host_free(driver->self, context->handle, segment->address));
    return code == driver->context_is_gone ? 0 : code; /* destroyed with its context */
}

/* ---- either ---- */

bool gc_spill_round(const struct gc_context *context, uint64_t bytes, uint64_t *rounded)
{
    return gc_round_up_u64(bytes, may_map(context) ? context->pool.pages.page_bytes : HOST_PAGE,
                           rounded);
}

enum gc_status gc_spill_create(struct gc_context *context, struct gc_segment *segment, int *code)
{
    struct gc_core *core = context->core;
    const struct gc_driver *driver = &core->driver;
    GC_ASSERT(gc_lock_held_count() == 0);
    if (!charge(core, segment->bytes))
        return GC_OUT_OF_MEMORY;
    bool is_stuck = false;
    *code = may_map(context) ? create_mapped(context, segment, &is_stuck) : driver->not_supported;
    if (*code == driver->not_supported && !is_stuck)
        *code = create_allocated(context, segment);
    if (*code == 0 || is_stuck)
        gc_core_add_spilled(context->device, segment->bytes);
    else
        gc_host_budget_uncharge(&core->host_budget, segment->bytes);
    if (*code == 0)
        return GC_OK;
    if (*code == driver->not_supported)
        return GC_NOT_SUPPORTED;
    return *code == driver->out_of_memory ? GC_OUT_OF_MEMORY : GC_DRIVER;
}

int gc_spill_release(struct gc_context *context, const struct gc_segment *segment)
{
    struct gc_core *core = context->core;
    GC_ASSERT(gc_lock_held_count() == 0);
    /* First: once the addresses are free another block may have them. */
    gc_spills_end(&core->spills, segment->address, gc_core_now_ns(core));
    const int code = segment->is_host_allocation ? release_allocated(context, segment)
                                                 : release_mapped(context, segment);
    if (code == 0)
        gc_core_sub_spilled(context->device, segment->bytes);
    else
        gc_spills_reopen(&core->spills, segment->address);
    return code;
}

void gc_spill_drop(struct gc_context *context, const struct gc_segment *segment)
{
    gc_spills_end(&context->core->spills, segment->address, gc_core_now_ns(context->core));
    /* Pages that the driver keeps stay counted. */
    if (segment->is_host_allocation || release_mapped(context, segment) == 0)
        gc_core_sub_spilled(context->device, segment->bytes);
}

/* ---- moved extents ---- */

bool gc_spill_try_hold(struct gc_context *context, uint64_t bytes)
{
    struct gc_core *core = context->core;
    if (!may_map(context) || !charge(core, bytes))
        return false;
    gc_core_add_spilled(context->device, bytes);
    return true;
}

/* Takes those that no block uses any more off the list of hosted extents, their mappings excluded.
 */
static struct gc_extent *take_unused_locked(struct gc_pool *pool)
{
    struct gc_extent **link = &pool->pages.hosted;
    struct gc_extent *taken = NULL;
    while (*link != NULL) {
        struct gc_extent *extent = *link;
        if (extent->used_count > 0 || !gc_pages_try_exclude_locked(pool, extent->user)) {
            link = &extent->next;
            continue;
        }
        *link = extent->next;
        gc_spills_end(&pool->context->core->spills, gc_pages_address_of(pool, extent->user),
                      gc_core_now_ns(pool->context->core));
        gc_pages_set_stage(extent->user, GC_MAPPING_TO_UNMAP);
        extent->next = taken;
        taken = extent;
    }
    return taken;
}

/* Unmaps and releases. Where the driver refuses, the extent is listed again, as it was. */
static void release_taken(struct gc_context *context, struct gc_extent *extent)
{
    struct gc_pool *pool = &context->pool;
    const struct gc_driver *driver = &context->core->driver;
    int ignored;
    const bool is_idle = gc_submit_quiesce(context, &ignored);
    for (struct gc_extent *next; extent != NULL; extent = next) {
        next = extent->next;
        const uint64_t bytes = extent->page_count * pool->pages.page_bytes;
        /* The handle first: the mapping alone keeps the memory then, and goes last. */
        if (is_idle && extent->driver_handle != 0 &&
            driver->page_release(driver->self, context->handle, extent->driver_handle) == 0)
            extent->driver_handle = 0;
        const bool is_gone =
            is_idle && extent->driver_handle == 0 && gc_change_unmap(context, extent->user) == 0;
        gc_pool_acquire_plain(pool);
        (void)gc_unmap_settle_locked(pool, extent->user);
        if (!is_gone) {
            extent->next = pool->pages.hosted;
            pool->pages.hosted = extent;
        }
        gc_pool_release(pool);
        if (!is_gone)
            continue;
        gc_slab_free(&context->device->extent_records, extent);
        gc_core_sub_spilled(context->device, bytes);
    }
}

void gc_spill_collect(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_change change;
    GC_ASSERT(gc_lock_held_count() == 0);
    gc_pool_acquire_plain(pool);
    const bool has_any = pool->pages.hosted != NULL && !pool->is_dropped;
    gc_pool_release(pool);
    if (!has_any || gc_change_try_begin(context, &change) != GC_OK)
        return;
    gc_pool_acquire_to_exclude(pool);
    struct gc_extent *taken = take_unused_locked(pool);
    gc_pool_release(pool);
    release_taken(context, taken);
    gc_change_end(&change);
}

/* ---- peers ---- */

/* The mapped segment on the host with the lowest address above `above`. */
static bool next_mapped(struct gc_pool *pool, uint64_t above, uint64_t *address, uint64_t *bytes)
{
    bool is_found = false;
    gc_pool_acquire_plain(pool);
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        if (!segment->is_spilled || segment->is_host_allocation || segment->address <= above ||
            (is_found && segment->address > *address))
            continue;
        is_found = true;
        *address = segment->address;
        *bytes = segment->bytes;
    }
    gc_pool_release(pool);
    return is_found;
}

/* A block may be freed meanwhile: then it is no longer next, and the driver's refusal is none. */
int gc_spill_grant(const struct gc_change *change)
{
    struct gc_context *context = change->context;
    const struct gc_driver *driver = &context->core->driver;
    uint64_t address = 0;
    uint64_t bytes = 0;
    int refused = 0;
    for (uint64_t above = 0; next_mapped(&context->pool, above, &address, &bytes);
         above = address) {
        const int code = GC_CALL_IF_OPEN(
            context, driver->page_set_access(driver->self, context->handle, address, bytes,
                                             change->peers, change->peer_count));
        uint64_t again;
        uint64_t again_bytes;
        if (code != 0 && next_mapped(&context->pool, address - 1, &again, &again_bytes) &&
            again == address)
            refused = code;
    }
    return refused;
}
