/* Tenants in the process's slot: a row for what each has of each device, while there are rows. */
#include "core/device/registry.h"
#include "core/device/tenant_record.h"
#include "core/group/group.h"

#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(((struct gc_ledger_tenant *)0)->name) == GC_OPTION_NAME_BYTES, "one size");
_Static_assert(GC_LEDGER_TENANTS <= 32, "a mask has a bit for each row");

static struct gc_share *share_at(const struct gc_tenant *tenant, int ordinal)
{
    /* Acquire: pairs with the release in gc_tenant_share. */
    return atomic_load_explicit(&tenant->shares[ordinal], memory_order_acquire);
}

static bool take_row(struct gc_member *member, uint32_t *row)
{
    for (*row = 0; *row < GC_LEDGER_TENANTS; ++*row) {
        const unsigned bit = 1U << *row;
        if ((atomic_fetch_or_explicit(&member->tenant_mask, bit, memory_order_relaxed) & bit) == 0)
            return true;
    }
    return false;
}

static void give_row(struct gc_member *member, uint32_t row)
{
    gc_core_show_tenant(member->core, row, NULL);
    atomic_fetch_and_explicit(&member->tenant_mask, ~(1U << row), memory_order_relaxed);
}

/* The row of the share; false: there are no more. */
static bool find_row(struct gc_member *member, struct gc_share *share, uint32_t *row)
{
    unsigned index = atomic_load_explicit(&share->ledger_index, memory_order_relaxed);
    if (index != 0) {
        *row = index - 1;
        return true;
    }
    if (!take_row(member, row))
        return false;
    if (atomic_compare_exchange_strong_explicit(&share->ledger_index, &index, *row + 1,
                                                memory_order_relaxed, memory_order_relaxed))
        return true;
    give_row(member, *row);
    *row = index - 1;
    return true;
}

static void write_share(struct gc_tenant *tenant, struct gc_share *share)
{
    struct gc_member *member = tenant->core->member;
    struct gc_tenant_figures figures;
    uint32_t row;
    if (member == NULL || share->device->ledger_row == GC_LEDGER_NONE ||
        !gc_tenant_is_open(tenant) || !gc_tenant_read(tenant, share->device, &figures) ||
        !find_row(member, share, &row))
        return;
    struct gc_ledger_tenant shown = {
        .device = share->device->ledger_row,
        .is_paused = figures.is_paused,
        .figures =
            {
                .requested = figures.requested.current,
                .allocated = figures.allocated.current,
                .reserved = figures.reserved.current,
                .idle = figures.idle_bytes,
                .pending = figures.pending_bytes,
                .limit = figures.limit_bytes,
                .peak = figures.reserved.peak,
                .alloc_count = figures.alloc_count,
                .hit_count = figures.hit_count,
                .miss_count = figures.miss_count,
                .oom_count = figures.oom_count,
            },
    };
    memcpy(shown.name, figures.name, sizeof(shown.name));
    gc_core_show_tenant(tenant->core, row, &shown);
    if (!gc_tenant_is_open(tenant)) /* it went meanwhile; if it comes back, so does its row */
        gc_member_forget_tenant(tenant);
}

void gc_member_write_record(struct gc_context *record)
{
    if (record->tenant != NULL && record->share != NULL)
        write_share(record->tenant, record->share);
}

void gc_member_write_tenant(struct gc_tenant *tenant)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_share *share = share_at(tenant, i);
        if (share != NULL)
            write_share(tenant, share);
    }
}

void gc_member_forget_tenant(struct gc_tenant *tenant)
{
    struct gc_member *member = tenant->core->member;
    for (int i = 0; member != NULL && i < GC_DEVICE_MAX; i++) {
        struct gc_share *share = share_at(tenant, i);
        const unsigned index =
            share == NULL ? 0
                          : atomic_exchange_explicit(&share->ledger_index, 0, memory_order_relaxed);
        if (index != 0)
            give_row(member, index - 1);
    }
}
