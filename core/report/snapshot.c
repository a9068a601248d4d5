/* The figures of all devices in one mapping, and the largest live allocations. Takes one lock at a
 * time, none while it visits, and never calls libc's allocator, since a process may exit in any
 * state. */
#include "core/report/snapshot.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/direct/direct.h"
#include "core/follow/follow.h"
#include "core/observe/stacks.h"
#include "core/reclaim/tcache.h"
#include "core/report/report.h"

#include <stddef.h>

/* A snapshot and the size of its mapping. */
struct snapshot_memory {
    struct gc_snapshot snapshot;
    struct gc_host_mem host;
    uint64_t bytes;
};

/* ---- live allocations ---- */

typedef void visit_leak(void *argument, const struct gc_leak *leak);

/* Calls `see` for every live block of the pool, under its lock. */
static void visit_blocks(struct gc_pool *pool, visit_leak *see, void *argument)
{
    gc_pool_acquire_plain(pool);
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        for (const struct gc_block *block = segment->first; block != NULL; block = block->next) {
            if (block->state != GC_BLOCK_LIVE)
                continue;
            const struct gc_leak leak = {
                .address = block->address, .bytes = block->live.requested_bytes, .api = block->api};
            see(argument, &leak);
        }
    }
    gc_pool_release(pool);
}

struct direct_filter {
    const struct gc_device *device;
    visit_leak *see;
    void *argument;
};

static void visit_direct(void *argument, const struct gc_direct *direct)
{
    const struct direct_filter *filter = argument;
    if (direct->device != filter->device || !gc_direct_is_allocation(direct->kind))
        return;
    const struct gc_leak leak = {.address = direct->key,
                                 .bytes = direct->requested_bytes,
                                 .api = direct->api,
                                 .direct = true,
                                 .kind = direct->kind};
    filter->see(filter->argument, &leak);
}

static void visit_all(struct gc_core *core, struct gc_device *device, visit_leak *see,
                      void *argument)
{
    struct direct_filter filter = {device, see, argument};
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        visit_blocks(&context->pool, see, argument);
    gc_tracker_visit(&core->tracker, visit_direct, &filter);
}

struct leak_sum {
    uint64_t count;
    uint64_t bytes;
};

static void add_leak(void *argument, const struct gc_leak *leak)
{
    struct leak_sum *sum = argument;
    sum->count++;
    sum->bytes += leak->bytes;
}

/* ---- the snapshot ---- */

void gc_snapshot_read_free_blocks(struct gc_core *core, struct gc_device *device,
                                  struct gc_device_snapshot *to)
{
    (void)core;
    to->free_bytes = 0;
    to->largest_free_bytes = 0;
    to->stitchable_bytes = 0;
    to->stuck_bytes = 0;
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        struct gc_pool *pool = &context->pool;
        gc_pool_acquire_plain(pool);
        const struct gc_free_sums sums = gc_pool_measure_locked(pool);
        to->free_bytes += sums.free_bytes;
        to->largest_free_bytes = gc_max_u64(to->largest_free_bytes, sums.largest_bytes);
        to->stitchable_bytes += pool->pages.idle_count * pool->pages.page_bytes;
        to->stuck_bytes += pool->pages.stuck_count * pool->pages.page_bytes;
        gc_pool_release(pool);
    }
}

static void read_stats(const struct gc_stats *stats, struct gc_device_snapshot *to)
{
#define GC_GAUGE(field, text) gc_stats_read_gauge(&stats->field, &to->field);
#define GC_COUNTER(field, text) to->field = gc_counter_read(&stats->field);
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
}

void gc_snapshot_read_device(struct gc_core *core, struct gc_device *device,
                             struct gc_device_snapshot *to)
{
    (void)core;
    *to = (struct gc_device_snapshot){.apis = NULL};
    to->info = device->info;
    to->is_mapped = device->is_mapped;
    to->limit_bytes = gc_device_own_limit_bytes(device);
    to->group_limit_bytes = UINT64_MAX;
    if (device->budget.account != NULL) {
        gc_ledger_get_text(to->group, sizeof(to->group), device->budget.account->group);
        to->group_limit_bytes = gc_account_limit(device->budget.account);
    }
    read_stats(&device->stats, to);
    to->refused_bytes = atomic_load_explicit(&device->stats.refused_bytes, memory_order_relaxed);
    to->sufficient_bytes =
        atomic_load_explicit(&device->stats.sufficient_bytes, memory_order_relaxed);
    to->host_metadata_bytes = gc_host_mem_bytes(&device->host);
    to->idle_bytes = gc_device_idle_bytes(device);
    (void)gc_follow_read(device, &to->plan);
    for (unsigned kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++)
        to->direct_bytes[kind] =
            atomic_load_explicit(&device->direct_bytes[kind], memory_order_relaxed);
}

struct tenant_reading {
    struct gc_device *device;
    struct gc_device_snapshot *to;
    bool of_removed;
};

static void read_tenant(void *argument, struct gc_tenant *tenant)
{
    const struct tenant_reading *reading = argument;
    struct gc_device_snapshot *to = reading->to;
    if (to->tenant_count == GC_TENANT_MAX)
        return;
    struct gc_tenant_figures *figures = &to->tenants[to->tenant_count];
    if (gc_tenant_read(tenant, reading->device, figures) &&
        figures->is_removed == reading->of_removed)
        to->tenant_count++;
}

static void read_all(struct gc_core *core, struct gc_device *device, struct gc_device_snapshot *to)
{
    struct leak_sum leaks = {0, 0};
    struct gc_api_figures *apis = to->apis;
    struct gc_tenant_figures *tenants = to->tenants;
    struct tenant_reading reading = {device, to, false};
    gc_snapshot_read_device(core, device, to);
    gc_snapshot_read_free_blocks(core, device, to);
    to->apis = apis;
    to->tenants = tenants;
    gc_tenants_visit(core, read_tenant, &reading);
    reading.of_removed = true;
    gc_tenants_visit(core, read_tenant, &reading);
    visit_all(core, device, add_leak, &leaks);
    to->leak_count = leaks.count;
    to->leak_bytes = leaks.bytes;
    for (uint16_t api = 0; api < core->api_count; api++)
        gc_stats_read_api_cell(&device->apis[api], &to->apis[api]);
}

/* One mapping: the head, the devices, their tenants, their figures by entry point, the calls of the
 * process. */
static struct snapshot_memory *map_snapshot(uint32_t devices, uint16_t apis)
{
    const uint64_t figures_bytes = (uint64_t)apis * sizeof(struct gc_api_figures) +
                                   GC_TENANT_MAX * sizeof(struct gc_tenant_figures);
    const uint64_t bytes = sizeof(struct snapshot_memory) +
                           devices * (sizeof(struct gc_device_snapshot) + figures_bytes) +
                           apis * sizeof(uint64_t);
    struct gc_host_mem host = {0};
    struct snapshot_memory *memory = gc_host_mem_map(&host, bytes);
    if (memory == NULL)
        return NULL;
    memory->bytes = bytes;
    memory->snapshot.api_count = apis;
    memory->snapshot.devices = (struct gc_device_snapshot *)(memory + 1);
    struct gc_tenant_figures *tenants =
        (struct gc_tenant_figures *)(memory->snapshot.devices + devices);
    struct gc_api_figures *figures =
        (struct gc_api_figures *)(tenants + (uint64_t)devices * GC_TENANT_MAX);
    for (uint32_t i = 0; i < devices; i++) {
        memory->snapshot.devices[i].tenants = tenants + (uint64_t)i * GC_TENANT_MAX;
        memory->snapshot.devices[i].apis = figures + (uint64_t)i * apis;
    }
    memory->snapshot.process_driver_calls = (uint64_t *)(figures + (uint64_t)devices * apis);
    return memory;
}

enum gc_status gc_snapshot_take(struct gc_core *core, struct gc_snapshot **snapshot)
{
    uint32_t count = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++)
        count += gc_device_find(core, i) != NULL;
    struct snapshot_memory *memory = map_snapshot(count, core->api_count);
    if (memory == NULL)
        return GC_NO_HOST_MEMORY;
    struct gc_snapshot *to = &memory->snapshot;
    gc_tcache_stop_all(core); /* the devices have all figures now, and no thread cache changes */
    /* The snapshot leaves out a device that is added meanwhile. */
    for (int i = 0; i < GC_DEVICE_MAX && to->device_count < count; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device != NULL)
            read_all(core, device, &to->devices[to->device_count++]);
    }
    gc_tcache_resume_all(core);
    if (to->device_count > 0) /* the process's part is counted once */
        to->devices[0].host_metadata_bytes += gc_host_mem_bytes(&core->host);
    for (uint16_t api = 0; api < core->api_count; api++)
        to->process_driver_calls[api] = gc_counter_read(&core->process_driver_calls[api]);
    to->takes_turns = core->ledger != NULL && gc_ledger_read_turn(core->ledger, core->ledger->own,
                                                                  gc_core_now_ns(core), &to->turn);
    gc_histogram_read(&core->alloc_ns, &to->alloc_latency);
    gc_histogram_read(&core->free_ns, &to->free_latency);
    *snapshot = to;
    return GC_OK;
}

void gc_snapshot_free(struct gc_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    struct snapshot_memory *memory = (struct snapshot_memory *)snapshot;
    struct gc_host_mem host = {0};
    gc_host_mem_unmap(&host, memory, memory->bytes);
}

/* ---- the largest live allocations ---- */

/* The largest leaks so far: a binary heap with the smallest on top. */
struct top_leaks {
    struct gc_leak *leaks;
    uint64_t count;
    uint64_t max;
};

static void sift_down(struct top_leaks *top, uint64_t i)
{
    const struct gc_leak moved = top->leaks[i];
    for (uint64_t child = 2 * i + 1; child < top->count; child = 2 * i + 1) {
        if (child + 1 < top->count && top->leaks[child + 1].bytes < top->leaks[child].bytes)
            child++;
        if (top->leaks[child].bytes >= moved.bytes)
            break;
        top->leaks[i] = top->leaks[child];
        i = child;
    }
    top->leaks[i] = moved;
}

static void insert_largest(void *argument, const struct gc_leak *leak)
{
    struct top_leaks *top = argument;
    if (top->count == top->max) {
        if (leak->bytes > top->leaks[0].bytes) {
            top->leaks[0] = *leak;
            sift_down(top, 0);
        }
        return;
    }
    uint64_t i = top->count++;
    for (; i > 0 && top->leaks[(i - 1) / 2].bytes > leak->bytes; i = (i - 1) / 2)
        top->leaks[i] = top->leaks[(i - 1) / 2];
    top->leaks[i] = *leak;
}

/* Heap sort: takes off the smallest until the array is in descending order. */
static void sort_descending(struct top_leaks *top)
{
    const uint64_t all = top->count;
    while (top->count > 1) {
        const struct gc_leak smallest = top->leaks[0];
        top->leaks[0] = top->leaks[--top->count];
        sift_down(top, 0);
        top->leaks[top->count] = smallest;
    }
    top->count = all;
}

enum gc_status gc_snapshot_visit_leaks(struct gc_core *core, struct gc_device *device, uint32_t max,
                                       void (*visit)(void *argument, const struct gc_leak *leak),
                                       void *argument)
{
    struct leak_sum sum = {0, 0};
    gc_tcache_stop_all(core);
    visit_all(core, device, add_leak, &sum);
    gc_tcache_resume_all(core);
    struct top_leaks top = {.max = gc_min_u64(sum.count, max)};
    if (top.max == 0)
        return GC_OK;
    struct gc_host_mem host = {0};
    const uint64_t bytes = top.max * sizeof(*top.leaks);
    top.leaks = gc_host_mem_map(&host, bytes);
    if (top.leaks == NULL)
        return GC_NO_HOST_MEMORY;
    gc_tcache_stop_all(core);
    visit_all(core, device, insert_largest, &top);
    gc_tcache_resume_all(core);
    sort_descending(&top);
    for (uint64_t i = 0; i < top.count; i++) {
        if (core->stacks != NULL)
            top.leaks[i].site =
                gc_stacks_find(core->stacks, device->info.ordinal, top.leaks[i].address);
        visit(argument, &top.leaks[i]);
    }
    gc_host_mem_unmap(&host, top.leaks, bytes);
    return GC_OK;
}

/* ---- groups ---- */

#define GROUP_SLOTS_MAX (1U << 17)

struct grouping {
    struct gc_stack_table *stacks; /* NULL: none */
    int ordinal;
    struct gc_leak_table table;
};

static void group_leak(void *argument, const struct gc_leak *leak)
{
    struct grouping *grouping = argument;
    struct gc_leak known = *leak;
    if (grouping->stacks != NULL)
        known.site = gc_stacks_find(grouping->stacks, grouping->ordinal, leak->address);
    gc_leak_table_add(&grouping->table, &known);
}

enum gc_status gc_snapshot_group_leaks(struct gc_core *core, struct gc_device *device,
                                       struct gc_leak_group *groups, uint32_t max, uint32_t *count)
{
    struct leak_sum sum = {0, 0};
    struct gc_host_mem host = {0};
    struct grouping grouping = {.stacks = core->stacks, .ordinal = device->info.ordinal};
    struct gc_leak_table *table = &grouping.table;
    *count = 0;
    gc_tcache_stop_all(core);
    visit_all(core, device, add_leak, &sum);
    gc_tcache_resume_all(core);
    if (sum.count == 0)
        return GC_OK;
    for (table->slot_count = 4; table->slot_count < GROUP_SLOTS_MAX;) {
        if (table->slot_count / 2 > sum.count)
            break;
        table->slot_count *= 2;
    }
    const uint64_t bytes = table->slot_count * sizeof(*table->slots);
    table->slots = gc_host_mem_map(&host, bytes);
    if (table->slots == NULL)
        return GC_NO_HOST_MEMORY;
    gc_tcache_stop_all(core);
    visit_all(core, device, group_leak, &grouping);
    gc_tcache_resume_all(core);
    *count = (uint32_t)gc_min_u64(gc_leak_table_sort(table), max);
    for (uint32_t i = 0; i < *count; i++)
        groups[i] = table->slots[i];
    gc_host_mem_unmap(&host, table->slots, bytes);
    return GC_OK;
}

uint32_t gc_snapshot_read_spills(struct gc_core *core, int ordinal, struct gc_spilled *to,
                                 uint32_t max)
{
    return gc_spills_read(&core->spills, ordinal, to, max);
}

void gc_snapshot_reset_peaks(struct gc_core *core, struct gc_device *device)
{
    gc_tcache_stop_all(core);
#define GC_GAUGE(field, text) gc_stats_reset_gauge_peak(&device->stats.field);
#define GC_COUNTER(field, text)
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    for (uint16_t api = 0; api < core->api_count; api++)
        gc_stats_reset_gauge_peak(&device->apis[api].live);
    gc_tcache_resume_all(core);
}

const char *gc_snapshot_plan_problem(const struct gc_core *core)
{
    const struct gc_follow *follow = core->follow;
    if (core->plan == NULL)
        return NULL;
    if (core->mode != GC_MODE_CACHE)
        return "GPUCACHE_PLAN is not followed: GPUCACHE_MODE leaves all places to the driver";
    if (follow == NULL)
        return "GPUCACHE_PLAN is not followed: GPUCACHE_DEBUG places blocks itself";
    if (atomic_load_explicit(&follow->owner, memory_order_relaxed) == NULL)
        return "GPUCACHE_PLAN is not followed: nothing was allocated on the device it is for";
    return NULL;
}

/* ---- sums over devices ---- */

uint64_t gc_snapshot_measured_bytes(const struct gc_snapshot *snapshot)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        if (!gc_add_u64(sum, snapshot->devices[i].reserved.peak, &sum))
            return UINT64_MAX;
    }
    return sum;
}

uint64_t gc_snapshot_context_bytes(const struct gc_snapshot *snapshot)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        if (!gc_add_u64(sum, snapshot->devices[i].context.peak, &sum))
            return UINT64_MAX;
    }
    return sum;
}
