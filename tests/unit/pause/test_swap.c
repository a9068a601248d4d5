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

struct stock {
    struct workbench bench;
    uint64_t blocks[BLOCKS];
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

/* Whole pages and small blocks; every fourth is free again. */
static void stock_open(struct stock *stock)
{
    open_bench(&stock->bench, 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        stock->blocks[i] = workbench_alloc(&stock->bench, 0, i % 3 == 0 ? 4096 : MIB(1 + i % 5));
        if (i % 3 != 0)
            sim_driver_put(&stock->bench.sim, stock->blocks[i], MARK + i);
    }
    for (unsigned i = 3; i < BLOCKS; i += 4) {
        workbench_free(&stock->bench, stock->blocks[i]);
        stock->blocks[i] = 0;
    }
}

static struct gc_context *context_of(struct stock *stock)
{
    return stock->bench.contexts[0];
}

/* What a page remembers is what was put there last, by whichever of the blocks in it. */
static void stock_read(struct stock *stock, uint64_t *contents)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        contents[i] =
            stock->blocks[i] == 0 ? 0 : sim_driver_get(&stock->bench.sim, stock->blocks[i]);
}

static void assert_same(struct stock *stock, const uint64_t *contents)
{
    uint64_t now[BLOCKS];
    stock_read(stock, now);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (stock->blocks[i] != 0)
            assert_int_equal(now[i], contents[i]);
}

static void stock_close(struct stock *stock)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (stock->blocks[i] != 0)
            workbench_free(&stock->bench, stock->blocks[i]);
    workbench_close(&stock->bench);
}

static void content_and_addresses_return(void **state)
{
    struct stock stock;
    struct gc_swap_result result;
    uint64_t contents[BLOCKS];
    (void)state;
    stock_open(&stock);
    stock_read(&stock, contents);
    const uint64_t held = gc_device_reserved_bytes(stock.bench.device);
    assert_true(gc_swap_out(context_of(&stock), true, &result));
    assert_int_equal(gc_device_reserved_bytes(stock.bench.device), 0);
    assert_int_equal(stock.bench.sim.used_bytes, 0);
    assert_true(result.moved_bytes <= held);
    assert_true(gc_swap_is_out(context_of(&stock)));
    const uint64_t moved = result.moved_bytes;
    assert_true(gc_swap_in(context_of(&stock), &result));
    assert_int_equal(result.moved_bytes, moved);
    assert_int_equal(gc_device_reserved_bytes(stock.bench.device), moved);
    assert_false(gc_swap_is_out(context_of(&stock)));
    assert_same(&stock, contents);
    workbench_check(&stock.bench);
    stock_close(&stock);
}

static void what_is_freed_meanwhile_does_not_return(void **state)
{
    struct stock stock;
    struct gc_swap_result result;
    uint64_t contents[BLOCKS];
    (void)state;
    stock_open(&stock);
    stock_read(&stock, contents);
    assert_true(gc_swap_out(context_of(&stock), true, &result));
    const uint64_t moved = result.moved_bytes;
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        if (stock.blocks[i] != 0)
            workbench_free(&stock.bench, stock.blocks[i]);
        stock.blocks[i] = 0;
    }
    assert_true(gc_swap_in(context_of(&stock), &result));
    assert_true(result.moved_bytes < moved);
    assert_same(&stock, contents);
    workbench_check(&stock.bench);
    stock_close(&stock);
}

static void dropped_content_costs_no_copy(void **state)
{
    struct stock stock;
    struct gc_swap_result result;
    (void)state;
    stock_open(&stock);
    assert_true(gc_swap_out(context_of(&stock), false, &result));
    assert_int_equal(stock.bench.sim.calls[SIM_READ], 0);
    assert_true(gc_swap_in(context_of(&stock), &result));
    assert_int_equal(stock.bench.sim.calls[SIM_WRITE], 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (stock.blocks[i] != 0)
            assert_int_equal(sim_driver_get(&stock.bench.sim, stock.blocks[i]), 0);
    stock_close(&stock);
}

static void what_cannot_go_is_refused(void **state)
{
    struct stock stock;
    struct gc_swap_result result;
    (void)state;
    stock_open(&stock);
    assert_false(gc_swap_in(context_of(&stock), &result));
    assert_int_equal(result.refusal, GC_SWAP_AGAIN);
    workbench_capture(&stock.bench, 0, true);
    assert_false(gc_swap_out(context_of(&stock), true, &result));
    assert_int_equal(result.refusal, GC_SWAP_CAPTURES);
    workbench_capture(&stock.bench, 0, false);
    gc_backing_add_peer(context_of(&stock), stock.bench.contexts[1]);
    assert_false(gc_swap_out(context_of(&stock), true, &result));
    assert_int_equal(result.refusal, GC_SWAP_PEERS);
    assert_int_equal(stock.bench.sim.calls[SIM_READ], 0);
    for (unsigned i = 0; i < GC_SWAP_REFUSAL_COUNT; i++)
        assert_true(gc_swap_refusal_text((enum gc_swap_refusal)i)[0] != '?');
    stock_close(&stock);
}

/* Its work may reach any memory, which is waited for; that opens none of it to another device. */
static void roaming_work_is_waited_for(void **state)
{
    struct stock stock;
    struct gc_swap_result result;
    uint64_t contents[BLOCKS];
    (void)state;
    stock_open(&stock);
    stock_read(&stock, contents);
    gc_context_set_roaming(stock.bench.contexts[1]);
    sim_driver_submit(&stock.bench.sim, 2, stock.blocks[0], 4096);
    assert_true(gc_swap_out(context_of(&stock), true, &result));
    assert_int_equal(stock.bench.sim.use_count, 0);
    assert_true(gc_swap_in(context_of(&stock), &result));
    assert_same(&stock, contents);
    workbench_check(&stock.bench);
    stock_close(&stock);
}

static void plain_memory_stays(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t block = workbench_alloc(&bench, 0, MIB(3));
    assert_false(gc_swap_out(bench.contexts[0], true, &result));
    assert_int_equal(result.refusal, GC_SWAP_NOT_MAPPED);
    workbench_free(&bench, block);
    workbench_close(&bench);
}

/* Another context takes what became free; its blocks are its own until it frees them. */
static void a_full_device_is_told(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    open_bench(&bench, MIB(100));
    const uint64_t mine = workbench_alloc(&bench, 0, MIB(70));
    sim_driver_put(&bench.sim, mine, MARK);
    uint64_t theirs;
    assert_status(workbench_try_alloc(&bench, 1, MIB(70), &theirs), GC_OUT_OF_MEMORY);
    assert_true(gc_swap_out(bench.contexts[0], true, &result));
    theirs = workbench_alloc(&bench, 1, MIB(70));
    assert_false(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(result.refusal, GC_SWAP_FULL);
    assert_true(gc_swap_is_out(bench.contexts[0]));
    workbench_free(&bench, theirs); /* idle now: given back for what returns */
    assert_true(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(sim_driver_get(&bench.sim, mine), MARK);
    workbench_check(&bench);
    workbench_free(&bench, mine);
    workbench_close(&bench);
}

/* Each driver call fails once, on the way out and on the way in. What is refused is as it was; what
 * went comes back. */
static void failures_lose_nothing(void **state)
{
    bool was_late = false;
    (void)state;
    for (uint64_t n = 1; !was_late; n++) {
        for (unsigned way = 0; way < 2; way++) {
            struct stock stock;
            struct gc_swap_result result;
            uint64_t contents[BLOCKS];
            stock_open(&stock);
            stock_read(&stock, contents);
            if (way == 0)
                sim_driver_fail(&stock.bench.sim, n, false, SIM_BROKEN);
            const bool is_out = gc_swap_out(context_of(&stock), true, &result);
            assert_int_equal(is_out, gc_swap_is_out(context_of(&stock)));
            if (!is_out)
                assert_same(&stock, contents);
            if (way == 1)
                sim_driver_fail(&stock.bench.sim, n, n % 2 == 0, SIM_BROKEN);
            if (is_out && !gc_swap_in(context_of(&stock), &result)) {
                assert_true(gc_swap_is_out(context_of(&stock)));
                sim_driver_fail(&stock.bench.sim, 0, false, 0);
                assert_true(gc_swap_in(context_of(&stock), &result));
            }
            was_late = stock.bench.sim.failed_count == 0;
            sim_driver_fail(&stock.bench.sim, 0, false, 0);
            assert_same(&stock, contents);
            workbench_check(&stock.bench);
            stock_close(&stock);
        }
        assert_true(n < 2000);
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
    struct stock stock;
    struct gc_swap_result result;
    struct waiter waiter = {.bench = &stock.bench};
    const struct timespec moment = {0, 50000000};
    pthread_t thread;
    (void)state;
    stock_open(&stock);
    assert_true(gc_swap_out(context_of(&stock), true, &result));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_pages, &waiter), 0);
    nanosleep(&moment, NULL);
    assert_false(atomic_load(&waiter.is_done));
    /* Other contexts go on meanwhile, a shortage included. */
    workbench_free(&stock.bench, workbench_alloc(&stock.bench, 1, MIB(16)));
    uint64_t too_much;
    assert_status(workbench_try_alloc(&stock.bench, 1, MIB(300), &too_much), GC_OUT_OF_MEMORY);
    assert_true(gc_swap_in(context_of(&stock), &result));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(sim_driver_is_accessible(&stock.bench.sim, waiter.address, MIB(8)));
    workbench_free(&stock.bench, waiter.address);
    stock_close(&stock);
}

static void a_context_may_end_meanwhile(void **state)
{
    struct stock stock;
    struct gc_swap_result result;
    (void)state;
    stock_open(&stock);
    assert_true(gc_swap_out(context_of(&stock), true, &result));
    workbench_drop(&stock.bench, 0);
    assert_int_equal(stock.bench.sim.range_count, 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        stock.blocks[i] = 0;
    stock_close(&stock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_and_addresses_return),
        cmocka_unit_test(what_is_freed_meanwhile_does_not_return),
        cmocka_unit_test(dropped_content_costs_no_copy),
        cmocka_unit_test(what_cannot_go_is_refused),
        cmocka_unit_test(roaming_work_is_waited_for),
        cmocka_unit_test(plain_memory_stays),
        cmocka_unit_test(a_full_device_is_told),
        cmocka_unit_test(failures_lose_nothing),
        cmocka_unit_test(a_request_waits_until_it_is_back),
        cmocka_unit_test(a_context_may_end_meanwhile),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("swap", tests, NULL, NULL);
}
