/* Tenants: who they are, and that the memory of one serves no other. */
#include "core/device/context.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/limit.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define LARGE (24 * MIB)

static struct gc_tenant *add_tenant(struct workbench *bench, const char *name)
{
    return workbench_add_tenant(bench, name, 256 * MIB, GC_BUDGET_UNLIMITED);
}

static void open_bench(struct workbench *bench, bool has_mapping)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = 1024 * MIB,
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
}

/* ---- who they are ---- */

static enum gc_status try_name(struct workbench *bench, const char *name)
{
    const struct gc_tenant_config config = {name, 0, GC_BUDGET_UNLIMITED};
    struct gc_tenant *tenant;
    return gc_tenant_add(bench->core, &config, &tenant);
}

static void names_are_unique_and_plain(void **state)
{
    struct workbench bench;
    char longest[GC_OPTION_NAME_BYTES + 1];
    (void)state;
    open_bench(&bench, true);
    memset(longest, 'x', sizeof(longest));
    longest[GC_OPTION_NAME_BYTES] = '\0';
    assert_status(try_name(&bench, "one"), GC_OK);
    assert_status(try_name(&bench, "one"), GC_ALREADY_EXISTS);
    assert_status(try_name(&bench, ""), GC_INVALID_ARGUMENT);
    assert_status(try_name(&bench, ".one"), GC_INVALID_ARGUMENT);
    assert_status(try_name(&bench, "a/b"), GC_INVALID_ARGUMENT);
    assert_status(try_name(&bench, longest), GC_INVALID_ARGUMENT);
    longest[GC_OPTION_NAME_BYTES - 1] = '\0';
    assert_status(try_name(&bench, longest), GC_OK);
    assert_string_equal(gc_tenant_name(gc_tenant_find(bench.core, longest)), longest);
    assert_null(gc_tenant_find(bench.core, "two"));
    workbench_close(&bench);
}

static void there_are_so_many_at_a_time(void **state)
{
    struct workbench bench;
    char name[16];
    (void)state;
    open_bench(&bench, true);
    for (unsigned i = 0; i < GC_TENANT_MAX; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        assert_status(try_name(&bench, name), GC_OK);
    }
    assert_status(try_name(&bench, "more"), GC_TOO_MANY);
    workbench_close(&bench);
}

/* ---- records ---- */

static void a_record_is_the_tenants_own(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *one = add_tenant(&bench, "one");
    struct gc_tenant *two = add_tenant(&bench, "two");
    struct gc_context *record = workbench_record(&bench, one, 0);
    assert_ptr_equal(workbench_record(&bench, one, 0), record);
    assert_ptr_equal(workbench_record(&bench, NULL, 0), bench.contexts[0]);
    assert_ptr_not_equal(record, bench.contexts[0]);
    assert_ptr_not_equal(workbench_record(&bench, two, 0), record);
    assert_ptr_not_equal(workbench_record(&bench, one, 1), record);
    assert_ptr_equal(record->tenant, one);
    assert_null(bench.contexts[0]->tenant);
    assert_int_equal(gc_context_handle(record), gc_context_handle(bench.contexts[0]));
    assert_ptr_equal(gc_context_find(bench.core, 1), bench.contexts[0]);
    workbench_close(&bench);
}

static void freed_memory_serves_its_tenant_only(void **state)
{
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct workbench bench;
        struct gc_block_info info;
        (void)state;
        open_bench(&bench, has_mapping != 0);
        struct gc_context *one = workbench_record(&bench, add_tenant(&bench, "one"), 0);
        struct gc_context *two = workbench_record(&bench, add_tenant(&bench, "two"), 0);
        const uint64_t first = workbench_alloc_in(&bench, one, LARGE);
        assert_status(gc_lookup_block(bench.core, first, &info), GC_OK);
        assert_ptr_equal(info.owner, one);
        assert_int_equal(info.context, 1);
        workbench_free(&bench, first);
        const uint64_t second = workbench_alloc_in(&bench, two, LARGE);
        const uint64_t third = workbench_alloc(&bench, 0, LARGE);
        assert_int_not_equal(second, first);
        assert_int_not_equal(third, first);
        assert_int_equal(workbench_alloc_in(&bench, one, LARGE), first);
        workbench_free(&bench, first);
        workbench_free(&bench, second);
        workbench_free(&bench, third);
        workbench_close(&bench);
    }
}

static void a_record_goes_with_its_handle(void **state)
{
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct workbench bench;
        struct gc_context *own;
        uint64_t address;
        (void)state;
        open_bench(&bench, has_mapping != 0);
        struct gc_tenant *tenant = add_tenant(&bench, "one");
        struct gc_context *record = workbench_record(&bench, tenant, 0);
        const uint64_t lost = workbench_alloc_in(&bench, record, LARGE);
        workbench_free(&bench, workbench_alloc_in(&bench, record, 4 * MIB));
        (void)workbench_alloc_in(&bench, record, 512);
        const uint64_t kept =
            workbench_alloc_in(&bench, workbench_record(&bench, tenant, 1), LARGE);
        workbench_drop(&bench, 0);
        assert_status(workbench_try_free(&bench, lost), GC_NOT_OURS);
        assert_status(workbench_try_alloc_in(&bench, record, LARGE, &address), GC_INVALID_ARGUMENT);
        assert_status(gc_setup_tenant_context(tenant, bench.contexts[0], &own),
                      GC_INVALID_ARGUMENT);
        workbench_check(&bench);
        workbench_free(&bench, kept);
        workbench_close(&bench);
    }
}

/* ---- one handle: captures, waits, peers ---- */

/* `kept` was freed before the capture began, with work queued on it. */
static void a_capture_reaches_all_records(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *one = add_tenant(&bench, "one");
    struct gc_tenant *two = add_tenant(&bench, "two");
    struct gc_context *record = workbench_record(&bench, one, 0);
    const uint64_t used = workbench_alloc_in(&bench, record, 200 * MIB);
    const uint64_t idle = workbench_alloc_in(&bench, record, LARGE);
    workbench_free(&bench, idle);
    sim_driver_submit(&bench.sim, 1, used, 200 * MIB);
    workbench_capture(&bench, 0, true);
    struct gc_context *late = workbench_record(&bench, two, 0);
    assert_true(gc_capture_is_of_context(record));
    assert_true(gc_capture_is_of_context(late));
    assert_true(gc_capture_is_of_context(workbench_record(&bench, one, 1))); /* it may spread */
    /* The simulated driver reports a wait or a mapping in a capture. */
    workbench_free(&bench, used);
    gc_reclaim_empty(bench.core, bench.device);
    assert_false(gc_fence_record(record));
    assert_status(workbench_try_alloc_in(&bench, record, 900 * MIB, &address), GC_OUT_OF_MEMORY);
    const uint64_t plain = workbench_alloc_in(&bench, late, LARGE);
    gc_capture_begin_context(record); /* of whichever record */
    workbench_capture(&bench, 0, false);
    assert_true(gc_capture_is_of_context(record));
    gc_capture_end_context(late);
    assert_false(gc_capture_is_of_context(record));
    assert_false(gc_capture_is_of_context(late));
    assert_false(gc_capture_is_of_context(bench.contexts[0]));
    assert_int_equal(workbench_alloc_in(&bench, record, 200 * MIB), used);
    workbench_free(&bench, used);
    workbench_free(&bench, plain);
    workbench_close(&bench);
}

struct waiting {
    struct workbench *bench;
    struct gc_context *record;
    pthread_t thread;
    atomic_bool has_begun;
    atomic_bool was_early;
};

static void *begin_capture(void *argument)
{
    struct waiting *waiting = argument;
    gc_capture_begin_context(waiting->bench->contexts[0]);
    atomic_store(&waiting->has_begun, true);
    return NULL;
}

/* In the middle of the record's wait: the capture must not begin yet, but is announced. */
static void start_capture(void *argument, enum sim_call call, uint64_t context)
{
    struct waiting *waiting = argument;
    (void)context;
    if (call != SIM_SYNCHRONIZE)
        return;
    waiting->bench->sim.hook = NULL;
    assert_int_equal(pthread_create(&waiting->thread, NULL, begin_capture, waiting), 0);
    while (!gc_capture_is_of_context(waiting->record))
        sched_yield();
    if (atomic_load(&waiting->has_begun))
        atomic_store(&waiting->was_early, true);
}

static void a_capture_waits_for_the_waits_of_records(void **state)
{
    struct workbench bench;
    struct waiting waiting = {.bench = &bench};
    (void)state;
    open_bench(&bench, true);
    waiting.record = workbench_record(&bench, add_tenant(&bench, "one"), 0);
    const uint64_t address = workbench_alloc_in(&bench, waiting.record, LARGE);
    sim_driver_submit(&bench.sim, 1, address, LARGE);
    workbench_free(&bench, address);
    bench.sim.hook_argument = &waiting;
    bench.sim.hook = start_capture;
    int ignored;
    assert_status(gc_fence_synchronize(waiting.record, GC_FOREVER, &ignored), GC_OK);
    assert_null(bench.sim.hook);
    pthread_join(waiting.thread, NULL);
    assert_false(atomic_load(&waiting.was_early));
    gc_capture_end_context(bench.contexts[0]);
    workbench_close(&bench);
}

static void waits_of_the_program_free_all_records(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, true);
    struct gc_context *record = workbench_record(&bench, add_tenant(&bench, "one"), 0);
    const uint64_t a = workbench_alloc_in(&bench, record, LARGE);
    const uint64_t b = workbench_alloc(&bench, 0, LARGE);
    sim_driver_submit(&bench.sim, 1, a, LARGE);
    sim_driver_submit(&bench.sim, 1, b, LARGE);
    workbench_free(&bench, a);
    workbench_free(&bench, b);
    assert_int_equal(workbench_figures(&bench).pending.current, 2 * LARGE);
    const uint64_t epoch = gc_context_epoch(bench.contexts[0]);
    sim_driver_complete(&bench.sim, 1);
    gc_core_complete(bench.core, bench.contexts[0], epoch);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    workbench_close(&bench);
}

static void a_failure_is_that_of_all_records(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, false);
    struct gc_context *record = workbench_record(&bench, add_tenant(&bench, "one"), 0);
    const uint64_t a = workbench_alloc_in(&bench, record, LARGE);
    sim_driver_submit(&bench.sim, 1, a, LARGE);
    workbench_free(&bench, a);
    sim_driver_fail(&bench.sim, 1, true, SIM_BROKEN);
    assert_false(gc_defer_drain(record, GC_RECLAIM_WAIT_NS));
    sim_driver_fail(&bench.sim, 0, false, 0);
    assert_true(atomic_load(&bench.contexts[0]->is_faulted));
    struct gc_context *late = workbench_record(&bench, add_tenant(&bench, "two"), 0);
    assert_true(atomic_load(&late->is_faulted));
    workbench_free(&bench, workbench_alloc(&bench, 0, LARGE));
    assert_false(atomic_load(&record->is_faulted));
    assert_false(atomic_load(&late->is_faulted));
    workbench_close(&bench);
}

/* One before the record is made, one after. */
static void peers_reach_all_records(void **state)
{
    struct workbench bench;
    struct gc_device *device;
    struct gc_context *peers[2];
    const struct gc_device_info infos[2] = {{.ordinal = 3, .total_bytes = 64 * MIB},
                                            {.ordinal = 4, .total_bytes = 64 * MIB}};
    (void)state;
    open_bench(&bench, true);
    for (unsigned i = 0; i < 2; i++) {
        assert_status(gc_setup_add_device(bench.core, &infos[i], &device), GC_OK);
        assert_status(gc_setup_add_context(bench.core, 9 + i, device, &peers[i]), GC_OK);
    }
    struct gc_tenant *tenant = add_tenant(&bench, "one");
    gc_backing_add_peer(bench.contexts[0], peers[0]);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    const uint64_t a = workbench_alloc_in(&bench, record, LARGE);
    assert_true(sim_driver_is_open_to(&bench.sim, 3, a, LARGE));
    assert_false(sim_driver_is_open_to(&bench.sim, 4, a, LARGE));
    gc_backing_add_peer(bench.contexts[0], peers[1]);
    assert_true(sim_driver_is_open_to(&bench.sim, 4, a, LARGE));
    /* The peer's work on it is waited for: a synchronisation of the owner does not cover it. */
    sim_driver_submit(&bench.sim, 10, a, LARGE);
    workbench_free(&bench, a);
    const uint64_t epoch = gc_context_epoch(bench.contexts[0]);
    sim_driver_complete(&bench.sim, 1);
    gc_core_complete(bench.core, bench.contexts[0], epoch);
    assert_int_equal(workbench_figures(&bench).pending.current, LARGE);
    assert_true(gc_fence_record(record));
    assert_false(gc_fence_poll(record));
    sim_driver_complete(&bench.sim, 10);
    assert_true(gc_fence_poll(record));
    gc_defer_collect(record);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    /* A capture of the peer is one of the owner's, for its tenants too. */
    gc_capture_begin_context(peers[1]);
    assert_false(gc_fence_record(record));
    gc_capture_end_context(peers[1]);
    workbench_close(&bench);
}

static void a_crowd_of_peers_is_one_of_all_records(void **state)
{
    struct workbench bench;
    struct gc_context *peer = NULL;
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *tenant = add_tenant(&bench, "one");
    for (uint64_t i = 0; i <= GC_PEER_MAX; i++) {
        assert_status(gc_setup_add_context(bench.core, 1000 + i, bench.device, &peer), GC_OK);
        gc_backing_add_peer(bench.contexts[0], peer);
    }
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    const uint64_t a = workbench_alloc_in(&bench, record, LARGE);
    sim_driver_submit(&bench.sim, 3, a, LARGE);
    workbench_free(&bench, a);
    gc_core_complete(bench.core, bench.contexts[0], gc_context_epoch(bench.contexts[0]));
    assert_int_equal(workbench_figures(&bench).pending.current, LARGE);
    assert_true(gc_defer_drain(record, GC_RECLAIM_WAIT_NS));
    assert_int_equal(bench.sim.use_count, 0);
    workbench_close(&bench);
}

/* Records make no second context of one: the order of the one stream goes on. */
static void one_stream_stays_one(void **state)
{
    struct workbench bench;
    struct gc_block_info info;
    (void)state;
    open_bench(&bench, true);
    workbench_pretend_one_stream(&bench);
    const uint32_t contexts = bench.core->live_contexts;
    struct gc_context *record = workbench_record(&bench, add_tenant(&bench, "one"), 0);
    assert_int_equal(bench.core->live_contexts, contexts);
    assert_true(gc_submit_begin(bench.core, 77, &bench.driver_code));
    const uint64_t a = workbench_alloc_in(&bench, record, LARGE);
    sim_driver_submit(&bench.sim, 1, a, LARGE);
    workbench_free(&bench, a);
    const struct gc_request request = {.bytes = LARGE, .api = API_MALLOC};
    uint64_t again;
    assert_status(gc_alloc(bench.core, record, &request, &again, &bench.driver_code), GC_OK);
    assert_int_equal(again, a);
    assert_status(gc_lookup_block(bench.core, again, &info), GC_OK);
    workbench_free(&bench, again);
    assert_int_equal(bench.sim.use_count, 1);
    /* Its end waits for the records too. */
    assert_true(gc_submit_end_single_stream(bench.core, &bench.driver_code));
    assert_int_equal(bench.sim.use_count, 0);
    workbench_close(&bench);
}

static void a_stream_of_a_block_is_heeded(void **state)
{
    struct workbench bench;
    const struct gc_request request = {
        .bytes = LARGE, .api = API_MALLOC, .stream = 5, .is_ordered = true};
    uint64_t a;
    (void)state;
    open_bench(&bench, true);
    struct gc_context *record = workbench_record(&bench, add_tenant(&bench, "one"), 0);
    for (unsigned is_shared = 0; is_shared < 2; is_shared++) {
        assert_status(gc_alloc(bench.core, record, &request, &a, &bench.driver_code), GC_OK);
        sim_driver_submit(&bench.sim, 1, a, LARGE);
        if (is_shared != 0)
            assert_status(gc_free_record_stream(bench.core, a, 6), GC_OK);
        assert_status(gc_free_ordered(bench.core, a, NULL, 5, API_OTHER, &bench.driver_code),
                      GC_OK);
        uint64_t next;
        assert_status(gc_alloc(bench.core, record, &request, &next, &bench.driver_code), GC_OK);
        assert_int_equal(next == a, is_shared == 0);
        workbench_free(&bench, next);
        sim_driver_complete(&bench.sim, 1);
    }
    gc_core_close_stream(bench.core, 5);
    workbench_close(&bench);
}

/* ---- addresses ---- */

static void nobody_lies_between_a_tenants_blocks(void **state)
{
    struct workbench bench;
    struct gc_tenant_figures figures[2];
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *tenants[2] = {add_tenant(&bench, "one"), add_tenant(&bench, "two")};
    for (unsigned i = 0; i < 60; i++) {
        const uint64_t bytes = i % 3 == 0 ? 1000 : 5 * MIB;
        struct gc_context *record =
            i % 4 == 3 ? bench.contexts[0] : workbench_record(&bench, tenants[i % 2], 0);
        (void)workbench_alloc_in(&bench, record, bytes);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_true(gc_tenant_read(tenants[i], bench.device, &figures[i]));
        assert_int_equal(figures[i].capacity_bytes, 256 * MIB);
        assert_int_not_equal(figures[i].base_address, 0);
    }
    for (const struct gc_context *record = bench.core->all_contexts; record != NULL;
         record = record->next_of_all) {
        for (const struct gc_segment *segment = record->pool.content.segments; segment != NULL;
             segment = segment->next) {
            for (unsigned i = 0; i < 2; i++) {
                const uint64_t end = figures[i].base_address + 256 * MIB;
                const bool is_inside =
                    segment->address >= figures[i].base_address && segment->address < end;
                const bool is_large = segment->size_class == GC_CLASS_LARGE;
                assert_int_equal(is_inside, is_large && record->tenant == tenants[i]);
            }
        }
    }
    workbench_close(&bench);
}

static void a_full_range_is_out_of_memory(void **state)
{
    struct workbench bench;
    struct gc_tenant_figures figures;
    uint64_t address;
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "one", 64 * MIB, GC_BUDGET_UNLIMITED);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    workbench_free(&bench, workbench_alloc(&bench, 0, 100 * MIB)); /* idle, and nobody's business */
    const uint64_t first = workbench_alloc_in(&bench, record, 32 * MIB);
    const uint64_t second = workbench_alloc_in(&bench, record, 32 * MIB);
    const uint64_t ranges = bench.sim.range_count;
    const uint64_t releases = bench.sim.calls[SIM_PAGE_RELEASE];
    assert_status(workbench_try_alloc_in(&bench, record, 32 * MIB, &address), GC_OUT_OF_MEMORY);
    assert_int_equal(bench.sim.range_count, ranges);
    assert_int_equal(bench.sim.calls[SIM_PAGE_RELEASE], releases);
    /* Pending memory is waited for. */
    sim_driver_submit(&bench.sim, 1, first, 32 * MIB);
    workbench_free(&bench, first);
    assert_int_equal(workbench_alloc_in(&bench, record, 32 * MIB), first);
    workbench_free(&bench, second);
    /* Small blocks beyond their part have what is left of the other, and the other way round. */
    uint64_t small[48];
    for (unsigned i = 0; i < 40; i++)
        small[i] = workbench_alloc_in(&bench, record, MIB);
    assert_true(gc_tenant_read(tenant, bench.device, &figures));
    assert_int_equal(figures.oom_count, 1);
    assert_true(figures.allocated.current == 72 * MIB);
    for (unsigned i = 0; i < 40; i++)
        workbench_free(&bench, small[i]);
    workbench_free(&bench, first);
    workbench_close(&bench);
}

/* Where a tenant has no unmapped addresses left, mappings that serve nobody go, after the work. */
static void useless_mappings_make_way_after_the_work(void **state)
{
    struct workbench bench;
    uint64_t pages[4];
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "one", 16 * MIB, GC_BUDGET_UNLIMITED);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    for (unsigned i = 0; i < 4; i++)
        pages[i] = workbench_alloc_in(&bench, record, 2 * MIB);
    workbench_pretend_one_stream(&bench); /* frees do not wait then */
    struct gc_submissions *work = gc_core_submissions(bench.core);
    assert_true(gc_submit_begin(bench.core, GC_STREAM_LEGACY, &bench.driver_code));
    sim_driver_submit(&bench.sim, 1, pages[0], 2 * MIB);
    gc_submit_end(work);
    workbench_free(&bench, pages[0]);
    workbench_free(&bench, pages[2]);
    /* Two pages behind the others: of the memory of the two, in the order of the stream. */
    const struct gc_request request = {.bytes = 4 * MIB};
    uint64_t pair;
    gc_tcache_flush_stats(bench.cache);
    assert_status(gc_alloc(bench.core, record, &request, &pair, &bench.driver_code), GC_OK);
    assert_int_equal(pair, pages[3] + 2 * MIB);
    assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], 4);
    workbench_free(&bench, pages[1]);
    workbench_free(&bench, pages[3]);
    assert_int_equal(bench.sim.use_count, 1);
    assert_int_equal(bench.sim.calls[SIM_PAGE_UNMAP], 0);
    assert_int_equal(workbench_alloc_in(&bench, record, 8 * MIB), pages[0]);
    assert_int_equal(bench.sim.calls[SIM_PAGE_UNMAP], 4);
    assert_int_equal(bench.sim.use_count, 0);
    workbench_check(&bench);
    workbench_free(&bench, pair);
    workbench_close(&bench);
}

static void without_mapping_segments_serve(void **state)
{
    struct workbench bench;
    struct gc_tenant_figures figures;
    uint64_t address;
    (void)state;
    open_bench(&bench, false);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "one", 64 * MIB, 100 * MIB);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    (void)workbench_alloc_in(&bench, record, 80 * MIB);
    assert_status(workbench_try_alloc_in(&bench, record, 40 * MIB, &address), GC_OUT_OF_MEMORY);
    (void)workbench_alloc_in(&bench, record, 10 * MIB);
    assert_true(gc_tenant_read(tenant, bench.device, &figures));
    assert_int_equal(figures.base_address, 0);
    assert_int_equal(figures.allocated.current, 90 * MIB);
    workbench_close(&bench);
}

static int refuse_range(void *self, uint64_t context, uint64_t bytes, uint64_t alignment,
                        uint64_t *address)
{
    (void)self, (void)context, (void)bytes, (void)alignment, (void)address;
    return SIM_OUT_OF_MEMORY;
}

static void a_refused_range_means_plain_memory(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, true);
    bench.core->driver.address_reserve = refuse_range;
    struct gc_context *record = workbench_record(&bench, add_tenant(&bench, "one"), 0);
    const uint64_t a = workbench_alloc_in(&bench, record, LARGE);
    assert_int_equal(bench.sim.allocation_count, 1);
    workbench_free(&bench, a);
    workbench_close(&bench);
}

/* ---- figures and limits ---- */

static void figures_are_those_of_the_tenant(void **state)
{
    struct workbench bench;
    struct gc_tenant_figures figures;
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "one", 0, 200 * MIB);
    assert_false(gc_tenant_read(tenant, bench.device, &figures));
    assert_string_equal(figures.name, "one");
    struct gc_context *records[2] = {workbench_record(&bench, tenant, 0),
                                     workbench_record(&bench, tenant, 1)};
    (void)workbench_alloc(&bench, 0, 50 * MIB);
    const uint64_t a = workbench_alloc_in(&bench, records[0], 20 * MIB);
    const uint64_t b = workbench_alloc_in(&bench, records[1], 40 * MIB);
    workbench_free(&bench, a);
    const uint64_t c = workbench_alloc_in(&bench, records[0], 20 * MIB);
    sim_driver_submit(&bench.sim, 2, b, 40 * MIB);
    workbench_free(&bench, b);
    for (unsigned all = 0; all < 2; all++) {
        assert_true(gc_tenant_read(tenant, all != 0 ? NULL : bench.device, &figures));
        assert_int_equal(figures.limit_bytes, 200 * MIB);
        assert_int_equal(figures.capacity_bytes, 800 * MIB);
        assert_int_equal(figures.allocated.current, 20 * MIB);
        assert_int_equal(figures.allocated.peak, 60 * MIB);
        assert_int_equal(figures.requested.peak, 60 * MIB);
        assert_int_equal(figures.reserved.current, 60 * MIB);
        assert_int_equal(figures.pending_bytes, 40 * MIB);
        assert_int_equal(figures.idle_bytes, 0);
        assert_int_equal(figures.alloc_count, 3);
        assert_int_equal(figures.free_count, 2);
        assert_int_equal(figures.hit_count, 1);
        assert_int_equal(figures.miss_count, 2);
        assert_false(figures.is_paused || figures.is_removed);
    }
    sim_driver_complete(&bench.sim, 2);
    gc_reclaim_empty(bench.core, bench.device);
    workbench_free(&bench, c);
    gc_core_complete(bench.core, bench.contexts[0], gc_context_epoch(bench.contexts[0]));
    assert_true(gc_tenant_read(tenant, bench.device, &figures));
    assert_int_equal(figures.idle_bytes, 20 * MIB);
    assert_int_equal(figures.reserved.current, 20 * MIB);
    workbench_close(&bench);
}

static void a_limit_holds_on_each_device_and_may_change(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "one", 512 * MIB, 64 * MIB);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    const uint64_t a = workbench_alloc_in(&bench, record, 60 * MIB);
    assert_status(workbench_try_alloc_in(&bench, record, 20 * MIB, &address), GC_OUT_OF_MEMORY);
    gc_limit_set_tenant(tenant, 80 * MIB);
    assert_int_equal(gc_tenant_limit_bytes(tenant), 80 * MIB);
    const uint64_t b = workbench_alloc_in(&bench, record, 20 * MIB);
    gc_limit_set_tenant(tenant, 40 * MIB);
    assert_status(workbench_try_alloc_in(&bench, record, 2 * MIB, &address), GC_OUT_OF_MEMORY);
    workbench_free(&bench, a);
    workbench_free(&bench, workbench_alloc_in(&bench, record, 18 * MIB));
    workbench_free(&bench, b);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_unique_and_plain),
        cmocka_unit_test(there_are_so_many_at_a_time),
        cmocka_unit_test(a_record_is_the_tenants_own),
        cmocka_unit_test(freed_memory_serves_its_tenant_only),
        cmocka_unit_test(a_record_goes_with_its_handle),
        cmocka_unit_test(a_capture_reaches_all_records),
        cmocka_unit_test(a_capture_waits_for_the_waits_of_records),
        cmocka_unit_test(waits_of_the_program_free_all_records),
        cmocka_unit_test(a_failure_is_that_of_all_records),
        cmocka_unit_test(peers_reach_all_records),
        cmocka_unit_test(a_crowd_of_peers_is_one_of_all_records),
        cmocka_unit_test(one_stream_stays_one),
        cmocka_unit_test(a_stream_of_a_block_is_heeded),
        cmocka_unit_test(nobody_lies_between_a_tenants_blocks),
        cmocka_unit_test(a_full_range_is_out_of_memory),
        cmocka_unit_test(useless_mappings_make_way_after_the_work),
        cmocka_unit_test(without_mapping_segments_serve),
        cmocka_unit_test(a_refused_range_means_plain_memory),
        cmocka_unit_test(figures_are_those_of_the_tenant),
        cmocka_unit_test(a_limit_holds_on_each_device_and_may_change),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tenant", tests, NULL, NULL);
}
