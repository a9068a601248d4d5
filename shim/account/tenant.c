#define _GNU_SOURCE
#include "shim/account/tenant.h"
#include "shim/real/runtime.h"
#include "shim/real/thread_end.h"

#include "core/config/tenant_rules.h"
#include "core/io/elf.h"

#include <string.h>
#include <unistd.h>

#define CLAIMED UINT64_MAX          /* a handle that is being made; no program has it */
#define CLOSING (UINT32_C(1) << 31) /* in `users`: the tenant is being removed */
#define PATH_BYTES 4096

struct place {
    _Atomic(uint64_t) handle; /* 0: free */
    _Atomic(struct gc_tenant *) tenant;
    atomic_uint users; /* threads whose current tenant it is */
    bool is_by_rule;
};

static struct {
    struct place places[GC_TENANT_MAX];
    _Atomic(uint64_t) last_number;
    /* Written before the start is over. */
    bool has_rules;
    struct gc_tenant_rules rules;
    struct gc_tenant *by_name[GC_TENANT_RULE_MAX];
    char program[PATH_BYTES];
} tenants;

/* ---- the tenant of a calling object ---- */

struct owner {
    struct gc_tenant *tenant;
};

static void find_owner(void *argument, const char *path)
{
    struct owner *owner = argument;
    const char *name = path == NULL ? "" : path[0] == '\0' ? tenants.program : path;
    const int found = gc_tenant_rules_match(&tenants.rules, name);

    owner->tenant = found < 0 ? NULL : tenants.by_name[found];
}

static struct gc_tenant *tenant_of(const void *caller)
{
    struct owner owner = {NULL};

    gc_elf_visit_path(caller, find_owner, &owner);
    return owner.tenant;
}

/* A runtime's code hides the object that called: its function is known to the program by a pointer
 * that no wrapper replaced (of a second runtime). Such a call is for the tenant of the thread's
 * last call by a known object. */
static struct gc_tenant *tenant_of_caller(void)
{
    if (gc_thread.last_tenant != NULL && gc_runtime_is_code(gc_thread.caller))
        return gc_thread.last_tenant;
    gc_thread.last_tenant = tenant_of(gc_thread.caller);
    return gc_thread.last_tenant;
}

static bool make_tenant(uint32_t name)
{
    const struct gc_tenant_config config = {
        .name = tenants.rules.names[name].text,
        .limit_bytes = tenants.rules.names[name].limit_bytes,
    };
    struct gc_tenant *tenant;
    const enum gc_status status = gc_tenant_add(gc_shim.core, &config, &tenant);

    if (status != GC_OK) {
        gc_log_write(&gc_shim.log, GC_LOG_ERROR, "tenant %s: %s; cuInit fails", config.name,
                     gc_status_text(status));
        return false;
    }
    tenants.by_name[name] = tenant;
    (void)gc_tenants_publish(tenant, true);
    return true;
}

bool gc_tenants_start(void)
{
    if (gc_shim.options->tenants[0] == '\0')
        return true;
    if (gc_tenant_rules_parse(gc_shim.options->tenants, &tenants.rules) != GC_OK)
        return false;
    if (readlink("/proc/self/exe", tenants.program, PATH_BYTES - 1) < 0)
        tenants.program[0] = '\0';
    for (uint32_t i = 0; i < tenants.rules.name_count; i++)
        if (!make_tenant(i))
            return false;
    tenants.has_rules = true;
    return true;
}

/* ---- the tenant of a call ---- */

/* Whether a call of this thread may be for a tenant. Cheap; false in programs without tenants. */
static bool is_any_meant(void)
{
    return gc_thread.tenant != NULL || tenants.has_rules;
}

struct gc_tenant *gc_tenants_of_call(void)
{
    if (gc_thread.tenant != NULL)
        return gc_thread.tenant;
    return tenants.has_rules ? tenant_of_caller() : NULL;
}

struct gc_tenant *gc_tenants_of_work(const void *caller)
{
    if (gc_thread.tenant != NULL || !tenants.has_rules)
        return gc_thread.tenant;
    if (gc_runtime_is_code(caller))
        return gc_thread.last_tenant;
    return tenant_of(caller);
}

enum gc_status gc_tenants_quota(struct gc_device *device, struct gc_quota **quota)
{
    struct gc_tenant *tenant = gc_tenants_of_call();

    *quota = NULL;
    return tenant == NULL ? GC_OK : gc_tenant_quota(tenant, device, quota);
}

/* The tenant's unused addresses, estimated from one figure. */
static uint64_t free_addresses(struct gc_tenant *tenant, struct gc_device *device)
{
    const uint64_t capacity = gc_tenant_capacity_bytes(tenant, device);
    struct gc_tenant_figures figures;

    if (!gc_tenant_read(tenant, device, &figures))
        return capacity;
    return figures.allocated.current < capacity ? capacity - figures.allocated.current : 0;
}

void gc_tenants_mem_info(struct gc_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct gc_tenant *tenant = gc_tenants_of_call();
    struct gc_quota *quota = NULL;

    /* Without a quota the tenant holds nothing. */
    if (tenant != NULL)
        (void)!gc_tenant_quota(tenant, device, &quota);
    gc_available_mem_info(gc_shim.core, device, quota, free_bytes, total_bytes);
    if (tenant != NULL && free_addresses(tenant, device) < *free_bytes)
        *free_bytes = free_addresses(tenant, device);
}

void gc_tenants_reset_target(void)
{
    gc_thread.target = is_any_meant() ? NULL : gc_thread.context;
}

struct gc_context *gc_tenants_target(struct gc_context *context)
{
    struct gc_tenant *tenant = gc_tenants_of_call();
    struct gc_context *own;

    if (tenant == NULL)
        return context;
    if (gc_setup_tenant_context(tenant, context, &own) != GC_OK)
        return NULL;
    /* By the rules the next call may be for another tenant. */
    if (gc_thread.tenant != NULL && context == gc_thread.context)
        gc_thread.target = own;
    return own;
}

/* ---- handles ---- */

static struct place *place_of(uint64_t handle)
{
    return &tenants.places[handle % GC_TENANT_MAX];
}

static bool is_handle_of(const struct place *place, uint64_t handle)
{
    /* acquire: pairs with the release in gc_tenants_publish */
    return handle != 0 && handle != CLAIMED &&
           atomic_load_explicit(&place->handle, memory_order_acquire) == handle;
}

uint64_t gc_tenants_publish(struct gc_tenant *tenant, bool is_by_rule)
{
    for (uint64_t i = 0; i < GC_TENANT_MAX; i++) {
        struct place *place = &tenants.places[i];
        uint64_t expected = 0;

        if (!atomic_compare_exchange_strong_explicit(&place->handle, &expected, CLAIMED,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        const uint64_t number =
            atomic_fetch_add_explicit(&tenants.last_number, 1, memory_order_relaxed) + 1;
        place->is_by_rule = is_by_rule;
        atomic_store_explicit(&place->tenant, tenant, memory_order_relaxed);
        atomic_store_explicit(&place->handle, number * GC_TENANT_MAX + i, memory_order_release);
        return number * GC_TENANT_MAX + i;
    }
    return 0;
}

enum gc_status gc_tenants_find(uint64_t handle, struct gc_tenant **tenant)
{
    const struct place *place = place_of(handle);

    if (!is_handle_of(place, handle))
        return GC_INVALID_HANDLE;
    /* If the handle was removed meanwhile the record may be another tenant's. Records stay, so the
     * read is safe, and the handle is reported as invalid. */
    *tenant = atomic_load_explicit(&place->tenant, memory_order_relaxed);
    return is_handle_of(place, handle) ? GC_OK : GC_INVALID_HANDLE;
}

uint64_t gc_tenants_find_name(const char *name)
{
    for (uint64_t i = 0; i < GC_TENANT_MAX; i++) {
        const uint64_t handle =
            atomic_load_explicit(&tenants.places[i].handle, memory_order_acquire);
        struct gc_tenant *tenant;

        if (gc_tenants_find(handle, &tenant) == GC_OK && strcmp(gc_tenant_name(tenant), name) == 0)
            return handle;
    }
    return 0;
}

/* ---- the current tenant ---- */

/* Until let_go the tenant cannot be removed. */
static enum gc_status hold(uint64_t handle, struct gc_tenant **tenant)
{
    struct place *place = place_of(handle);
    unsigned users = atomic_load_explicit(&place->users, memory_order_relaxed);

    if (!is_handle_of(place, handle))
        return GC_INVALID_HANDLE;
    do {
        if ((users & CLOSING) != 0)
            return is_handle_of(place, handle) ? GC_BUSY : GC_INVALID_HANDLE;
    } while (!atomic_compare_exchange_weak_explicit(&place->users, &users, users + 1,
                                                    memory_order_seq_cst, memory_order_relaxed));
    /* The record may already serve another tenant. */
    if (gc_tenants_find(handle, tenant) == GC_OK)
        return GC_OK;
    atomic_fetch_sub_explicit(&place->users, 1, memory_order_seq_cst);
    return GC_INVALID_HANDLE;
}

static void let_go(uint64_t handle)
{
    if (handle != 0)
        atomic_fetch_sub_explicit(&place_of(handle)->users, 1, memory_order_seq_cst);
}

void gc_tenants_end_thread(void)
{
    const uint64_t handle = gc_thread.tenant_handle;

    if (handle == 0)
        return;
    gc_thread.tenant = NULL;
    gc_thread.tenant_handle = 0;
    gc_tenants_reset_target();
    let_go(handle);
}

enum gc_status gc_tenants_set_current(uint64_t handle)
{
    const uint64_t before = gc_thread.tenant_handle;
    struct gc_tenant *tenant = NULL;
    enum gc_status status;

    if (handle == before)
        return GC_OK;
    if (handle != 0 && !gc_thread_watch_end())
        return GC_NO_HOST_MEMORY;
    status = handle == 0 ? GC_OK : hold(handle, &tenant);
    if (status != GC_OK)
        return status;
    gc_thread.tenant = tenant;
    gc_thread.tenant_handle = handle;
    gc_tenants_reset_target();
    let_go(before);
    return GC_OK;
}

/* ---- the end of a tenant ---- */

enum gc_status gc_tenants_close_begin(uint64_t handle, struct gc_tenant **tenant)
{
    struct place *place = place_of(handle);
    unsigned expected = 0;

    if (!is_handle_of(place, handle))
        return GC_INVALID_HANDLE;
    if (place->is_by_rule)
        return GC_NOT_SUPPORTED;
    if (!atomic_compare_exchange_strong_explicit(&place->users, &expected, CLOSING,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return GC_BUSY;
    if (gc_tenants_find(handle, tenant) == GC_OK)
        return GC_OK;
    atomic_fetch_and_explicit(&place->users, ~CLOSING, memory_order_seq_cst);
    return GC_INVALID_HANDLE;
}

void gc_tenants_close_end(uint64_t handle, bool is_removed)
{
    struct place *place = place_of(handle);

    /* No thread may take the place before CLOSING is cleared. */
    if (is_removed)
        atomic_store_explicit(&place->handle, CLAIMED, memory_order_seq_cst);
    atomic_fetch_and_explicit(&place->users, ~CLOSING, memory_order_seq_cst);
    if (is_removed)
        atomic_store_explicit(&place->handle, 0, memory_order_release);
}
