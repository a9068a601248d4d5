/* Pause and resume of one tenant: its memory goes and nobody else's, its threads wait and nobody
 * else's, and a pause of the process goes on top of it. */
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/pause/away.h"
#include "core/pause/pause.h"
#include "core/pause/swap.h"
#include "core/reclaim/limit.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <time.h>
#include <unistd.h>

#define MIB(count) ((uint64_t)(count) << 20)
#define TENANTS 2
#define TIMEOUT_MS 5000

struct house {
    struct workbench bench;
    struct gc_tenant *tenants[TENANTS];
    uint64_t blocks[TENANTS + 1]; /* the last one is nobody's */
    struct gc_swap_result result;
};

static uint64_t take(struct house *house, struct gc_tenant *tenant, uint64_t bytes)
{
    const struct gc_request request = {.bytes = bytes, .api = API_MALLOC};
    struct gc_context *record;
    uint64_t address = 0;
    int code;
    assert_status(gc_setup_tenant_context(tenant, house->bench.contexts[0], &record), GC_OK);
    assert_status(gc_alloc(house->bench.core, record, &request, &address, &code), GC_OK);
    return address;
}

static void open_house(struct house *house, uint64_t capacity_bytes)
{
    static const char *const names[TENANTS] = {"llama", "rest"};
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = capacity_bytes,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    workbench_open(&house->bench, &setup);
    for (unsigned i = 0; i < TENANTS; i++) {
        const struct gc_tenant_config config = {.name = names[i],
                                                .limit_bytes = GC_BUDGET_UNLIMITED};
        assert_status(gc_tenant_add(house->bench.core, &config, &house->tenants[i]), GC_OK);
    }
}

static void furnish(struct house *house)
{
    for (unsigned i = 0; i <= TENANTS; i++) {
        house->blocks[i] = take(house, i < TENANTS ? house->tenants[i] : NULL, MIB(8));
        sim_driver_put(&house->bench.sim, house->blocks[i], 50 + i);
    }
}

static bool pause_it(struct house *house, struct gc_tenant *tenant)
{
    const struct gc_pause_request request = {
        .tenant = tenant, .keeps_content = true, .timeout_ms = TIMEOUT_MS};
    return gc_pause(house->bench.core, &request, &house->result);
}

static bool resume_it(struct house *house, struct gc_tenant *tenant)
{
    return gc_pause_resume(house->bench.core, tenant, &house->result);
}

static bool is_there(struct house *house, unsigned i)
{
    return sim_driver_is_accessible(&house->bench.sim, house->blocks[i], MIB(8));
}

static void assert_contents(struct house *house)
{
    for (unsigned i = 0; i <= TENANTS; i++)
        assert_int_equal(sim_driver_get(&house->bench.sim, house->blocks[i]), 50 + i);
}

static void close_house(struct house *house)
{
    for (unsigned i = 0; i <= TENANTS; i++)
        if (house->blocks[i] != 0)
            workbench_free(&house->bench, house->blocks[i]);
    for (unsigned i = 0; i < TENANTS; i++)
        assert_status(gc_tenant_remove(house->bench.core, house->tenants[i]), GC_OK);
    workbench_close(&house->bench);
}

static enum gc_gate_mode mode_of(struct house *house)
{
    return gc_gate_mode_of(gc_gate_read(&house->bench.core->work.gate));
}

static void its_memory_goes_and_nobody_elses(void **state)
{
    struct house house = {0};
    struct gc_tenant_figures figures;
    (void)state;
    open_house(&house, MIB(256));
    furnish(&house);
    assert_false(resume_it(&house, house.tenants[0]));
    assert_int_equal(house.result.refusal, GC_SWAP_AGAIN);
    assert_true(pause_it(&house, house.tenants[0]));
    assert_int_equal(house.result.moved_bytes, MIB(8));
    assert_int_equal(house.result.stays_bytes, 0);
    assert_false(is_there(&house, 0));
    assert_true(is_there(&house, 1) && is_there(&house, 2));
    assert_int_equal(mode_of(&house), GC_GATE_GUARDED);
    assert_false(gc_pause_is_any(house.bench.core));
    assert_true(gc_tenant_read(house.tenants[0], house.bench.device, &figures));
    assert_true(figures.is_paused);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.allocated.current, MIB(8));
    /* Its memory is known by the addresses. */
    assert_ptr_equal(gc_pause_find(house.bench.core, house.blocks[0] + 5), house.tenants[0]);
    assert_null(gc_pause_find(house.bench.core, house.blocks[1]));
    assert_null(gc_pause_find(house.bench.core, house.blocks[2]));
    /* Nothing of it can be taken away meanwhile, and it is not paused twice. */
    assert_status(gc_tenant_remove(house.bench.core, house.tenants[0]), GC_BUSY);
    assert_false(pause_it(&house, house.tenants[0]));
    assert_int_equal(house.result.refusal, GC_SWAP_AGAIN);
    workbench_free(&house.bench, take(&house, house.tenants[1], MIB(4)));
    assert_true(resume_it(&house, house.tenants[0]));
    assert_int_equal(house.result.moved_bytes, MIB(8));
    assert_int_equal(mode_of(&house), GC_GATE_OPEN);
    assert_contents(&house);
    assert_null(gc_pause_find(house.bench.core, house.blocks[0]));
    close_house(&house);
}

/* Each needs 70 % of the device. */
static void two_take_turns(void **state)
{
    struct house house = {0};
    (void)state;
    open_house(&house, MIB(100));
    uint64_t held[TENANTS] = {0};
    for (unsigned turn = 0; turn < 6; turn++) {
        const unsigned mine = turn % TENANTS;
        if (held[mine] == 0)
            held[mine] = take(&house, house.tenants[mine], MIB(70));
        else
            assert_true(resume_it(&house, house.tenants[mine]));
        if (turn >= TENANTS)
            assert_int_equal(sim_driver_get(&house.bench.sim, held[mine]), 100 + turn - TENANTS);
        sim_driver_put(&house.bench.sim, held[mine], 100 + turn);
        /* The other one finds no room meanwhile. */
        if (turn >= TENANTS) {
            assert_false(resume_it(&house, house.tenants[1 - mine]));
            assert_int_equal(house.result.refusal, GC_SWAP_FULL);
        }
        assert_true(pause_it(&house, house.tenants[mine]));
    }
    assert_int_equal(house.bench.sim.used_bytes, 0);
    for (unsigned i = 0; i < TENANTS; i++) {
        workbench_free(&house.bench, held[i]);
        assert_true(resume_it(&house, house.tenants[i]));
    }
    close_house(&house);
}

static void process_and_tenant_in_any_order(void **state)
{
    (void)state;
    for (unsigned order = 0; order < 4; order++) {
        const bool tenant_first = (order & 1) != 0;
        const bool tenant_last = (order & 2) != 0;
        struct house house = {0};
        open_house(&house, MIB(256));
        furnish(&house);
        assert_true(pause_it(&house, tenant_first ? house.tenants[0] : NULL));
        assert_true(pause_it(&house, tenant_first ? NULL : house.tenants[0]));
        for (unsigned i = 0; i <= TENANTS; i++)
            assert_false(is_there(&house, i));
        assert_int_equal(mode_of(&house), GC_GATE_CLOSED);
        assert_true(resume_it(&house, tenant_last ? NULL : house.tenants[0]));
        assert_false(is_there(&house, 0));
        assert_int_equal(is_there(&house, 1), tenant_last);
        assert_int_equal(mode_of(&house), tenant_last ? GC_GATE_GUARDED : GC_GATE_CLOSED);
        assert_true(resume_it(&house, tenant_last ? house.tenants[0] : NULL));
        assert_int_equal(mode_of(&house), GC_GATE_OPEN);
        assert_contents(&house);
        close_house(&house);
    }
}

struct newcomer {
    struct house *house;
    uint64_t address;
    atomic_bool is_done;
};

static void *arrive(void *argument)
{
    struct newcomer *newcomer = argument;
    newcomer->address = take(newcomer->house, newcomer->house->tenants[0], MIB(16));
    atomic_store(&newcomer->is_done, true);
    return NULL;
}

/* Also in a context that it never used. */
static void its_requests_wait(void **state)
{
    const struct timespec moment = {0, 30000000};
    (void)state;
    for (unsigned is_furnished = 0; is_furnished < 2; is_furnished++) {
        struct house house = {0};
        struct newcomer newcomer = {.house = &house};
        pthread_t thread;
        open_house(&house, MIB(256));
        if (is_furnished != 0)
            furnish(&house);
        assert_true(pause_it(&house, house.tenants[0]));
        assert_int_equal(pthread_create(&thread, NULL, arrive, &newcomer), 0);
        nanosleep(&moment, NULL);
        assert_false(atomic_load(&newcomer.is_done));
        assert_true(resume_it(&house, house.tenants[0]));
        assert_int_equal(pthread_join(thread, NULL), 0);
        workbench_free(&house.bench, newcomer.address);
        close_house(&house);
    }
}

/* Captures of others go on; what is refused leaves everything as it was. */
static void captures_and_limits(void **state)
{
    struct house house = {0};
    (void)state;
    open_house(&house, MIB(256));
    furnish(&house);
    workbench_capture(&house.bench, 0, true);
    assert_false(pause_it(&house, house.tenants[0]));
    assert_int_equal(house.result.refusal, GC_SWAP_CAPTURES);
    assert_int_equal(mode_of(&house), GC_GATE_OPEN);
    workbench_capture(&house.bench, 0, false);
    assert_true(pause_it(&house, house.tenants[0]));
    workbench_capture(&house.bench, 0, true);
    assert_false(resume_it(&house, house.tenants[0]));
    assert_int_equal(house.result.refusal, GC_SWAP_CAPTURES);
    workbench_capture(&house.bench, 0, false);
    gc_limit_set_tenant(house.tenants[0], MIB(4));
    assert_false(resume_it(&house, house.tenants[0]));
    assert_int_equal(house.result.refusal, GC_SWAP_FULL);
    assert_int_equal(mode_of(&house), GC_GATE_GUARDED);
    gc_limit_set_tenant(house.tenants[0], MIB(8));
    assert_true(resume_it(&house, house.tenants[0]));
    assert_contents(&house);
    /* Work of others may use the tenant's memory: it is waited for, with a bound. */
    sim_driver_submit(&house.bench.sim, 2, house.blocks[0], MIB(8));
    const struct gc_pause_request soon = {
        .tenant = house.tenants[0], .keeps_content = true, .timeout_ms = 30};
    assert_false(gc_pause(house.bench.core, &soon, &house.result));
    assert_int_equal(house.result.refusal, GC_SWAP_BUSY);
    assert_int_equal(mode_of(&house), GC_GATE_OPEN);
    sim_driver_complete(&house.bench.sim, 2);
    close_house(&house);
}

/* Whose work may use the memory captures, though the tenant has nothing there, or nothing at all:
 * the capture is left alone. */
static void captures_elsewhere_are_left_alone(void **state)
{
    struct house house = {0};
    (void)state;
    open_house(&house, MIB(256));
    for (unsigned context = 0; context < 2; context++) {
        workbench_capture(&house.bench, context, true);
        assert_false(pause_it(&house, house.tenants[0]));
        assert_int_equal(house.result.refusal, GC_SWAP_CAPTURES);
        assert_int_equal(mode_of(&house), GC_GATE_OPEN);
        workbench_check(&house.bench);
        workbench_capture(&house.bench, context, false);
        if (context == 0)
            furnish(&house);
    }
    assert_true(pause_it(&house, house.tenants[0]));
    assert_true(resume_it(&house, house.tenants[0]));
    assert_contents(&house);
    close_house(&house);
}

/* Memory that a network card may reach stays; so does all, where work is not seen. */
static void what_others_reach_is_not_moved(void **state)
{
    struct house house = {0};
    (void)state;
    open_house(&house, MIB(256));
    furnish(&house);
    gc_export_pin(house.bench.core, house.blocks[0] + MIB(1), MIB(2));
    assert_false(pause_it(&house, house.tenants[0]));
    assert_int_equal(house.result.refusal, GC_SWAP_EXPORTED);
    assert_false(pause_it(&house, NULL));
    assert_int_equal(house.result.refusal, GC_SWAP_EXPORTED);
    assert_true(pause_it(&house, house.tenants[1]));
    assert_true(resume_it(&house, house.tenants[1]));
    workbench_free(&house.bench, house.blocks[0]);
    house.blocks[0] = take(&house, house.tenants[0], MIB(8));
    assert_true(pause_it(&house, house.tenants[0]));
    assert_true(resume_it(&house, house.tenants[0]));
    (void)gc_submit_set_conservative(house.bench.core);
    assert_false(pause_it(&house, house.tenants[0]));
    assert_int_equal(house.result.refusal, GC_SWAP_UNSEEN);
    const struct gc_pause_request vouched = {
        .keeps_content = true, .is_vouched = true, .timeout_ms = TIMEOUT_MS};
    assert_true(gc_pause(house.bench.core, &vouched, &house.result));
    assert_true(resume_it(&house, NULL));
    close_house(&house);
}

/* ---- away between two turns ---- */

static bool leave(struct house *house, struct gc_tenant *tenant)
{
    return gc_away_begin(house->bench.core, tenant, TIMEOUT_MS, NULL, NULL, &house->result);
}

static bool give(struct house *house, struct gc_tenant *tenant, uint64_t bytes)
{
    const struct gc_swap_spec spec = {
        .keeps_content = true, .wanted_bytes = bytes, .chunk_bytes = MIB(2)};
    return gc_away_give(house->bench.device, tenant, &spec, &house->result);
}

static bool come_back(struct house *house, struct gc_tenant *tenant)
{
    const struct gc_swap_spec spec = {.is_return = true, .chunk_bytes = MIB(2)};
    return gc_away_return(house->bench.device, tenant, &spec, &house->result) &&
           gc_away_end(house->bench.core, tenant);
}

static uint64_t missing(struct house *house, struct gc_tenant *tenant)
{
    return gc_away_missing(house->bench.device, tenant);
}

/* A tenant that is away stays so over the turns and pauses of its process, and over its own. */
static void away_in_any_order(void **state)
{
    struct house house = {0};
    struct gc_tenant_figures figures;
    (void)state;
    open_house(&house, MIB(256));
    furnish(&house);
    struct gc_tenant *tenant = house.tenants[0];
    assert_true(leave(&house, tenant) && give(&house, tenant, MIB(8)));
    assert_int_equal(house.result.moved_bytes, MIB(8));
    assert_false(is_there(&house, 0));
    assert_true(is_there(&house, 1) && is_there(&house, 2));
    assert_int_equal(mode_of(&house), GC_GATE_GUARDED);
    assert_ptr_equal(gc_pause_find(house.bench.core, house.blocks[0]), tenant);
    assert_int_equal(missing(&house, tenant), MIB(8));
    assert_int_equal(missing(&house, NULL), 0);
    assert_true(gc_tenant_read(tenant, house.bench.device, &figures));
    assert_true(figures.is_away && !figures.is_paused);
    assert_int_equal(figures.swapped_bytes, MIB(8));
    assert_status(gc_tenant_remove(house.bench.core, tenant), GC_BUSY); /* it has live memory */
    /* The process's turn ends and begins. */
    assert_true(leave(&house, NULL) && give(&house, NULL, UINT64_MAX));
    assert_false(is_there(&house, 1) || is_there(&house, 2));
    assert_int_equal(missing(&house, NULL), MIB(16));
    assert_int_equal(mode_of(&house), GC_GATE_CLOSED);
    assert_true(come_back(&house, NULL));
    assert_true(is_there(&house, 1) && is_there(&house, 2) && !is_there(&house, 0));
    assert_int_equal(mode_of(&house), GC_GATE_GUARDED);
    /* Pauses of the process and of the tenant. */
    assert_true(pause_it(&house, NULL) && resume_it(&house, NULL));
    assert_true(is_there(&house, 1) && is_there(&house, 2) && !is_there(&house, 0));
    assert_true(pause_it(&house, tenant) && resume_it(&house, tenant));
    assert_false(is_there(&house, 0));
    assert_true(pause_it(&house, tenant));
    assert_true(leave(&house, NULL) && give(&house, NULL, UINT64_MAX));
    assert_true(come_back(&house, NULL) && resume_it(&house, tenant));
    assert_int_equal(mode_of(&house), GC_GATE_GUARDED);
    assert_true(come_back(&house, tenant));
    assert_int_equal(mode_of(&house), GC_GATE_OPEN);
    assert_contents(&house);
    close_house(&house);
}

/* A part of a tenant's memory is out; the process's turn takes the rest along. */
static void a_part_is_away(void **state)
{
    struct house house = {0};
    (void)state;
    open_house(&house, MIB(256));
    furnish(&house);
    struct gc_tenant *tenant = house.tenants[0];
    const uint64_t second = take(&house, tenant, MIB(8));
    sim_driver_put(&house.bench.sim, second, 77);
    assert_true(leave(&house, tenant) && give(&house, tenant, MIB(2)));
    const uint64_t part = missing(&house, tenant);
    assert_true(part > 0 && part < MIB(16));
    assert_true(leave(&house, NULL) && give(&house, NULL, UINT64_MAX));
    assert_int_equal(missing(&house, tenant), MIB(16));
    assert_int_equal(gc_device_reserved_bytes(house.bench.device), 0);
    assert_true(come_back(&house, NULL));
    assert_int_equal(missing(&house, tenant), MIB(16));
    workbench_free(&house.bench, second); /* what was freed does not come back */
    assert_true(come_back(&house, tenant));
    assert_int_equal(house.result.moved_bytes, MIB(8));
    assert_contents(&house);
    close_house(&house);
}

/* Whatever fails, nothing is lost and no wait is unbounded. */
static void failures_lose_nothing(void **state)
{
    bool was_late = false;
    (void)state;
    for (uint64_t n = 1; !was_late; n++) {
        struct house house = {0};
        open_house(&house, MIB(256));
        furnish(&house);
        sim_driver_fail(&house.bench.sim, n, n % 2 == 0, SIM_BROKEN);
        const bool is_paused = pause_it(&house, house.tenants[0]);
        const bool is_back = is_paused && resume_it(&house, house.tenants[0]);
        was_late = house.bench.sim.failed_count == 0;
        sim_driver_fail(&house.bench.sim, 0, false, 0);
        if (is_paused && !is_back)
            assert_true(resume_it(&house, house.tenants[0]));
        assert_int_equal(mode_of(&house), GC_GATE_OPEN);
        assert_contents(&house);
        close_house(&house);
        assert_true(n < 500);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_memory_goes_and_nobody_elses),
        cmocka_unit_test(two_take_turns),
        cmocka_unit_test(process_and_tenant_in_any_order),
        cmocka_unit_test(its_requests_wait),
        cmocka_unit_test(captures_and_limits),
        cmocka_unit_test(captures_elsewhere_are_left_alone),
        cmocka_unit_test(what_others_reach_is_not_moved),
        cmocka_unit_test(away_in_any_order),
        cmocka_unit_test(a_part_is_away),
        cmocka_unit_test(failures_lose_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    alarm(60); /* an unbounded wait fails */
    return cmocka_run_group_tests_name("pause of a tenant", tests, NULL, NULL);
}
