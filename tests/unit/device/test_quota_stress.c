/* Two tenants at once: threads against limits that together pass the device's, and each driver call
 * of a scenario failing in turn. A quota never exceeds its limit, nor the driver's allocations that
 * of the device, and at the end all is released. */
#include "core/device/quota.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/direct/elastic.h"
#include "core/reclaim/limit.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define LIMIT GC_MIB(32)        /* of a tenant */
#define DEVICE_LIMIT GC_MIB(48) /* less than both */
#define THREADS 4
#define ROUNDS 3000
#define HELD_MAX 10
#define BLOCKS 6
#define RUNS_MAX 2000

struct pair {
    struct workbench bench;
    struct gc_tenant *tenants[2];
    struct gc_context *own[2];
    atomic_bool is_over;   /* the threads are done */
    atomic_uint violation; /* a limit that was passed, a status that must not be */
    atomic_uint served;
    atomic_uint refused[2]; /* by the tenant's limit; by the device's */
};

static void open_pair(struct pair *pair, uint64_t capacity, bool has_mapping)
{
    static const char *const names[] = {"one", "two"};
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = capacity,
                                          .limit_bytes = DEVICE_LIMIT,
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = true};
    *pair = (struct pair){.is_over = false};
    workbench_open(&pair->bench, &setup);
    pair->bench.tenant_limit_bytes = LIMIT;
    for (unsigned i = 0; i < 2; i++) {
        const struct gc_tenant_config config = {.name = names[i], .limit_bytes = LIMIT};
        assert_status(gc_tenant_add(pair->bench.core, &config, &pair->tenants[i]), GC_OK);
        assert_status(
            gc_setup_tenant_context(pair->tenants[i], pair->bench.contexts[0], &pair->own[i]),
            GC_OK);
    }
}

/* ---- threads ---- */

struct worker {
    struct pair *pair;
    pthread_t thread;
    unsigned seed;
    unsigned tenant;
    struct gc_tcache *cache;
    uint64_t held[HELD_MAX];
    unsigned count;
};

static uint64_t read_held(const struct gc_quota *quota)
{
    return atomic_load_explicit(&quota->reserved.current, memory_order_relaxed);
}

static void look(struct pair *pair)
{
    for (unsigned i = 0; i < 2; i++)
        if (read_held(pair->own[i]->quota) > LIMIT)
            atomic_fetch_add(&pair->violation, 1);
    if (gc_device_reserved_bytes(pair->bench.device) > DEVICE_LIMIT)
        atomic_fetch_add(&pair->violation, 1);
}

static void *doorbell(void *argument)
{
    struct pair *pair = argument;
    while (!atomic_load(&pair->is_over))
        look(pair);
    return NULL;
}

static void worker_alloc(struct worker *worker)
{
    struct pair *pair = worker->pair;
    struct workbench *bench = &pair->bench;
    const bool is_large = rand_r(&worker->seed) % 3 == 0;
    const struct gc_request request = {
        .bytes = (uint64_t)rand_r(&worker->seed) % (is_large ? GC_MIB(9) : GC_KIB(64)) + 1};
    uint64_t address;
    int code;
    if (!gc_tcache_alloc(worker->cache, pair->own[worker->tenant], &request, &address)) {
        const enum gc_status status =
            gc_alloc(bench->core, pair->own[worker->tenant], &request, &address, &code);
        if (status != GC_OK)
            atomic_fetch_add(status == GC_OUT_OF_MEMORY ? &pair->refused[0] : &pair->violation, 1);
        if (status != GC_OK)
            return;
    }
    atomic_fetch_add(&pair->served, 1);
    sim_driver_expect_idle(&bench->sim, address, request.bytes);
    sim_driver_submit(&bench->sim, 1, address, request.bytes);
    worker->held[worker->count++] = address;
}

static void worker_free(struct worker *worker)
{
    struct gc_core *core = worker->pair->bench.core;
    const uint64_t address = worker->held[--worker->count];
    int code;
    if (!gc_tcache_free(core, worker->cache, address) &&
        !gc_tcache_free_to_pool(core, worker->cache, address) &&
        gc_free(core, address, API_OTHER, &code) != GC_OK)
        atomic_fetch_add(&worker->pair->violation, 1);
}

static void worker_reserve(struct worker *worker)
{
    struct gc_core *core = worker->pair->bench.core;
    struct gc_device *device = worker->pair->bench.device;
    struct gc_quota *quota = worker->pair->own[worker->tenant]->quota;
    const uint64_t bytes = (uint64_t)rand_r(&worker->seed) % GC_MIB(4) + 1;
    if (gc_direct_try_charge(core, device, quota, bytes))
        gc_direct_uncharge(core, device, quota, bytes);
    else
        atomic_fetch_add(&worker->pair->refused[1], 1);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    worker->cache = gc_tcache_create(worker->pair->bench.core);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (worker->count == HELD_MAX || (worker->count > 0 && rand_r(&worker->seed) % 2 == 0))
            worker_free(worker);
        else if (rand_r(&worker->seed) % 16 == 0)
            worker_reserve(worker);
        else
            worker_alloc(worker);
        look(worker->pair);
    }
    while (worker->count > 0)
        worker_free(worker);
    gc_tcache_destroy(worker->pair->bench.core, worker->cache);
    return NULL;
}

static void assert_empty(struct pair *pair)
{
    gc_reclaim_empty(pair->bench.core, pair->bench.device);
    gc_tcache_flush_all_stats(pair->bench.core);
    for (unsigned i = 0; i < 2; i++) {
        struct gc_tenant_figures figures;
        assert_true(gc_tenant_read(pair->tenants[i], pair->bench.device, &figures));
        assert_int_equal(figures.requested.current, 0);
        assert_int_equal(figures.allocated.current, 0);
        assert_int_equal(figures.reserved.current, 0);
        assert_int_equal(figures.idle_bytes, 0);
        assert_int_equal(figures.pending_bytes, 0);
        assert_int_equal(figures.alloc_count, figures.free_count);
        assert_int_equal(pair->own[i]->quota->mapped_bytes, 0);
    }
    assert_int_equal(gc_device_reserved_bytes(pair->bench.device), 0);
    assert_int_equal(pair->bench.sim.used_bytes, 0);
}

static void run_threads(bool has_mapping)
{
    static struct pair pair;
    struct worker workers[THREADS];
    pthread_t watcher;
    open_pair(&pair, GC_MIB(512), has_mapping);
    assert_int_equal(pthread_create(&watcher, NULL, doorbell, &pair), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.pair = &pair, .seed = i + 1, .tenant = i % 2};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    atomic_store(&pair.is_over, true);
    pthread_join(watcher, NULL);
    assert_int_equal(atomic_load(&pair.violation), 0);
    assert_true(atomic_load(&pair.served) > 0 && atomic_load(&pair.refused[0]) > 0);
    assert_true(pair.bench.sim.peak_bytes <= DEVICE_LIMIT);
    workbench_check(&pair.bench);
    assert_empty(&pair);
    workbench_close(&pair.bench);
}

static void threads_of_two_tenants(void **state)
{
    (void)state;
    run_threads(false);
}

static void threads_of_two_tenants_mapped(void **state)
{
    (void)state;
    run_threads(true);
}

/* ---- each driver call fails ---- */

struct play {
    struct pair pair;
    uint64_t blocks[BLOCKS];
    unsigned refused;
    bool has_failed; /* and the failure is over */
};

static void try_alloc(struct play *play, unsigned i, unsigned tenant, uint64_t bytes)
{
    const struct gc_request request = {.bytes = bytes};
    struct workbench *bench = &play->pair.bench;
    const enum gc_status status = gc_alloc(bench->core, play->pair.own[tenant], &request,
                                           &play->blocks[i], &bench->driver_code);
    assert_true(status == GC_OK || status == GC_OUT_OF_MEMORY || status == GC_DRIVER);
    if (status != GC_OK)
        play->blocks[i] = 0;
    else
        sim_driver_expect_idle(&bench->sim, play->blocks[i], bytes);
    play->refused += status != GC_OK;
}

static void try_free(struct play *play, unsigned i)
{
    struct workbench *bench = &play->pair.bench;
    if (play->blocks[i] == 0)
        return;
    sim_driver_submit(&bench->sim, 1, play->blocks[i], GC_KIB(4));
    const enum gc_status status = workbench_try_free(bench, play->blocks[i]);
    assert_true(status == GC_OK || status == GC_DRIVER);
    if (status == GC_OK)
        play->blocks[i] = 0;
    play->refused += status != GC_OK;
}

static void use_elastic(struct play *play)
{
    struct workbench *bench = &play->pair.bench;
    struct gc_context *context = bench->contexts[0];
    const struct gc_elastic_setup setup = {
        .capacity_bytes = GC_MIB(32), .quota = play->pair.own[0]->quota, .api = API_OTHER};
    uint64_t pool;
    uint64_t base;
    enum gc_status status =
        gc_elastic_create(bench->core, context, &setup, &pool, &base, &bench->driver_code);
    if (status != GC_OK) {
        play->refused++;
        return;
    }
    play->refused += gc_elastic_allocate(bench->core, context, pool, 0, GC_MIB(12),
                                         &bench->driver_code) != GC_OK;
    status = gc_elastic_destroy(bench->core, context, pool, &bench->driver_code);
    if (status == GC_OK)
        return;
    play->refused++;
    play->has_failed = bench->sim.failed_count > 0;
    sim_driver_fail(&bench->sim, 0, false, 0);
    assert_status(gc_elastic_destroy(bench->core, context, pool, &bench->driver_code), GC_OK);
}

/* Misses, requests beyond the limits of tenant and device, a limit that falls and rises. */
static void act(struct play *play, bool has_mapping)
{
    try_alloc(play, 0, 0, GC_MIB(20));
    try_alloc(play, 1, 1, GC_MIB(20));
    try_alloc(play, 2, 0, 700);
    try_free(play, 1);
    try_free(play, 0);
    try_alloc(play, 0, 0, GC_MIB(28)); /* in place of its own, and the other's */
    try_alloc(play, 3, 1, GC_MIB(8));
    gc_limit_set_tenant(play->pair.tenants[0], GC_MIB(12));
    try_free(play, 0);
    try_alloc(play, 0, 0, GC_MIB(8));
    gc_limit_set_tenant(play->pair.tenants[0], LIMIT);
    if (has_mapping)
        use_elastic(play);
    try_alloc(play, 4, 0, GC_MIB(5));
    try_free(play, 3);
    try_free(play, 4);
    try_alloc(play, 4, 1, GC_MIB(24));
}

static void end(struct play *play)
{
    struct workbench *bench = &play->pair.bench;
    sim_driver_fail(&bench->sim, 0, false, 0);
    gc_limit_set_tenant(play->pair.tenants[0], LIMIT);
    workbench_check(bench);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (play->blocks[i] != 0)
            workbench_free(bench, play->blocks[i]);
    /* Resolves what was pending, and asks the driver again where it failed. */
    for (unsigned i = 0; i < 2; i++) {
        try_alloc(play, i, i, 512);
        assert_int_not_equal(play->blocks[i], 0);
        workbench_free(bench, play->blocks[i]);
    }
    assert_empty(&play->pair);
    workbench_close(bench);
}

static void fail_each(bool has_mapping, bool is_permanent, int code)
{
    unsigned n;
    for (n = 1; n < RUNS_MAX; n++) {
        struct play play = {.refused = 0};
        int ignored;
        open_pair(&play.pair, GC_MIB(256), has_mapping);
        (void)gc_submit_leave_single_stream(play.pair.bench.core, &ignored);
        sim_driver_fail(&play.pair.bench.sim, n, is_permanent, code);
        act(&play, has_mapping);
        const bool has_fired = play.has_failed || play.pair.bench.sim.failed_count > 0;
        if (!has_fired)
            assert_int_equal(play.refused, 0);
        end(&play);
        if (!has_fired)
            break;
    }
    assert_true(n > 10 && n < RUNS_MAX);
}

static void every_call_fails_once(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        fail_each(has_mapping != 0, false, SIM_BROKEN);
        fail_each(has_mapping != 0, false, SIM_OUT_OF_MEMORY);
    }
}

static void every_call_fails_permanently(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        fail_each(has_mapping != 0, true, SIM_BROKEN);
        fail_each(has_mapping != 0, true, SIM_OUT_OF_MEMORY);
    }
}

/* ---- releases under way ---- */

#define RELEASES 2000
#define RELEASE_WAIT_NS UINT64_C(10000000000)

struct releaser {
    struct gc_device *device;
    struct gc_quota *quota;   /* NULL: none */
    atomic_int waits, waited; /* of the other thread: begun and over */
};

static void wait_until(const atomic_int *count, int value)
{
    while (atomic_load(count) < value)
        sched_yield();
}

/* Each release ends while the other thread waits, or is about to. */
static void *release_often(void *argument)
{
    struct releaser *releaser = argument;
    for (int i = 1; i <= RELEASES; i++) {
        gc_device_release_begin(releaser->device, releaser->quota);
        wait_until(&releaser->waits, i);
        gc_device_release_end(releaser->device, releaser->quota);
        wait_until(&releaser->waited, i);
    }
    return NULL;
}

static void wait_for_each_release(struct gc_device *device, struct gc_quota *quota)
{
    struct releaser releaser = {device, quota, 0, 0};
    const uint64_t start_ns = gc_clock_ns();
    const atomic_uint *count = quota != NULL ? &quota->release_count : &device->release_count;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_often, &releaser), 0);
    for (int i = 1; i <= RELEASES; i++) {
        while (atomic_load(count) == 0)
            sched_yield();
        atomic_store(&releaser.waits, i);
        (void)gc_device_wait_releases(device, quota, RELEASE_WAIT_NS);
        assert_true(gc_clock_ns() - start_ns < RELEASE_WAIT_NS);
        atomic_store(&releaser.waited, i);
    }
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&device->release_waiter_count), 0);
}

/* No wake-up is lost: each wait ends with the release, none by its own bound. */
static void a_wait_for_releases_ends_with_the_last(void **state)
{
    struct pair pair;
    (void)state;
    open_pair(&pair, GC_MIB(64), false);
    struct gc_device *device = pair.bench.device;
    assert_false(gc_device_wait_releases(device, NULL, RELEASE_WAIT_NS));
    wait_for_each_release(device, NULL);
    wait_for_each_release(device, pair.own[0]->quota);
    gc_device_release_begin(device, NULL);
    assert_false(gc_device_wait_releases(device, pair.own[0]->quota, RELEASE_WAIT_NS));
    gc_device_release_end(device, NULL);
    workbench_close(&pair.bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_two_tenants),
        cmocka_unit_test(threads_of_two_tenants_mapped),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(every_call_fails_permanently),
        cmocka_unit_test(a_wait_for_releases_ends_with_the_last),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("share stress", tests, NULL, NULL);
}
