/* Direct memory: non-pool allocations, which the program makes with the driver itself. The caller
 * charges the bytes before it calls the driver and records the allocation afterwards; the record
 * holds the charge until it is removed. */
#include "core/direct/direct.h"
#include "core/base/bits.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/group/group.h"
#include "core/io/text.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/reconcile.h"
#include "core/reclaim/refusal.h"

#include <stddef.h>

/* Charges, or records, of less than CLOCK_BYTES between looks at the clock. */
#define CLOCK_CALLS 16
#define CLOCK_BYTES GC_MIB(1)

bool gc_direct_is_allocation(enum gc_direct_kind kind)
{
    switch (kind) {
    case GC_DIRECT_MEMORY:
    case GC_DIRECT_MANAGED:
    case GC_DIRECT_ASYNC:
    case GC_DIRECT_HANDLE:
    case GC_DIRECT_ARRAY:
    case GC_DIRECT_GRAPH:
        return true;
    case GC_DIRECT_POOL:
    case GC_DIRECT_CONTEXT:
    case GC_DIRECT_MODULE:
    case GC_DIRECT_DRIVER:
    case GC_DIRECT_HOST:
    case GC_DIRECT_IMPORT:
    case GC_DIRECT_ELASTIC:
    case GC_DIRECT_KIND_COUNT:
        break;
    }
    return false;
}

/* The size of the record: its charge, or the requested size where nothing is charged. */
static uint64_t bytes_of(const struct gc_direct *direct)
{
    return direct->charged_bytes != 0 ? direct->charged_bytes : direct->requested_bytes;
}

static struct gc_entry entry_of(const struct gc_direct *direct)
{
    const struct gc_entry entry = {
        .address = direct->key,
        .requested_bytes = direct->requested_bytes,
        .bytes = gc_max_u64(bytes_of(direct), direct->requested_bytes),
        .api = direct->api,
    };
    return entry;
}

/* ---- charges ---- */

/* True for large memory, else now and then: a look at the clock costs as much as the rest. A lost
 * count moves it, no more. */
static bool may_read_clock(atomic_uint *counter, uint64_t bytes)
{
    const unsigned calls = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, calls + 1, memory_order_relaxed);
    return bytes >= CLOCK_BYTES || calls % CLOCK_CALLS == 0;
}

/* Publishes the figures to other processes; their time only now and then. */
static void publish(struct gc_device *device, uint64_t bytes)
{
    if (device != NULL && device->core->ledger != NULL)
        gc_publish_device(device, may_read_clock(&device->direct_records, bytes)
                                      ? gc_core_now_ns(device->core)
                                      : 0);
}

static __attribute__((noinline)) bool reclaim_and_charge(struct gc_device *device,
                                                         struct gc_quota *quota, uint64_t bytes,
                                                         bool is_trial,
                                                         struct gc_charge_failure charge_failure)
{
    struct gc_reclaim reclaim;
    struct gc_charge held;
    struct gc_borrow borrow = {.is_short = is_trial, .is_fixed = true};
    if (bytes > gc_quota_limit_bytes(device, quota))
        return false;
    gc_reconcile_update(device);
    gc_reclaim_begin(&reclaim, device, quota, NULL);
    while (gc_reclaim_step(&reclaim, bytes, &charge_failure)) {
        if (reclaim.attempts == 1)
            gc_counter_add(&device->stats.retry_count, 1);
        if (gc_quota_charge(device, quota, bytes, &held, &charge_failure))
            return true;
    }
    bool is_charged;
    do
        is_charged = gc_quota_charge(device, quota, bytes, &held, &charge_failure);
    while (!is_charged && !charge_failure.is_quota_short && gc_borrow_step(device, bytes, &borrow));
    gc_borrow_end(device, &borrow);
    return is_charged;
}

static inline bool try_charge(struct gc_core *core, struct gc_device *device,
                              struct gc_quota *quota, uint64_t bytes, bool is_trial)
{
    struct gc_charge held;
    struct gc_charge_failure charge_failure = {0};
    gc_serve_requests(core);
    if (may_read_clock(&device->direct_charges, bytes))
        gc_reconcile_update(device);
    return gc_quota_charge(device, quota, bytes, &held, &charge_failure) ||
           reclaim_and_charge(device, quota, bytes, is_trial, charge_failure);
}

bool gc_direct_try_charge(struct gc_core *core, struct gc_device *device, struct gc_quota *quota,
                          uint64_t bytes)
{
    return try_charge(core, device, quota, bytes, true);
}

static __attribute__((noinline)) enum gc_status charge_again(struct gc_core *core,
                                                             struct gc_device *device,
                                                             struct gc_quota *quota, uint64_t bytes)
{
    const struct gc_entry entry = {.requested_bytes = bytes, .api = GC_API_NONE};
    const struct gc_charge_failure limit_short = {0};
    if (gc_reconcile_again(device) && try_charge(core, device, quota, bytes, false))
        return GC_OK;
    gc_refusal_count(device, quota, &entry, bytes, &limit_short);
    publish(device, CLOCK_BYTES);
    return GC_OUT_OF_MEMORY;
}

enum gc_status gc_direct_charge_device(struct gc_core *core, struct gc_device *device,
                                       struct gc_quota *quota, uint64_t bytes)
{
    return try_charge(core, device, quota, bytes, false) ? GC_OK
                                                         : charge_again(core, device, quota, bytes);
}

void gc_direct_commit(struct gc_core *core, struct gc_device *device, struct gc_quota *quota)
{
    const struct gc_charge held = {0, 0};
    (void)core;
    gc_quota_commit(device, quota, &held);
}

void gc_direct_uncharge(struct gc_core *core, struct gc_device *device, struct gc_quota *quota,
                        uint64_t bytes)
{
    (void)core;
    if (bytes != 0)
        gc_quota_uncharge(device, quota, bytes);
}

void gc_direct_adjust_device(struct gc_core *core, struct gc_device *device, int64_t bytes)
{
    if (bytes >= 0) {
        char limit[GC_TEXT_SIZE_BYTES];
        gc_budget_force_charge(&device->budget, (uint64_t)bytes);
        if (device->budget.account != NULL)
            atomic_store_explicit(&device->is_group_over, true, memory_order_relaxed);
        if (gc_budget_held(&device->budget) > gc_budget_limit(&device->budget))
            gc_log_once(core->log, &device->over_limit_logged, GC_LOG_WARN,
                        "device %d: a context, module or graph took the process above its limit of "
                        "%s; allocations fail until it is below",
                        device->info.ordinal,
                        gc_text_size(gc_budget_limit(&device->budget), limit));
    } else
        gc_device_uncharge_measured(device, 0 - (uint64_t)bytes);
}

bool gc_direct_reclaim(struct gc_core *core, struct gc_device *device, uint64_t wanted_bytes,
                       bool is_request)
{
    (void)core;
    const bool changed = gc_reclaim_relieve(device, wanted_bytes,
                                            is_request ? GC_RECLAIM_WAIT_NS : GC_RELIEF_WAIT_NS);
    if (changed)
        gc_counter_add(&device->stats.retry_count, 1);
    return changed;
}

/* ---- records ---- */

/* Figures alone: under the lock of a shard. */
static void count(const struct gc_direct *direct)
{
    struct gc_device *device = direct->device;
    const struct gc_entry entry = entry_of(direct);
    if (device == NULL)
        return;
    atomic_fetch_add_explicit(&device->direct_bytes[direct->kind], bytes_of(direct),
                              memory_order_relaxed);
    if (direct->kind == GC_DIRECT_CONTEXT)
        gc_stats_add_gauge(&device->stats.context, bytes_of(direct));
    if (gc_direct_is_allocation(direct->kind)) {
        gc_quota_count_alloc(device, direct->quota, &entry);
        gc_quota_count_hit(device, direct->quota, false);
    } else {
        gc_device_count_other(device, &entry);
    }
}

static void uncount(const struct gc_direct *direct, bool is_freed)
{
    struct gc_device *device = direct->device;
    const struct gc_entry entry = entry_of(direct);
    if (device == NULL)
        return;
    if (!gc_direct_is_allocation(direct->kind))
        gc_device_uncount_other(device, &entry);
    else if (is_freed)
        gc_quota_count_unobserved_free(device, direct->quota, &entry);
    else
        gc_quota_drop_live(device, direct->quota, &entry);
    atomic_fetch_sub_explicit(&device->direct_bytes[direct->kind], bytes_of(direct),
                              memory_order_relaxed);
    if (direct->kind == GC_DIRECT_CONTEXT)
        gc_stats_sub_gauge(&device->stats.context, bytes_of(direct));
}

static void uncount_freed(const struct gc_direct *direct)
{
    uncount(direct, true);
}

static void observe(const struct gc_direct *direct, enum gc_trace_op op)
{
    if (direct->device == NULL || !direct->device->core->is_observed ||
        !gc_direct_is_allocation(direct->kind))
        return;
    const struct gc_entry entry = entry_of(direct);
    gc_device_observe(direct->device, op, &entry);
}

static void uncharge(const struct gc_direct *direct)
{
    if (direct->device != NULL && direct->charged_bytes != 0)
        gc_quota_uncharge(direct->device, direct->quota, direct->charged_bytes);
}

static void uncharge_record(const struct gc_direct *direct, bool is_freed)
{
    uncount(direct, is_freed);
    observe(direct, GC_TRACE_FREE);
    uncharge(direct);
}

void gc_direct_destroyed(const struct gc_direct *direct)
{
    uncharge_record(direct, false);
}

enum gc_status gc_direct_track(struct gc_core *core, const struct gc_direct *direct)
{
    struct gc_direct old;
    bool replaced;
    if ((unsigned)direct->kind >= GC_DIRECT_KIND_COUNT)
        return GC_INVALID_ARGUMENT;
    const enum gc_status status = gc_tracker_add(&core->tracker, direct, count, &replaced, &old);
    if (status != GC_OK)
        return status; /* the charge stays with the caller */
    if (replaced) {
        uncharge_record(&old, false);
        gc_log_write(core->log, GC_LOG_DEBUG,
                     "0x%llx was released by a call that was not seen; its record is replaced",
                     (unsigned long long)old.key);
    }
    observe(direct, GC_TRACE_ALLOC);
    publish(direct->device, direct->requested_bytes);
    return GC_OK;
}

enum gc_status gc_direct_untrack(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                                 struct gc_direct *direct)
{
    struct gc_direct removed;
    if (!gc_tracker_remove(&core->tracker, kind, key, &removed))
        return GC_NOT_OURS;
    uncharge_record(&removed, true);
    publish(removed.device, removed.requested_bytes);
    if (direct != NULL)
        *direct = removed;
    return GC_OK;
}

enum gc_status gc_direct_find(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                              struct gc_direct *direct)
{
    return gc_tracker_find(&core->tracker, kind, key, direct) ? GC_OK : GC_NOT_OURS;
}

enum gc_status gc_direct_find_address(struct gc_core *core, uint64_t address,
                                      struct gc_direct *direct)
{
    return gc_tracker_find_address(&core->tracker, address, direct) ? GC_OK : GC_NOT_OURS;
}

/* ---- releases ---- */

/* A release of nothing that is charged makes no room: no request waits for it. */
static bool makes_room(const struct gc_direct *direct)
{
    return direct->device != NULL && direct->charged_bytes != 0;
}

static enum gc_status mark(struct gc_core *core, enum gc_direct_kind kind, bool is_any_address,
                           uint64_t key, struct gc_direct *direct)
{
    if (!gc_tracker_mark(&core->tracker, kind, is_any_address, key, direct))
        return GC_NOT_OURS;
    if (makes_room(direct))
        gc_device_release_begin(direct->device, direct->quota);
    return GC_OK;
}

enum gc_status gc_direct_mark(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                              struct gc_direct *direct)
{
    return mark(core, kind, false, key, direct);
}

enum gc_status gc_direct_mark_address(struct gc_core *core, uint64_t address,
                                      struct gc_direct *direct)
{
    if (gc_pagemap_get(&core->pagemap, address) != NULL)
        return GC_NOT_OURS;
    return mark(core, GC_DIRECT_MEMORY, true, address, direct);
}

bool gc_direct_is_there(struct gc_core *core, const struct gc_direct *direct)
{
    struct gc_direct found;
    return gc_tracker_find(&core->tracker, direct->kind, direct->key, &found) &&
           found.serial == direct->serial;
}

/* The free is observed before another allocation of the key can be. */
void gc_direct_end_mark(struct gc_core *core, const struct gc_direct *direct, bool is_released)
{
    if (is_released && core->is_observed && gc_direct_is_there(core, direct))
        observe(direct, GC_TRACE_FREE);
    if (gc_tracker_unmark(&core->tracker, direct, is_released, uncount_freed)) {
        uncharge(direct);
        if (direct->device != NULL)
            gc_publish_live(direct->device);
    }
    if (makes_room(direct))
        gc_device_release_end(direct->device, direct->quota);
}

void gc_direct_time_alloc(struct gc_core *core, uint64_t ns, uint64_t count)
{
    gc_histogram_add_many(&core->alloc_ns, ns, count);
}

void gc_direct_time_free(struct gc_core *core, uint64_t ns, uint64_t count)
{
    gc_histogram_add_many(&core->free_ns, ns, count);
}
