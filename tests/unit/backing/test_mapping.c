/* Mapped memory: the places of blocks, the pages that are remapped, created and released, and that
 * a request succeeds whenever there is room for its pages. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE GC_MIB(2)

static void open_bench(struct workbench *bench, uint64_t capacity_bytes, uint64_t limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = capacity_bytes,
                                          .limit_bytes = limit_bytes,
                                          .trim_percent = 100,
                                          .has_mapping = true};
    workbench_open(bench, &setup);
}

static uint64_t calls_of_mapping(const struct workbench *bench)
{
    uint64_t sum = bench->sim.calls[SIM_MEM_ALLOC] + bench->sim.calls[SIM_MEM_FREE];
    for (int call = SIM_ADDRESS_RESERVE; call < SIM_CALL_COUNT; call++)
        sum += bench->sim.calls[call];
    return sum;
}

static uint64_t reserved_pages(const struct workbench *bench)
{
    assert_int_equal(gc_device_reserved_bytes(bench->device) % PAGE, 0);
    return gc_device_reserved_bytes(bench->device) / PAGE;
}

/* ---- placement ---- */

static void a_block_takes_the_pages_it_needs(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), 0);
    workbench_alloc(&bench, 0, 1);
    assert_int_equal(reserved_pages(&bench), 1);
    workbench_alloc(&bench, 0, GC_MIB(1)); /* behind it, in the same page */
    assert_int_equal(reserved_pages(&bench), 1);
    workbench_alloc(&bench, 0, GC_MIB(3));
    assert_int_equal(reserved_pages(&bench), 3);
    workbench_alloc(&bench, 0, GC_MIB(2)); /* not across: it would touch two */
    assert_int_equal(reserved_pages(&bench), 4);
    workbench_alloc(&bench, 0, GC_MIB(2) + 1);
    assert_int_equal(reserved_pages(&bench), 6);
    workbench_alloc(&bench, 0, GC_MIB(1) + 512); /* best fit: what the last one left */
    assert_int_equal(reserved_pages(&bench), 6);
    assert_int_equal(bench.sim.calls[SIM_MEM_ALLOC], 0);
    workbench_close(&bench);
}

static void a_backed_free_block_needs_no_call(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), 0);
    const uint64_t first = workbench_alloc(&bench, 0, GC_MIB(40));
    workbench_free(&bench, first);
    const uint64_t calls = calls_of_mapping(&bench);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(40)), first);
    workbench_free(&bench, first);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(32)), first);
    assert_int_equal(calls_of_mapping(&bench), calls);
    assert_int_equal(workbench_figures(&bench).hit_count, 2);
    workbench_close(&bench);
}

/* Few extents for a large block, one map for each, one call for the access of a range. */
static void mapping_costs_what_it_must(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(8192), 0);
    workbench_alloc(&bench, 0, GC_MIB(2048));
    assert_int_equal(bench.sim.calls[SIM_ADDRESS_RESERVE], 1);
    assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], 1);
    assert_int_equal(bench.sim.calls[SIM_PAGE_MAP], 1);
    assert_int_equal(bench.sim.calls[SIM_PAGE_SET_ACCESS], 1);
    workbench_alloc(&bench, 0, GC_MIB(640));
    assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], 9);
    assert_int_equal(bench.sim.calls[SIM_PAGE_MAP], 9);
    assert_int_equal(bench.sim.calls[SIM_PAGE_SET_ACCESS], 2);
    assert_int_equal(bench.sim.calls[SIM_PAGE_UNMAP], 0);
    workbench_close(&bench);
}

/* What leaves the device at the end of a turn are extents: none is so large that its copy ends long
 * before its release. */
static void turns_bound_extents(void **state)
{
    const uint64_t page_bytes[] = {GC_MIB(2), GC_MIB(512)};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                              .capacity_bytes = GC_MIB(8192),
                                              .trim_percent = 100,
                                              .has_mapping = true,
                                              .page_bytes = page_bytes[i]};
        struct workbench bench;
        int stands_in; /* for the record of turns: only whether there is one counts */
        workbench_open(&bench, &setup);
        bench.core->turns = (void *)&stands_in;
        const uint64_t block = workbench_alloc(&bench, 0, GC_MIB(2048));
        assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], i == 0 ? 8 : 4);
        assert_int_equal(bench.sim.calls[SIM_PAGE_SET_ACCESS], 1);
        /* A network card's memory is one handle all the same. */
        gc_export_expect_registration(bench.core);
        const uint64_t one = workbench_alloc(&bench, 0, GC_MIB(1024));
        assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], i == 0 ? 9 : 5);
        bench.core->turns = NULL;
        workbench_free(&bench, block);
        workbench_free(&bench, one);
        workbench_close(&bench);
    }
}

/* The last extent of a block reaches beyond it, where there is room: the next ones need no call. */
/* Larger than the extents of a block with pages of 2 MiB. */
static void pages_may_be_large(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = UINT64_C(64) << 30,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .page_bytes = GC_MIB(512)};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    const uint64_t large = workbench_alloc(&bench, 0, UINT64_C(3) << 30);
    const uint64_t block = workbench_alloc(&bench, 0, GC_MIB(900));
    assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], 3); /* one page each but for the first */
    workbench_check(&bench);
    workbench_free(&bench, block);
    workbench_free(&bench, large);
    workbench_close(&bench);
}

static void extents_reach_beyond_a_block(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(8192), 0);
    workbench_alloc(&bench, 0, GC_MIB(2048));
    const uint64_t first = workbench_alloc(&bench, 0, GC_MIB(6));
    const uint64_t calls = calls_of_mapping(&bench);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(26)), first + GC_MIB(6));
    assert_int_equal(calls_of_mapping(&bench), calls);
    workbench_check(&bench);
    workbench_close(&bench);
}

/* A request that cannot fit fails before the driver is called for its memory. */
static void a_request_beyond_the_limit_calls_little(void **state)
{
    struct workbench bench;
    uint64_t none;
    (void)state;
    open_bench(&bench, GC_MIB(8192), GC_MIB(1024));
    workbench_alloc(&bench, 0, GC_MIB(512));
    const uint64_t calls = calls_of_mapping(&bench);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(600), &none), GC_OUT_OF_MEMORY);
    assert_int_equal(calls_of_mapping(&bench), calls);
    workbench_check(&bench);
    workbench_close(&bench);
}

/* ---- remapping ---- */

/* Idle pages of small free blocks serve one long block; the small blocks get them back without a
 * call. */
static void pages_are_remapped_and_return(void **state)
{
    struct workbench bench;
    uint64_t blocks[32];
    (void)state;
    open_bench(&bench, GC_MIB(1024), GC_MIB(64));
    for (unsigned i = 0; i < 32; i++)
        blocks[i] = workbench_alloc(&bench, 0, PAGE);
    for (unsigned i = 0; i < 32; i += 2)
        workbench_free(&bench, blocks[i]);
    const uint64_t created = bench.sim.calls[SIM_PAGE_CREATE];
    const uint64_t one = workbench_alloc(&bench, 0, GC_MIB(32));
    assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], created);
    workbench_check(&bench);
    workbench_free(&bench, one);
    const uint64_t calls = calls_of_mapping(&bench);
    for (unsigned i = 0; i < 32; i += 2)
        blocks[i] = workbench_alloc(&bench, 0, PAGE);
    assert_int_equal(calls_of_mapping(&bench), calls);
    workbench_check(&bench);
    uint64_t none;
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(32), &none), GC_OUT_OF_MEMORY);
    for (unsigned i = 0; i < 32; i += 2)
        workbench_free(&bench, blocks[i]);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(32)), one);
    assert_int_equal(calls_of_mapping(&bench), calls);
    workbench_close(&bench);
}

/* A place whose page is in use elsewhere is left out, and serves again once the page is idle. */
static void a_place_without_its_page_is_left_out(void **state)
{
    struct workbench bench;
    uint64_t blocks[4];
    (void)state;
    open_bench(&bench, GC_MIB(1024), GC_MIB(8));
    for (unsigned i = 0; i < 4; i++)
        blocks[i] = workbench_alloc(&bench, 0, PAGE);
    workbench_free(&bench, blocks[0]);
    workbench_free(&bench, blocks[2]);
    const uint64_t pair = workbench_alloc(&bench, 0, 2 * PAGE); /* has both pages now */
    workbench_free(&bench, blocks[1]);
    const uint64_t calls = calls_of_mapping(&bench);
    assert_int_equal(workbench_alloc(&bench, 0, PAGE - 512), blocks[1]);
    workbench_check(&bench);
    workbench_free(&bench, pair);
    assert_int_equal(workbench_alloc(&bench, 0, PAGE - 512), blocks[0]);
    assert_int_equal(calls_of_mapping(&bench), calls);
    workbench_check(&bench);
    workbench_close(&bench);
}

/* ---- unmapping ---- */

static void idle_pages_go_back(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), 0);
    const uint64_t large = workbench_alloc(&bench, 0, GC_MIB(20));
    const uint64_t small = workbench_alloc(&bench, 0, 1000);
    workbench_free(&bench, large);
    assert_int_equal(workbench_figures(&bench).idle_bytes, GC_MIB(20));
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, GC_MIB(8)), GC_MIB(12));
    assert_int_equal(reserved_pages(&bench), 5);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), GC_MIB(8));
    assert_int_equal(reserved_pages(&bench), 1);
    workbench_check(&bench);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(20)), large);
    workbench_free(&bench, small);
    workbench_close(&bench);
}

/* A call for each mapping: the driver documents no unmap of several. */
/* Measures the pool between two unmaps, in another thread. Relaxed: under the thread sanitizer
 * nothing but the pool's lock orders the two threads. */
struct watcher {
    struct workbench *bench;
    pthread_t thread;
    uint64_t largest_bytes;
    atomic_bool has_seen;
};

static void *watch(void *argument)
{
    struct watcher *watcher = argument;
    struct gc_pool *pool = &watcher->bench->contexts[0]->pool;
    gc_pool_acquire_plain(pool);
    watcher->largest_bytes = gc_pool_measure_locked(pool).largest_bytes;
    gc_pool_release(pool);
    atomic_store_explicit(&watcher->has_seen, true, memory_order_relaxed);
    return NULL;
}

static void watch_unmap(void *argument, enum sim_call call, uint64_t context)
{
    struct watcher *watcher = argument;
    (void)context;
    if (call != SIM_PAGE_UNMAP || atomic_load_explicit(&watcher->has_seen, memory_order_relaxed))
        return;
    assert_int_equal(pthread_create(&watcher->thread, NULL, watch, watcher), 0);
    while (!atomic_load_explicit(&watcher->has_seen, memory_order_relaxed))
        sched_yield();
}

static void a_page_that_goes_counts_as_nobodys(void **state)
{
    struct workbench bench;
    struct watcher watcher = {.bench = &bench};
    (void)state;
    open_bench(&bench, GC_MIB(64), 0);
    const uint64_t block = workbench_alloc(&bench, 0, GC_MIB(8));
    workbench_free(&bench, block);
    bench.sim.hook_argument = &watcher;
    bench.sim.hook = watch_unmap;
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), GC_MIB(8));
    bench.sim.hook = NULL;
    pthread_join(watcher.thread, NULL);
    assert_int_equal(watcher.largest_bytes, 0);
    workbench_close(&bench);
}

static void each_mapping_goes_by_a_call(void **state)
{
    struct workbench bench;
    uint64_t blocks[16];
    (void)state;
    open_bench(&bench, GC_MIB(1024), 16 * PAGE);
    for (unsigned i = 0; i < 16; i++)
        blocks[i] = workbench_alloc(&bench, 0, PAGE);
    for (unsigned i = 0; i < 16; i += 2)
        workbench_free(&bench, blocks[i]);
    const uint64_t one = workbench_alloc(&bench, 0, 8 * PAGE); /* its pages have two addresses */
    workbench_free(&bench, one);
    for (unsigned i = 1; i < 8; i += 2)
        workbench_free(&bench, blocks[i]);
    assert_int_equal(bench.sim.calls[SIM_PAGE_UNMAP], 0);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), 12 * PAGE);
    assert_int_equal(bench.sim.calls[SIM_PAGE_UNMAP], 20); /* 12, eight of them twice */
    assert_int_equal(bench.sim.mapping_count, 4);
    workbench_check(&bench);
    for (unsigned i = 9; i < 16; i += 2)
        workbench_free(&bench, blocks[i]);
    workbench_drop(&bench, 0);
    assert_int_equal(bench.sim.mapping_count, 0);
    assert_int_equal(bench.sim.calls[SIM_PAGE_UNMAP], 24);
    workbench_close(&bench);
}

static void what_is_idle_in_one_context_serves_another(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), GC_MIB(32));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(30)));
    workbench_alloc(&bench, 1, GC_MIB(20));
    workbench_check(&bench);
    assert_int_equal(workbench_figures(&bench).oom_count, 0);
    workbench_close(&bench);
}

/* The device is full: idle pages serve instead of new ones. */
static void a_full_device_remaps(void **state)
{
    struct workbench bench;
    uint64_t blocks[4];
    (void)state;
    open_bench(&bench, GC_MIB(8), 0);
    for (unsigned i = 0; i < 4; i++)
        blocks[i] = workbench_alloc(&bench, 0, PAGE);
    workbench_free(&bench, blocks[0]);
    workbench_free(&bench, blocks[2]);
    workbench_alloc(&bench, 0, 2 * PAGE);
    workbench_free(&bench, blocks[1]);
    assert_int_equal(workbench_alloc(&bench, 0, PAGE - 512), blocks[1]);
    assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], 4);
    assert_int_equal(bench.sim.calls[SIM_PAGE_RELEASE], 0);
    workbench_check(&bench);
    workbench_close(&bench);
}

/* ---- work under way ---- */

/* All work of the process goes to one stream: frees are not waited for. */
static void open_single(struct workbench *bench, uint64_t limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .limit_bytes = limit_bytes,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
    workbench_pretend_one_stream(bench);
}

static void use(struct workbench *bench, uint64_t address, uint64_t bytes)
{
    struct gc_submissions *work = gc_core_submissions(bench->core);
    assert_true(gc_submit_begin(bench->core, GC_STREAM_LEGACY, &bench->driver_code));
    sim_driver_submit(&bench->sim, 1, address, bytes);
    gc_submit_end(work);
}

static void pages_go_back_after_the_work(void **state)
{
    struct workbench bench;
    (void)state;
    open_single(&bench, 0);
    const uint64_t block = workbench_alloc(&bench, 0, GC_MIB(4));
    use(&bench, block, GC_MIB(4));
    workbench_free(&bench, block);
    assert_int_equal(bench.sim.use_count, 1);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), GC_MIB(4));
    assert_int_equal(bench.sim.use_count, 0);
    workbench_close(&bench);
}

static void a_dropped_context_leaves_nothing(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), 0);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(30)));
    workbench_alloc(&bench, 0, GC_MIB(9));
    workbench_alloc(&bench, 0, 9);
    workbench_alloc(&bench, 1, 9);
    workbench_drop(&bench, 0);
    assert_int_equal(bench.sim.range_count, 1);
    assert_int_equal(bench.sim.page_count, 1);
    workbench_drop(&bench, 1);
    assert_int_equal(bench.sim.range_count, 0);
    assert_int_equal(bench.sim.mapping_count, 0);
    assert_int_equal(bench.sim.used_bytes, 0);
    assert_int_equal(gc_device_reserved_bytes(bench.device), 0);
    workbench_close(&bench);
}

/* ---- captures and peers ---- */

/* Such memory may be freed with work queued on it, since the driver's own free waits. */
static void beside_captures_memory_is_the_drivers(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(64), 0);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    workbench_capture(&bench, 0, true);
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t a = workbench_alloc(&bench, i % 2, GC_MIB(40));
        const uint64_t b = workbench_alloc(&bench, i % 2, 5000);
        sim_driver_submit(&bench.sim, 1, a, GC_MIB(40));
        sim_driver_submit(&bench.sim, 2, b, 5000);
        workbench_free(&bench, a);
        workbench_free(&bench, b);
        assert_int_equal(gc_device_reserved_bytes(bench.device), bench.sim.used_bytes);
    }
    const uint64_t late = workbench_alloc(&bench, 0, 5000);
    workbench_capture(&bench, 0, false);
    sim_driver_submit(&bench.sim, 1, late, 5000);
    workbench_free(&bench, late);
    workbench_check(&bench);
    gc_reclaim_empty(bench.core, bench.device);
    assert_int_equal(bench.sim.used_bytes, 0);
    workbench_close(&bench);
}

static void captures_take_what_is_there_or_plain_memory(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), 0);
    const uint64_t held = workbench_alloc(&bench, 0, GC_MIB(4));
    const uint64_t other = workbench_alloc(&bench, 0, GC_MIB(6));
    workbench_free(&bench, held);
    workbench_capture(&bench, 0, true);
    struct gc_context *context = bench.contexts[0];
    assert_int_equal(workbench_alloc_ordered(&bench, context, GC_MIB(4)), held);
    const uint64_t plain = workbench_alloc_ordered(&bench, context, GC_MIB(12));
    assert_int_equal(bench.sim.calls[SIM_MEM_ALLOC], 1);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), 0);
    workbench_capture(&bench, 0, false);
    workbench_free(&bench, held);
    workbench_free(&bench, plain);
    workbench_free(&bench, other);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(12)), plain);
    workbench_free(&bench, plain);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), GC_MIB(22));
    assert_false(sim_driver_is_accessible(&bench.sim, held, GC_MIB(4)));
    workbench_check(&bench);
    workbench_drop(&bench, 0);
    assert_int_equal(bench.sim.used_bytes, 0);
    workbench_close(&bench);
}

/* A context on a second device. */
static struct gc_context *add_peer_device(struct workbench *bench)
{
    const struct gc_device_info info = {.ordinal = 3, .total_bytes = GC_MIB(64)};
    struct gc_device *device;
    struct gc_context *peer;
    assert_status(gc_setup_add_device(bench->core, &info, &device), GC_OK);
    assert_status(gc_setup_add_context(bench->core, 9, device, &peer), GC_OK);
    return peer;
}

static void peers_get_access(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), 0);
    struct gc_context *peer = add_peer_device(&bench);
    const uint64_t before = workbench_alloc(&bench, 0, GC_MIB(5));
    const uint64_t small = workbench_alloc(&bench, 0, 5);
    assert_false(sim_driver_is_open_to(&bench.sim, 3, before, GC_MIB(5)));
    gc_backing_add_peer(bench.contexts[0], peer);
    assert_true(sim_driver_is_open_to(&bench.sim, 3, before, GC_MIB(5)));
    assert_true(sim_driver_is_open_to(&bench.sim, 3, small, 5));
    const uint64_t after = workbench_alloc(&bench, 0, GC_MIB(7));
    assert_true(sim_driver_is_open_to(&bench.sim, 3, after, GC_MIB(7)));
    workbench_close(&bench);
}

struct opening {
    struct workbench bench;
    struct gc_context *peer;
    pthread_t second;
    unsigned calls;
    atomic_bool is_open; /* as far as the second thread knows */
};

static void *open_too(void *argument)
{
    struct opening *opening = argument;
    gc_backing_add_peer(opening->bench.contexts[0], opening->peer);
    atomic_store(&opening->is_open, true);
    return NULL;
}

/* Another thread comes while the driver opens the memory. */
static void meet_another(void *argument, enum sim_call call, uint64_t context)
{
    struct opening *opening = argument;
    const struct timespec moment = {0, 20000000};
    (void)context;
    if (call != SIM_PAGE_SET_ACCESS || opening->calls++ != 0)
        return;
    pthread_create(&opening->second, NULL, open_too, opening);
    nanosleep(&moment, NULL);
    assert_false(atomic_load(&opening->is_open));
}

static void who_finds_a_peer_waits_until_memory_is_open_to_it(void **state)
{
    static struct opening opening;
    struct workbench *bench = &opening.bench;
    (void)state;
    open_bench(bench, GC_MIB(1024), 0);
    opening.peer = add_peer_device(bench);
    const uint64_t memory = workbench_alloc(bench, 0, GC_MIB(5));
    bench->sim.hook = meet_another;
    bench->sim.hook_argument = &opening;
    gc_backing_add_peer(bench->contexts[0], opening.peer);
    pthread_join(opening.second, NULL);
    bench->sim.hook = NULL;
    assert_true(sim_driver_is_open_to(&bench->sim, 3, memory, GC_MIB(5)));
    workbench_close(bench);
}

/* Memory that the driver refused to open to a peer is opened later. */
static void refused_access_is_requested_again(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), 0);
    struct gc_context *peer = add_peer_device(&bench);
    const uint64_t large = workbench_alloc(&bench, 0, GC_MIB(5));
    const uint64_t small = workbench_alloc(&bench, 0, 5);
    sim_driver_fail(&bench.sim, 1, true, SIM_BROKEN);
    gc_backing_add_peer(bench.contexts[0], peer);
    sim_driver_fail(&bench.sim, 0, false, 0);
    assert_false(sim_driver_is_open_to(&bench.sim, 3, large, GC_MIB(5)));
    workbench_alloc(&bench, 0, GC_MIB(7));
    assert_true(sim_driver_is_open_to(&bench.sim, 3, large, GC_MIB(5)));
    assert_true(sim_driver_is_open_to(&bench.sim, 3, small, 5));
    workbench_close(&bench);
}

/* ---- without ---- */

static int refuse_range(void *self, uint64_t context, uint64_t bytes, uint64_t alignment,
                        uint64_t *address)
{
    (void)self;
    (void)context;
    (void)bytes;
    (void)alignment;
    (void)address;
    return SIM_OUT_OF_MEMORY;
}

static void no_range_of_addresses_means_plain_memory(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(1024), 0);
    bench.core->driver.address_reserve = refuse_range;
    workbench_alloc(&bench, 0, GC_MIB(3));
    workbench_alloc(&bench, 0, 3);
    assert_int_equal(bench.sim.calls[SIM_MEM_ALLOC], 2);
    assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], 0);
    workbench_close(&bench);
}

/* ---- figures ---- */

static void figures_show_what_stitching_serves(void **state)
{
    struct workbench bench;
    uint64_t blocks[8];
    (void)state;
    open_bench(&bench, GC_MIB(1024), GC_MIB(16));
    for (unsigned i = 0; i < 8; i++)
        blocks[i] = workbench_alloc(&bench, 0, PAGE);
    for (unsigned i = 0; i < 8; i += 2)
        workbench_free(&bench, blocks[i]);
    struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.free_bytes, 4 * PAGE);
    assert_int_equal(figures.largest_free_bytes, PAGE);
    assert_int_equal(figures.stitchable_bytes, 4 * PAGE);
    const uint64_t one = workbench_alloc(&bench, 0, 3 * PAGE + 512);
    figures = workbench_figures(&bench);
    assert_int_equal(figures.stitchable_bytes, 0);
    assert_int_equal(figures.free_bytes, PAGE - 512);
    assert_int_equal(figures.largest_free_bytes, PAGE - 512);
    workbench_free(&bench, one);
    figures = workbench_figures(&bench);
    assert_int_equal(figures.free_bytes, 4 * PAGE); /* each page once, wherever it is mapped */
    assert_int_equal(figures.largest_free_bytes, 4 * PAGE);
    workbench_close(&bench);
}

/* ---- a request succeeds whenever there is room for its pages ---- */

#define LIVE_MAX 256

struct live {
    uint64_t address;
    uint64_t bytes;
};

struct crowd {
    struct workbench bench;
    struct live live[LIVE_MAX];
    unsigned count;
    uint64_t random;
};

static uint64_t draw(struct crowd *crowd, uint64_t below)
{
    crowd->random = crowd->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return gc_mix_u64(crowd->random) % below;
}

static int compare_words(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Pages of addresses that live blocks touch: the pages that are held by the naive model. */
static uint64_t live_pages(const struct crowd *crowd)
{
    static uint64_t pages[LIVE_MAX * 64];
    size_t count = 0;
    uint64_t distinct = 0;
    for (unsigned i = 0; i < crowd->count; i++) {
        const struct live *live = &crowd->live[i];
        for (uint64_t page = live->address / PAGE; page <= (live->address + live->bytes - 1) / PAGE;
             page++)
            pages[count++] = page;
    }
    qsort(pages, count, sizeof(*pages), compare_words);
    for (size_t i = 0; i < count; i++)
        distinct += i == 0 || pages[i] != pages[i - 1];
    return distinct;
}

static void crowd_alloc(struct crowd *crowd, uint64_t bytes)
{
    const uint64_t limit = gc_device_limit_bytes(crowd->bench.device) / PAGE;
    const uint64_t pages = live_pages(crowd);
    uint64_t address;
    assert_true(crowd->count < LIVE_MAX);
    const enum gc_status status = workbench_try_alloc(&crowd->bench, 0, bytes, &address);
    if (status == GC_OK)
        crowd->live[crowd->count++] = (struct live){address, bytes};
    else if (limit - pages >= (bytes + PAGE - 1) / PAGE)
        fail_msg("%" PRIu64 " bytes refused with %" PRIu64 " of %" PRIu64 " pages in use", bytes,
                 pages, limit);
    assert_true(gc_device_reserved_bytes(crowd->bench.device) <= limit * PAGE);
}

static void crowd_free(struct crowd *crowd, unsigned i)
{
    workbench_free(&crowd->bench, crowd->live[i].address);
    crowd->live[i] = crowd->live[--crowd->count];
}

/* Alternating sizes whose every second one stays, then ever longer ones. */
static void fragmenting_requests_are_served(void **state)
{
    static struct crowd crowd;
    (void)state;
    memset(&crowd, 0, sizeof(crowd));
    open_bench(&crowd.bench, GC_MIB(1024), GC_MIB(128));
    for (unsigned i = 0; i < 40; i++)
        crowd_alloc(&crowd, i % 2 == 0 ? GC_MIB(4) : GC_KIB(300) * (1 + i % 3));
    for (unsigned i = crowd.count; i-- > 0;) {
        if (crowd.live[i].bytes == GC_MIB(4))
            crowd_free(&crowd, i);
    }
    workbench_check(&crowd.bench);
    for (uint64_t bytes = GC_MIB(3); bytes <= GC_MIB(100); bytes += GC_MIB(5)) {
        crowd_alloc(&crowd, bytes);
        workbench_check(&crowd.bench);
        crowd_free(&crowd, crowd.count - 1);
    }
    workbench_close(&crowd.bench);
}

/* All that the driver has, in every mix of sizes: no request is refused that has room. */
static void random_crowds_are_served(void **state)
{
    static struct crowd crowd;
    const char *chosen = getenv("GC_TEST_SEED");
    const uint64_t seed = chosen != NULL ? strtoull(chosen, NULL, 0) : (uint64_t)time(NULL);
    (void)state;
    print_message("# seed %" PRIu64 "\n", seed);
    for (unsigned run = 0; run < 6; run++) {
        memset(&crowd, 0, sizeof(crowd));
        crowd.random = seed + run;
        open_bench(&crowd.bench, GC_MIB(1024), GC_MIB(16) << run % 3);
        const uint64_t longest = gc_device_limit_bytes(crowd.bench.device);
        for (unsigned step = 0; step < 3000; step++) {
            const uint64_t kind = draw(&crowd, 100);
            const uint64_t bytes = kind < 50   ? draw(&crowd, GC_MIB(1))
                                   : kind < 80 ? draw(&crowd, GC_MIB(4))
                                               : draw(&crowd, longest);
            if (crowd.count < LIVE_MAX && draw(&crowd, 100) < 52)
                crowd_alloc(&crowd, bytes + 1);
            else if (crowd.count > 0)
                crowd_free(&crowd, (unsigned)draw(&crowd, crowd.count));
            if (step % 50 == 0)
                workbench_check(&crowd.bench);
        }
        workbench_close(&crowd.bench);
    }
}

/* Small blocks that come after a large one leave its extent whole, but for a part of the room. */
static void small_blocks_leave_large_extents_whole(void **state)
{
    struct workbench bench;
    uint64_t blocks[64];
    (void)state;
    open_bench(&bench, GC_MIB(8192), 0);
    const struct gc_pages *pages = &bench.contexts[0]->pool.pages;
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(4096)));
    for (unsigned i = 0; i < 64; i++) {
        blocks[i] = workbench_alloc(&bench, 0, GC_MIB(3));
        assert_true(pages->stuck_count <= pages->stuck_most);
        assert_true(pages->stuck_most * PAGE <= GC_MIB(8192 / 16));
        assert_int_equal(workbench_figures(&bench).stuck_bytes, pages->stuck_count * PAGE);
    }
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(7000)));
    for (unsigned i = 0; i < 64; i++)
        workbench_free(&bench, blocks[i]);
    workbench_close(&bench);
}

/* The same where the large extent is one of many, and nothing else is idle. */
static void small_blocks_leave_mapped_extents_whole(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(8192), 0);
    const struct gc_pages *pages = &bench.contexts[0]->pool.pages;
    const uint64_t first = workbench_alloc(&bench, 0, GC_MIB(2048));
    const uint64_t second = workbench_alloc(&bench, 0, GC_MIB(4096));
    workbench_free(&bench, second);
    const uint64_t small = workbench_alloc(&bench, 0, GC_MIB(33)); /* idle memory is enough */
    assert_true(pages->stuck_count * PAGE <= GC_MIB(8192 / 16));
    workbench_free(&bench, first);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(8000)));
    workbench_free(&bench, small);
    workbench_close(&bench);
}

/* Requests that need changes of mappings, and do not raise the peak. */
static void change_often(struct workbench *bench, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        workbench_free(bench, workbench_alloc(bench, 0, GC_MIB(64)));
        gc_reclaim_trim(bench->core, bench->device, 0);
    }
}

/* A limit may be near at first. Once the peak has not risen for a while it is not, unless what else
 * is charged, contexts for one, leaves little room. */
static void a_limit_with_room_is_no_shortness_for_long(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(8192),
                                          .limit_bytes = GC_MIB(2048),
                                          .trim_percent = 100,
                                          .has_mapping = true};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    const struct gc_pages *pages = &bench.contexts[0]->pool.pages;
    const uint64_t block = workbench_alloc(&bench, 0, GC_MIB(1024));
    assert_true(pages->is_short && pages->is_exact);
    workbench_free(&bench, block);
    change_often(&bench, 8);
    assert_true(pages->is_short);
    change_often(&bench, 32);
    assert_false(pages->is_short);
    assert_true(pages->is_exact); /* new extents stay careful */
    gc_direct_adjust_device(bench.core, bench.device, (int64_t)GC_MIB(1000));
    change_often(&bench, 1);
    assert_true(pages->is_short); /* the peak and that do not leave a sixteenth */
    gc_direct_adjust_device(bench.core, bench.device, -(int64_t)GC_MIB(1000));
    change_often(&bench, 1);
    assert_false(pages->is_short);
    const uint64_t higher = workbench_alloc(&bench, 0, GC_MIB(1100));
    assert_true(pages->is_short); /* the peak has risen */
    workbench_free(&bench, higher);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_with_room_is_no_shortness_for_long),
        cmocka_unit_test(small_blocks_leave_large_extents_whole),
        cmocka_unit_test(small_blocks_leave_mapped_extents_whole),
        cmocka_unit_test(a_block_takes_the_pages_it_needs),
        cmocka_unit_test(a_backed_free_block_needs_no_call),
        cmocka_unit_test(mapping_costs_what_it_must),
        cmocka_unit_test(turns_bound_extents),
        cmocka_unit_test(pages_may_be_large),
        cmocka_unit_test(extents_reach_beyond_a_block),
        cmocka_unit_test(a_request_beyond_the_limit_calls_little),
        cmocka_unit_test(pages_are_remapped_and_return),
        cmocka_unit_test(a_place_without_its_page_is_left_out),
        cmocka_unit_test(idle_pages_go_back),
        cmocka_unit_test(a_page_that_goes_counts_as_nobodys),
        cmocka_unit_test(each_mapping_goes_by_a_call),
        cmocka_unit_test(what_is_idle_in_one_context_serves_another),
        cmocka_unit_test(a_full_device_remaps),
        cmocka_unit_test(pages_go_back_after_the_work),
        cmocka_unit_test(a_dropped_context_leaves_nothing),
        cmocka_unit_test(beside_captures_memory_is_the_drivers),
        cmocka_unit_test(captures_take_what_is_there_or_plain_memory),
        cmocka_unit_test(peers_get_access),
        cmocka_unit_test(who_finds_a_peer_waits_until_memory_is_open_to_it),
        cmocka_unit_test(refused_access_is_requested_again),
        cmocka_unit_test(no_range_of_addresses_means_plain_memory),
        cmocka_unit_test(figures_show_what_stitching_serves),
        cmocka_unit_test(fragmenting_requests_are_served),
        cmocka_unit_test(random_crowds_are_served),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
