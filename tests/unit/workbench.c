#include "tests/unit/workbench.h"
#include "core/backing/host.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const api_names[WORKBENCH_API_COUNT] = {"malloc", "other"};
static const _Atomic uint32_t no_bell;

void workbench_open(struct workbench *bench, const struct workbench_setup *setup)
{
    *bench = (struct workbench){.tenant_limit_bytes = UINT64_MAX};
    sim_driver_init(&bench->sim, setup->capacity_bytes);
    bench->options = calloc(1, sizeof(*bench->options));
    assert_non_null(bench->options);
    bench->options->mode = setup->mode;
    bench->options->trim_percent = setup->trim_percent;
    bench->options->leave.count = 1; /* of no memory, unless the test says so */
    bench->options->leave.entries[0] =
        (struct gc_size_entry){.ordinal = -1, .bytes = setup->leave_bytes};
    bench->options->reuse = setup->is_fenced ? GC_REUSE_FENCE : GC_REUSE_SYNC;
    bench->options->debug = setup->debug;
    bench->options->overcommit = setup->overcommit;
    if (setup->host_limit_bytes != 0) {
        bench->options->host_limit.count = 1;
        bench->options->host_limit.entries[0] =
            (struct gc_size_entry){.ordinal = -1, .bytes = setup->host_limit_bytes};
    }
    if (setup->host_limit_percent != 0) {
        bench->options->host_limit.count = 1;
        bench->options->host_limit.entries[0] = (struct gc_size_entry){
            .ordinal = -1, .is_percent = true, .percent = setup->host_limit_percent};
    }
    if (setup->group != NULL)
        snprintf(bench->options->group, sizeof(bench->options->group), "%s", setup->group);
    if (setup->limit_bytes != 0) {
        bench->options->limit.count = 1;
        bench->options->limit.entries[0] =
            (struct gc_size_entry){.ordinal = -1, .bytes = setup->limit_bytes};
    }
    if (setup->ledger != NULL)
        snprintf(bench->options->ledger, sizeof(bench->options->ledger), "%s", setup->ledger);
    const struct gc_core_config config = {
        .options = bench->options,
        .driver = &bench->sim.table,
        .log = setup->log,
        .plan = setup->plan,
        .api_names = api_names,
        .api_count = WORKBENCH_API_COUNT,
    };
    assert_status(gc_core_create(&config, &bench->core), GC_OK);
    bench->sim.work = gc_core_submissions(bench->core);
    bench->cache = gc_tcache_create(bench->core);
    bench->owner = pthread_self();
    bench->doorbell.control = &no_bell;
    if (setup->ledger != NULL)
        gc_core_join(bench->core, "program", &bench->doorbell);
    const uint64_t page_bytes = setup->page_bytes != 0 ? setup->page_bytes : UINT64_C(2) << 20;
    const struct gc_device_info info = {.ordinal = 0,
                                        .total_bytes = setup->capacity_bytes,
                                        .has_mapping = setup->has_mapping,
                                        .is_dedicated = setup->is_dedicated,
                                        .page_bytes = setup->has_mapping ? page_bytes : 0};
    assert_status(gc_setup_add_device(bench->core, &info, &bench->device), GC_OK);
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        assert_status(gc_setup_add_context(bench->core, i + 1, bench->device, &bench->contexts[i]),
                      GC_OK);
}

void workbench_open_plain(struct workbench *bench)
{
    const struct workbench_setup setup = {
        .mode = GC_MODE_CACHE, .capacity_bytes = UINT64_C(1) << 30, .trim_percent = 100};
    workbench_open(bench, &setup);
}

void workbench_open_limited(struct workbench *bench, uint64_t limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .limit_bytes = limit_bytes,
                                          .trim_percent = 100};
    workbench_open(bench, &setup);
}

void workbench_open_fenced(struct workbench *bench, uint64_t capacity_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = capacity_bytes,
                                          .trim_percent = 100,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
}

/* The bytes in the pools, by a walk over their blocks. */
struct pool_sums {
    uint64_t segments;
    uint64_t spilled;
    uint64_t idle;
    uint64_t live;
    uint64_t requested;
    uint64_t pending;
};

static void add_pool(const struct gc_pool *pool, struct pool_sums *sums)
{
    sums->segments += pool->pages.count * pool->pages.page_bytes;
    for (const struct gc_extent *extent = pool->pages.hosted; extent != NULL; extent = extent->next)
        sums->spilled += extent->page_count * pool->pages.page_bytes;
    sums->idle += pool->pages.idle_count * pool->pages.page_bytes;
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        const bool is_charged = segment->arena == NULL && !segment->is_spilled;
        sums->segments += is_charged ? segment->bytes : 0;
        sums->spilled += segment->is_spilled ? segment->bytes : 0;
        sums->idle += segment->is_idle ? gc_segment_idle_bytes(segment) : 0;
        for (const struct gc_block *block = segment->first; block != NULL; block = block->next) {
            sums->live += block->state == GC_BLOCK_LIVE ? block->bytes : 0;
            sums->requested += block->state == GC_BLOCK_LIVE ? block->live.requested_bytes : 0;
            sums->pending += block->state == GC_BLOCK_PENDING ? block->bytes : 0;
        }
    }
}

/* A tenant's account has the bytes of its pools and of its non-pool memory. */
static void check_tenant(void *argument, struct gc_tenant *tenant)
{
    const struct workbench *bench = argument;
    struct pool_sums sums = {0};
    struct gc_tenant_figures figures;
    for (struct gc_context *record = bench->core->all_contexts; record != NULL;
         record = record->next_of_all)
        if (record->tenant == tenant)
            add_pool(&record->pool, &sums);
    if (!gc_tenant_read(tenant, bench->device, &figures))
        return;
    assert_int_equal(figures.reserved.current, sums.segments + bench->tenant_direct_bytes);
    assert_true(figures.reserved.peak <= bench->tenant_limit_bytes);
    assert_int_equal(figures.allocated.current, sums.live + bench->tenant_direct_bytes);
    assert_int_equal(figures.idle_bytes, sums.idle);
    assert_int_equal(figures.pending_bytes, sums.pending);
    if (bench->tenant_direct_bytes == 0)
        assert_int_equal(figures.requested.current, sums.requested);
    assert_int_equal(figures.alloc_count, figures.hit_count + figures.miss_count);
}

void workbench_check(struct workbench *bench)
{
    struct pool_sums sums = {0};
    uint64_t charged = 0;
    for (struct gc_context *record = bench->core->all_contexts; record != NULL;
         record = record->next_of_all) {
        assert_true(gc_pool_validate(&record->pool));
        add_pool(&record->pool, &sums);
    }
    for (unsigned kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++)
        charged += bench->device->direct_bytes[kind];
    const struct gc_device_snapshot figures = workbench_figures(bench);
    assert_int_equal(figures.reserved.current, sums.segments + charged + bench->stuck_bytes);
    assert_true(figures.reserved.peak <= figures.limit_bytes);
    assert_int_equal(figures.idle_bytes, sums.idle + bench->elastic_idle_bytes);
    assert_int_equal(figures.pending.current, sums.pending);
    if (charged == 0) {
        assert_int_equal(figures.allocated.current, sums.live);
        assert_int_equal(figures.requested.current, sums.requested);
        assert_int_equal(figures.leak_bytes, sums.requested);
    }
    assert_int_equal(figures.alloc_count, figures.hit_count + figures.miss_count);
    assert_true(figures.allocated.current <= figures.reserved.current + figures.spilled.current);
    sums.spilled += bench->stuck_host_bytes;
    assert_int_equal(figures.spilled.current, sums.spilled);
    assert_int_equal(gc_host_budget_held(&bench->core->host_budget),
                     sums.spilled + gc_host_bytes(bench->core));
    assert_int_equal(bench->sim.host_bytes, sums.spilled);
    gc_tenants_visit(bench->core, check_tenant, bench);
    sim_driver_check(&bench->sim);
}

void workbench_close(struct workbench *bench)
{
    workbench_check(bench);
    gc_tcache_destroy(bench->core, bench->cache);
    gc_core_destroy(bench->core);
    free(bench->options);
    sim_driver_fini(&bench->sim);
}

struct gc_tcache *workbench_cache(const struct workbench *bench)
{
    return pthread_equal(pthread_self(), bench->owner) ? bench->cache : NULL;
}

enum gc_status workbench_try_alloc_in(struct workbench *bench, struct gc_context *record,
                                      uint64_t bytes, uint64_t *address)
{
    const struct gc_request request = {.bytes = bytes, .api = API_MALLOC};
    const uint64_t hit =
        gc_tcache_alloc_from_pool(workbench_cache(bench), record, bytes, API_MALLOC);
    enum gc_status status = GC_OK;
    if (hit != GC_ADDRESS_NONE)
        *address = hit;
    else
        status = gc_alloc(bench->core, record, &request, address, &bench->driver_code);
    if (status == GC_OK)
        sim_driver_expect_idle(&bench->sim, *address, bytes);
    return status;
}

uint64_t workbench_alloc_in(struct workbench *bench, struct gc_context *record, uint64_t bytes)
{
    uint64_t address = 0;
    assert_status(workbench_try_alloc_in(bench, record, bytes, &address), GC_OK);
    return address;
}

enum gc_status workbench_try_alloc(struct workbench *bench, unsigned context, uint64_t bytes,
                                   uint64_t *address)
{
    return workbench_try_alloc_in(bench, bench->contexts[context], bytes, address);
}

struct gc_tenant *workbench_add_tenant(struct workbench *bench, const char *name,
                                       uint64_t capacity_bytes, uint64_t limit_bytes)
{
    const struct gc_tenant_config config = {name, capacity_bytes, limit_bytes};
    struct gc_tenant *tenant = NULL;
    assert_status(gc_tenant_add(bench->core, &config, &tenant), GC_OK);
    return tenant;
}

struct gc_context *workbench_record(struct workbench *bench, struct gc_tenant *tenant,
                                    unsigned context)
{
    struct gc_context *record = NULL;
    assert_status(gc_setup_tenant_context(tenant, bench->contexts[context], &record), GC_OK);
    return record;
}

uint64_t workbench_alloc_whole(struct workbench *bench, unsigned context, uint64_t bytes)
{
    const struct gc_request request = {.bytes = bytes, .api = API_MALLOC, .is_dedicated = true};
    uint64_t address = 0;
    assert_status(
        gc_alloc(bench->core, bench->contexts[context], &request, &address, &bench->driver_code),
        GC_OK);
    return address;
}

void workbench_export(struct workbench *bench, uint64_t address)
{
    assert_status(gc_export_block(bench->core, address, &bench->driver_code), GC_OK);
}

uint64_t workbench_alloc(struct workbench *bench, unsigned context, uint64_t bytes)
{
    uint64_t address = 0;
    assert_status(workbench_try_alloc(bench, context, bytes, &address), GC_OK);
    return address;
}

uint64_t workbench_alloc_ordered(struct workbench *bench, struct gc_context *record, uint64_t bytes)
{
    const struct gc_request request = {.bytes = bytes, .api = API_MALLOC, .is_ordered = true};
    uint64_t address = 0;
    assert_status(gc_alloc(bench->core, record, &request, &address, &bench->driver_code), GC_OK);
    return address;
}

enum gc_status workbench_try_free(struct workbench *bench, uint64_t address)
{
    if (gc_tcache_free_to_pool(bench->core, workbench_cache(bench), address))
        return GC_OK;
    return gc_free(bench->core, address, API_OTHER, &bench->driver_code);
}

void workbench_free(struct workbench *bench, uint64_t address)
{
    assert_status(workbench_try_free(bench, address), GC_OK);
}

struct gc_device_snapshot workbench_figures(struct workbench *bench)
{
    struct gc_snapshot *snapshot;
    assert_status(gc_snapshot_take(bench->core, &snapshot), GC_OK);
    struct gc_device_snapshot figures = snapshot->devices[0];
    figures.apis = NULL;
    gc_snapshot_free(snapshot);
    return figures;
}

struct gc_api_figures workbench_api_figures(struct workbench *bench, enum workbench_api api)
{
    struct gc_snapshot *snapshot;
    assert_status(gc_snapshot_take(bench->core, &snapshot), GC_OK);
    const struct gc_api_figures figures = snapshot->devices[0].apis[api];
    gc_snapshot_free(snapshot);
    return figures;
}

void workbench_capture(struct workbench *bench, unsigned context, bool begin)
{
    if (begin)
        gc_capture_begin_context(bench->contexts[context]);
    sim_driver_set_capturing(&bench->sim, context + 1, begin);
    if (!begin)
        gc_capture_end_context(bench->contexts[context]);
}

uint64_t workbench_free_busy(struct workbench *bench, uint64_t handle, uint64_t bytes)
{
    const uint64_t address = workbench_alloc(bench, 0, bytes);
    sim_driver_submit(&bench->sim, handle, address, bytes);
    workbench_free(bench, address);
    return address;
}

void workbench_retire(struct workbench *bench)
{
    struct gc_context *context = bench->contexts[0];
    sim_driver_complete(&bench->sim, context->handle);
    gc_core_complete(bench->core, context, gc_context_epoch(context));
}

void workbench_drop(struct workbench *bench, unsigned context)
{
    struct gc_context *ending = gc_teardown_begin(bench->core, context + 1);
    sim_driver_drop_context(&bench->sim, context + 1);
    if (ending != NULL)
        gc_teardown_finish(ending);
}

void workbench_pretend_one_stream(struct workbench *bench)
{
    struct gc_submissions *work = gc_core_submissions(bench->core);
    atomic_store(&work->multi_stream, false);
    atomic_store(&work->stream_fence.is_waited_for, false);
    atomic_store(&work->reuse_blocked, 0);
    atomic_store(&work->only_stream, GC_STREAM_NONE);
    atomic_store(&work->quick_stream, GC_STREAM_CHECK);
}
