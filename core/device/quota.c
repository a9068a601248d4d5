/* Charges of a quota and its device, and the figures of an allocation in both: see quota.h. */
#include "core/device/quota.h"

#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>

void gc_quota_init(struct gc_quota *quota, struct gc_device *device, uint64_t limit_bytes)
{
    quota->device = device;
    gc_budget_init(&quota->budget, &quota->reserved, limit_bytes);
}

/* ---- budget ---- */

bool gc_quota_charge(struct gc_device *device, struct gc_quota *quota, uint64_t bytes,
                     struct gc_charge *held, struct gc_charge_failure *charge_failure)
{
    held->quota = 0;
    charge_failure->is_range_short = false;
    charge_failure->is_driver_short = false;
    charge_failure->is_quota_short =
        quota != NULL && !gc_budget_try_charge(&quota->budget, bytes, &held->quota);
    if (charge_failure->is_quota_short)
        return false;
    if (gc_budget_try_charge(&device->budget, bytes, &held->device))
        return true;
    if (quota != NULL) {
        gc_budget_uncharge(&quota->budget, bytes);
        gc_idle_advance(&quota->idle); /* for requests whose charge failed meanwhile */
        charge_failure->quota_rollback_count++;
    }
    return false;
}

bool gc_quota_charge_return(struct gc_device *device, struct gc_quota *quota, uint64_t bytes,
                            struct gc_charge *held)
{
    held->quota = 0;
    if (!gc_budget_try_charge_return(&device->budget, bytes, &held->device))
        return false;
    if (quota != NULL)
        (void)gc_budget_try_charge_return(&quota->budget, bytes, &held->quota);
    return true;
}

void gc_quota_commit(struct gc_device *device, struct gc_quota *quota, const struct gc_charge *held)
{
    gc_budget_commit(&device->budget, held->device);
    if (quota != NULL)
        gc_budget_commit(&quota->budget, held->quota);
}

void gc_quota_uncharge(struct gc_device *device, struct gc_quota *quota, uint64_t bytes)
{
    gc_device_uncharge(device, bytes);
    if (quota != NULL) {
        gc_budget_uncharge(&quota->budget, bytes);
        gc_idle_advance(&quota->idle);
    }
}

uint64_t gc_quota_limit_bytes(const struct gc_device *device, const struct gc_quota *quota)
{
    const uint64_t limit = gc_device_limit_bytes(device);
    return quota == NULL ? limit : gc_min_u64(limit, gc_budget_limit(&quota->budget));
}

uint64_t gc_quota_total_bytes(const struct gc_device *device, const struct gc_quota *quota)
{
    return gc_min_u64(gc_quota_limit_bytes(device, quota), device->info.total_bytes);
}

uint64_t gc_quota_left_bytes(const struct gc_device *device, const struct gc_quota *quota)
{
    const uint64_t left =
        gc_sub_or_zero_u64(gc_quota_total_bytes(device, NULL), gc_budget_held(&device->budget));
    if (device->budget.account != NULL)
        return 0;
    return quota == NULL ? left
                         : gc_min_u64(left, gc_sub_or_zero_u64(gc_budget_limit(&quota->budget),
                                                               gc_budget_held(&quota->budget)));
}

uint64_t gc_quota_excess_bytes(const struct gc_quota *quota)
{
    return gc_sub_or_zero_u64(gc_budget_held(&quota->budget), gc_budget_limit(&quota->budget));
}

uint64_t gc_quota_idle_bytes(const struct gc_device *device, const struct gc_quota *quota)
{
    return gc_idle_bytes(quota == NULL ? &device->idle : &quota->idle);
}

uint64_t gc_quota_peak_with(struct gc_device *device, struct gc_quota *quota, uint64_t bytes)
{
    atomic_uint_fast64_t *most = quota == NULL ? &device->most_needed : &quota->most_needed;
    struct gc_gauge allocated;
    gc_stats_read_gauge(quota == NULL ? &device->stats.allocated : &quota->allocated, &allocated);
    const uint64_t need = gc_max_u64(allocated.peak, allocated.current + bytes);
    uint64_t before = atomic_load_explicit(most, memory_order_relaxed);
    while (need > before && !atomic_compare_exchange_weak_explicit(
                                most, &before, need, memory_order_relaxed, memory_order_relaxed))
        ;
    return gc_max_u64(need, before);
}

uint64_t gc_quota_mapped_bytes(const struct gc_device *device, const struct gc_quota *quota)
{
    return atomic_load_explicit(quota == NULL ? &device->mapped_bytes : &quota->mapped_bytes,
                                memory_order_relaxed);
}

/* ---- figures ---- */

static void add_live(struct gc_device *device, struct gc_quota *quota, const struct gc_entry *entry)
{
    gc_stats_add_gauge(&device->stats.requested, entry->requested_bytes);
    gc_stats_add_gauge(&device->stats.allocated, entry->bytes);
    if (quota == NULL)
        return;
    gc_stats_add_gauge(&quota->requested, entry->requested_bytes);
    gc_stats_add_gauge(&quota->allocated, entry->bytes);
}

static void sub_live(struct gc_device *device, struct gc_quota *quota, const struct gc_entry *entry)
{
    gc_stats_sub_gauge_unchecked(&device->stats.requested, entry->requested_bytes);
    gc_stats_sub_gauge_unchecked(&device->stats.allocated, entry->bytes);
    gc_device_uncount_other(device, entry);
    if (quota == NULL)
        return;
    gc_stats_sub_gauge_unchecked(&quota->requested, entry->requested_bytes);
    gc_stats_sub_gauge_unchecked(&quota->allocated, entry->bytes);
}

void gc_quota_count_alloc(struct gc_device *device, struct gc_quota *quota,
                          const struct gc_entry *entry)
{
    gc_counter_add(&device->stats.alloc_count, 1);
    if (quota != NULL)
        gc_counter_add(&quota->alloc_count, 1);
    add_live(device, quota, entry);
    gc_device_count_other(device, entry);
    if (!gc_device_was_used(device->core))
        gc_device_set_used(device->core);
}

void gc_quota_count_hit(struct gc_device *device, struct gc_quota *quota, bool is_hit)
{
    gc_counter_add(is_hit ? &device->stats.hit_count : &device->stats.miss_count, 1);
    if (quota != NULL)
        gc_counter_add(is_hit ? &quota->hit_count : &quota->miss_count, 1);
}

void gc_quota_count_unobserved_free(struct gc_device *device, struct gc_quota *quota,
                                    const struct gc_entry *entry)
{
    gc_counter_add(&device->stats.free_count, 1);
    if (quota != NULL)
        gc_counter_add(&quota->free_count, 1);
    sub_live(device, quota, entry);
}

void gc_quota_count_free(struct gc_device *device, struct gc_quota *quota,
                         const struct gc_entry *entry)
{
    gc_quota_count_unobserved_free(device, quota, entry);
    gc_device_observe(device, GC_TRACE_FREE, entry);
}

void gc_quota_uncount_free(struct gc_device *device, struct gc_quota *quota,
                           const struct gc_entry *entry)
{
    atomic_fetch_sub_explicit(&device->stats.free_count, 1, memory_order_relaxed);
    if (quota != NULL)
        atomic_fetch_sub_explicit(&quota->free_count, 1, memory_order_relaxed);
    add_live(device, quota, entry);
    gc_device_recount_other(device, entry);
}

void gc_quota_drop_live(struct gc_device *device, struct gc_quota *quota,
                        const struct gc_entry *entry)
{
    sub_live(device, quota, entry);
}

void gc_quota_count_destroyed(struct gc_device *device, struct gc_quota *quota,
                              const struct gc_entry *entry)
{
    gc_quota_drop_live(device, quota, entry);
    gc_device_observe(device, GC_TRACE_FREE, entry);
}

void gc_quota_count_oom(struct gc_device *device, struct gc_quota *quota,
                        const struct gc_entry *entry)
{
    gc_stats_raise(&device->stats.refused_bytes, entry->requested_bytes);
    gc_device_count_oom(device->core, device, quota);
    gc_device_observe(device, GC_TRACE_OOM, entry);
}
