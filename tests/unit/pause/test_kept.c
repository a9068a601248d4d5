/* Memory that the program declares unchanging: it is copied out once, never gets an old copy back,
 * and its copies in host memory give way to everything else. */
#include "core/backing/kept.h"
#include "core/device/registry.h"
#include "core/pause/swap.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <stdlib.h>

#define PAGE GC_MIB(2)

static void open_bench(struct workbench *bench, uint64_t host_limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true,
                                          .host_limit_bytes = host_limit_bytes};
    workbench_open(bench, &setup);
}

/* Each page has its address and the number as its mark. */
static uint64_t alloc(struct workbench *bench, unsigned context, uint64_t bytes, uint64_t number)
{
    const uint64_t block = workbench_alloc(bench, context, bytes);
    for (uint64_t at = 0; at < bytes; at += PAGE)
        sim_driver_put(&bench->sim, block + at, block + at + number);
    return block;
}

static void assert_content(struct workbench *bench, uint64_t block, uint64_t bytes, uint64_t number)
{
    for (uint64_t at = 0; at < bytes; at += PAGE)
        assert_int_equal(sim_driver_get(&bench->sim, block + at), block + at + number);
}

static void declare(struct workbench *bench, uint64_t address, uint64_t bytes)
{
    assert_status(gc_kept_declare(bench->core, address, bytes), GC_OK);
}

static void take_back(struct workbench *bench, uint64_t address, uint64_t bytes)
{
    assert_status(gc_kept_take_back(bench->core, address, bytes), GC_OK);
}

/* Out and in again; the bytes that were copied out. */
static uint64_t exchange(struct workbench *bench, unsigned context)
{
    struct gc_swap_result result;
    const uint64_t before = bench->sim.copied_out_bytes;
    assert_true(gc_swap_out_all(bench->contexts[context], true, &result));
    assert_true(gc_swap_in(bench->contexts[context], &result));
    return bench->sim.copied_out_bytes - before;
}

static uint64_t kept_bytes(const struct workbench *bench)
{
    return atomic_load(&bench->device->stats.kept.current);
}

static uint64_t swapped_bytes(const struct workbench *bench)
{
    return atomic_load(&bench->device->stats.swapped.current);
}

static void only_the_rest_is_copied_again(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    open_bench(&bench, 0);
    const uint64_t weights = alloc(&bench, 0, GC_MIB(32), 1);
    const uint64_t cache = alloc(&bench, 0, GC_MIB(16), 2);
    declare(&bench, weights, GC_MIB(32));
    assert_int_equal(exchange(&bench, 0), GC_MIB(48));
    assert_int_equal(kept_bytes(&bench), GC_MIB(32));
    for (unsigned i = 3; i < 6; i++) {
        for (uint64_t at = 0; at < GC_MIB(16); at += PAGE)
            sim_driver_put(&bench.sim, cache + at, cache + at + i);
        const uint64_t before = bench.sim.copied_out_bytes;
        assert_true(gc_swap_out_all(bench.contexts[0], true, &result));
        assert_int_equal(result.moved_bytes, GC_MIB(48));
        assert_int_equal(bench.sim.copied_out_bytes - before, GC_MIB(16));
        assert_int_equal(swapped_bytes(&bench), GC_MIB(48));
        assert_int_equal(kept_bytes(&bench), 0);
        assert_true(gc_swap_in(bench.contexts[0], &result));
        assert_int_equal(swapped_bytes(&bench), 0);
        assert_int_equal(kept_bytes(&bench), GC_MIB(32));
        assert_content(&bench, weights, GC_MIB(32), 1);
        assert_content(&bench, cache, GC_MIB(16), i);
    }
    assert_int_equal(gc_counter_read(&bench.device->stats.uncopied_bytes), GC_MIB(3 * 32));
    workbench_check(&bench);
    workbench_free(&bench, weights);
    workbench_free(&bench, cache);
    workbench_close(&bench);
}

static void memory_allocated_again_gets_no_old_copy(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, 0);
    uint64_t block = alloc(&bench, 0, GC_MIB(8), 1);
    declare(&bench, block, GC_MIB(8));
    (void)exchange(&bench, 0);
    workbench_free(&bench, block);
    assert_int_equal(alloc(&bench, 0, GC_MIB(8), 2), block);
    assert_int_equal(exchange(&bench, 0), GC_MIB(8));
    assert_content(&bench, block, GC_MIB(8), 2);
    assert_int_equal(kept_bytes(&bench), 0);
    /* Nor if the new block is declared, too. */
    declare(&bench, block, GC_MIB(8));
    (void)exchange(&bench, 0);
    workbench_free(&bench, block);
    assert_int_equal(alloc(&bench, 0, GC_MIB(8), 3), block);
    declare(&bench, block, GC_MIB(8));
    assert_int_equal(exchange(&bench, 0), GC_MIB(8));
    assert_content(&bench, block, GC_MIB(8), 3);
    /* A part of it is another block's. */
    workbench_free(&bench, block);
    const uint64_t part = alloc(&bench, 0, GC_MIB(4), 4);
    assert_int_equal(part, block);
    assert_int_equal(exchange(&bench, 0), GC_MIB(4));
    assert_content(&bench, part, GC_MIB(4), 4);
    workbench_free(&bench, part);
    workbench_close(&bench);
}

static void what_is_taken_back_is_copied(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, 0);
    const uint64_t block = alloc(&bench, 0, GC_MIB(32), 1);
    declare(&bench, block, GC_MIB(32));
    (void)exchange(&bench, 0);
    take_back(&bench, block + GC_MIB(8), GC_MIB(6));
    assert_int_equal(kept_bytes(&bench), GC_MIB(26));
    for (uint64_t at = GC_MIB(8); at < GC_MIB(14); at += PAGE)
        sim_driver_put(&bench.sim, block + at, block + at + 7);
    assert_int_equal(exchange(&bench, 0), GC_MIB(6));
    for (uint64_t at = GC_MIB(8); at < GC_MIB(14); at += PAGE) {
        assert_int_equal(sim_driver_get(&bench.sim, block + at), block + at + 7);
        sim_driver_put(&bench.sim, block + at, block + at + 1);
    }
    assert_content(&bench, block, GC_MIB(32), 1);
    /* Declared again it joins its neighbours. */
    declare(&bench, block + GC_MIB(8), GC_MIB(6));
    assert_int_equal(exchange(&bench, 0), GC_MIB(6));
    assert_int_equal(exchange(&bench, 0), 0);
    assert_content(&bench, block, GC_MIB(32), 1);
    take_back(&bench, block, GC_MIB(32));
    assert_int_equal(kept_bytes(&bench), 0);
    assert_int_equal(exchange(&bench, 0), GC_MIB(32));
    workbench_free(&bench, block);
    workbench_close(&bench);
}

/* Taken back while it is out: nothing is kept when it is back. */
static void it_may_change_while_it_is_out(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    open_bench(&bench, 0);
    const uint64_t block = alloc(&bench, 0, GC_MIB(8), 1);
    declare(&bench, block, GC_MIB(8));
    (void)exchange(&bench, 0);
    assert_true(gc_swap_out_all(bench.contexts[0], true, &result));
    take_back(&bench, block, GC_MIB(4));
    assert_true(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(kept_bytes(&bench), GC_MIB(4));
    assert_content(&bench, block, GC_MIB(8), 1);
    assert_true(gc_swap_out_all(bench.contexts[0], true, &result));
    workbench_free(&bench, block);
    assert_true(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(kept_bytes(&bench), 0);
    assert_int_equal(swapped_bytes(&bench), 0);
    workbench_close(&bench);
}

static void pages_that_are_declared_in_part_are_copied(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, 0);
    const uint64_t block = alloc(&bench, 0, GC_MIB(16), 1);
    declare(&bench, block + 1, GC_MIB(16) - 2);
    assert_int_equal(exchange(&bench, 0), GC_MIB(16));
    assert_int_equal(kept_bytes(&bench), GC_MIB(12));
    assert_int_equal(exchange(&bench, 0), GC_MIB(4));
    declare(&bench, block, 1);
    declare(&bench, block + GC_MIB(16) - 1, 1);
    assert_int_equal(exchange(&bench, 0), GC_MIB(4));
    assert_int_equal(exchange(&bench, 0), 0);
    assert_content(&bench, block, GC_MIB(16), 1);
    workbench_free(&bench, block);
    /* What rounding adds to a block is nobody else's. */
    const uint64_t odd = alloc(&bench, 0, GC_MIB(4) - 100, 1);
    declare(&bench, odd, GC_MIB(4) - 100);
    (void)exchange(&bench, 0);
    assert_int_equal(kept_bytes(&bench), GC_MIB(4));
    workbench_free(&bench, odd);
    workbench_close(&bench);
}

static void wrong_ranges_are_refused(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, 0);
    const uint64_t block = alloc(&bench, 0, GC_MIB(8), 1);
    assert_status(gc_kept_take_back(bench.core, block, 1), GC_OK); /* nothing is declared */
    assert_status(gc_kept_declare(bench.core, 4096, 1), GC_NOT_OURS);
    assert_status(gc_kept_declare(bench.core, block, GC_MIB(8) + 1), GC_OUT_OF_RANGE);
    assert_status(gc_kept_declare(bench.core, block + 1, GC_MIB(8)), GC_OUT_OF_RANGE);
    assert_status(gc_kept_declare(bench.core, block + 1, UINT64_MAX), GC_OUT_OF_RANGE);
    declare(&bench, block, GC_MIB(8));
    assert_status(gc_kept_take_back(bench.core, block, GC_MIB(8) + 1), GC_OUT_OF_RANGE);
    assert_int_equal(exchange(&bench, 0), GC_MIB(8));
    assert_int_equal(exchange(&bench, 0), 0);
    workbench_free(&bench, block);
    assert_status(gc_kept_declare(bench.core, block, 1), GC_INVALID_POINTER);
    assert_status(gc_kept_take_back(bench.core, block, 1), GC_INVALID_POINTER);
    workbench_close(&bench);
}

/* Content that was dropped is not what the copies have; the program writes it anew. */
static void dropped_content_is_no_longer_declared(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    open_bench(&bench, 0);
    const uint64_t block = alloc(&bench, 0, GC_MIB(8), 1);
    declare(&bench, block, GC_MIB(8));
    (void)exchange(&bench, 0);
    assert_true(gc_swap_out_all(bench.contexts[0], false, &result));
    assert_true(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(kept_bytes(&bench), 0);
    for (unsigned i = 2; i < 4; i++) {
        for (uint64_t at = 0; at < GC_MIB(8); at += PAGE)
            sim_driver_put(&bench.sim, block + at, block + at + i);
        assert_int_equal(exchange(&bench, 0), GC_MIB(8));
        assert_content(&bench, block, GC_MIB(8), i);
    }
    workbench_free(&bench, block);
    workbench_close(&bench);
}

static void copies_give_way(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(64));
    const uint64_t weights = alloc(&bench, 0, GC_MIB(48), 1);
    const uint64_t other = alloc(&bench, 1, GC_MIB(48), 2);
    declare(&bench, weights, GC_MIB(48));
    (void)exchange(&bench, 0);
    assert_int_equal(kept_bytes(&bench), GC_MIB(48));
    assert_int_equal(exchange(&bench, 1), GC_MIB(48));
    assert_true(kept_bytes(&bench) < GC_MIB(48));
    assert_true(exchange(&bench, 0) > 0);
    assert_content(&bench, weights, GC_MIB(48), 1);
    assert_content(&bench, other, GC_MIB(48), 2);
    assert_int_equal(gc_kept_purge(bench.core, 1), kept_bytes(&bench) == 0 ? GC_MIB(48) : PAGE);
    (void)gc_kept_purge(bench.core, UINT64_MAX);
    assert_int_equal(kept_bytes(&bench), 0);
    assert_int_equal(gc_host_trim(bench.core), GC_MIB(64));
    assert_int_equal(exchange(&bench, 0), GC_MIB(48));
    /* A block's copies go once it is freed. */
    workbench_free(&bench, weights);
    gc_kept_sweep(bench.core);
    assert_int_equal(kept_bytes(&bench), 0);
    workbench_free(&bench, other);
    workbench_close(&bench);
}

static void what_needs_no_copy_goes_first(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    const struct gc_swap_spec part = {
        .keeps_content = true, .wanted_bytes = GC_MIB(24), .chunk_bytes = GC_MIB(8)};
    (void)state;
    open_bench(&bench, 0);
    const uint64_t first = alloc(&bench, 0, GC_MIB(40), 1);
    const uint64_t weights = alloc(&bench, 0, GC_MIB(32), 2);
    declare(&bench, weights, GC_MIB(32));
    (void)exchange(&bench, 0);
    const uint64_t before = bench.sim.copied_out_bytes;
    assert_true(gc_swap_out(bench.contexts[0], &part, &result));
    assert_true(result.moved_bytes >= GC_MIB(24));
    assert_int_equal(bench.sim.copied_out_bytes, before);
    assert_true(gc_swap_in(bench.contexts[0], &result));
    assert_content(&bench, first, GC_MIB(40), 1);
    assert_content(&bench, weights, GC_MIB(32), 2);
    workbench_free(&bench, first);
    workbench_free(&bench, weights);
    workbench_close(&bench);
}

/* Each driver call fails once, out or in: contents stay, and what is kept is what is there. */
static void failures_lose_nothing(void **state)
{
    bool was_late = false;
    (void)state;
    for (uint64_t n = 1; !was_late; n++) {
        struct workbench bench;
        struct gc_swap_result result;
        open_bench(&bench, 0);
        const uint64_t weights = alloc(&bench, 0, GC_MIB(12), 1);
        const uint64_t cache = alloc(&bench, 0, GC_MIB(12), 2);
        declare(&bench, weights, GC_MIB(12));
        (void)exchange(&bench, 0);
        sim_driver_fail(&bench.sim, n, false, SIM_BROKEN);
        if (gc_swap_out_all(bench.contexts[0], true, &result))
            (void)gc_swap_in(bench.contexts[0], &result);
        was_late = bench.sim.failed_count == 0;
        sim_driver_fail(&bench.sim, 0, false, 0);
        if (gc_swap_is_out(bench.contexts[0]))
            assert_true(gc_swap_in(bench.contexts[0], &result));
        assert_content(&bench, weights, GC_MIB(12), 1);
        (void)exchange(&bench, 0);
        assert_content(&bench, weights, GC_MIB(12), 1);
        assert_content(&bench, cache, GC_MIB(12), 2);
        assert_int_equal(kept_bytes(&bench), GC_MIB(12));
        workbench_check(&bench);
        workbench_free(&bench, weights);
        workbench_free(&bench, cache);
        workbench_close(&bench);
        assert_true(n < 2000);
    }
}

/* ---- at random, against a reference ---- */

#define STEPS 6000
#define BLOCKS 12
#define PAGES_MAX 12
#define PARTS 4 /* of a page, that are declared or not */
#define PART_BYTES (PAGE / PARTS)

struct reference {
    uint64_t address; /* 0: none */
    uint64_t pages;
    uint64_t marks[PAGES_MAX];
    bool is_declared[PAGES_MAX * PARTS];
};

static bool may_write(const struct reference *block, uint64_t page)
{
    for (unsigned i = 0; i < PARTS; i++)
        if (!block->is_declared[page * PARTS + i])
            return true;
    return false;
}

static void step_block(struct workbench *bench, struct reference *block, uint64_t *next_mark)
{
    if (block->address == 0) {
        *block = (struct reference){.pages = 1 + (uint64_t)rand() % PAGES_MAX};
        block->address = workbench_alloc(bench, 0, block->pages * PAGE);
        for (uint64_t i = 0; i < block->pages; i++) {
            block->marks[i] = (*next_mark)++;
            sim_driver_put(&bench->sim, block->address + i * PAGE, block->marks[i]);
        }
        return;
    }
    const uint64_t parts = block->pages * PARTS;
    const uint64_t first = (uint64_t)rand() % parts;
    const uint64_t count = 1 + (uint64_t)rand() % (parts - first);
    const uint64_t page = (uint64_t)rand() % block->pages;
    switch (rand() % 8) {
    case 0:
        workbench_free(bench, block->address);
        block->address = 0;
        break;
    case 1:
    case 2:
    case 3:
        declare(bench, block->address + first * PART_BYTES, count * PART_BYTES);
        for (uint64_t i = first; i < first + count; i++)
            block->is_declared[i] = true;
        break;
    case 4:
        take_back(bench, block->address + first * PART_BYTES, count * PART_BYTES);
        for (uint64_t i = first; i < first + count; i++)
            block->is_declared[i] = false;
        break;
    default:
        if (!may_write(block, page))
            break;
        block->marks[page] = (*next_mark)++;
        sim_driver_put(&bench->sim, block->address + page * PAGE, block->marks[page]);
    }
}

static void swap_some(struct workbench *bench, struct reference *blocks)
{
    const struct gc_swap_spec part = {.keeps_content = true,
                                      .wanted_bytes = GC_MIB(1 + rand() % 200),
                                      .chunk_bytes = GC_MIB(1 + rand() % 64)};
    struct gc_swap_result result;
    assert_true(gc_swap_out(bench->contexts[0], &part, &result));
    if (rand() % 2 == 0)
        assert_true(gc_swap_out(bench->contexts[0], &part, &result));
    struct reference *block = &blocks[rand() % BLOCKS];
    if (block->address != 0 && rand() % 2 == 0) {
        workbench_free(bench, block->address);
        block->address = 0;
    } else if (block->address != 0) {
        take_back(bench, block->address, PAGE);
        for (unsigned i = 0; i < PARTS; i++)
            block->is_declared[i] = false;
    }
    assert_true(gc_swap_in(bench->contexts[0], &result));
}

static void contents_are_those_of_a_reference(void **state)
{
    const char *chosen = getenv("GC_TEST_SEED");
    const unsigned seed =
        chosen != NULL ? (unsigned)strtoul(chosen, NULL, 0) : (unsigned)time(NULL);
    struct reference blocks[BLOCKS] = {{.address = 0}};
    uint64_t next_mark = 1;
    struct workbench bench;
    (void)state;
    srand(seed);
    print_message("# seed %u\n", seed);
    open_bench(&bench, GC_MIB(320));
    for (unsigned step = 0; step < STEPS; step++) {
        const int what = rand() % 40;
        if (what == 0)
            (void)gc_kept_purge(bench.core, GC_MIB(rand() % 40));
        else if (what == 1)
            gc_kept_sweep(bench.core);
        else if (what < 6)
            swap_some(&bench, blocks);
        else
            step_block(&bench, &blocks[rand() % BLOCKS], &next_mark);
        for (unsigned i = 0; what < 6 && i < BLOCKS; i++)
            for (uint64_t page = 0; blocks[i].address != 0 && page < blocks[i].pages; page++)
                assert_int_equal(sim_driver_get(&bench.sim, blocks[i].address + page * PAGE),
                                 blocks[i].marks[page]);
        if (step % 100 == 0)
            workbench_check(&bench);
    }
    assert_true(gc_counter_read(&bench.device->stats.uncopied_bytes) > GC_MIB(1024));
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].address != 0)
            workbench_free(&bench, blocks[i].address);
    gc_kept_sweep(bench.core);
    assert_int_equal(kept_bytes(&bench), 0);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_rest_is_copied_again),
        cmocka_unit_test(memory_allocated_again_gets_no_old_copy),
        cmocka_unit_test(what_is_taken_back_is_copied),
        cmocka_unit_test(it_may_change_while_it_is_out),
        cmocka_unit_test(pages_that_are_declared_in_part_are_copied),
        cmocka_unit_test(wrong_ranges_are_refused),
        cmocka_unit_test(dropped_content_is_no_longer_declared),
        cmocka_unit_test(copies_give_way),
        cmocka_unit_test(what_needs_no_copy_goes_first),
        cmocka_unit_test(failures_lose_nothing),
        cmocka_unit_test(contents_are_those_of_a_reference),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("kept", tests, NULL, NULL);
}
