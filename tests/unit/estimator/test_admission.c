/* Admission: one decision for any number of callers, and its record in the report. */
#include "tests/unit/cmocka_all.h"

#include "core/estimator/admission.h"
#include "core/estimator/estimate.h"
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
    options.set_mask = UINT64_C(1) << GC_OPTION_OVERHEAD;
    options.devices = 1;
    strcpy(options.split, "layers");
    options.gate = GC_ADMISSION_WARN;
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(path);
}

static struct gc_admission_state *open_keeper(void)
{
    struct gc_admission_state *admission;
    assert_int_equal(gc_admission_open(&options, &admission), GC_OK);
    return admission;
}

/* One device with this much, or several. */
static const struct gc_admission_devices *device_of(uint64_t bytes)
{
    static __thread struct gc_admission_devices devices;
    devices = (struct gc_admission_devices){.count = 1, .items = {{.budget_bytes = bytes}}};
    return &devices;
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
    struct gc_admission_state *admission = open_keeper();
    (void)state;
    assert_false(gc_admission_describe(admission, &estimate));
    assert_int_equal(gc_admission_decide(admission, device_of(peak), NULL), GC_ADMISSION_FITS);
    assert_true(gc_admission_describe(admission, &estimate));
    assert_true(estimate.fits);
    assert_int_equal(estimate.sizes.peak_bytes, peak);
    assert_int_equal(estimate.budget_bytes, peak);
    admission = open_keeper();
    assert_int_equal(gc_admission_decide(admission, device_of(peak - 1), NULL),
                     GC_ADMISSION_EXCEEDS);
    assert_true(gc_admission_describe(admission, &estimate));
    assert_false(estimate.fits);
    /* The first answer stands. */
    assert_int_equal(gc_admission_decide(admission, device_of(peak), NULL), GC_ADMISSION_EXCEEDS);
}

/* A list of tensors has no layers: more than its weights is not known. */
static void a_lower_bound_that_fits_is_reported(void **state)
{
    const int fd = scratch_fd();
    const struct gc_log log = {GC_LOG_WARN, fd};
    size_t bytes;
    (void)state;
    assert_int_equal(gc_admission_decide(open_keeper(), device_of(UINT64_MAX), &log),
                     GC_ADMISSION_FITS);
    char *text = scratch_read(fd, &bytes);
    assert_non_null(
        strstr(text, " needs at least 1.3 GiB, which fits; parts of the model are unknown"));
    free(text);
    close(fd);
}

/* It is no proof of fit. */
static void a_strict_gate_takes_no_lower_bound(void **state)
{
    static const enum gc_admission gates[] = {GC_ADMISSION_STRICT, GC_ADMISSION_STRICT_EXIT};
    (void)state;
    for (size_t i = 0; i < sizeof(gates) / sizeof(gates[0]); i++) {
        const int fd = scratch_fd();
        const struct gc_log log = {GC_LOG_ERROR, fd};
        struct gc_report_estimate estimate;
        size_t bytes;
        options.gate = gates[i];
        struct gc_admission_state *admission = open_keeper();
        assert_int_equal(gc_admission_decide(admission, device_of(UINT64_MAX), &log),
                         GC_ADMISSION_EXCEEDS);
        assert_true(gc_admission_describe(admission, &estimate));
        assert_false(estimate.fits);
        char *text = scratch_read(fd, &bytes);
        assert_non_null(strstr(text, "and a strict gate takes no lower bound"));
        free(text);
        close(fd);
    }
    options.gate = GC_ADMISSION_DENY;
    assert_int_equal(gc_admission_decide(open_keeper(), device_of(UINT64_MAX), NULL),
                     GC_ADMISSION_FITS);
}

static void an_unreadable_model_is_reported(void **state)
{
    struct gc_report_estimate estimate;
    const int fd = scratch_fd();
    const struct gc_log log = {GC_LOG_WARN, fd};
    size_t bytes;
    (void)state;
    strcpy(options.model, "/no/such/model");
    struct gc_admission_state *admission = open_keeper();
    assert_int_equal(gc_admission_decide(admission, device_of(UINT64_MAX), &log),
                     GC_ADMISSION_UNREADABLE);
    assert_false(gc_admission_describe(admission, &estimate));
    char *text = scratch_read(fd, &bytes);
    assert_non_null(strstr(text, "gpucache: GPUCACHE_MODEL: /no/such/model: "));
    free(text);
    close(fd);
}

static char *judged(const struct gc_admission_devices *devices, enum gc_admission_verdict verdict,
                    struct gc_report_estimate *estimate)
{
    const int fd = scratch_fd();
    const struct gc_log log = {GC_LOG_WARN, fd};
    struct gc_admission_state *admission = open_keeper();
    size_t bytes;
    assert_int_equal(gc_admission_device_count(admission), options.devices);
    assert_int_equal(gc_admission_decide(admission, devices, &log), verdict);
    assert_true(gc_admission_describe(admission, estimate));
    char *text = scratch_read(fd, &bytes);
    close(fd);
    return text;
}

/* Split by shares, each device has half of the gigabyte and a context of its own. */
static void each_device_has_its_own_budget(void **state)
{
    const uint64_t peak = (UINT64_C(1) << 29) + GC_ESTIMATE_CONTEXT_BYTES;
    struct gc_admission_devices devices = {.count = 2,
                                           .items = {{.budget_bytes = peak}, {peak, 0}}};
    struct gc_report_estimate estimate;
    (void)state;
    options.devices = 2;
    strcpy(options.split, "tensor");
    free(judged(&devices, GC_ADMISSION_FITS, &estimate));
    assert_int_equal(estimate.device_count, 2);
    assert_int_equal(estimate.devices[1].peak_bytes, peak);
    assert_int_equal(estimate.budget_bytes, 2 * peak);
    assert_int_equal(estimate.context_bytes, 2 * GC_ESTIMATE_CONTEXT_BYTES);
    devices.items[1].budget_bytes = peak - 1;
    char *text = judged(&devices, GC_ADMISSION_EXCEEDS, &estimate);
    assert_non_null(strstr(text, "on device 1 of 2, which is 1 B more than its budget of "));
    free(text);
    devices.count = 1;
    text = judged(&devices, GC_ADMISSION_EXCEEDS, &estimate);
    assert_non_null(strstr(text, " is split over 2 devices, and 1 is there"));
    assert_int_equal(estimate.devices[1].budget_bytes, 0);
    free(text);
}

/* The largest of those that are known stands for all. */
static void a_context_that_is_known_counts(void **state)
{
    const uint64_t context = UINT64_C(100) << 20;
    const uint64_t peak = (UINT64_C(1) << 29) + context;
    struct gc_admission_devices devices = {.count = 2, .items = {{peak, 0}, {peak, context}}};
    struct gc_report_estimate estimate;
    (void)state;
    options.devices = 2;
    strcpy(options.split, "tensor");
    free(judged(&devices, GC_ADMISSION_FITS, &estimate));
    assert_int_equal(estimate.context_bytes, 2 * context);
    devices.items[0].context_bytes = context + 1;
    free(judged(&devices, GC_ADMISSION_EXCEEDS, &estimate));
}

/* A bare list of tensors: what is not known of it goes with the verdict and into the report. */
static void remarks_are_reported(void **state)
{
    struct gc_report_estimate estimate;
    (void)state;
    char *text = judged(device_of(1000), GC_ADMISSION_EXCEEDS, &estimate);
    assert_non_null(strstr(text, "gpucache: note: no configuration beside the weights"));
    assert_true(estimate.notes->count > 0);
    free(text);
    options.gate = GC_ADMISSION_OFF;
    text = judged(device_of(1000), GC_ADMISSION_EXCEEDS, &estimate);
    assert_string_equal(text, "");
    free(text);
}

struct asker {
    struct gc_admission_state *admission;
    const struct gc_log *log;
    uint64_t budget_bytes;
    enum gc_admission_verdict verdict;
};

static void *ask(void *argument)
{
    struct asker *asker = argument;
    asker->verdict =
        gc_admission_decide(asker->admission, device_of(asker->budget_bytes), asker->log);
    return NULL;
}

static void many_threads_have_one_answer(void **state)
{
    const int fd = scratch_fd();
    const struct gc_log log = {GC_LOG_WARN, fd};
    struct gc_admission_state *admission = open_keeper();
    struct asker askers[THREADS];
    pthread_t threads[THREADS];
    size_t bytes;
    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        askers[i] =
            (struct asker){admission, &log, i % 2 == 0 ? 1000 : UINT64_MAX, GC_ADMISSION_FITS};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 1; i < THREADS; i++)
        assert_int_equal(askers[i].verdict, askers[0].verdict);
    char *text = scratch_read(fd, &bytes);
    const char *first = strstr(text, "more than the budget");
    assert_true((first != NULL) == (askers[0].verdict == GC_ADMISSION_EXCEEDS));
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
        cmocka_unit_test_setup_teardown(a_lower_bound_that_fits_is_reported, make_model,
                                        remove_model),
        cmocka_unit_test_setup_teardown(a_strict_gate_takes_no_lower_bound, make_model,
                                        remove_model),
        cmocka_unit_test_setup_teardown(an_unreadable_model_is_reported, make_model, remove_model),
        cmocka_unit_test_setup_teardown(each_device_has_its_own_budget, make_model, remove_model),
        cmocka_unit_test_setup_teardown(a_context_that_is_known_counts, make_model, remove_model),
        cmocka_unit_test_setup_teardown(remarks_are_reported, make_model, remove_model),
        cmocka_unit_test_setup_teardown(many_threads_have_one_answer, make_model, remove_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
