/* The importer's closes, beside other threads and captures. The exporter answers anybody. */
#define _GNU_SOURCE
#include "core/device/registry.h"
#include "core/ledger/ledger.h"
#include "core/share/wire.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"
#include "tests/unit/workbench.h"

#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB(count) ((uint64_t)(count) << 20)
#define NAME UINT64_C(0x5ea1)

static char folder[256], ledger[300];
static struct workbench bench;
static int ledger_folder;
static struct gc_wire_end listener;
static struct gc_wire_handle handle;
static pthread_t exporter;
static atomic_uint opened, closed;

/* ---- the exporter ---- */

static void answer(const struct gc_wire_end *end)
{
    const int fd = ledger_folder; /* any will do */
    struct gc_wire_reply reply = {.magic = GC_WIRE_MAGIC,
                                  .count = 1,
                                  .total_count = 1,
                                  .total_bytes = MIB(2),
                                  .bytes = MIB(1),
                                  .extent_bytes = {MIB(2)}};
    snprintf(reply.uuid, sizeof(reply.uuid), "none");
    assert_true(gc_wire_send(end, &reply, sizeof(reply), &fd, 1));
}

static bool is_readable(int fd)
{
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    return poll(&wanted, 1, -1) == 1;
}

/* One connection after the other, until a message that is no request. */
static void *serve(void *unused)
{
    struct gc_wire_request request = {.magic = GC_WIRE_MAGIC};
    struct gc_wire_end end;
    uint32_t pid;
    while (request.magic == GC_WIRE_MAGIC && is_readable(listener.fd) &&
           gc_wire_accept(&listener, &end, &pid)) {
        while (is_readable(end.fd) &&
               gc_wire_receive(&end, &request, sizeof(request), NULL, NULL) &&
               request.magic == GC_WIRE_MAGIC) {
            atomic_fetch_add(request.kind == GC_WIRE_OPEN ? &opened : &closed, 1);
            if (request.kind == GC_WIRE_OPEN)
                answer(&end);
        }
        gc_wire_close(&end);
    }
    return unused;
}

static void end_exporter(void)
{
    const struct gc_wire_request last = {.magic = 0};
    struct gc_wire_end end;
    assert_true(gc_wire_connect(ledger_folder, NAME, &end));
    assert_true(gc_wire_send(&end, &last, sizeof(last), NULL, 0));
    pthread_join(exporter, NULL);
    gc_wire_close(&end);
}

/* The memory of a descriptor is a page of the importer's driver. */
static int page_import(void *self, uint64_t context, int fd, uint64_t *page)
{
    (void)fd;
    return bench.sim.table.page_create(self, context, MIB(2), page);
}

/* ---- the importer ---- */

static int set_up(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true,
                                          .ledger = ledger};
    (void)state;
    scratch_folder(folder, sizeof(folder));
    scratch_path(ledger, sizeof(ledger), folder, "ledger");
    workbench_open(&bench, &setup);
    bench.core->driver.page_import = page_import;
    ledger_folder = gc_wire_open_folder(bench.core->ledger->path);
    assert_true(ledger_folder >= 0);
    assert_true(gc_wire_listen(ledger_folder, NAME, &listener));
    atomic_store(&opened, 0);
    atomic_store(&closed, 0);
    assert_int_equal(pthread_create(&exporter, NULL, serve, NULL), 0);
    handle = (struct gc_wire_handle){
        .magic = GC_WIRE_MAGIC, .name = NAME, .secret = 1, .id = 7, .bytes = MIB(1)};
    handle.check = gc_wire_check_of(&handle);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    workbench_close(&bench);
    end_exporter();
    gc_wire_close(&listener);
    close(ledger_folder);
    scratch_remove(folder);
    return 0;
}

static uint64_t open_it(void)
{
    uint64_t address;
    bool is_first;
    int code;
    assert_status(gc_import_open(bench.contexts[0], &handle, &address, &is_first, &code), GC_OK);
    return address;
}

static void close_it(uint64_t address)
{
    int code;
    assert_status(gc_import_close(bench.core, address, &code), GC_OK);
}

static bool is_mapped(uint64_t address)
{
    return sim_driver_is_accessible(&bench.sim, address, MIB(2));
}

/* The exporter has read all messages before its answer. */
static void expect_closed(unsigned count)
{
    for (unsigned i = 0; i < 5000 && atomic_load(&closed) < count; i++)
        usleep(1000);
    assert_int_equal(atomic_load(&closed), count);
}

/* ---- another thread opens, uses and closes it while the first waits ---- */

static struct race {
    pthread_t first, second;
    uint64_t address;
    unsigned waits;         /* of the first thread */
    uint64_t first_context; /* which it waits for first */
    sem_t is_waiting, may_end;
} race;

static void *open_and_close(void *unused)
{
    const uint64_t address = open_it();
    assert_int_equal(address, race.address);
    sim_driver_submit(&bench.sim, race.first_context, address, MIB(1));
    close_it(address);
    return unused;
}

/* The second thread closes before the first has waited for the last context, and waits itself until
 * the first has returned. */
static void in_wait(void *unused, enum sim_call call, uint64_t context)
{
    (void)unused;
    if (call != SIM_SYNCHRONIZE)
        return;
    if (!pthread_equal(pthread_self(), race.first)) {
        sem_post(&race.is_waiting);
        sem_wait(&race.may_end);
        return;
    }
    if (race.waits == 0)
        race.first_context = context;
    if (++race.waits == WORKBENCH_CONTEXTS) {
        sim_driver_submit(&bench.sim, context, race.address, MIB(1)); /* for this wait */
        assert_int_equal(pthread_create(&race.second, NULL, open_and_close, NULL), 0);
        sem_wait(&race.is_waiting);
    }
}

static void the_last_of_two_closers_unmaps(void **state)
{
    (void)state;
    race = (struct race){.first = pthread_self(), .address = open_it()};
    sem_init(&race.is_waiting, 0, 0);
    sem_init(&race.may_end, 0, 0);
    bench.sim.is_endless = true; /* the second opens it before the first's wait has ended */
    bench.sim.hook = in_wait;
    close_it(race.address);
    const bool was_mapped = is_mapped(race.address);
    assert_int_equal(race.waits, WORKBENCH_CONTEXTS);
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        sem_post(&race.may_end);
    pthread_join(race.second, NULL);
    bench.sim.hook = NULL;
    assert_true(was_mapped);
    assert_false(is_mapped(race.address));
    expect_closed(1);
    sem_destroy(&race.is_waiting);
    sem_destroy(&race.may_end);
}

/* ---- captures ---- */

static void close_in_capture(uint64_t address)
{
    int code;
    workbench_capture(&bench, 1, true);
    close_it(address);
    assert_true(is_mapped(address));
    assert_status(gc_import_close(bench.core, address, &code), GC_INVALID_POINTER);
    workbench_free(&bench, workbench_alloc(&bench, 0, MIB(4)));
    assert_true(is_mapped(address));
    expect_closed(0);
}

static void a_close_during_a_capture_ends_with_a_later_allocation(void **state)
{
    (void)state;
    const uint64_t address = open_it();
    close_in_capture(address);
    workbench_capture(&bench, 1, false);
    sim_driver_submit(&bench.sim, 1, address, MIB(1));
    bench.sim.is_endless = true;
    const uint64_t other = workbench_alloc(&bench, 0, MIB(8));
    assert_true(is_mapped(address)); /* its work goes on */
    bench.sim.is_endless = false;
    workbench_free(&bench, workbench_alloc(&bench, 0, MIB(16)));
    workbench_free(&bench, other);
    assert_false(is_mapped(address));
    expect_closed(1);
}

static void a_close_during_a_capture_ends_with_a_later_close(void **state)
{
    (void)state;
    const uint64_t address = open_it();
    close_in_capture(address);
    handle.id++;
    handle.check = gc_wire_check_of(&handle);
    const uint64_t other = open_it(); /* in the capture */
    assert_int_not_equal(other, address);
    assert_true(is_mapped(address));
    workbench_capture(&bench, 1, false);
    close_it(other);
    assert_false(is_mapped(address));
    assert_false(is_mapped(other));
    expect_closed(2);
}

static void a_block_closed_during_a_capture_is_opened_again(void **state)
{
    (void)state;
    const uint64_t address = open_it();
    close_in_capture(address);
    assert_int_equal(open_it(), address);
    workbench_capture(&bench, 1, false);
    workbench_free(&bench, workbench_alloc(&bench, 0, MIB(16)));
    assert_true(is_mapped(address)); /* it is open */
    assert_int_equal(atomic_load(&opened), 1);
    close_it(address);
    assert_false(is_mapped(address));
    expect_closed(1);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_last_of_two_closers_unmaps),
        TEST(a_close_during_a_capture_ends_with_a_later_allocation),
        TEST(a_close_during_a_capture_ends_with_a_later_close),
        TEST(a_block_closed_during_a_capture_is_opened_again),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("import", tests, NULL, NULL);
}
