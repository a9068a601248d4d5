/* Adds devices and records of tenants, and registers each with the rooms that keep state for it:
 * the debug aid, the group, the peers. */
#include "core/backing/peers.h"
#include "core/debug/debug.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/group/group.h"

#include <stddef.h>
#include <stdio.h>

/* ---- devices ---- */

/* With GPUCACHE_DEBUG the debug aid decides how memory is backed; the report shows the reason. */
static void describe_debug(struct gc_device *device)
{
    char *reason = device->info.backend_reason;
    gc_debug_add_device(device->core, device);
    if (!device->info.has_mapping)
        return;
    device->is_mapped = gc_debug_maps_blocks(device->core);
    snprintf(reason, sizeof(device->info.backend_reason), "%s",
             device->is_mapped ? "GPUCACHE_DEBUG gives each block pages of its own"
                               : "GPUCACHE_DEBUG finds freed memory by its address");
}

static struct gc_device *create_device(struct gc_core *core, const struct gc_device_info *info)
{
    struct gc_device *device = gc_device_create(core, info);
    if (device == NULL)
        return NULL;
    if (core->debug != NULL)
        describe_debug(device);
    gc_group_attach(core, device);
    return device;
}

enum gc_status gc_setup_add_device(struct gc_core *core, const struct gc_device_info *info,
                                   struct gc_device **device)
{
    if (info->ordinal < 0 || info->ordinal >= GC_DEVICE_MAX)
        return GC_INVALID_ARGUMENT;
    *device = gc_device_find(core, info->ordinal);
    if (*device != NULL)
        return GC_OK;
    struct gc_device *created = create_device(core, info);
    if (created == NULL)
        return GC_NO_HOST_MEMORY;
    struct gc_device *present = NULL;
    /* Release: pairs with gc_device_find. */
    if (atomic_compare_exchange_strong_explicit(&core->devices[info->ordinal], &present, created,
                                                memory_order_acq_rel, memory_order_acquire)) {
        *device = created;
        gc_device_add_ordered(created);
    } else {
        gc_device_fini(created);
        *device = present;
    }
    return GC_OK;
}

/* ---- contexts of the driver ---- */

enum gc_status gc_setup_add_context(struct gc_core *core, uint64_t handle, struct gc_device *device,
                                    struct gc_context **context)
{
    bool is_second;
    *context = gc_context_find(core, handle);
    if (*context != NULL)
        return GC_OK;
    const enum gc_status status = gc_context_add(core, handle, device, context, &is_second);
    if (status != GC_OK)
        return status;
    /* Sequentially consistent: either gc_submit_set_conservative finds the context, or this thread
     * sees the flag. */
    if (atomic_load_explicit(&core->work.is_conservative, memory_order_seq_cst))
        gc_context_set_roaming(*context);
    int ignored; /* after a failure gc_submit_begin tries again before work for another stream */
    if (is_second)
        (void)gc_submit_leave_single_stream(core, &ignored);
    return GC_OK;
}

/* ---- tenants ---- */

static enum gc_status add_record(struct gc_context *head, struct gc_tenant *tenant,
                                 struct gc_quota *quota, struct gc_context **record)
{
    const enum gc_status status = gc_context_add_record(head, tenant, quota, record);
    if (status == GC_OK)
        gc_peers_copy(*record);
    return status;
}

enum gc_status gc_setup_tenant_context(struct gc_tenant *tenant, struct gc_context *head,
                                       struct gc_context **own)
{
    if (tenant == NULL) {
        *own = head;
        return GC_OK;
    }
    *own = gc_context_find_record(head, tenant);
    /* Acquire: pairs with the release in gc_peers_copy. */
    if (*own != NULL && atomic_load_explicit(&(*own)->has_peers, memory_order_acquire))
        return gc_tenant_is_open(tenant) ? GC_OK : GC_INVALID_ARGUMENT;
    struct gc_quota *quota;
    const enum gc_status status = gc_tenant_quota(tenant, head->device, &quota);
    return status == GC_OK ? add_record(head, tenant, quota, own) : status;
}
