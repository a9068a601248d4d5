/* One device: its backend, its limits, releases under way, trace events and figures by entry point.
 */
#include "core/device/device.h"

#include "core/base/bits.h"
#include "core/device/quota.h"
#include "core/device/registry.h"
#include "core/observe/stacks.h"
#include "core/observe/trace_stacks.h"
#include "core/pool/pages.h"

#include <stdio.h>

/* GPUCACHE_LEAVE's default */
#define LEAVE_BYTES (UINT64_C(512) << 20)
#define LEAVE_DIVISOR 50 /* 2 % of the device */
#define LEAVE_SHARE 8    /* the part of a small device that is the most */

/* The given percentage of `bytes`, 0 to 100. */
static uint64_t percent_of(uint64_t bytes, double percent)
{
    if (percent >= 100.0)
        return bytes;
    return percent <= 0.0 ? 0 : (uint64_t)((long double)bytes * (long double)percent / 100.0L);
}

static uint64_t apis_bytes(const struct gc_core *core)
{
    return gc_max_u64(core->api_count, 1) * sizeof(struct gc_api_cell);
}

/* GPUCACHE_LEAVE for the device: the option's value, else the default. */
static uint64_t leave_of(const struct gc_options *options, const struct gc_device_info *info)
{
    const uint64_t total = info->total_bytes;
    const uint64_t set = gc_size_spec_resolve(&options->leave, info->ordinal, info->uuid, total);
    if (set != UINT64_MAX)
        return gc_min_u64(set, total);
    return gc_min_u64(gc_max_u64(LEAVE_BYTES, total / LEAVE_DIVISOR), total / LEAVE_SHARE);
}

/* A power of two, so that a page's number costs no division. */
static uint64_t page_bytes_of(const struct gc_device_info *info)
{
    const uint64_t least = gc_max_u64(info->page_bytes, GC_PAGE_BYTES_MIN);
    const uint64_t power = UINT64_C(1) << gc_top_bit_u64(least);
    return power == least ? power : power << 1;
}

/* The page size for mapped memory; 0: use driver allocations. */
static uint64_t choose_backend(struct gc_core *core, const struct gc_device_info *info)
{
    if (core->mode != GC_MODE_CACHE || core->options->backend == GC_BACKEND_DRIVER ||
        core->options->backend == GC_BACKEND_WHOLE)
        return 0;
    if (core->debug != NULL)
        return 0; /* poison is checked by address, so pages must not be remapped */
    if (info->has_mapping)
        return page_bytes_of(info);
    if (core->options->backend == GC_BACKEND_VMM)
        gc_log_write(core->log, GC_LOG_WARN,
                     "GPUCACHE_BACKEND=vmm: device %d cannot map memory (%s); using backend driver",
                     info->ordinal, info->backend_reason);
    return 0;
}

struct gc_device *gc_device_create(struct gc_core *core, const struct gc_device_info *info)
{
    struct gc_host_mem host = {0};
    struct gc_device *device = gc_host_mem_map(&host, sizeof(*device));
    if (device == NULL)
        return NULL;
    device->apis = gc_host_mem_map(&host, apis_bytes(core));
    if (device->apis == NULL) {
        gc_host_mem_unmap(&host, device, sizeof(*device));
        return NULL;
    }
    device->core = core;
    device->info = *info;
    gc_host_mem_count(&device->host, gc_host_mem_bytes(&host));
    const uint64_t limit =
        gc_size_spec_resolve(&core->options->limit, info->ordinal, info->uuid, info->total_bytes);
    if (limit == UINT64_MAX && core->options->limit.count > 0)
        gc_log_write(core->log, GC_LOG_WARN,
                     "GPUCACHE_LIMIT has no entry for device %d (%s): it has no limit",
                     info->ordinal, info->uuid);
    gc_budget_init(&device->budget, &device->stats.reserved, limit);
    atomic_init(&device->trim_bytes,
                percent_of(gc_min_u64(limit, info->total_bytes), core->options->trim_percent));
    device->leave_bytes = leave_of(core->options, info);
    gc_slab_init(&device->blocks, &device->host, sizeof(struct gc_block));
    gc_slab_init(&device->segments, &device->host, sizeof(struct gc_segment));
    gc_slab_init(&device->extent_records, &device->host, sizeof(struct gc_extent));
    gc_slab_init(&device->mapping_records, &device->host, sizeof(struct gc_mapping));
    device->page_bytes = choose_backend(core, info);
    device->is_mapped = device->page_bytes != 0;
    gc_lock_init(&device->release_lock, GC_RANK_DEVICE);
    return device;
}

void gc_device_fini(struct gc_device *device)
{
    gc_slab_fini(&device->mapping_records);
    gc_slab_fini(&device->extent_records);
    gc_slab_fini(&device->segments);
    gc_slab_fini(&device->blocks);
    gc_host_mem_unmap(&device->host, device->apis, apis_bytes(device->core));
    struct gc_host_mem host = {gc_host_mem_bytes(&device->host)};
    gc_host_mem_unmap(&host, device, sizeof(*device));
}

struct gc_device *gc_device_find(struct gc_core *core, int ordinal)
{
    if (ordinal < 0 || ordinal >= GC_DEVICE_MAX)
        return NULL;
    return atomic_load_explicit(&core->devices[ordinal], memory_order_acquire);
}

uint64_t gc_device_own_limit_bytes(const struct gc_device *device)
{
    return gc_budget_limit(&device->budget);
}

uint64_t gc_device_limit_bytes(const struct gc_device *device)
{
    const uint64_t own = gc_budget_limit(&device->budget);
    struct gc_account *account = device->budget.account;
    return account == NULL ? own : gc_min_u64(own, gc_account_limit(account));
}

uint64_t gc_device_excess_bytes(const struct gc_device *device)
{
    const uint64_t own =
        gc_sub_or_zero_u64(gc_budget_held(&device->budget), gc_budget_room(&device->budget));
    struct gc_account *account = device->budget.account;
    if (account == NULL || !atomic_load_explicit(&device->is_group_over, memory_order_relaxed))
        return own;
    return gc_max_u64(own, gc_sub_or_zero_u64(gc_account_held(account), gc_account_limit(account)));
}

/* ---- GPUCACHE_LEAVE ----
 *
 * The driver takes device memory inside its calls (code that is loaded at a kernel's first launch,
 * local memory, channels), and other processes take it at any time: idle cached memory leaves them
 * room. The bytes that others use are measured now and then (core/reclaim/leave.c), the process's
 * own are known: so the free memory is known between measurements without a driver call, as long as
 * the others do not change.
 *
 * Memory that the program has needed shortly before stays, although it is idle now: a program that
 * repeats itself near the device's size would release and take it in each repetition. */

void gc_device_note_free(struct gc_device *device, uint64_t free_bytes)
{
    const uint64_t used = gc_sub_or_zero_u64(device->info.total_bytes, free_bytes);
    atomic_store_explicit(&device->others_bytes,
                          gc_sub_or_zero_u64(used, gc_budget_held(&device->budget)),
                          memory_order_relaxed);
    atomic_store_explicit(&device->others_ns, gc_core_now_ns(device->core), memory_order_relaxed);
}

uint64_t gc_device_lacking_bytes(const struct gc_device *device)
{
    const uint64_t used = gc_budget_held(&device->budget) +
                          atomic_load_explicit(&device->others_bytes, memory_order_relaxed);
    return gc_sub_or_zero_u64(device->leave_bytes,
                              gc_sub_or_zero_u64(device->info.total_bytes, used));
}

uint64_t gc_device_spare_bytes(const struct gc_device *device)
{
    return gc_min_u64(atomic_load_explicit(&device->idle_before_bytes, memory_order_relaxed),
                      atomic_load_explicit(&device->idle.least_bytes, memory_order_relaxed));
}

uint64_t gc_device_idle_limit_bytes(const struct gc_device *device)
{
    const uint64_t trim = atomic_load_explicit(&device->trim_bytes, memory_order_relaxed);
    const uint64_t lacking =
        gc_min_u64(gc_device_lacking_bytes(device), gc_device_spare_bytes(device));
    const uint64_t excess = gc_max_u64(gc_device_excess_bytes(device), lacking);
    return excess == 0 ? trim
                       : gc_min_u64(trim, gc_sub_or_zero_u64(gc_device_idle_bytes(device), excess));
}

void gc_device_set_limit(struct gc_device *device, uint64_t limit_bytes)
{
    gc_budget_set_limit(&device->budget, limit_bytes);
    atomic_store_explicit(&device->trim_bytes,
                          percent_of(gc_min_u64(limit_bytes, device->info.total_bytes),
                                     device->core->options->trim_percent),
                          memory_order_relaxed);
}

uint64_t gc_device_total_bytes(const struct gc_device *device)
{
    return gc_min_u64(gc_device_limit_bytes(device), device->info.total_bytes);
}

const struct gc_device_info *gc_device_get_info(const struct gc_device *device)
{
    return &device->info;
}

uint64_t gc_device_reserved_bytes(const struct gc_device *device)
{
    return gc_budget_held(&device->budget);
}

/* ---- releases ---- */

void gc_device_release_begin(struct gc_device *device, struct gc_quota *quota)
{
    atomic_fetch_add_explicit(&device->release_count, 1, memory_order_seq_cst);
    if (quota != NULL)
        atomic_fetch_add_explicit(&quota->release_count, 1, memory_order_seq_cst);
}

/* Sequentially consistent, as in gc_device_wait_releases: either this thread sees the waiting
 * thread, or that thread sees the lower count. */
void gc_device_release_end(struct gc_device *device, struct gc_quota *quota)
{
    gc_device_clear_exhausted(device); /* requests may wait again: something became free */
    bool is_last = atomic_fetch_sub_explicit(&device->release_count, 1, memory_order_seq_cst) == 1;
    if (quota != NULL)
        is_last |= atomic_fetch_sub_explicit(&quota->release_count, 1, memory_order_seq_cst) == 1;
    if (!is_last || atomic_load_explicit(&device->release_waiter_count, memory_order_seq_cst) == 0)
        return;
    gc_lock_acquire(&device->release_lock);
    gc_lock_broadcast(&device->release_done);
    gc_lock_release(&device->release_lock);
}

bool gc_device_wait_releases(struct gc_device *device, const struct gc_quota *quota,
                             uint64_t limit_ns)
{
    const atomic_uint *count = quota != NULL ? &quota->release_count : &device->release_count;
    if (atomic_load_explicit(count, memory_order_seq_cst) == 0)
        return false;
    gc_lock_acquire(&device->release_lock);
    atomic_fetch_add_explicit(&device->release_waiter_count, 1, memory_order_seq_cst);
    bool waited = true;
    /* Bounded: the driver may block the thread that releases. */
    while (waited && atomic_load_explicit(count, memory_order_seq_cst) > 0)
        waited = gc_lock_wait_for(&device->release_lock, &device->release_done, limit_ns);
    atomic_fetch_sub_explicit(&device->release_waiter_count, 1, memory_order_relaxed);
    gc_lock_release(&device->release_lock);
    return waited;
}

void gc_device_uncharge(struct gc_device *device, uint64_t bytes)
{
    gc_budget_uncharge(&device->budget, bytes);
    gc_idle_advance(&device->idle);
}

void gc_device_uncharge_measured(struct gc_device *device, uint64_t bytes)
{
    gc_budget_uncharge_measured(&device->budget, bytes);
    gc_idle_advance(&device->idle);
}

uint64_t gc_device_idle_bytes(const struct gc_device *device)
{
    return gc_idle_bytes(&device->idle);
}

/* ---- trace and figures ---- */

static void trace_levels(struct gc_device *device, uint64_t time_ns)
{
    struct gc_gauge pending;
    gc_stats_read_gauge(&device->stats.pending, &pending);
    const struct gc_trace_levels levels = {
        .reserved_bytes = gc_budget_held(&device->budget),
        .pending_bytes = pending.current,
        .limit_bytes = gc_budget_limit(&device->budget),
    };
    gc_trace_record_levels(device->core->trace, (uint8_t)device->info.ordinal, &levels, time_ns);
}

static void record_stack(struct gc_device *device, enum gc_trace_op op,
                         const struct gc_entry *entry)
{
    struct gc_stack_table *stacks = device->core->stacks;
    const int ordinal = device->info.ordinal;
    if (op == GC_TRACE_FREE)
        gc_stacks_on_free(stacks, ordinal, entry->address);
    if (op != GC_TRACE_ALLOC)
        return;
    const uint32_t stack = gc_stacks_capture(stacks);
    gc_stacks_on_alloc(stacks, ordinal, entry->address, entry->requested_bytes, stack);
    if (device->core->trace != NULL)
        gc_trace_stacks_record(device->core->trace, stacks, stack, (uint8_t)ordinal, entry->address,
                               gc_core_now_ns(device->core));
}

void gc_device_observe(struct gc_device *device, enum gc_trace_op op, const struct gc_entry *entry)
{
    const struct gc_core *core = device->core;
    if (core->stacks != NULL)
        record_stack(device, op, entry);
    if (core->trace == NULL)
        return;
    const struct gc_trace_event event = {
        .op = (uint8_t)op,
        .device = (uint8_t)device->info.ordinal,
        .api = entry->api,
        .address = entry->address,
        .bytes = entry->requested_bytes,
        .stream = entry->stream,
        .time_ns = gc_core_now_ns(core),
    };
    gc_trace_record(core->trace, &event);
    trace_levels(device, event.time_ns);
}

void gc_device_trace_memory(struct gc_device *device, enum gc_trace_op op,
                            enum gc_trace_memory memory, uint64_t address, uint64_t bytes)
{
    const struct gc_core *core = device->core;
    if (core->trace == NULL)
        return;
    const struct gc_trace_event event = {
        .op = (uint8_t)op,
        .device = (uint8_t)device->info.ordinal,
        .address = address,
        .bytes = bytes,
        .stream = memory,
        .time_ns = gc_core_now_ns(core),
    };
    gc_trace_record(core->trace, &event);
    trace_levels(device, event.time_ns);
}

static struct gc_api_cell *cell_of(struct gc_device *device, uint16_t api)
{
    return api < device->core->api_count ? &device->apis[api] : NULL;
}

void gc_device_count_other(struct gc_device *device, const struct gc_entry *entry)
{
    struct gc_api_cell *cell = cell_of(device, entry->api);
    if (cell == NULL)
        return;
    gc_counter_add(&cell->count, 1);
    gc_counter_add(&cell->bytes, entry->requested_bytes);
    gc_stats_add_gauge(&cell->live, entry->requested_bytes);
}

void gc_device_uncount_other(struct gc_device *device, const struct gc_entry *entry)
{
    struct gc_api_cell *cell = cell_of(device, entry->api);
    if (cell != NULL)
        gc_stats_sub_gauge_unchecked(&cell->live, entry->requested_bytes);
}

void gc_device_recount_other(struct gc_device *device, const struct gc_entry *entry)
{
    struct gc_api_cell *cell = cell_of(device, entry->api);
    if (cell != NULL)
        gc_stats_add_gauge(&cell->live, entry->requested_bytes);
}

bool gc_device_is_mapped(const struct gc_device *device)
{
    return device->is_mapped;
}

/* ---- process figures ---- */

void gc_device_count_driver_call(struct gc_core *core, struct gc_device *device, uint16_t api)
{
    if (api >= core->api_count)
        return;
    gc_counter_add(
        device != NULL ? &device->apis[api].driver_calls : &core->process_driver_calls[api], 1);
}

void gc_device_count_oom(struct gc_core *core, struct gc_device *device, struct gc_quota *quota)
{
    gc_counter_add(&device->stats.oom_count, 1);
    if (quota != NULL)
        gc_counter_add(&quota->oom_count, 1);
    gc_device_set_used(core); /* a refused request makes a report worthwhile too */
}

void gc_device_set_used(struct gc_core *core)
{
    atomic_store_explicit(&core->was_used, true, memory_order_relaxed);
}

bool gc_device_was_used(const struct gc_core *core)
{
    return atomic_load_explicit(&core->was_used, memory_order_relaxed);
}
