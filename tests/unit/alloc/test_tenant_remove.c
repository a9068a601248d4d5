/* The end of a tenant: refused while it has memory in use, else everything is as if it had never
 * been, whatever the driver does. */
#include "core/base/bits.h"
#include "core/debug/debug.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/limit.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LARGE GC_MIB(24)
#define PEER_HANDLE 9
#define PEER_DEVICE 3

static void open_with(struct workbench *bench, bool has_mapping, unsigned debug)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .debug = debug,
                                          .is_fenced = debug == 0};
    workbench_open(bench, &setup);
}

static struct gc_tenant *add_tenant(struct workbench *bench)
{
    return workbench_add_tenant(bench, "one", GC_MIB(256), GC_BUDGET_UNLIMITED);
}

static enum gc_status remove_tenant(struct workbench *bench, struct gc_tenant *tenant)
{
    const enum gc_status status = gc_tenant_remove(bench->core, tenant);
    assert_int_equal(gc_tenant_is_open(tenant), status != GC_OK && status != GC_INVALID_ARGUMENT);
    workbench_check(bench);
    return status;
}

/* As if the tenant had never been, but for its figures. */
static void assert_gone(struct workbench *bench, struct gc_tenant *tenant,
                        struct gc_context *record)
{
    struct gc_tenant_figures figures;
    struct gc_context *own;
    uint64_t address;
    assert_true(gc_tenant_read(tenant, bench->device, &figures));
    assert_true(figures.is_removed);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.allocated.current, 0);
    assert_int_equal(figures.pending_bytes, 0);
    assert_int_equal(figures.idle_bytes, 0);
    assert_int_equal(figures.base_address, 0);
    assert_int_equal(bench->sim.used_bytes, 0);
    assert_int_equal(bench->sim.range_count, atomic_load(&bench->core->kept_range_count));
    assert_int_equal(bench->sim.fence_count, 0);
    assert_int_equal(gc_device_reserved_bytes(bench->device), 0);
    assert_null(gc_tenant_find(bench->core, "one"));
    assert_status(gc_setup_tenant_context(tenant, bench->contexts[0], &own), GC_INVALID_ARGUMENT);
    assert_status(gc_tenant_remove(bench->core, tenant), GC_INVALID_ARGUMENT);
    if (record != NULL)
        assert_status(workbench_try_alloc_in(bench, record, LARGE, &address), GC_INVALID_ARGUMENT);
}

static void it_gives_everything_back(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct workbench bench;
        open_with(&bench, has_mapping != 0, 0);
        struct gc_tenant *tenant = add_tenant(&bench);
        struct gc_context *record = workbench_record(&bench, tenant, 0);
        const uint64_t a = workbench_alloc_in(&bench, record, LARGE);
        const uint64_t b = workbench_alloc_in(&bench, record, 5000);
        const uint64_t c = workbench_alloc_in(&bench, workbench_record(&bench, tenant, 1), LARGE);
        workbench_free(&bench, workbench_alloc_in(&bench, record, GC_MIB(3)));
        sim_driver_submit(&bench.sim, 1, a, LARGE);
        workbench_free(&bench, a);
        assert_true(gc_fence_record(record));
        sim_driver_submit(&bench.sim, 1, b, 5000);
        workbench_free(&bench, b);
        sim_driver_submit(&bench.sim, 2, c, LARGE);
        workbench_free(&bench, c);
        assert_status(remove_tenant(&bench, tenant), GC_OK);
        assert_int_equal(bench.sim.use_count, 0);
        assert_gone(&bench, tenant, record);
        struct gc_tenant *again = add_tenant(&bench);
        assert_ptr_not_equal(again, tenant);
        struct gc_context *other = workbench_record(&bench, again, 0);
        assert_ptr_not_equal(other, record);
        workbench_free(&bench, workbench_alloc_in(&bench, other, LARGE));
        workbench_close(&bench);
    }
}

static void it_is_refused_while_memory_is_in_use(void **state)
{
    struct workbench bench;
    (void)state;
    open_with(&bench, true, 0);
    struct gc_tenant *tenant = add_tenant(&bench);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    struct gc_context *second = workbench_record(&bench, tenant, 1);
    const uint64_t idle = workbench_alloc_in(&bench, record, LARGE);
    workbench_free(&bench, idle);
    const uint64_t live = workbench_alloc_in(&bench, second, 700);
    const uint64_t reserved = gc_device_reserved_bytes(bench.device);
    assert_status(remove_tenant(&bench, tenant), GC_BUSY);
    assert_int_equal(gc_device_reserved_bytes(bench.device), reserved);
    assert_int_equal(workbench_alloc_in(&bench, record, LARGE), idle);
    workbench_free(&bench, live);
    assert_status(remove_tenant(&bench, tenant), GC_BUSY);
    workbench_free(&bench, idle);
    gc_publish_tenant_paused(tenant, true);
    assert_status(remove_tenant(&bench, tenant), GC_BUSY);
    gc_publish_tenant_paused(tenant, false);
    assert_status(remove_tenant(&bench, tenant), GC_OK);
    assert_gone(&bench, tenant, record);
    workbench_close(&bench);
}

static void it_is_refused_while_direct_memory_is_in_use(void **state)
{
    struct workbench bench;
    struct gc_quota *quota;
    struct gc_direct direct;
    (void)state;
    open_with(&bench, true, 0);
    struct gc_tenant *tenant = add_tenant(&bench);
    assert_status(gc_tenant_quota(tenant, bench.device, &quota), GC_OK);
    assert_status(gc_direct_charge_device(bench.core, bench.device, quota, GC_MIB(4)), GC_OK);
    direct = (struct gc_direct){.kind = GC_DIRECT_ARRAY,
                                .key = 0x1234,
                                .requested_bytes = GC_MIB(4),
                                .charged_bytes = GC_MIB(4),
                                .device = bench.device,
                                .quota = quota,
                                .context = bench.contexts[0],
                                .api = API_OTHER};
    assert_status(gc_direct_track(bench.core, &direct), GC_OK);
    bench.tenant_direct_bytes = GC_MIB(4);
    assert_status(remove_tenant(&bench, tenant), GC_BUSY);
    assert_status(gc_direct_untrack(bench.core, GC_DIRECT_ARRAY, 0x1234, &direct), GC_OK);
    bench.tenant_direct_bytes = 0;
    assert_status(remove_tenant(&bench, tenant), GC_OK);
    assert_gone(&bench, tenant, NULL);
    workbench_close(&bench);
}

static void what_a_thread_keeps_goes_too(void **state)
{
    struct workbench bench;
    (void)state;
    open_with(&bench, true, 0);
    struct gc_tcache *cache = gc_tcache_create(bench.core);
    struct gc_tenant *tenant = add_tenant(&bench);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    const uint64_t a = workbench_alloc_in(&bench, record, 4096);
    const uint64_t b = workbench_alloc_in(&bench, record, 4096);
    assert_true(gc_tcache_free(bench.core, cache, a)); /* ready at once */
    assert_int_equal(gc_tcache_alloc_bytes(cache, record, 4096, API_MALLOC), a);
    sim_driver_submit(&bench.sim, 1, a, 4096);
    assert_true(gc_tcache_free(bench.core, cache, a)); /* and not before the work is done */
    assert_status(remove_tenant(&bench, tenant), GC_BUSY);
    assert_true(gc_tcache_free(bench.core, cache, b));
    assert_status(remove_tenant(&bench, tenant), GC_OK);
    assert_int_equal(gc_tcache_alloc_bytes(cache, record, 4096, API_MALLOC), GC_ADDRESS_NONE);
    assert_gone(&bench, tenant, record);
    gc_tcache_destroy(bench.core, cache);
    workbench_close(&bench);
}

/* Blocks that other processes were given, and a program that is only watched. */
static void other_kinds_of_memory_go_too(void **state)
{
    (void)state;
    for (unsigned is_tracked = 0; is_tracked < 2; is_tracked++) {
        const struct workbench_setup setup = {.mode = is_tracked ? GC_MODE_TRACK : GC_MODE_CACHE,
                                              .capacity_bytes = GC_MIB(1024),
                                              .trim_percent = 100,
                                              .has_mapping = true,
                                              .is_fenced = true};
        struct workbench bench;
        uint64_t whole[2];
        workbench_open(&bench, &setup);
        struct gc_tenant *tenant = add_tenant(&bench);
        struct gc_context *record = workbench_record(&bench, tenant, 0);
        const struct gc_request request = {.bytes = LARGE, .api = API_MALLOC, .is_dedicated = true};
        for (unsigned i = 0; i < 2; i++)
            assert_status(gc_alloc(bench.core, record, &request, &whole[i], &bench.driver_code),
                          GC_OK);
        workbench_export(&bench, whole[0]);
        for (unsigned i = 0; i < 2; i++) {
            sim_driver_submit(&bench.sim, 1, whole[i], LARGE);
            assert_status(remove_tenant(&bench, tenant), GC_BUSY);
            workbench_free(&bench, whole[i]);
        }
        assert_status(remove_tenant(&bench, tenant), GC_OK);
        assert_gone(&bench, tenant, record);
        workbench_close(&bench);
    }
}

/* Nothing can be waited for meanwhile; what was freed in the capture goes back after it. */
static void a_capture_puts_it_off(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct workbench bench;
        open_with(&bench, has_mapping != 0, 0);
        struct gc_tenant *tenant = add_tenant(&bench);
        struct gc_context *record = workbench_record(&bench, tenant, 0);
        workbench_free(&bench, workbench_alloc_in(&bench, record, LARGE));
        workbench_capture(&bench, 0, true);
        workbench_free(&bench, workbench_alloc_ordered(&bench, record, LARGE));
        workbench_free(&bench, workbench_alloc_ordered(&bench, record, GC_MIB(60)));
        assert_status(remove_tenant(&bench, tenant), GC_CAPTURING);
        workbench_capture(&bench, 0, false);
        gc_reclaim_empty(bench.core, bench.device);
        assert_int_equal(gc_device_reserved_bytes(bench.device), 0);
        assert_int_equal(atomic_load(&bench.core->kept_range_count), 0);
        assert_status(remove_tenant(&bench, tenant), GC_OK);
        assert_gone(&bench, tenant, record);
        /* The addresses stay reserved: the graph may be run though it must not. */
        assert_int_equal(bench.sim.range_count, has_mapping != 0);
        workbench_close(&bench);
    }
}

struct attempt {
    struct workbench *bench;
    struct gc_tenant *tenant;
    struct gc_context *record;
    unsigned count;
};

static void try_meanwhile(void *argument, enum sim_call call, uint64_t context)
{
    struct attempt *attempt = argument;
    struct gc_context *own;
    uint64_t address;
    (void)context;
    if (call != SIM_SYNCHRONIZE && call != SIM_PAGE_RELEASE && call != SIM_ADDRESS_FREE)
        return;
    attempt->count++;
    assert_status(workbench_try_alloc_in(attempt->bench, attempt->record, LARGE, &address),
                  GC_INVALID_ARGUMENT);
    assert_status(gc_setup_tenant_context(attempt->tenant, attempt->bench->contexts[1], &own),
                  GC_INVALID_ARGUMENT);
    assert_status(gc_tenant_remove(attempt->bench->core, attempt->tenant), GC_BUSY);
}

static void it_serves_nobody_meanwhile(void **state)
{
    struct workbench bench;
    (void)state;
    open_with(&bench, true, 0);
    struct attempt attempt = {.bench = &bench, .tenant = add_tenant(&bench)};
    attempt.record = workbench_record(&bench, attempt.tenant, 0);
    const uint64_t a = workbench_alloc_in(&bench, attempt.record, LARGE);
    sim_driver_submit(&bench.sim, 1, a, LARGE);
    workbench_free(&bench, a);
    bench.sim.hook_argument = &attempt;
    bench.sim.hook = try_meanwhile;
    assert_status(remove_tenant(&bench, attempt.tenant), GC_OK);
    bench.sim.hook = NULL;
    assert_true(attempt.count >= 3);
    assert_gone(&bench, attempt.tenant, attempt.record);
    workbench_close(&bench);
}

static void its_handle_may_go_before(void **state)
{
    struct workbench bench;
    (void)state;
    open_with(&bench, true, 0);
    struct gc_tenant *tenant = add_tenant(&bench);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    struct gc_context *second = workbench_record(&bench, tenant, 1);
    (void)workbench_alloc_in(&bench, record, LARGE);
    workbench_drop(&bench, 0);
    workbench_free(&bench, workbench_alloc_in(&bench, second, LARGE));
    assert_status(remove_tenant(&bench, tenant), GC_OK);
    assert_gone(&bench, tenant, second);
    workbench_drop(&bench, 1);
    workbench_close(&bench);
}

static void the_debug_aids_let_it_go(void **state)
{
    static const unsigned kinds[] = {GC_DEBUG_POISON, GC_DEBUG_UAF, GC_DEBUG_GUARD,
                                     GC_DEBUG_POISON | GC_DEBUG_UAF | GC_DEBUG_GUARD};
    (void)state;
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct workbench bench;
        open_with(&bench, i != 0, kinds[i]);
        struct gc_tenant *tenant = add_tenant(&bench);
        struct gc_context *record = workbench_record(&bench, tenant, 0);
        const uint64_t a = workbench_alloc_in(&bench, record, 5000);
        const uint64_t b = workbench_alloc_in(&bench, record, 70000);
        workbench_free(&bench, a);
        assert_status(remove_tenant(&bench, tenant), GC_BUSY);
        workbench_free(&bench, b);
        assert_status(remove_tenant(&bench, tenant), GC_OK);
        assert_int_equal(bench.sim.used_bytes, 0);
        assert_int_equal(gc_device_reserved_bytes(bench.device), 0);
        assert_int_equal(workbench_figures(&bench).misuse_count, 0);
        workbench_close(&bench);
    }
}

/* A write after the free is reported for a tenant's block as for any other. */
static void poison_is_looked_at_in_a_tenants_block(void **state)
{
    struct workbench bench;
    (void)state;
    open_with(&bench, true, GC_DEBUG_POISON);
    struct gc_tenant *tenant = add_tenant(&bench);
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    const uint64_t a = workbench_alloc_in(&bench, record, 100000);
    workbench_free(&bench, a);
    assert_int_equal(sim_driver_peek(&bench.sim, a), GC_DEBUG_FREED);
    sim_driver_write(&bench.sim, a + 5, 3, 1);
    assert_int_equal(workbench_alloc_in(&bench, record, 100000), a);
    assert_int_equal(workbench_figures(&bench).misuse_count, 1);
    workbench_free(&bench, a);
    sim_driver_write(&bench.sim, a + 5, 3, 1);
    assert_status(remove_tenant(&bench, tenant), GC_OK);
    assert_int_equal(workbench_figures(&bench).misuse_count, 2);
    workbench_close(&bench);
}

/* ---- whatever fails ---- */

#define LEFT_MAX 8

/* Blocks that are still live. */
struct left {
    uint64_t addresses[LEFT_MAX];
    unsigned count;
};

static void take(struct workbench *bench, struct gc_context *record, uint64_t bytes,
                 struct left *left)
{
    uint64_t address;
    assert_true(left->count < LEFT_MAX);
    if (workbench_try_alloc_in(bench, record, bytes, &address) != GC_OK)
        return;
    sim_driver_submit(&bench->sim, 1, address, bytes);
    left->addresses[left->count++] = address;
}

static void give(struct workbench *bench, struct left *left)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < left->count; i++)
        if (workbench_try_free(bench, left->addresses[i]) != GC_OK)
            left->addresses[kept++] = left->addresses[i];
    left->count = kept;
}

/* A tenant's life. */
static bool live(struct workbench *bench, struct gc_context *peer, struct gc_tenant *tenant,
                 bool captures, struct left *left)
{
    struct gc_context *record = workbench_record(bench, tenant, 0);
    for (unsigned i = 0; i < 3; i++)
        take(bench, record, i == 1 ? 3000 : GC_MIB(9), left);
    give(bench, left);
    gc_backing_add_peer(bench->contexts[0], peer);
    take(bench, record, LARGE, left);
    if (captures)
        workbench_capture(bench, 0, true);
    take(bench, record, GC_MIB(9), left);
    give(bench, left);
    take(bench, record, GC_MIB(60), left);
    if (captures)
        workbench_capture(bench, 0, false);
    (void)gc_defer_drain(record, GC_RECLAIM_WAIT_NS);
    gc_reclaim_trim(bench->core, bench->device, GC_MIB(8));
    give(bench, left);
    return gc_tenant_remove(bench->core, tenant) == GC_OK;
}

static bool live_with_failure(bool has_mapping, bool is_fenced, bool is_permanent, uint64_t n)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = is_fenced};
    const struct gc_device_info info = {.ordinal = PEER_DEVICE, .total_bytes = GC_MIB(64)};
    struct workbench bench;
    struct gc_device *device;
    struct gc_context *peer;
    struct left left = {.count = 0};
    workbench_open(&bench, &setup);
    assert_status(gc_setup_add_device(bench.core, &info, &device), GC_OK);
    assert_status(gc_setup_add_context(bench.core, PEER_HANDLE, device, &peer), GC_OK);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "one", GC_MIB(128), GC_MIB(128));
    bench.tenant_limit_bytes = GC_MIB(128);
    sim_driver_fail(&bench.sim, n, is_permanent, SIM_BROKEN);
    const bool is_removed = live(&bench, peer, tenant, has_mapping != is_fenced, &left);
    const bool fired = bench.sim.failed_count > 0;
    sim_driver_fail(&bench.sim, 0, false, 0);
    workbench_check(&bench);
    give(&bench, &left);
    assert_int_equal(left.count, 0);
    if (!is_removed)
        assert_status(remove_tenant(&bench, tenant), GC_OK);
    assert_gone(&bench, tenant, NULL);
    workbench_close(&bench);
    return fired;
}

static void failing_calls_lose_nothing(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 8; kind++) {
        uint64_t n = 1;
        while (live_with_failure((kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0, n))
            n++;
        assert_true(n > 10);
    }
}

/* ---- threads ---- */

#define THREADS 4
#define ROUNDS 40 /* at least, and until so much was served: */
#define SERVED 800
#define HELD_MAX 8

struct town {
    struct workbench bench;
    atomic_uint unexpected;
    atomic_uint removed;
    atomic_uint served;
    atomic_bool is_over;
};

struct citizen {
    struct town *town;
    pthread_t thread;
    unsigned seed;
    uint64_t held[HELD_MAX];
    unsigned count;
};

static void put_back(struct citizen *citizen)
{
    int code;
    while (citizen->count > 0)
        if (gc_free(citizen->town->bench.core, citizen->held[--citizen->count], API_OTHER, &code) !=
            GC_OK)
            atomic_fetch_add(&citizen->town->unexpected, 1);
}

/* Whichever tenant of the name there is now, or none. */
static void take_some(struct citizen *citizen)
{
    struct town *town = citizen->town;
    struct workbench *bench = &town->bench;
    const unsigned context = (unsigned)rand_r(&citizen->seed) % 2;
    const struct gc_request request = {.bytes = 1 + (uint64_t)rand_r(&citizen->seed) %
                                                        (rand_r(&citizen->seed) % 3 ? 5000 : LARGE),
                                       .api = API_MALLOC};
    struct gc_tenant *tenant =
        gc_tenant_find(bench->core, rand_r(&citizen->seed) % 2 ? "one" : "two");
    struct gc_context *record;
    uint64_t address;
    int code;
    if (tenant == NULL ||
        gc_setup_tenant_context(tenant, bench->contexts[context], &record) != GC_OK)
        return;
    const enum gc_status status = gc_alloc(bench->core, record, &request, &address, &code);
    if (status == GC_OK) {
        sim_driver_expect_idle(&bench->sim, address, request.bytes);
        sim_driver_submit(&bench->sim, context + 1, address, request.bytes);
        citizen->held[citizen->count++] = address;
        atomic_fetch_add(&town->served, 1);
    } else if (status != GC_OUT_OF_MEMORY && status != GC_INVALID_ARGUMENT) {
        atomic_fetch_add(&town->unexpected, 1);
    }
}

static void *dwell(void *argument)
{
    struct citizen *citizen = argument;
    struct gc_context *head = citizen->town->bench.contexts[0];
    while (!atomic_load(&citizen->town->is_over)) {
        const unsigned count = 1 + (unsigned)rand_r(&citizen->seed) % HELD_MAX;
        while (citizen->count < count && !atomic_load(&citizen->town->is_over))
            take_some(citizen);
        if (rand_r(&citizen->seed) % 16 == 0) {
            gc_capture_begin_context(head);
            sched_yield();
            gc_capture_end_context(head);
        }
        put_back(citizen);
    }
    return NULL;
}

/* Registers and removes while all others allocate, free, capture and trim. */
static void *govern(void *argument)
{
    struct citizen *citizen = argument;
    struct town *town = citizen->town;
    struct gc_core *core = town->bench.core;
    struct gc_tenant_figures figures;
    for (unsigned i = 0; i < ROUNDS || atomic_load(&town->served) < SERVED; i++) {
        const char *name = i % 2 == 0 ? "one" : "two";
        const struct gc_tenant_config config = {name, GC_MIB(128), GC_MIB(96)};
        struct gc_tenant *tenant;
        const enum gc_status status = gc_tenant_add(core, &config, &tenant);
        if (status == GC_ALREADY_EXISTS)
            tenant = gc_tenant_find(core, name);
        gc_reclaim_trim(core, town->bench.device, GC_MIB(16));
        (void)gc_tenant_read(tenant, NULL, &figures);
        gc_limit_set_tenant(tenant, GC_MIB(64) + GC_MIB(i % 3 * 16));
        for (unsigned k = 0; k < 50; k++) {
            const enum gc_status removed = gc_tenant_remove(core, tenant);
            if (removed != GC_OK && removed != GC_BUSY && removed != GC_CAPTURING)
                atomic_fetch_add(&town->unexpected, 1);
            if (removed == GC_OK) {
                atomic_fetch_add(&town->removed, 1);
                break;
            }
            sched_yield();
        }
    }
    atomic_store(&town->is_over, true);
    return NULL;
}

static void tenants_come_and_go_while_others_work(void **state)
{
    static struct town town;
    static struct citizen citizens[THREADS];
    (void)state;
    open_with(&town.bench, true, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        citizens[i] = (struct citizen){.town = &town, .seed = i + 1};
        assert_int_equal(
            pthread_create(&citizens[i].thread, NULL, i == 0 ? govern : dwell, &citizens[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(citizens[i].thread, NULL);
    assert_int_equal(atomic_load(&town.unexpected), 0);
    assert_true(atomic_load(&town.removed) > 0);
    static const char *const names[] = {"one", "two"};
    for (unsigned i = 0; i < 2; i++) {
        struct gc_tenant *tenant = gc_tenant_find(town.bench.core, names[i]);
        if (tenant != NULL)
            assert_status(remove_tenant(&town.bench, tenant), GC_OK);
    }
    assert_int_equal(town.bench.sim.used_bytes, 0);
    assert_int_equal(town.bench.sim.range_count, atomic_load(&town.bench.core->kept_range_count));
    workbench_close(&town.bench);
}

struct dropper {
    struct workbench bench;
    _Atomic(struct gc_context *) context;
    _Atomic(struct gc_tenant *) tenant;
    atomic_bool is_over;
    atomic_uint unexpected;
    atomic_uint served;
};

static void *use_doomed(void *argument)
{
    struct dropper *dropper = argument;
    while (!atomic_load(&dropper->is_over)) {
        const struct gc_request request = {.bytes = 4096};
        struct gc_context *record;
        uint64_t address;
        int code;
        if (gc_setup_tenant_context(atomic_load(&dropper->tenant), atomic_load(&dropper->context),
                                    &record) != GC_OK)
            continue;
        const enum gc_status status =
            gc_alloc(dropper->bench.core, record, &request, &address, &code);
        if (status != GC_OK && status != GC_INVALID_ARGUMENT && status != GC_OUT_OF_MEMORY &&
            (status != GC_DRIVER || code != SIM_CONTEXT_IS_GONE))
            atomic_fetch_add(&dropper->unexpected, 1);
        if (status != GC_OK)
            continue;
        atomic_fetch_add(&dropper->served, 1);
        const enum gc_status freed = gc_free(dropper->bench.core, address, 0, &code);
        /* After a drop the address is unknown, or another thread's already. */
        if (freed != GC_OK && freed != GC_NOT_OURS && freed != GC_INVALID_POINTER &&
            freed != GC_DRIVER)
            atomic_fetch_add(&dropper->unexpected, 1);
    }
    return NULL;
}

static void replace_handle(struct dropper *dropper)
{
    struct workbench *bench = &dropper->bench;
    struct gc_context *fresh;
    workbench_drop(bench, 0);
    assert_status(gc_setup_add_context(bench->core, 1, bench->device, &fresh), GC_OK);
    bench->contexts[0] = fresh;
    atomic_store(&dropper->context, fresh);
}

static void replace_doomed(struct dropper *dropper)
{
    struct workbench *bench = &dropper->bench;
    struct gc_tenant *tenant = atomic_load(&dropper->tenant);
    const enum gc_status status = gc_tenant_remove(bench->core, tenant);
    if (status != GC_OK && status != GC_BUSY)
        atomic_fetch_add(&dropper->unexpected, 1);
    if (status == GC_OK)
        atomic_store(&dropper->tenant, add_tenant(bench));
}

static void run_handles_come_and_go_under_tenants(bool has_mapping)
{
    static struct dropper dropper;
    pthread_t threads[2];
    memset(&dropper, 0, sizeof(dropper));
    open_with(&dropper.bench, has_mapping, 0);
    atomic_store(&dropper.context, dropper.bench.contexts[0]);
    atomic_store(&dropper.tenant, add_tenant(&dropper.bench));
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_doomed, &dropper), 0);
    for (unsigned i = 0; i < 30 || atomic_load(&dropper.served) < 200; i++) {
        const struct timespec pause = {0, 1000000};
        replace_handle(&dropper);
        replace_doomed(&dropper);
        nanosleep(&pause, NULL); /* the others shall come to something in between */
    }
    atomic_store(&dropper.is_over, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&dropper.unexpected), 0);
    workbench_drop(&dropper.bench, 0);
    assert_status(remove_tenant(&dropper.bench, atomic_load(&dropper.tenant)), GC_OK);
    assert_int_equal(dropper.bench.sim.used_bytes, 0);
    assert_int_equal(dropper.bench.sim.range_count,
                     atomic_load(&dropper.bench.core->kept_range_count));
    assert_int_equal(gc_device_reserved_bytes(dropper.bench.device), 0);
    workbench_close(&dropper.bench);
}

static void handles_come_and_go_under_tenants(void **state)
{
    (void)state;
    run_handles_come_and_go_under_tenants(false);
    run_handles_come_and_go_under_tenants(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gives_everything_back),
        cmocka_unit_test(it_is_refused_while_memory_is_in_use),
        cmocka_unit_test(it_is_refused_while_direct_memory_is_in_use),
        cmocka_unit_test(what_a_thread_keeps_goes_too),
        cmocka_unit_test(other_kinds_of_memory_go_too),
        cmocka_unit_test(a_capture_puts_it_off),
        cmocka_unit_test(it_serves_nobody_meanwhile),
        cmocka_unit_test(its_handle_may_go_before),
        cmocka_unit_test(the_debug_aids_let_it_go),
        cmocka_unit_test(poison_is_looked_at_in_a_tenants_block),
        cmocka_unit_test(failing_calls_lose_nothing),
        cmocka_unit_test(tenants_come_and_go_while_others_work),
        cmocka_unit_test(handles_come_and_go_under_tenants),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tenant_remove", tests, NULL, NULL);
}
