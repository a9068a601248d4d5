#include "core/device/quota.h"

#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>

void gc_share_init(struct gc_share *share, struct gc_device *device, uint64_t limit_bytes)
{
    share->device = device;
    gc_budget_init(&share->budget, &share->reserved, limit_bytes);
}

/* ---- budget ---- */

bool gc_share_reserve(struct gc_device *device, struct gc_share *share, uint64_t bytes,
                      struct gc_held *held, struct gc_decline *decline)
{
    held->share = 0;
    decline->is_share_short =
        share != NULL && !gc_budget_try_reserve(&share->budget, bytes, &held->share);
    if (decline->is_share_short)
        return false;
    if (gc_budget_try_reserve(&device->budget, bytes, &held->device))
        return true;
    if (share != NULL) {
        gc_budget_release(&share->budget, bytes);
        gc_supply_renew(&share->supply); /* for who was declined meanwhile */
        decline->share_rollback_count++;
    }
    return false;
}

void gc_share_confirm(struct gc_device *device, struct gc_share *share, const struct gc_held *held)
{
    gc_budget_confirm(&device->budget, held->device);
    if (share != NULL)
        gc_budget_confirm(&share->budget, held->share);
}

void gc_share_release(struct gc_device *device, struct gc_share *share, uint64_t bytes)
{
    gc_device_release(device, bytes);
    if (share != NULL) {
        gc_budget_release(&share->budget, bytes);
        gc_supply_renew(&share->supply);
    }
}

uint64_t gc_share_limit_bytes(const struct gc_device *device, const struct gc_share *share)
{
    const uint64_t limit = gc_device_limit_bytes(device);
    return share == NULL ? limit : gc_min_u64(limit, gc_budget_limit(&share->budget));
}

uint64_t gc_share_total_bytes(const struct gc_device *device, const struct gc_share *share)
{
    return gc_min_u64(gc_share_limit_bytes(device, share), device->info.total_bytes);
}

uint64_t gc_share_excess_bytes(const struct gc_share *share)
{
    return gc_sub_or_zero_u64(gc_budget_held(&share->budget), gc_budget_limit(&share->budget));
}

uint64_t gc_share_idle_bytes(const struct gc_device *device, const struct gc_share *share)
{
    return gc_supply_idle_bytes(share == NULL ? &device->supply : &share->supply);
}

uint64_t gc_share_need_with(struct gc_device *device, struct gc_share *share, uint64_t bytes)
{
    atomic_uint_fast64_t *most = share == NULL ? &device->most_needed : &share->most_needed;
    struct gc_gauge allocated;
    gc_gauge_read(share == NULL ? &device->stats.allocated : &share->allocated, &allocated);
    const uint64_t need = gc_max_u64(allocated.peak, allocated.current + bytes);
    uint64_t before = atomic_load_explicit(most, memory_order_relaxed);
    while (need > before && !atomic_compare_exchange_weak_explicit(
                                most, &before, need, memory_order_relaxed, memory_order_relaxed))
        ;
    return gc_max_u64(need, before);
}

uint64_t gc_share_mapped_bytes(const struct gc_device *device, const struct gc_share *share)
{
    return atomic_load_explicit(share == NULL ? &device->mapped_bytes : &share->mapped_bytes,
                                memory_order_relaxed);
}

/* ---- accounts ---- */

static void add_live(struct gc_device *device, struct gc_share *share, const struct gc_entry *entry)
{
    gc_gauge_add(&device->stats.requested, entry->requested_bytes);
    gc_gauge_add(&device->stats.allocated, entry->bytes);
    if (share == NULL)
        return;
    gc_gauge_add(&share->requested, entry->requested_bytes);
    gc_gauge_add(&share->allocated, entry->bytes);
}

static void sub_live(struct gc_device *device, struct gc_share *share, const struct gc_entry *entry)
{
    gc_gauge_sub_early(&device->stats.requested, entry->requested_bytes);
    gc_gauge_sub_early(&device->stats.allocated, entry->bytes);
    gc_device_note_other_gone(device, entry);
    if (share == NULL)
        return;
    gc_gauge_sub_early(&share->requested, entry->requested_bytes);
    gc_gauge_sub_early(&share->allocated, entry->bytes);
}

void gc_share_note_alloc(struct gc_device *device, struct gc_share *share,
                         const struct gc_entry *entry)
{
    gc_counter_add(&device->stats.alloc_count, 1);
    if (share != NULL)
        gc_counter_add(&share->alloc_count, 1);
    add_live(device, share, entry);
    gc_device_note_other(device, entry);
    if (!gc_core_was_used(device->core))
        gc_core_note_use(device->core);
}

void gc_share_note_hit(struct gc_device *device, struct gc_share *share, bool is_hit)
{
    gc_counter_add(is_hit ? &device->stats.hit_count : &device->stats.miss_count, 1);
    if (share != NULL)
        gc_counter_add(is_hit ? &share->hit_count : &share->miss_count, 1);
}

void gc_share_note_free(struct gc_device *device, struct gc_share *share,
                        const struct gc_entry *entry)
{
    gc_counter_add(&device->stats.free_count, 1);
    if (share != NULL)
        gc_counter_add(&share->free_count, 1);
    sub_live(device, share, entry);
    gc_device_observe(device, GC_TRACE_FREE, entry);
}

void gc_share_unnote_free(struct gc_device *device, struct gc_share *share,
                          const struct gc_entry *entry)
{
    atomic_fetch_sub_explicit(&device->stats.free_count, 1, memory_order_relaxed);
    if (share != NULL)
        atomic_fetch_sub_explicit(&share->free_count, 1, memory_order_relaxed);
    add_live(device, share, entry);
    gc_device_note_other_back(device, entry);
}

void gc_share_uncount_vanished(struct gc_device *device, struct gc_share *share,
                               const struct gc_entry *entry)
{
    sub_live(device, share, entry);
}

void gc_share_note_vanished(struct gc_device *device, struct gc_share *share,
                            const struct gc_entry *entry)
{
    sub_live(device, share, entry);
    gc_device_observe(device, GC_TRACE_FREE, entry);
}

void gc_share_note_oom(struct gc_device *device, struct gc_share *share,
                       const struct gc_entry *entry)
{
    gc_core_count_oom(device->core, device, share);
    gc_device_observe(device, GC_TRACE_OOM, entry);
}
