#include "core/budget.h"
#include "tests/unit/cmocka_all.h"

#include <pthread.h>

static void reservation_stops_at_the_limit(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, 1000);
    assert_true(gc_budget_try_reserve(&budget, 1000));
    assert_int_equal(held.peak, 0); /* the driver has not agreed yet */
    gc_budget_confirm(&budget);
    assert_true(gc_budget_try_reserve(&budget, 0));
    assert_false(gc_budget_try_reserve(&budget, 1));
    assert_int_equal(gc_budget_room(&budget), 0);
    gc_budget_release(&budget, 400);
    assert_int_equal(gc_budget_room(&budget), 400);
    assert_true(gc_budget_try_reserve(&budget, 400));
    assert_int_equal(held.peak, 1000);
}

static void sums_do_not_wrap(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, GC_BUDGET_UNLIMITED);
    assert_true(gc_budget_try_reserve(&budget, 100));
    assert_false(gc_budget_try_reserve(&budget, UINT64_MAX));
    assert_false(gc_budget_try_reserve(&budget, UINT64_MAX - 99));
    assert_int_equal(gc_budget_held(&budget), 100);
    gc_budget_charge(&budget, UINT64_MAX);
    assert_int_equal(gc_budget_held(&budget), UINT64_MAX);
}

static void limit_may_change_while_memory_is_held(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, 1000);
    assert_true(gc_budget_try_reserve(&budget, 800));
    gc_budget_set_limit(&budget, 500);
    assert_false(gc_budget_try_reserve(&budget, 1));
    assert_int_equal(gc_budget_room(&budget), 0);
    gc_budget_release(&budget, 400);
    assert_true(gc_budget_try_reserve(&budget, 100));
    gc_budget_set_limit(&budget, GC_BUDGET_UNLIMITED);
    assert_true(gc_budget_try_reserve(&budget, 10000));
}

static void charge_may_pass_the_limit(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    (void)state;
    gc_budget_init(&budget, &held, 10);
    gc_budget_charge(&budget, 30);
    assert_int_equal(gc_budget_held(&budget), 30);
    assert_int_equal(held.peak, 30);
    assert_false(gc_budget_try_reserve(&budget, 1));
    assert_int_equal(gc_budget_room(&budget), 0);
}

enum { THREADS = 8, ROUNDS = 20000, LIMIT = 1000 };

static void *reserve_and_release(void *argument)
{
    struct gc_budget *budget = argument;
    uint64_t kept = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        const uint64_t bytes = i % 300 + 1;
        if (gc_budget_try_reserve(budget, bytes)) {
            kept += bytes;
            gc_budget_confirm(budget);
        }
        if (i % 3 == 0) {
            gc_budget_release(budget, kept);
            kept = 0;
        }
    }
    gc_budget_release(budget, kept);
    return NULL;
}

static void threads_never_pass_the_limit(void **state)
{
    struct gc_gauge_cell held = {0};
    struct gc_budget budget;
    pthread_t threads[THREADS];
    (void)state;
    gc_budget_init(&budget, &held, LIMIT);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, reserve_and_release, &budget);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(gc_budget_held(&budget), 0);
    assert_true(held.peak <= LIMIT);
    assert_true(held.peak > LIMIT / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reservation_stops_at_the_limit),
        cmocka_unit_test(sums_do_not_wrap),
        cmocka_unit_test(limit_may_change_while_memory_is_held),
        cmocka_unit_test(charge_may_pass_the_limit),
        cmocka_unit_test(threads_never_pass_the_limit),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
