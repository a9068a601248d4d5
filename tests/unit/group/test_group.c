/* Cores that share a group: two in one process stand for two processes, each with a slot of its own
 * in one ledger and a driver of its own. */
#define _GNU_SOURCE
#include "core/config/options.h"
#include "core/core.h"
#include "core/ledger/account.h"
#include "core/report/snapshot.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"
#include "tests/unit/sim_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB(n) ((uint64_t)(n) << 20)
#define CAPACITY MIB(1024)
#define LIMIT MIB(256)
#define MEMBERS 2
#define PATIENCE_MS 60000

static const _Atomic uint32_t nothing;
static const char *const api_names[] = {"malloc"};

static struct client {
    struct sim_driver sim;
    struct gc_options *options;
    struct gc_doorbell doorbell;
    struct gc_core *core;
    struct gc_device *device;
    struct gc_context *context;
    pthread_t helper;
} members[MEMBERS];

static char base[256];
static char folder[300];

static void set_size(struct gc_size_spec *spec, uint64_t bytes)
{
    spec->count = bytes != 0;
    spec->entries[0] = (struct gc_size_entry){.ordinal = -1, .bytes = bytes};
}

static struct gc_options *make_options(const char *group, uint64_t group_limit)
{
    struct gc_options *options = calloc(1, sizeof(*options));
    assert_non_null(options);
    options->mode = GC_MODE_CACHE;
    options->trim_percent = 100;
    snprintf(options->group, sizeof(options->group), "%s", group);
    snprintf(options->ledger, sizeof(options->ledger), "%s", folder);
    set_size(&options->group_limit, group_limit);
    return options;
}

static void open_member(struct client *client, struct gc_options *options, bool has_mapping)
{
    *client = (struct client){.options = options, .doorbell = {.control = &nothing}};
    sim_driver_init(&client->sim, CAPACITY);
    const struct gc_core_config config = {
        .options = options, .driver = &client->sim.table, .api_names = api_names, .api_count = 1};
    assert_int_equal(gc_core_create(&config, &client->core), GC_OK);
    client->sim.work = gc_core_submissions(client->core);
    gc_core_join(client->core, "program", &client->doorbell);
    const struct gc_device_info info = {.total_bytes = CAPACITY,
                                        .uuid = "GPU-one",
                                        .has_mapping = has_mapping,
                                        .page_bytes = has_mapping ? MIB(2) : 0};
    assert_int_equal(gc_setup_add_device(client->core, &info, &client->device), GC_OK);
    assert_int_equal(gc_setup_add_context(client->core, 1, client->device, &client->context),
                     GC_OK);
}

static void close_member(struct client *client)
{
    if (client->core == NULL)
        return;
    gc_teardown_finish(gc_teardown_begin(client->core, 1));
    gc_core_destroy(client->core);
    sim_driver_fini(&client->sim);
    free(client->options);
    client->core = NULL;
}

static int set_up(void **state)
{
    (void)state;
    scratch_folder(base, sizeof(base));
    scratch_path(folder, sizeof(folder), base, "ledger");
    for (int i = 0; i < MEMBERS; i++)
        open_member(&members[i], make_options("g", LIMIT), *(const bool *)*state);
    return 0;
}

static int tear_down(void **state)
{
    char path[400];
    (void)state;
    for (int i = 0; i < MEMBERS; i++)
        close_member(&members[i]);
    snprintf(path, sizeof(path), "%s/ledger-%d", folder, GC_LEDGER_VERSION);
    unlink(path);
    rmdir(folder);
    scratch_remove(base);
    return 0;
}

static enum gc_status alloc(struct client *client, uint64_t bytes, uint64_t *address)
{
    const struct gc_request request = {.bytes = bytes};
    int code;
    return gc_alloc(client->core, client->context, &request, address, &code);
}

static uint64_t must_alloc(struct client *client, uint64_t bytes)
{
    uint64_t address = 0;
    assert_int_equal(alloc(client, bytes, &address), GC_OK);
    return address;
}

static void must_free(struct client *client, uint64_t address)
{
    int code;
    assert_int_equal(gc_free(client->core, address, 0, &code), GC_OK);
}

static uint64_t held(void)
{
    return gc_device_reserved_bytes(members[0].device) +
           gc_device_reserved_bytes(members[1].device);
}

static uint64_t available(struct client *client, uint64_t *total)
{
    uint64_t free_bytes = CAPACITY - gc_device_reserved_bytes(client->device);
    *total = CAPACITY;
    gc_available_mem_info(client->core, client->device, NULL, &free_bytes, total);
    return free_bytes;
}

static void wait_for_others(unsigned ms)
{
    for (int i = 0; i < MEMBERS; i++)
        members[i].options->wait_ms = ms;
}

static void *help(void *client)
{
    gc_serve_help(((struct client *)client)->core);
    return NULL;
}

static void start_helper(struct client *client)
{
    assert_true(gc_serve_wants_helper(client->core));
    pthread_create(&client->helper, NULL, help, client);
}

/* A request more, so that the helper sees that it is over. */
static void end_helper(struct client *client, const struct gc_ledger *ledger, uint32_t slot)
{
    struct gc_ledger_process process;
    struct gc_ledger_ticket ticket;
    const struct gc_ledger_request request = {.kind = GC_REQUEST_REFRESH};
    gc_serve_end_help(client->core);
    assert_true(gc_ledger_read_process(ledger, slot, &process));
    assert_true(gc_ledger_send_request(ledger, slot, process.generation, &request, &ticket));
    pthread_join(client->helper, NULL);
}

static void open_reader(struct gc_ledger *ledger)
{
    char reason[GC_LEDGER_REASON_BYTES];
    assert_int_equal(gc_ledger_open(folder, false, ledger, reason), GC_OK);
}

/* ---- the limit ---- */

static void one_limit_holds_for_both(void **state)
{
    uint64_t address, total;
    (void)state;
    const uint64_t first = must_alloc(&members[0], MIB(160));
    assert_int_equal(alloc(&members[1], MIB(160), &address), GC_OUT_OF_MEMORY);
    assert_int_equal(available(&members[1], &total), MIB(96));
    assert_int_equal(total, LIMIT);
    assert_int_equal(gc_device_total_bytes(members[1].device), LIMIT);
    const uint64_t second = must_alloc(&members[1], MIB(96));
    assert_int_equal(held(), LIMIT);
    assert_int_equal(available(&members[0], &total), 0);
    must_free(&members[0], first);
    must_free(&members[1], second);
    /* Own idle memory is free to take again, that of others is not. */
    assert_int_equal(available(&members[0], &total), MIB(160));
    assert_int_equal(available(&members[1], &total), MIB(96));
}

static void direct_memory_counts(void **state)
{
    uint64_t address;
    (void)state;
    assert_int_equal(gc_direct_charge_device(members[0].core, members[0].device, NULL, MIB(200)),
                     GC_OK);
    assert_int_equal(gc_direct_charge_device(members[1].core, members[1].device, NULL, MIB(57)),
                     GC_OUT_OF_MEMORY);
    assert_int_equal(alloc(&members[1], MIB(64), &address), GC_OUT_OF_MEMORY);
    gc_direct_uncharge(members[0].core, members[0].device, NULL, MIB(200));
    must_free(&members[1], must_alloc(&members[1], MIB(256)));
}

static void charges_that_the_driver_refuses_are_undone(void **state)
{
    uint64_t address;
    (void)state;
    sim_driver_fail(&members[0].sim, 1, true, SIM_BROKEN);
    assert_int_not_equal(alloc(&members[0], MIB(64), &address), GC_OK);
    sim_driver_fail(&members[0].sim, 0, false, 0);
    must_alloc(&members[1], LIMIT);
}

/* ---- idle memory of other processes ---- */

static void idle_memory_of_others_is_had_at_the_next_try(void **state)
{
    uint64_t address;
    (void)state;
    must_free(&members[0], must_alloc(&members[0], MIB(200)));
    assert_int_equal(alloc(&members[1], MIB(160), &address), GC_OUT_OF_MEMORY);
    gc_serve_requests(members[0].core); /* as its next call does */
    assert_true(gc_device_reserved_bytes(members[0].device) <= MIB(96));
    must_alloc(&members[1], MIB(160));
    assert_true(held() <= LIMIT);
}

static void a_helper_gives_idle_memory_at_once(void **state)
{
    struct gc_ledger ledger;
    (void)state;
    wait_for_others(PATIENCE_MS);
    open_reader(&ledger);
    start_helper(&members[0]);
    must_free(&members[0], must_alloc(&members[0], LIMIT));
    must_alloc(&members[1], MIB(200));
    assert_true(held() <= LIMIT);
    end_helper(&members[0], &ledger, 0);
    gc_ledger_close(&ledger);
}

/* Memory that the driver took by itself, so that no request came before it. */
static void a_group_over_its_limit_gives_idle_memory_for_requests(void **state)
{
    uint64_t address;
    (void)state;
    must_free(&members[0], must_alloc(&members[0], MIB(100)));
    must_alloc(&members[1], MIB(100));
    gc_direct_adjust_device(members[1].core, members[1].device, (int64_t)MIB(60));
    assert_true(held() > LIMIT);
    assert_int_equal(alloc(&members[1], MIB(20), &address), GC_OUT_OF_MEMORY);
    gc_serve_requests(members[0].core);
    must_alloc(&members[1], MIB(20));
    assert_true(held() <= LIMIT);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void waiting_ends(void **state)
{
    uint64_t address;
    (void)state;
    wait_for_others(100);
    must_alloc(&members[0], MIB(200)); /* in use, and nobody is there to answer */
    const uint64_t start_ms = now_ms();
    assert_int_equal(alloc(&members[1], MIB(160), &address), GC_OUT_OF_MEMORY);
    assert_in_range(now_ms() - start_ms, 95, PATIENCE_MS);
    /* A request that could never fit does not wait. */
    wait_for_others(PATIENCE_MS);
    const uint64_t again_ms = now_ms();
    assert_int_equal(alloc(&members[1], LIMIT + 1, &address), GC_OUT_OF_MEMORY);
    assert_true(now_ms() - again_ms < PATIENCE_MS);
}

static void *free_later(void *address)
{
    usleep(100000);
    must_free(&members[0], *(uint64_t *)address);
    gc_reclaim_trim(members[0].core, members[0].device, 0);
    return NULL;
}

static void who_waits_gets_what_is_freed(void **state)
{
    pthread_t thread;
    (void)state;
    wait_for_others(PATIENCE_MS);
    uint64_t address = must_alloc(&members[0], MIB(200));
    pthread_create(&thread, NULL, free_later, &address);
    must_alloc(&members[1], MIB(160));
    pthread_join(thread, NULL);
}

/* ---- requests ---- */

static void kind(const struct gc_ledger *ledger, uint32_t slot,
                 const struct gc_ledger_request *request, struct gc_ledger_ticket *ticket)
{
    struct gc_ledger_process process;
    assert_true(gc_ledger_read_process(ledger, slot, &process));
    assert_true(gc_ledger_send_request(ledger, slot, process.generation, request, ticket));
}

static void a_limit_is_in_force_with_the_next_call(void **state)
{
    struct gc_ledger ledger;
    struct gc_ledger_ticket ticket;
    char text[GC_LEDGER_RESPONSE_BYTES];
    uint64_t address;
    (void)state;
    open_reader(&ledger);
    const uint64_t live = must_alloc(&members[0], MIB(20));
    must_free(&members[0], must_alloc(&members[0], MIB(100)));
    const struct gc_ledger_request request = {
        .kind = GC_REQUEST_LIMIT, .device = GC_LEDGER_NONE, .bytes = MIB(32)};
    assert_false(gc_doorbell_is_rung(&members[0].doorbell));
    kind(&ledger, 0, &request, &ticket);
    assert_true(gc_doorbell_is_rung(&members[0].doorbell));
    assert_int_equal(alloc(&members[0], MIB(30), &address), GC_OUT_OF_MEMORY);
    assert_false(gc_doorbell_is_rung(&members[0].doorbell));
    assert_int_equal(gc_ledger_wait_response(&ledger, &ticket, 0, text), GC_RESPONSE_DONE);
    assert_non_null(strstr(text, "in force"));
    assert_true(gc_device_reserved_bytes(members[0].device) <= MIB(32));
    assert_int_equal(gc_device_own_limit_bytes(members[0].device), MIB(32));
    must_free(&members[0], live);
    must_alloc(&members[0], MIB(30));
    gc_ledger_close(&ledger);
}

static void a_lower_limit_of_the_group_takes_idle_memory_only(void **state)
{
    struct gc_ledger ledger;
    uint64_t address;
    (void)state;
    open_reader(&ledger);
    const uint64_t live = must_alloc(&members[0], MIB(64));
    must_free(&members[0], must_alloc(&members[0], MIB(128)));
    assert_true(gc_ledger_limit_group(&ledger, "g", GC_LEDGER_NONE, MIB(48)));
    assert_false(gc_ledger_limit_group(&ledger, "h", GC_LEDGER_NONE, MIB(48)));
    gc_serve_requests(members[0].core);
    assert_int_equal(gc_device_reserved_bytes(members[0].device), MIB(64));
    assert_int_equal(alloc(&members[1], 512, &address), GC_OUT_OF_MEMORY);
    assert_int_equal(alloc(&members[0], 512, &address), GC_OUT_OF_MEMORY);
    assert_int_equal(gc_device_reserved_bytes(members[0].device), MIB(64));
    must_free(&members[0], live);
    must_free(&members[0], must_alloc(&members[0], MIB(40)));
    assert_true(gc_ledger_limit_group(&ledger, "g", 0, UINT64_MAX));
    must_alloc(&members[1], MIB(512));
    gc_ledger_close(&ledger);
}

static void figures_are_there_to_read(void **state)
{
    struct gc_ledger ledger;
    struct gc_ledger_process process;
    struct gc_ledger_figures figures;
    static struct gc_ledger_group group;
    struct gc_ledger_device device;
    (void)state;
    open_reader(&ledger);
    must_alloc(&members[0], MIB(64));
    must_free(&members[0], must_alloc(&members[0], MIB(32)));
    assert_true(gc_ledger_read_process(&ledger, 0, &process));
    assert_int_equal(process.pid, getpid());
    assert_string_equal(process.group, "g");
    assert_string_equal(process.tenant, "program");
    assert_int_equal(process.device_mask, 1);
    assert_true(gc_ledger_read_figures(&ledger, 0, 0, &figures));
    assert_int_equal(figures.requested, MIB(64));
    assert_int_equal(figures.reserved, MIB(96));
    assert_int_equal(figures.peak, MIB(96));
    assert_int_equal(figures.idle, MIB(32));
    assert_int_equal(figures.limit, UINT64_MAX);
    assert_int_equal(figures.alloc_count, 2);
    assert_true(gc_ledger_read_device(&ledger, 0, &device));
    assert_string_equal(device.uuid, "GPU-one");
    assert_true(gc_ledger_read_group(&ledger, gc_ledger_find_group(&ledger, "g"), &group));
    assert_int_equal(group.member_count, 2);
    assert_int_equal(group.limits[0], LIMIT);
    assert_int_equal(group.held[0], MIB(96));
    gc_ledger_close(&ledger);
}

static void trims_and_what_cannot_be_done_are_answered(void **state)
{
    struct gc_ledger ledger;
    struct gc_ledger_ticket trim, resume;
    char text[GC_LEDGER_RESPONSE_BYTES];
    struct gc_ledger_request request = {.kind = GC_REQUEST_TRIM};
    (void)state;
    open_reader(&ledger);
    must_free(&members[0], must_alloc(&members[0], MIB(64)));
    kind(&ledger, 0, &request, &trim);
    request.kind = GC_REQUEST_RESUME;
    kind(&ledger, 0, &request, &resume);
    assert_int_equal(gc_ledger_wait_response(&ledger, &trim, 0, text), GC_RESPONSE_NONE);
    gc_serve_requests(members[0].core);
    assert_int_equal(gc_ledger_wait_response(&ledger, &trim, 0, text), GC_RESPONSE_DONE);
    assert_string_equal(text, "64.0 MiB released");
    assert_int_equal(gc_ledger_wait_response(&ledger, &resume, 0, text), GC_RESPONSE_REFUSED);
    assert_string_equal(text, "it is not paused");
    assert_int_equal(gc_device_reserved_bytes(members[0].device), 0);
    gc_ledger_close(&ledger);
}

/* ---- processes that come and go ---- */

static void the_last_member_takes_the_limit_along(void **state)
{
    (void)state;
    close_member(&members[0]);
    must_alloc(&members[1], MIB(200));
    open_member(&members[0], make_options("g", MIB(900)), false);
    assert_int_equal(gc_device_total_bytes(members[0].device), LIMIT);
    close_member(&members[0]);
    close_member(&members[1]);
    open_member(&members[0], make_options("g", MIB(900)), false);
    assert_int_equal(gc_device_total_bytes(members[0].device), MIB(900));
    open_member(&members[1], make_options("h", 0), false);
    assert_int_equal(gc_device_total_bytes(members[1].device), CAPACITY);
    must_alloc(&members[0], MIB(800));
    must_alloc(&members[1], MIB(800)); /* another group */
}

static void without_a_ledger_the_process_is_held_alone(void **state)
{
    uint64_t address;
    (void)state;
    close_member(&members[0]);
    close_member(&members[1]);
    assert_int_equal(chmod(folder, 0755), 0);
    open_member(&members[0], make_options("g", LIMIT), false);
    assert_false(gc_serve_wants_helper(members[0].core));
    assert_int_equal(gc_device_total_bytes(members[0].device), LIMIT);
    assert_int_equal(alloc(&members[0], LIMIT + 1, &address), GC_OUT_OF_MEMORY);
    must_alloc(&members[0], LIMIT);
}

int main(void)
{
    static bool plain = false, mapped = true;
#define CASE(name)                                                                                 \
    {#name, name, set_up, tear_down, &plain},                                                      \
    {                                                                                              \
#name "_mapped", name, set_up, tear_down, &mapped                                          \
    }
    const struct CMUnitTest tests[] = {
        CASE(one_limit_holds_for_both),
        CASE(direct_memory_counts),
        CASE(charges_that_the_driver_refuses_are_undone),
        CASE(idle_memory_of_others_is_had_at_the_next_try),
        CASE(a_helper_gives_idle_memory_at_once),
        CASE(a_group_over_its_limit_gives_idle_memory_for_requests),
        CASE(waiting_ends),
        CASE(who_waits_gets_what_is_freed),
        CASE(a_limit_is_in_force_with_the_next_call),
        CASE(a_lower_limit_of_the_group_takes_idle_memory_only),
        CASE(figures_are_there_to_read),
        CASE(trims_and_what_cannot_be_done_are_answered),
        CASE(the_last_member_takes_the_limit_along),
        CASE(without_a_ledger_the_process_is_held_alone),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
