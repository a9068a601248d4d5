/* The histogram against exact percentiles of the same values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/histogram.h"
#include "tests/unit/scratch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void empty_is_zero(void **state)
{
    static struct gc_histogram hist;
    struct gc_latency latency;
    (void)state;
    gc_histogram_read(&hist, &latency);
    assert_int_equal(latency.count, 0);
    assert_int_equal(latency.p50, 0);
    assert_int_equal(latency.p99, 0);
    assert_int_equal(latency.max, 0);
}

static void single_values_are_within_the_bound(void **state)
{
    static struct gc_histogram hist;
    struct gc_latency latency;
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int offset = -1; offset <= 1; offset++) {
            const uint64_t value = (UINT64_C(1) << bit) + (uint64_t)(int64_t)offset;
            memset(&hist, 0, sizeof(hist));
            gc_histogram_add(&hist, value);
            gc_histogram_read(&hist, &latency);
            assert_int_equal(latency.count, 1);
            assert_true(latency.p50 == value && latency.p99 == value && latency.max == value);
        }
    }
    memset(&hist, 0, sizeof(hist));
    gc_histogram_add(&hist, UINT64_MAX);
    gc_histogram_read(&hist, &latency);
    assert_true(latency.max == UINT64_MAX && latency.p50 == UINT64_MAX);
}

static void check_percentile(uint64_t got, uint64_t exact)
{
    if (got < exact || got - exact > exact / 16)
        fail_msg("got %llu for %llu", (unsigned long long)got, (unsigned long long)exact);
}

static void percentiles_are_within_a_sixteenth(void **state)
{
    enum { COUNT = 5000 };
    static struct gc_histogram hist;
    static uint64_t values[COUNT];
    struct gc_latency latency;
    struct scratch_random random = {0x5eed1234};
    (void)state;
    for (int round = 0; round < 8; round++) {
        memset(&hist, 0, sizeof(hist));
        const size_t count = round == 0 ? 99 : round == 1 ? 100 : COUNT;
        for (size_t i = 0; i < count; i++) {
            values[i] = scratch_next(&random) >> (scratch_next(&random) % 60);
            gc_histogram_add(&hist, values[i]);
        }
        qsort(values, count, sizeof(values[0]), compare);
        gc_histogram_read(&hist, &latency);
        assert_int_equal(latency.count, count);
        check_percentile(latency.p50, values[(count + 1) / 2 - 1]);
        check_percentile(latency.p99, values[count - count / 100 - 1]);
        assert_true(latency.max == values[count - 1]);
    }
}

static struct gc_histogram shared;

static void *add_many(void *argument)
{
    for (uint64_t i = 0; i < 20000; i++)
        gc_histogram_add(&shared, (uint64_t)(uintptr_t)argument * 100000 + i);
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    pthread_t threads[4];
    struct gc_latency latency;
    (void)state;
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, (void *)i), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    gc_histogram_read(&shared, &latency);
    assert_int_equal(latency.count, 80000);
    assert_int_equal(latency.max, 319999);
}

static void powers_of_two_count_all(void **state)
{
    static const struct {
        uint64_t ns;
        unsigned power;
    } rows[] = {{0, 0},    {1, 0},     {2, 1},         {3, 1},          {4, 2},
                {1023, 9}, {1024, 10}, {1u << 20, 20}, {UINT64_MAX, 63}};
    static struct gc_histogram hist;
    struct gc_latency latency;
    uint64_t wanted[64] = {0};
    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gc_histogram_add_many(&hist, rows[i].ns, i + 1);
        wanted[rows[i].power] += i + 1;
    }
    gc_histogram_read(&hist, &latency);
    assert_memory_equal(latency.powers, wanted, sizeof(wanted));
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_is_zero),
        cmocka_unit_test(single_values_are_within_the_bound),
        cmocka_unit_test(percentiles_are_within_a_sixteenth),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(powers_of_two_count_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
