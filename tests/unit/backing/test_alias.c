/* Pages with several addresses, by chance: blocks come and go with work queued on them, by the
 * owner and by a peer, while mappings change, pages go back, captures begin and driver calls fail.
 * A second run has tenants beside, which come and go too. Another thread, played by the hook of
 * the simulated platform, frees blocks and takes backed free blocks in the middle of each change.
 *
 * Conditions that hold at any time: the physical memory of a live block never changes, is usable,
 * and belongs to no other live block; no queued work uses a block that is served, by whatever
 * address (workbench_try_alloc); nothing is unmapped while work uses it (sim_mapping.c). */
#include "core/base/bits.h"
#include "core/device/context.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/reclaim/defer.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE GC_MIB(2)
#define LIVE_MAX 64
#define PIECES_MAX 16
#define STEPS 1500
#define PEER_HANDLE 9
#define PEER_DEVICE 3
#define STREAM UINT64_C(77)
#define CONTEXTS 2
#define TENANTS 2
#define TENANT_LIMIT GC_MIB(40)

struct live {
    uint64_t address;
    uint64_t bytes;
    unsigned context;
    unsigned count;
    struct sim_piece pieces[PIECES_MAX];
};

struct scene {
    struct workbench bench;
    struct gc_context *peer;
    struct live live[LIVE_MAX];
    unsigned count;
    uint64_t random;
    bool has_peer;
    bool is_single;
    bool may_fail;
    bool is_capturing;
    bool is_inside; /* the hook */
    bool has_tenants;
    struct gc_tenant *tenants[TENANTS];
    unsigned removed_count;
};

static uint64_t draw(struct scene *scene, uint64_t below)
{
    scene->random = scene->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return gc_mix_u64(scene->random) % below;
}

static unsigned draw_context(struct scene *scene)
{
    return scene->is_single ? 0 : (unsigned)draw(scene, CONTEXTS);
}

/* A record of that context: its own, or a tenant's. */
static struct gc_context *draw_record(struct scene *scene, unsigned context)
{
    struct gc_context *head = scene->bench.contexts[context];
    const uint64_t tenant = scene->has_tenants ? draw(scene, TENANTS + 1) : TENANTS;
    struct gc_context *record;
    if (tenant == TENANTS)
        return head;
    assert_status(gc_setup_tenant_context(scene->tenants[tenant], head, &record), GC_OK);
    return record;
}

/* ---- what must hold ---- */

static void look_at(struct scene *scene, struct live *live)
{
    live->count = 0;
    for (uint64_t at = 0; at < live->bytes; live->count++) {
        assert_true(live->count < PIECES_MAX);
        live->pieces[live->count] =
            sim_driver_translate(&scene->bench.sim, live->address + at, live->bytes - at);
        at += live->pieces[live->count].bytes;
    }
}

static bool is_same_memory(const struct sim_piece *a, const struct sim_piece *b)
{
    return a->handle == b->handle && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static void check_apart(const struct live *a, const struct live *b)
{
    for (unsigned i = 0; i < a->count; i++)
        for (unsigned k = 0; k < b->count; k++)
            if (is_same_memory(&a->pieces[i], &b->pieces[k]))
                fail_msg("0x%" PRIx64 " and 0x%" PRIx64 " are the same memory",
                         a->address + i * PAGE, b->address + k * PAGE);
}

static void check_live(struct scene *scene, const struct live *live)
{
    struct sim_driver *sim = &scene->bench.sim;
    struct live now = *live;
    if (live->pieces[0].handle == 0)
        return; /* plain memory */
    look_at(scene, &now);
    assert_int_equal(now.count, live->count);
    assert_memory_equal(now.pieces, live->pieces, live->count * sizeof(*live->pieces));
    assert_true(sim_driver_is_accessible(sim, live->address, live->bytes));
    if (scene->has_peer && live->context == 0 && !scene->may_fail)
        assert_true(sim_driver_is_open_to(sim, PEER_DEVICE, live->address, live->bytes));
}

static void check_scene(struct scene *scene)
{
    for (unsigned i = 0; i < scene->count; i++) {
        check_live(scene, &scene->live[i]);
        for (unsigned k = 0; k < i; k++)
            check_apart(&scene->live[i], &scene->live[k]);
    }
    sim_driver_check(&scene->bench.sim);
}

/* ---- what happens ---- */

static void submit(struct scene *scene, const struct live *live)
{
    struct workbench *bench = &scene->bench;
    const bool is_of_peer = scene->has_peer && live->context == 0 && draw(scene, 3) == 0;
    if (scene->is_single)
        assert_true(gc_submit_begin(bench->core, STREAM, &bench->driver_code));
    sim_driver_submit(&bench->sim, is_of_peer ? PEER_HANDLE : live->context + 1, live->address,
                      live->bytes);
}

static void come(struct scene *scene, uint64_t address, uint64_t bytes, unsigned context)
{
    struct live *live = &scene->live[scene->count++];
    *live = (struct live){.address = address, .bytes = bytes, .context = context};
    look_at(scene, live);
    if (draw(scene, 2) == 0)
        submit(scene, live);
}

static uint64_t draw_bytes(struct scene *scene)
{
    const uint64_t kind = draw(scene, 100);
    return 1 + (kind < 30   ? draw(scene, GC_MIB(1))
                : kind < 80 ? draw(scene, GC_MIB(4))
                            : draw(scene, GC_MIB(20)));
}

static void take(struct scene *scene)
{
    struct workbench *bench = &scene->bench;
    const unsigned context = draw_context(scene);
    struct gc_context *record = draw_record(scene, context);
    const struct gc_request request = {.bytes = draw_bytes(scene), .api = API_MALLOC};
    uint64_t address;
    if (scene->count + 2 >= LIVE_MAX ||
        gc_alloc(bench->core, record, &request, &address, &bench->driver_code) != GC_OK)
        return;
    if (!scene->is_single)
        sim_driver_expect_idle(&bench->sim, address, request.bytes);
    come(scene, address, request.bytes, context);
}

/* Where the driver fails to free what is its own, that stays. */
static void give_one(struct scene *scene, unsigned i)
{
    const enum gc_status status = workbench_try_free(&scene->bench, scene->live[i].address);
    if (status == GC_DRIVER && scene->may_fail)
        return;
    assert_status(status, GC_OK);
    scene->live[i] = scene->live[--scene->count];
}

static void give(struct scene *scene)
{
    give_one(scene, (unsigned)draw(scene, scene->count));
}

static void wait_for(struct scene *scene, unsigned context)
{
    struct workbench *bench = &scene->bench;
    const uint64_t epoch = gc_context_epoch(bench->contexts[context]);
    sim_driver_complete(&bench->sim, context + 1);
    gc_core_complete(bench->core, bench->contexts[context], epoch);
}

static void toggle_capture(struct scene *scene)
{
    if (scene->is_single)
        return;
    scene->is_capturing = !scene->is_capturing;
    workbench_capture(&scene->bench, 0, scene->is_capturing);
}

static void add_peer(struct scene *scene)
{
    if (scene->is_single || scene->has_peer)
        return;
    gc_backing_add_peer(scene->bench.contexts[0], scene->peer);
    scene->has_peer = true;
}

static void leave_single(struct scene *scene)
{
    struct gc_core *core = scene->bench.core;
    if (!scene->is_single || scene->may_fail)
        return;
    assert_true(gc_submit_end_single_stream(core, &scene->bench.driver_code));
    scene->is_single = false;
}

static void add_tenant(struct scene *scene, unsigned i)
{
    static const char *const names[TENANTS] = {"one", "two"};
    const struct gc_tenant_config config = {names[i], GC_MIB(48), TENANT_LIMIT};
    assert_status(gc_tenant_add(scene->bench.core, &config, &scene->tenants[i]), GC_OK);
}

/* A block that is freed then need not be idle. */
static void replace_tenant(struct scene *scene)
{
    const unsigned tenant = (unsigned)draw(scene, TENANTS);
    if (!scene->has_tenants)
        return;
    for (unsigned i = scene->count; i-- > 0;) {
        struct gc_block_info info;
        const uint64_t address = scene->live[i].address;
        assert_status(gc_lookup_block(scene->bench.core, address, &info), GC_OK);
        if (info.owner->tenant != scene->tenants[tenant])
            continue;
        give_one(scene, i);
    }
    if (gc_tenant_remove(scene->bench.core, scene->tenants[tenant]) != GC_OK)
        return;
    scene->removed_count++;
    add_tenant(scene, tenant);
}

/* Where nothing fails and nothing is captured a tenant can be removed. */
static void remove_one(struct scene *scene)
{
    const unsigned before = scene->removed_count;
    scene->bench.sim.hook = NULL;
    if (scene->is_capturing)
        toggle_capture(scene);
    replace_tenant(scene);
    assert_int_equal(scene->removed_count, before + 1);
}

static void step(struct scene *scene)
{
    struct workbench *bench = &scene->bench;
    const uint64_t kind = draw(scene, 1000);
    if (scene->may_fail && draw(scene, 10) == 0)
        sim_driver_fail(&bench->sim, 1 + draw(scene, 6), draw(scene, 8) == 0,
                        draw(scene, 2) == 0 ? SIM_BROKEN : SIM_OUT_OF_MEMORY);
    else if (draw(scene, 3) == 0)
        sim_driver_fail(&bench->sim, 0, false, 0);
    if (kind < 400)
        take(scene);
    else if (kind < 750 && scene->count > 0)
        give(scene);
    else if (kind < 850 && scene->count > 0)
        submit(scene, &scene->live[draw(scene, scene->count)]);
    else if (kind < 900)
        wait_for(scene, (unsigned)draw(scene, 2));
    else if (kind < 920)
        gc_fence_record(draw_record(scene, (unsigned)draw(scene, CONTEXTS)));
    else if (kind < 950)
        gc_defer_reclaim(draw_record(scene, (unsigned)draw(scene, CONTEXTS)), GC_MIB(2));
    else if (kind < 970)
        gc_reclaim_trim(bench->core, bench->device, draw(scene, GC_MIB(16)));
    else if (kind < 980 || (scene->is_capturing && draw(scene, 10) == 0))
        toggle_capture(scene);
    else if (kind < 988)
        replace_tenant(scene);
    else if (kind < 998)
        add_peer(scene);
    else
        leave_single(scene);
}

/* As draw_record, but makes none. */
static struct gc_context *find_record(struct scene *scene, unsigned context)
{
    struct gc_context *head = scene->bench.contexts[context];
    const uint64_t tenant = scene->has_tenants ? draw(scene, TENANTS + 1) : TENANTS;
    struct gc_context *record =
        tenant == TENANTS ? NULL : gc_context_find_record(head, scene->tenants[tenant]);
    return record != NULL ? record : head;
}

/* The other thread: it takes what needs no driver call, and frees. */
static void meanwhile(void *argument, enum sim_call call, uint64_t context)
{
    struct scene *scene = argument;
    (void)context;
    if (call < SIM_ADDRESS_RESERVE || call > SIM_PAGE_UNMAP || scene->is_inside)
        return;
    const unsigned number = draw_context(scene);
    struct gc_context *record = find_record(scene, number);
    struct gc_pool *pool = &record->pool;
    scene->is_inside = true;
    for (uint64_t n = draw(scene, 4); n > 0 && scene->count > 0; n--)
        give(scene);
    for (uint64_t n = draw(scene, 3); n > 0 && scene->count + 1 < LIVE_MAX; n--) {
        const uint64_t bytes = draw_bytes(scene);
        struct gc_alloc_spec spec = {.requested_bytes = bytes, .api = API_MALLOC};
        struct gc_segment_spec plan;
        uint64_t address = 0;
        assert_true(gc_pool_specify(bytes, &spec.bytes, &plan));
        assert_status(gc_pool_acquire(pool), GC_OK);
        const struct gc_block *block =
            pool->is_closed ? NULL : gc_pool_alloc_locked(pool, plan.size_class, &spec);
        if (block != NULL) {
            const struct gc_entry entry = {block->address, bytes, block->bytes, 0, API_MALLOC};
            gc_context_count_alloc(record, &entry);
            gc_quota_count_hit(scene->bench.device, record->quota, true);
            address = block->address;
        }
        gc_pool_release(pool);
        if (address == 0)
            continue;
        if (!scene->is_single)
            sim_driver_expect_idle(&scene->bench.sim, address, bytes);
        come(scene, address, bytes, number);
    }
    scene->is_inside = false;
}

static void open_scene(struct scene *scene, uint64_t seed, uint64_t limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .limit_bytes = limit_bytes,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    const struct gc_device_info info = {.ordinal = PEER_DEVICE, .total_bytes = GC_MIB(64)};
    struct gc_device *device;
    memset(scene, 0, sizeof(*scene));
    scene->random = seed;
    workbench_open(&scene->bench, &setup);
    scene->bench.tenant_limit_bytes = TENANT_LIMIT;
    assert_status(gc_setup_add_device(scene->bench.core, &info, &device), GC_OK);
    assert_status(gc_setup_add_context(scene->bench.core, PEER_HANDLE, device, &scene->peer),
                  GC_OK);
}

/* Everything goes back, whatever happened. */
static void close_scene(struct scene *scene)
{
    struct workbench *bench = &scene->bench;
    bench->sim.hook = NULL;
    sim_driver_fail(&bench->sim, 0, false, 0);
    if (scene->is_capturing)
        toggle_capture(scene);
    while (scene->count > 0)
        give(scene);
    gc_reclaim_empty(bench->core, bench->device);
    workbench_check(bench);
    assert_int_equal(gc_device_reserved_bytes(bench->device), bench->sim.used_bytes);
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        workbench_drop(bench, i);
    assert_int_equal(bench->sim.used_bytes, 0);
    assert_int_equal(bench->sim.mapping_count, 0);
    /* Ranges of removed tenants that graphs may know stay reserved. */
    assert_int_equal(bench->sim.range_count, atomic_load(&bench->core->kept_range_count));
    assert_int_equal(gc_device_reserved_bytes(bench->device), 0);
    workbench_close(bench);
}

static uint64_t choose_seed(void)
{
    const char *chosen = getenv("GC_TEST_SEED");
    const uint64_t seed = chosen != NULL ? strtoull(chosen, NULL, 0) : (uint64_t)time(NULL);
    print_message("# seed %" PRIu64 "\n", seed);
    return seed;
}

static void play(bool is_single, bool may_fail, bool has_tenants)
{
    static struct scene scene;
    const uint64_t seed = choose_seed();
    for (unsigned run = 0; run < 6; run++) {
        open_scene(&scene, seed + run * 7919, GC_MIB(24) << run % 3);
        scene.may_fail = may_fail;
        scene.is_single = is_single;
        scene.has_tenants = has_tenants;
        for (unsigned i = 0; has_tenants && i < TENANTS; i++)
            add_tenant(&scene, i);
        if (is_single)
            workbench_pretend_one_stream(&scene.bench);
        scene.bench.sim.hook = meanwhile;
        scene.bench.sim.hook_argument = &scene;
        for (unsigned i = 0; i < STEPS; i++) {
            step(&scene);
            check_scene(&scene);
            if (i % 50 == 0)
                workbench_check(&scene.bench);
        }
        if (has_tenants && !is_single && !may_fail)
            remove_one(&scene);
        close_scene(&scene);
    }
}

static void memory_has_one_user(void **state)
{
    (void)state;
    play(false, false, false);
}

static void memory_has_one_user_whatever_fails(void **state)
{
    (void)state;
    play(false, true, false);
}

static void memory_has_one_user_in_the_order_of_one_stream(void **state)
{
    (void)state;
    play(true, false, false);
}

static void memory_has_one_user_in_one_stream_whatever_fails(void **state)
{
    (void)state;
    play(true, true, false);
}

static void memory_has_one_tenant(void **state)
{
    (void)state;
    play(false, false, true);
    play(true, false, true);
}

static void memory_has_one_tenant_whatever_fails(void **state)
{
    (void)state;
    play(false, true, true);
    play(true, true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_has_one_user),
        cmocka_unit_test(memory_has_one_user_whatever_fails),
        cmocka_unit_test(memory_has_one_user_in_the_order_of_one_stream),
        cmocka_unit_test(memory_has_one_user_in_one_stream_whatever_fails),
        cmocka_unit_test(memory_has_one_tenant),
        cmocka_unit_test(memory_has_one_tenant_whatever_fails),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("alias", tests, NULL, NULL);
}
