/* The gatekeeper: one decision however many ask, and what it tells the report. */
#include "tests/unit/cmocka_all.h"

#include "core/estimator/gate.h"
#include "tests/unit/scratch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 8

static struct gc_options options;
static char path[64];

/* One tensor of 1 GiB, described. */
static int make_model(void **state)
{
    static const char text[] =
        "{\"tensors\": [{\"name\": \"w\", \"dtype\": \"F16\", \"shape\": [32768, 16384]}]}";
    (void)state;
    strcpy(path, "/tmp/gpucache-gate.XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    close(fd);
    memset(&options, 0, sizeof(options));
    strcpy(options.model, path);
    options.batch = 1;
    options.overhead = 1;
    options.gate = GC_GATE_WARN;
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(path);
}

static struct gc_gatekeeper *open_keeper(void)
{
    struct gc_gatekeeper *keeper;
    assert_int_equal(gc_gatekeeper_open(&options, &keeper), GC_OK);
    return keeper;
}

static void no_model_no_keeper(void **state)
{
    (void)state;
    options.model[0] = '\0';
    assert_null(open_keeper());
}

static void the_peak_fits_and_a_byte_less_does_not(void **state)
{
    const uint64_t peak = (UINT64_C(1) << 30) + GC_ESTIMATE_CONTEXT_BYTES;
    struct gc_report_estimate estimate;
    struct gc_gatekeeper *keeper = open_keeper();
    (void)state;
    assert_false(gc_gatekeeper_tell(keeper, &estimate));
    assert_int_equal(gc_gatekeeper_judge(keeper, peak, NULL), GC_GATE_FITS);
    assert_true(gc_gatekeeper_tell(keeper, &estimate));
    assert_true(estimate.fits);
    assert_int_equal(estimate.sizes.peak_bytes, peak);
    assert_int_equal(estimate.budget_bytes, peak);
    keeper = open_keeper();
    assert_int_equal(gc_gatekeeper_judge(keeper, peak - 1, NULL), GC_GATE_EXCEEDS);
    assert_true(gc_gatekeeper_tell(keeper, &estimate));
    assert_false(estimate.fits);
    /* The first answer stands. */
    assert_int_equal(gc_gatekeeper_judge(keeper, peak, NULL), GC_GATE_EXCEEDS);
}

/* A list of tensors has no layers: more than its weights is not known. */
static void a_lower_bound_that_fits_is_told(void **state)
{
    const int fd = scratch_fd();
    const struct gc_log log = {GC_LOG_WARN, fd};
    size_t bytes;
    (void)state;
    assert_int_equal(gc_gatekeeper_judge(open_keeper(), UINT64_MAX, &log), GC_GATE_FITS);
    char *text = scratch_read(fd, &bytes);
    assert_non_null(strstr(text, " needs at least 1.3 GiB, which fits; not all of it is known"));
    free(text);
    close(fd);
}

static void an_unreadable_model_is_told(void **state)
{
    struct gc_report_estimate estimate;
    const int fd = scratch_fd();
    const struct gc_log log = {GC_LOG_WARN, fd};
    size_t bytes;
    (void)state;
    strcpy(options.model, "/no/such/model");
    struct gc_gatekeeper *keeper = open_keeper();
    assert_int_equal(gc_gatekeeper_judge(keeper, UINT64_MAX, &log), GC_GATE_UNREADABLE);
    assert_false(gc_gatekeeper_tell(keeper, &estimate));
    char *text = scratch_read(fd, &bytes);
    assert_non_null(strstr(text, "gpucache: GPUCACHE_MODEL: /no/such/model: "));
    free(text);
    close(fd);
}

struct asker {
    struct gc_gatekeeper *keeper;
    const struct gc_log *log;
    uint64_t budget_bytes;
    enum gc_gate_verdict verdict;
};

static void *ask(void *argument)
{
    struct asker *asker = argument;
    asker->verdict = gc_gatekeeper_judge(asker->keeper, asker->budget_bytes, asker->log);
    return NULL;
}

static void many_threads_have_one_answer(void **state)
{
    const int fd = scratch_fd();
    const struct gc_log log = {GC_LOG_WARN, fd};
    struct gc_gatekeeper *keeper = open_keeper();
    struct asker askers[THREADS];
    pthread_t threads[THREADS];
    size_t bytes;
    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        askers[i] = (struct asker){keeper, &log, i % 2 == 0 ? 1000 : UINT64_MAX, GC_GATE_FITS};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 1; i < THREADS; i++)
        assert_int_equal(askers[i].verdict, askers[0].verdict);
    char *text = scratch_read(fd, &bytes);
    const char *first = strstr(text, "more than the budget");
    assert_true((first != NULL) == (askers[0].verdict == GC_GATE_EXCEEDS));
    assert_true(first == NULL || strstr(first + 1, "more than the budget") == NULL);
    free(text);
    close(fd);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_model_no_keeper, make_model, remove_model),
        cmocka_unit_test_setup_teardown(the_peak_fits_and_a_byte_less_does_not, make_model,
                                        remove_model),
        cmocka_unit_test_setup_teardown(a_lower_bound_that_fits_is_told, make_model, remove_model),
        cmocka_unit_test_setup_teardown(an_unreadable_model_is_told, make_model, remove_model),
        cmocka_unit_test_setup_teardown(many_threads_have_one_answer, make_model, remove_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
