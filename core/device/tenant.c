/* The tenants of a process, their quotas and their figures. */
#include "core/device/tenant.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/config/parse.h"
#include "core/device/registry.h"

#include <stddef.h>
#include <string.h>

/* The addresses of a tenant without a capacity, as a multiple of its limit. */
#define CAPACITY_TIMES 4

/* ---- registry ---- */

static struct gc_tenant *load_link(const _Atomic(struct gc_tenant *) *link)
{
    /* Acquire: pairs with the release in gc_tenant_add. */
    return atomic_load_explicit(link, memory_order_acquire);
}

static bool is_removed(const struct gc_tenant *tenant)
{
    return atomic_load_explicit(&tenant->state, memory_order_acquire) == GC_TENANT_REMOVED;
}

static uint32_t count_locked(const struct gc_core *core)
{
    uint32_t count = 0;
    for (struct gc_tenant *tenant = load_link(&core->tenants); tenant != NULL;
         tenant = load_link(&tenant->next))
        count += !is_removed(tenant);
    return count;
}

struct gc_tenant *gc_tenant_find(struct gc_core *core, const char *name)
{
    struct gc_tenant *tenant = load_link(&core->tenants);
    while (tenant != NULL && (is_removed(tenant) || strcmp(tenant->name, name) != 0))
        tenant = load_link(&tenant->next);
    return tenant;
}

/* NULL: *status is the reason. */
static struct gc_tenant *create(struct gc_core *core, const struct gc_tenant_config *config,
                                enum gc_status *status)
{
    static const struct gc_option_rule name_rule = {.type = GC_OPTION_TEXT_NAME,
                                                    .bytes = GC_OPTION_NAME_BYTES};
    struct gc_tenant *tenant = gc_slab_alloc(&core->tenant_records);
    *status = GC_NO_HOST_MEMORY;
    if (tenant == NULL)
        return NULL;
    *tenant = (struct gc_tenant){.core = core};
    if (!gc_parse_option(&name_rule, config->name, tenant->name)) {
        gc_slab_free(&core->tenant_records, tenant);
        *status = GC_INVALID_ARGUMENT;
        return NULL;
    }
    tenant->capacity_bytes = config->capacity_bytes;
    atomic_init(&tenant->limit_bytes, config->limit_bytes);
    *status = GC_OK;
    return tenant;
}

/* Appends the tenant: visits run from the oldest on. */
static void link_locked(struct gc_core *core, struct gc_tenant *tenant)
{
    _Atomic(struct gc_tenant *) *link = &core->tenants;
    while (load_link(link) != NULL)
        link = &load_link(link)->next;
    atomic_store_explicit(link, tenant, memory_order_release);
}

enum gc_status gc_tenant_add(struct gc_core *core, const struct gc_tenant_config *config,
                             struct gc_tenant **tenant)
{
    enum gc_status status;
    struct gc_tenant *created = create(core, config, &status);
    if (created == NULL)
        return status;
    gc_lock_acquire(&core->registry);
    if (gc_tenant_find(core, config->name) != NULL)
        status = GC_ALREADY_EXISTS;
    else if (count_locked(core) >= GC_TENANT_MAX)
        status = GC_TOO_MANY;
    else
        link_locked(core, created);
    gc_lock_release(&core->registry);
    if (status == GC_OK)
        *tenant = created;
    else
        gc_slab_free(&core->tenant_records, created);
    return status;
}

void gc_tenants_visit(struct gc_core *core, gc_visit_tenant *visit, void *argument)
{
    for (struct gc_tenant *tenant = load_link(&core->tenants); tenant != NULL;
         tenant = load_link(&tenant->next))
        visit(argument, tenant);
}

void gc_tenants_init(struct gc_core *core)
{
    gc_slab_init_small(&core->tenant_records, &core->host, sizeof(struct gc_tenant));
    gc_slab_init_small(&core->quota_records, &core->host, sizeof(struct gc_quota));
}

void gc_tenants_fini(struct gc_core *core)
{
    gc_slab_fini(&core->tenant_records);
    gc_slab_fini(&core->quota_records);
}

/* ---- one tenant ---- */

enum gc_status gc_tenant_quota(struct gc_tenant *tenant, struct gc_device *device,
                               struct gc_quota **quota)
{
    struct gc_core *core = tenant->core;
    const int ordinal = gc_device_get_info(device)->ordinal;
    *quota = gc_tenant_quota_at(tenant, ordinal);
    if (*quota != NULL)
        return GC_OK;
    struct gc_quota *created = gc_slab_alloc(&core->quota_records);
    if (created == NULL)
        return GC_NO_HOST_MEMORY;
    *created = (struct gc_quota){.device = device};
    gc_quota_init(created, device, gc_tenant_limit_bytes(tenant));
    created->capacity_bytes = gc_tenant_capacity_bytes(tenant, device);
    gc_lock_acquire(&core->registry);
    *quota = gc_tenant_quota_at(tenant, ordinal);
    if (*quota == NULL) {
        /* The limit changes under this lock only. */
        gc_budget_set_limit(&created->budget, gc_tenant_limit_bytes(tenant));
        atomic_store_explicit(&tenant->quotas[ordinal], created, memory_order_release);
        *quota = created;
    }
    gc_lock_release(&core->registry);
    if (*quota != created)
        gc_slab_free(&core->quota_records, created);
    return GC_OK;
}

bool gc_tenant_is_open(const struct gc_tenant *tenant)
{
    return atomic_load_explicit(&tenant->state, memory_order_acquire) == GC_TENANT_OPEN;
}

uint64_t gc_tenant_limit_bytes(const struct gc_tenant *tenant)
{
    return atomic_load_explicit(&tenant->limit_bytes, memory_order_relaxed);
}

const char *gc_tenant_name(const struct gc_tenant *tenant)
{
    return tenant->name;
}

enum gc_status gc_tenant_begin_pause(struct gc_tenant *tenant)
{
    enum gc_status status = GC_OK;
    gc_lock_acquire(&tenant->core->registry);
    if (!gc_tenant_is_open(tenant))
        status = GC_INVALID_ARGUMENT;
    else if (gc_tenant_is_paused(tenant))
        status = GC_BUSY;
    else
        atomic_store_explicit(&tenant->is_paused, true, memory_order_seq_cst);
    gc_lock_release(&tenant->core->registry);
    return status;
}

bool gc_tenant_is_paused(const struct gc_tenant *tenant)
{
    return atomic_load_explicit(&tenant->is_paused, memory_order_seq_cst);
}

bool gc_tenant_begin_away(struct gc_tenant *tenant)
{
    gc_lock_acquire(&tenant->core->registry);
    const bool is_open = gc_tenant_is_open(tenant);
    if (is_open)
        atomic_store_explicit(&tenant->turn.is_away, true, memory_order_seq_cst);
    gc_lock_release(&tenant->core->registry);
    return is_open;
}

bool gc_tenant_is_away(const struct gc_tenant *tenant)
{
    return atomic_load_explicit(&tenant->turn.is_away, memory_order_seq_cst);
}

bool gc_tenant_is_out(const struct gc_tenant *tenant)
{
    return gc_tenant_is_paused(tenant) || gc_tenant_is_away(tenant);
}

uint64_t gc_tenant_resident_bytes(const struct gc_tenant *tenant, const struct gc_device *device)
{
    const struct gc_quota *quota = gc_tenant_quota_at(tenant, gc_device_get_info(device)->ordinal);
    return quota == NULL ? 0 : gc_budget_held(&quota->budget);
}

uint64_t gc_tenants_resident_bytes(struct gc_core *core, const struct gc_device *device,
                                   const struct gc_tenant *but)
{
    uint64_t sum = 0;
    for (const struct gc_tenant *tenant = load_link(&core->tenants); tenant != NULL;
         tenant = load_link(&tenant->next))
        if (tenant != but && !gc_tenant_is_paused(tenant))
            sum += gc_tenant_resident_bytes(tenant, device);
    return sum;
}

uint64_t gc_tenants_largest_bytes(struct gc_core *core, const struct gc_device *device)
{
    uint64_t largest = 0;
    for (const struct gc_tenant *tenant = load_link(&core->tenants); tenant != NULL;
         tenant = load_link(&tenant->next)) {
        const struct gc_quota *quota =
            gc_tenant_quota_at(tenant, gc_device_get_info(device)->ordinal);
        struct gc_gauge live = {0};
        if (quota != NULL)
            gc_stats_read_gauge(&quota->allocated, &live);
        largest = gc_max_u64(largest, live.current);
    }
    return largest;
}

void gc_tenant_begin_wanting(struct gc_tenant *tenant, const struct gc_device *device,
                             uint64_t bytes)
{
    struct gc_quota *quota = gc_tenant_quota_at(tenant, gc_device_get_info(device)->ordinal);
    if (quota != NULL)
        atomic_fetch_add_explicit(&quota->wanted, bytes, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&tenant->turn.wanting, 1, memory_order_seq_cst) == 0)
        atomic_store_explicit(&tenant->turn.wanted_ns, gc_clock_ns(), memory_order_relaxed);
}

void gc_tenant_end_wanting(struct gc_tenant *tenant, const struct gc_device *device, uint64_t bytes)
{
    struct gc_quota *quota = gc_tenant_quota_at(tenant, gc_device_get_info(device)->ordinal);
    if (quota != NULL)
        atomic_fetch_sub_explicit(&quota->wanted, bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&tenant->turn.wanting, 1, memory_order_seq_cst);
}

/* Of a tenant whose memory is out, in part: what was freed meanwhile does not come back. */
static uint64_t swapped_bytes(const struct gc_tenant *tenant, const struct gc_quota *quota)
{
    struct gc_gauge live;
    if (quota == NULL || !gc_tenant_is_out(tenant))
        return 0;
    gc_stats_read_gauge(&quota->allocated, &live);
    return gc_sub_or_zero_u64(live.current, gc_budget_held(&quota->budget));
}

void gc_tenants_count_away(struct gc_device *device)
{
    uint64_t sum = 0;
    gc_lock_acquire(&device->core->registry);
    for (const struct gc_tenant *tenant = load_link(&device->core->tenants); tenant != NULL;
         tenant = load_link(&tenant->next))
        if (!gc_tenant_is_paused(tenant))
            sum += swapped_bytes(tenant,
                                 gc_tenant_quota_at(tenant, gc_device_get_info(device)->ordinal));
    gc_budget_set_away(&device->budget, sum);
    gc_lock_release(&device->core->registry);
}

uint64_t gc_tenant_capacity_bytes(const struct gc_tenant *tenant, const struct gc_device *device)
{
    const struct gc_quota *quota = gc_tenant_quota_at(tenant, gc_device_get_info(device)->ordinal);
    if (quota != NULL)
        return quota->capacity_bytes;
    if (tenant->capacity_bytes != 0)
        return tenant->capacity_bytes;
    return CAPACITY_TIMES *
           gc_min_u64(gc_tenant_limit_bytes(tenant), gc_device_get_info(device)->total_bytes);
}

/* ---- figures ---- */

/* Figures of the pool. */
static void add_pool(struct gc_context *record, struct gc_tenant_figures *figures)
{
    struct gc_pool *pool = &record->pool;
    gc_pool_acquire_plain(pool);
    figures->pending_bytes += pool->content.pending_bytes;
    if (figures->base_address == 0 || !record->is_device)
        figures->base_address = pool->pages.range_address;
    gc_pool_release(pool);
}

static void add_gauge(const struct gc_gauge_cell *cell, struct gc_gauge *sum)
{
    struct gc_gauge gauge;
    gc_stats_read_gauge(cell, &gauge);
    sum->current += gauge.current;
    sum->peak += gauge.peak;
}

/* The sum of several devices' peaks is an upper bound, since they need not coincide. */
static bool add_device(struct gc_tenant *tenant, struct gc_device *device,
                       struct gc_tenant_figures *figures)
{
    const struct gc_quota *quota = gc_tenant_quota_at(tenant, gc_device_get_info(device)->ordinal);
    if (quota == NULL)
        return false;
    add_gauge(&quota->requested, &figures->requested);
    add_gauge(&quota->allocated, &figures->allocated);
    add_gauge(&quota->reserved, &figures->reserved);
    figures->alloc_count += gc_counter_read(&quota->alloc_count);
    figures->free_count += gc_counter_read(&quota->free_count);
    figures->hit_count += gc_counter_read(&quota->hit_count);
    figures->miss_count += gc_counter_read(&quota->miss_count);
    figures->oom_count += gc_counter_read(&quota->oom_count);
    figures->idle_bytes += gc_idle_bytes(&quota->idle);
    figures->swapped_bytes += swapped_bytes(tenant, quota);
    figures->capacity_bytes = gc_max_u64(figures->capacity_bytes, quota->capacity_bytes);
    for (struct gc_context *record = gc_context_first(device); record != NULL;
         record = gc_context_next(record))
        if (record->tenant == tenant)
            add_pool(record, figures);
    return true;
}

bool gc_tenant_read(struct gc_tenant *tenant, struct gc_device *device,
                    struct gc_tenant_figures *figures)
{
    bool any = false;
    *figures = (struct gc_tenant_figures){
        .is_removed = is_removed(tenant),
        .is_paused = atomic_load_explicit(&tenant->is_paused, memory_order_relaxed),
        .is_away = atomic_load_explicit(&tenant->turn.is_away, memory_order_relaxed),
        .limit_bytes = gc_tenant_limit_bytes(tenant),
    };
    memcpy(figures->name, tenant->name, sizeof(figures->name));
    if (device != NULL)
        return add_device(tenant, device, figures);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *one = gc_device_find(tenant->core, i);
        any |= one != NULL && add_device(tenant, one, figures);
    }
    figures->base_address = 0;
    return any;
}
