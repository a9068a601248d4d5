/* The budget of host memory: of one process, and shared by the processes of a group, which may be
 * killed at any point. */
#include "core/ledger/host_budget.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT UINT64_C(1000)
#define CHILDREN 6

static char base[256];
static char folder[300];

/* A process of a group. */
struct member {
    struct gc_ledger ledger;
    struct gc_host_budget budget;
};

static int set_up(void **state)
{
    (void)state;
    scratch_folder(base, sizeof(base));
    scratch_path(folder, sizeof(folder), base, "ledger");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(base);
    return 0;
}

static bool try_join(struct member *member, const char *group, uint64_t limit)
{
    char reason[GC_LEDGER_REASON_BYTES];
    gc_host_budget_init(&member->budget, limit);
    if (gc_ledger_open(folder, true, &member->ledger, reason) != GC_OK ||
        !gc_ledger_acquire_slot(&member->ledger))
        return false;
    atomic_store(&gc_ledger_own_slot(&member->ledger)->pid, (uint32_t)getpid());
    atomic_store(&member->ledger.file->group_keys[member->ledger.own], gc_ledger_key(group));
    gc_host_budget_join(&member->budget, &member->ledger, group);
    return true;
}

static void join(struct member *member, const char *group, uint64_t limit)
{
    assert_true(try_join(member, group, limit));
}

static void a_process_alone_has_the_limit(void **state)
{
    struct gc_host_budget budget;
    (void)state;
    gc_host_budget_init(&budget, LIMIT);
    assert_true(gc_host_budget_try_charge(&budget, LIMIT, false));
    assert_false(gc_host_budget_try_charge(&budget, 1, false));
    assert_int_equal(gc_host_budget_sum(&budget), LIMIT);
    gc_host_budget_uncharge(&budget, 300);
    assert_false(gc_host_budget_try_charge(&budget, UINT64_MAX, false));
    assert_true(gc_host_budget_try_charge(&budget, 300, false));
    assert_int_equal(gc_host_budget_held(&budget), LIMIT);
}

static void nothing_takes_most_of_what_is_free(void **state)
{
    struct gc_host_budget budget;
    (void)state;
    gc_host_budget_init(&budget, UINT64_MAX - 1);
    assert_false(gc_host_budget_try_charge(&budget, UINT64_C(1) << 50, false));
    assert_int_equal(gc_host_budget_held(&budget), 0);
}

/* And no others. */
static void a_group_has_one_sum(void **state)
{
    struct member a, b, other;
    (void)state;
    join(&a, "g", LIMIT);
    join(&b, "g", LIMIT);
    join(&other, "h", LIMIT);
    assert_true(gc_host_budget_try_charge(&a.budget, 600, false));
    assert_false(gc_host_budget_try_charge(&b.budget, 401, false));
    assert_true(gc_host_budget_try_charge(&b.budget, 400, false));
    assert_true(gc_host_budget_try_charge(&other.budget, LIMIT, false));
    assert_int_equal(gc_host_budget_sum(&a.budget), LIMIT);
    assert_int_equal(gc_host_budget_held(&a.budget), 600);
    gc_host_budget_uncharge(&a.budget, 100);
    assert_true(gc_host_budget_try_charge(&b.budget, 100, false));
    /* It ends without a word. */
    atomic_store(&gc_ledger_own_slot(&b.ledger)->pid, 0);
    gc_ledger_close(&b.ledger);
    assert_true(gc_host_budget_try_charge(&a.budget, 500, false));
    gc_ledger_close(&a.ledger);
    gc_ledger_close(&other.ledger);
}

/* What all hold for sure, beside the ledger. */
static atomic_uint_fast64_t *taken;

static void charge_at_random(unsigned number)
{
    struct member member;
    unsigned seed = number;
    if (!try_join(&member, "g", LIMIT))
        _exit(2);
    for (;;) {
        const uint64_t bytes = (uint64_t)rand_r(&seed) % (LIMIT / 2) + 1;
        if (!gc_host_budget_try_charge(&member.budget, bytes, false))
            continue;
        if (atomic_fetch_add(taken, bytes) + bytes > LIMIT)
            _exit(3);
        atomic_fetch_sub(taken, bytes);
        gc_host_budget_uncharge(&member.budget, bytes);
    }
}

/* Both have room: neither makes the other fail. */
static void charge_half(unsigned number)
{
    struct member member;
    (void)number;
    if (!try_join(&member, "g", LIMIT))
        _exit(2);
    for (;;) {
        if (!gc_host_budget_try_charge(&member.budget, LIMIT / 2, false))
            _exit(4);
        gc_host_budget_uncharge(&member.budget, LIMIT / 2);
    }
}

static void run_and_kill(void (*body)(unsigned number), unsigned count)
{
    pid_t pids[CHILDREN];
    for (unsigned i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            alarm(60);
            body(i + 1);
        }
    }
    usleep(700000);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(waitpid(pids[i], NULL, WNOHANG), 0); /* none saw anything wrong */
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

static void the_sum_holds_and_the_killed_leave_nothing(void **state)
{
    struct member member;
    (void)state;
    taken = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(taken, MAP_FAILED);
    run_and_kill(charge_at_random, CHILDREN);
    run_and_kill(charge_half, 2);
    join(&member, "g", LIMIT);
    assert_true(gc_host_budget_try_charge(&member.budget, LIMIT, false));
    gc_ledger_close(&member.ledger);
    munmap((void *)taken, 4096);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_process_alone_has_the_limit),
        CASE(nothing_takes_most_of_what_is_free),
        CASE(a_group_has_one_sum),
        CASE(the_sum_holds_and_the_killed_leave_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("host_budget", tests, NULL, NULL);
}
