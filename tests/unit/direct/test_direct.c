/* Direct memory: charges, records, records that end with a context; and the table of records
 * itself.
 */
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/ledger/ledger.h"
#include "core/reclaim/reconcile.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"
#include "tests/unit/workbench.h"

#include <stdlib.h>

static struct gc_direct record_of(struct workbench *bench, enum gc_direct_kind kind, uint64_t key,
                                  uint64_t bytes)
{
    return (struct gc_direct){.kind = kind,
                              .key = key,
                              .requested_bytes = bytes,
                              .charged_bytes = bytes,
                              .device = bench->device,
                              .context = bench->contexts[0],
                              .api = API_OTHER};
}

static void add(struct workbench *bench, const struct gc_direct *direct)
{
    assert_status(gc_direct_charge_device(bench->core, bench->device, NULL, direct->charged_bytes),
                  GC_OK);
    assert_status(gc_direct_track(bench->core, direct), GC_OK);
    gc_direct_commit(bench->core, bench->device, NULL);
}

static void charge_lives_as_long_as_the_record(void **state)
{
    struct workbench bench;
    struct gc_direct found;
    (void)state;
    workbench_open_plain(&bench);
    const struct gc_direct direct = record_of(&bench, GC_DIRECT_ARRAY, 77, 5000);
    add(&bench, &direct);
    assert_int_equal(workbench_figures(&bench).reserved.current, 5000);
    assert_int_equal(workbench_figures(&bench).requested.current, 5000);
    assert_int_equal(workbench_figures(&bench).leak_count, 1);
    assert_status(gc_direct_find(bench.core, GC_DIRECT_ARRAY, 77, &found), GC_OK);
    assert_int_equal(found.requested_bytes, 5000);
    assert_status(gc_direct_find(bench.core, GC_DIRECT_HANDLE, 77, &found), GC_NOT_OURS);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_ARRAY, 77, &found), GC_OK);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_ARRAY, 77, NULL), GC_NOT_OURS);
    assert_int_equal(found.charged_bytes, 5000);
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.reserved.peak, 5000);
    assert_int_equal(figures.alloc_count, 1);
    assert_int_equal(figures.free_count, 1);
    assert_int_equal(workbench_api_figures(&bench, API_OTHER).peak_bytes, 5000);
    workbench_close(&bench);
}

static void charge_reclaims_and_stops_at_the_limit(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_limited(&bench, GC_MIB(64));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    assert_status(gc_direct_charge_device(bench.core, bench.device, NULL, GC_MIB(50)), GC_OK);
    assert_int_equal(bench.sim.used_bytes, 0);
    assert_status(gc_direct_charge_device(bench.core, bench.device, NULL, GC_MIB(15)),
                  GC_OUT_OF_MEMORY);
    assert_status(gc_direct_charge_device(bench.core, bench.device, NULL, UINT64_MAX),
                  GC_OUT_OF_MEMORY);
    assert_status(gc_direct_charge_device(bench.core, bench.device, NULL, 0), GC_OK);
    assert_int_equal(workbench_figures(&bench).oom_count, 2);
    gc_direct_uncharge(bench.core, bench.device, NULL, GC_MIB(50));
    workbench_close(&bench);
}

static void reclaim_returns_whether_anything_was_released(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    assert_false(gc_direct_reclaim(bench.core, bench.device, 1, true));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    assert_true(gc_direct_reclaim(bench.core, bench.device, 1, true));
    assert_int_equal(bench.sim.used_bytes, 0);
    assert_false(gc_direct_reclaim(bench.core, bench.device, 1, true));
    workbench_close(&bench);
}

static void other_kinds_are_no_allocations(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    struct gc_direct host = record_of(&bench, GC_DIRECT_HOST, 1, 1000);
    host.charged_bytes = 0;
    const struct gc_direct context = record_of(&bench, GC_DIRECT_CONTEXT, 1, 300);
    add(&bench, &host);
    add(&bench, &context);
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.alloc_count, 0);
    assert_int_equal(figures.requested.current, 0);
    assert_int_equal(figures.leak_count, 0);
    assert_int_equal(figures.reserved.current, 300);
    assert_int_equal(figures.direct_bytes[GC_DIRECT_HOST], 1000);
    assert_int_equal(workbench_api_figures(&bench, API_OTHER).count, 2);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_HOST, 1, NULL), GC_OK);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_CONTEXT, 1, NULL), GC_OK);
    assert_int_equal(workbench_api_figures(&bench, API_OTHER).current_bytes, 0);
    workbench_close(&bench);
}

static void host_memory_may_belong_to_no_device(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    struct gc_direct host = record_of(&bench, GC_DIRECT_HOST, 1, 1000);
    host.charged_bytes = 0;
    host.device = NULL;
    assert_status(gc_direct_track(bench.core, &host), GC_OK);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_HOST, 1, NULL), GC_OK);
    workbench_close(&bench);
}

static void records_end_with_their_context(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    for (uint64_t key = 1; key <= 500; key++) {
        struct gc_direct direct = record_of(&bench, GC_DIRECT_MEMORY, key << 9, 1 << 10);
        direct.context = key % 2 == 0 ? bench.contexts[0] : NULL;
        add(&bench, &direct);
    }
    workbench_drop(&bench, 0);
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.leak_count, 250);
    assert_int_equal(figures.reserved.current, 250 << 10);
    assert_int_equal(figures.free_count, 0);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_MEMORY, 2 << 9, NULL), GC_NOT_OURS);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_MEMORY, 3 << 9, NULL), GC_OK);
    workbench_close(&bench);
}

/* A thread's call succeeds, another thread destroys the context, and only then the first records:
 * that memory is gone, and its address may be another allocation's by now. */
static void a_destroyed_context_takes_no_record(void **state)
{
    struct workbench bench;
    struct gc_direct found;
    (void)state;
    workbench_open_plain(&bench);
    const struct gc_direct late = record_of(&bench, GC_DIRECT_MEMORY, 512, 1000);
    struct gc_direct next = late;
    next.context = bench.contexts[1];
    next.requested_bytes = next.charged_bytes = 3000;
    assert_status(gc_direct_charge_device(bench.core, bench.device, NULL, 1000), GC_OK);
    workbench_drop(&bench, 0);
    assert_status(gc_direct_track(bench.core, &late), GC_GONE);
    assert_status(gc_direct_find(bench.core, GC_DIRECT_MEMORY, 512, &found), GC_NOT_OURS);
    add(&bench, &next);
    assert_status(gc_direct_track(bench.core, &late), GC_GONE);
    gc_direct_uncharge(bench.core, bench.device, NULL, 1000);
    assert_status(gc_direct_find(bench.core, GC_DIRECT_MEMORY, 512, &found), GC_OK);
    assert_ptr_equal(found.context, bench.contexts[1]);
    assert_int_equal(workbench_figures(&bench).reserved.current, 3000);
    workbench_close(&bench);
}

static void key_that_comes_again_replaces_its_record(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const struct gc_direct first = record_of(&bench, GC_DIRECT_MEMORY, 512, 1000);
    const struct gc_direct second = record_of(&bench, GC_DIRECT_MEMORY, 512, 3000);
    add(&bench, &first);
    add(&bench, &second);
    assert_int_equal(workbench_figures(&bench).reserved.current, 3000);
    assert_int_equal(workbench_figures(&bench).leak_bytes, 3000);
    workbench_close(&bench);
}

static void adjust_never_goes_below_nothing(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    gc_direct_adjust_device(bench.core, bench.device, 1000);
    assert_int_equal(workbench_figures(&bench).reserved.current, 1000);
    gc_direct_adjust_device(bench.core, bench.device, -5000);
    assert_int_equal(workbench_figures(&bench).reserved.current, 0);
    gc_direct_adjust_device(bench.core, bench.device, INT64_MIN);
    assert_int_equal(workbench_figures(&bench).reserved.current, 0);
    workbench_close(&bench);
}

static void count_none(const struct gc_direct *direct)
{
    (void)direct;
}

/* The table against a plain array, with growth in between. */
static void tracker_agrees_with_a_model(void **state)
{
    enum { KEYS = 4000, STEPS = 60000 };
    static uint64_t model[KEYS];
    struct gc_host_mem host = {0};
    static struct gc_tracker tracker;
    unsigned seed = 12345;
    (void)state;
    gc_tracker_init(&tracker, &host);
    for (unsigned step = 0; step < STEPS; step++) {
        const uint64_t key = (uint64_t)rand_r(&seed) % KEYS;
        struct gc_direct direct = {
            .kind = GC_DIRECT_HANDLE, .key = key << 21, .requested_bytes = step + 1};
        struct gc_direct got = {.requested_bytes = 0};
        bool replaced;
        if (rand_r(&seed) % 2 == 0) {
            assert_status(gc_tracker_add(&tracker, &direct, count_none, &replaced, &got), GC_OK);
            assert_int_equal(replaced, model[key] != 0);
            model[key] = direct.requested_bytes;
        } else {
            assert_int_equal(gc_tracker_find(&tracker, GC_DIRECT_HANDLE, key << 21, &got),
                             model[key] != 0);
            assert_int_equal(got.requested_bytes, model[key]);
            assert_int_equal(gc_tracker_remove(&tracker, GC_DIRECT_HANDLE, key << 21, &got),
                             model[key] != 0);
            model[key] = 0;
        }
    }
    gc_tracker_fini(&tracker);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
}

/* One address has one record, whatever its kind; handles of other kinds share the number. */
static void an_address_has_one_record(void **state)
{
    static const enum gc_direct_kind kinds[] = {GC_DIRECT_MEMORY, GC_DIRECT_ASYNC,
                                                GC_DIRECT_MANAGED, GC_DIRECT_IMPORT};
    struct gc_direct direct = {.kind = GC_DIRECT_HOST, .key = 77, .requested_bytes = 1};
    struct gc_direct found;
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    assert_status(gc_direct_track(bench.core, &direct), GC_OK);
    assert_status(gc_direct_find_address(bench.core, 77, &found), GC_NOT_OURS);
    for (unsigned i = 0; i < 4; i++) {
        direct.kind = kinds[i];
        assert_status(gc_direct_track(bench.core, &direct), GC_OK);
        assert_status(gc_direct_find_address(bench.core, 77, &found), GC_OK);
        assert_int_equal(found.kind, kinds[i]);
        assert_status(gc_direct_find_address(bench.core, 78, &found), GC_NOT_OURS);
        direct.kind = kinds[(i + 1) % 4];
        assert_status(gc_direct_track(bench.core, &direct), GC_BUSY);
        assert_status(gc_direct_untrack(bench.core, kinds[i], 77, NULL), GC_OK);
    }
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_HOST, 77, NULL), GC_OK);
    workbench_close(&bench);
}

static void end_mark(struct workbench *bench, bool is_released)
{
    struct gc_direct marked;
    assert_status(gc_direct_mark_address(bench->core, 77 << 9, &marked), GC_OK);
    gc_direct_end_mark(bench->core, &marked, is_released);
}

/* The driver may give the key to another allocation before the release has returned: that one has
 * no record until the former one's is removed, and the figures hold one of the two at a time. */
static void a_key_that_is_released_is_busy(void **state)
{
    struct workbench bench;
    struct gc_direct marked, found;
    (void)state;
    workbench_open_plain(&bench);
    const struct gc_direct direct = record_of(&bench, GC_DIRECT_MEMORY, 77 << 9, 1000);
    add(&bench, &direct);
    assert_status(gc_direct_mark(bench.core, GC_DIRECT_ARRAY, 77 << 9, &marked), GC_NOT_OURS);
    assert_status(gc_direct_mark_address(bench.core, 77 << 9, &marked), GC_OK);
    assert_status(gc_direct_find(bench.core, GC_DIRECT_MEMORY, 77 << 9, &found), GC_OK);
    assert_true(found.is_releasing);
    assert_status(gc_direct_track(bench.core, &direct), GC_BUSY);
    assert_int_equal(workbench_figures(&bench).requested.peak, 1000);
    gc_direct_end_mark(bench.core, &marked, false); /* the driver refused */
    assert_status(gc_direct_find(bench.core, GC_DIRECT_MEMORY, 77 << 9, &found), GC_OK);
    assert_false(found.is_releasing);
    end_mark(&bench, true);
    assert_int_equal(workbench_figures(&bench).requested.current, 0);
    assert_int_equal(workbench_figures(&bench).reserved.current, 0);
    assert_int_equal(workbench_figures(&bench).free_count, 1);
    assert_status(gc_direct_mark_address(bench.core, 77 << 9, &marked), GC_NOT_OURS);
    workbench_close(&bench);
}

/* Two frees of one address: the driver refuses one, and the record stays marked for the other. A
 * record that was added after the release is not its. */
static void each_release_ends_its_own_mark(void **state)
{
    struct workbench bench;
    struct gc_direct first, second, found;
    (void)state;
    workbench_open_plain(&bench);
    const struct gc_direct direct = record_of(&bench, GC_DIRECT_MEMORY, 77 << 9, 1000);
    add(&bench, &direct);
    assert_status(gc_direct_mark_address(bench.core, 77 << 9, &first), GC_OK);
    assert_status(gc_direct_mark_address(bench.core, 77 << 9, &second), GC_OK);
    gc_direct_end_mark(bench.core, &second, false);
    assert_status(gc_direct_track(bench.core, &direct), GC_BUSY);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_MEMORY, 77 << 9, NULL), GC_OK);
    add(&bench, &direct);
    gc_direct_end_mark(bench.core, &first, true);
    assert_status(gc_direct_find(bench.core, GC_DIRECT_MEMORY, 77 << 9, &found), GC_OK);
    assert_int_equal(workbench_figures(&bench).reserved.current, 1000);
    assert_false(gc_device_wait_releases(bench.device, NULL, 1000000000));
    end_mark(&bench, true);
    workbench_close(&bench);
}

/* The record that the release marked is removed by another thread, and its successor is marked by
 * the next release: the first one's end leaves that alone, whatever it says. */
static void a_release_leaves_a_marked_successor_alone(void **state)
{
    struct workbench bench;
    struct gc_direct marked, successor, found;
    (void)state;
    for (unsigned is_released = 0; is_released < 2; is_released++) {
        workbench_open_plain(&bench);
        const struct gc_direct first = record_of(&bench, GC_DIRECT_MEMORY, 77 << 9, 1000000);
        const struct gc_direct second = record_of(&bench, GC_DIRECT_MEMORY, 77 << 9, 512);
        add(&bench, &first);
        assert_status(gc_direct_mark_address(bench.core, 77 << 9, &marked), GC_OK);
        assert_status(gc_direct_untrack(bench.core, GC_DIRECT_MEMORY, 77 << 9, NULL), GC_OK);
        assert_false(gc_direct_is_there(bench.core, &marked));
        add(&bench, &second);
        assert_false(gc_direct_is_there(bench.core, &marked));
        assert_status(gc_direct_mark_address(bench.core, 77 << 9, &successor), GC_OK);
        gc_direct_end_mark(bench.core, &marked, is_released != 0);
        assert_true(gc_direct_is_there(bench.core, &successor));
        assert_status(gc_direct_find(bench.core, GC_DIRECT_MEMORY, 77 << 9, &found), GC_OK);
        assert_true(found.is_releasing);
        assert_int_equal(workbench_figures(&bench).reserved.current, 512);
        gc_direct_end_mark(bench.core, &successor, true);
        assert_int_equal(workbench_figures(&bench).reserved.current, 0);
        assert_int_equal(workbench_figures(&bench).free_count, 2);
        workbench_close(&bench);
    }
}

/* The driver gives the address to core before the release of its former allocation has returned:
 * the next free is of core's block. */
static void a_block_of_core_goes_before_a_record(void **state)
{
    const struct workbench_setup setup = {
        .mode = GC_MODE_TRACK, .capacity_bytes = GC_MIB(64), .trim_percent = 100};
    struct workbench bench;
    struct gc_direct marked, second;
    (void)state;
    workbench_open(&bench, &setup);
    const uint64_t address = workbench_alloc(&bench, 0, GC_MIB(2));
    workbench_free(&bench, address);
    const struct gc_direct direct = record_of(&bench, GC_DIRECT_MEMORY, address, 1000);
    add(&bench, &direct);
    assert_status(gc_direct_mark_address(bench.core, address, &marked), GC_OK);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(2)), address);
    assert_status(gc_direct_mark_address(bench.core, address, &second), GC_NOT_OURS);
    workbench_free(&bench, address);
    assert_int_equal(workbench_figures(&bench).reserved.current, 1000);
    assert_status(gc_direct_mark_address(bench.core, address, &second), GC_OK);
    gc_direct_end_mark(bench.core, &second, false);
    gc_direct_end_mark(bench.core, &marked, true);
    assert_int_equal(workbench_figures(&bench).reserved.current, 0);
    workbench_close(&bench);
}

/* Charges and records alternate, and each looks at the clock now and then. */
static void charges_and_records_both_look_at_the_clock(void **state)
{
    char folder[256], ledger[300];
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .trim_percent = 100,
                                          .ledger = ledger};
    struct workbench bench;
    unsigned age_count = 0;
    (void)state;
    scratch_folder(folder, sizeof(folder));
    scratch_path(ledger, sizeof(ledger), folder, "ledger");
    workbench_open(&bench, &setup);
    bench.sim.knows_process = true;
    const unsigned before = atomic_load(&bench.device->comparison_count);
    struct gc_ledger_slot *slot = gc_ledger_own_slot(bench.core->ledger);
    for (uint64_t key = 1; key <= 64; key++) {
        const struct gc_direct direct = record_of(&bench, GC_DIRECT_HANDLE, key, 512);
        const uint64_t age = atomic_load(&slot->figures_ns);
        atomic_fetch_add(&bench.sim.clock_ahead_ns, 1000 * GC_NS_PER_MS);
        add(&bench, &direct);
        age_count += atomic_load(&slot->figures_ns) != age;
    }
    assert_int_equal(age_count, 4);
    assert_int_equal(atomic_load(&bench.device->comparison_count) - before, 4);
    for (uint64_t key = 1; key <= 64; key++)
        assert_status(gc_direct_untrack(bench.core, GC_DIRECT_HANDLE, key, NULL), GC_OK);
    workbench_close(&bench);
    scratch_remove(folder);
}

static void a_charge_takes_what_the_driver_gave_back(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .limit_bytes = GC_MIB(512),
                                          .trim_percent = 100};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    bench.sim.knows_process = true;
    atomic_store(&bench.sim.own_bytes, GC_MIB(400));
    for (int i = 0; i < 2; i++) {
        atomic_fetch_add(&bench.sim.clock_ahead_ns, 1000 * GC_NS_PER_MS);
        gc_reconcile_update(bench.device);
    }
    assert_int_equal(gc_device_reserved_bytes(bench.device), GC_MIB(400));
    atomic_store(&bench.sim.own_bytes, 0);
    assert_status(gc_direct_charge_device(bench.core, bench.device, NULL, GC_MIB(300)), GC_OK);
    assert_int_equal(workbench_figures(&bench).oom_count, 0);
    gc_direct_uncharge(bench.core, bench.device, NULL, GC_MIB(300));
    workbench_close(&bench);
}

static void requests_wait_for_releases_that_make_room_alone(void **state)
{
    struct workbench bench;
    struct gc_direct marked;
    (void)state;
    workbench_open_plain(&bench);
    struct gc_direct direct = record_of(&bench, GC_DIRECT_HOST, 77, 1000);
    for (unsigned i = 0; i < 2; i++) {
        direct.charged_bytes = i * 1000;
        add(&bench, &direct);
        assert_status(gc_direct_mark(bench.core, GC_DIRECT_HOST, 77, &marked), GC_OK);
        assert_int_equal(atomic_load(&bench.device->release_count), i);
        gc_direct_end_mark(bench.core, &marked, true);
        assert_int_equal(atomic_load(&bench.device->release_count), 0);
    }
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charge_lives_as_long_as_the_record),
        cmocka_unit_test(charge_reclaims_and_stops_at_the_limit),
        cmocka_unit_test(reclaim_returns_whether_anything_was_released),
        cmocka_unit_test(other_kinds_are_no_allocations),
        cmocka_unit_test(host_memory_may_belong_to_no_device),
        cmocka_unit_test(an_address_has_one_record),
        cmocka_unit_test(a_key_that_is_released_is_busy),
        cmocka_unit_test(each_release_ends_its_own_mark),
        cmocka_unit_test(a_release_leaves_a_marked_successor_alone),
        cmocka_unit_test(a_block_of_core_goes_before_a_record),
        cmocka_unit_test(charges_and_records_both_look_at_the_clock),
        cmocka_unit_test(a_charge_takes_what_the_driver_gave_back),
        cmocka_unit_test(requests_wait_for_releases_that_make_room_alone),
        cmocka_unit_test(records_end_with_their_context),
        cmocka_unit_test(a_destroyed_context_takes_no_record),
        cmocka_unit_test(key_that_comes_again_replaces_its_record),
        cmocka_unit_test(adjust_never_goes_below_nothing),
        cmocka_unit_test(tracker_agrees_with_a_model),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("direct", tests, NULL, NULL);
}
