/* A pool's physical memory out of the device and back: contents, addresses, accounts; refusals;
 * every failure of the driver. */
#include "core/device/registry.h"
#include "core/pause/swap.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <stdlib.h>

#define MIB(count) ((uint64_t)(count) << 20)
#define BLOCKS 24
#define MARK UINT64_C(0x5EED000000000000)

struct fixture {
    struct workbench bench;
    uint64_t blocks[BLOCKS];
    uint64_t bytes[BLOCKS];
};

static void open_bench(struct workbench *bench, uint64_t limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = MIB(256),
                                          .limit_bytes = limit_bytes,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
}

/* Whole pages and small blocks; every fourth is free again, and their memory serves a longer block,
 * so that some of it has two addresses. */
static void fixture_open(struct fixture *fixture)
{
    open_bench(&fixture->bench, 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        fixture->bytes[i] = i % 3 == 0 ? 4096 : MIB(1 + i % 5);
        fixture->blocks[i] = workbench_alloc(&fixture->bench, 0, fixture->bytes[i]);
        if (i % 3 != 0)
            sim_driver_put(&fixture->bench.sim, fixture->blocks[i], MARK + i);
    }
    for (unsigned i = 3; i < BLOCKS; i += 4) {
        workbench_free(&fixture->bench, fixture->blocks[i]);
        fixture->blocks[i] = 0;
    }
    fixture->bytes[3] = MIB(8);
    fixture->blocks[3] = workbench_alloc(&fixture->bench, 0, fixture->bytes[3]);
    sim_driver_put(&fixture->bench.sim, fixture->blocks[3], MARK + 3);
    assert_true(fixture->bench.sim.calls[SIM_PAGE_MAP] > fixture->bench.sim.calls[SIM_PAGE_CREATE]);
}

static struct gc_context *context_of(struct fixture *fixture)
{
    return fixture->bench.contexts[0];
}

/* A page keeps the mark that was put there last, by whichever of the blocks in it. */
static void fixture_read(struct fixture *fixture, uint64_t *contents)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        contents[i] =
            fixture->blocks[i] == 0 ? 0 : sim_driver_get(&fixture->bench.sim, fixture->blocks[i]);
}

static void assert_same(struct fixture *fixture, const uint64_t *contents)
{
    uint64_t now[BLOCKS];
    fixture_read(fixture, now);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (fixture->blocks[i] == 0)
            continue;
        assert_int_equal(now[i], contents[i]);
        assert_true(
            sim_driver_is_accessible(&fixture->bench.sim, fixture->blocks[i], fixture->bytes[i]));
    }
}

static void fixture_close(struct fixture *fixture)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (fixture->blocks[i] != 0)
            workbench_free(&fixture->bench, fixture->blocks[i]);
    workbench_close(&fixture->bench);
}

/* Of an extent with two addresses only the one in use comes back; the other serves nobody until it
 * is mapped again. */
static void other_addresses_are_given_up(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    uint64_t pages[8];
    (void)state;
    open_bench(&bench, MIB(16));
    for (unsigned i = 0; i < 8; i++)
        pages[i] = workbench_alloc(&bench, 0, MIB(2));
    for (unsigned i = 0; i < 8; i += 2)
        workbench_free(&bench, pages[i]);
    const uint64_t block = workbench_alloc(&bench, 0, MIB(8));
    assert_int_equal(bench.sim.calls[SIM_PAGE_CREATE], 8);
    assert_true(gc_swap_out_all(bench.contexts[0], true, &result));
    assert_true(gc_swap_in(bench.contexts[0], &result));
    workbench_check(&bench);
    workbench_free(&bench, pages[1]);
    assert_int_equal(workbench_alloc(&bench, 0, MIB(2)), pages[1]);
    workbench_free(&bench, block);
    const uint64_t maps = bench.sim.calls[SIM_PAGE_MAP];
    assert_int_equal(workbench_alloc(&bench, 0, MIB(8)), block);
    assert_int_equal(bench.sim.calls[SIM_PAGE_MAP], maps);
    workbench_check(&bench);
    workbench_close(&bench);
}

static struct gc_gauge swapped_bytes(const struct fixture *fixture)
{
    struct gc_gauge gauge;
    gc_stats_read_gauge(&fixture->bench.device->stats.swapped, &gauge);
    return gauge;
}

static void content_and_addresses_return(void **state)
{
    struct fixture fixture;
    struct gc_swap_result result;
    uint64_t contents[BLOCKS];
    (void)state;
    fixture_open(&fixture);
    fixture_read(&fixture, contents);
    const uint64_t held = gc_device_reserved_bytes(fixture.bench.device);
    assert_true(gc_swap_out_all(context_of(&fixture), true, &result));
    assert_int_equal(gc_device_reserved_bytes(fixture.bench.device), 0);
    assert_int_equal(fixture.bench.sim.used_bytes, 0);
    assert_true(result.moved_bytes <= held);
    assert_true(gc_swap_is_out(context_of(&fixture)));
    const uint64_t moved = result.moved_bytes;
    assert_int_equal(swapped_bytes(&fixture).current, moved);
    assert_true(gc_swap_in(context_of(&fixture), &result));
    assert_int_equal(result.moved_bytes, moved);
    assert_int_equal(swapped_bytes(&fixture).current, 0);
    assert_int_equal(swapped_bytes(&fixture).peak, moved);
    assert_int_equal(gc_device_reserved_bytes(fixture.bench.device), moved);
    assert_false(gc_swap_is_out(context_of(&fixture)));
    assert_same(&fixture, contents);
    workbench_check(&fixture.bench);
    fixture_close(&fixture);
}

static void what_is_freed_meanwhile_does_not_return(void **state)
{
    struct fixture fixture;
    struct gc_swap_result result;
    uint64_t contents[BLOCKS];
    (void)state;
    fixture_open(&fixture);
    fixture_read(&fixture, contents);
    assert_true(gc_swap_out_all(context_of(&fixture), true, &result));
    const uint64_t moved = result.moved_bytes;
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        if (fixture.blocks[i] != 0)
            workbench_free(&fixture.bench, fixture.blocks[i]);
        fixture.blocks[i] = 0;
    }
    assert_true(gc_swap_in(context_of(&fixture), &result));
    assert_true(result.moved_bytes < moved);
    assert_int_equal(swapped_bytes(&fixture).current, 0);
    assert_same(&fixture, contents);
    workbench_check(&fixture.bench);
    fixture_close(&fixture);
}

static uint64_t available(struct fixture *fixture)
{
    uint64_t bytes;
    assert_status(gc_available_bytes(fixture->bench.core, fixture->bench.device, NULL, &bytes,
                                     &fixture->bench.driver_code),
                  GC_OK);
    return bytes;
}

/* What has left the device is free; a block that is freed meanwhile, and waits for other contexts'
 * work, makes it no more. */
static void what_is_away_is_free(void **state)
{
    struct fixture fixture;
    struct gc_swap_result result;
    (void)state;
    fixture_open(&fixture);
    uint64_t other = workbench_alloc(&fixture.bench, 1, MIB(32));
    const uint64_t before = available(&fixture);
    assert_true(gc_swap_out_all(context_of(&fixture), true, &result));
    assert_int_equal(available(&fixture), MIB(256 - 32));
    assert_true(before < MIB(256 - 32));
    sim_driver_submit(&fixture.bench.sim, 2, other, MIB(32));
    workbench_free(&fixture.bench, fixture.blocks[3]);
    fixture.blocks[3] = 0;
    assert_int_equal(workbench_figures(&fixture.bench).pending.current, MIB(8));
    assert_int_equal(available(&fixture), MIB(256 - 32));
    assert_true(gc_swap_in(context_of(&fixture), &result));
    workbench_free(&fixture.bench, other);
    fixture_close(&fixture);
}

static void dropped_content_costs_no_copy(void **state)
{
    struct fixture fixture;
    struct gc_swap_result result;
    (void)state;
    fixture_open(&fixture);
    assert_true(gc_swap_out_all(context_of(&fixture), false, &result));
    assert_int_equal(fixture.bench.sim.calls[SIM_READ], 0);
    assert_true(gc_swap_in(context_of(&fixture), &result));
    assert_int_equal(fixture.bench.sim.calls[SIM_WRITE], 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (fixture.blocks[i] != 0)
            assert_int_equal(sim_driver_get(&fixture.bench.sim, fixture.blocks[i]), 0);
    fixture_close(&fixture);
}

static void what_cannot_go_is_refused(void **state)
{
    struct fixture fixture;
    struct gc_swap_result result;
    (void)state;
    fixture_open(&fixture);
    assert_false(gc_swap_in(context_of(&fixture), &result));
    assert_int_equal(result.refusal, GC_SWAP_AGAIN);
    workbench_capture(&fixture.bench, 0, true);
    assert_false(gc_swap_out_all(context_of(&fixture), true, &result));
    assert_int_equal(result.refusal, GC_SWAP_CAPTURES);
    workbench_capture(&fixture.bench, 0, false);
    gc_backing_add_peer(context_of(&fixture), fixture.bench.contexts[1]);
    assert_false(gc_swap_out_all(context_of(&fixture), true, &result));
    assert_int_equal(result.refusal, GC_SWAP_PEERS);
    assert_int_equal(fixture.bench.sim.calls[SIM_READ], 0);
    for (unsigned i = 0; i < GC_SWAP_REFUSAL_COUNT; i++)
        assert_true(gc_swap_refusal_text((enum gc_swap_refusal)i)[0] != '?');
    fixture_close(&fixture);
}

/* Its work may reach any memory, which is waited for; that opens none of it to another device. */
static void roaming_work_is_waited_for(void **state)
{
    struct fixture fixture;
    struct gc_swap_result result;
    uint64_t contents[BLOCKS];
    (void)state;
    fixture_open(&fixture);
    fixture_read(&fixture, contents);
    gc_context_set_roaming(fixture.bench.contexts[1]);
    sim_driver_submit(&fixture.bench.sim, 2, fixture.blocks[0], 4096);
    assert_true(gc_swap_out_all(context_of(&fixture), true, &result));
    assert_int_equal(fixture.bench.sim.use_count, 0);
    assert_true(gc_swap_in(context_of(&fixture), &result));
    assert_same(&fixture, contents);
    workbench_check(&fixture.bench);
    fixture_close(&fixture);
}

static void plain_memory_stays(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t block = workbench_alloc(&bench, 0, MIB(3));
    assert_false(gc_swap_out_all(bench.contexts[0], true, &result));
    assert_int_equal(result.refusal, GC_SWAP_NOT_MAPPED);
    workbench_free(&bench, block);
    workbench_close(&bench);
}

/* Another context takes what became free; its blocks are its own until it frees them. */
static void a_full_device_is_reported(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    open_bench(&bench, MIB(100));
    const uint64_t mine = workbench_alloc(&bench, 0, MIB(70));
    sim_driver_put(&bench.sim, mine, MARK);
    uint64_t theirs;
    assert_status(workbench_try_alloc(&bench, 1, MIB(70), &theirs), GC_OUT_OF_MEMORY);
    assert_true(gc_swap_out_all(bench.contexts[0], true, &result));
    theirs = workbench_alloc(&bench, 1, MIB(70));
    assert_false(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(result.refusal, GC_SWAP_FULL);
    assert_true(gc_swap_is_out(bench.contexts[0]));
    workbench_free(&bench, theirs); /* idle now: released for the memory that returns */
    assert_true(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(sim_driver_get(&bench.sim, mine), MARK);
    workbench_check(&bench);
    workbench_free(&bench, mine);
    workbench_close(&bench);
}

/* Each driver call fails once, on the way out and on the way in. A pool that is refused is as it
 * was; one that was swapped out comes back. */
static void failures_lose_nothing(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 2; way++) {
        bool was_late = false;
        for (uint64_t n = 1; !was_late; n++) {
            struct fixture fixture;
            struct gc_swap_result result;
            uint64_t contents[BLOCKS];
            fixture_open(&fixture);
            fixture_read(&fixture, contents);
            if (way == 0)
                sim_driver_fail(&fixture.bench.sim, n, false, SIM_BROKEN);
            const bool is_out = gc_swap_out_all(context_of(&fixture), true, &result);
            assert_int_equal(is_out, gc_swap_is_out(context_of(&fixture)));
            if (!is_out)
                assert_same(&fixture, contents);
            if (way == 1)
                sim_driver_fail(&fixture.bench.sim, n, n % 2 == 0, SIM_BROKEN);
            if (is_out && !gc_swap_in(context_of(&fixture), &result)) {
                assert_true(gc_swap_is_out(context_of(&fixture)));
                sim_driver_fail(&fixture.bench.sim, 0, false, 0);
                assert_true(gc_swap_in(context_of(&fixture), &result));
            }
            was_late = fixture.bench.sim.failed_count == 0;
            sim_driver_fail(&fixture.bench.sim, 0, false, 0);
            assert_same(&fixture, contents);
            workbench_check(&fixture.bench);
            fixture_close(&fixture);
            assert_true(n < 2000);
        }
    }
}

struct waiter {
    struct workbench *bench;
    uint64_t address;
    atomic_bool is_done;
};

static void *wait_for_pages(void *argument)
{
    struct waiter *waiter = argument;
    waiter->address = workbench_alloc(waiter->bench, 0, MIB(8));
    atomic_store(&waiter->is_done, true);
    return NULL;
}

static void a_request_waits_until_it_is_back(void **state)
{
    struct fixture fixture;
    struct gc_swap_result result;
    struct waiter waiter = {.bench = &fixture.bench};
    const struct timespec moment = {0, 50000000};
    pthread_t thread;
    (void)state;
    fixture_open(&fixture);
    assert_true(gc_swap_out_all(context_of(&fixture), true, &result));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_pages, &waiter), 0);
    nanosleep(&moment, NULL);
    assert_false(atomic_load(&waiter.is_done));
    /* Other contexts go on meanwhile, also when out of memory. */
    workbench_free(&fixture.bench, workbench_alloc(&fixture.bench, 1, MIB(16)));
    uint64_t too_much;
    assert_status(workbench_try_alloc(&fixture.bench, 1, MIB(300), &too_much), GC_OUT_OF_MEMORY);
    assert_true(gc_swap_in(context_of(&fixture), &result));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(sim_driver_is_accessible(&fixture.bench.sim, waiter.address, MIB(8)));
    workbench_free(&fixture.bench, waiter.address);
    fixture_close(&fixture);
}

static void a_context_may_end_meanwhile(void **state)
{
    struct fixture fixture;
    struct gc_swap_result result;
    (void)state;
    fixture_open(&fixture);
    assert_true(gc_swap_out_all(context_of(&fixture), true, &result));
    workbench_drop(&fixture.bench, 0);
    assert_int_equal(fixture.bench.sim.range_count, 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        fixture.blocks[i] = 0;
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_and_addresses_return),
        cmocka_unit_test(other_addresses_are_given_up),
        cmocka_unit_test(what_is_freed_meanwhile_does_not_return),
        cmocka_unit_test(what_is_away_is_free),
        cmocka_unit_test(dropped_content_costs_no_copy),
        cmocka_unit_test(what_cannot_go_is_refused),
        cmocka_unit_test(roaming_work_is_waited_for),
        cmocka_unit_test(plain_memory_stays),
        cmocka_unit_test(a_full_device_is_reported),
        cmocka_unit_test(failures_lose_nothing),
        cmocka_unit_test(a_request_waits_until_it_is_back),
        cmocka_unit_test(a_context_may_end_meanwhile),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("swap", tests, NULL, NULL);
}
