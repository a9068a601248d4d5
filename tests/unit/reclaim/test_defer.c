/* When freed memory may be used again: waits, captures, peers, contexts that go. */
/* waits: for captures that do not end */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>

static void free_waits_for_queued_work(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t block = workbench_free_busy(&bench, 1, 4096);
    assert_int_equal(workbench_alloc(&bench, 0, 4096), block); /* expect_idle is in there */
    assert_int_equal(workbench_figures(&bench).fence_count, 1);
    workbench_close(&bench);
}

static void failed_wait_leaves_the_block_live(void **state)
{
    struct workbench bench;
    struct gc_block_info info;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t block = workbench_alloc(&bench, 0, 4096);
    sim_driver_fail(&bench.sim, 1, false, SIM_BROKEN);
    assert_status(workbench_try_free(&bench, block), GC_DRIVER);
    assert_int_equal(bench.driver_code, SIM_BROKEN);
    assert_status(gc_lookup_block(bench.core, block, &info), GC_OK);
    assert_int_equal(info.bytes, 4096);
    assert_int_equal(workbench_figures(&bench).free_count, 0);
    workbench_check(&bench);
    workbench_free(&bench, block);
    workbench_close(&bench);
}

/* A context whose work failed: the plain driver refuses to allocate there, so the cache must not
 * serve it. */
static void after_a_failed_wait_the_driver_is_called_first(void **state)
{
    struct workbench bench;
    uint64_t other;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t b = workbench_alloc(&bench, 0, 4096);
    workbench_free(&bench, a); /* idle: would be a hit */
    sim_driver_fail(&bench.sim, 1, true, SIM_BROKEN);
    assert_status(workbench_try_free(&bench, b), GC_DRIVER);
    assert_status(workbench_try_alloc(&bench, 0, 4096, &other), GC_DRIVER);
    assert_int_equal(bench.driver_code, SIM_BROKEN);
    sim_driver_fail(&bench.sim, 0, false, 0);
    const uint64_t c = workbench_alloc(&bench, 0, 4096); /* it gives again: all is well */
    assert_int_equal(workbench_alloc(&bench, 0, 4096), a);
    workbench_free(&bench, a);
    workbench_free(&bench, b);
    workbench_free(&bench, c);
    workbench_close(&bench);
}

static void free_in_a_capture_stays_pending(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t b = workbench_alloc(&bench, 0, 4096);
    workbench_capture(&bench, 0, true);
    sim_driver_submit(&bench.sim, 1, a, 4096);
    workbench_free(&bench, a);
    assert_status(workbench_try_free(&bench, a), GC_INVALID_POINTER);
    const uint64_t c = workbench_alloc(&bench, 0, 4096);
    assert_int_not_equal(c, a);
    struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.pending.current, 4096);
    assert_int_equal(figures.free_count, 1);
    assert_int_equal(figures.fence_count, 0);
    assert_int_equal(figures.requested.current, 8192);
    workbench_check(&bench);
    workbench_capture(&bench, 0, false);
    assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], 0);
    workbench_free(&bench, b); /* waits once, for both */
    figures = workbench_figures(&bench);
    assert_int_equal(figures.pending.current, 0);
    assert_int_equal(figures.pending.peak, 4096);
    assert_int_equal(figures.fence_count, 1);
    assert_int_equal(workbench_alloc(&bench, 0, 8192), a);
    workbench_free(&bench, c);
    workbench_close(&bench);
}

static void miss_after_a_capture_resolves_what_is_pending(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(32));
    workbench_capture(&bench, 0, true);
    workbench_free(&bench, a);
    workbench_capture(&bench, 0, false);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(32)), a);
    assert_int_equal(bench.sim.calls[SIM_MEM_ALLOC], 1);
    workbench_close(&bench);
}

static void nested_captures_end_with_the_last(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    struct gc_context *context = bench.contexts[0];
    gc_capture_begin_context(context);
    gc_capture_begin_context(context);
    gc_capture_end_context(context);
    assert_true(gc_capture_is_of_context(context));
    gc_capture_end_context(context);
    gc_capture_end_context(context); /* one too many does no harm */
    assert_false(gc_capture_is_of_context(context));
    gc_capture_begin_context(context);
    assert_true(gc_capture_is_of_context(context));
    workbench_close(&bench);
}

static void retire_covers_only_what_was_freed_before(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t b = workbench_alloc(&bench, 0, 4096);
    workbench_alloc(&bench, 0, 4096);
    workbench_capture(&bench, 0, true);
    workbench_free(&bench, a);
    const uint64_t epoch = gc_context_epoch(bench.contexts[0]);
    sim_driver_submit(&bench.sim, 1, b, 4096);
    workbench_free(&bench, b);
    assert_int_equal(workbench_figures(&bench).pending.current, 8192);
    gc_core_complete(bench.core, bench.contexts[0], epoch); /* the capture is in another context */
    assert_int_equal(workbench_figures(&bench).pending.current, 4096);
    workbench_capture(&bench, 0, false);
    assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], 0);
    workbench_check(&bench);
    assert_int_equal(workbench_alloc(&bench, 0, 4096), a);
    workbench_retire(&bench);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    workbench_close(&bench);
}

static void failed_wait_keeps_pending_blocks_pending(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t b = workbench_alloc(&bench, 0, 4096);
    workbench_capture(&bench, 0, true);
    workbench_free(&bench, a);
    workbench_capture(&bench, 0, false);
    sim_driver_fail(&bench.sim, 1, false, SIM_BROKEN);
    assert_status(workbench_try_free(&bench, b), GC_DRIVER);
    assert_int_equal(workbench_figures(&bench).pending.current, 4096);
    workbench_check(&bench);
    workbench_free(&bench, b);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    workbench_close(&bench);
}

static void peers_are_waited_for(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    gc_backing_add_peer(bench.contexts[0], bench.contexts[1]);
    gc_backing_add_peer(bench.contexts[0], bench.contexts[1]);
    sim_driver_submit(&bench.sim, 2, a, 4096);
    workbench_free(&bench, a);
    assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], 2);
    const uint64_t b = workbench_alloc(&bench, 0, 4096);
    assert_int_equal(b, a);
    workbench_capture(&bench, 1, true); /* a peer that captures may not be asked either */
    workbench_free(&bench, b);
    assert_int_equal(workbench_figures(&bench).pending.current, 4096);
    workbench_capture(&bench, 1, false);
    gc_core_complete(bench.core, bench.contexts[0], gc_context_epoch(bench.contexts[0]));
    assert_int_equal(workbench_figures(&bench).pending.current,
                     4096); /* the peer was not waited for */
    const uint64_t c = workbench_alloc(&bench, 0, 512);
    workbench_free(&bench, c); /* waits for both */
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    workbench_close(&bench);
}

static void exported_block_freed_in_a_capture_goes_back_later(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t address = workbench_alloc_whole(&bench, 0, 5000);
    workbench_export(&bench, address);
    workbench_capture(&bench, 0, true);
    workbench_free(&bench, address);
    assert_int_equal(bench.sim.used_bytes, 5120);
    workbench_capture(&bench, 0, false);
    workbench_free(&bench, workbench_alloc(&bench, 0, 512));
    assert_int_equal(bench.sim.used_bytes, GC_SMALL_SEGMENT);
    workbench_close(&bench);
}

/* Also beside a capture: it has no use for it. */
static void idle_memory_gives_way_beside_a_capture(void **state)
{
    const struct workbench_setup setup = {
        .mode = GC_MODE_CACHE, .capacity_bytes = GC_MIB(64), .trim_percent = 100};
    struct workbench bench;
    uint64_t address;
    (void)state;
    workbench_open(&bench, &setup);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    workbench_capture(&bench, 0, true);
    const uint64_t first = workbench_alloc(&bench, 1, GC_MIB(60));
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(60), &address), GC_OUT_OF_MEMORY);
    sim_driver_submit(&bench.sim, 1, first, GC_MIB(60));
    workbench_free(&bench, first); /* the driver waits */
    const uint64_t second = workbench_alloc(&bench, 0, GC_MIB(60));
    workbench_capture(&bench, 0, false);
    workbench_free(&bench, second);
    assert_int_equal(bench.sim.used_bytes, 0);
    workbench_close(&bench);
}

/* A block that was pending when a capture began is waited for inside; one that became pending later
 * is not. */
static void pending_memory_becomes_free_beside_a_capture(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(64),
                                          .trim_percent = 100,
                                          .is_fenced = true};
    struct workbench bench;
    uint64_t address;
    (void)state;
    workbench_open(&bench, &setup);
    const uint64_t before = workbench_alloc(&bench, 0, GC_MIB(20));
    const uint64_t inside = workbench_alloc(&bench, 0, GC_MIB(20));
    sim_driver_submit(&bench.sim, 1, before, GC_MIB(20));
    workbench_free(&bench, before);
    workbench_capture(&bench, 0, true);
    sim_driver_submit(&bench.sim, 1, inside, GC_MIB(20));
    workbench_free(&bench, inside);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(40)));
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(60), &address), GC_OUT_OF_MEMORY);
    workbench_capture(&bench, 0, false);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    workbench_close(&bench);
}

static void dropped_context_takes_its_memory_along(void **state)
{
    struct workbench bench;
    struct gc_block_info info;
    uint64_t address;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t b = workbench_alloc(&bench, 0, GC_MIB(40));
    const uint64_t kept = workbench_alloc(&bench, 1, 4096);
    workbench_capture(&bench, 0, true);
    workbench_free(&bench, b);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(3)));
    workbench_capture(&bench, 0, false);
    workbench_drop(&bench, 0);
    const uint64_t calls = bench.sim.total_calls;
    assert_status(workbench_try_free(&bench, a), GC_NOT_OURS);
    assert_status(gc_lookup_block(bench.core, b, &info), GC_NOT_OURS);
    assert_status(workbench_try_alloc(&bench, 0, 512, &address), GC_INVALID_ARGUMENT);
    assert_null(gc_context_find(bench.core, 1));
    assert_int_equal(gc_context_handle(bench.contexts[0]), 1);
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.leak_count, 1);
    assert_int_equal(figures.requested.current, 4096);
    assert_int_equal(figures.reserved.current, GC_SMALL_SEGMENT);
    assert_int_equal(figures.pending.current, 0);
    assert_int_equal(bench.sim.total_calls, calls);
    workbench_free(&bench, kept);
    workbench_drop(&bench, 7); /* unknown: ignored */
    workbench_close(&bench);
}

static void handle_may_be_used_again_by_a_new_context(void **state)
{
    struct workbench bench;
    struct gc_context *again;
    (void)state;
    workbench_open_plain(&bench);
    struct gc_context *first = bench.contexts[0];
    workbench_alloc(&bench, 0, 512);
    workbench_drop(&bench, 0);
    assert_status(gc_setup_add_context(bench.core, 1, bench.device, &again), GC_OK);
    assert_ptr_not_equal(again, first);
    assert_ptr_equal(gc_context_find(bench.core, 1), again);
    bench.contexts[0] = again;
    workbench_free(&bench, workbench_alloc(&bench, 0, 512));
    workbench_close(&bench);
}

/* ---- what happens while the driver works ---- */

struct meddler {
    struct workbench *bench;
    enum sim_call when;
    uint64_t address;
    bool drops;
    bool done;
    enum gc_status status;
};

static void meddle(void *argument, enum sim_call call, uint64_t context)
{
    struct meddler *meddler = argument;
    (void)context;
    if (call != meddler->when || meddler->done)
        return;
    meddler->done = true;
    if (meddler->drops)
        workbench_drop(meddler->bench, 0);
    else
        meddler->status = workbench_try_free(meddler->bench, meddler->address);
}

static void second_free_during_the_wait_is_refused(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    struct meddler meddler = {.bench = &bench, .when = SIM_SYNCHRONIZE, .address = a};
    bench.sim.hook = meddle;
    bench.sim.hook_argument = &meddler;
    workbench_free(&bench, a);
    assert_true(meddler.done);
    assert_status(meddler.status, GC_INVALID_POINTER);
    assert_int_equal(workbench_figures(&bench).free_count, 1);
    workbench_close(&bench);
}

static void context_dropped_during_a_driver_call(void **state)
{
    static const struct {
        enum sim_call when;
        bool is_exported;
    } cases[] = {{SIM_SYNCHRONIZE, false},
                 {SIM_SYNCHRONIZE, true},
                 {SIM_MEM_FREE, true},
                 {SIM_MEM_ALLOC, false}};
    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct workbench bench;
        const struct gc_request request = {.bytes = 4096, .is_dedicated = cases[i].is_exported};
        uint64_t address;
        workbench_open_plain(&bench);
        struct meddler meddler = {.bench = &bench, .when = cases[i].when, .drops = true};
        bench.sim.hook_argument = &meddler;
        if (cases[i].when == SIM_MEM_ALLOC)
            bench.sim.hook = meddle;
        const enum gc_status status =
            gc_alloc(bench.core, bench.contexts[0], &request, &address, &bench.driver_code);
        if (cases[i].when == SIM_MEM_ALLOC) {
            assert_status(status, GC_INVALID_ARGUMENT);
        } else {
            assert_status(status, GC_OK);
            if (cases[i].is_exported)
                workbench_export(&bench, address);
            bench.sim.hook = meddle;
            /* The code of the driver object may be that the context is gone; nothing is left in any
             * case. */
            const enum gc_status freed = workbench_try_free(&bench, address);
            assert_true(freed == GC_OK || freed == GC_DRIVER);
        }
        assert_true(meddler.done);
        const struct gc_device_snapshot figures = workbench_figures(&bench);
        assert_int_equal(figures.reserved.current, 0);
        assert_int_equal(figures.requested.current, 0);
        assert_int_equal(figures.leak_count, 0);
        bench.sim.violation_count =
            0; /* a free of memory that went with its context, by this test's doing */
        workbench_close(&bench);
    }
}

static void *trim_all(void *argument)
{
    struct workbench *bench = argument;
    gc_reclaim_trim(bench->core, bench->device, 0);
    return NULL;
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_inside;
    bool is_open;
};

static void stop_in_free(void *argument, enum sim_call call, uint64_t context)
{
    struct gate *gate = argument;
    (void)context;
    if (call != SIM_MEM_FREE)
        return;
    pthread_mutex_lock(&gate->lock);
    gate->is_inside = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->is_open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void *open_gate_soon(void *argument)
{
    struct gate *gate = argument;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
    return NULL;
}

static void failing_request_waits_for_a_release_under_way(void **state)
{
    struct workbench bench;
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t trimmer;
    pthread_t opener;
    (void)state;
    workbench_open_limited(&bench, GC_MIB(64));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    bench.sim.hook = stop_in_free;
    bench.sim.hook_argument = &gate;
    pthread_create(&trimmer, NULL, trim_all, &bench);
    pthread_mutex_lock(&gate.lock);
    while (!gate.is_inside)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    pthread_create(&opener, NULL, open_gate_soon, &gate);
    workbench_alloc(&bench, 1, GC_MIB(60)); /* neither idle nor free at this moment, but soon */
    pthread_join(trimmer, NULL);
    pthread_join(opener, NULL);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_waits_for_queued_work),
        cmocka_unit_test(failed_wait_leaves_the_block_live),
        cmocka_unit_test(after_a_failed_wait_the_driver_is_called_first),
        cmocka_unit_test(free_in_a_capture_stays_pending),
        cmocka_unit_test(miss_after_a_capture_resolves_what_is_pending),
        cmocka_unit_test(nested_captures_end_with_the_last),
        cmocka_unit_test(retire_covers_only_what_was_freed_before),
        cmocka_unit_test(failed_wait_keeps_pending_blocks_pending),
        cmocka_unit_test(peers_are_waited_for),
        cmocka_unit_test(exported_block_freed_in_a_capture_goes_back_later),
        cmocka_unit_test(idle_memory_gives_way_beside_a_capture),
        cmocka_unit_test(pending_memory_becomes_free_beside_a_capture),
        cmocka_unit_test(dropped_context_takes_its_memory_along),
        cmocka_unit_test(handle_may_be_used_again_by_a_new_context),
        cmocka_unit_test(second_free_during_the_wait_is_refused),
        cmocka_unit_test(context_dropped_during_a_driver_call),
        cmocka_unit_test(failing_request_waits_for_a_release_under_way),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("reuse", tests, NULL, NULL);
}
