/* Hits in the bins: as gc_alloc and gc_free, or not at all. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/tcache.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define BYTES UINT64_C(5000)

static uint64_t hit(struct workbench *bench, unsigned context)
{
    return gc_tcache_alloc_from_pool(bench->cache, bench->contexts[context], BYTES, API_MALLOC);
}

/* A free block in the first context's bins. */
static void open_with_memory(struct workbench *bench)
{
    workbench_open_fenced(bench, GC_MIB(1024));
    workbench_free(bench, workbench_alloc(bench, 0, BYTES));
}

static void hits_are_counted_and_call_nothing(void **state)
{
    enum { COUNT = 1 + 31 * 4 };
    struct workbench bench;
    (void)state;
    open_with_memory(&bench);
    const uint64_t calls = bench.sim.total_calls;
    const struct gc_device_snapshot before = workbench_figures(&bench);
    for (unsigned i = 0; i < COUNT; i++) {
        const uint64_t address = hit(&bench, 0);
        assert_int_not_equal(address, GC_ADDRESS_NONE);
        sim_driver_expect_idle(&bench.sim, address, BYTES);
        assert_int_equal(workbench_figures(&bench).requested.current, BYTES);
        assert_true(gc_tcache_free_to_pool(bench.core, bench.cache, address));
        workbench_check(&bench);
    }
    assert_int_equal(bench.sim.total_calls, calls);
    const struct gc_device_snapshot after = workbench_figures(&bench);
    assert_int_equal(after.hit_count - before.hit_count, COUNT);
    assert_int_equal(after.free_count - before.free_count, COUNT);
    assert_int_equal(after.requested.peak, BYTES);
    assert_int_equal(workbench_api_figures(&bench, API_MALLOC).count, COUNT + 1);
    workbench_close(&bench);
}

/* One call in 31 is timed, and counts for all of them. */
static void times_are_samples(void **state)
{
    struct workbench bench;
    struct gc_snapshot *snapshot;
    (void)state;
    open_with_memory(&bench);
    for (unsigned i = 0; i < 3100; i++)
        assert_true(gc_tcache_free_to_pool(bench.core, bench.cache, hit(&bench, 0)));
    assert_status(gc_snapshot_take(bench.core, &snapshot), GC_OK);
    assert_in_range(snapshot->alloc_latency.count, 3100 - 62, 3100 + 62);
    assert_in_range(snapshot->free_latency.count, 3100 - 62, 3100 + 62);
    gc_snapshot_free(snapshot);
    workbench_close(&bench);
}

static void busy_memory_is_not_hit(void **state)
{
    struct workbench bench;
    (void)state;
    open_with_memory(&bench);
    const uint64_t address = hit(&bench, 0);
    assert_true(gc_submit_begin(bench.core, GC_STREAM_OTHER, &bench.driver_code));
    sim_driver_submit(&bench.sim, 1, address, BYTES);
    gc_submit_end(gc_core_submissions(bench.core));
    assert_true(gc_tcache_free_to_pool(bench.core, bench.cache, address));
    assert_int_equal(workbench_figures(&bench).pending.current, 5120);
    const uint64_t other = hit(&bench, 0);
    assert_true(other == GC_ADDRESS_NONE || other != address);
    workbench_check(&bench);
    workbench_close(&bench);
}

static void wrong_frees_change_nothing(void **state)
{
    struct workbench bench;
    (void)state;
    open_with_memory(&bench);
    const uint64_t address = hit(&bench, 0);
    const struct gc_device_snapshot before = workbench_figures(&bench);
    assert_false(gc_tcache_free_to_pool(bench.core, bench.cache, address + GC_GRANULE));
    assert_false(gc_tcache_free_to_pool(bench.core, bench.cache, 4096));
    workbench_free(&bench, address);
    assert_false(gc_tcache_free_to_pool(bench.core, bench.cache, address));
    const struct gc_device_snapshot after = workbench_figures(&bench);
    assert_int_equal(after.free_count, before.free_count + 1);
    assert_int_equal(after.invalid_free_count, before.invalid_free_count);
    workbench_close(&bench);
}

static void requests_that_are_not_plain_are_left_alone(void **state)
{
    struct workbench bench;
    (void)state;
    open_with_memory(&bench);
    assert_int_equal(gc_tcache_alloc_from_pool(bench.cache, bench.contexts[0], 0, API_MALLOC),
                     GC_ADDRESS_NONE);
    assert_int_equal(
        gc_tcache_alloc_from_pool(bench.cache, bench.contexts[0], UINT64_MAX, API_MALLOC),
        GC_ADDRESS_NONE);
    assert_int_equal(hit(&bench, 1), GC_ADDRESS_NONE); /* its pool has no memory */
    const uint64_t address = hit(&bench, 0);
    const uint64_t whole = workbench_alloc_whole(&bench, 0, BYTES);
    workbench_export(&bench, whole);
    assert_false(gc_tcache_free_to_pool(bench.core, bench.cache,
                                        whole)); /* its memory goes back to the driver */
    workbench_free(&bench, whole);

    workbench_capture(&bench, 1, true);
    assert_int_equal(hit(&bench, 0), GC_ADDRESS_NONE);
    assert_false(gc_tcache_free_to_pool(bench.core, bench.cache, address));
    workbench_capture(&bench, 1, false);

    gc_contexts_set_faulted(bench.core);
    assert_int_equal(hit(&bench, 0), GC_ADDRESS_NONE);
    assert_false(gc_tcache_free_to_pool(bench.core, bench.cache, address));
    gc_context_set_faulted(bench.contexts[0], false);
    assert_true(gc_tcache_free_to_pool(bench.core, bench.cache, address));

    const uint64_t kept = workbench_alloc(&bench, 0, GC_MIB(4));
    gc_limit_set(bench.core, bench.device, GC_MIB(1));
    assert_int_equal(hit(&bench, 0), GC_ADDRESS_NONE);
    gc_limit_set(bench.core, bench.device, UINT64_MAX);
    /* Memory that was found to exist goes above a limit that nothing has enforced yet. */
    workbench_free(&bench, kept);
    workbench_free(&bench, workbench_alloc(&bench, 0, BYTES));
    gc_limit_set(bench.core, bench.device, GC_MIB(64));
    gc_direct_adjust_device(bench.core, bench.device, (int64_t)GC_MIB(128));
    assert_int_equal(hit(&bench, 0), GC_ADDRESS_NONE);
    gc_direct_adjust_device(bench.core, bench.device, -(int64_t)GC_MIB(128));
    gc_limit_set(bench.core, bench.device, UINT64_MAX);
    workbench_free(&bench, workbench_alloc(&bench, 0, BYTES));
    assert_int_not_equal(hit(&bench, 0), GC_ADDRESS_NONE);
    workbench_drop(&bench, 0);
    assert_int_equal(hit(&bench, 0), GC_ADDRESS_NONE);
    workbench_close(&bench);
}

/* A tenant's requests wait at its gate: the whole path. Its frees do not. */
static void tenants_requests_go_the_whole_path(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    bench.tenant_limit_bytes = GC_MIB(64);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "a", GC_MIB(64), GC_MIB(64));
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    const uint64_t address = workbench_alloc_in(&bench, record, BYTES);
    assert_true(gc_tcache_free_to_pool(bench.core, bench.cache, address));
    assert_int_equal(gc_tcache_alloc_from_pool(bench.cache, record, BYTES, API_MALLOC),
                     GC_ADDRESS_NONE);
    workbench_check(&bench);
    workbench_close(&bench);
}

/* The number 0 is that of blocks which no cache may take: a magazine never has it. */
static void contexts_without_a_number_have_no_hits(void **state)
{
    struct workbench bench;
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    (void)state;
    workbench_open(&bench, &setup);
    struct gc_context *ordered = gc_context_ordered(bench.contexts[0]);
    assert_non_null(ordered);
    workbench_free(&bench, workbench_alloc_ordered(&bench, ordered, BYTES));
    for (unsigned i = 0; i < GC_TCACHE_CONTEXTS + 1; i++) {
        assert_int_equal(gc_tcache_alloc_from_pool(bench.cache, ordered, BYTES, API_MALLOC),
                         GC_ADDRESS_NONE);
        assert_int_not_equal(bench.cache->contexts[i % GC_TCACHE_CONTEXTS].number, 0);
    }
    const uint64_t pinned = workbench_alloc_whole(&bench, 0, BYTES);
    workbench_export(&bench, pinned);
    assert_false(gc_tcache_free(bench.core, bench.cache, pinned));
    assert_false(gc_tcache_free_to_pool(bench.core, bench.cache, pinned));
    workbench_free(&bench, pinned);
    workbench_close(&bench);
}

/* As the contexts beyond the last number: their blocks, large ones too, are of no magazine. */
static void contexts_beyond_the_last_number_have_no_hits(void **state)
{
    struct workbench bench;
    struct gc_context *late = NULL;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    bench.core->context_count = GC_TCACHE_UNUSED - 1;
    assert_status(gc_setup_add_context(bench.core, 77, bench.device, &late), GC_OK);
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t address = workbench_alloc_in(&bench, late, GC_MIB(2));
        assert_false(gc_tcache_free(bench.core, bench.cache, address));
        assert_false(gc_tcache_free_to_pool(bench.core, bench.cache, address));
        workbench_free(&bench, address);
    }
    for (unsigned i = 0; i < GC_TCACHE_CONTEXTS; i++)
        assert_int_not_equal(bench.cache->contexts[i].number, 0);
    workbench_close(&bench);
}

/* One thread's peak over two contexts of a device is exact, though its figures are merged later. */
static void peak_over_two_contexts_is_exact(void **state)
{
    struct workbench bench;
    (void)state;
    open_with_memory(&bench);
    workbench_free(&bench, workbench_alloc(&bench, 1, BYTES));
    assert_int_equal(workbench_figures(&bench).requested.peak, BYTES);
    const uint64_t first = hit(&bench, 0);
    const uint64_t second = hit(&bench, 1);
    assert_int_not_equal(second, GC_ADDRESS_NONE);
    assert_true(gc_tcache_free_to_pool(bench.core, bench.cache, first));
    assert_true(gc_tcache_free_to_pool(bench.core, bench.cache, second));
    assert_int_equal(workbench_figures(&bench).requested.peak, 2 * BYTES);
    assert_int_equal(workbench_figures(&bench).allocated.current, 0);
    workbench_close(&bench);
}

/* Threads merge their gains and losses at different times, so the gauge may be below 0. */
static void bound_of_unmerged_figures_is_bounded(void **state)
{
    struct workbench bench;
    (void)state;
    open_with_memory(&bench);
    atomic_uint_fast64_t *gauge = &bench.device->stats.allocated.current;
    const uint64_t levels[] = {0 - GC_MIB(12), GC_MIB(12), GC_MIB(1024), GC_MIB(200 * 1024)};
    const uint64_t bounds[] = {GC_MIB(16), GC_MIB(16), GC_MIB(16), GC_MIB(512)};
    const uint64_t before = atomic_load(gauge);
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t address = hit(&bench, 0);
        assert_true(gc_tcache_free_to_pool(bench.core, bench.cache, address));
        atomic_store(gauge, levels[i]);
        gc_tcache_flush_stats(bench.cache);
        const uint16_t number = bench.contexts[0]->pool.number;
        assert_int_equal(bench.cache->contexts[number % GC_TCACHE_CONTEXTS].unmerged_max,
                         bounds[i]);
        atomic_store(gauge, before);
    }
    atomic_store(&bench.device->stats.allocated.peak, GC_MIB(1));
    workbench_close(&bench);
}

static void modes_without_thread_caches_have_no_hits(void **state)
{
    const struct workbench_setup setups[] = {
        {.mode = GC_MODE_TRACK, .is_fenced = true},
        {.mode = GC_MODE_CACHE, .is_fenced = false},
        {.mode = GC_MODE_CACHE, .is_fenced = true, .debug = GC_DEBUG_POISON},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
        struct workbench bench;
        struct workbench_setup setup = setups[i];
        setup.capacity_bytes = GC_MIB(1024);
        setup.trim_percent = 100;
        workbench_open(&bench, &setup);
        const uint64_t address = workbench_alloc(&bench, 0, BYTES);
        assert_false(gc_tcache_free_to_pool(bench.core, bench.cache, address));
        workbench_free(&bench, address);
        assert_int_equal(hit(&bench, 0), GC_ADDRESS_NONE);
        workbench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest hits[] = {
        cmocka_unit_test(hits_are_counted_and_call_nothing),
        cmocka_unit_test(times_are_samples),
        cmocka_unit_test(busy_memory_is_not_hit),
        cmocka_unit_test(wrong_frees_change_nothing),
        cmocka_unit_test(requests_that_are_not_plain_are_left_alone),
        cmocka_unit_test(tenants_requests_go_the_whole_path),
        cmocka_unit_test(contexts_without_a_number_have_no_hits),
        cmocka_unit_test(contexts_beyond_the_last_number_have_no_hits),
        cmocka_unit_test(peak_over_two_contexts_is_exact),
        cmocka_unit_test(bound_of_unmerged_figures_is_bounded),
        cmocka_unit_test(modes_without_thread_caches_have_no_hits),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tcache pool", hits, NULL, NULL);
}
