/* Lines of the log: whole, prefixed, once, harmless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/io/log.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gc_log log_to;

static int setup(void **state)
{
    (void)state;
    log_to = (struct gc_log){.level = GC_LOG_WARN, .fd = scratch_fd()};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(log_to.fd);
    return 0;
}

static void lines_have_the_prefix(void **state)
{
    (void)state;
    gc_log_write(&log_to, GC_LOG_ERROR, "%s is %d", "answer", 42);
    gc_log_write(&log_to, GC_LOG_WARN, "second");
    char *text = scratch_read(log_to.fd, NULL);
    assert_string_equal(text, "gpucache: answer is 42\ngpucache: second\n");
    free(text);
}

static void lower_levels_are_silent(void **state)
{
    size_t bytes;
    (void)state;
    gc_log_write(&log_to, GC_LOG_INFO, "x");
    gc_log_write(&log_to, GC_LOG_DEBUG, "x");
    gc_log_write(NULL, GC_LOG_ERROR, "x");
    free(scratch_read(log_to.fd, &bytes));
    assert_int_equal(bytes, 0);
    log_to.level = GC_LOG_DEBUG;
    gc_log_write(&log_to, GC_LOG_DEBUG, "x");
    free(scratch_read(log_to.fd, &bytes));
    assert_true(bytes > 0);
}

static void long_lines_are_cut_and_stay_one_line(void **state)
{
    char long_text[3000];
    size_t bytes;
    (void)state;
    memset(long_text, 'y', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    long_text[5] = '\n';
    gc_log_write(&log_to, GC_LOG_ERROR, "%s", long_text);
    char *text = scratch_read(log_to.fd, &bytes);
    assert_true(bytes <= 1024 && bytes > 1000);
    assert_ptr_equal(strchr(text, '\n'), text + bytes - 1);
    free(text);
}

static void once_is_logged_once(void **state)
{
    atomic_flag is_logged = ATOMIC_FLAG_INIT;
    (void)state;
    gc_log_once(&log_to, &is_logged, GC_LOG_INFO, "too low, does not count");
    gc_log_once(&log_to, &is_logged, GC_LOG_WARN, "first");
    gc_log_once(&log_to, &is_logged, GC_LOG_WARN, "second");
    char *text = scratch_read(log_to.fd, NULL);
    assert_string_equal(text, "gpucache: first\n");
    free(text);
}

static void errno_is_kept_and_bad_descriptors_are_harmless(void **state)
{
    (void)state;
    const struct gc_log broken = {.level = GC_LOG_ERROR, .fd = -1};
    errno = 77;
    gc_log_write(&broken, GC_LOG_ERROR, "x");
    gc_log_write(&log_to, GC_LOG_ERROR, "x");
    assert_int_equal(errno, 77);
}

static void a_pipe_without_reader_raises_no_signal(void **state)
{
    int ends[2];
    sigset_t pending;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    const struct gc_log broken = {.level = GC_LOG_ERROR, .fd = ends[1]};
    gc_log_write(&broken, GC_LOG_ERROR, "x"); /* SIGPIPE's default action would end this program */
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGPIPE));
    close(ends[1]);
}

static void *write_lines(void *argument)
{
    (void)argument;
    for (int i = 0; i < 500; i++)
        gc_log_write(&log_to, GC_LOG_ERROR, "0123456789");
    return NULL;
}

static void lines_of_threads_do_not_mix(void **state)
{
    static const char line[] = "gpucache: 0123456789\n";
    pthread_t threads[4];
    size_t bytes;
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    char *text = scratch_read(log_to.fd, &bytes);
    assert_int_equal(bytes, 4 * 500 * (sizeof(line) - 1));
    for (size_t at = 0; at < bytes; at += sizeof(line) - 1)
        assert_memory_equal(text + at, line, sizeof(line) - 1);
    free(text);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(lines_have_the_prefix),
        TEST(lower_levels_are_silent),
        TEST(long_lines_are_cut_and_stay_one_line),
        TEST(once_is_logged_once),
        TEST(errno_is_kept_and_bad_descriptors_are_harmless),
        TEST(a_pipe_without_reader_raises_no_signal),
        TEST(lines_of_threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
