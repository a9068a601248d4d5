/* Large blocks in thread caches: one of a context, if it is freed again and again, and it is held
 * back from no request. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/tcache.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define LARGE GC_MIB(512)
#define FREES_BEFORE 3 /* the third in a row is cached */

/* Two caches of one thread stand for two threads. */
struct caches {
    struct workbench bench;
    struct gc_context *context;
    struct gc_tcache *one;
    struct gc_tcache *two;
};

static void open_caches(struct caches *caches)
{
    workbench_open_fenced(&caches->bench, GC_MIB(8192));
    caches->context = caches->bench.contexts[0];
    caches->one = gc_tcache_create(caches->bench.core);
    caches->two = gc_tcache_create(caches->bench.core);
}

static void close_caches(struct caches *caches)
{
    gc_tcache_destroy(caches->bench.core, caches->one);
    gc_tcache_destroy(caches->bench.core, caches->two);
    assert_null(atomic_load(&caches->context->large_holder));
    workbench_close(&caches->bench);
}

/* As the shim does. True: the cache kept the block. */
static bool pass(struct caches *caches, struct gc_tcache *cache, uint64_t bytes)
{
    uint64_t address = gc_tcache_alloc_bytes(cache, caches->context, bytes, API_MALLOC);
    if (address == GC_ADDRESS_NONE)
        address = gc_tcache_alloc_from_pool(cache, caches->context, bytes, API_MALLOC);
    if (address == GC_ADDRESS_NONE)
        address = workbench_alloc(&caches->bench, 0, bytes);
    const bool is_kept = gc_tcache_free(caches->bench.core, cache, address);
    if (!is_kept && !gc_tcache_free_to_pool(caches->bench.core, cache, address))
        workbench_free(&caches->bench, address);
    return is_kept;
}

static void pass_often(struct caches *caches, struct gc_tcache *cache, uint64_t bytes)
{
    for (unsigned i = 0; i < FREES_BEFORE; i++)
        (void)pass(caches, cache, bytes);
}

static uint64_t requested(struct caches *caches)
{
    return atomic_load(&caches->bench.device->stats.requested.current);
}

static void repeated_block_is_kept_and_figures_are_merged(void **state)
{
    struct caches caches;
    (void)state;
    open_caches(&caches);
    assert_false(pass(&caches, caches.one, LARGE));
    assert_false(pass(&caches, caches.one, LARGE));
    assert_true(pass(&caches, caches.one, LARGE));
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(requested(&caches), 0);
        const uint64_t address =
            gc_tcache_alloc_bytes(caches.one, caches.context, LARGE - i, API_MALLOC);
        if (i >= GC_GRANULE) { /* another size is another block */
            assert_int_equal(address, GC_ADDRESS_NONE);
            break;
        }
        assert_int_not_equal(address, GC_ADDRESS_NONE);
        sim_driver_expect_idle(&caches.bench.sim, address, LARGE);
        assert_int_equal(requested(&caches), LARGE - i);
        assert_true(gc_tcache_free(caches.bench.core, caches.one, address));
    }
    assert_int_equal(workbench_figures(&caches.bench).requested.peak, LARGE);
    close_caches(&caches);
}

static void one_thread_of_a_context_keeps_one(void **state)
{
    struct caches caches;
    (void)state;
    open_caches(&caches);
    /* Room for both: before new memory a request takes what other threads keep. */
    workbench_free(&caches.bench, workbench_alloc(&caches.bench, 0, 4 * LARGE));
    pass_often(&caches, caches.one, LARGE);
    pass_often(&caches, caches.two, LARGE / 2);
    assert_false(pass(&caches, caches.two, LARGE / 2));
    assert_true(pass(&caches, caches.one, LARGE));
    assert_true(gc_tcache_flush_device(caches.bench.device, NULL)); /* then another thread may */
    pass_often(&caches, caches.two, LARGE / 2);
    assert_true(pass(&caches, caches.two, LARGE / 2));
    pass_often(&caches, caches.one, LARGE);
    assert_false(pass(&caches, caches.one, LARGE));
    workbench_check(&caches.bench);
    close_caches(&caches);
}

/* Whether the pool serves a request at once, or the whole path does, as of a traced program. */
static void a_large_miss_flushes_also_where_it_is_observed(void **state)
{
    struct caches caches;
    (void)state;
    open_caches(&caches);
    const uint64_t other = workbench_alloc(&caches.bench, 0, LARGE / 2);
    pass_often(&caches, caches.one, LARGE);
    assert_ptr_equal(atomic_load(&caches.context->large_holder)->context, caches.context);
    caches.one->is_observed = true;
    assert_int_equal(gc_tcache_alloc_from_pool(caches.one, caches.context, LARGE / 4, API_MALLOC),
                     GC_ADDRESS_NONE);
    assert_null(atomic_load(&caches.context->large_holder));
    caches.one->is_observed = false;
    pass_often(&caches, caches.one, LARGE);
    assert_non_null(atomic_load(&caches.context->large_holder));
    caches.one->is_observed = true;
    assert_false(gc_tcache_free(caches.bench.core, caches.one, other));
    assert_false(gc_tcache_free_to_pool(caches.bench.core, caches.one, other));
    assert_null(atomic_load(&caches.context->large_holder));
    workbench_free(&caches.bench, other);
    caches.one->is_observed = false;
    workbench_check(&caches.bench);
    close_caches(&caches);
}

static void request_gets_the_kept_block(void **state)
{
    struct caches caches;
    (void)state;
    open_caches(&caches);
    for (unsigned i = 0; i < 15; i++)
        (void)workbench_alloc(&caches.bench, 0, LARGE - GC_MIB(16));
    pass_often(&caches, caches.one, LARGE);
    assert_true(pass(&caches, caches.one, LARGE));
    (void)workbench_alloc(&caches.bench, 0, LARGE - GC_MIB(2)); /* another thread's */
    assert_null(atomic_load(&caches.context->large_holder));
    assert_int_equal(workbench_figures(&caches.bench).oom_count, 0);
    close_caches(&caches);
}

static void small_blocks_keep_their_bound_beside_it(void **state)
{
    enum { COUNT = 64 };
    struct caches caches;
    uint64_t blocks[COUNT];
    (void)state;
    open_caches(&caches);
    for (unsigned i = 0; i < COUNT; i++)
        blocks[i] = workbench_alloc(&caches.bench, 0, GC_MIB(1));
    pass_often(&caches, caches.one, LARGE);
    for (unsigned i = 0; i < COUNT; i++)
        if (!gc_tcache_free(caches.bench.core, caches.one, blocks[i]))
            workbench_free(&caches.bench, blocks[i]);
    const uint64_t cached = atomic_load(&caches.one->last->cached_bytes);
    assert_in_range(cached, LARGE + GC_MIB(8), LARGE + atomic_load(&caches.context->tcache_bytes));
    assert_true(pass(&caches, caches.one, LARGE)); /* still there */
    close_caches(&caches);
}

/* Down to nothing: blocks of all sizes go, the large one last. */
static void a_lower_capacity_shrinks_the_cache(void **state)
{
    enum { COUNT = 64 };
    struct caches caches;
    uint64_t blocks[COUNT];
    (void)state;
    open_caches(&caches);
    for (unsigned i = 0; i < COUNT; i++)
        blocks[i] = workbench_alloc(&caches.bench, 0, GC_KIB(16) * (1 + i % 32));
    pass_often(&caches, caches.one, LARGE);
    for (unsigned i = 0; i < COUNT; i++)
        assert_true(gc_tcache_free(caches.bench.core, caches.one, blocks[i]));
    const atomic_uint_fast64_t *cached = &caches.one->last->cached_bytes;
    assert_true(atomic_load(cached) > LARGE + GC_MIB(8));
    for (uint64_t capacity = GC_MIB(8); capacity > 0; capacity /= 8) {
        atomic_store(&caches.context->tcache_bytes, capacity);
        (void)pass(&caches, caches.one, 4096);
        assert_in_range(atomic_load(cached), LARGE, LARGE + capacity);
        workbench_check(&caches.bench);
    }
    assert_true(pass(&caches, caches.one, LARGE)); /* still there */
    close_caches(&caches);
}

static void open_mapped(struct caches *caches)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(8192),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    workbench_open(&caches->bench, &setup);
    caches->context = caches->bench.contexts[0];
    caches->one = gc_tcache_create(caches->bench.core);
    caches->two = gc_tcache_create(caches->bench.core);
}

static bool is_in_one_handle(struct caches *caches, uint64_t address)
{
    return sim_driver_translate(&caches->bench.sim, address, LARGE).bytes == LARGE;
}

/* From then on a block lies in one handle: the kept one does not, nor do live ones. */
static void beside_network_cards_former_blocks_are_not_kept(void **state)
{
    struct caches caches;
    (void)state;
    for (unsigned is_live = 0; is_live < 2; is_live++) {
        open_mapped(&caches);
        pass_often(&caches, caches.one, LARGE);
        uint64_t block = gc_tcache_alloc_bytes(caches.one, caches.context, LARGE, API_MALLOC);
        assert_int_not_equal(block, GC_ADDRESS_NONE);
        assert_false(is_in_one_handle(&caches, block));
        if (is_live == 0)
            assert_true(gc_tcache_free(caches.bench.core, caches.one, block));
        gc_export_expect_registration(caches.bench.core);
        if (is_live != 0) {
            assert_false(gc_tcache_free(caches.bench.core, caches.one, block));
            workbench_free(&caches.bench, block);
        }
        block = gc_tcache_alloc_bytes(caches.one, caches.context, LARGE, API_MALLOC);
        assert_int_equal(block, GC_ADDRESS_NONE);
        block = workbench_alloc(&caches.bench, 0, LARGE);
        assert_true(is_in_one_handle(&caches, block));
        workbench_free(&caches.bench, block);
        pass_often(&caches, caches.one, LARGE);
        assert_true(pass(&caches, caches.one, LARGE)); /* such a one is kept */
        close_caches(&caches);
    }
}

static void small_devices_and_busy_blocks_keep_none(void **state)
{
    struct workbench bench;
    struct caches caches;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(256));
    assert_true(atomic_load(&bench.contexts[0]->pool.tcache_block_bytes) < GC_MIB(1));
    workbench_close(&bench);
    open_caches(&caches);
    pass_often(&caches, caches.one, LARGE);
    const uint64_t address = gc_tcache_alloc_bytes(caches.one, caches.context, LARGE, API_MALLOC);
    assert_true(gc_submit_begin(caches.bench.core, GC_STREAM_OTHER, &caches.bench.driver_code));
    sim_driver_submit(&caches.bench.sim, 1, address, LARGE);
    gc_submit_end(gc_core_submissions(caches.bench.core));
    if (!gc_tcache_free(caches.bench.core, caches.one, address))
        workbench_free(&caches.bench, address);
    assert_int_equal(atomic_load(&caches.one->last->cached_bytes), 0);
    assert_int_equal(workbench_figures(&caches.bench).pending.current, LARGE);
    assert_int_equal(gc_tcache_alloc_bytes(caches.one, caches.context, LARGE, API_MALLOC),
                     GC_ADDRESS_NONE);
    close_caches(&caches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_block_is_kept_and_figures_are_merged),
        cmocka_unit_test(one_thread_of_a_context_keeps_one),
        cmocka_unit_test(a_large_miss_flushes_also_where_it_is_observed),
        cmocka_unit_test(request_gets_the_kept_block),
        cmocka_unit_test(small_blocks_keep_their_bound_beside_it),
        cmocka_unit_test(a_lower_capacity_shrinks_the_cache),
        cmocka_unit_test(beside_network_cards_former_blocks_are_not_kept),
        cmocka_unit_test(small_devices_and_busy_blocks_keep_none),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tcache_large", tests, NULL, NULL);
}
