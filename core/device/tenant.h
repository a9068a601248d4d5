/* Tenants: parts of a program with a limit, addresses and figures of their own.
 *
 * A tenant is a name, known in the whole process. In each driver context that it uses the tenant
 * has a record beside the head (context.h), with its own pool: the pool's blocks lie in a range of
 * addresses of their own, and its pages serve no other pool. The tenant's memory is charged to the
 * tenant and to the device, and both limits hold.
 *
 * Tenant records stay readable until the core is destroyed, also after the tenant was removed. */
#ifndef GC_TENANT_H
#define GC_TENANT_H

#include "core/config/options.h"
#include "core/device/context.h"
#include "core/ledger/budget.h"

/* The most tenants at a time. */
#define GC_TENANT_MAX 64

struct gc_tenant_config {
    const char *name;        /* as in GPUCACHE_TENANT; copied */
    uint64_t capacity_bytes; /* addresses on each device; 0: four times the limit there */
    uint64_t limit_bytes;    /* physical memory on each device; GC_BUDGET_UNLIMITED: none */
};

/* GC_INVALID_ARGUMENT: not a valid name; GC_ALREADY_EXISTS; GC_TOO_MANY; GC_NO_HOST_MEMORY. */
enum gc_status gc_tenant_add(struct gc_core *core, const struct gc_tenant_config *config,
                             struct gc_tenant **tenant) GC_CHECKED;
/* Removes a tenant: waits for its freed memory, then releases all its memory and its addresses. If
 * the process has ever captured a graph, the addresses stay reserved, so that a graph that is still
 * launched faults instead of using another tenant's memory. GC_BUSY, with nothing changed: the
 * tenant has live allocations or is paused, or another thread removes it. GC_CAPTURING: a capture
 * forbids to wait. GC_DRIVER: the driver did not release all of it; the tenant stays.
 * GC_INVALID_ARGUMENT: it is removed already. May call the driver; no lock is held. */
enum gc_status gc_tenant_remove(struct gc_core *core, struct gc_tenant *tenant) GC_CHECKED;

/* NULL: no tenant has the name. Takes no lock. */
struct gc_tenant *gc_tenant_find(struct gc_core *core, const char *name);
typedef void gc_visit_tenant(void *argument, struct gc_tenant *tenant);
/* Visits all tenants ever added, the oldest first; under no lock. */
void gc_tenants_visit(struct gc_core *core, gc_visit_tenant *visit, void *argument);

/* The record that serves the tenant's requests in the driver context of `head`; added at the first
 * use, lock-free afterwards. Without a tenant it is the head. GC_INVALID_ARGUMENT: the tenant is
 * removed, or the context dropped. */
enum gc_status gc_setup_tenant_context(struct gc_tenant *tenant, struct gc_context *head,
                                       struct gc_context **own) GC_CHECKED;
/* The tenant's quota of the device, created at its first use. GC_NO_HOST_MEMORY. */
enum gc_status gc_tenant_quota(struct gc_tenant *tenant, struct gc_device *device,
                               struct gc_quota **quota) GC_CHECKED;

/* One load each. */
uint64_t gc_tenant_limit_bytes(const struct gc_tenant *tenant);
const char *gc_tenant_name(const struct gc_tenant *tenant);
/* Whether the tenant serves requests: it is neither removed nor being removed. */
bool gc_tenant_is_open(const struct gc_tenant *tenant);
/* Bytes of the tenant's addresses on the device; fixed at the first use. */
uint64_t gc_tenant_capacity_bytes(const struct gc_tenant *tenant, const struct gc_device *device);

struct gc_tenant_figures {
    char name[GC_OPTION_NAME_BYTES];
    bool is_removed;
    bool is_paused;
    bool is_away;            /* its turn is over, some memory is out */
    uint64_t capacity_bytes; /* without a device: the most on any device */
    uint64_t base_address;   /* of its range; 0: none yet, or no device given */
    uint64_t limit_bytes;
    struct gc_gauge requested;
    struct gc_gauge allocated;
    struct gc_gauge reserved;
    uint64_t pending_bytes; /* freed, work not completed */
    uint64_t idle_bytes;
    uint64_t swapped_bytes; /* live, in host memory: paused or away */
    uint64_t alloc_count;
    uint64_t free_count;
    uint64_t hit_count;
    uint64_t miss_count;
    uint64_t oom_count;
};

/* Reads the figures on one device; NULL: the sum of all. False: the tenant never used the device,
 * or any. */
bool gc_tenant_read(struct gc_tenant *tenant, struct gc_device *device,
                    struct gc_tenant_figures *figures);

/* ---- for core/pause and core/turns ---- */

/* Pauses the tenant; it is not removed meanwhile. GC_BUSY: it is paused already.
 * GC_INVALID_ARGUMENT: it is removed or being removed. */
enum gc_status gc_tenant_begin_pause(struct gc_tenant *tenant) GC_CHECKED;
bool gc_tenant_is_paused(const struct gc_tenant *tenant);
/* The tenant leaves its turn: its memory is out, or a part of it, until a thread demands it. False:
 * it is removed or being removed. */
bool gc_tenant_begin_away(struct gc_tenant *tenant) GC_CHECKED;
bool gc_tenant_is_away(const struct gc_tenant *tenant);
/* Whether work that uses its memory waits: it is paused or away. */
bool gc_tenant_is_out(const struct gc_tenant *tenant);
/* Bytes that are charged to it on the device. */
uint64_t gc_tenant_resident_bytes(const struct gc_tenant *tenant, const struct gc_device *device);
/* The most that one tenant has live on the device, resident or not. */
uint64_t gc_tenants_largest_bytes(struct gc_core *core, const struct gc_device *device);
/* The sum over all tenants but this one, without those that are paused. */
uint64_t gc_tenants_resident_bytes(struct gc_core *core, const struct gc_device *device,
                                   const struct gc_tenant *but);
/* A thread waits for pages for the tenant, and does not any more. */
void gc_tenant_begin_wanting(struct gc_tenant *tenant, const struct gc_device *device,
                             uint64_t bytes);
void gc_tenant_end_wanting(struct gc_tenant *tenant, const struct gc_device *device,
                           uint64_t bytes);
/* The device's limit also holds for memory of tenants that is away: it comes back. Call after such
 * memory has moved, and before a refusal, as it may have been freed. */
void gc_tenants_count_away(struct gc_device *device);

/* ---- the record: for tenant*.c, publish.c and core/reclaim/limit.c ---- */

enum gc_tenant_state { GC_TENANT_OPEN, GC_TENANT_REMOVING, GC_TENANT_REMOVED };

/* Turns of the tenants of a process (core/turns/tenants.c). CLOCK_MONOTONIC; 0: not. */
struct gc_tenant_turn {
    atomic_bool is_away;
    atomic_uint wanting;          /* threads that wait for pages for it */
    _Atomic uint64_t wanted_ns;   /* since when the first of them does */
    _Atomic uint64_t demanded_ns; /* since when a thread waits for its memory */
    _Atomic uint64_t worked_ns;   /* when it last submitted work, as far as that is looked at */
    /* For the helper alone: */
    uint64_t begin_ns;      /* since when all its memory is resident */
    uint64_t exchange_ns;   /* what its last exchange took */
    uint64_t not_before_ns; /* it could not leave: not tried again before */
    uint64_t stuck_ns;      /* nobody could make room for it: not tried again before */
    bool is_fixed;          /* what hindered it lasts */
};

struct gc_tenant {
    struct gc_core *core;
    _Atomic(struct gc_tenant *) next;
    char name[GC_OPTION_NAME_BYTES];
    uint64_t capacity_bytes; /* 0: derived from its limit on a device */
    atomic_uint_fast64_t limit_bytes;
    atomic_uint state; /* enum gc_tenant_state; changes under the registry's lock */
    atomic_bool is_paused;
    struct gc_tenant_turn turn;
    /* Its quota of each device that it used, by ordinal. */
    _Atomic(struct gc_quota *) quotas[GC_DEVICE_MAX];
};

/* NULL: the tenant never used the device. Acquire: pairs with the release in gc_tenant_quota. */
static inline struct gc_quota *gc_tenant_quota_at(const struct gc_tenant *tenant, int ordinal)
{
    return atomic_load_explicit(&tenant->quotas[ordinal], memory_order_acquire);
}

void gc_tenants_init(struct gc_core *core);
/* For gc_core_destroy. */
void gc_tenants_fini(struct gc_core *core);

#endif
