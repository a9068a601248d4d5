/* Figures of the process, its devices and its tenants, written into the process's slot of the
 * ledger for other processes: relaxed stores by one process, a few dozen per call. Without a ledger
 * these functions do nothing. */
#include "core/device/publish.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"

#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(((struct gc_ledger_tenant *)0)->name) == GC_OPTION_NAME_BYTES, "one size");
_Static_assert(GC_LEDGER_TENANTS <= 32, "a mask has a bit for each row");

/* NULL: there is no ledger. */
static struct gc_ledger_slot *own_slot(const struct gc_core *core)
{
    const struct gc_ledger *ledger = core->ledger;
    return ledger == NULL ? NULL : gc_ledger_own_slot(ledger);
}

/* ---- the process ---- */

static uint64_t current_of(const struct gc_gauge_cell *gauge)
{
    const uint64_t value = atomic_load_explicit(&gauge->current, memory_order_relaxed);
    return gc_stats_gauge_is_negative(value) ? 0 : value;
}

static void write_figure(struct gc_ledger_figure_row *row, enum gc_ledger_figure figure,
                         uint64_t value)
{
    atomic_store_explicit(&row->words[figure], value, memory_order_relaxed);
}

static void write_live(struct gc_ledger_figure_row *row, const struct gc_stats *stats)
{
    write_figure(row, GC_LEDGER_FIGURE_requested, current_of(&stats->requested));
    write_figure(row, GC_LEDGER_FIGURE_allocated, current_of(&stats->allocated));
    write_figure(row, GC_LEDGER_FIGURE_reserved, current_of(&stats->reserved));
}

void gc_publish_live(struct gc_device *device)
{
    struct gc_ledger_slot *slot = own_slot(device->core);
    if (slot != NULL && device->ledger_row != GC_LEDGER_NONE)
        write_live(&slot->figures[device->ledger_row], &device->stats);
}

void gc_publish_device(struct gc_device *device, uint64_t now_ns)
{
    const struct gc_stats *stats = &device->stats;
    struct gc_ledger_slot *slot = own_slot(device->core);
    if (slot == NULL || device->ledger_row == GC_LEDGER_NONE)
        return;
    struct gc_ledger_figure_row *row = &slot->figures[device->ledger_row];
    write_live(row, stats);
    write_figure(row, GC_LEDGER_FIGURE_idle, gc_device_idle_bytes(device));
    write_figure(row, GC_LEDGER_FIGURE_pending, current_of(&stats->pending));
    write_figure(row, GC_LEDGER_FIGURE_limit, gc_budget_limit(&device->budget));
    write_figure(row, GC_LEDGER_FIGURE_peak,
                 gc_max_u64(atomic_load_explicit(&stats->reserved.peak, memory_order_relaxed), 0));
    write_figure(row, GC_LEDGER_FIGURE_alloc_count, gc_counter_read(&stats->alloc_count));
    write_figure(row, GC_LEDGER_FIGURE_hit_count, gc_counter_read(&stats->hit_count));
    write_figure(row, GC_LEDGER_FIGURE_miss_count, gc_counter_read(&stats->miss_count));
    write_figure(row, GC_LEDGER_FIGURE_oom_count, gc_counter_read(&stats->oom_count));
    write_figure(row, GC_LEDGER_FIGURE_driver, current_of(&stats->driver));
    write_figure(row, GC_LEDGER_FIGURE_swapped, current_of(&stats->swapped));
    write_figure(row, GC_LEDGER_FIGURE_trim_count, gc_counter_read(&stats->trim_count));
    if (now_ns != 0)
        atomic_store_explicit(&slot->figures_ns, now_ns, memory_order_relaxed);
}

void gc_publish_paused(struct gc_core *core, bool is_paused)
{
    struct gc_ledger_slot *slot = own_slot(core);
    if (slot != NULL)
        atomic_store_explicit(&slot->is_paused, is_paused ? 1U : 0U, memory_order_relaxed);
}

/* Writes tenant row `index` of the process; NULL frees it. */
static void publish_tenant_row(struct gc_core *core, uint32_t index,
                               const struct gc_ledger_tenant *tenant)
{
    struct gc_ledger_slot *slot = own_slot(core);
    if (slot == NULL || index >= GC_LEDGER_TENANTS)
        return;
    struct gc_ledger_tenant_row *row = &slot->tenants[index];
    if (tenant == NULL) {
        atomic_store_explicit(&row->in_use, 0, memory_order_relaxed);
        return;
    }
    if (!gc_ledger_is_text(row->name, sizeof(row->name), tenant->name)) /* usually unchanged */
        gc_ledger_set_text(row->name, sizeof(row->name), tenant->name);
    atomic_store_explicit(&row->device,
                          tenant->device < GC_LEDGER_DEVICES ? tenant->device : GC_LEDGER_DEVICES,
                          memory_order_relaxed);
    atomic_store_explicit(&row->is_paused, tenant->is_paused ? 1U : 0U, memory_order_relaxed);
    atomic_store_explicit(&row->is_away, tenant->is_away ? 1U : 0U, memory_order_relaxed);
#define GC_LEDGER_FIGURE(field)                                                                    \
    atomic_store_explicit(&row->words[GC_LEDGER_FIGURE_##field], tenant->figures.field,            \
                          memory_order_relaxed);
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
    /* Release: pairs with the acquire in gc_ledger_read_tenant. */
    atomic_store_explicit(&row->in_use, 1, memory_order_release);
}

/* ---- tenants: a row for each tenant and device, while rows are free ---- */

static bool alloc_row(struct gc_core *core, uint32_t *row)
{
    for (*row = 0; *row < GC_LEDGER_TENANTS; ++*row) {
        const unsigned bit = 1U << *row;
        if ((atomic_fetch_or_explicit(&core->ledger_rows, bit, memory_order_relaxed) & bit) == 0)
            return true;
    }
    return false;
}

static void free_row(struct gc_core *core, uint32_t row)
{
    publish_tenant_row(core, row, NULL);
    atomic_fetch_and_explicit(&core->ledger_rows, ~(1U << row), memory_order_relaxed);
}

/* The row of the quota; false: no row is free. */
static bool find_row(struct gc_core *core, struct gc_quota *quota, uint32_t *row)
{
    unsigned index = atomic_load_explicit(&quota->ledger_index, memory_order_relaxed);
    if (index != 0) {
        *row = index - 1;
        return true;
    }
    if (!alloc_row(core, row))
        return false;
    if (atomic_compare_exchange_strong_explicit(&quota->ledger_index, &index, *row + 1,
                                                memory_order_relaxed, memory_order_relaxed))
        return true;
    free_row(core, *row);
    *row = index - 1;
    return true;
}

static void write_quota(struct gc_tenant *tenant, struct gc_quota *quota)
{
    struct gc_core *core = tenant->core;
    struct gc_tenant_figures figures;
    uint32_t row;
    if (core->ledger == NULL || quota->device->ledger_row == GC_LEDGER_NONE ||
        !gc_tenant_is_open(tenant) || !gc_tenant_read(tenant, quota->device, &figures) ||
        !find_row(core, quota, &row))
        return;
    struct gc_ledger_tenant shown = {
        .device = quota->device->ledger_row,
        .is_paused = figures.is_paused,
        .is_away = figures.is_away,
        .figures =
            {
                .requested = figures.requested.current,
                .allocated = figures.allocated.current,
                .reserved = figures.reserved.current,
                .idle = figures.idle_bytes,
                .pending = figures.pending_bytes,
                .swapped = figures.swapped_bytes,
                .limit = figures.limit_bytes,
                .peak = figures.reserved.peak,
                .alloc_count = figures.alloc_count,
                .hit_count = figures.hit_count,
                .miss_count = figures.miss_count,
                .oom_count = figures.oom_count,
            },
    };
    memcpy(shown.name, figures.name, sizeof(shown.name));
    publish_tenant_row(core, row, &shown);
    /* A removal began meanwhile. If it fails, the next call publishes the row again. */
    if (!gc_tenant_is_open(tenant))
        gc_publish_remove_tenant(tenant);
}

void gc_publish_record(struct gc_context *record)
{
    if (record->tenant != NULL && record->quota != NULL)
        write_quota(record->tenant, record->quota);
}

void gc_publish_tenant(struct gc_tenant *tenant)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_quota *quota = gc_tenant_quota_at(tenant, i);
        if (quota != NULL)
            write_quota(tenant, quota);
    }
}

void gc_publish_remove_tenant(struct gc_tenant *tenant)
{
    struct gc_core *core = tenant->core;
    for (int i = 0; core->ledger != NULL && i < GC_DEVICE_MAX; i++) {
        struct gc_quota *quota = gc_tenant_quota_at(tenant, i);
        const unsigned index =
            quota == NULL ? 0
                          : atomic_exchange_explicit(&quota->ledger_index, 0, memory_order_relaxed);
        if (index != 0)
            free_row(core, index - 1);
    }
}

void gc_publish_tenant_paused(struct gc_tenant *tenant, bool is_paused)
{
    /* Sequentially consistent, as the gate's word, which changes after it. */
    atomic_store_explicit(&tenant->is_paused, is_paused, memory_order_seq_cst);
    gc_publish_tenant(tenant);
}
