/* Every driver call that a scenario makes fails in turn, once and permanently, until a run passes
 * without the failure firing. In each run the failing call returns an error, nothing leaks, all
 * accounts agree with the driver. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/plan/plan.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define BLOCKS 8
#define RUNS_MAX 2000
#define PEER_HANDLE 9

struct run {
    struct workbench bench;
    uint64_t blocks[BLOCKS];
    unsigned refused; /* requests and frees that failed */
    bool fired;       /* the failure */
};

static void try_alloc(struct run *run, unsigned i, unsigned context, uint64_t bytes,
                      bool is_dedicated)
{
    const struct gc_request request = {.bytes = bytes, .is_dedicated = is_dedicated};
    run->bench.driver_code = 0;
    const enum gc_status status = gc_alloc(run->bench.core, run->bench.contexts[context], &request,
                                           &run->blocks[i], &run->bench.driver_code);
    if (status == GC_OK) {
        sim_driver_expect_idle(&run->bench.sim, run->blocks[i], bytes);
        return;
    }
    run->refused++;
    run->blocks[i] = 0;
    assert_true(status == GC_OUT_OF_MEMORY ||
                (status == GC_DRIVER && run->bench.driver_code == SIM_BROKEN));
}

/* Given to another process: it may fail only where it must be waited for. */
static void try_export(struct run *run, unsigned i)
{
    if (run->blocks[i] == 0)
        return;
    const enum gc_status status =
        gc_export_block(run->bench.core, run->blocks[i], &run->bench.driver_code);
    assert_true(status == GC_OK || status == GC_DRIVER);
    run->refused += status != GC_OK;
}

/* A free that failed leaves the block as it was. */
static void try_free(struct run *run, unsigned i)
{
    struct gc_block_info info;
    if (run->blocks[i] == 0)
        return;
    const enum gc_status status = workbench_try_free(&run->bench, run->blocks[i]);
    if (status == GC_OK) {
        run->blocks[i] = 0;
        return;
    }
    run->refused++;
    assert_status(status, GC_DRIVER);
    assert_int_equal(run->bench.driver_code, run->bench.sim.fail_code);
    assert_status(gc_lookup_block(run->bench.core, run->blocks[i], &info), GC_OK);
}

/* Misses, hits, out of memory with releases, captures with blocks that stay pending, trims. */
static void scenario(struct run *run)
{
    struct workbench *bench = &run->bench;
    try_alloc(run, 0, 0, 1000, false);
    try_alloc(run, 1, 0, GC_MIB(3), false);
    try_alloc(run, 2, 1, GC_MIB(12), false);
    try_alloc(run, 3, 1, 5000, true);
    try_free(run, 2);
    try_free(run, 3);
    try_alloc(run, 7, 1, 5000, true);
    try_export(run, 7);
    try_free(run, 7);
    workbench_check(bench);
    try_alloc(run, 4, 2, GC_MIB(24), false); /* needs what context 1 has idle */
    workbench_capture(bench, 0, true);
    try_free(run, 1);
    try_alloc(run, 5, 0, 700, true);
    try_export(run, 5); /* else its graph might use it at any time */
    try_free(run, 5);
    workbench_capture(bench, 0, false);
    try_free(run, 0);
    workbench_check(bench);
    try_alloc(run, 6, 0, GC_MIB(2), false);
    try_free(run, 4);
    gc_reclaim_trim(bench->core, bench->device, 0);
    if (gc_direct_charge_device(bench->core, bench->device, NULL, GC_MIB(20)) == GC_OK)
        gc_direct_uncharge(bench->core, bench->device, NULL, GC_MIB(20));
    else
        run->refused++;
    workbench_check(bench);
}

static void use(struct run *run, unsigned i, uint64_t handle)
{
    if (run->blocks[i] != 0)
        sim_driver_submit(&run->bench.sim, handle, run->blocks[i], GC_KIB(4));
}

/* Mapped memory whose frees wait for fences: pages remapped and replaced under queued work, a peer,
 * a capture, trims, a context that ends. */
static void fenced_scenario(struct run *run)
{
    struct workbench *bench = &run->bench;
    struct gc_device *device;
    struct gc_context *peer;
    const struct gc_device_info info = {.ordinal = 3, .total_bytes = GC_MIB(64)};
    assert_status(gc_setup_add_device(bench->core, &info, &device), GC_OK);
    assert_status(gc_setup_add_context(bench->core, PEER_HANDLE, device, &peer), GC_OK);
    for (unsigned i = 0; i < 6; i++) {
        try_alloc(run, i, 0, GC_MIB(4), false);
        use(run, i, 1);
    }
    for (unsigned i = 0; i < 6; i += 2)
        try_free(run, i);
    gc_fence_record(bench->contexts[0]);
    gc_backing_add_peer(bench->contexts[0], peer);
    use(run, 1, PEER_HANDLE);
    use(run, 3, 1);
    try_free(run, 1);
    try_alloc(run, 0, 0, GC_MIB(30), false); /* more than one free block: pages are remapped */
    use(run, 0, 1);
    workbench_check(bench);
    try_alloc(run, 2, 1, GC_MIB(6), false);
    try_free(run, 3);
    try_free(run, 0);
    try_alloc(run, 1, 0, GC_MIB(9), false);         /* where a remapped page was */
    gc_reclaim_trim(bench->core, bench->device, 0); /* in a capture nothing goes back */
    workbench_capture(bench, 0, true);
    try_alloc(run, 4, 0, GC_MIB(1), true);
    try_free(run, 1);
    workbench_capture(bench, 0, false);
    gc_reclaim_trim(bench->core, bench->device, GC_MIB(4));
    try_alloc(run, 6, 0, 100, false);
    use(run, 6, PEER_HANDLE);
    try_free(run, 6);
    try_free(run, 4);
    try_alloc(run, 7, 0, GC_MIB(30), false);
    workbench_check(bench);
    try_free(run, 7);
    gc_reclaim_empty(bench->core, bench->device);
    workbench_check(bench);
    workbench_drop(bench, 1);
    run->blocks[2] = 0;
}

static const struct gc_plan_entry planned[] = {
    {.bytes = GC_MIB(5), .offset = 0, .upper = 2},
    {.bytes = GC_MIB(3), .offset = GC_MIB(5), .upper = 2},
    {.bytes = GC_MIB(7), .offset = GC_MIB(1) / 2, .lower = 2, .upper = 3},
    {.bytes = 4096, .offset = 0, .lower = 2, .upper = 3},
};
static const struct gc_plan run_plan = {.entries = planned,
                                        .count = 4,
                                        .stream_count = 1,
                                        .end_time = 3,
                                        .device = GC_PLAN_DEVICE_ANY,
                                        .peak_bytes = GC_MIB(8)};

/* A plan followed, deviated from and found again; what it holds is trimmed, its context ends and
 * the next one follows. */
static void planned_scenario(struct run *run)
{
    struct workbench *bench = &run->bench;
    for (unsigned round = 0; round < 3; round++) {
        try_alloc(run, 0, 0, GC_MIB(5), false);
        use(run, 0, 1);
        try_alloc(run, 4, 0, GC_MIB(9), false);
        try_alloc(run, 1, 0, GC_MIB(3), false);
        try_free(run, 0);
        try_alloc(run, 5, 0, GC_MIB(4), false); /* between the places */
        workbench_check(bench);
        try_free(run, 5);
        try_alloc(run, 2, 0, GC_MIB(7), false); /* in use, or not idle yet */
        try_free(run, 1);
        try_free(run, 2);
        try_free(run, 4);
        workbench_retire(bench);
        try_alloc(run, 2, 0, GC_MIB(7), false);
        try_alloc(run, 3, 0, 4000, false);
        try_free(run, 2);
        try_free(run, 3);
        workbench_check(bench);
        if (round == 1)
            gc_reclaim_trim(bench->core, bench->device, 0);
    }
    workbench_drop(bench, 0);
    bench->stuck_bytes = gc_device_reserved_bytes(bench->device); /* what would not go */
    assert_int_equal(bench->stuck_bytes, bench->sim.used_bytes);
    for (unsigned i = 0; i < BLOCKS; i++)
        run->blocks[i] = 0;
    try_alloc(run, 0, 1, GC_MIB(5), false);
    try_alloc(run, 1, 1, GC_MIB(3), false);
    workbench_check(bench);
}

static void planned_clean_up(struct run *run)
{
    struct workbench *bench = &run->bench;
    sim_driver_fail(&bench->sim, 0, false, 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (run->blocks[i] != 0)
            workbench_free(bench, run->blocks[i]);
    }
    workbench_drop(bench, 1);
    assert_int_equal(gc_device_reserved_bytes(bench->device), bench->sim.used_bytes);
    assert_true(run->fired || bench->sim.used_bytes == 0);
    bench->stuck_bytes = bench->sim.used_bytes;
}

/* The failure is over, but what would not be unmapped or released in a context that went is still
 * with the device and charged. */
static void fenced_clean_up(struct run *run)
{
    struct workbench *bench = &run->bench;
    sim_driver_fail(&bench->sim, 0, false, 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (run->blocks[i] != 0)
            workbench_free(bench, run->blocks[i]);
    }
    sim_driver_complete(&bench->sim, PEER_HANDLE);
    workbench_drop(bench, 0);
    workbench_drop(bench, 2);
    assert_int_equal(gc_device_reserved_bytes(bench->device), bench->sim.used_bytes);
    assert_true(run->fired || bench->sim.used_bytes == 0);
    bench->stuck_bytes = bench->sim.used_bytes;
}

/* The failure is over: everything can be released. */
static void clean_up(struct run *run)
{
    struct workbench *bench = &run->bench;
    sim_driver_fail(&bench->sim, 0, false, 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (run->blocks[i] != 0)
            workbench_free(bench, run->blocks[i]);
    }
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        workbench_free(bench, workbench_alloc(bench, i, 1)); /* resolves what was pending */
    gc_reclaim_trim(bench->core, bench->device, 0);
    const struct gc_device_snapshot figures = workbench_figures(bench);
    assert_int_equal(figures.leak_count, 0);
    assert_int_equal(figures.requested.current, 0);
    assert_int_equal(figures.allocated.current, 0);
    assert_int_equal(figures.pending.current, 0);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.free_count, figures.alloc_count);
    assert_int_equal(bench->sim.used_bytes, 0);
}

struct play {
    void (*scenario)(struct run *run);
    void (*clean_up)(struct run *run);
    struct workbench_setup setup;
};

static void fail_each(const struct play *play, bool is_permanent, int code)
{
    unsigned n;
    for (n = 1; n < RUNS_MAX; n++) {
        struct run run = {.refused = 0};
        workbench_open(&run.bench, &play->setup);
        sim_driver_fail(&run.bench.sim, n, is_permanent, code);
        play->scenario(&run);
        run.fired = run.bench.sim.failed_count > 0;
        if (run.fired && is_permanent && n == 1)
            assert_true(run.refused > 0);
        if (!run.fired)
            assert_int_equal(run.refused, 0);
        play->clean_up(&run);
        workbench_close(&run.bench);
        if (!run.fired)
            break;
    }
    assert_true(n > 10 && n < RUNS_MAX);
}

static void fail_each_call(enum gc_mode mode, bool has_mapping, bool is_permanent, int code)
{
    const struct play play = {.scenario = scenario,
                              .clean_up = clean_up,
                              .setup = {.mode = mode,
                                        .capacity_bytes = GC_MIB(64),
                                        .limit_bytes = GC_MIB(48),
                                        .trim_percent = 100,
                                        .has_mapping = has_mapping}};
    fail_each(&play, is_permanent, code);
}

/* Each call of the combination of fences, mapped memory, a peer and trims. */
static void fail_each_fenced_call(bool is_permanent, int code)
{
    const struct play play = {.scenario = fenced_scenario,
                              .clean_up = fenced_clean_up,
                              .setup = {.mode = GC_MODE_CACHE,
                                        .capacity_bytes = GC_MIB(64),
                                        .limit_bytes = GC_MIB(48),
                                        .trim_percent = 100,
                                        .has_mapping = true,
                                        .is_fenced = true}};
    fail_each(&play, is_permanent, code);
}

/* Each call of a run that follows a plan. */
static void fail_each_planned_call(bool has_mapping, bool is_permanent, int code)
{
    const struct play play = {.scenario = planned_scenario,
                              .clean_up = planned_clean_up,
                              .setup = {.mode = GC_MODE_CACHE,
                                        .capacity_bytes = GC_MIB(64),
                                        .limit_bytes = GC_MIB(48),
                                        .trim_percent = 100,
                                        .has_mapping = has_mapping,
                                        .is_fenced = true,
                                        .plan = &run_plan}};
    fail_each(&play, is_permanent, code);
}

static void planned_once(void **state)
{
    (void)state;
    fail_each_planned_call(true, false, SIM_BROKEN);
    fail_each_planned_call(false, false, SIM_BROKEN);
}

static void planned_permanently(void **state)
{
    (void)state;
    fail_each_planned_call(true, true, SIM_BROKEN);
    fail_each_planned_call(false, true, SIM_BROKEN);
}

static void planned_without_memory(void **state)
{
    (void)state;
    fail_each_planned_call(true, false, SIM_OUT_OF_MEMORY);
    fail_each_planned_call(false, true, SIM_OUT_OF_MEMORY);
}

static void cached_once(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_CACHE, false, false, SIM_BROKEN);
}

static void cached_permanently(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_CACHE, false, true, SIM_BROKEN);
}

static void cached_out_of_memory_once(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_CACHE, false, false, SIM_OUT_OF_MEMORY);
}

static void cached_out_of_memory_permanently(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_CACHE, false, true, SIM_OUT_OF_MEMORY);
}

static void mapped_once(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_CACHE, true, false, SIM_BROKEN);
}

static void mapped_permanently(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_CACHE, true, true, SIM_BROKEN);
}

static void mapped_out_of_memory_once(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_CACHE, true, false, SIM_OUT_OF_MEMORY);
}

static void mapped_out_of_memory_permanently(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_CACHE, true, true, SIM_OUT_OF_MEMORY);
}

static void fenced_once(void **state)
{
    (void)state;
    fail_each_fenced_call(false, SIM_BROKEN);
}

static void fenced_permanently(void **state)
{
    (void)state;
    fail_each_fenced_call(true, SIM_BROKEN);
}

static void fenced_out_of_memory_once(void **state)
{
    (void)state;
    fail_each_fenced_call(false, SIM_OUT_OF_MEMORY);
}

static void fenced_out_of_memory_permanently(void **state)
{
    (void)state;
    fail_each_fenced_call(true, SIM_OUT_OF_MEMORY);
}

static void tracked_once(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_TRACK, false, false, SIM_BROKEN);
}

static void tracked_permanently(void **state)
{
    (void)state;
    fail_each_call(GC_MODE_TRACK, false, true, SIM_BROKEN);
}

/* One out-of-memory of the driver while idle memory lies about must not reach the program. */
static void single_out_of_memory_is_retried(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    workbench_free(&bench, workbench_alloc(&bench, 1, GC_MIB(12)));
    sim_driver_fail(&bench.sim, 1, false, SIM_OUT_OF_MEMORY);
    workbench_alloc(&bench, 0, GC_MIB(30));
    assert_int_equal(bench.sim.failed_count, 1);
    assert_int_equal(workbench_figures(&bench).retry_count, 1);
    assert_int_equal(workbench_figures(&bench).oom_count, 0);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned_once),
        cmocka_unit_test(planned_permanently),
        cmocka_unit_test(planned_without_memory),
        cmocka_unit_test(cached_once),
        cmocka_unit_test(cached_permanently),
        cmocka_unit_test(cached_out_of_memory_once),
        cmocka_unit_test(cached_out_of_memory_permanently),
        cmocka_unit_test(mapped_once),
        cmocka_unit_test(mapped_permanently),
        cmocka_unit_test(mapped_out_of_memory_once),
        cmocka_unit_test(mapped_out_of_memory_permanently),
        cmocka_unit_test(fenced_once),
        cmocka_unit_test(fenced_permanently),
        cmocka_unit_test(fenced_out_of_memory_once),
        cmocka_unit_test(fenced_out_of_memory_permanently),
        cmocka_unit_test(tracked_once),
        cmocka_unit_test(tracked_permanently),
        cmocka_unit_test(single_out_of_memory_is_retried),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("core_faults", tests, NULL, NULL);
}
