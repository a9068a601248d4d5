/* Creates and destroys core, and forwards calls that concern all pools of a device. */
#include "core/core.h"
#include "core/backing/range.h"

#include "core/alloc/spill.h"
#include "core/alloc/teardown.h"
#include "core/backing/change.h"
#include "core/backing/copy.h"
#include "core/backing/host.h"
#include "core/backing/kept.h"
#include "core/base/bits.h"
#include "core/debug/debug.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/direct/elastic.h"
#include "core/follow/follow.h"
#include "core/group/group.h"
#include "core/observe/stacks.h"
#include "core/pause/ending.h"
#include "core/pause/pause.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache.h"
#include "core/share/share.h"
#include "core/turns/turns.h"

#include <stddef.h>
#include <unistd.h>

static uint64_t counters_bytes(const struct gc_core *core)
{
    return gc_max_u64(core->api_count, 1) * sizeof(*core->process_driver_calls);
}

/* Without host memory for call stacks the program runs without them. */
static void start_stacks(struct gc_core *core)
{
    if (core->options->stacks == GC_STACKS_OFF)
        return;
    if (gc_stacks_create(&core->host, &core->stacks) == GC_OK)
        core->is_observed = true;
    else
        gc_log_write(core->log, GC_LOG_WARN, "no host memory for call stacks: none are taken");
}

static void set_up(struct gc_core *core, const struct gc_core_config *config)
{
    core->serve = gc_ending_serve;
    core->driver = *config->driver;
    core->options = config->options;
    core->log = config->log;
    core->trace = config->trace;
    core->plan = config->plan;
    core->is_observed = config->trace != NULL;
    core->mode = config->options->mode;
    core->api_names = config->api_names;
    core->api_count = config->api_count;
    core->next_block_id = 1;
    atomic_init(&core->work.reuse_blocked, 0);
    atomic_init(&core->work.quick_stream, GC_STREAM_CHECK);
    atomic_init(&core->work.epoch, 1); /* 0: no work */
    gc_submitters_init(core);
}

/* UINT64_MAX: none is given. */
static uint64_t host_limit_of(const struct gc_options *options)
{
    const uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return gc_size_spec_resolve(&options->host_limit, -1, NULL, machine);
}

enum gc_status gc_core_create(const struct gc_core_config *config, struct gc_core **created)
{
    struct gc_host_mem host = {0};
    struct gc_core *core = gc_host_mem_map(&host, sizeof(*core));
    if (core == NULL)
        return GC_NO_HOST_MEMORY;
    set_up(core, config);
    gc_host_mem_count(&core->host, gc_host_mem_bytes(&host));
    core->process_driver_calls = gc_host_mem_map(&core->host, counters_bytes(core));
    if (core->process_driver_calls == NULL)
        goto fail_counters;
    if (gc_pagemap_init(&core->pagemap, &core->host) != GC_OK)
        goto fail_pagemap;
    gc_tracker_init(&core->tracker, &core->host);
    gc_opens_init(&core->opens, &core->host);
    gc_host_budget_init(&core->host_budget, host_limit_of(core->options));
    gc_spills_init(&core->spills, gc_core_now_ns(core));
    gc_contexts_init(core);
    gc_ranges_init(core);
    gc_tenants_init(core);
    gc_lock_init(&core->registry, GC_RANK_REGISTRY);
    gc_elastic_init(core);
    gc_tcache_init(core);
    if (gc_debug_init(core) != GC_OK)
        goto fail_debug;
    if (gc_follow_init(core) != GC_OK)
        goto fail_follow;
    if (gc_share_create(core) != GC_OK)
        goto fail_share;
    if (gc_host_create(core) != GC_OK)
        goto fail_host;
    gc_slab_init_small(&core->copy_records, &core->host, sizeof(struct gc_copy));
    start_stacks(core);
    gc_spill_alloc_check(core);
    *created = core;
    return GC_OK;

fail_host:
    gc_share_destroy(core);
fail_share:
    gc_follow_fini(core);
fail_follow:
    gc_debug_fini(core);
fail_debug:
    gc_elastic_fini(core);
    gc_tcache_fini(core);
    gc_ranges_fini(core);
    gc_contexts_fini(core);
    gc_tenants_fini(core);
    gc_opens_fini(&core->opens);
    gc_tracker_fini(&core->tracker);
    gc_pagemap_fini(&core->pagemap);
fail_pagemap:
    gc_host_mem_unmap(&core->host, core->process_driver_calls, counters_bytes(core));
fail_counters:
    gc_host_mem_unmap(&host, core, sizeof(*core));
    return GC_NO_HOST_MEMORY;
}

void gc_core_destroy(struct gc_core *core)
{
    if (core == NULL)
        return;
    gc_elastic_fini(core);
    gc_share_destroy(core);
    while (core->all_contexts != NULL) {
        struct gc_context *context = core->all_contexts;
        core->all_contexts = context->next_of_all;
        gc_change_free_records(&context->pool);
    }
    gc_kept_destroy(core);
    gc_host_destroy(core);
    gc_turns_fini(core);
    gc_slab_fini(&core->copy_records);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device != NULL)
            gc_device_fini(device);
    }
    gc_group_fini(core);
    gc_ranges_fini(core);
    gc_contexts_fini(core);
    gc_tenants_fini(core);
    gc_follow_fini(core);
    gc_tcache_fini(core);
    gc_submitters_fini(core);
    gc_debug_fini(core);
    gc_stacks_destroy(core->stacks);
    gc_opens_fini(&core->opens);
    gc_spills_fini(&core->spills, &core->host);
    gc_tracker_fini(&core->tracker);
    gc_pagemap_fini(&core->pagemap);
    gc_host_mem_unmap(&core->host, core->process_driver_calls, counters_bytes(core));
    struct gc_host_mem host = {gc_host_mem_bytes(&core->host)};
    gc_host_mem_unmap(&host, core, sizeof(*core));
}

void gc_core_join(struct gc_core *core, const char *program, struct gc_doorbell *doorbell)
{
    gc_group_join(core, program, doorbell);
    gc_pause_join(core);
    gc_turns_join(core);
}

bool gc_core_has_ledger(const struct gc_core *core)
{
    return core->ledger != NULL;
}

struct gc_stack_table *gc_core_stacks(struct gc_core *core)
{
    return core->stacks;
}

bool gc_core_lists_sites(const struct gc_core *core)
{
    return core->options->stacks == GC_STACKS_ALL;
}

struct gc_submissions *gc_core_submissions(struct gc_core *core)
{
    return &core->work;
}

/* ---- streams and epochs, of all pools of a device ---- */

uint64_t gc_core_ordered_bytes(const struct gc_device *device)
{
    return atomic_load_explicit(&device->stats.ordered.current, memory_order_relaxed);
}

uint64_t gc_core_ordered_peak_bytes(const struct gc_device *device, enum gc_ordered_peak mark)
{
    return atomic_load_explicit(&device->ordered_peaks[mark].peak, memory_order_relaxed);
}

void gc_core_reset_ordered_peak(struct gc_device *device, enum gc_ordered_peak mark)
{
    gc_stats_reset_gauge_peak(&device->ordered_peaks[mark]);
}

static void close_stream_of_device(struct gc_device *device, uint64_t stream)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        gc_teardown_close_stream(context, stream);
}

void gc_core_close_stream(struct gc_core *core, uint64_t stream)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device != NULL)
            close_stream_of_device(device, stream);
    }
}

static void complete_records(struct gc_context *record, const struct gc_context *waited,
                             uint64_t epoch)
{
    for (; record != NULL; record = gc_context_next_record(record))
        gc_defer_complete(record, waited, epoch);
}

void gc_core_complete(struct gc_core *core, struct gc_context *context, uint64_t epoch)
{
    (void)core;
    complete_records(context->head, context, epoch);
    complete_records(gc_device_ordered(context->device), context, epoch);
}
