/* What a tenant's record holds: for tenant*.c. */
#ifndef GC_TENANT_RECORD_H
#define GC_TENANT_RECORD_H

#include "core/device/registry.h"
#include "core/device/tenant.h"

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
