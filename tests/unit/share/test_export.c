/* The exporter's answers, to importers that keep to the form and to others. */
#define _GNU_SOURCE
#include "core/backing/change.h"
#include "core/device/registry.h"
#include "core/ledger/ledger.h"
#include "core/share/wire.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"
#include "tests/unit/workbench.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB(count) ((uint64_t)(count) << 20)
/* An answer that takes longer waits for something. */
#define SOON_MS 3000
#define QUESTIONS_MAX 100000
#define HOSTILE_MESSAGES 20000
#define STREAM UINT64_C(0xa000)

static char folder[256], ledger[300];
static struct workbench bench;
static struct gc_wire_end here;
static struct gc_wire_handle handle;
static pthread_t server;

static void *serve(void *core)
{
    gc_share_serve(core);
    return NULL;
}

static void connect_to(const struct gc_wire_handle *to, struct gc_wire_end *end)
{
    const int fd = gc_wire_open_folder(bench.core->ledger->path);
    assert_true(fd >= 0);
    assert_true(gc_wire_connect(fd, to->name, end));
    end->wait_ms = SOON_MS;
    close(fd);
}

/* A block of two extents and more, and its handle. */
static void make_handle(void)
{
    const uint64_t address = workbench_alloc(&bench, 0, MIB(5));
    assert_status(gc_export_share(bench.core, address, &handle, &bench.driver_code), GC_OK);
}

static int set_up(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true,
                                          .ledger = ledger};
    bool is_first;
    (void)state;
    scratch_folder(folder, sizeof(folder));
    scratch_path(ledger, sizeof(ledger), folder, "ledger");
    workbench_open(&bench, &setup);
    assert_status(gc_share_start(bench.core, &is_first), GC_OK);
    assert_int_equal(pthread_create(&server, NULL, serve, bench.core), 0);
    make_handle();
    connect_to(&handle, &here);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gc_share_end(bench.core);
    gc_wire_close(&here); /* wakes the server */
    pthread_join(server, NULL);
    workbench_close(&bench);
    scratch_remove(folder);
    return 0;
}

static struct gc_wire_request question(enum gc_wire_kind kind, uint64_t first)
{
    return (struct gc_wire_request){.magic = GC_WIRE_MAGIC,
                                    .secret = handle.secret,
                                    .address = handle.address,
                                    .id = handle.id,
                                    .kind = kind,
                                    .first = first};
}

/* The descriptors are closed. */
static enum gc_status ask(const struct gc_wire_end *end, const struct gc_wire_request *request,
                          struct gc_wire_reply *reply)
{
    int fds[GC_WIRE_FDS];
    uint32_t count;
    if (!gc_wire_send(end, request, sizeof(*request), NULL, 0) ||
        !gc_wire_receive(end, reply, sizeof(*reply), fds, &count))
        return GC_IO;
    assert_int_equal(count, reply->count);
    while (count > 0)
        close(fds[--count]);
    return (enum gc_status)reply->status;
}

static void tell(const struct gc_wire_request *request)
{
    assert_true(gc_wire_send(&here, request, sizeof(*request), NULL, 0));
}

static void an_answer_waits_for_no_change(void **state)
{
    const struct gc_wire_request open = question(GC_WIRE_OPEN, 0);
    struct gc_wire_reply reply;
    struct gc_change change;
    (void)state;
    assert_status(gc_change_begin(bench.contexts[0], &change), GC_OK);
    const enum gc_status status = ask(&here, &open, &reply);
    gc_change_end(&change);
    assert_status(status, GC_OK);
    assert_true(reply.count > 1);
    assert_int_equal(reply.bytes, MIB(5));
}

static void more_is_for_those_who_have_it_open(void **state)
{
    const struct gc_wire_request more = question(GC_WIRE_MORE, 1);
    const struct gc_wire_request open = question(GC_WIRE_OPEN, 0);
    const struct gc_wire_request closed = question(GC_WIRE_CLOSE, 0);
    struct gc_wire_end other;
    struct gc_wire_reply reply;
    (void)state;
    assert_status(ask(&here, &more, &reply), GC_INVALID_POINTER);
    assert_int_equal(reply.count, 0);
    assert_status(ask(&here, &open, &reply), GC_OK);
    connect_to(&handle, &other);
    assert_status(ask(&other, &more, &reply), GC_INVALID_POINTER);
    gc_wire_close(&other);
    assert_status(ask(&here, &more, &reply), GC_OK);
    assert_int_equal(reply.count, reply.total_count - 1);
    tell(&closed);
    assert_status(ask(&here, &more, &reply), GC_INVALID_POINTER);
}

/* Descriptors that the driver made. */
static uint64_t count_exports(void)
{
    pthread_mutex_lock(&bench.sim.lock);
    const uint64_t count = bench.sim.calls[SIM_PAGE_EXPORT];
    pthread_mutex_unlock(&bench.sim.lock);
    return count;
}

/* As one that asked, and called exec before the answer. */
static void who_cannot_be_answered_has_nothing_open(void **state)
{
    const struct gc_wire_request open = question(GC_WIRE_OPEN, 0);
    const uint64_t before = count_exports();
    struct gc_wire_end deaf;
    struct gc_wire_reply reply;
    (void)state;
    connect_to(&handle, &deaf);
    assert_int_equal(shutdown(deaf.fd, SHUT_RD), 0);
    assert_true(gc_wire_send(&deaf, &open, sizeof(open), NULL, 0));
    const struct gc_wire_request more = question(GC_WIRE_MORE, 0);
    for (unsigned i = 0; i < QUESTIONS_MAX && count_exports() == before; i++)
        assert_status(ask(&here, &more, &reply), GC_INVALID_POINTER);
    assert_true(count_exports() > before);
    assert_status(ask(&here, &more, &reply), GC_INVALID_POINTER); /* behind the answer */
    assert_false(gc_opens_has(&bench.core->opens, 0, handle.id));
    gc_wire_close(&deaf);
}

/* Asks until no more questions fit, and reads no answer. */
static void an_importer_that_reads_nothing_delays_nobody(void **state)
{
    const struct gc_wire_request open = question(GC_WIRE_OPEN, 0);
    struct gc_wire_end silent;
    struct gc_wire_reply reply;
    unsigned count = 0;
    (void)state;
    connect_to(&handle, &silent);
    silent.wait_ms = 100;
    while (count < QUESTIONS_MAX && gc_wire_send(&silent, &open, sizeof(open), NULL, 0))
        count++;
    assert_true(count < QUESTIONS_MAX);
    assert_status(ask(&here, &open, &reply), GC_OK);
    gc_wire_close(&silent);
}

static uint64_t number_of(struct scratch_random *random, uint64_t true_number)
{
    const uint64_t numbers[] = {true_number, scratch_next(random), 0, 1, UINT64_MAX};
    return numbers[scratch_next(random) % 8 < 4 ? 0 : scratch_next(random) % 5];
}

static void send_hostile(struct scratch_random *random)
{
    struct gc_wire_request request = {.magic = number_of(random, GC_WIRE_MAGIC),
                                      .secret = number_of(random, handle.secret),
                                      .address = number_of(random, handle.address),
                                      .id = number_of(random, handle.id),
                                      .kind = scratch_next(random) % 4,
                                      .first = number_of(random, 1)};
    const bool is_cut = scratch_next(random) % 16 == 0;
    const bool has_fd = scratch_next(random) % 16 == 0;
    const int fd = 0;
    (void)gc_wire_send(&here, &request,
                       is_cut ? scratch_next(random) % sizeof(request) : sizeof(request), &fd,
                       has_fd);
}

/* Whatever comes, the answers are sound, and nothing that the block's owners did not ask for is
 * open in the end. */
static void any_message_is_survived(void **state)
{
    struct scratch_random random = {(unsigned long long)time(NULL)};
    const struct gc_wire_request open = question(GC_WIRE_OPEN, 0);
    const struct gc_wire_request closed = question(GC_WIRE_CLOSE, 0);
    struct gc_wire_reply reply;
    int fds[GC_WIRE_FDS];
    uint32_t count;
    (void)state;
    print_message("# seed %llu\n", random.state);
    here.wait_ms = 0;
    for (unsigned i = 0; i < HOSTILE_MESSAGES; i++) {
        send_hostile(&random);
        if (gc_wire_receive(&here, &reply, sizeof(reply), fds, &count)) {
            assert_int_equal(reply.magic, GC_WIRE_MAGIC);
            assert_int_equal(count, reply.count);
            assert_true(reply.status == GC_OK || count == 0);
            while (count > 0)
                close(fds[--count]);
        }
        char none;
        if (recv(here.fd, &none, 1, MSG_PEEK | MSG_DONTWAIT) == 0) { /* it was shut out */
            gc_wire_close(&here);
            connect_to(&handle, &here);
            here.wait_ms = 0;
        }
    }
    gc_wire_close(&here);
    connect_to(&handle, &here);
    assert_status(ask(&here, &open, &reply), GC_OK);
    tell(&closed);
    workbench_check(&bench);
}

static pthread_t tearing;

static void *drop(void *unused)
{
    (void)unused;
    workbench_drop(&bench, 0);
    return NULL;
}

/* In the exporter's thread, at the first descriptor. */
static void tear_down_meanwhile(void *argument, enum sim_call call, uint64_t context)
{
    (void)context;
    if (call != SIM_PAGE_EXPORT || *(bool *)argument)
        return;
    *(bool *)argument = true;
    assert_int_equal(pthread_create(&tearing, NULL, drop, NULL), 0);
    nanosleep(&(struct timespec){0, 100000000}, NULL);
}

static void a_teardown_waits_for_descriptions(void **state)
{
    const struct gc_wire_request open = question(GC_WIRE_OPEN, 0);
    struct gc_wire_reply reply;
    bool has_begun = false;
    (void)state;
    bench.sim.hook_argument = &has_begun;
    bench.sim.hook = tear_down_meanwhile;
    assert_status(ask(&here, &open, &reply), GC_OK);
    pthread_join(tearing, NULL);
    bench.sim.hook = NULL;
    sim_driver_check(&bench.sim);
    assert_status(ask(&here, &open, &reply), GC_INVALID_POINTER);
}

static void work_on(uint64_t address, uint64_t bytes)
{
    assert_true(gc_submit_begin(bench.core, STREAM, &bench.driver_code));
    sim_driver_submit(&bench.sim, 1, address, bytes);
}

static enum gc_status export(uint64_t address) {
    struct gc_wire_handle made;
    return gc_export_share(bench.core, address, &made, &bench.driver_code);
}

static uint64_t wait_count(void)
{
    return bench.sim.calls[SIM_FENCE_WAIT] + bench.sim.calls[SIM_SYNCHRONIZE];
}

/* As the driver's call, which waits for nothing. */
static void a_handle_does_not_wait_for_the_block_s_own_work(void **state)
{
    const uint64_t block = workbench_alloc(&bench, 0, MIB(5));
    (void)state;
    workbench_pretend_one_stream(&bench);
    work_on(block, MIB(5));
    work_on(handle.address, MIB(5));
    bench.sim.is_endless = true;
    assert_status(export(block), GC_OK);
    assert_int_equal(wait_count(), 0);
    workbench_free(&bench, block);
}

static uint64_t alloc_in(uint64_t stream)
{
    const struct gc_request request = {.bytes = MIB(5), .stream = stream, .api = API_MALLOC};
    uint64_t address;
    assert_status(gc_alloc(bench.core, bench.contexts[0], &request, &address, &bench.driver_code),
                  GC_OK);
    return address;
}

/* A block at the place of a former one, whose work goes on. */
static uint64_t reuse_in_one_stream(void)
{
    const uint64_t block = workbench_alloc(&bench, 0, MIB(5));
    workbench_pretend_one_stream(&bench);
    work_on(block, MIB(5));
    workbench_free(&bench, block);
    assert_int_equal(alloc_in(0), block);
    return block;
}

static void a_handle_waits_for_a_former_block_s_work(void **state)
{
    const uint64_t block = reuse_in_one_stream();
    (void)state;
    work_on(handle.address, MIB(5)); /* not waited for */
    bench.sim.is_endless = true;
    assert_status(export(block), GC_BUSY); /* work without an end */
    bench.sim.is_endless = false;
    assert_status(export(block), GC_OK);
    sim_driver_expect_idle(&bench.sim, block, MIB(5));
    assert_int_equal(bench.sim.use_count, 1);
}

/* Then the driver has no wait with an end. */
static void as_it_does_without_fences(void **state)
{
    const uint64_t block = reuse_in_one_stream();
    (void)state;
    bench.sim.has_no_fences = true;
    assert_status(export(block), GC_OK);
    sim_driver_expect_idle(&bench.sim, block, MIB(5));
}

/* A block in the memory of one that was freed in the stream's order, whose work goes on. */
static uint64_t reuse_in_order(void)
{
    const uint64_t block = alloc_in(STREAM);
    work_on(block, MIB(5));
    assert_status(gc_free_ordered(bench.core, block, NULL, STREAM, API_OTHER, &bench.driver_code),
                  GC_OK);
    assert_int_equal(alloc_in(STREAM), block);
    return block;
}

static void as_does_one_in_the_order_of_a_stream(void **state)
{
    const uint64_t block = alloc_in(STREAM);
    (void)state;
    work_on(block, MIB(5));
    assert_status(export(block), GC_OK);
    assert_int_equal(wait_count(), 0);
    const uint64_t other = reuse_in_order();
    bench.sim.is_endless = true;
    assert_status(export(other), GC_BUSY);
    bench.sim.is_endless = false;
    assert_status(export(other), GC_OK);
    sim_driver_expect_idle(&bench.sim, other, MIB(5));
}

/* A former block's work is done, its fence was asked by nobody yet, and other work goes on. */
static void a_completed_fence_ends_the_wait(void **state)
{
    const uint64_t block = reuse_in_order();
    (void)state;
    assert_true(gc_fence_record(bench.contexts[0]));
    sim_driver_complete(&bench.sim, 1);
    work_on(handle.address, MIB(5));
    bench.sim.is_endless = true;
    assert_status(export(block), GC_OK);
    assert_int_equal(wait_count(), 0);
}

/* One end for the wait for reused memory and for the one for all work. */
static void the_whole_wait_has_one_end(void **state)
{
    const uint64_t block = reuse_in_one_stream();
    (void)state;
    bench.sim.is_endless = true;
    assert_status(export(block), GC_BUSY); /* the single stream's fence is recorded */
    const uint64_t other = reuse_in_order();
    bench.sim.is_endless = false;
    bench.sim.wait_ns = GC_RECLAIM_WAIT_NS / 3 * 2;
    const uint64_t before_ns = atomic_load(&bench.sim.clock_ahead_ns);
    assert_status(export(other), GC_BUSY);
    const uint64_t waited_ns = atomic_load(&bench.sim.clock_ahead_ns) - before_ns;
    assert_true(waited_ns > bench.sim.wait_ns && waited_ns <= GC_RECLAIM_WAIT_NS);
    assert_status(export(other), GC_OK);
}

static atomic_bool has_returned;

static void *expect_registration(void *returned)
{
    gc_export_expect_registration(bench.core);
    if (returned != NULL)
        atomic_store((atomic_bool *)returned, true);
    return NULL;
}

static void wait_ms(unsigned ms)
{
    nanosleep(&(struct timespec){0, (long)ms * 1000000}, NULL);
}

/* The first holds the caches and waits for the pool. */
static void a_second_registrar_waits_for_the_first(void **state)
{
    pthread_t first, second;
    (void)state;
    atomic_store(&has_returned, false);
    gc_pool_acquire_plain(&bench.contexts[0]->pool);
    assert_int_equal(pthread_create(&first, NULL, expect_registration, NULL), 0);
    for (unsigned i = 0; i < SOON_MS && !atomic_load(&bench.core->is_registered); i++)
        wait_ms(1);
    assert_int_equal(pthread_create(&second, NULL, expect_registration, &has_returned), 0);
    wait_ms(50);
    const bool was_early = atomic_load(&has_returned);
    gc_pool_release(&bench.contexts[0]->pool);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    assert_true(atomic_load(&bench.core->is_registered));
    assert_false(was_early);
}

/* Not even in its stream's order: it lies in several extents. */
static void beside_network_cards_a_former_block_does_not_serve_as_it_lies(void **state)
{
    (void)state;
    for (unsigned is_expected = 0; is_expected < 2; is_expected++) {
        const uint64_t block = alloc_in(STREAM);
        if (is_expected != 0)
            gc_export_expect_registration(bench.core);
        work_on(block, MIB(5));
        assert_status(
            gc_free_ordered(bench.core, block, NULL, STREAM, API_OTHER, &bench.driver_code), GC_OK);
        assert_int_equal(alloc_in(STREAM) == block, is_expected == 0);
    }
}

static bool opens_after_ms(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
    return gc_opens_has(&bench.core->opens, 0, handle.id) ||
           gc_opens_has(&bench.core->opens, 1, handle.id) ||
           gc_opens_has(&bench.core->opens, 2, handle.id);
}

/* The former program's work may go on for a while. */
static void exec_is_the_end_of_use_after_a_while(void **state)
{
    const struct gc_wire_request open = question(GC_WIRE_OPEN, 0);
    const pid_t child = fork();
    (void)state;
    if (child == 0) {
        struct gc_wire_end end;
        struct gc_wire_reply reply;
        connect_to(&handle, &end);
        if (ask(&end, &open, &reply) == GC_OK)
            execlp("sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
    assert_true(opens_after_ms(1000));
    atomic_fetch_add(&bench.sim.clock_ahead_ns, UINT64_C(10000000000));
    assert_false(opens_after_ms(1000));
    assert_int_equal(kill(child, SIGKILL), 0); /* it has lived on */
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_waits_for_no_change, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_is_for_those_who_have_it_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_cannot_be_answered_has_nothing_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_importer_that_reads_nothing_delays_nobody, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(any_message_is_survived, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_teardown_waits_for_descriptions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(exec_is_the_end_of_use_after_a_while, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_handle_does_not_wait_for_the_block_s_own_work, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_handle_waits_for_a_former_block_s_work, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(as_it_does_without_fences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            beside_network_cards_a_former_block_does_not_serve_as_it_lies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(as_does_one_in_the_order_of_a_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_completed_fence_ends_the_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_whole_wait_has_one_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_second_registrar_waits_for_the_first, set_up, tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
