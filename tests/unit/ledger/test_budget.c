#include "core/ledger/budget.h"
#include "tests/unit/cmocka_all.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static void reservation_stops_at_the_limit(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, 1000);
    uint64_t sum = 0;
    assert_true(gc_budget_try_charge(&budget, 1000, &sum));
    assert_int_equal(held.peak, 0);   /* the driver has not agreed yet */
    gc_budget_uncharge(&budget, 300); /* by another thread, before it is confirmed */
    gc_budget_commit(&budget, sum);
    assert_int_equal(held.peak, 1000);
    assert_true(gc_budget_try_charge(&budget, 300, NULL));
    assert_true(gc_budget_try_charge(&budget, 0, NULL));
    assert_false(gc_budget_try_charge(&budget, 1, NULL));
    assert_int_equal(gc_budget_free_bytes(&budget), 0);
    gc_budget_uncharge(&budget, 400);
    assert_int_equal(gc_budget_free_bytes(&budget), 400);
    assert_true(gc_budget_try_charge(&budget, 400, NULL));
    assert_int_equal(held.peak, 1000);
}

static void sums_do_not_wrap(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, GC_BUDGET_UNLIMITED);
    assert_true(gc_budget_try_charge(&budget, 100, NULL));
    assert_false(gc_budget_try_charge(&budget, UINT64_MAX, NULL));
    assert_false(gc_budget_try_charge(&budget, UINT64_MAX - 99, NULL));
    assert_int_equal(gc_budget_held(&budget), 100);
    gc_budget_force_charge(&budget, UINT64_MAX);
    assert_int_equal(gc_budget_held(&budget), UINT64_MAX);
}

static void limit_may_change_while_memory_is_held(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, 1000);
    assert_true(gc_budget_try_charge(&budget, 800, NULL));
    gc_budget_set_limit(&budget, 500);
    assert_false(gc_budget_try_charge(&budget, 1, NULL));
    assert_int_equal(gc_budget_free_bytes(&budget), 0);
    gc_budget_uncharge(&budget, 400);
    assert_true(gc_budget_try_charge(&budget, 100, NULL));
    gc_budget_set_limit(&budget, GC_BUDGET_UNLIMITED);
    assert_true(gc_budget_try_charge(&budget, 10000, NULL));
}

static void found_memory_without_room_is_owed(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, 1000);
    assert_true(gc_budget_try_charge(&budget, 700, NULL));
    assert_int_equal(gc_budget_charge_found(&budget, 500), 300);
    assert_int_equal(held.peak, 1000);
    assert_int_equal(gc_budget_room(&budget), 800);
    gc_budget_uncharge(&budget, 150);
    assert_false(gc_budget_try_charge(&budget, 1, NULL)); /* what became free is owed */
    assert_int_equal(gc_budget_charge_found(&budget, 200), 150);
    gc_budget_uncharge(&budget, 500);
    assert_int_equal(gc_budget_charge_found(&budget, 50), 50);
    assert_int_equal(gc_budget_room(&budget), 1000);
    assert_true(gc_budget_try_charge(&budget, 450, NULL));
}

static void the_most_bytes_held_are_noted(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, 1000);
    assert_true(gc_budget_try_charge(&budget, 700, NULL));
    gc_budget_uncharge(&budget, 600);
    gc_budget_watch(&budget);
    assert_int_equal(gc_budget_highest(&budget), 100);
    assert_true(gc_budget_try_charge(&budget, 300, NULL)); /* though it is never committed */
    gc_budget_uncharge(&budget, 300);
    assert_int_equal(gc_budget_highest(&budget), 400);
    gc_budget_force_charge(&budget, 700);
    assert_int_equal(gc_budget_highest(&budget), 800);
}

static void charge_may_pass_the_limit(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, 10);
    gc_budget_force_charge(&budget, 30);
    assert_int_equal(gc_budget_held(&budget), 30);
    assert_int_equal(held.peak, 30);
    assert_false(gc_budget_try_charge(&budget, 1, NULL));
    assert_int_equal(gc_budget_free_bytes(&budget), 0);
}

enum { THREADS = 8, ROUNDS = 400000, LIMIT = 1000 };

struct contest {
    struct gc_gauge_cell held;
    struct gc_budget budget;
    pthread_barrier_t start;
    atomic_uint_fast64_t held_by_all; /* the threads' own counts */
    atomic_uint_fast64_t most;
};

/* Each wants two thirds of the limit, again and again: two that looked before either added would
 * pass it. */
static void *reserve_and_release(void *argument)
{
    struct contest *contest = argument;
    const uint64_t bytes = LIMIT / 3 * 2;
    pthread_barrier_wait(&contest->start);
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t sum;
        if (!gc_budget_try_charge(&contest->budget, bytes, &sum))
            continue;
        gc_budget_commit(&contest->budget, sum);
        const uint64_t now = atomic_fetch_add(&contest->held_by_all, bytes) + bytes;
        uint64_t most = atomic_load(&contest->most);
        while (now > most && !atomic_compare_exchange_weak(&contest->most, &most, now))
            ;
        if (i % 64 == 0)
            sched_yield();
        atomic_fetch_sub(&contest->held_by_all, bytes);
        gc_budget_uncharge(&contest->budget, bytes);
    }
    return NULL;
}

static void threads_never_pass_the_limit(void **state)
{
    static struct contest contest;
    pthread_t threads[THREADS];
    (void)state;
    gc_budget_init(&contest.budget, &contest.held, LIMIT);
    pthread_barrier_init(&contest.start, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, reserve_and_release, &contest);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&contest.start);
    assert_int_equal(gc_budget_held(&contest.budget), 0);
    assert_int_equal(atomic_load(&contest.most), LIMIT / 3 * 2);
    assert_int_equal(contest.held.peak, LIMIT / 3 * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reservation_stops_at_the_limit),
        cmocka_unit_test(sums_do_not_wrap),
        cmocka_unit_test(limit_may_change_while_memory_is_held),
        cmocka_unit_test(found_memory_without_room_is_owed),
        cmocka_unit_test(the_most_bytes_held_are_noted),
        cmocka_unit_test(charge_may_pass_the_limit),
        cmocka_unit_test(threads_never_pass_the_limit),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
