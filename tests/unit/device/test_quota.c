/* Quotas of a device: two tenants under limits of their own and the device's: charges, reclaim,
 * counts, and limits that change. */
#include "core/device/quota.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/pause/swap.h"
#include "core/reclaim/limit.h"
#include "core/reclaim/tcache.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define LIMIT GC_MIB(64)
#define HEAD 0 /* whose memory is nobody's */

/* Two tenants and what is nobody's, in one driver context. */
struct house {
    struct workbench bench;
    struct gc_tenant *tenants[2];
    struct gc_context *own[2];
};

static void open_house(struct house *house, const struct workbench_setup *setup)
{
    static const char *const names[] = {"one", "two"};
    workbench_open(&house->bench, setup);
    house->bench.tenant_limit_bytes = LIMIT;
    for (unsigned i = 0; i < 2; i++) {
        const struct gc_tenant_config config = {.name = names[i], .limit_bytes = LIMIT};
        assert_status(gc_tenant_add(house->bench.core, &config, &house->tenants[i]), GC_OK);
        assert_status(
            gc_setup_tenant_context(house->tenants[i], house->bench.contexts[HEAD], &house->own[i]),
            GC_OK);
    }
}

static struct workbench_setup setup_of(uint64_t device_limit, bool has_mapping)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .limit_bytes = device_limit,
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = true};
    return setup;
}

static void open_plain(struct house *house, uint64_t device_limit, bool has_mapping)
{
    const struct workbench_setup setup = setup_of(device_limit, has_mapping);
    open_house(house, &setup);
}

static enum gc_status try_alloc(struct house *house, struct gc_context *context, uint64_t bytes,
                                uint64_t *address)
{
    const struct gc_request request = {.bytes = bytes, .api = API_MALLOC};
    const enum gc_status status =
        gc_alloc(house->bench.core, context, &request, address, &house->bench.driver_code);
    if (status == GC_OK)
        sim_driver_expect_idle(&house->bench.sim, *address, bytes);
    return status;
}

static uint64_t alloc(struct house *house, unsigned tenant, uint64_t bytes)
{
    uint64_t address = 0;
    assert_status(try_alloc(house, house->own[tenant], bytes, &address), GC_OK);
    return address;
}

static void refuse(struct house *house, struct gc_context *context, uint64_t bytes)
{
    uint64_t address;
    assert_status(try_alloc(house, context, bytes, &address), GC_OUT_OF_MEMORY);
}

static struct gc_tenant_figures figures_of(struct house *house, unsigned tenant)
{
    struct gc_tenant_figures figures;
    assert_true(gc_tenant_read(house->tenants[tenant], house->bench.device, &figures));
    return figures;
}

static uint64_t held(struct house *house, unsigned tenant)
{
    return figures_of(house, tenant).reserved.current;
}

static uint64_t idle(struct house *house, unsigned tenant)
{
    return figures_of(house, tenant).idle_bytes;
}

/* ---- both limits hold ---- */

static void both_limits_hold(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct house house;
        open_plain(&house, GC_MIB(100), has_mapping != 0);
        const uint64_t first = alloc(&house, 0, GC_MIB(60));
        refuse(&house, house.own[0], GC_MIB(6));  /* its own limit */
        refuse(&house, house.own[1], GC_MIB(42)); /* the device's */
        assert_int_equal(figures_of(&house, 0).oom_count, 1);
        assert_int_equal(figures_of(&house, 1).oom_count, 1);
        assert_int_equal(workbench_figures(&house.bench).oom_count, 2);
        assert_int_equal(held(&house, 1), 0);
        assert_int_equal(figures_of(&house, 1).reserved.peak, 0);
        const uint64_t second = alloc(&house, 1, GC_MIB(40));
        assert_int_equal(held(&house, 0) + held(&house, 1),
                         gc_device_reserved_bytes(house.bench.device));
        refuse(&house, house.bench.contexts[HEAD], GC_MIB(2));
        workbench_check(&house.bench);
        workbench_free(&house.bench, first);
        workbench_free(&house.bench, second);
        workbench_close(&house.bench);
    }
}

static void nothing_is_tried_for_what_could_never_fit(void **state)
{
    struct house house;
    (void)state;
    open_plain(&house, 0, false);
    workbench_free(&house.bench, alloc(&house, 0, GC_MIB(32)));
    refuse(&house, house.own[0], LIMIT + 1);
    assert_int_equal(idle(&house, 0), GC_MIB(32));
    workbench_close(&house.bench);
}

static void what_the_driver_refuses_is_not_charged(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct house house;
        uint64_t address;
        open_plain(&house, 0, has_mapping != 0);
        sim_driver_fail(&house.bench.sim, 1, true, SIM_OUT_OF_MEMORY);
        refuse(&house, house.own[0], GC_MIB(8));
        sim_driver_fail(&house.bench.sim, 1, true, SIM_BROKEN);
        assert_status(try_alloc(&house, house.own[0], GC_MIB(8), &address), GC_DRIVER);
        sim_driver_fail(&house.bench.sim, 0, false, 0);
        assert_int_equal(held(&house, 0), 0);
        assert_int_equal(figures_of(&house, 0).reserved.peak, 0);
        assert_int_equal(figures_of(&house, 0).oom_count, 1);
        workbench_free(&house.bench, alloc(&house, 0, GC_MIB(8)));
        workbench_close(&house.bench);
    }
}

static void a_charge_that_the_device_refuses_leaves_no_mark(void **state)
{
    struct house house;
    struct gc_charge sums;
    struct gc_charge_failure charge_failure = {0};
    (void)state;
    open_plain(&house, GC_MIB(16), false);
    struct gc_device *device = house.bench.device;
    struct gc_quota *quota = house.own[0]->quota;
    const uint64_t before = gc_idle_generation(&quota->idle);
    assert_false(gc_quota_charge(device, quota, GC_MIB(17), &sums, &charge_failure));
    assert_false(charge_failure.is_quota_short);
    assert_int_equal(charge_failure.quota_rollback_count, 1);
    /* For requests that failed because of the charge that was rolled back. */
    assert_int_equal(gc_idle_generation(&quota->idle), before + 1);
    assert_int_equal(held(&house, 0), 0);
    assert_false(gc_quota_charge(device, quota, LIMIT + 1, &sums, &charge_failure));
    assert_true(charge_failure.is_quota_short);
    assert_int_equal(gc_device_reserved_bytes(device), 0);
    assert_true(gc_quota_charge(device, quota, GC_MIB(16), &sums, &charge_failure));
    assert_int_equal(figures_of(&house, 0).reserved.peak, GC_MIB(16)); /* at least what is held */
    gc_quota_uncharge(device, quota, GC_MIB(16));
    assert_int_equal(figures_of(&house, 0).reserved.peak, 0); /* it was never confirmed */
    workbench_close(&house.bench);
}

/* ---- whose memory is reclaimed ---- */

static void a_tenant_at_its_limit_leaves_others_alone(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct house house;
        open_plain(&house, 0, has_mapping != 0);
        workbench_free(&house.bench, alloc(&house, 1, GC_MIB(24)));
        workbench_free(&house.bench, workbench_alloc(&house.bench, HEAD, GC_MIB(24)));
        const uint64_t kept = alloc(&house, 0, GC_MIB(32));
        workbench_free(&house.bench, alloc(&house, 0, GC_MIB(24)));
        const uint64_t large = alloc(&house, 0, GC_MIB(30)); /* in place of its own idle memory */
        refuse(&house, house.own[0], GC_MIB(4));
        assert_int_equal(idle(&house, 1), GC_MIB(24));
        assert_int_equal(gc_device_idle_bytes(house.bench.device), idle(&house, 0) + GC_MIB(48));
        assert_true(held(&house, 0) <= LIMIT);
        workbench_free(&house.bench, kept);
        workbench_free(&house.bench, large);
        workbench_close(&house.bench);
    }
}

static void a_device_that_is_short_takes_from_all(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct house house;
        open_plain(&house, GC_MIB(80), has_mapping != 0);
        workbench_free(&house.bench, alloc(&house, 1, GC_MIB(40)));
        workbench_free(&house.bench, workbench_alloc(&house.bench, HEAD, GC_MIB(30)));
        const uint64_t block = alloc(&house, 0, GC_MIB(60));
        assert_true(idle(&house, 1) < GC_MIB(40));
        workbench_check(&house.bench);
        workbench_free(&house.bench, block);
        workbench_close(&house.bench);
    }
}

/* Both limits in one request: its own idle memory is released for the quota, another's for the
 * device.
 */
static void a_request_may_need_room_in_both(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct house house;
        open_plain(&house, GC_MIB(80), has_mapping != 0);
        workbench_free(&house.bench, alloc(&house, 1, GC_MIB(30)));
        workbench_free(&house.bench, alloc(&house, 0, GC_MIB(48)));
        const uint64_t block = alloc(&house, 0, GC_MIB(62));
        workbench_check(&house.bench);
        workbench_free(&house.bench, block);
        workbench_close(&house.bench);
    }
}

static uint64_t waits(const struct workbench *bench)
{
    return bench->sim.calls[SIM_SYNCHRONIZE] + bench->sim.calls[SIM_FENCE_WAIT];
}

static void only_its_own_pending_memory_is_waited_for(void **state)
{
    struct house house;
    (void)state;
    open_plain(&house, 0, false);
    struct workbench *bench = &house.bench;
    int code;
    (void)gc_submit_leave_single_stream(bench->core, &code);
    const uint64_t kept = alloc(&house, 0, GC_MIB(60));
    const uint64_t other = alloc(&house, 1, GC_MIB(24));
    sim_driver_submit(&bench->sim, 1, other, GC_MIB(24));
    workbench_free(bench, other);
    assert_int_equal(figures_of(&house, 1).pending_bytes, GC_MIB(24));
    const uint64_t before = waits(bench);
    refuse(&house, house.own[0], GC_MIB(8));
    assert_int_equal(waits(bench), before);
    assert_int_equal(figures_of(&house, 1).pending_bytes, GC_MIB(24));
    sim_driver_submit(&bench->sim, 1, kept, GC_MIB(60));
    workbench_free(bench, kept);
    workbench_free(bench, alloc(&house, 0, GC_MIB(62))); /* now there is something to wait for */
    assert_true(waits(bench) > before);
    gc_reclaim_empty(bench->core, bench->device);
    workbench_close(bench);
}

/* ---- limits that change ---- */

static void a_lower_limit_takes_what_is_idle_and_holds(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct house house;
        open_plain(&house, 0, has_mapping != 0);
        const uint64_t kept = alloc(&house, 0, GC_MIB(24));
        workbench_free(&house.bench, alloc(&house, 0, GC_MIB(32)));
        workbench_free(&house.bench, alloc(&house, 1, GC_MIB(32)));
        gc_limit_set_tenant(house.tenants[0], GC_MIB(30));
        assert_true(held(&house, 0) <= GC_MIB(30));
        assert_int_equal(idle(&house, 1), GC_MIB(32));    /* another's limit */
        gc_limit_set_tenant(house.tenants[0], GC_MIB(8)); /* below what is live */
        assert_int_equal(held(&house, 0), GC_MIB(24));
        refuse(&house, house.own[0], 512);
        assert_int_equal(house.own[0]->tcache_bytes, 0);
        workbench_free(&house.bench, alloc(&house, 1, GC_MIB(48)));
        workbench_free(&house.bench, kept);
        workbench_free(&house.bench, alloc(&house, 0, 512));
        assert_true(held(&house, 0) <= GC_MIB(8));
        gc_limit_set_tenant(house.tenants[0], LIMIT);
        assert_true(house.own[0]->tcache_bytes > 0);
        workbench_free(&house.bench, alloc(&house, 0, GC_MIB(48)));
        workbench_close(&house.bench);
    }
}

static void nothing_is_served_above_the_limit(void **state)
{
    struct house house;
    uint64_t blocks[3];
    (void)state;
    open_plain(&house, 0, false);
    for (unsigned i = 0; i < 3; i++)
        blocks[i] = alloc(&house, 0, GC_KIB(100));
    workbench_free(&house.bench, blocks[1]); /* a free block between live ones */
    const uint64_t before = held(&house, 0);
    gc_limit_set_tenant(house.tenants[0], GC_KIB(512));
    refuse(&house, house.own[0], GC_KIB(100));
    gc_limit_set_tenant(house.tenants[0], before);
    blocks[1] = alloc(&house, 0, GC_KIB(100)); /* at the limit is not above it */
    for (unsigned i = 0; i < 3; i++)
        workbench_free(&house.bench, blocks[i]);
    workbench_close(&house.bench);
}

static void what_is_freed_above_the_limit_goes_back(void **state)
{
    struct house house;
    (void)state;
    open_plain(&house, 0, true);
    uint64_t blocks[8];
    for (unsigned i = 0; i < 8; i++)
        blocks[i] = alloc(&house, 0, GC_MIB(4));
    gc_limit_set_tenant(house.tenants[0], GC_MIB(16));
    for (unsigned i = 0; i < 8; i++) {
        workbench_free(&house.bench, blocks[i]);
        assert_true(held(&house, 0) <= gc_max_u64(GC_MIB(16), GC_MIB(4) * (7 - i)));
    }
    workbench_close(&house.bench);
}

/* ---- memory that a thread sees ---- */

static uint64_t available(struct house *house, const struct gc_quota *quota)
{
    uint64_t bytes = 0;
    assert_status(gc_available_bytes(house->bench.core, house->bench.device, quota, &bytes,
                                     &house->bench.driver_code),
                  GC_OK);
    return bytes;
}

static void available_bytes_are_served(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct house house;
        uint64_t free_bytes = GC_MIB(1000);
        uint64_t total_bytes = GC_MIB(1024);
        open_plain(&house, GC_MIB(100), has_mapping != 0);
        const struct gc_quota *quotas[] = {house.own[0]->quota, house.own[1]->quota};
        assert_int_equal(available(&house, quotas[0]), LIMIT);
        gc_available_mem_info(house.bench.core, house.bench.device, quotas[0], &free_bytes,
                              &total_bytes);
        assert_int_equal(total_bytes, LIMIT);
        const uint64_t kept = alloc(&house, 0, GC_MIB(24));
        workbench_free(&house.bench, alloc(&house, 0, GC_MIB(30))); /* idle is free */
        assert_int_equal(available(&house, quotas[0]), GC_MIB(40));
        assert_int_equal(available(&house, quotas[1]), LIMIT);
        const uint64_t others = workbench_alloc(&house.bench, HEAD, GC_MIB(50));
        assert_int_equal(available(&house, quotas[1]), GC_MIB(26)); /* what the device has left */
        assert_int_equal(available(&house, NULL), GC_MIB(26));
        workbench_free(&house.bench, alloc(&house, 1, GC_MIB(26)));
        refuse(&house, house.own[1], GC_MIB(28));
        workbench_free(&house.bench, others);
        workbench_free(&house.bench, alloc(&house, 0, GC_MIB(40)));
        workbench_free(&house.bench, kept);
        workbench_close(&house.bench);
    }
}

/* Blocks of random sizes come and go in two tenants and beside them. Then the figure can be had, in
 * pieces of the unit in which it counts. */
static void available_bytes_are_served_in_pieces(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 40; seed++) {
        struct house house;
        uint64_t blocks[60], count = 0, random = seed;
        open_plain(&house, GC_MIB(100), seed % 2 != 0);
        struct gc_context *records[] = {house.own[0], house.own[1], house.bench.contexts[HEAD]};
        for (unsigned step = 0; step < 60; step++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            struct gc_context *record = records[(random >> 33) % 3];
            if ((random >> 40) % 3 == 0 && count > 0)
                workbench_free(&house.bench, blocks[--count]);
            else if (try_alloc(&house, record, GC_KIB(1 + (random >> 45) % 20000),
                               &blocks[count]) == GC_OK)
                count++;
            if ((random >> 50) % 4 == 0 && count > 1) { /* not only the last one goes */
                workbench_free(&house.bench, blocks[0]);
                blocks[0] = blocks[--count];
            }
        }
        struct gc_context *record = records[seed % 3];
        const uint64_t bytes = available(&house, record->quota);
        uint64_t had = 0, address;
        while (try_alloc(&house, record, GC_SEGMENT_UNIT, &address) == GC_OK)
            had += GC_SEGMENT_UNIT;
        if (had / GC_SEGMENT_UNIT != bytes / GC_SEGMENT_UNIT)
            fail_msg("seed %u: %llu KiB shown, %llu had", seed, (unsigned long long)bytes >> 10,
                     (unsigned long long)had >> 10);
        workbench_close(&house.bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_limits_hold),
        cmocka_unit_test(nothing_is_tried_for_what_could_never_fit),
        cmocka_unit_test(what_the_driver_refuses_is_not_charged),
        cmocka_unit_test(a_charge_that_the_device_refuses_leaves_no_mark),
        cmocka_unit_test(a_tenant_at_its_limit_leaves_others_alone),
        cmocka_unit_test(a_device_that_is_short_takes_from_all),
        cmocka_unit_test(a_request_may_need_room_in_both),
        cmocka_unit_test(only_its_own_pending_memory_is_waited_for),
        cmocka_unit_test(a_lower_limit_takes_what_is_idle_and_holds),
        cmocka_unit_test(nothing_is_served_above_the_limit),
        cmocka_unit_test(what_is_freed_above_the_limit_goes_back),
        cmocka_unit_test(available_bytes_are_served),
        cmocka_unit_test(available_bytes_are_served_in_pieces),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
