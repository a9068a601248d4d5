/* Random use of core against a naive model: a list of what is live. After every step no two live
 * blocks overlap, each is aligned and found from any of its bytes, nothing that queued work uses
 * was served, the limit holds and all accounts agree.
 *
 * A run is a function of its seed, which is printed when it fails. GC_TEST_SEED runs that seed
 * alone. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/plan/plan.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define STEPS 3000
#define LIVE_MAX 400
#define ENTRIES 200

struct live {
    uint64_t address;
    uint64_t bytes;
    unsigned context;
};

struct model {
    struct workbench bench;
    uint64_t random;
    bool has_plan;
    struct gc_plan plan;
    struct gc_plan_entry entries[ENTRIES];
    uint32_t entry; /* whose size was asked for last */
    struct live live[LIVE_MAX];
    unsigned count;
    bool is_capturing[WORKBENCH_CONTEXTS];
    uint64_t requested_bytes;
    uint64_t requested_peak;
    uint64_t limit;
};

static uint64_t draw(struct model *model, uint64_t below)
{
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return gc_mix_u64(model->random) % below;
}

/* Mostly small, some large, a few at the edges of the classes. */
static uint64_t draw_bytes(struct model *model)
{
    static const uint64_t edges[] = {1,         511,           512,        513,
                                     GC_MIB(1), GC_MIB(1) + 1, GC_MIB(10), GC_MIB(10) + 1};
    const uint64_t kind = draw(model, 100);
    if (kind < 10)
        return edges[draw(model, sizeof(edges) / sizeof(edges[0]))];
    if (kind < 70)
        return draw(model, 64 << 10) + 1;
    if (kind < 90)
        return draw(model, GC_MIB(2)) + 1;
    return draw(model, GC_MIB(24)) + 1;
}

/* A plan as no reader lets it through: places overlap whatever is live, and reach into each other.
 */
static void draw_plan(struct model *model)
{
    model->has_plan = true;
    model->plan = (struct gc_plan){.entries = model->entries,
                                   .count = ENTRIES,
                                   .loop_start = (uint32_t)draw(model, ENTRIES),
                                   .stream_count = 3,
                                   .end_time = 2,
                                   .device = GC_PLAN_DEVICE_ANY,
                                   .peak_bytes = GC_MIB(4) << draw(model, 4)};
    for (uint32_t i = 0; i < ENTRIES; i++) {
        struct gc_plan_entry *entry = &model->entries[i];
        const uint64_t most = gc_min_u64(model->plan.peak_bytes, draw_bytes(model) + 511);
        *entry = (struct gc_plan_entry){.bytes = gc_max_u64(most & ~UINT64_C(511), 512),
                                        .upper = 1,
                                        .stream = (uint32_t)draw(model, 5) == 0 ? 1 : 0};
        entry->offset = draw(model, model->plan.peak_bytes - entry->bytes + 1) & ~UINT64_C(511);
    }
}

/* Mostly the sizes of the plan in their order, so that they are matched; else any. */
static uint64_t draw_planned_bytes(struct model *model)
{
    if (!model->has_plan || draw(model, 8) == 0)
        return draw_bytes(model);
    model->entry = (model->entry + (draw(model, 16) == 0 ? 7 : 1)) % ENTRIES;
    return model->entries[model->entry].bytes - draw(model, 512);
}

static bool overlaps_live(const struct model *model, uint64_t address, uint64_t bytes)
{
    for (unsigned i = 0; i < model->count; i++) {
        const struct live *live = &model->live[i];
        if (address < live->address + live->bytes && live->address < address + bytes)
            return true;
    }
    return false;
}

static void step_alloc(struct model *model)
{
    /* Most entries of a plan are requested in one context, which follows it. */
    const unsigned context =
        model->has_plan && draw(model, 4) != 0 ? 0 : (unsigned)draw(model, WORKBENCH_CONTEXTS);
    const uint64_t bytes = draw_planned_bytes(model);
    uint64_t address = GC_ADDRESS_NONE;
    if (model->count == LIVE_MAX)
        return;
    const struct gc_request request = {
        .bytes = bytes, .api = API_MALLOC, .is_dedicated = draw(model, 12) == 0};
    if (request.is_dedicated || draw(model, 2) == 0)
        gc_tcache_flush_stats(model->bench.cache);
    else
        address = gc_tcache_alloc_from_pool(model->bench.cache, model->bench.contexts[context],
                                            bytes, API_MALLOC);
    const enum gc_status status = address != GC_ADDRESS_NONE
                                      ? GC_OK
                                      : gc_alloc(model->bench.core, model->bench.contexts[context],
                                                 &request, &address, &model->bench.driver_code);
    if (status == GC_OUT_OF_MEMORY)
        return;
    assert_status(status, GC_OK);
    sim_driver_expect_idle(&model->bench.sim, address, bytes);
    assert_int_equal(address % GC_GRANULE, 0);
    assert_false(overlaps_live(model, address, bytes));
    model->live[model->count++] = (struct live){address, bytes, context};
    model->requested_bytes += bytes;
    model->requested_peak = gc_max_u64(model->requested_peak, model->requested_bytes);
}

static void step_free(struct model *model)
{
    if (model->count == 0)
        return;
    const unsigned i = (unsigned)draw(model, model->count);
    const struct live live = model->live[i];
    /* Work of its own context may still use it: the free must cope. */
    if (draw(model, 2) == 0) {
        struct gc_submissions *work = gc_core_submissions(model->bench.core);
        (void)gc_submit_begin(model->bench.core, GC_STREAM_OTHER, &model->bench.driver_code);
        sim_driver_submit(&model->bench.sim, live.context + 1, live.address, live.bytes);
        gc_submit_end(work);
    }
    workbench_free(&model->bench, live.address);
    model->live[i] = model->live[--model->count];
    model->requested_bytes -= live.bytes;
    assert_int_not_equal(workbench_try_free(&model->bench, live.address), GC_OK);
}

/* Given to another process, if it is an allocation of its own: must never serve again. */
static void step_export(struct model *model)
{
    struct gc_block_info info;
    if (model->count == 0)
        return;
    const struct live *live = &model->live[draw(model, model->count)];
    assert_status(gc_lookup_block(model->bench.core, live->address, &info), GC_OK);
    const enum gc_status status =
        gc_export_block(model->bench.core, live->address, &model->bench.driver_code);
    if (!info.is_dedicated)
        assert_status(status, GC_NOT_SUPPORTED);
    else if (status != GC_CAPTURING)
        assert_status(status, GC_OK);
}

static void step_find(struct model *model)
{
    struct gc_block_info info;
    if (model->count == 0)
        return;
    const struct live *live = &model->live[draw(model, model->count)];
    const uint64_t offset = draw(model, live->bytes);
    assert_status(gc_lookup_block(model->bench.core, live->address + offset, &info), GC_OK);
    assert_int_equal(info.address, live->address);
    assert_int_equal(info.bytes, live->bytes);
    assert_int_equal(info.context, live->context + 1);
    if (offset != 0)
        assert_status(workbench_try_free(&model->bench, live->address + offset),
                      GC_INVALID_POINTER);
}

static void step_capture(struct model *model)
{
    const unsigned context = (unsigned)draw(model, WORKBENCH_CONTEXTS);
    model->is_capturing[context] = !model->is_capturing[context];
    workbench_capture(&model->bench, context, model->is_capturing[context]);
}

/* The program synchronises by itself and core hears of it. */
static void step_retire(struct model *model)
{
    const unsigned context = (unsigned)draw(model, WORKBENCH_CONTEXTS);
    if (model->is_capturing[context])
        return;
    const uint64_t epoch = gc_context_epoch(model->bench.contexts[context]);
    sim_driver_complete(&model->bench.sim, context + 1);
    gc_core_complete(model->bench.core, model->bench.contexts[context], epoch);
}

static void step_drop(struct model *model)
{
    const unsigned context = (unsigned)draw(model, WORKBENCH_CONTEXTS);
    workbench_drop(&model->bench, context);
    for (unsigned i = 0; i < model->count;) {
        if (model->live[i].context == context) {
            model->requested_bytes -= model->live[i].bytes;
            model->live[i] = model->live[--model->count];
        } else {
            i++;
        }
    }
    model->is_capturing[context] = false;
    sim_driver_set_capturing(&model->bench.sim, context + 1, false);
    assert_status(gc_setup_add_context(model->bench.core, context + 1, model->bench.device,
                                       &model->bench.contexts[context]),
                  GC_OK);
}

static void step(struct model *model)
{
    const uint64_t kind = draw(model, 1000);
    if (kind < 480)
        step_alloc(model);
    else if (kind < 880)
        step_free(model);
    else if (kind < 900)
        step_export(model);
    else if (kind < 960)
        step_find(model);
    else if (kind < 975)
        step_capture(model);
    else if (kind < 985)
        step_retire(model);
    else if (kind < 990)
        gc_reclaim_trim(model->bench.core, model->bench.device, draw(model, GC_MIB(64)));
    else if (kind < 993)
        step_drop(model);
}

static int compare_pieces(const void *left, const void *right)
{
    const struct sim_piece *a = left;
    const struct sim_piece *b = right;
    if (a->handle != b->handle)
        return a->handle < b->handle ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* No two live blocks have the same memory behind their addresses. */
static void check_memory(struct model *model)
{
    static struct sim_piece pieces[LIVE_MAX * 16];
    size_t count = 0;
    for (unsigned i = 0; i < model->count; i++) {
        const struct live *live = &model->live[i];
        for (uint64_t at = 0; at < live->bytes; at += pieces[count++].bytes)
            pieces[count] =
                sim_driver_translate(&model->bench.sim, live->address + at, live->bytes - at);
    }
    qsort(pieces, count, sizeof(*pieces), compare_pieces);
    for (size_t i = 1; i < count; i++)
        assert_true(pieces[i - 1].handle != pieces[i].handle ||
                    pieces[i - 1].offset + pieces[i - 1].bytes <= pieces[i].offset);
}

static void check(struct model *model)
{
    check_memory(model);
    const struct gc_device_snapshot figures = workbench_figures(&model->bench);
    assert_int_equal(figures.leak_count, model->count);
    assert_int_equal(figures.requested.current, model->requested_bytes);
    assert_int_equal(figures.requested.peak, model->requested_peak);
    assert_true(model->bench.sim.peak_bytes <= model->limit);
    workbench_check(&model->bench);
}

static void finish(struct model *model)
{
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++) {
        if (model->is_capturing[i])
            workbench_capture(&model->bench, i, false);
    }
    while (model->count > 0)
        step_free(model);
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++) {
        sim_driver_complete(&model->bench.sim, i + 1);
        gc_core_complete(model->bench.core, model->bench.contexts[i],
                         gc_context_epoch(model->bench.contexts[i]));
    }
    gc_reclaim_trim(model->bench.core, model->bench.device, 0);
    check(model);
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        workbench_drop(&model->bench, i); /* what captures allocated goes with its context only */
    assert_int_equal(model->bench.sim.used_bytes, 0);
    assert_int_equal(workbench_figures(&model->bench).reserved.current, 0);
}

static uint64_t followed; /* allocations that got a planned place, of all seeds */

static void run_seed(uint64_t seed, enum gc_mode mode, bool has_mapping, bool has_plan)
{
    static struct model model;
    model = (struct model){.random = seed};
    /* From cramped to roomy, with and without a limit below the device. */
    const uint64_t capacity = GC_MIB(32) << draw(&model, 4);
    const uint64_t limit = draw(&model, 2) == 0 ? 0 : capacity - draw(&model, capacity / 2);
    model.limit = limit == 0 ? capacity : limit;
    if (has_plan)
        draw_plan(&model);
    const struct workbench_setup setup = {
        .mode = mode,
        .capacity_bytes = capacity,
        .limit_bytes = limit,
        .trim_percent = draw(&model, 3) == 0 ? (double)draw(&model, 100) : 100,
        .has_mapping = has_mapping,
        .is_fenced = draw(&model, 2) == 0,
        .plan = has_plan ? &model.plan : NULL};
    workbench_open(&model.bench, &setup);
    for (unsigned i = 0; i < STEPS; i++) {
        step(&model);
        if (i % 16 == 0)
            check(&model);
    }
    if (has_plan)
        followed += workbench_figures(&model.bench).plan.followed_count;
    finish(&model);
    workbench_close(&model.bench);
}

static void run_seeds(enum gc_mode mode, bool has_mapping, bool has_plan, unsigned count)
{
    const char *chosen = getenv("GC_TEST_SEED");
    const uint64_t first = chosen != NULL ? strtoull(chosen, NULL, 0) : (uint64_t)time(NULL) * 1000;
    for (unsigned i = 0; i < (chosen != NULL ? 1 : count); i++) {
        /* Printed before, so that it is the last line if the run ends the process. */
        const uint64_t seed = first + i;
        print_message("# seed %" PRIu64 "\n", seed);
        run_seed(seed, mode, has_mapping, has_plan);
    }
}

static void cached_pool_agrees_with_the_model(void **state)
{
    (void)state;
    run_seeds(GC_MODE_CACHE, false, false, 12);
}

static void mapped_pool_agrees_with_the_model(void **state)
{
    (void)state;
    run_seeds(GC_MODE_CACHE, true, false, 12);
}

static void tracked_memory_agrees_with_the_model(void **state)
{
    (void)state;
    run_seeds(GC_MODE_TRACK, true, false, 4);
}

/* The library believes nothing of a plan that keeps blocks apart. */
static void pool_that_follows_a_hostile_plan_agrees_with_the_model(void **state)
{
    (void)state;
    followed = 0;
    run_seeds(GC_MODE_CACHE, false, true, 8);
    run_seeds(GC_MODE_CACHE, true, true, 8);
    assert_true(followed > 20); /* 91 to 331 by seed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_pool_agrees_with_the_model),
        cmocka_unit_test(mapped_pool_agrees_with_the_model),
        cmocka_unit_test(tracked_memory_agrees_with_the_model),
        cmocka_unit_test(pool_that_follows_a_hostile_plan_agrees_with_the_model),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("pool_model", tests, NULL, NULL);
}
