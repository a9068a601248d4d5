/* Pause and resume of a whole core: threads that submit are held up, all pools go or none, and
 * nothing waits without an end. */
#include "core/device/registry.h"
#include "core/device/wait.h"
#include "core/pause/pause.h"
#include "core/pause/swap.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define MIB(count) ((uint64_t)(count) << 20)

static const struct gc_pause_request soon = {.keeps_content = true, .timeout_ms = 50};
static const struct gc_pause_request late = {.keeps_content = true, .timeout_ms = 60000};

static void open_bench(struct workbench *bench)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
}

struct submitter {
    struct gc_core *core;
    atomic_bool is_through;
};

static void *submit(void *argument)
{
    struct submitter *submitter = argument;
    while (gc_gate_try_enter(&submitter->core->work.gate) == GC_GATE_CLOSED)
        gc_wait_resume(submitter->core);
    atomic_store(&submitter->is_through, true);
    gc_gate_leave(&submitter->core->work.gate);
    return NULL;
}

static void a_moment(void)
{
    const struct timespec moment = {0, 30000000};
    nanosleep(&moment, NULL);
}

static void all_pools_go_and_return(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    uint64_t blocks[2];
    pthread_t thread;
    (void)state;
    open_bench(&bench);
    struct submitter submitter = {.core = bench.core};
    for (unsigned i = 0; i < 2; i++) {
        blocks[i] = workbench_alloc(&bench, i, MIB(10));
        sim_driver_put(&bench.sim, blocks[i], 7 + i);
    }
    assert_true(gc_pause(bench.core, &late, &result));
    assert_int_equal(result.moved_bytes, MIB(20));
    assert_int_equal(result.stays_bytes, 0);
    assert_int_equal(bench.sim.used_bytes, 0);
    assert_int_equal(pthread_create(&thread, NULL, submit, &submitter), 0);
    a_moment();
    assert_false(atomic_load(&submitter.is_through));
    assert_false(gc_pause(bench.core, &late, &result));
    assert_int_equal(result.refusal, GC_SWAP_AGAIN);
    assert_true(gc_pause_resume(bench.core, NULL, &result));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&submitter.is_through));
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(sim_driver_get(&bench.sim, blocks[i]), 7 + i);
        workbench_free(&bench, blocks[i]);
    }
    assert_false(gc_pause_resume(bench.core, NULL, &result));
    assert_int_equal(result.refusal, GC_SWAP_AGAIN);
    workbench_close(&bench);
}

/* Two threads could reach the other's memory: none goes. */
static void one_that_may_not_keeps_all(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    open_bench(&bench);
    const uint64_t first = workbench_alloc(&bench, 0, MIB(4));
    const uint64_t second = workbench_alloc(&bench, 1, MIB(4));
    gc_backing_add_peer(bench.contexts[1], bench.contexts[0]);
    const uint64_t calls = bench.sim.total_calls;
    assert_false(gc_pause(bench.core, &late, &result));
    assert_int_equal(result.refusal, GC_SWAP_PEERS);
    assert_int_equal(bench.sim.total_calls, calls);
    assert_false(gc_pause_is_any(bench.core));
    workbench_free(&bench, first);
    workbench_free(&bench, second);
    workbench_close(&bench);
}

static void work_that_does_not_end_is_not_waited_for(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    open_bench(&bench);
    const uint64_t block = workbench_alloc(&bench, 0, MIB(4));
    sim_driver_submit(&bench.sim, 1, block, MIB(4));
    assert_false(gc_pause(bench.core, &soon, &result));
    assert_int_equal(result.refusal, GC_SWAP_BUSY);
    assert_false(gc_pause_is_any(bench.core));
    /* Nor is a thread that is in the driver. */
    bench.sim.table.synchronize(&bench.sim, 1);
    assert_int_equal(gc_gate_try_enter(&bench.core->work.gate), GC_GATE_OPEN);
    assert_false(gc_pause(bench.core, &soon, &result));
    assert_int_equal(result.refusal, GC_SWAP_BUSY);
    gc_gate_leave(&bench.core->work.gate);
    assert_true(gc_pause(bench.core, &late, &result));
    assert_true(gc_pause_resume(bench.core, NULL, &result));
    workbench_free(&bench, block);
    workbench_close(&bench);
}

/* Whatever fails on the way out, the process is either as it was or paused; and it comes back. */
static void failures_leave_it_whole(void **state)
{
    bool was_late = false;
    (void)state;
    for (uint64_t n = 1; !was_late; n++) {
        struct workbench bench;
        struct gc_swap_result result;
        uint64_t blocks[2];
        open_bench(&bench);
        for (unsigned i = 0; i < 2; i++) {
            blocks[i] = workbench_alloc(&bench, i, MIB(6));
            sim_driver_put(&bench.sim, blocks[i], 40 + i);
        }
        sim_driver_fail(&bench.sim, n, n % 2 == 0, SIM_BROKEN);
        const bool is_paused = gc_pause(bench.core, &soon, &result);
        was_late = bench.sim.failed_count == 0;
        sim_driver_fail(&bench.sim, 0, false, 0);
        assert_int_equal(is_paused, gc_pause_is_any(bench.core));
        if (is_paused)
            assert_true(gc_pause_resume(bench.core, NULL, &result));
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(sim_driver_get(&bench.sim, blocks[i]), 40 + i);
            workbench_free(&bench, blocks[i]);
        }
        workbench_close(&bench);
        assert_true(n < 500);
    }
}

/* The end of the process: nobody resumes it, and a destructor may wait for a thread that waits
 * here.
 */
static void ends_while_paused(bool (*is_shut_down)(void *self))
{
    struct workbench bench;
    struct gc_swap_result result;
    pthread_t threads[2];
    open_bench(&bench);
    struct submitter submitters[2] = {{.core = bench.core}, {.core = bench.core}};
    const uint64_t block = workbench_alloc(&bench, 0, MIB(10));
    sim_driver_put(&bench.sim, block, 7);
    assert_true(gc_pause(bench.core, &late, &result));
    assert_int_equal(pthread_create(&threads[0], NULL, submit, &submitters[0]), 0);
    a_moment();
    bench.core->driver.is_shut_down = is_shut_down;
    gc_serve_end_help(bench.core);
    a_moment();
    assert_int_equal(atomic_load(&submitters[0].is_through), is_shut_down != NULL);
    assert_int_equal(pthread_create(&threads[1], NULL, submit, &submitters[1]), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(bench.sim.used_bytes, is_shut_down != NULL ? 0 : MIB(10));
    if (is_shut_down == NULL)
        assert_int_equal(sim_driver_get(&bench.sim, block), 7);
    workbench_free(&bench, block);
    workbench_close(&bench);
}

static void a_process_that_ends_resumes_itself(void **state)
{
    (void)state;
    ends_while_paused(NULL);
}

static bool yes(void *self)
{
    (void)self;
    return true;
}

/* Then work needs no memory. */
static void without_a_driver_nothing_waits(void **state)
{
    (void)state;
    ends_while_paused(yes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pools_go_and_return),
        cmocka_unit_test(one_that_may_not_keeps_all),
        cmocka_unit_test(work_that_does_not_end_is_not_waited_for),
        cmocka_unit_test(failures_leave_it_whole),
        cmocka_unit_test(a_process_that_ends_resumes_itself),
        cmocka_unit_test(without_a_driver_nothing_waits),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("pause", tests, NULL, NULL);
}
