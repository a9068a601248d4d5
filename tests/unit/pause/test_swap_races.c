/* Calls of other threads while a pool is swapped out or in: contexts end, peers come, captures
 * begin. The hook of the simulated platform plays the other thread at a chosen driver call. */
#include "core/backing/change.h"
#include "core/device/registry.h"
#include "core/pause/swap.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB(count) ((uint64_t)(count) << 20)
#define MARK UINT64_C(0x5EED)
#define PEER_DEVICE 3
#define PEER_HANDLE 9

struct scene {
    struct workbench bench;
    uint64_t block;
    struct gc_context *peer; /* of another device */
    enum sim_call at;        /* the call at which something happens, once */
    uint64_t in;             /* of this context; 0: any */
    bool is_over;
    bool is_joined; /* the call waits until it has happened */
    void *(*happens)(void *scene);
    pthread_t thread;
    atomic_bool is_done;
};

static void a_moment(void)
{
    const struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
}

static void meddle(void *argument, enum sim_call call, uint64_t context)
{
    struct scene *scene = argument;
    if (scene->is_over || call != scene->at || (scene->in != 0 && scene->in != context))
        return;
    scene->is_over = true;
    assert_int_equal(pthread_create(&scene->thread, NULL, scene->happens, scene), 0);
    if (scene->is_joined)
        assert_int_equal(pthread_join(scene->thread, NULL), 0);
    else
        a_moment();
}

static void expect(struct scene *scene, enum sim_call at, void *(*happens)(void *), bool is_joined)
{
    scene->at = at;
    scene->happens = happens;
    scene->is_joined = is_joined;
    scene->is_over = false;
    atomic_store(&scene->is_done, false);
    scene->bench.sim.hook_argument = scene;
    scene->bench.sim.hook = meddle;
}

/* Asserts that the other thread's call came and ended. */
static void end_meddling(struct scene *scene)
{
    assert_true(scene->is_over);
    if (!scene->is_joined)
        assert_int_equal(pthread_join(scene->thread, NULL), 0);
    scene->bench.sim.hook = NULL;
    assert_true(atomic_load(&scene->is_done));
}

static void open_scene(struct scene *scene, uint64_t limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = MIB(256),
                                          .limit_bytes = limit_bytes,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    const struct gc_device_info info = {.ordinal = PEER_DEVICE, .total_bytes = MIB(256)};
    struct gc_device *device;
    memset(scene, 0, sizeof(*scene));
    workbench_open(&scene->bench, &setup);
    assert_status(gc_setup_add_device(scene->bench.core, &info, &device), GC_OK);
    assert_status(gc_setup_add_context(scene->bench.core, PEER_HANDLE, device, &scene->peer),
                  GC_OK);
    scene->block = workbench_alloc(&scene->bench, 0, MIB(10));
    sim_driver_put(&scene->bench.sim, scene->block, MARK);
}

static struct gc_context *context_of(struct scene *scene)
{
    return scene->bench.contexts[0];
}

static void *drop(void *argument)
{
    struct scene *scene = argument;
    workbench_drop(&scene->bench, 0);
    atomic_store(&scene->is_done, true);
    return NULL;
}

/* Whichever call of the way out it comes in, no wait is unbounded and nothing is left. */
static void a_context_ends_on_the_way_out(void **state)
{
    static const enum sim_call calls[] = {SIM_SYNCHRONIZE, SIM_COPY_OUT, SIM_PAGE_UNMAP,
                                          SIM_PAGE_RELEASE};
    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct scene scene;
        struct gc_swap_result result;
        open_scene(&scene, 0);
        expect(&scene, calls[i], drop, false);
        (void)gc_swap_out_all(context_of(&scene), true, &result);
        end_meddling(&scene);
        assert_int_equal(gc_device_reserved_bytes(scene.bench.device), 0);
        assert_int_equal(scene.bench.sim.range_count, 0);
        workbench_close(&scene.bench);
    }
}

/* The resume reclaims memory, for which it may need the change that the other thread has. */
static void a_context_ends_while_it_waits_for_room(void **state)
{
    struct scene scene;
    struct gc_swap_result result;
    (void)state;
    open_scene(&scene, MIB(12));
    assert_true(gc_swap_out_all(context_of(&scene), true, &result));
    const uint64_t other = workbench_alloc(&scene.bench, 1, MIB(10));
    sim_driver_submit(&scene.bench.sim, 2, other, MIB(10));
    workbench_free(&scene.bench, other);
    scene.in = 2;
    expect(&scene, SIM_FENCE_WAIT, drop, true);
    assert_false(gc_swap_in(context_of(&scene), &result));
    end_meddling(&scene);
    workbench_close(&scene.bench);
}

static void *add_peer(void *argument)
{
    struct scene *scene = argument;
    gc_backing_add_peer(context_of(scene), scene->peer);
    atomic_store(&scene->is_done, true);
    return NULL;
}

static void assert_open(struct scene *scene)
{
    assert_true(sim_driver_is_open_to(&scene->bench.sim, PEER_DEVICE, scene->block, MIB(10)));
    assert_int_equal(sim_driver_get(&scene->bench.sim, scene->block), MARK);
    workbench_check(&scene->bench);
    workbench_free(&scene->bench, scene->block);
    workbench_close(&scene->bench);
}

static void a_peer_comes_on_the_way_out(void **state)
{
    struct scene scene;
    struct gc_swap_result result;
    (void)state;
    open_scene(&scene, 0);
    expect(&scene, SIM_COPY_OUT, add_peer, false);
    assert_true(gc_swap_out_all(context_of(&scene), true, &result));
    end_meddling(&scene);
    assert_true(gc_swap_in(context_of(&scene), &result));
    assert_open(&scene);
}

static void a_peer_comes_on_the_way_in(void **state)
{
    struct scene scene;
    struct gc_swap_result result;
    (void)state;
    open_scene(&scene, 0);
    assert_true(gc_swap_out_all(context_of(&scene), true, &result));
    expect(&scene, SIM_COPY_IN, add_peer, false);
    assert_true(gc_swap_in(context_of(&scene), &result));
    end_meddling(&scene);
    assert_open(&scene);
}

/* The first attempt fails, with part of the memory mapped. */
static void a_peer_comes_between_two_attempts(void **state)
{
    struct scene scene;
    struct gc_swap_result result;
    (void)state;
    open_scene(&scene, 0);
    const uint64_t small = workbench_alloc(&scene.bench, 0, 4096);
    assert_true(gc_swap_out_all(context_of(&scene), true, &result));
    const uint64_t maps = scene.bench.sim.calls[SIM_PAGE_MAP];
    for (uint64_t n = 1; scene.bench.sim.calls[SIM_PAGE_MAP] == maps; n++) {
        sim_driver_fail(&scene.bench.sim, n, true, SIM_BROKEN);
        assert_false(gc_swap_in(context_of(&scene), &result));
        sim_driver_fail(&scene.bench.sim, 0, false, 0);
    }
    gc_backing_add_peer(context_of(&scene), scene.peer);
    assert_true(gc_swap_in(context_of(&scene), &result));
    assert_true(sim_driver_is_open_to(&scene.bench.sim, PEER_DEVICE, small, 4096));
    workbench_free(&scene.bench, small);
    assert_open(&scene);
}

/* Captures of others in the context go on while memory is away, and nothing is mapped in them. */
static void a_capture_holds_up_the_way_in(void **state)
{
    struct scene scene;
    struct gc_swap_result result;
    (void)state;
    open_scene(&scene, 0);
    assert_true(gc_swap_out_all(context_of(&scene), true, &result));
    assert_int_equal(atomic_load(&context_of(&scene)->wait_count), 0);
    workbench_capture(&scene.bench, 0, true);
    const uint64_t calls = scene.bench.sim.total_calls;
    assert_false(gc_swap_in(context_of(&scene), &result));
    assert_int_equal(result.refusal, GC_SWAP_CAPTURES);
    assert_int_equal(scene.bench.sim.total_calls, calls);
    workbench_capture(&scene.bench, 0, false);
    assert_true(gc_swap_in(context_of(&scene), &result));
    assert_int_equal(atomic_load(&context_of(&scene)->wait_count), 0);
    assert_int_equal(sim_driver_get(&scene.bench.sim, scene.block), MARK);
    workbench_free(&scene.bench, scene.block);
    workbench_close(&scene.bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_ends_on_the_way_out),
        cmocka_unit_test(a_context_ends_while_it_waits_for_room),
        cmocka_unit_test(a_peer_comes_on_the_way_out),
        cmocka_unit_test(a_peer_comes_on_the_way_in),
        cmocka_unit_test(a_peer_comes_between_two_attempts),
        cmocka_unit_test(a_capture_holds_up_the_way_in),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    alarm(60); /* an unbounded wait fails */
    return cmocka_run_group_tests_name("swap races", tests, NULL, NULL);
}
