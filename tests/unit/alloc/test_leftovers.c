/* The leftovers of contexts and tenants that ended: records that may be read at any time, and
 * little host memory, however many there were. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/reclaim/defer.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define ROUNDS 100
#define BLOCKS 64
/* For one iteration: records in their stores, and what the pagemap needs for addresses that the
 * driver never gives again, as the simulated one does not: the tables of a GiB, and edges. */
#define CONTEXT_BYTES_MAX GC_KIB(12)
#define TENANT_BYTES_MAX GC_KIB(21)

static void open_mapped(struct workbench *bench)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
}

static uint64_t host_bytes(const struct workbench *bench)
{
    return gc_host_mem_bytes(&bench->core->host) + gc_host_mem_bytes(&bench->device->host);
}

static void free_busy(struct workbench *bench, uint64_t handle, uint64_t address)
{
    sim_driver_submit(&bench->sim, handle, address, 512);
    workbench_free(bench, address);
}

/* As a thread may that found the record before. */
static void ask_dropped(struct workbench *bench, struct gc_context *context)
{
    bool ignored = false;
    uint64_t address;
    int code;
    assert_false(gc_fence_poll(context));
    assert_false(gc_fence_record(context));
    assert_false(gc_fence_wait_oldest(context, GC_FOREVER, &ignored));
    assert_false(gc_defer_reclaim(context, GC_MIB(1)));
    assert_false(gc_defer_wait_oldest(context, GC_FOREVER, &ignored));
    gc_defer_on_flush(context);
    gc_fence_drop(context);
    gc_core_complete(bench->core, context, gc_context_epoch(context));
    assert_status(gc_fence_synchronize(context, GC_FOREVER, &code), GC_OK);
    assert_status(workbench_try_alloc_in(bench, context, 4096, &address), GC_INVALID_ARGUMENT);
}

static void contexts_leave_little(void **state)
{
    const uint64_t handle = WORKBENCH_CONTEXTS;
    struct gc_context *first = NULL;
    struct workbench bench;
    uint64_t before = 0;
    (void)state;
    open_mapped(&bench);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct gc_context *context;
        if (round == ROUNDS / 2)
            before = host_bytes(&bench);
        assert_status(gc_setup_add_context(bench.core, handle, bench.device, &context), GC_OK);
        assert_ptr_not_equal(context, first);
        for (unsigned i = 1; i < GC_FENCES_MAX; i++) { /* the first free records one, too */
            free_busy(&bench, handle, workbench_alloc_in(&bench, context, GC_MIB(1)));
            assert_true(i == 0 || gc_fence_record(context)); /* the first free records one */
        }
        (void)workbench_alloc_in(&bench, context, 5000);
        workbench_drop(&bench, WORKBENCH_CONTEXTS - 1);
        ask_dropped(&bench, context);
        first = first == NULL ? context : first;
    }
    ask_dropped(&bench, first);
    print_message("# %llu a context\n",
                  (unsigned long long)(host_bytes(&bench) - before) / (ROUNDS / 2));
    assert_true(host_bytes(&bench) - before <= (uint64_t)(ROUNDS / 2) * CONTEXT_BYTES_MAX);
    workbench_close(&bench);
}

/* One that fills a good part of its addresses, and ends. */
static void use_tenant(struct workbench *bench)
{
    uint64_t blocks[BLOCKS];
    struct gc_tenant *tenant = workbench_add_tenant(bench, "one", GC_MIB(256), GC_BUDGET_UNLIMITED);
    struct gc_context *record = workbench_record(bench, tenant, 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = workbench_alloc_in(bench, record, GC_MIB(2));
    for (unsigned i = 0; i < BLOCKS; i++)
        free_busy(bench, 1, blocks[i]);
    assert_status(gc_tenant_remove(bench->core, tenant), GC_OK);
    ask_dropped(bench, record);
}

static void tenants_leave_little(void **state)
{
    (void)state;
    for (unsigned has_captured = 0; has_captured < 2; has_captured++) {
        struct workbench bench;
        uint64_t before = 0;
        open_mapped(&bench);
        if (has_captured) {
            workbench_capture(&bench, 0, true);
            workbench_capture(&bench, 0, false);
        }
        for (unsigned round = 0; round < ROUNDS; round++) {
            if (round == ROUNDS / 2)
                before = host_bytes(&bench);
            use_tenant(&bench);
        }
        print_message("# %llu a tenant\n",
                      (unsigned long long)(host_bytes(&bench) - before) / (ROUNDS / 2));
        assert_true(host_bytes(&bench) - before <= (uint64_t)(ROUNDS / 2) * TENANT_BYTES_MAX);
        /* No graph that may use them outlives the driver's context. */
        assert_int_equal(atomic_load(&bench.core->kept_range_count), has_captured ? ROUNDS : 0);
        assert_int_equal(bench.sim.range_count, has_captured ? ROUNDS : 0);
        workbench_drop(&bench, 1);
        assert_int_equal(bench.sim.range_count, has_captured ? ROUNDS : 0);
        workbench_drop(&bench, 0);
        assert_int_equal(atomic_load(&bench.core->kept_range_count), 0);
        assert_int_equal(bench.sim.range_count, 0);
        workbench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_leave_little),
        cmocka_unit_test(tenants_leave_little),
    };
    return cmocka_run_group_tests_name("leftovers", tests, NULL, NULL);
}
