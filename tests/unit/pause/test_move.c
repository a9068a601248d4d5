/* Older blocks that move to host memory to make room (GPUCACHE_OVERCOMMIT=spill): as many as are
 * needed, the oldest first, or none; of all pools with the request's quota, stream-ordered ones,
 * a tenant's own. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/observe/spills.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define LIMIT GC_MIB(64)
#define BLOCKS 8
#define BLOCK GC_MIB(8)

struct scene {
    struct workbench bench;
    uint64_t blocks[BLOCKS]; /* which fill the limit */
};

static void open_empty(struct scene *scene, uint64_t host_limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .limit_bytes = LIMIT,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true,
                                          .overcommit = GC_OVERCOMMIT_SPILL,
                                          .host_limit_bytes = host_limit_bytes};
    workbench_open(&scene->bench, &setup);
}

static void mark(struct scene *scene, unsigned i)
{
    sim_driver_put(&scene->bench.sim, scene->blocks[i], 100 + i);
}

static void open_scene(struct scene *scene, uint64_t host_limit_bytes)
{
    open_empty(scene, host_limit_bytes);
    for (unsigned i = 0; i < BLOCKS; i++) {
        scene->blocks[i] = workbench_alloc(&scene->bench, i % 2, BLOCK);
        mark(scene, i);
    }
}

static struct gc_block_info info_of(struct scene *scene, uint64_t address)
{
    struct gc_block_info info;
    assert_status(gc_lookup_block(scene->bench.core, address, &info), GC_OK);
    return info;
}

/* Bit i: block i lies on the host. All have their contents. */
static unsigned moved(struct scene *scene, unsigned count)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < count; i++) {
        mask |= info_of(scene, scene->blocks[i]).is_spilled ? 1U << i : 0;
        assert_int_equal(sim_driver_get(&scene->bench.sim, scene->blocks[i]), 100 + i);
        assert_true(sim_driver_is_accessible(&scene->bench.sim, scene->blocks[i], BLOCK));
    }
    assert_true(scene->bench.sim.used_bytes <= LIMIT);
    workbench_check(&scene->bench);
    return mask;
}

static void close_scene(struct scene *scene, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        workbench_free(&scene->bench, scene->blocks[i]);
    workbench_retire(&scene->bench);
    (void)gc_reclaim_trim(scene->bench.core, scene->bench.device, 0);
    assert_int_equal(scene->bench.sim.host_bytes, 0);
    workbench_close(&scene->bench);
}

/* Of both contexts; identifiers are given to one pool after the other. */
static void as_many_move_as_are_needed(void **state)
{
    struct scene scene;
    (void)state;
    open_scene(&scene, GC_MIB(256));
    const uint64_t first = workbench_alloc(&scene.bench, 0, GC_MIB(20));
    assert_false(info_of(&scene, first).is_spilled);
    assert_int_equal(moved(&scene, BLOCKS), 0x15);
    const uint64_t second = workbench_alloc(&scene.bench, 1, GC_MIB(12)); /* 4 MiB are free */
    assert_false(info_of(&scene, second).is_spilled);
    assert_int_equal(moved(&scene, BLOCKS), 0x55);
    workbench_free(&scene.bench, first);
    workbench_free(&scene.bench, second);
    close_scene(&scene, BLOCKS);
}

static void none_moves_where_all_would_not_do(void **state)
{
    struct scene scene;
    uint64_t small[24];
    (void)state;
    open_empty(&scene, GC_MIB(256));
    for (unsigned i = 0; i < 24; i++)
        small[i] = workbench_alloc(&scene.bench, 0, GC_MIB(1));
    for (unsigned i = 0; i < 4; i++) {
        scene.blocks[i] = workbench_alloc(&scene.bench, 0, BLOCK);
        mark(&scene, i);
    }
    const uint64_t large = workbench_alloc(&scene.bench, 0, GC_MIB(48)); /* 40 of them lack */
    assert_true(info_of(&scene, large).is_spilled);
    assert_int_equal(moved(&scene, 4), 0);
    workbench_free(&scene.bench, large);
    const uint64_t less = workbench_alloc(&scene.bench, 0, GC_MIB(40));
    assert_false(info_of(&scene, less).is_spilled);
    assert_int_equal(moved(&scene, 4), 15);
    workbench_free(&scene.bench, less);
    for (unsigned i = 0; i < 24; i++)
        workbench_free(&scene.bench, small[i]);
    close_scene(&scene, 4);
}

static void none_moves_without_room_on_the_host(void **state)
{
    struct scene scene;
    uint64_t refused;
    (void)state;
    open_scene(&scene, GC_MIB(20));
    assert_status(workbench_try_alloc(&scene.bench, 0, GC_MIB(24), &refused), GC_OUT_OF_MEMORY);
    assert_int_equal(moved(&scene, BLOCKS), 0);
    assert_int_equal(scene.bench.sim.host_bytes, 0);
    close_scene(&scene, BLOCKS);
}

/* Stream-ordered blocks make room for plain ones, and the other way round. */
static void stream_ordered_blocks_move_too(void **state)
{
    struct scene scene;
    const struct gc_request request = {.bytes = BLOCK, .stream = 5, .is_ordered = true};
    (void)state;
    open_empty(&scene, GC_MIB(256));
    struct workbench *bench = &scene.bench;
    struct gc_context *ordered = gc_context_ordered(bench->contexts[0]);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (i % 2 == 0)
            assert_status(
                gc_alloc(bench->core, ordered, &request, &scene.blocks[i], &bench->driver_code),
                GC_OK);
        else
            scene.blocks[i] = workbench_alloc(bench, 0, BLOCK);
        mark(&scene, i);
    }
    const uint64_t plain = workbench_alloc(bench, 0, BLOCK);
    assert_int_equal(moved(&scene, BLOCKS), 1);
    uint64_t large;
    const struct gc_request larger = {.bytes = 4 * BLOCK, .stream = 5, .is_ordered = true};
    assert_status(gc_alloc(bench->core, ordered, &larger, &large, &bench->driver_code), GC_OK);
    assert_false(info_of(&scene, large).is_spilled);
    assert_int_equal(moved(&scene, BLOCKS), 0x57);
    /* A free in the stream's order: its memory serves nobody, and goes once work is done. */
    sim_driver_submit(&bench->sim, 1, scene.blocks[0], BLOCK);
    assert_status(gc_free_ordered(bench->core, scene.blocks[0], bench->contexts[0], 5, 1,
                                  &bench->driver_code),
                  GC_OK);
    assert_int_equal(bench->sim.host_bytes, 5 * BLOCK);
    sim_driver_complete(&bench->sim, 1);
    (void)gc_reclaim_trim(bench->core, bench->device, 0);
    assert_int_equal(bench->sim.host_bytes, 4 * BLOCK);
    workbench_free(bench, large);
    workbench_free(bench, plain);
    scene.blocks[0] = scene.blocks[BLOCKS - 1];
    close_scene(&scene, BLOCKS - 1);
}

/* A tenant's limit, and nobody else's blocks. Its own request never lies outside its range. */
static void a_tenants_own_blocks_make_room(void **state)
{
    struct scene scene;
    uint64_t more, refused;
    (void)state;
    open_empty(&scene, GC_MIB(256));
    struct workbench *bench = &scene.bench;
    struct gc_tenant *tenant = workbench_add_tenant(bench, "some", GC_MIB(64), GC_MIB(24));
    struct gc_context *record = workbench_record(bench, tenant, 0);
    bench->tenant_limit_bytes = GC_MIB(24);
    scene.blocks[0] = workbench_alloc(bench, 0, BLOCK);
    mark(&scene, 0);
    for (unsigned i = 1; i < 4; i++) {
        assert_status(workbench_try_alloc_in(bench, record, BLOCK, &scene.blocks[i]), GC_OK);
        mark(&scene, i);
    }
    assert_status(workbench_try_alloc_in(bench, record, GC_MIB(10), &more), GC_OK);
    assert_false(info_of(&scene, more).is_spilled);
    assert_int_equal(moved(&scene, 4), 6);
    assert_int_equal(bench->core->spills.entries[0].reason, GC_SPILL_TENANT);
    assert_status(workbench_try_alloc_in(bench, record, GC_MIB(25), &refused), GC_OUT_OF_MEMORY);
    /* It ends once all is freed, hosted pages too. */
    assert_status(gc_tenant_remove(bench->core, tenant), GC_BUSY);
    workbench_free(bench, more);
    for (unsigned i = 1; i < 4; i++)
        workbench_free(bench, scene.blocks[i]);
    assert_status(gc_tenant_remove(bench->core, tenant), GC_OK);
    assert_int_equal(bench->sim.host_bytes, 0);
    close_scene(&scene, 1);
}

/* What the driver did not take back, on the host or on the device, is counted. */
static void count_stuck(struct workbench *bench)
{
    uint64_t hosted = 0;
    uint64_t held = 0;
    for (unsigned i = 0; i < 2; i++) {
        const struct gc_pages *pages = &bench->contexts[i]->pool.pages;
        held += pages->count * pages->page_bytes;
        for (const struct gc_extent *extent = pages->hosted; extent != NULL; extent = extent->next)
            hosted += extent->page_count * pages->page_bytes;
    }
    bench->stuck_host_bytes = bench->sim.host_bytes - hosted;
    bench->stuck_bytes = workbench_figures(bench).reserved.current - held;
    assert_true(bench->stuck_host_bytes <= BLOCK && bench->stuck_bytes <= BLOCK);
}

/* Each driver call of a request for which several blocks move fails once. */
static void a_failure_keeps_contents_and_accounts(void **state)
{
    bool has_fired = true;
    (void)state;
    for (uint64_t n = 1; has_fired; n++) {
        struct scene scene;
        uint64_t address = 0;
        open_scene(&scene, GC_MIB(256));
        sim_driver_fail(&scene.bench.sim, n, false, SIM_BROKEN);
        const enum gc_status status = workbench_try_alloc(&scene.bench, 0, GC_MIB(20), &address);
        has_fired = scene.bench.sim.failed_count > 0;
        sim_driver_fail(&scene.bench.sim, UINT64_MAX, false, 0);
        if (status == GC_OK)
            workbench_free(&scene.bench, address);
        workbench_retire(&scene.bench);
        (void)gc_reclaim_trim(scene.bench.core, scene.bench.device, 0);
        count_stuck(&scene.bench);
        (void)moved(&scene, BLOCKS);
        for (unsigned i = 0; i < BLOCKS; i++)
            workbench_free(&scene.bench, scene.blocks[i]);
        workbench_retire(&scene.bench);
        (void)gc_reclaim_trim(scene.bench.core, scene.bench.device, 0);
        assert_int_equal(scene.bench.sim.host_bytes, scene.bench.stuck_host_bytes);
        workbench_close(&scene.bench);
        assert_true(n < 300);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_move_as_are_needed),
        cmocka_unit_test(none_moves_where_all_would_not_do),
        cmocka_unit_test(none_moves_without_room_on_the_host),
        cmocka_unit_test(stream_ordered_blocks_move_too),
        cmocka_unit_test(a_tenants_own_blocks_make_room),
        cmocka_unit_test(a_failure_keeps_contents_and_accounts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
