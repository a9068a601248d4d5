/* Tenants: parts of a program with a limit, addresses and figures of their own.
 *
 * A tenant is a name, known in the whole process. In each driver context that it uses it has a
 * record of its own beside the head (context.h), with a pool of its own: its blocks lie in a range
 * of addresses where nobody else's do, and its pages serve nobody else. What it takes counts for
 * the tenant and for the device, and both limits hold.
 *
 * Records of tenants stay readable until the core is destroyed, also after they were removed. */
#ifndef GC_TENANT_H
#define GC_TENANT_H

#include "core/config/options.h"
#include "core/device/context.h"
#include "core/ledger/budget.h"

/* As many at a time. */
#define GC_TENANT_MAX 64

struct gc_tenant_config {
    const char *name;        /* as GPUCACHE_TENANT's; copied */
    uint64_t capacity_bytes; /* addresses on each device; 0: four times what it may hold there */
    uint64_t limit_bytes;    /* physical memory on each device; GC_BUDGET_UNLIMITED: none */
};

/* GC_INVALID_ARGUMENT: no name as they may be; GC_ALREADY_EXISTS; GC_TOO_MANY; GC_NO_HOST_MEMORY.
 */
enum gc_status gc_core_add_tenant(struct gc_core *core, const struct gc_tenant_config *config,
                                  struct gc_tenant **tenant) GC_CHECKED;
/* Waits for what the tenant freed, gives all of its memory back, and its addresses; where the
 * process ever captured a graph they stay reserved and serve nobody, so that a graph which is run
 * all the same finds no memory there instead of another tenant's. GC_BUSY, with nothing changed,
 * while it has live allocations or is paused, or another thread is at it; GC_CAPTURING: a capture
 * forbids to wait; GC_DRIVER: the driver did not take all of it back, the tenant lives on;
 * GC_INVALID_ARGUMENT: it is removed already. May call the driver; no lock may be held. */
enum gc_status gc_core_remove_tenant(struct gc_core *core, struct gc_tenant *tenant) GC_CHECKED;

/* NULL: there is none. Takes a lock for a moment, as all here that says nothing else. */
struct gc_tenant *gc_core_find_tenant(struct gc_core *core, const char *name);
typedef void gc_visit_tenant(void *argument, struct gc_tenant *tenant);
/* All there ever were, the oldest first; under no lock. */
void gc_core_visit_tenants(struct gc_core *core, gc_visit_tenant *visit, void *argument);

/* The record that serves the tenant's requests in the driver context of `head`; made at the first
 * use, lock-free from then on. Without a tenant it is the head. GC_INVALID_ARGUMENT: the tenant is
 * removed, or the context dropped. */
enum gc_status gc_tenant_context(struct gc_tenant *tenant, struct gc_context *head,
                                 struct gc_context **own) GC_CHECKED;
/* The account of the tenant on the device, made at its first use. GC_NO_HOST_MEMORY. */
enum gc_status gc_tenant_quota(struct gc_tenant *tenant, struct gc_device *device,
                               struct gc_quota **quota) GC_CHECKED;
/* The tenant whose requests the record serves; NULL: none's. */
struct gc_tenant *gc_context_tenant(const struct gc_context *context);

/* One load each. */
uint64_t gc_tenant_limit_bytes(const struct gc_tenant *tenant);
const char *gc_tenant_name(const struct gc_tenant *tenant);
/* It serves requests: it is neither removed nor about to be. */
bool gc_tenant_is_open(const struct gc_tenant *tenant);
/* How many addresses it has on the device: what it was at the first use stays. */
uint64_t gc_tenant_capacity_bytes(const struct gc_tenant *tenant, const struct gc_device *device);

struct gc_tenant_figures {
    char name[GC_OPTION_NAME_BYTES];
    bool is_removed;
    bool is_paused;
    uint64_t capacity_bytes; /* without a device: the most of any that it uses */
    uint64_t base_address;   /* of its range; 0: none yet, or no device was named */
    uint64_t limit_bytes;
    struct gc_gauge requested;
    struct gc_gauge allocated;
    struct gc_gauge reserved;
    uint64_t pending_bytes; /* freed, and not idle yet */
    uint64_t idle_bytes;
    uint64_t alloc_count;
    uint64_t free_count;
    uint64_t hit_count;
    uint64_t miss_count;
    uint64_t oom_count;
};

/* On one device, or NULL: the sum of all. False: it never used the device, or none. */
bool gc_tenant_read(struct gc_tenant *tenant, struct gc_device *device,
                    struct gc_tenant_figures *figures);

/* ---- for pause.c ---- */

/* It counts as paused from now on, and is not removed meanwhile. GC_BUSY: it is paused already;
 * GC_INVALID_ARGUMENT: it is removed, or about to be. */
enum gc_status gc_tenant_begin_pause(struct gc_tenant *tenant) GC_CHECKED;
bool gc_tenant_is_paused(const struct gc_tenant *tenant);

/* ---- the record: for tenant*.c, publish.c and limit.c ---- */

enum gc_tenant_state { GC_TENANT_OPEN, GC_TENANT_REMOVING, GC_TENANT_REMOVED };

struct gc_tenant {
    struct gc_core *core;
    _Atomic(struct gc_tenant *) next;
    char name[GC_OPTION_NAME_BYTES];
    uint64_t capacity_bytes; /* 0: as its limit on a device says */
    atomic_uint_fast64_t limit_bytes;
    atomic_uint state; /* enum gc_tenant_state; changed under the registry's lock */
    atomic_bool is_paused;
    /* What it has of each device it was used on; by ordinal. */
    _Atomic(struct gc_quota *) quotas[GC_DEVICE_MAX];
};

/* NULL: the tenant never used the device. Acquire: pairs with the release in gc_tenant_quota. */
static inline struct gc_quota *gc_tenant_share_at(const struct gc_tenant *tenant, int ordinal)
{
    return atomic_load_explicit(&tenant->quotas[ordinal], memory_order_acquire);
}

void gc_tenants_init(struct gc_core *core);
/* At the end of the core. */
void gc_tenants_fini(struct gc_core *core);

#endif
