/* The figures of a tenant's quota, whichever way memory is allocated: from threads' own caches,
 * directly from the driver, in elastic pools, without a cache, swapped out; and that it ends at
 * nothing. */
#include "core/device/context.h"
#include "core/device/quota.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/direct/elastic.h"
#include "core/pause/swap.h"
#include "core/reclaim/limit.h"
#include "core/reclaim/tcache.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>

#define LIMIT GC_MIB(64)
#define PAGE GC_MIB(2)
#define STOCK 4 /* pages that the elastic pool keeps */

struct lodger {
    struct workbench bench;
    struct gc_tenant *tenant;
    struct gc_context *own;
    struct gc_quota *quota;
};

static void open_lodger(struct lodger *lodger, enum gc_mode mode, bool has_mapping)
{
    const struct gc_tenant_config config = {.name = "one", .limit_bytes = LIMIT};
    const struct workbench_setup setup = {.mode = mode,
                                          .capacity_bytes = GC_MIB(1024),
                                          .limit_bytes = GC_MIB(512),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = true};
    workbench_open(&lodger->bench, &setup);
    lodger->bench.tenant_limit_bytes = LIMIT;
    assert_status(gc_tenant_add(lodger->bench.core, &config, &lodger->tenant), GC_OK);
    assert_status(gc_setup_tenant_context(lodger->tenant, lodger->bench.contexts[0], &lodger->own),
                  GC_OK);
    lodger->quota = lodger->own->quota;
    assert_non_null(lodger->quota);
    assert_null(lodger->bench.contexts[0]->quota);
}

static enum gc_status try_alloc(struct lodger *lodger, uint64_t bytes, uint64_t *address)
{
    const struct gc_request request = {.bytes = bytes, .api = API_MALLOC};
    return gc_alloc(lodger->bench.core, lodger->own, &request, address, &lodger->bench.driver_code);
}

static uint64_t alloc(struct lodger *lodger, uint64_t bytes)
{
    uint64_t address = 0;
    assert_status(try_alloc(lodger, bytes, &address), GC_OK);
    return address;
}

static struct gc_tenant_figures figures_of(struct lodger *lodger)
{
    struct gc_tenant_figures figures;
    gc_tcache_flush_stats(lodger->bench.cache);
    assert_true(gc_tenant_read(lodger->tenant, lodger->bench.device, &figures));
    return figures;
}

/* ---- pools and thread caches ---- */

static void peaks_and_counts_are_the_tenants_own(void **state)
{
    struct lodger lodger;
    (void)state;
    open_lodger(&lodger, GC_MODE_CACHE, false);
    const uint64_t others = workbench_alloc(&lodger.bench, 0, GC_MIB(30));
    const uint64_t one = alloc(&lodger, 1000);
    const uint64_t two = alloc(&lodger, 3000);
    workbench_free(&lodger.bench, one);
    workbench_free(&lodger.bench, alloc(&lodger, 100));
    workbench_free(&lodger.bench, two);
    const struct gc_tenant_figures figures = figures_of(&lodger);
    assert_int_equal(figures.requested.peak, 4000);
    assert_int_equal(figures.requested.current, 0);
    assert_int_equal(figures.allocated.peak, 1024 + 3072);
    assert_int_equal(figures.allocated.current, 0);
    assert_int_equal(figures.reserved.peak, GC_MIB(2));
    assert_int_equal(figures.alloc_count, 3);
    assert_int_equal(figures.free_count, 3);
    assert_int_equal(figures.miss_count, 1);
    assert_int_equal(figures.hit_count, 2);
    assert_int_equal(workbench_figures(&lodger.bench).alloc_count, 4);
    workbench_free(&lodger.bench, others);
    workbench_close(&lodger.bench);
}

static void a_threads_own_cache_counts_for_both(void **state)
{
    struct lodger lodger;
    (void)state;
    open_lodger(&lodger, GC_MODE_CACHE, true);
    struct gc_tcache *cache = gc_tcache_create(lodger.bench.core);
    uint64_t block = alloc(&lodger, 1000);
    for (unsigned i = 0; i < 10; i++) {
        assert_true(gc_tcache_free(lodger.bench.core, cache, block));
        block = gc_tcache_alloc_bytes(cache, lodger.own, 1000, API_MALLOC);
        assert_int_not_equal(block, GC_ADDRESS_NONE);
    }
    /* A thread's cache of one tenant's blocks serves that tenant alone. */
    assert_true(gc_tcache_free(lodger.bench.core, cache, block));
    assert_int_equal(gc_tcache_alloc_bytes(cache, lodger.bench.contexts[0], 1000, API_MALLOC),
                     GC_ADDRESS_NONE);
    gc_tcache_flush_stats(cache);
    const struct gc_tenant_figures figures = figures_of(&lodger);
    const struct gc_device_snapshot device = workbench_figures(&lodger.bench);
    assert_int_equal(figures.alloc_count, 11);
    assert_int_equal(figures.free_count, 11);
    assert_int_equal(figures.hit_count, 10);
    assert_int_equal(figures.requested.current, 0);
    assert_int_equal(figures.requested.peak, 1000);
    assert_int_equal(figures.allocated.peak, 1024);
    assert_int_equal(device.alloc_count, 11);
    assert_int_equal(device.requested.peak, 1000);
    gc_tcache_destroy(lodger.bench.core, cache);
    workbench_close(&lodger.bench);
}

/* A thread cache holds at most a part of its tenant's limit, not of the device. */
static void what_threads_keep_follows_the_limit(void **state)
{
    struct lodger lodger;
    (void)state;
    open_lodger(&lodger, GC_MODE_CACHE, true);
    const uint64_t most = lodger.own->tcache_bytes;
    assert_true(most > 0 && most <= LIMIT / 256);
    assert_true(lodger.bench.contexts[0]->tcache_bytes > most);
    lodger.bench.tenant_limit_bytes = GC_MIB(256);
    gc_limit_set_tenant(lodger.tenant, GC_MIB(256));
    assert_int_equal(lodger.own->tcache_bytes, 4 * most);
    workbench_close(&lodger.bench);
}

static void a_context_that_goes_takes_its_part_of_the_share(void **state)
{
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct lodger lodger;
        open_lodger(&lodger, GC_MODE_CACHE, has_mapping != 0);
        (void)alloc(&lodger, GC_MIB(20));
        workbench_free(&lodger.bench, alloc(&lodger, GC_MIB(10)));
        workbench_drop(&lodger.bench, 0);
        const struct gc_tenant_figures figures = figures_of(&lodger);
        assert_int_equal(figures.reserved.current, 0);
        assert_int_equal(figures.allocated.current, 0);
        assert_int_equal(figures.requested.current, 0);
        assert_int_equal(figures.idle_bytes, 0);
        assert_int_equal(figures.reserved.peak >= GC_MIB(30), 1);
        assert_int_equal(figures.free_count, 1);
        assert_int_equal(lodger.quota->mapped_bytes, 0);
        workbench_close(&lodger.bench);
    }
}

static void without_a_cache_limit_and_figures_hold(void **state)
{
    struct lodger lodger;
    uint64_t address;
    (void)state;
    open_lodger(&lodger, GC_MODE_TRACK, false);
    const uint64_t block = alloc(&lodger, GC_MIB(40));
    assert_status(try_alloc(&lodger, GC_MIB(25), &address), GC_OUT_OF_MEMORY);
    struct gc_tenant_figures figures = figures_of(&lodger);
    assert_int_equal(figures.reserved.current, GC_MIB(40));
    assert_int_equal(figures.miss_count, 1);
    assert_int_equal(figures.oom_count, 1);
    workbench_free(&lodger.bench, block);
    workbench_free(&lodger.bench, alloc(&lodger, LIMIT));
    figures = figures_of(&lodger);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.reserved.peak, LIMIT);
    workbench_close(&lodger.bench);
}

/* ---- direct memory ---- */

static struct gc_direct record_of(struct lodger *lodger, uint64_t key, uint64_t bytes)
{
    const struct gc_direct direct = {
        .kind = GC_DIRECT_ARRAY,
        .key = key,
        .requested_bytes = bytes,
        .charged_bytes = bytes,
        .device = lodger->bench.device,
        .quota = lodger->quota,
        .context = lodger->bench.contexts[0],
        .api = API_OTHER,
    };
    return direct;
}

static void take_direct(struct lodger *lodger, uint64_t key, uint64_t bytes)
{
    const struct gc_direct direct = record_of(lodger, key, bytes);
    assert_status(
        gc_direct_charge_device(lodger->bench.core, lodger->bench.device, lodger->quota, bytes),
        GC_OK);
    assert_status(gc_direct_track(lodger->bench.core, &direct), GC_OK);
    gc_direct_commit(lodger->bench.core, lodger->bench.device, lodger->quota);
}

static void direct_memory_is_charged_to_the_share(void **state)
{
    struct lodger lodger;
    struct gc_direct known;
    (void)state;
    open_lodger(&lodger, GC_MODE_CACHE, false);
    struct gc_core *core = lodger.bench.core;
    struct gc_device *device = lodger.bench.device;
    workbench_free(&lodger.bench, alloc(&lodger, GC_MIB(24))); /* idle: is released */
    workbench_free(&lodger.bench, workbench_alloc(&lodger.bench, 0, GC_MIB(24)));
    take_direct(&lodger, 7, GC_MIB(50));
    assert_int_equal(gc_device_idle_bytes(device), GC_MIB(24)); /* another's */
    struct gc_tenant_figures figures = figures_of(&lodger);
    assert_int_equal(figures.reserved.current, GC_MIB(50));
    assert_int_equal(figures.allocated.current, GC_MIB(50));
    assert_int_equal(figures.miss_count, 2);
    assert_status(gc_direct_charge_device(core, device, lodger.quota, GC_MIB(15)),
                  GC_OUT_OF_MEMORY);
    assert_int_equal(figures_of(&lodger).oom_count, 1);
    assert_false(gc_direct_try_charge(core, device, lodger.quota, GC_MIB(15)));
    assert_int_equal(figures_of(&lodger).oom_count, 1);
    assert_status(gc_direct_charge_device(core, device, NULL, GC_MIB(15)), GC_OK); /* nobody's */
    gc_direct_uncharge(core, device, NULL, GC_MIB(15));
    assert_status(gc_direct_untrack(core, GC_DIRECT_ARRAY, 7, &known), GC_OK);
    assert_ptr_equal(known.quota, lodger.quota);
    figures = figures_of(&lodger);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.allocated.current, 0);
    assert_int_equal(figures.reserved.peak, GC_MIB(50));
    assert_int_equal(figures.free_count, 2);
    workbench_close(&lodger.bench);
}

static void direct_memory_goes_with_its_context(void **state)
{
    struct lodger lodger;
    (void)state;
    open_lodger(&lodger, GC_MODE_CACHE, false);
    take_direct(&lodger, 7, GC_MIB(5));
    take_direct(&lodger, 8, GC_MIB(6));
    take_direct(&lodger, 8, GC_MIB(7)); /* replaces what was released unseen */
    assert_int_equal(figures_of(&lodger).reserved.current, GC_MIB(12));
    workbench_drop(&lodger.bench, 0);
    const struct gc_tenant_figures figures = figures_of(&lodger);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.requested.current, 0);
    assert_int_equal(figures.free_count, 0);
    workbench_close(&lodger.bench);
}

/* ---- elastic pools ---- */

static enum gc_status elastic(struct lodger *lodger, uint64_t pool, uint64_t page, uint64_t count,
                              bool is_mapped)
{
    struct workbench *bench = &lodger->bench;
    if (!is_mapped)
        return gc_elastic_deallocate(bench->core, bench->contexts[0], pool, page * PAGE,
                                     count * PAGE, true, &bench->driver_code);
    return gc_elastic_allocate(bench->core, bench->contexts[0], pool, page * PAGE, count * PAGE,
                               &bench->driver_code);
}

static uint64_t create_elastic(struct lodger *lodger, struct gc_quota *quota)
{
    struct workbench *bench = &lodger->bench;
    const struct gc_elastic_setup setup = {
        .capacity_bytes = STOCK * 8 * PAGE, .quota = quota, .api = API_OTHER};
    uint64_t pool;
    uint64_t base;
    assert_status(gc_elastic_create(bench->core, bench->contexts[0], &setup, &pool, &base,
                                    &bench->driver_code),
                  GC_OK);
    return pool;
}

static void destroy_elastic(struct lodger *lodger, uint64_t pool)
{
    struct workbench *bench = &lodger->bench;
    assert_status(gc_elastic_destroy(bench->core, bench->contexts[0], pool, &bench->driver_code),
                  GC_OK);
}

static void elastic_page_caches_of_others_stay(void **state)
{
    struct lodger lodger;
    (void)state;
    open_lodger(&lodger, GC_MODE_CACHE, true);
    struct workbench *bench = &lodger.bench;
    const uint64_t others = create_elastic(&lodger, NULL); /* the first that would be asked */
    const uint64_t own = create_elastic(&lodger, lodger.quota);
    assert_status(elastic(&lodger, own, 0, STOCK, true), GC_OK);
    assert_status(elastic(&lodger, own, 0, STOCK, false), GC_OK);
    assert_status(elastic(&lodger, others, 0, STOCK, true), GC_OK);
    assert_status(elastic(&lodger, others, 0, STOCK, false), GC_OK);
    assert_int_equal(gc_device_idle_bytes(bench->device), 2 * STOCK * PAGE);
    const uint64_t block = alloc(&lodger, LIMIT);
    assert_int_equal(gc_device_idle_bytes(bench->device), STOCK * PAGE);
    workbench_free(bench, block);
    assert_status(gc_tenant_remove(bench->core, lodger.tenant), GC_BUSY); /* it has a pool */
    destroy_elastic(&lodger, own);
    assert_status(gc_tenant_remove(bench->core, lodger.tenant), GC_OK);
    assert_int_equal(figures_of(&lodger).reserved.current, 0);
    destroy_elastic(&lodger, others);
    workbench_close(bench);
}

static void elastic_pools_are_charged_to_the_share(void **state)
{
    struct lodger lodger;
    (void)state;
    open_lodger(&lodger, GC_MODE_CACHE, true);
    struct workbench *bench = &lodger.bench;
    const uint64_t pool = create_elastic(&lodger, lodger.quota);
    workbench_free(bench, workbench_alloc(bench, 0, GC_MIB(16)));
    workbench_free(bench, alloc(&lodger, GC_MIB(16)));
    assert_status(elastic(&lodger, pool, 0, 30, true), GC_OK); /* its own idle memory made room */
    assert_int_equal(gc_device_idle_bytes(bench->device),
                     GC_MIB(16) + figures_of(&lodger).idle_bytes);
    assert_true(figures_of(&lodger).reserved.current <= LIMIT);
    assert_status(elastic(&lodger, pool, 30, 2, true), GC_OK);
    uint64_t address;
    assert_status(try_alloc(&lodger, GC_MIB(2), &address), GC_OUT_OF_MEMORY);
    assert_int_equal(figures_of(&lodger).reserved.current, 32 * PAGE);
    assert_status(elastic(&lodger, pool, 0, 32, false), GC_OK);
    assert_int_equal(figures_of(&lodger).reserved.current, STOCK * PAGE);
    assert_int_equal(figures_of(&lodger).idle_bytes, STOCK * PAGE);
    workbench_free(bench, alloc(&lodger, LIMIT - PAGE)); /* takes from the page cache */
    assert_true(figures_of(&lodger).reserved.current <= LIMIT);
    destroy_elastic(&lodger, pool);
    workbench_close(bench);
}

/* ---- out of the device and back ---- */

static void what_is_swapped_out_is_not_held(void **state)
{
    struct lodger lodger;
    struct gc_swap_result result;
    (void)state;
    open_lodger(&lodger, GC_MODE_CACHE, true);
    workbench_free(&lodger.bench, workbench_alloc(&lodger.bench, 0, GC_MIB(16)));
    const uint64_t block = alloc(&lodger, GC_MIB(20));
    assert_true(gc_swap_out_all(lodger.own, true, &result));
    assert_int_equal(figures_of(&lodger).reserved.current, 0);
    assert_int_equal(gc_device_idle_bytes(lodger.bench.device), GC_MIB(16)); /* another's */
    gc_limit_set_tenant(lodger.tenant, GC_MIB(10));
    assert_false(gc_swap_in(lodger.own, &result));
    assert_int_equal(result.refusal, GC_SWAP_FULL);
    assert_int_equal(figures_of(&lodger).reserved.current, 0);
    gc_limit_set_tenant(lodger.tenant, LIMIT);
    assert_true(gc_swap_in(lodger.own, &result));
    assert_int_equal(figures_of(&lodger).reserved.current, GC_MIB(20));
    workbench_check(&lodger.bench);
    workbench_free(&lodger.bench, block);
    workbench_close(&lodger.bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_and_counts_are_the_tenants_own),
        cmocka_unit_test(a_threads_own_cache_counts_for_both),
        cmocka_unit_test(what_threads_keep_follows_the_limit),
        cmocka_unit_test(a_context_that_goes_takes_its_part_of_the_share),
        cmocka_unit_test(without_a_cache_limit_and_figures_hold),
        cmocka_unit_test(direct_memory_is_charged_to_the_share),
        cmocka_unit_test(direct_memory_goes_with_its_context),
        cmocka_unit_test(elastic_pools_are_charged_to_the_share),
        cmocka_unit_test(elastic_page_caches_of_others_stay),
        cmocka_unit_test(what_is_swapped_out_is_not_held),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("share figures", tests, NULL, NULL);
}
