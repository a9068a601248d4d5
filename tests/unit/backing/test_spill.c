/* Blocks in host memory: what is beyond the limit, the device or the group lies on the host,
 * uncharged, and goes back when it is freed; a failure of any driver call leaves nothing. */
#include "core/backing/host.h"
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/observe/spills.h"
#include "core/pause/swap.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT GC_MIB(32)
#define HOST_LIMIT GC_MIB(64)

static void open_bench(struct workbench *bench, bool has_mapping, bool is_fenced)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(128),
                                          .limit_bytes = LIMIT,
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = is_fenced,
                                          .overcommit = GC_OVERCOMMIT_SPILL,
                                          .host_limit_bytes = HOST_LIMIT};
    workbench_open(bench, &setup);
}

static struct gc_block_info info_of(struct workbench *bench, uint64_t address)
{
    struct gc_block_info info;
    assert_status(gc_lookup_block(bench->core, address, &info), GC_OK);
    return info;
}

/* Blocks that share their pages do not move. */
#define SMALL_BLOCKS 30

static void take_room(struct workbench *bench, uint64_t *blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        blocks[i] = workbench_alloc(bench, 0, GC_MIB(1));
}

static void free_room(struct workbench *bench, const uint64_t *blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        workbench_free(bench, blocks[i]);
}

static void beyond_the_limit(bool has_mapping)
{
    struct workbench bench;
    uint64_t plain[24];
    open_bench(&bench, has_mapping, false);
    take_room(&bench, plain, 24);
    assert_false(info_of(&bench, plain[23]).is_spilled);
    const uint64_t spilled = workbench_alloc(&bench, 0, GC_MIB(20));
    const uint64_t larger = workbench_alloc(&bench, 0, LIMIT + GC_MIB(1)); /* never fits */
    assert_true(info_of(&bench, spilled).is_spilled);
    assert_true(info_of(&bench, spilled + GC_MIB(20) - 1).is_spilled);
    assert_true(info_of(&bench, larger).is_spilled);
    struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_true(figures.spilled.current >= GC_MIB(53) && figures.spilled.current <= GC_MIB(54));
    assert_int_equal(figures.spill_count, 2);
    assert_int_equal(figures.oom_count, 0);
    assert_true(figures.reserved.current <= LIMIT);
    assert_true(bench.sim.used_bytes <= LIMIT);
    workbench_check(&bench);
    /* The host's limit is reached. */
    uint64_t refused;
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(20), &refused), GC_OUT_OF_MEMORY);
    workbench_free(&bench, spilled);
    assert_int_equal(bench.sim.host_bytes, workbench_figures(&bench).spilled.current);
    assert_true(bench.sim.host_bytes <= GC_MIB(34));
    workbench_free(&bench, larger);
    assert_int_equal(bench.sim.host_bytes, 0);
    workbench_check(&bench);
    /* A request that has room gets the device's memory, whatever was freed before. */
    free_room(&bench, plain, 24);
    const uint64_t again = workbench_alloc(&bench, 0, GC_MIB(20));
    assert_false(info_of(&bench, again).is_spilled);
    workbench_free(&bench, again);
    figures = workbench_figures(&bench);
    assert_int_equal(figures.spilled.current, 0);
    assert_true(figures.spilled.peak >= GC_MIB(53) && figures.spilled.peak <= HOST_LIMIT);
    workbench_close(&bench);
}

static void what_is_beyond_the_limit_lies_on_the_host(void **state)
{
    (void)state;
    beyond_the_limit(true);
}

static void without_mapping_it_is_a_host_allocation(void **state)
{
    (void)state;
    beyond_the_limit(false);
}

static void a_driver_without_pages_on_the_host_allocates_there(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, true, false);
    bench.sim.has_no_host_pages = true;
    const uint64_t block = workbench_alloc(&bench, 0, LIMIT + 1);
    assert_true(info_of(&bench, block).is_spilled);
    assert_int_equal(bench.sim.calls[SIM_HOST_ALLOC], 1);
    workbench_free(&bench, block);
    assert_int_equal(bench.sim.calls[SIM_HOST_FREE], 1);
    /* It belongs to its context, so memory of the device itself is refused. */
    const struct gc_request request = {.bytes = LIMIT + 1, .is_ordered = true};
    uint64_t address;
    struct gc_context *ordered = gc_context_ordered(bench.contexts[0]);
    assert_non_null(ordered);
    assert_true(gc_context_is_of_device(ordered));
    assert_status(gc_alloc(bench.core, ordered, &request, &address, &bench.driver_code),
                  GC_OUT_OF_MEMORY);
    workbench_close(&bench);
}

/* A pause's memory, and what it leaves behind, which goes first. */
static void what_is_swapped_takes_part_of_the_room(void **state)
{
    struct workbench bench;
    struct gc_host_piece piece;
    uint64_t refused;
    (void)state;
    open_bench(&bench, true, false);
    assert_true(gc_host_take(bench.contexts[0], GC_MIB(32), &piece));
    assert_int_equal(gc_host_bytes(bench.core), HOST_LIMIT);
    assert_status(workbench_try_alloc(&bench, 0, LIMIT + 1, &refused), GC_OUT_OF_MEMORY);
    gc_host_give(bench.core, &piece);
    const uint64_t spilled = workbench_alloc(&bench, 0, LIMIT + GC_MIB(2));
    assert_true(info_of(&bench, spilled).is_spilled);
    assert_true(gc_host_take(bench.contexts[0], GC_MIB(32), &piece)); /* what is left */
    assert_int_equal(piece.bytes, GC_MIB(16));
    workbench_check(&bench);
    workbench_free(&bench, spilled);
    gc_host_give(bench.core, &piece);
    workbench_close(&bench);
}

static void off_refuses(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(128),
                                          .limit_bytes = LIMIT,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .overcommit = GC_OVERCOMMIT_SWAP};
    struct workbench bench;
    uint64_t address;
    (void)state;
    workbench_open(&bench, &setup);
    assert_status(workbench_try_alloc(&bench, 0, LIMIT + 1, &address), GC_OUT_OF_MEMORY);
    workbench_close(&bench);
}

/* The pages stay until queued work that uses them is done, and no other request gets them. */
static void a_free_waits_for_work(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, true, true);
    uint64_t plain[SMALL_BLOCKS];
    take_room(&bench, plain, SMALL_BLOCKS);
    const uint64_t spilled = workbench_alloc(&bench, 0, GC_MIB(16));
    sim_driver_submit(&bench.sim, 1, spilled, GC_MIB(16));
    workbench_free(&bench, spilled);
    assert_int_equal(bench.sim.host_bytes, GC_MIB(16));
    const uint64_t next = workbench_alloc(&bench, 0, GC_MIB(16));
    assert_true(next != spilled);
    workbench_retire(&bench);
    assert_int_equal(bench.sim.host_bytes, GC_MIB(16));
    workbench_free(&bench, next);
    workbench_retire(&bench);
    assert_int_equal(bench.sim.host_bytes, 0);
    free_room(&bench, plain, SMALL_BLOCKS);
    workbench_close(&bench);
}

static void a_capture_and_a_tenant_are_refused(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    open_bench(&bench, true, true);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "some", GC_MIB(64), GC_MIB(8));
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    bench.tenant_limit_bytes = GC_MIB(8);
    assert_status(workbench_try_alloc_in(&bench, record, GC_MIB(16), &address), GC_OUT_OF_MEMORY);
    uint64_t plain[SMALL_BLOCKS];
    take_room(&bench, plain, SMALL_BLOCKS);
    workbench_capture(&bench, 0, true);
    const struct gc_request ordered = {.bytes = GC_MIB(8), .is_ordered = true};
    assert_status(gc_alloc(bench.core, bench.contexts[0], &ordered, &address, &bench.driver_code),
                  GC_OUT_OF_MEMORY);
    workbench_capture(&bench, 0, false);
    free_room(&bench, plain, SMALL_BLOCKS);
    workbench_close(&bench);
}

/* A pause leaves it where it is. */
static void a_swap_leaves_it(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    open_bench(&bench, true, true);
    uint64_t plain[SMALL_BLOCKS];
    take_room(&bench, plain, SMALL_BLOCKS);
    const uint64_t spilled = workbench_alloc(&bench, 0, GC_MIB(16));
    sim_driver_put(&bench.sim, plain[3], 7);
    sim_driver_put(&bench.sim, spilled, 8);
    assert_true(gc_swap_out_all(bench.contexts[0], true, &result));
    assert_int_equal(bench.sim.used_bytes, 0);
    assert_true(sim_driver_is_accessible(&bench.sim, spilled, GC_MIB(16)));
    assert_int_equal(sim_driver_get(&bench.sim, spilled), 8);
    assert_true(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(sim_driver_get(&bench.sim, plain[3]), 7);
    assert_int_equal(sim_driver_get(&bench.sim, spilled), 8);
    workbench_free(&bench, spilled);
    free_room(&bench, plain, SMALL_BLOCKS);
    workbench_close(&bench);
}

static void a_context_takes_it_along(void **state)
{
    struct workbench bench;
    (void)state;
    for (int has_mapping = 0; has_mapping <= 1; has_mapping++) {
        open_bench(&bench, has_mapping != 0, true);
        (void)workbench_alloc(&bench, 1, LIMIT + 1);
        assert_true(bench.sim.host_bytes > 0);
        workbench_drop(&bench, 1);
        assert_int_equal(bench.sim.host_bytes, 0);
        assert_int_equal(workbench_figures(&bench).spilled.current, 0);
        workbench_close(&bench);
    }
}

/* Peers of before and of later reach it. */
static void peers_have_access(void **state)
{
    struct workbench bench;
    struct gc_device *devices[2];
    struct gc_context *peers[2];
    (void)state;
    open_bench(&bench, true, true);
    for (int i = 0; i < 2; i++) {
        const struct gc_device_info info = {.ordinal = 3 + i, .total_bytes = GC_MIB(64)};
        assert_status(gc_setup_add_device(bench.core, &info, &devices[i]), GC_OK);
        assert_status(gc_setup_add_context(bench.core, (uint64_t)(9 + i), devices[i], &peers[i]),
                      GC_OK);
    }
    gc_backing_add_peer(bench.contexts[0], peers[0]);
    const uint64_t spilled = workbench_alloc(&bench, 0, LIMIT + GC_MIB(2));
    assert_true(sim_driver_is_open_to(&bench.sim, 3, spilled, LIMIT + GC_MIB(2)));
    assert_false(sim_driver_is_open_to(&bench.sim, 4, spilled, LIMIT + GC_MIB(2)));
    gc_backing_add_peer(bench.contexts[0], peers[1]);
    assert_true(sim_driver_is_open_to(&bench.sim, 4, spilled, LIMIT + GC_MIB(2)));
    workbench_free(&bench, spilled);
    workbench_close(&bench);
}

static void an_export_is_refused(void **state)
{
    struct workbench bench;
    unsigned char handle[64];
    (void)state;
    for (int has_mapping = 0; has_mapping <= 1; has_mapping++) {
        open_bench(&bench, has_mapping != 0, true);
        const uint64_t spilled = workbench_alloc(&bench, 0, LIMIT + 1);
        assert_status(gc_export_block(bench.core, spilled, &bench.driver_code), GC_NOT_SUPPORTED);
        assert_status(gc_export_share(bench.core, spilled, handle, &bench.driver_code),
                      GC_NOT_SUPPORTED);
        workbench_free(&bench, spilled);
        workbench_close(&bench);
    }
}

/* The device is full, without a limit; and the list for the report. */
static void the_list_names_each(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(64),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .overcommit = GC_OVERCOMMIT_SPILL,
                                          .host_limit_bytes = GC_MIB(2048)};
    struct workbench bench;
    struct gc_spilled list[GC_SPILLS_MAX];
    (void)state;
    workbench_open(&bench, &setup);
    uint64_t plain[60];
    take_room(&bench, plain, 60);
    const uint64_t first = workbench_alloc(&bench, 0, GC_MIB(16));
    const uint64_t second = workbench_alloc(&bench, 0, GC_MIB(18));
    workbench_free(&bench, first);
    assert_int_equal(gc_spills_read(&bench.core->spills, 0, list, GC_SPILLS_MAX), 2);
    assert_int_equal(list[0].address, first);
    assert_int_equal(list[0].bytes, GC_MIB(16));
    assert_int_equal(list[0].reason, GC_SPILL_DEVICE);
    assert_true(list[0].ended_ns > list[0].at_ns);
    assert_int_equal(list[1].address, second);
    assert_int_equal(list[1].ended_ns, 0);
    assert_int_equal(gc_spills_read(&bench.core->spills, 1, list, GC_SPILLS_MAX), 0);
    /* A full list keeps those in use. */
    for (unsigned i = 0; i < 2 * GC_SPILLS_MAX; i++)
        workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(6)));
    const uint32_t count = gc_spills_read(&bench.core->spills, 0, list, GC_SPILLS_MAX);
    assert_int_equal(count, GC_SPILLS_MAX);
    bool is_there = false;
    for (uint32_t i = 0; i < count; i++)
        is_there |= list[i].address == second && list[i].ended_ns == 0;
    assert_true(is_there);
    assert_int_equal(workbench_figures(&bench).spill_count, 2 + 2 * GC_SPILLS_MAX);
    workbench_free(&bench, second);
    free_room(&bench, plain, 60);
    workbench_close(&bench);
}

/* Every driver call of a request and its free fails, once and for good. */
static void a_failure_leaves_nothing(void **state)
{
    struct workbench bench;
    (void)state;
    for (int has_mapping = 0; has_mapping <= 1; has_mapping++) {
        for (int is_permanent = 0; is_permanent <= 1; is_permanent++) {
            for (uint64_t n = 1;; n++) {
                uint64_t address = 0;
                open_bench(&bench, has_mapping != 0, true);
                uint64_t plain[SMALL_BLOCKS];
                take_room(&bench, plain, SMALL_BLOCKS);
                sim_driver_fail(&bench.sim, n, is_permanent != 0, SIM_BROKEN);
                const enum gc_status status = workbench_try_alloc(&bench, 0, GC_MIB(16), &address);
                if (status == GC_OK) {
                    const enum gc_status freed = workbench_try_free(&bench, address);
                    assert_true(freed == GC_OK || freed == GC_DRIVER);
                    sim_driver_fail(&bench.sim, UINT64_MAX, false, 0);
                    if (freed != GC_OK)
                        workbench_free(&bench, address);
                }
                const bool fired = bench.sim.failed_count > 0;
                sim_driver_fail(&bench.sim, UINT64_MAX, false, 0);
                workbench_retire(&bench);
                gc_reclaim_trim(bench.core, bench.device, 0);
                /* What the driver did not take back, as its calls failed, stays counted. */
                bench.stuck_host_bytes = bench.sim.host_bytes;
                assert_true(bench.stuck_host_bytes == 0 || (is_permanent && status != GC_OK));
                free_room(&bench, plain, SMALL_BLOCKS);
                workbench_close(&bench);
                if (!fired)
                    break;
                assert_true(n < 100);
            }
        }
    }
}

/* ---- older blocks ---- */

#define OLD_BYTES GC_MIB(16)

struct scene {
    struct workbench bench;
    uint64_t old; /* the oldest */
    uint64_t same;
    uint64_t small;
};

static void scene_open(struct scene *scene)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(128),
                                          .limit_bytes = GC_MIB(44),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true,
                                          .overcommit = GC_OVERCOMMIT_SPILL,
                                          .host_limit_bytes = GC_MIB(256)};
    workbench_open(&scene->bench, &setup);
    scene->old = workbench_alloc(&scene->bench, 0, OLD_BYTES);
    scene->same = workbench_alloc(&scene->bench, 0, OLD_BYTES);
    scene->small = workbench_alloc(&scene->bench, 0, GC_MIB(8));
    for (uint64_t at = 0; at < OLD_BYTES; at += GC_MIB(2)) {
        sim_driver_put(&scene->bench.sim, scene->old + at, 1000 + at);
        sim_driver_put(&scene->bench.sim, scene->same + at, 2000 + at);
    }
    sim_driver_put(&scene->bench.sim, scene->small, 3000);
}

/* A page of the sim has one mark, so pages of one extent share the last. */
static void scene_check(struct scene *scene)
{
    struct sim_driver *sim = &scene->bench.sim;
    assert_true(sim_driver_is_accessible(sim, scene->old, OLD_BYTES));
    assert_true(sim_driver_is_accessible(sim, scene->same, OLD_BYTES));
    for (uint64_t at = 0; at < OLD_BYTES; at += GC_MIB(2)) {
        const uint64_t mark = sim_driver_get(sim, scene->old + at);
        assert_true(mark >= 1000 + at && mark < 1000 + OLD_BYTES);
        const uint64_t other = sim_driver_get(sim, scene->same + at);
        assert_true(other >= 2000 + at && other < 2000 + OLD_BYTES);
    }
    assert_int_equal(sim_driver_get(sim, scene->small), 3000);
    workbench_check(&scene->bench);
}

/* After a failure of one call: contents and accounts hold; what the driver did not take back is
 * counted, on the host or on the device. */
static void scene_check_failed(struct scene *scene)
{
    struct workbench *bench = &scene->bench;
    uint64_t hosted = 0;
    const struct gc_pool *pool = &bench->contexts[0]->pool;
    for (const struct gc_extent *extent = pool->pages.hosted; extent != NULL; extent = extent->next)
        hosted += extent->page_count * pool->pages.page_bytes;
    bench->stuck_host_bytes = bench->sim.host_bytes - hosted;
    bench->stuck_bytes =
        workbench_figures(bench).reserved.current - pool->pages.count * pool->pages.page_bytes;
    assert_true(bench->stuck_host_bytes <= OLD_BYTES && bench->stuck_bytes <= OLD_BYTES);
    scene_check(scene);
}

static void scene_close(struct scene *scene)
{
    workbench_free(&scene->bench, scene->small);
    if (scene->old != 0)
        workbench_free(&scene->bench, scene->old);
    workbench_free(&scene->bench, scene->same);
    workbench_retire(&scene->bench);
    assert_int_equal(scene->bench.sim.host_bytes, scene->bench.stuck_host_bytes);
    workbench_close(&scene->bench);
}

static void the_oldest_gives_way(void **state)
{
    struct scene scene;
    struct gc_spilled list[GC_SPILLS_MAX];
    (void)state;
    scene_open(&scene);
    struct workbench *bench = &scene.bench;
    const uint64_t block = workbench_alloc(bench, 0, GC_MIB(12));
    assert_true(info_of(bench, scene.old).is_spilled);
    assert_false(info_of(bench, scene.same).is_spilled);
    assert_false(info_of(bench, block).is_spilled);
    assert_int_equal(bench->sim.host_bytes, OLD_BYTES);
    assert_true(bench->sim.used_bytes <= GC_MIB(44));
    assert_int_equal(workbench_figures(bench).spilled.current, OLD_BYTES);
    scene_check(&scene);
    assert_int_equal(gc_spills_read(&bench->core->spills, 0, list, GC_SPILLS_MAX), 1);
    assert_int_equal(list[0].address, scene.old);
    assert_true(list[0].is_moved && list[0].ended_ns == 0);
    /* The next one; then one without which the older does not do. */
    const uint64_t second = workbench_alloc(bench, 0, OLD_BYTES);
    assert_true(info_of(bench, scene.same).is_spilled);
    assert_false(info_of(bench, second).is_spilled);
    const uint64_t third = workbench_alloc(bench, 0, GC_MIB(20));
    assert_false(info_of(bench, scene.small).is_spilled);
    assert_true(info_of(bench, block).is_spilled);
    assert_false(info_of(bench, third).is_spilled);
    scene_check(&scene);
    workbench_free(bench, third);
    workbench_free(bench, scene.old);
    scene.old = 0;
    workbench_retire(bench);
    assert_int_equal(bench->sim.host_bytes, OLD_BYTES + GC_MIB(12));
    assert_int_equal(gc_spills_read(&bench->core->spills, 0, list, GC_SPILLS_MAX), 3);
    assert_true(list[0].ended_ns != 0);
    workbench_free(bench, second);
    workbench_free(bench, block);
    workbench_retire(bench);
    /* The addresses serve again, from the device. */
    const uint64_t again = workbench_alloc(bench, 0, OLD_BYTES);
    assert_false(info_of(bench, again).is_spilled);
    workbench_free(bench, again);
    scene_close(&scene);
}

static void a_moved_block_stays_until_its_work_is_done(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    struct workbench *bench = &scene.bench;
    const uint64_t block = workbench_alloc(bench, 0, GC_MIB(12));
    sim_driver_submit(&bench->sim, 1, scene.old, OLD_BYTES);
    workbench_free(bench, scene.old);
    scene.old = 0;
    assert_int_equal(bench->sim.host_bytes, OLD_BYTES);
    workbench_retire(bench);
    assert_int_equal(bench->sim.host_bytes, 0);
    workbench_free(bench, block);
    scene_close(&scene);
}

/* Then the request itself lies on the host. */
static void what_may_not_move_stays(void **state)
{
    struct scene scene;
    struct gc_device *device;
    struct gc_context *peer;
    const struct gc_device_info info = {.ordinal = 3, .total_bytes = GC_MIB(64)};
    (void)state;
    for (int why = 0; why < 4; why++) {
        scene_open(&scene);
        struct workbench *bench = &scene.bench;
        if (why == 0) { /* work that does not end */
            sim_driver_submit(&bench->sim, 1, scene.old, OLD_BYTES);
        } else if (why == 1) {
            (void)gc_submit_set_conservative(bench->core);
        } else if (why == 2) {
            assert_status(gc_setup_add_device(bench->core, &info, &device), GC_OK);
            assert_status(gc_setup_add_context(bench->core, 9, device, &peer), GC_OK);
            gc_backing_add_peer(bench->contexts[0], peer);
        } else {
            gc_export_pin(bench->core, scene.small, 1);
        }
        const uint64_t block = workbench_alloc(bench, 0, GC_MIB(12));
        assert_true(info_of(bench, block).is_spilled);
        assert_false(info_of(bench, scene.old).is_spilled);
        assert_int_equal(bench->sim.host_bytes, GC_MIB(12));
        scene_check(&scene);
        sim_driver_complete(&bench->sim, 1);
        workbench_free(bench, block);
        scene_close(&scene);
    }
}

static void a_swap_and_a_teardown_take_it_along(void **state)
{
    struct scene scene;
    struct gc_swap_result result;
    (void)state;
    scene_open(&scene);
    struct workbench *bench = &scene.bench;
    const uint64_t block = workbench_alloc(bench, 0, GC_MIB(12));
    assert_true(gc_swap_out_all(bench->contexts[0], true, &result));
    assert_int_equal(bench->sim.used_bytes, 0);
    assert_true(sim_driver_is_accessible(&bench->sim, scene.old, OLD_BYTES));
    assert_true(gc_swap_in(bench->contexts[0], &result));
    scene_check(&scene);
    workbench_free(bench, block);
    workbench_drop(bench, 0);
    assert_int_equal(bench->sim.host_bytes, 0);
    assert_int_equal(workbench_figures(bench).spilled.current, 0);
    workbench_close(bench);
}

static void a_failed_move_leaves_all_as_it_was(void **state)
{
    struct scene scene;
    (void)state;
    for (uint64_t n = 1;; n++) {
        uint64_t address = 0;
        scene_open(&scene);
        struct workbench *bench = &scene.bench;
        sim_driver_fail(&bench->sim, n, false, SIM_BROKEN);
        const enum gc_status status = workbench_try_alloc(bench, 0, GC_MIB(12), &address);
        const bool fired = bench->sim.failed_count > 0;
        sim_driver_fail(&bench->sim, UINT64_MAX, false, 0);
        bench->stuck_host_bytes = 0;
        if (status == GC_OK)
            workbench_free(bench, address);
        workbench_retire(bench);
        gc_reclaim_trim(bench->core, bench->device, 0);
        /* Some of it may have moved, and a page that the driver kept is counted. */
        scene_check_failed(&scene);
        scene_close(&scene);
        if (!fired)
            break;
        assert_true(n < 200);
    }
}

/* Every call fails from one on: the program gets an answer, and nobody is served from memory that
 * is gone. */
static void a_broken_driver_ends_no_program(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct scene scene;
        uint64_t address = 0;
        scene_open(&scene);
        struct workbench *bench = &scene.bench;
        bench->sim.clock_step_ns = 10 * GC_NS_PER_MS; /* fences that broke never complete */
        sim_driver_fail(&bench->sim, n, true, SIM_BROKEN);
        const enum gc_status status = workbench_try_alloc(bench, 0, GC_MIB(12), &address);
        assert_true(status == GC_OK || status == GC_OUT_OF_MEMORY || status == GC_DRIVER);
        const bool fired = bench->sim.failed_count > 0;
        sim_driver_fail(&bench->sim, UINT64_MAX, false, 0);
        sim_driver_check(&bench->sim);
        if (status == GC_OK)
            workbench_free(bench, address);
        workbench_free(bench, scene.old);
        workbench_retire(bench);
        /* What is served is there: workbench_try_alloc asks the driver. */
        for (unsigned i = 0; i < 3; i++)
            if (workbench_try_alloc(bench, 0, GC_MIB(12), &address) == GC_OK)
                sim_driver_submit(&bench->sim, 1, address, GC_MIB(12));
        sim_driver_check(&bench->sim);
        gc_tcache_destroy(bench->core, bench->cache);
        gc_core_destroy(bench->core);
        free(bench->options);
        sim_driver_fini(&bench->sim);
        if (!fired)
            break;
        assert_true(n < 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_beyond_the_limit_lies_on_the_host),
        cmocka_unit_test(without_mapping_it_is_a_host_allocation),
        cmocka_unit_test(a_driver_without_pages_on_the_host_allocates_there),
        cmocka_unit_test(what_is_swapped_takes_part_of_the_room),
        cmocka_unit_test(off_refuses),
        cmocka_unit_test(a_free_waits_for_work),
        cmocka_unit_test(a_capture_and_a_tenant_are_refused),
        cmocka_unit_test(a_swap_leaves_it),
        cmocka_unit_test(a_context_takes_it_along),
        cmocka_unit_test(peers_have_access),
        cmocka_unit_test(an_export_is_refused),
        cmocka_unit_test(the_list_names_each),
        cmocka_unit_test(a_failure_leaves_nothing),
        cmocka_unit_test(the_oldest_gives_way),
        cmocka_unit_test(a_moved_block_stays_until_its_work_is_done),
        cmocka_unit_test(what_may_not_move_stays),
        cmocka_unit_test(a_swap_and_a_teardown_take_it_along),
        cmocka_unit_test(a_failed_move_leaves_all_as_it_was),
        cmocka_unit_test(a_broken_driver_ends_no_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
