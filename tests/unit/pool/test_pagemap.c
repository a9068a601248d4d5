#include "core/base/bits.h"
#include "core/pool/pagemap.h"
#include "tests/unit/cmocka_all.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define BASE UINT64_C(0x7f1240000000)

static struct gc_host_mem host;
static struct gc_pagemap map;

static int open_map(void **state)
{
    (void)state;
    assert_int_equal(gc_pagemap_init(&map, &host), GC_OK);
    return 0;
}

static int close_map(void **state)
{
    (void)state;
    gc_pagemap_fini(&map);
    return 0;
}

static void every_address_may_be_looked_up(void **state)
{
    const uint64_t addresses[] = {0,
                                  1,
                                  511,
                                  512,
                                  BASE,
                                  UINT64_C(1) << 47,
                                  (UINT64_C(1) << 48) - 1,
                                  UINT64_C(1) << 48,
                                  UINT64_MAX - 511,
                                  UINT64_MAX};
    uint64_t start;
    (void)state;
    for (unsigned i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        assert_null(gc_pagemap_get(&map, addresses[i]));
        assert_null(gc_pagemap_find(&map, addresses[i], &start));
    }
}

static void ranges_beyond_the_map_are_refused(void **state)
{
    (void)state;
    assert_int_equal(gc_pagemap_prepare(&map, UINT64_C(1) << 48, 512), GC_INVALID_ARGUMENT);
    assert_int_equal(gc_pagemap_prepare(&map, (UINT64_C(1) << 48) - 512, 1024),
                     GC_INVALID_ARGUMENT);
    assert_int_equal(gc_pagemap_prepare(&map, UINT64_MAX - 511, 1024), GC_INVALID_ARGUMENT);
    assert_int_equal(gc_pagemap_prepare(&map, 256, 512), GC_INVALID_ARGUMENT);
    assert_int_equal(gc_pagemap_prepare(&map, (UINT64_C(1) << 48) - 512, 512), GC_OK);
}

static void find_reaches_over_leaves(void **state)
{
    const uint64_t bytes = UINT64_C(5) << 30;
    struct gc_block block = {.address = BASE + 512};
    uint64_t start;
    (void)state;
    assert_int_equal(gc_pagemap_prepare(&map, BASE, bytes), GC_OK);
    gc_pagemap_set(&map, BASE + 512, &block, GC_PAGEMAP_SHARED);
    assert_null(gc_pagemap_find(&map, BASE + 511, &start));
    assert_ptr_equal(gc_pagemap_find(&map, BASE + 512, &start), &block);
    assert_ptr_equal(gc_pagemap_find(&map, BASE + bytes - 1, &start), &block);
    assert_int_equal(start, BASE + 512);
    gc_pagemap_clear(&map, BASE + 512, GC_PAGEMAP_SHARED);
    assert_null(gc_pagemap_find(&map, BASE + bytes - 1, &start));
}

static void memory_is_counted_where_it_is_written(void **state)
{
    struct gc_block block = {.address = BASE};
    (void)state;
    const uint64_t before = gc_host_mem_bytes(&host);
    assert_int_equal(gc_pagemap_prepare(&map, BASE, UINT64_C(80) << 30), GC_OK);
    const uint64_t prepared = gc_host_mem_bytes(&host) - before;
    assert_true(prepared < UINT64_C(80) * 8192);
    gc_pagemap_set(&map, BASE, &block, GC_PAGEMAP_SHARED); /* a page's first granule */
    assert_int_equal(gc_host_mem_bytes(&host) - before - prepared, 0);
    gc_pagemap_clear(&map, BASE, GC_PAGEMAP_SHARED);
    gc_pagemap_set(&map, BASE + GC_GRANULE, &block, GC_PAGEMAP_SHARED);
    assert_int_equal(gc_host_mem_bytes(&host) - before - prepared, 2 * 4096);
}

/* The edges are those of blocks that stay, in a host page of their own or not. */
static void what_was_written_for_a_range_goes_with_it(void **state)
{
    struct gc_block block = {.address = BASE};
    const uint64_t leaf = UINT64_C(1) << 30;
    const uint64_t first = BASE + leaf - (UINT64_C(64) << 20);
    const uint64_t bytes = UINT64_C(128) << 20; /* over a leaf's edge */
    uint64_t start;
    (void)state;
    assert_int_equal(gc_pagemap_prepare(&map, first - GC_GRANULE, bytes + 2 * GC_GRANULE), GC_OK);
    gc_pagemap_set(&map, first - GC_GRANULE, &block, GC_PAGEMAP_SHARED);
    gc_pagemap_set(&map, first + bytes, &block, GC_PAGEMAP_SHARED);
    const uint64_t before = gc_host_mem_bytes(&host);
    for (unsigned round = 0; round < 3; round++) {
        for (uint64_t at = first; at < first + bytes; at += UINT64_C(1) << 17)
            gc_pagemap_set(&map, at, &block, GC_PAGEMAP_SHARED);
        assert_true(gc_host_mem_bytes(&host) - before >= bytes / 64);
        for (uint64_t at = first; at < first + bytes; at += UINT64_C(1) << 17)
            gc_pagemap_clear(&map, at, GC_PAGEMAP_SHARED);
        gc_pagemap_drop(&map, first, bytes);
        assert_int_equal(gc_host_mem_bytes(&host), before);
        assert_ptr_equal(gc_pagemap_get(&map, first - GC_GRANULE), &block);
        assert_ptr_equal(gc_pagemap_get(&map, first + bytes), &block);
        assert_ptr_equal(gc_pagemap_find(&map, first + bytes - 1, &start), &block);
        assert_int_equal(start, first - GC_GRANULE);
    }
    gc_pagemap_set(&map, first + 7 * GC_GRANULE, &block, GC_PAGEMAP_SHARED);
    gc_pagemap_drop(&map, first + 8 * GC_GRANULE, bytes - 8 * GC_GRANULE);
    assert_ptr_equal(gc_pagemap_get(&map, first + 7 * GC_GRANULE), &block);
    assert_ptr_equal(gc_pagemap_find(&map, first + bytes - 1, &start), &block);
    assert_int_equal(start, first + 7 * GC_GRANULE);
}

/* Against a bit per granule over three leaves' edges. */
static void random_starts_agree_with_a_model(void **state)
{
    enum { GRANULES = 12000, STEPS = 40000 };
    static struct gc_block blocks[GRANULES];
    static bool model[GRANULES];
    unsigned seed = (unsigned)time(NULL);
    (void)state;
    print_message("# seed %u\n", seed);
    const uint64_t base = BASE + (UINT64_C(1) << 30) - UINT64_C(5000) * GC_GRANULE;
    assert_int_equal(gc_pagemap_prepare(&map, base, GRANULES * GC_GRANULE), GC_OK);
    for (unsigned step = 0; step < STEPS; step++) {
        /* Now and then the first granule of a page, whose pointer has a place of its own. */
        unsigned i = (unsigned)rand_r(&seed) % GRANULES;
        if (rand_r(&seed) % 16 == 0)
            i = i / 4096 * 4096 + 5000 % 4096;
        /* One thread writes: any owner is right. */
        const enum gc_pagemap_owner owner = (enum gc_pagemap_owner)(rand_r(&seed) % 3);
        if (model[i])
            gc_pagemap_clear(&map, base + i * GC_GRANULE, owner);
        else if (rand_r(&seed) % 8 == 0)
            gc_pagemap_set(&map, base + i * GC_GRANULE, &blocks[i], owner);
        else
            continue;
        model[i] = !model[i];
        const unsigned granule = (unsigned)rand_r(&seed) % GRANULES;
        int expected = (int)granule;
        while (expected >= 0 && !model[expected])
            expected--;
        uint64_t start = 0;
        const struct gc_block *found =
            gc_pagemap_find(&map, base + granule * GC_GRANULE + 77, &start);
        assert_ptr_equal(found, expected < 0 ? NULL : &blocks[expected]);
        if (found != NULL)
            assert_int_equal(start, base + (unsigned)expected * GC_GRANULE);
        assert_ptr_equal(gc_pagemap_get(&map, base + granule * GC_GRANULE),
                         model[granule] ? &blocks[granule] : NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_address_may_be_looked_up, open_map, close_map),
        cmocka_unit_test_setup_teardown(ranges_beyond_the_map_are_refused, open_map, close_map),
        cmocka_unit_test_setup_teardown(find_reaches_over_leaves, open_map, close_map),
        cmocka_unit_test_setup_teardown(memory_is_counted_where_it_is_written, open_map, close_map),
        cmocka_unit_test_setup_teardown(what_was_written_for_a_range_goes_with_it, open_map,
                                        close_map),
        cmocka_unit_test_setup_teardown(random_starts_agree_with_a_model, open_map, close_map),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("pagemap", tests, NULL, NULL);
}
