/* Frees that do not wait: epochs, fences, one stream, captures, and what happens when fences fail.
 * Every allocation of the workbench checks that no queued work uses what it got. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <time.h>

static void free_with_queued_work_calls_nothing(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t first = workbench_alloc(&bench, 0, 4096);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    sim_driver_submit(&bench.sim, 1, first, 4096);
    workbench_free(&bench, first); /* the first one of all finds out whether there are fences */
    assert_int_equal(bench.sim.calls[SIM_FENCE_RECORD], 1);
    sim_driver_submit(&bench.sim, 1, a, 4096);
    const uint64_t calls = bench.sim.total_calls;
    workbench_free(&bench, a);
    assert_int_equal(bench.sim.total_calls, calls);
    assert_int_equal(workbench_figures(&bench).pending.current, 8192);
    assert_status(workbench_try_free(&bench, a), GC_INVALID_POINTER);
    assert_int_not_equal(workbench_alloc(&bench, 0, 4096), a);
    workbench_close(&bench);
}

static void without_work_nothing_is_queried(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t calls = bench.sim.total_calls;
    workbench_free(&bench, a);
    for (unsigned i = 0; i < 1000; i++) {
        const uint64_t b = workbench_alloc(&bench, 0, 4096);
        assert_int_equal(b, a);
        workbench_free(&bench, b);
    }
    assert_int_equal(bench.sim.total_calls, calls);
    workbench_close(&bench);
}

static void fence_covers_what_was_submitted_before_it(void **state)
{
    bool ignored = false;
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t b = workbench_alloc(&bench, 0, 4096);
    sim_driver_submit(&bench.sim, 1, a, 4096);
    workbench_free(&bench, a);
    assert_true(gc_fence_record(bench.contexts[0]));
    sim_driver_submit(&bench.sim, 1, b, 4096);
    workbench_free(&bench, b);
    assert_false(gc_fence_poll(bench.contexts[0]));
    assert_true(gc_fence_wait_oldest(bench.contexts[0], GC_FOREVER, &ignored));
    gc_defer_collect(bench.contexts[0]);
    assert_int_equal(workbench_figures(&bench).pending.current, 4096);
    assert_int_equal(workbench_alloc(&bench, 0, 4096), a);
    assert_int_not_equal(workbench_alloc(&bench, 0, 4096), b);
    workbench_close(&bench);
}

struct meddler {
    struct workbench *bench;
    uint64_t address;
    bool done;
};

/* Another thread's work and free, while the fence is on its way to the driver. */
static void submit_and_free(void *argument, enum sim_call call, uint64_t context)
{
    struct meddler *meddler = argument;
    if (call != SIM_FENCE_RECORD || meddler->done)
        return;
    meddler->done = true;
    (void)context;
    sim_driver_submit(&meddler->bench->sim, 2, meddler->address, 4096);
    sim_driver_submit(&meddler->bench->sim, 1, meddler->address, 4096);
    workbench_free(meddler->bench, meddler->address);
}

static void what_is_freed_while_a_fence_is_recorded_waits_for_the_next(void **state)
{
    bool ignored = false;
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t b = workbench_alloc(&bench, 0, 4096);
    sim_driver_submit(&bench.sim, 1, a, 4096);
    workbench_free(&bench, a);
    struct meddler meddler = {.bench = &bench, .address = b};
    bench.sim.hook = submit_and_free;
    bench.sim.hook_argument = &meddler;
    assert_true(gc_fence_record(bench.contexts[0]));
    assert_true(meddler.done);
    assert_int_equal(bench.contexts[0]->pool.unfenced_count, 1);
    assert_true(gc_fence_wait_oldest(bench.contexts[0], GC_FOREVER, &ignored));
    gc_defer_collect(bench.contexts[0]);
    assert_int_equal(workbench_figures(&bench).pending.current, 4096);
    workbench_close(&bench);
}

static void loop_asks_seldom_and_stays_bounded(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    bench.sim.is_prompt = true;
    const unsigned rounds = 20000;
    for (unsigned i = 0; i < rounds; i++) {
        workbench_free_busy(&bench, 1, 4096);
    }
    assert_true(bench.sim.total_calls <= rounds / 100);
    assert_true(bench.sim.peak_bytes <= GC_MIB(1024) / 8 + GC_MIB(4));
    workbench_close(&bench);
}

/* Frees while the device lags behind: the full ring is not asked at each. */
static void lagging_device_is_queried_seldom(void **state)
{
    static uint64_t blocks[20000];
    const unsigned count = sizeof(blocks) / sizeof(blocks[0]);
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    for (unsigned i = 0; i < count; i++)
        blocks[i] = workbench_alloc(&bench, 0, 512);
    sim_driver_submit(&bench.sim, 1, blocks[0], 512 * count);
    const uint64_t calls = bench.sim.total_calls;
    for (unsigned i = 0; i < count; i++)
        workbench_free(&bench, blocks[i]);
    assert_true(bench.sim.total_calls - calls <= count / 200);
    workbench_close(&bench);
}

static void pending_memory_never_causes_an_out_of_memory(void **state)
{
    for (unsigned way = 0; way < 2; way++) {
        struct workbench bench;
        (void)state;
        workbench_open_fenced(&bench, GC_MIB(64));
        bench.sim.has_no_fences = way == 1;
        for (unsigned i = 0; i < 20; i++) {
            const unsigned context = i % WORKBENCH_CONTEXTS;
            const uint64_t a = workbench_alloc(&bench, context, GC_MIB(60));
            sim_driver_submit(&bench.sim, context + 1, a, GC_MIB(60));
            workbench_free(&bench, a);
        }
        workbench_close(&bench);
    }
}

/* A request that is short waits for what was freed first, not for all that is queued. */
static void reclaim_waits_for_the_oldest(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(64),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    workbench_alloc(&bench, 0, GC_MIB(56));
    const uint64_t first = workbench_alloc(&bench, 0, GC_MIB(4));
    const uint64_t second = workbench_alloc(&bench, 0, GC_MIB(4));
    sim_driver_submit(&bench.sim, 1, first, GC_MIB(4));
    workbench_free(&bench, first);
    sim_driver_submit(&bench.sim, 1, second, GC_MIB(4));
    workbench_free(&bench, second);
    assert_int_equal(bench.contexts[0]->fences->count, 2);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(4)), first);
    assert_int_equal(bench.sim.calls[SIM_FENCE_WAIT], 1);
    assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], 0);
    assert_int_equal(bench.sim.use_count, 1);
    workbench_close(&bench);
}

static void peers_are_fenced_too(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    gc_backing_add_peer(bench.contexts[0], bench.contexts[1]);
    workbench_free_busy(&bench, 2, GC_MIB(60));
    /* The program waits for the owner alone: the peer still works. */
    workbench_retire(&bench);
    assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(60));
    assert_true(gc_fence_record(bench.contexts[0]));
    sim_driver_complete(&bench.sim, 1);
    assert_false(gc_fence_poll(bench.contexts[0]));
    workbench_alloc(&bench, 0, GC_MIB(60));
    workbench_close(&bench);
}

/* A peer may become one after its work was submitted, if not after the free: a fence recorded
 * before proves nothing about it. */
static void late_peer_is_waited_for(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(20));
    const uint64_t b = workbench_alloc(&bench, 0, GC_MIB(20));
    sim_driver_submit(&bench.sim, 1, a, GC_MIB(20));
    workbench_free(&bench, a);
    sim_driver_submit(&bench.sim, 2, b, GC_MIB(20));
    assert_true(gc_fence_record(bench.contexts[0]));
    gc_backing_add_peer(bench.contexts[0], bench.contexts[1]);
    workbench_free(&bench, b);
    sim_driver_complete(&bench.sim, 1);
    assert_true(gc_fence_poll(bench.contexts[0]));
    gc_defer_collect(bench.contexts[0]);
    assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(20));
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(20)), a);
    workbench_close(&bench);
}

/* Work that may reach any memory: contexts that are there, and that come, wait for its context. */
static void roaming_context_is_fenced_by_all(void **state)
{
    struct workbench bench;
    struct gc_context *late;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(20));
    const uint64_t b = workbench_alloc(&bench, 0, GC_MIB(20));
    sim_driver_submit(&bench.sim, 1, a, GC_MIB(20));
    workbench_free(&bench, a);
    assert_true(gc_fence_record(bench.contexts[0]));
    gc_context_set_roaming(bench.contexts[1]);
    gc_context_set_roaming(bench.contexts[1]);
    sim_driver_submit(&bench.sim, 2, b, GC_MIB(20));
    workbench_free(&bench, b); /* the earlier fence does not cover this one */
    sim_driver_complete(&bench.sim, 1);
    assert_true(gc_fence_poll(bench.contexts[0]));
    gc_defer_collect(bench.contexts[0]);
    assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(20));
    workbench_retire(&bench); /* the owner's own wait neither */
    assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(20));
    assert_true(gc_fence_record(bench.contexts[0]));
    assert_false(gc_fence_poll(bench.contexts[0]));
    sim_driver_complete(&bench.sim, 2);
    assert_true(gc_fence_poll(bench.contexts[0]));
    assert_status(gc_setup_add_context(bench.core, 1000, bench.device, &late), GC_OK);
    struct gc_wait_set set;
    gc_pool_acquire_plain(&late->pool);
    assert_true(gc_peers_wait_begin_locked(late, &set));
    gc_pool_release(&late->pool);
    assert_int_equal(set.count, 2);
    assert_ptr_equal(set.contexts[1], bench.contexts[1]);
    gc_peers_wait_end(&set);
    gc_teardown_finish(gc_teardown_begin(bench.core, gc_context_handle(bench.contexts[1])));
    gc_pool_acquire_plain(&late->pool);
    assert_true(gc_peers_wait_begin_locked(late, &set));
    gc_pool_release(&late->pool);
    assert_int_equal(set.count, 1);
    gc_peers_wait_end(&set);
    workbench_close(&bench);
}

/* Nothing is known of work that goes unseen. */
static void unseen_work_roams(void **state)
{
    struct workbench bench;
    struct gc_context *late;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    assert_true(gc_submit_set_conservative(bench.core));
    assert_status(gc_setup_add_context(bench.core, 1000, bench.device, &late), GC_OK);
    for (unsigned i = 0; i < 2; i++) {
        struct gc_context *context = i == 0 ? bench.contexts[0] : late;
        struct gc_wait_set set;
        gc_pool_acquire_plain(&context->pool);
        assert_true(gc_peers_wait_begin_locked(context, &set));
        gc_pool_release(&context->pool);
        assert_int_equal(set.count, WORKBENCH_CONTEXTS + 1);
        gc_peers_wait_end(&set);
    }
    workbench_close(&bench);
}

/* More peers than a fence has room for. */
/* For a workbench with fences. The first context has more peers than a fence has room for. */
static void open_crowd(struct workbench *bench)
{
    workbench_open_fenced(bench, GC_MIB(64));
    for (uint64_t i = 0; i < GC_PEER_MAX; i++) {
        struct gc_context *peer;
        assert_status(gc_setup_add_context(bench->core, 1000 + i, bench->device, &peer), GC_OK);
        gc_backing_add_peer(bench->contexts[0], peer);
    }
    assert_true(gc_fence_record(bench->contexts[0]));
    gc_backing_add_peer(bench->contexts[0], bench->contexts[1]);
    gc_backing_add_peer(bench->contexts[0], bench->contexts[2]);
    assert_int_equal(bench->contexts[0]->peer_count, GC_PEER_MAX);
}

static void crowd_of_peers_is_waited_for(void **state)
{
    struct workbench bench;
    (void)state;
    open_crowd(&bench);
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(60));
        sim_driver_submit(&bench.sim, 2 + i, a, GC_MIB(60));
        workbench_free(&bench, a);
        const uint64_t epoch = gc_context_epoch(bench.contexts[0]);
        gc_core_complete(bench.core, bench.contexts[0], epoch);
        assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(60));
    }
    uint64_t other;
    workbench_capture(&bench, 2, true);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(60), &other), GC_OUT_OF_MEMORY);
    workbench_capture(&bench, 2, false);
    workbench_alloc(&bench, 0, GC_MIB(60));
    workbench_close(&bench);
}

/* Work that never ends, of a context without a fence, holds a request up for a while only. */
static void endless_work_without_fences_ends_a_wait(void **state)
{
    for (unsigned way = 0; way < 2; way++) {
        struct workbench bench;
        uint64_t other;
        (void)state;
        if (way == 0)
            open_crowd(&bench);
        else
            workbench_open_fenced(&bench, GC_MIB(64));
        const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(60));
        sim_driver_submit(&bench.sim, 1, a, GC_MIB(60));
        workbench_capture(&bench, 0, true); /* the free waits for nothing */
        workbench_free(&bench, a);
        workbench_capture(&bench, 0, false);
        bench.sim.has_no_fences = way == 1;
        bench.sim.is_endless = true;
        const uint64_t waits = bench.sim.calls[SIM_SYNCHRONIZE];
        assert_status(workbench_try_alloc(&bench, 0, GC_MIB(60), &other), GC_OUT_OF_MEMORY);
        assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], waits);
        bench.sim.is_endless = false;
        workbench_close(&bench);
    }
}

/* The driver has no memory for a fence, now and later: blocks that are only pending serve all the
 * same, after a synchronisation. */
static void pending_memory_serves_where_fences_find_no_memory(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    for (unsigned round = 0; round < 3; round++) {
        const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(60));
        sim_driver_submit(&bench.sim, 1, a, GC_MIB(60));
        bench.sim.has_no_room_for_fences =
            round > 0; /* the first free shows that there are fences */
        workbench_free(&bench, a);
    }
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    assert_int_equal(workbench_figures(&bench).oom_count, 0);
    assert_true(bench.sim.calls[SIM_SYNCHRONIZE] > 0);
    workbench_close(&bench);
}

static void pass_time(void *argument, enum sim_call call, uint64_t context)
{
    struct workbench *bench = argument;
    (void)context;
    if (call == SIM_FENCE_WAIT)
        atomic_fetch_add(&bench->sim.clock_ahead_ns, GC_RECLAIM_STEP_NS);
}

/* How many waits a request makes that finds no memory. */
static uint64_t count_waits(struct workbench *bench)
{
    uint64_t address;
    const uint64_t before = bench->sim.calls[SIM_FENCE_WAIT];
    assert_status(workbench_try_alloc(bench, 0, GC_MIB(60), &address), GC_OUT_OF_MEMORY);
    return bench->sim.calls[SIM_FENCE_WAIT] - before;
}

/* A call of the program may ask several times, and others come. */
static void wait_without_success_is_not_repeated(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    bench.sim.is_endless = true;
    bench.sim.hook = pass_time;
    bench.sim.hook_argument = &bench;
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(60));
        sim_driver_submit(&bench.sim, 1, a, GC_MIB(60));
        workbench_free(&bench, a);
        const uint64_t waits = count_waits(&bench);
        assert_in_range(waits, GC_RECLAIM_WAIT_NS / GC_RECLAIM_STEP_NS / 2,
                        GC_RECLAIM_WAIT_NS / GC_RECLAIM_STEP_NS + 10);
        assert_in_range(count_waits(&bench), 0, 10);
        sim_driver_complete(&bench.sim, 1); /* from now on it is worth while again */
    }
    workbench_close(&bench);
}

/* A call that is no request for memory waits shortly, whatever the work does. */
static void relief_of_other_calls_is_brief(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        struct workbench bench;
        (void)state;
        workbench_open_fenced(&bench, GC_MIB(64));
        bench.sim.is_endless = true;
        bench.sim.hook = pass_time;
        bench.sim.hook_argument = &bench;
        const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(60));
        sim_driver_submit(&bench.sim, 1, a, GC_MIB(60));
        workbench_free(&bench, a);
        const uint64_t before = bench.sim.calls[SIM_FENCE_WAIT];
        assert_false(gc_direct_reclaim(bench.core, bench.device, GC_MIB(1), i == 1));
        const uint64_t limit_ns = i == 1 ? GC_RECLAIM_WAIT_NS : GC_RELIEF_WAIT_NS;
        assert_in_range(bench.sim.calls[SIM_FENCE_WAIT] - before, limit_ns / GC_RECLAIM_STEP_NS / 2,
                        limit_ns / GC_RECLAIM_STEP_NS + 10);
        /* A brief wait says nothing to a request, which waits its own time. */
        assert_int_equal(count_waits(&bench) > 100, i == 0);
        sim_driver_complete(&bench.sim, 1);
        workbench_close(&bench);
    }
}

/* Memory of a context goes with it: others' work that may use what was freed is waited for. */
static void end_of_a_context_without_fences_waits_for_others(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    gc_backing_add_peer(bench.contexts[0], bench.contexts[1]);
    bench.sim.has_no_fences = true;
    const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(4));
    sim_driver_submit(&bench.sim, 2, a, GC_MIB(4));
    workbench_capture(&bench, 0, true); /* the free waits for nothing */
    workbench_free(&bench, a);
    workbench_capture(&bench, 0, false);
    assert_true(sim_driver_is_used(&bench.sim, a, GC_MIB(4)));
    struct gc_context *ending = gc_teardown_begin(bench.core, 1);
    assert_false(sim_driver_is_used(&bench.sim, a, GC_MIB(4)));
    gc_teardown_cancel(ending);
    workbench_close(&bench);
}

/* Also where an open fence is passed that has nothing of it. */
static void end_of_a_context_waits_for_what_no_fence_covers(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    gc_backing_add_peer(bench.contexts[0], bench.contexts[1]);
    const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(1));
    assert_true(gc_fence_record(bench.contexts[0]));
    sim_driver_submit(&bench.sim, 2, a, GC_MIB(1));
    workbench_free(&bench, a);
    assert_true(sim_driver_is_used(&bench.sim, a, GC_MIB(1)));
    struct gc_context *ending = gc_teardown_begin(bench.core, 1);
    assert_false(sim_driver_is_used(&bench.sim, a, GC_MIB(1)));
    gc_teardown_cancel(ending);
    workbench_close(&bench);
}

static void *end_capture_later(void *argument)
{
    const struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
    workbench_capture(argument, 2, false);
    return NULL;
}

/* And for what was freed while another thread captures. */
static void end_of_a_context_waits_for_captures(void **state)
{
    struct workbench bench;
    pthread_t thread;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    gc_backing_add_peer(bench.contexts[0], bench.contexts[1]);
    const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(1));
    workbench_capture(&bench, 2, true);
    sim_driver_submit(&bench.sim, 2, a, GC_MIB(1));
    workbench_free(&bench, a);
    assert_int_equal(pthread_create(&thread, NULL, end_capture_later, &bench), 0);
    struct gc_context *ending = gc_teardown_begin(bench.core, 1);
    pthread_join(thread, NULL);
    assert_false(sim_driver_is_used(&bench.sim, a, GC_MIB(1)));
    gc_teardown_cancel(ending);
    workbench_close(&bench);
}

static void capture_is_left_alone(void **state)
{
    struct workbench bench;
    uint64_t other;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(60));
    sim_driver_submit(&bench.sim, 1, a, GC_MIB(60));
    workbench_capture(&bench, 0, true);
    workbench_free(&bench, a);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(60), &other), GC_OUT_OF_MEMORY);
    assert_false(gc_fence_record(bench.contexts[0]));
    workbench_capture(&bench, 0, false);
    workbench_alloc(&bench, 0, GC_MIB(60));
    workbench_close(&bench);
}

static void one_stream_reuses_at_once_and_waits_when_it_ends(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    workbench_pretend_one_stream(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    assert_true(gc_submit_begin(bench.core, GC_STREAM_LEGACY, &bench.driver_code));
    sim_driver_submit(&bench.sim, 1, a, 4096);
    workbench_free(&bench, a);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], 0);
    assert_true(gc_submit_begin(bench.core, GC_STREAM_LEGACY, &bench.driver_code));
    assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], 0);
    assert_true(gc_submit_begin(bench.core, GC_STREAM_OTHER, &bench.driver_code));
    sim_driver_expect_idle(&bench.sim, a, 4096); /* now it may go to any stream */
    workbench_free_busy(&bench, 1, 4096);
    assert_int_equal(workbench_figures(&bench).pending.current, 4096);
    workbench_close(&bench);
}

/* Without that wait no other work may start, not even the one stream's, whose memory others have.
 */
static void one_stream_holds_others_up_while_the_driver_fails(void **state)
{
    struct workbench bench;
    int code = 0;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    workbench_pretend_one_stream(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    assert_true(gc_submit_begin(bench.core, GC_STREAM_LEGACY, &code));
    sim_driver_submit(&bench.sim, 1, a, 4096);
    workbench_free(&bench, a);
    sim_driver_fail(&bench.sim, 1, true, SIM_BROKEN);
    assert_false(gc_submit_begin(bench.core, GC_STREAM_OTHER, &code));
    assert_int_equal(code, SIM_BROKEN);
    assert_false(gc_submit_begin(bench.core, GC_STREAM_LEGACY, &code));
    sim_driver_fail(&bench.sim, 0, false, 0);
    assert_true(gc_submit_begin(bench.core, GC_STREAM_LEGACY, &code));
    sim_driver_expect_idle(&bench.sim, a, 4096);
    workbench_close(&bench);
}

/* Memory idle in the order of one stream is not idle enough to be released. */
static void one_stream_waits_before_memory_goes_back(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    workbench_pretend_one_stream(&bench);
    workbench_free_busy(&bench, 1, GC_MIB(40));
    sim_driver_fail(&bench.sim, 1, true, SIM_BROKEN);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), 0);
    sim_driver_fail(&bench.sim, 0, false, 0);
    workbench_check(&bench);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), GC_MIB(40));
    workbench_close(&bench);
}

static void unseen_work_makes_every_free_pending(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(64));
    assert_true(gc_submit_set_conservative(bench.core));
    assert_false(gc_submit_set_conservative(bench.core));
    bench.sim.work = NULL; /* nobody counts */
    for (unsigned i = 0; i < 10; i++) {
        workbench_free_busy(&bench, 1, GC_MIB(60));
        assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(60));
    }
    workbench_close(&bench);
}

static void wait_of_the_program_answers_open_fences(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    workbench_free_busy(&bench, 1, 4096);
    assert_true(gc_fence_record(bench.contexts[0]));
    workbench_retire(&bench);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    gc_fence_poll(bench.contexts[0]);
    assert_int_equal(bench.sim.calls[SIM_FENCE_QUERY], 0);
    assert_int_equal(bench.sim.fence_count, 0);
    workbench_close(&bench);
}

static void dropped_context_forgets_its_fences(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    gc_backing_add_peer(bench.contexts[0], bench.contexts[1]);
    workbench_free_busy(&bench, 1, 4096);
    assert_true(gc_fence_record(bench.contexts[0]));
    workbench_drop(&bench, 0);
    assert_int_equal(bench.sim.fence_count, 0);
    workbench_close(&bench);
}

/* Each driver call of the path in turn, once and permanently. */
static void failing_calls_lose_nothing(void **state)
{
    (void)state;
    for (unsigned is_permanent = 0; is_permanent < 2; is_permanent++) {
        bool fired = true;
        for (uint64_t n = 1; fired; n++) {
            struct workbench bench;
            uint64_t address;
            workbench_open_fenced(&bench, GC_MIB(64));
            sim_driver_fail(&bench.sim, n, is_permanent != 0, SIM_BROKEN);
            for (unsigned i = 0; i < 12; i++) {
                if (workbench_try_alloc(&bench, 0, GC_MIB(20), &address) != GC_OK)
                    continue;
                sim_driver_submit(&bench.sim, 1, address, GC_MIB(20));
                workbench_free(&bench, address);
            }
            fired = bench.sim.failed_count > 0;
            sim_driver_fail(&bench.sim, 0, false, 0);
            gc_reclaim_empty(bench.core, bench.device);
            assert_int_equal(bench.sim.used_bytes, 0);
            workbench_close(&bench);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_with_queued_work_calls_nothing),
        cmocka_unit_test(without_work_nothing_is_queried),
        cmocka_unit_test(fence_covers_what_was_submitted_before_it),
        cmocka_unit_test(what_is_freed_while_a_fence_is_recorded_waits_for_the_next),
        cmocka_unit_test(loop_asks_seldom_and_stays_bounded),
        cmocka_unit_test(lagging_device_is_queried_seldom),
        cmocka_unit_test(pending_memory_never_causes_an_out_of_memory),
        cmocka_unit_test(reclaim_waits_for_the_oldest),
        cmocka_unit_test(peers_are_fenced_too),
        cmocka_unit_test(late_peer_is_waited_for),
        cmocka_unit_test(roaming_context_is_fenced_by_all),
        cmocka_unit_test(unseen_work_roams),
        cmocka_unit_test(crowd_of_peers_is_waited_for),
        cmocka_unit_test(endless_work_without_fences_ends_a_wait),
        cmocka_unit_test(pending_memory_serves_where_fences_find_no_memory),
        cmocka_unit_test(wait_without_success_is_not_repeated),
        cmocka_unit_test(relief_of_other_calls_is_brief),
        cmocka_unit_test(end_of_a_context_without_fences_waits_for_others),
        cmocka_unit_test(end_of_a_context_waits_for_what_no_fence_covers),
        cmocka_unit_test(end_of_a_context_waits_for_captures),
        cmocka_unit_test(capture_is_left_alone),
        cmocka_unit_test(one_stream_reuses_at_once_and_waits_when_it_ends),
        cmocka_unit_test(one_stream_holds_others_up_while_the_driver_fails),
        cmocka_unit_test(one_stream_waits_before_memory_goes_back),
        cmocka_unit_test(unseen_work_makes_every_free_pending),
        cmocka_unit_test(wait_of_the_program_answers_open_fences),
        cmocka_unit_test(dropped_context_forgets_its_fences),
        cmocka_unit_test(failing_calls_lose_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("fence", tests, NULL, NULL);
}
