/* Elastic pools: calls that map, their costs, refusals, reclaim, and a random run against a plain
 * model. */
#include "core/direct/elastic.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <stdlib.h>

#define PAGE GC_MIB(2)
#define PAGES 32 /* of the pool most tests use: it keeps 4 warm */

struct fixture {
    struct workbench bench;
    uint64_t pool;
    uint64_t base;
};

static enum gc_status create(struct fixture *fixture, uint64_t capacity, uint64_t page,
                             bool keeps_none)
{
    const struct gc_elastic_setup setup = {
        .capacity_bytes = capacity, .page_bytes = page, .keeps_none = keeps_none, .api = API_OTHER};
    return gc_elastic_create(fixture->bench.core, fixture->bench.contexts[0], &setup,
                             &fixture->pool, &fixture->base, &fixture->bench.driver_code);
}

static void open_with(struct fixture *fixture, uint64_t capacity_bytes, uint64_t limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = capacity_bytes,
                                          .limit_bytes = limit_bytes,
                                          .trim_percent = 100,
                                          .has_mapping = true};
    workbench_open(&fixture->bench, &setup);
    assert_status(create(fixture, PAGES * PAGE, 0, false), GC_OK);
}

static void open_plain(struct fixture *fixture)
{
    open_with(fixture, GC_MIB(1024), 0);
}

static enum gc_status allocate(struct fixture *fixture, uint64_t page, uint64_t count)
{
    return gc_elastic_allocate(fixture->bench.core, fixture->bench.contexts[0], fixture->pool,
                               page * PAGE, count * PAGE, &fixture->bench.driver_code);
}

static enum gc_status deallocate(struct fixture *fixture, uint64_t page, uint64_t count,
                                 bool is_idle)
{
    return gc_elastic_deallocate(fixture->bench.core, fixture->bench.contexts[0], fixture->pool,
                                 page * PAGE, count * PAGE, is_idle, &fixture->bench.driver_code);
}

static bool is_mapped(struct fixture *fixture, uint64_t page, uint64_t count)
{
    bool answer = false;
    assert_status(gc_elastic_is_mapped(fixture->bench.core, fixture->pool, page * PAGE,
                                       count * PAGE, &answer),
                  GC_OK);
    return answer;
}

static struct gc_elastic_figures figures_of(struct fixture *fixture)
{
    struct gc_elastic_figures figures;
    assert_status(gc_elastic_read(fixture->bench.core, fixture->pool, &figures), GC_OK);
    return figures;
}

static uint64_t compact(struct fixture *fixture)
{
    uint64_t given = 0;
    assert_status(gc_elastic_compact(fixture->bench.core, fixture->bench.contexts[0], fixture->pool,
                                     &given, &fixture->bench.driver_code),
                  GC_OK);
    return given;
}

static enum gc_status destroy(struct fixture *fixture)
{
    return gc_elastic_destroy(fixture->bench.core, fixture->bench.contexts[0], fixture->pool,
                              &fixture->bench.driver_code);
}

/* The pool's figures agree with the accounts and with the driver. */
static void check(struct fixture *fixture)
{
    const struct gc_elastic_figures figures = figures_of(fixture);
    const struct gc_device *device = fixture->bench.device;
    const uint64_t held =
        atomic_load_explicit(&device->direct_bytes[GC_DIRECT_ELASTIC], memory_order_relaxed);
    assert_int_equal(held, figures.mapped_bytes + figures.warm_bytes);
    assert_int_equal(figures.mapped_bytes + figures.free_bytes, figures.capacity_bytes);
    assert_int_equal(fixture->bench.sim.used_bytes, gc_device_reserved_bytes(device));
    fixture->bench.elastic_idle_bytes = figures.warm_bytes;
    workbench_check(&fixture->bench);
}

static void close_all(struct fixture *fixture)
{
    check(fixture);
    assert_status(destroy(fixture), GC_OK);
    fixture->bench.elastic_idle_bytes = 0;
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        workbench_drop(&fixture->bench, i); /* with what its pool has mapped */
    assert_int_equal(fixture->bench.sim.range_count, 0);
    assert_int_equal(fixture->bench.sim.mapping_count, 0);
    assert_int_equal(fixture->bench.sim.page_count, 0);
    workbench_close(&fixture->bench);
}

static void allocated_pages_are_there_and_counted(void **state)
{
    struct fixture f;
    (void)state;
    open_plain(&f);
    assert_int_equal(f.base % PAGE, 0);
    assert_int_equal(gc_device_reserved_bytes(f.bench.device), 0);
    assert_status(allocate(&f, 3, 4), GC_OK);
    assert_true(is_mapped(&f, 3, 4));
    assert_true(sim_driver_is_accessible(&f.bench.sim, f.base + 3 * PAGE, 4 * PAGE));
    assert_int_equal(f.bench.sim.calls[SIM_PAGE_CREATE], 4);
    assert_int_equal(f.bench.sim.calls[SIM_PAGE_SET_ACCESS], 1); /* one for the whole range */
    assert_int_equal(gc_device_reserved_bytes(f.bench.device), 4 * PAGE);
    assert_int_equal(workbench_figures(&f.bench).reserved.peak, 4 * PAGE);
    assert_int_equal(workbench_api_figures(&f.bench, API_OTHER).current_bytes, 4 * PAGE);
    assert_true(gc_device_was_used(f.bench.core));
    assert_status(deallocate(&f, 4, 2, false), GC_OK); /* the middle of it */
    assert_true(is_mapped(&f, 3, 1) && !is_mapped(&f, 4, 1) && !is_mapped(&f, 3, 4));
    assert_true(is_mapped(&f, 6, 1));
    assert_int_equal(workbench_api_figures(&f.bench, API_OTHER).current_bytes, 2 * PAGE);
    const struct gc_elastic_figures figures = figures_of(&f);
    assert_int_equal(figures.mapped_peak_bytes, 4 * PAGE);
    assert_int_equal(figures.allocate_count, 1);
    assert_int_equal(figures.deallocate_count, 1);
    close_all(&f);
}

static void wrong_ranges_are_refused_and_change_nothing(void **state)
{
    struct fixture f;
    bool answer;
    (void)state;
    open_plain(&f);
    assert_status(allocate(&f, 4, 2), GC_OK);
    assert_status(allocate(&f, 4, 2), GC_ALREADY_MAPPED);
    assert_status(allocate(&f, 3, 2), GC_ALREADY_MAPPED); /* one of two */
    assert_false(is_mapped(&f, 3, 1));
    assert_status(allocate(&f, PAGES, 1), GC_OUT_OF_RANGE);
    assert_status(allocate(&f, PAGES - 1, 2), GC_OUT_OF_RANGE);
    assert_status(allocate(&f, 1, UINT64_MAX / PAGE), GC_OUT_OF_RANGE); /* the sum wraps */
    assert_status(allocate(&f, 1, 0), GC_INVALID_ARGUMENT);
    assert_status(gc_elastic_allocate(f.bench.core, f.bench.contexts[0], f.pool, 512, PAGE,
                                      &f.bench.driver_code),
                  GC_MISALIGNED);
    assert_status(gc_elastic_allocate(f.bench.core, f.bench.contexts[0], f.pool, 0, PAGE + 1,
                                      &f.bench.driver_code),
                  GC_MISALIGNED);
    assert_status(deallocate(&f, 0, 1, false), GC_NOT_MAPPED);
    assert_status(deallocate(&f, 5, 2, false), GC_NOT_MAPPED); /* one of two */
    assert_status(deallocate(&f, PAGES - 1, 2, false), GC_OUT_OF_RANGE);
    assert_status(deallocate(&f, 4, 0, false), GC_INVALID_ARGUMENT);
    assert_true(is_mapped(&f, 4, 2));
    assert_status(gc_elastic_is_mapped(f.bench.core, f.pool, PAGES * PAGE, 1, &answer),
                  GC_OUT_OF_RANGE);
    assert_status(gc_elastic_is_mapped(f.bench.core, f.pool, 0, 0, &answer), GC_INVALID_ARGUMENT);
    assert_status(gc_elastic_is_mapped(f.bench.core, f.pool, 5 * PAGE + 7, 9, &answer), GC_OK);
    assert_true(answer);
    assert_status(gc_elastic_is_mapped(f.bench.core, f.pool, 6 * PAGE - 1, 2, &answer), GC_OK);
    assert_false(answer);
    close_all(&f);
}

static void creation_refuses_what_cannot_be(void **state)
{
    struct fixture f;
    struct workbench plain;
    (void)state;
    open_plain(&f);
    const struct fixture kept = f;
    assert_status(create(&f, 0, 0, false), GC_INVALID_ARGUMENT);
    assert_status(create(&f, PAGE, GC_MIB(3), false), GC_INVALID_ARGUMENT);
    assert_status(create(&f, UINT64_MAX, 0, false), GC_INVALID_ARGUMENT);
    f.pool = kept.pool;
    close_all(&f);
    workbench_open_plain(&plain); /* no mapped memory */
    f.bench = plain;
    assert_status(create(&f, PAGE, 0, false), GC_NOT_SUPPORTED);
    workbench_close(&f.bench);
}

static void wild_and_stale_handles_are_refused(void **state)
{
    struct fixture f;
    uint64_t given;
    bool answer;
    struct gc_elastic_figures figures;
    struct gc_device *device;
    (void)state;
    open_plain(&f);
    const uint64_t first = f.pool;
    assert_status(destroy(&f), GC_OK);
    assert_status(create(&f, PAGE, 0, false), GC_OK); /* the same slot again */
    assert_int_not_equal(f.pool, first);
    const uint64_t second = f.pool;
    const uint64_t wild[] = {0, 1, first, second + 1, second | 0xffff, UINT64_MAX, f.base};
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        f.pool = wild[i];
        assert_status(allocate(&f, 0, 1), GC_INVALID_HANDLE);
        assert_status(deallocate(&f, 0, 1, true), GC_INVALID_HANDLE);
        assert_status(destroy(&f), GC_INVALID_HANDLE);
        assert_status(gc_elastic_is_mapped(f.bench.core, f.pool, 0, 1, &answer), GC_INVALID_HANDLE);
        assert_status(gc_elastic_read(f.bench.core, f.pool, &figures), GC_INVALID_HANDLE);
        assert_status(gc_elastic_find_device(f.bench.core, f.pool, &device), GC_INVALID_HANDLE);
        assert_status(gc_elastic_compact(f.bench.core, f.bench.contexts[0], f.pool, &given,
                                         &f.bench.driver_code),
                      GC_INVALID_HANDLE);
    }
    f.pool = second;
    close_all(&f);
}

static void deallocation_waits_for_the_work_of_every_context(void **state)
{
    struct fixture f;
    (void)state;
    open_plain(&f);
    assert_status(allocate(&f, 0, 8), GC_OK);
    sim_driver_submit(&f.bench.sim, 1, f.base, PAGE);
    sim_driver_submit(&f.bench.sim, 3, f.base + 7 * PAGE, PAGE);
    assert_status(deallocate(&f, 0, 8, false), GC_OK); /* 4 of them are unmapped at once */
    assert_int_equal(f.bench.sim.use_count, 0);
    check(&f);
    assert_status(allocate(&f, 0, 1), GC_OK);
    const uint64_t waits = f.bench.sim.calls[SIM_SYNCHRONIZE];
    assert_status(deallocate(&f, 0, 1, true), GC_OK);
    assert_int_equal(f.bench.sim.calls[SIM_SYNCHRONIZE], waits); /* the caller knew */
    close_all(&f);
}

static void idle_pages_serve_their_place_without_the_driver(void **state)
{
    struct fixture f;
    (void)state;
    open_plain(&f);
    assert_status(allocate(&f, 0, 4), GC_OK);
    assert_status(deallocate(&f, 0, 4, true), GC_OK);
    assert_int_equal(figures_of(&f).warm_bytes, 4 * PAGE);
    assert_int_equal(gc_device_idle_bytes(f.bench.device), 4 * PAGE);
    uint64_t calls = f.bench.sim.total_calls;
    assert_status(allocate(&f, 0, 4), GC_OK);
    assert_int_equal(f.bench.sim.total_calls, calls);
    assert_status(deallocate(&f, 0, 4, true), GC_OK);
    calls = f.bench.sim.total_calls;
    assert_status(allocate(&f, 10, 4), GC_OK); /* another place: the same physical pages */
    assert_int_equal(f.bench.sim.calls[SIM_PAGE_CREATE], 4);
    assert_int_equal(f.bench.sim.calls[SIM_PAGE_RELEASE], 0);
    assert_int_equal(f.bench.sim.total_calls - calls, 4 + 4 + 1); /* unmap, map, access */
    assert_true(sim_driver_is_accessible(&f.bench.sim, f.base + 10 * PAGE, 4 * PAGE));
    close_all(&f);
}

static void page_cache_is_bounded(void **state)
{
    struct fixture f;
    (void)state;
    open_plain(&f);
    assert_status(allocate(&f, 0, PAGES), GC_OK);
    const uint64_t unmaps = f.bench.sim.calls[SIM_PAGE_UNMAP];
    assert_status(deallocate(&f, 0, PAGES, true), GC_OK);
    assert_int_equal(figures_of(&f).warm_bytes, PAGES / 8 * PAGE);
    assert_int_equal(f.bench.sim.calls[SIM_PAGE_UNMAP], unmaps + 1); /* one run */
    assert_int_equal(gc_device_reserved_bytes(f.bench.device), PAGES / 8 * PAGE);
    check(&f);
    assert_int_equal(compact(&f), PAGES / 8 * PAGE);
    assert_int_equal(gc_device_reserved_bytes(f.bench.device), 0);
    assert_int_equal(compact(&f), 0);
    assert_status(destroy(&f), GC_OK);
    assert_status(create(&f, PAGES * PAGE, 0, true), GC_OK); /* keeps none */
    assert_status(allocate(&f, 0, 2), GC_OK);
    assert_status(deallocate(&f, 0, 2, true), GC_OK);
    assert_int_equal(gc_device_reserved_bytes(f.bench.device), 0);
    close_all(&f);
}

static void compaction_leaves_what_is_mapped(void **state)
{
    struct fixture f;
    (void)state;
    open_plain(&f);
    assert_status(allocate(&f, 0, 6), GC_OK);
    assert_status(deallocate(&f, 1, 1, true), GC_OK);
    assert_status(deallocate(&f, 3, 1, true), GC_OK);
    assert_int_equal(compact(&f), 2 * PAGE);
    assert_true(is_mapped(&f, 0, 1) && is_mapped(&f, 2, 1) && is_mapped(&f, 4, 2));
    assert_true(sim_driver_is_accessible(&f.bench.sim, f.base + 4 * PAGE, 2 * PAGE));
    close_all(&f);
}

static void limit_holds_and_a_refusal_leaves_nothing(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_MIB(1024), 8 * PAGE);
    assert_status(allocate(&f, 0, 6), GC_OK);
    assert_status(allocate(&f, 8, 3), GC_OUT_OF_MEMORY);
    assert_false(is_mapped(&f, 8, 1));
    assert_int_equal(gc_device_reserved_bytes(f.bench.device), 6 * PAGE);
    assert_int_equal(workbench_figures(&f.bench).oom_count, 1);
    assert_status(allocate(&f, 8, 2), GC_OK);
    check(&f);
    assert_status(deallocate(&f, 0, 6, true), GC_OK);
    gc_limit_set(f.bench.core, f.bench.device, 3 * PAGE); /* idle goes, the mapped stays */
    assert_true(gc_device_reserved_bytes(f.bench.device) <= 3 * PAGE);
    assert_true(is_mapped(&f, 8, 2));
    assert_status(allocate(&f, 0, 1), GC_OK);
    assert_status(allocate(&f, 1, 1), GC_OUT_OF_MEMORY);
    gc_limit_set(f.bench.core, f.bench.device, UINT64_MAX);
    assert_status(allocate(&f, 1, 1), GC_OK);
    check(&f);
    gc_snapshot_reset_peaks(f.bench.core, f.bench.device);
    assert_int_equal(workbench_figures(&f.bench).reserved.peak,
                     gc_device_reserved_bytes(f.bench.device));
    close_all(&f);
}

/* One short of memory takes what the other has idle, for the limit and for the device alike. */
static void give_way(uint64_t capacity_bytes, uint64_t limit_bytes)
{
    struct fixture f;
    open_with(&f, capacity_bytes, limit_bytes);
    workbench_free(&f.bench, workbench_alloc(&f.bench, 0, GC_MIB(40)));
    assert_status(allocate(&f, 0, PAGES), GC_OK); /* needs what the cache holds idle */
    assert_int_equal(gc_device_reserved_bytes(f.bench.device), PAGES * PAGE);
    assert_status(deallocate(&f, 0, PAGES, true), GC_OK);
    check(&f);
    const uint64_t block = workbench_alloc(&f.bench, 1, GC_MIB(62)); /* needs the idle pages */
    workbench_free(&f.bench, block);
    assert_true(figures_of(&f).warm_bytes <= PAGE);
    close_all(&f);
}

static void idle_memory_gives_way_both_ways(void **state)
{
    (void)state;
    give_way(GC_MIB(1024), PAGES * PAGE);
    give_way(PAGES * PAGE, 0);
}

static void captures_are_left_alone(void **state)
{
    struct fixture f;
    uint64_t given;
    (void)state;
    open_plain(&f);
    assert_status(allocate(&f, 0, 3), GC_OK);
    assert_status(deallocate(&f, 2, 1, true), GC_OK);
    workbench_capture(&f.bench, 0, true);
    const uint64_t pool = f.pool;
    assert_status(create(&f, PAGE, 0, false), GC_CAPTURING);
    f.pool = pool;
    assert_status(allocate(&f, 8, 1), GC_CAPTURING);
    assert_status(deallocate(&f, 0, 1, true), GC_CAPTURING);
    assert_status(
        gc_elastic_compact(f.bench.core, f.bench.contexts[0], f.pool, &given, &f.bench.driver_code),
        GC_CAPTURING);
    assert_status(destroy(&f), GC_CAPTURING);
    assert_true(is_mapped(&f, 0, 2));
    workbench_capture(&f.bench, 0, false);
    workbench_capture(&f.bench, 2, true); /* another context's may spread to this one */
    assert_status(deallocate(&f, 0, 1, false), GC_CAPTURING);
    assert_status(deallocate(&f, 0, 1, true), GC_CAPTURING);
    assert_true(is_mapped(&f, 0, 2));
    workbench_capture(&f.bench, 2, false);
    assert_status(deallocate(&f, 0, 1, true), GC_OK);
    close_all(&f);
}

static void fragmentation_counts_addresses(void **state)
{
    struct fixture f;
    (void)state;
    open_plain(&f);
    assert_int_equal(figures_of(&f).largest_free_bytes, PAGES * PAGE);
    for (uint64_t i = 0; i < PAGES; i += 4)
        assert_status(allocate(&f, i, 2), GC_OK);
    const struct gc_elastic_figures figures = figures_of(&f);
    assert_int_equal(figures.free_bytes, PAGES / 2 * PAGE);
    assert_int_equal(figures.largest_free_bytes, 2 * PAGE);
    close_all(&f);
}

static void larger_pages_and_odd_capacities(void **state)
{
    struct fixture f;
    (void)state;
    open_plain(&f);
    assert_status(destroy(&f), GC_OK);
    assert_status(create(&f, GC_MIB(100) + 1, GC_MIB(6), false), GC_OK);
    struct gc_elastic_figures figures = figures_of(&f);
    assert_int_equal(figures.capacity_bytes, GC_MIB(102));
    assert_int_equal(figures.page_bytes, GC_MIB(6));
    assert_status(allocate(&f, 0, 1), GC_MISALIGNED);
    assert_status(allocate(&f, 3, 48), GC_OK);
    assert_int_equal(f.bench.sim.calls[SIM_PAGE_CREATE], 16);
    figures = figures_of(&f);
    assert_int_equal(figures.largest_free_bytes, GC_MIB(6));
    close_all(&f);
}

/* ---- every driver call failing ---- */

struct model {
    bool mapped[PAGES];
    unsigned refused;
};

static void try_range(struct fixture *f, struct model *model, uint64_t page, uint64_t count,
                      bool wanted, bool is_idle)
{
    f->bench.driver_code = 0;
    const enum gc_status status =
        wanted ? allocate(f, page, count) : deallocate(f, page, count, is_idle);
    for (uint64_t i = page; i < page + count && status == GC_OK; i++)
        model->mapped[i] = wanted;
    if (status != GC_OK) {
        model->refused++;
        assert_true(status == GC_OUT_OF_MEMORY || status == GC_NOT_MAPPED ||
                    status == GC_ALREADY_MAPPED ||
                    (status == GC_DRIVER && f->bench.driver_code == f->bench.sim.fail_code));
    }
    for (uint64_t i = 0; i < PAGES; i++) {
        assert_int_equal(is_mapped(f, i, 1), model->mapped[i]);
        assert_true(!model->mapped[i] ||
                    sim_driver_is_accessible(&f->bench.sim, f->base + i * PAGE, PAGE));
    }
    check(f);
}

static void scenario(struct fixture *f, struct model *model)
{
    uint64_t given;
    try_range(f, model, 0, 6, true, false);
    try_range(f, model, 2, 2, false, false);
    try_range(f, model, 10, 5, true, false); /* victims and new pages */
    try_range(f, model, 0, 2, false, true);
    try_range(f, model, 10, 5, false, false); /* more than the page cache keeps */
    try_range(f, model, 1, 3, true, false);
    workbench_check(&f->bench);
    if (gc_elastic_compact(f->bench.core, f->bench.contexts[0], f->pool, &given,
                           &f->bench.driver_code) != GC_OK)
        model->refused++;
    check(f);
    try_range(f, model, 20, 7, true, false);
}

/* True if the failure fired. */
static bool run_with_failure(uint64_t n, bool is_permanent, int code)
{
    struct fixture f;
    struct model model = {.refused = 0};
    open_with(&f, 12 * PAGE, 0);
    sim_driver_fail(&f.bench.sim, n, is_permanent, code);
    scenario(&f, &model);
    const enum gc_status status = destroy(&f);
    const bool has_fired = f.bench.sim.failed_count > 0;
    sim_driver_fail(&f.bench.sim, 0, false, 0);
    if (status != GC_OK) {
        assert_true(status == GC_DRIVER || status == GC_OUT_OF_MEMORY);
        check(&f);
        assert_status(destroy(&f), GC_OK); /* now it can */
    }
    f.bench.elastic_idle_bytes = 0;
    assert_int_equal(f.bench.sim.used_bytes, 0);
    assert_int_equal(f.bench.sim.range_count, 0);
    assert_int_equal(gc_device_reserved_bytes(f.bench.device), 0);
    workbench_close(&f.bench);
    return has_fired;
}

static void every_driver_call_may_fail(void **state)
{
    uint64_t fired = 0;
    (void)state;
    for (int is_permanent = 0; is_permanent <= 1; is_permanent++) {
        uint64_t n = 1;
        while (run_with_failure(n, is_permanent, SIM_BROKEN) &&
               run_with_failure(n, is_permanent, SIM_OUT_OF_MEMORY))
            n++;
        fired += n - 1;
    }
    assert_true(fired > 60);
}

static void failed_creation_leaves_nothing(void **state)
{
    struct fixture f;
    (void)state;
    open_plain(&f);
    const struct fixture kept = f;
    sim_driver_fail(&f.bench.sim, 1, false, SIM_BROKEN);
    assert_status(create(&f, PAGE, 0, false), GC_DRIVER);
    assert_int_equal(f.bench.driver_code, SIM_BROKEN);
    f.pool = kept.pool;
    close_all(&f);
}

/* ---- random, against a model; and from several threads ---- */

static void random_runs_agree_with_a_model(void **state)
{
    (void)state;
    const char *wanted = getenv("GC_TEST_SEED");
    unsigned seed = wanted != NULL ? (unsigned)strtoul(wanted, NULL, 0) : 20261;
    print_message("# seed %u\n", seed);
    struct fixture f;
    struct model model = {.refused = 0};
    open_with(&f, GC_MIB(1024), 24 * PAGE);
    for (unsigned i = 0; i < 3000; i++) {
        const uint64_t page = (uint64_t)rand_r(&seed) % PAGES;
        const uint64_t count = 1 + (uint64_t)rand_r(&seed) % (PAGES - page);
        const bool wants = rand_r(&seed) % 2 == 0;
        bool all = true;
        bool any = false;
        for (uint64_t j = page; j < page + count; j++) {
            all &= model.mapped[j];
            any |= model.mapped[j];
        }
        const unsigned refused = model.refused;
        const uint64_t room = 24 - figures_of(&f).mapped_bytes / PAGE;
        try_range(&f, &model, page, count, wants, rand_r(&seed) % 2 == 0);
        assert_int_equal(model.refused == refused, wants ? !any && count <= room : all);
        if (rand_r(&seed) % 64 == 0)
            compact(&f);
    }
    close_all(&f);
}

struct worker {
    struct fixture *fixture;
    pthread_t thread;
    unsigned seed;
    uint64_t owned; /* its first page: nobody else uses its PAGES / 8 */
    unsigned unexpected;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct fixture *f = worker->fixture;
    int code = 0;
    uint64_t given;
    for (unsigned i = 0; i < 400; i++) {
        const uint64_t offset = worker->owned * PAGE;
        const uint64_t bytes = (1 + (uint64_t)rand_r(&worker->seed) % (PAGES / 8)) * PAGE;
        const enum gc_status status =
            gc_elastic_allocate(f->bench.core, f->bench.contexts[0], f->pool, offset, bytes, &code);
        if (status == GC_OK) {
            if (!sim_driver_is_accessible(&f->bench.sim, f->base + offset, bytes) ||
                gc_elastic_deallocate(f->bench.core, f->bench.contexts[1], f->pool, offset, bytes,
                                      i % 2 == 0, &code) != GC_OK)
                worker->unexpected++;
        } else if (status != GC_OUT_OF_MEMORY) {
            worker->unexpected++;
        }
        if (i % 50 == 0 && gc_elastic_compact(f->bench.core, f->bench.contexts[2], f->pool, &given,
                                              &code) != GC_OK)
            worker->unexpected++;
        if (i % 32 == 0)
            gc_reclaim_trim(f->bench.core, f->bench.device, 0);
    }
    return NULL;
}

static void threads_share_a_pool(void **state)
{
    struct fixture f;
    struct worker workers[4];
    (void)state;
    open_with(&f, GC_MIB(1024), 10 * PAGE);
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (struct worker){.fixture = &f, .seed = i + 1, .owned = i * (PAGES / 8)};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].unexpected, 0);
    }
    assert_int_equal(figures_of(&f).mapped_bytes, 0);
    close_all(&f);
}

static void track_mode_serves_elastic_pools_too(void **state)
{
    struct fixture f;
    (void)state;
    const struct workbench_setup setup = {.mode = GC_MODE_TRACK,
                                          .capacity_bytes = GC_MIB(1024),
                                          .limit_bytes = 4 * PAGE,
                                          .trim_percent = 100,
                                          .has_mapping = true};
    workbench_open(&f.bench, &setup);
    assert_status(create(&f, PAGES * PAGE, 0, false), GC_OK);
    assert_status(allocate(&f, 0, 5), GC_OUT_OF_MEMORY);
    assert_status(allocate(&f, 0, 4), GC_OK);
    assert_status(deallocate(&f, 0, 4, false), GC_OK);
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocated_pages_are_there_and_counted),
        cmocka_unit_test(wrong_ranges_are_refused_and_change_nothing),
        cmocka_unit_test(creation_refuses_what_cannot_be),
        cmocka_unit_test(wild_and_stale_handles_are_refused),
        cmocka_unit_test(deallocation_waits_for_the_work_of_every_context),
        cmocka_unit_test(idle_pages_serve_their_place_without_the_driver),
        cmocka_unit_test(page_cache_is_bounded),
        cmocka_unit_test(compaction_leaves_what_is_mapped),
        cmocka_unit_test(limit_holds_and_a_refusal_leaves_nothing),
        cmocka_unit_test(idle_memory_gives_way_both_ways),
        cmocka_unit_test(captures_are_left_alone),
        cmocka_unit_test(fragmentation_counts_addresses),
        cmocka_unit_test(larger_pages_and_odd_capacities),
        cmocka_unit_test(every_driver_call_may_fail),
        cmocka_unit_test(failed_creation_leaves_nothing),
        cmocka_unit_test(random_runs_agree_with_a_model),
        cmocka_unit_test(threads_share_a_pool),
        cmocka_unit_test(track_mode_serves_elastic_pools_too),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
