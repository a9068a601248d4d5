/* The recorder and its reader: round trip, threads, files that are not ours, torn and hostile
 * files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/observe/trace.h"
#include "core/observe/trace_format.h"
#include "core/observe/trace_reader.h"
#include "core/observe/trace_stacks.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const api_names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cudaMalloc"};
static char folder[64];
static char path[128];
static struct gc_log log_to;

static int setup(void **state)
{
    (void)state;
    scratch_folder(folder, sizeof(folder));
    scratch_path(path, sizeof(path), folder, "trace");
    log_to = (struct gc_log){.level = GC_LOG_WARN, .fd = scratch_fd()};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(folder);
    close(log_to.fd);
    return 0;
}

static void assert_logged(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void assert_logged(const char *format, ...)
{
    char wanted[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(wanted, sizeof(wanted), format, arguments);
    va_end(arguments);
    char *text = scratch_read(log_to.fd, NULL);
    assert_string_equal(text, wanted);
    free(text);
    scratch_reset(log_to.fd);
}

static struct gc_trace *open_trace(void)
{
    struct gc_trace *trace = NULL;
    assert_int_equal(gc_trace_open(path, api_names, 3, &log_to, &trace), GC_OK);
    return trace;
}

static struct gc_trace_event event_of(uint64_t number)
{
    return (struct gc_trace_event){
        .op = (uint8_t)(GC_TRACE_ALLOC + number % 3),
        .device = (uint8_t)number,
        .api = (uint16_t)(number % 3),
        .thread = (uint32_t)number + 1,
        .address = number << 20,
        .bytes = number * 3,
        .stream = number ^ 5,
        .time_ns = number * 1000,
    };
}

static void assert_event(const struct gc_trace_event *got, uint64_t number)
{
    const struct gc_trace_event want = event_of(number);
    assert_memory_equal(got, &want, sizeof(want));
}

static void records_come_back_in_order(void **state)
{
    enum { COUNT = 10000 };
    struct gc_trace_reader reader;
    struct gc_trace_event event;
    const char *why;
    size_t bytes;
    (void)state;
    struct gc_trace *trace = open_trace();
    for (uint64_t i = 0; i < COUNT; i++) {
        event = event_of(i);
        gc_trace_record(trace, &event);
    }
    gc_trace_close(trace);
    char *data = scratch_file(path, &bytes);
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_OK);
    assert_int_equal(reader.pid, getpid());
    assert_int_equal(reader.api_count, 3);
    for (uint16_t i = 0; i < 3; i++)
        assert_string_equal(gc_trace_reader_api_name(&reader, i), api_names[i]);
    assert_string_equal(gc_trace_reader_api_name(&reader, 3), "?");
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_true(gc_trace_reader_next(&reader, &event));
        assert_event(&event, i);
    }
    assert_false(gc_trace_reader_next(&reader, &event));
    assert_false(reader.torn);
    assert_int_equal(reader.skipped, 0);
    free(data);
    assert_logged("%s", "");
}

/* ---- threads ---- */

#define THREADS 4
#define PER_THREAD 6000

static struct gc_trace *shared;

static void *record_many(void *argument)
{
    for (uint64_t i = 0; i < PER_THREAD; i++) {
        const struct gc_trace_event event = {.op = GC_TRACE_ALLOC,
                                             .bytes = i,
                                             .stream = (uint64_t)(uintptr_t)argument,
                                             .time_ns = 1};
        gc_trace_record(shared, &event);
        if (i % 1000 == 0)
            gc_trace_flush(shared);
    }
    return NULL;
}

static void threads_lose_nothing_and_keep_their_order(void **state)
{
    pthread_t threads[THREADS];
    uint64_t next[THREADS] = {0};
    uint32_t numbers[THREADS] = {0};
    struct gc_trace_reader reader;
    struct gc_trace_event event;
    const char *why;
    size_t bytes;
    (void)state;
    shared = open_trace();
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record_many, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    gc_trace_close(shared);
    char *data = scratch_file(path, &bytes);
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_OK);
    while (gc_trace_reader_next(&reader, &event)) {
        assert_in_range(event.stream, 0, THREADS - 1);
        assert_int_equal(event.bytes, next[event.stream]++);
        if (event.bytes == 0)
            numbers[event.stream] = event.thread;
        assert_true(event.thread != 0 && event.thread == numbers[event.stream]);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(next[i], PER_THREAD);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(numbers[i], numbers[j]);
    }
    free(data);
}

/* ---- where it may be written ---- */

static void assert_refused(const char *where, const char *why)
{
    struct gc_trace *trace = NULL;
    assert_int_equal(gc_trace_open(where, api_names, 3, &log_to, &trace), GC_IO);
    assert_null(trace);
    assert_logged("gpucache: trace %s: %s; nothing is recorded\n", where, why);
}

static void files_of_others_are_left_alone(void **state)
{
    char other[128];
    size_t bytes;
    (void)state;
    scratch_write(path, "precious", 8);
    assert_refused(path, "exists and is not a trace; not overwritten");
    char *text = scratch_file(path, &bytes);
    assert_int_equal(bytes, 8);
    assert_memory_equal(text, "precious", 8);
    free(text);
    scratch_path(other, sizeof(other), folder, "link");
    assert_int_equal(symlink("nowhere", other), 0);
    assert_refused(other, "is a symbolic link, not followed");
    scratch_path(other, sizeof(other), folder, "nowhere");
    assert_false(scratch_exists(other));
    scratch_path(other, sizeof(other), folder, "fifo");
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_refused(other, "not a regular file");
    assert_refused(folder, "Is a directory");
    scratch_path(other, sizeof(other), folder, "missing/trace");
    assert_refused(other, "No such file or directory");
}

static void an_old_trace_is_replaced_but_not_one_in_use(void **state)
{
    struct gc_trace_event event = event_of(0);
    struct gc_trace_reader reader;
    const char *why;
    size_t bytes;
    (void)state;
    struct gc_trace *trace = open_trace();
    gc_trace_record(trace, &event);
    assert_refused(path, "another process records into it; %p in the path keeps them apart");
    gc_trace_close(trace);
    gc_trace_close(open_trace());
    char *data = scratch_file(path, &bytes);
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_OK);
    assert_false(gc_trace_reader_next(&reader, &event));
    free(data);
}

static void the_path_is_expanded(void **state)
{
    char pattern[128];
    char expanded[192];
    struct gc_trace *trace = NULL;
    (void)state;
    scratch_path(pattern, sizeof(pattern), folder, "t-%p");
    snprintf(expanded, sizeof(expanded), "%s/t-%d", folder, (int)getpid());
    assert_int_equal(gc_trace_open(pattern, api_names, 3, &log_to, &trace), GC_OK);
    gc_trace_close(trace);
    assert_true(scratch_exists(expanded));
}

/* ---- trouble ---- */

static void a_full_disk_stops_the_recording_once(void **state)
{
    struct rlimit before;
    struct rlimit small;
    (void)state;
    struct gc_trace *trace = open_trace();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    errno = 77;
    for (uint64_t i = 0; i < 20000; i++) {
        const struct gc_trace_event event = event_of(i);
        gc_trace_record(trace, &event);
    }
    assert_int_equal(errno, 77);
    gc_trace_flush(trace);
    gc_trace_close(trace);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_logged("gpucache: trace %s: File too large; recording stops\n", path);
    struct gc_trace_reader reader;
    struct gc_trace_event event;
    const char *why;
    size_t bytes;
    uint64_t count = 0;
    char *data = scratch_file(path, &bytes);
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_OK);
    while (gc_trace_reader_next(&reader, &event))
        assert_event(&event, count++);
    assert_in_range(count, 2000, 2500);
    free(data);
}

static void a_killed_process_leaves_what_was_flushed(void **state)
{
    struct gc_trace_reader reader;
    struct gc_trace_event event;
    const char *why;
    size_t bytes;
    uint64_t count = 0;
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        struct gc_trace *trace = open_trace();
        for (uint64_t i = 0; i < 100; i++) {
            event = event_of(i);
            gc_trace_record(trace, &event);
        }
        gc_trace_flush(trace);
        gc_trace_record(trace, &event);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    char *data = scratch_file(path, &bytes);
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_OK);
    while (gc_trace_reader_next(&reader, &event))
        assert_event(&event, count++);
    assert_int_equal(count, 100);
    free(data);
}

static void events_a_second_apart_are_written(void **state)
{
    size_t before;
    size_t after;
    (void)state;
    struct gc_trace *trace = open_trace();
    struct gc_trace_event event = event_of(1);
    event.time_ns = UINT64_C(5000000000);
    gc_trace_record(trace, &event);
    free(scratch_file(path, &before));
    event.time_ns += UINT64_C(1100000000);
    gc_trace_record(trace, &event);
    free(scratch_file(path, &after));
    assert_int_equal(after - before, sizeof(struct gc_trace_file_record));
    gc_trace_close(trace);
}

static void none_is_no_trace(void **state)
{
    const struct gc_trace_event event = event_of(0);
    (void)state;
    gc_trace_record(NULL, &event);
    gc_trace_flush(NULL);
    gc_trace_close(NULL);
}

/* ---- the reader ---- */

static char *valid_trace(size_t *bytes)
{
    struct gc_trace *trace = open_trace();
    for (uint64_t i = 0; i < 10; i++) {
        const struct gc_trace_event event = event_of(i);
        gc_trace_record(trace, &event);
    }
    gc_trace_close(trace);
    return scratch_file(path, bytes);
}

/* In a block of exactly its size, so that a sanitizer sees a read beyond it. */
static uint64_t count_events(const void *data, size_t bytes, struct gc_trace_reader *reader)
{
    struct gc_trace_event event;
    const char *why = NULL;
    uint64_t count = 0;
    void *copy = malloc(bytes > 0 ? bytes : 1);
    memcpy(copy, data, bytes);
    if (gc_trace_reader_init(reader, copy, bytes, &why) != GC_OK) {
        assert_non_null(why);
        free(copy);
        return UINT64_MAX;
    }
    while (gc_trace_reader_next(reader, &event)) {
        assert_true(event.api < reader->api_count);
        assert_non_null(gc_trace_reader_api_name(reader, event.api));
        count++;
    }
    free(copy);
    return count;
}

/* The number of the descriptor behind the trace's file. */
static int fd_of_trace(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        char name[64], target[256];
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(name, target, sizeof(target) - 1);
        if (length < 0)
            continue;
        target[length] = '\0';
        if (strcmp(target, path) == 0)
            return fd;
    }
    return -1;
}

/* A daemon closes all descriptors; its next files may get our number. */
static void file_that_took_the_descriptor_is_left_alone(void **state)
{
    char other[160];
    (void)state;
    struct gc_trace *trace = open_trace();
    struct gc_trace_event event = event_of(0);
    gc_trace_record(trace, &event);
    gc_trace_flush(trace);
    const int fd = fd_of_trace();
    assert_true(fd >= 3);
    assert_int_equal(close(fd), 0);
    snprintf(other, sizeof(other), "%s/precious", folder);
    const int precious = open(other, O_CREAT | O_RDWR, 0600);
    assert_int_equal(dup2(precious, fd), fd);
    for (uint64_t i = 0; i < 100; i++)
        gc_trace_record(trace, &event);
    gc_trace_flush(trace);
    assert_int_equal(lseek(precious, 0, SEEK_END), 0);
    assert_logged("gpucache: trace %s: Bad file descriptor; recording stops\n", path);
    gc_trace_close(trace);
    assert_true(fcntl(fd, F_GETFD) >= 0); /* and it is still open */
    close(fd);
    close(precious);
    unlink(other);
}

static void torn_files_are_read_up_to_the_tear(void **state)
{
    struct gc_trace_reader reader;
    size_t bytes;
    (void)state;
    char *data = valid_trace(&bytes);
    const size_t head = bytes - 10 * sizeof(struct gc_trace_file_record);
    for (size_t cut = 0; cut <= bytes; cut++) {
        const uint64_t count = count_events(data, cut, &reader);
        if (cut < head) {
            assert_true(count == UINT64_MAX);
            continue;
        }
        assert_int_equal(count, (cut - head) / sizeof(struct gc_trace_file_record));
        assert_int_equal(reader.torn, (cut - head) % sizeof(struct gc_trace_file_record) != 0);
    }
    free(data);
}

static void damaged_records_are_skipped(void **state)
{
    struct gc_trace_reader reader;
    size_t bytes;
    (void)state;
    char *data = valid_trace(&bytes);
    char *records = data + bytes - 10 * sizeof(struct gc_trace_file_record);
    records[0] = 0;                                                    /* no op */
    records[sizeof(struct gc_trace_file_record)] = GC_TRACE_UNMAP + 1; /* unknown op */
    memset(records + 2 * sizeof(struct gc_trace_file_record) + 2, 0xff,
           2); /* unknown entry point */
    assert_int_equal(count_events(data, bytes, &reader), 7);
    assert_int_equal(reader.skipped, 3);
    free(data);
}

/* Levels are recorded when they differ, what is pending alone at most once in a millisecond. */
static void levels_are_recorded_when_they_change(void **state)
{
    static const struct {
        struct gc_trace_levels levels;
        uint64_t time_us;
        bool is_recorded;
    } rows[] = {
        {{100, 0, UINT64_MAX}, 10, true},   {{100, 0, UINT64_MAX}, 5000, false},
        {{100, 1, UINT64_MAX}, 5001, true}, {{100, 2, UINT64_MAX}, 5002, false},
        {{200, 3, UINT64_MAX}, 5003, true}, {{200, 3, 900}, 5004, true},
        {{200, 4, 900}, 5900, false},       {{200, 5, 900}, 6005, true},
    };
    struct gc_trace_reader reader;
    struct gc_trace_event event;
    const char *why;
    size_t bytes;
    (void)state;
    struct gc_trace *trace = open_trace();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        gc_trace_record_levels(trace, 7, &rows[i].levels, rows[i].time_us * 1000);
    gc_trace_close(trace);
    char *data = scratch_file(path, &bytes);
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!rows[i].is_recorded)
            continue;
        assert_true(gc_trace_reader_next_any(&reader, &event));
        assert_int_equal(event.op, GC_TRACE_LEVELS);
        assert_int_equal(event.device, 7);
        assert_int_equal(event.time_ns, rows[i].time_us * 1000);
        assert_int_equal(event.address, rows[i].levels.reserved_bytes);
        assert_int_equal(event.bytes, rows[i].levels.pending_bytes);
        assert_int_equal(event.stream, rows[i].levels.limit_bytes);
    }
    assert_false(gc_trace_reader_next_any(&reader, &event));
    free(data);
}

/* A reader of the program's events sees no others; version 1 knows nothing else. */
static void levels_and_memory_are_distinguished(void **state)
{
    struct gc_trace_reader reader;
    size_t bytes;
    (void)state;
    char *data = valid_trace(&bytes);
    struct gc_trace_file_record *records =
        (struct gc_trace_file_record *)(data + bytes - 10 * sizeof(struct gc_trace_file_record));
    for (size_t i = 0; i < 3; i++)
        records[i] = (struct gc_trace_file_record){
            .op = (uint8_t)(GC_TRACE_LEVELS + i), .api = UINT16_MAX, .address = 4096, .bytes = 1};
    assert_int_equal(count_events(data, bytes, &reader), 7);
    assert_int_equal(reader.skipped, 0);
    records[1].bytes = 0;            /* no memory */
    records[2].address = UINT64_MAX; /* beyond the end */
    assert_int_equal(count_events(data, bytes, &reader), 7);
    assert_int_equal(reader.skipped, 2);
    data[8] = 1;
    assert_int_equal(count_events(data, bytes, &reader), 7);
    assert_int_equal(reader.skipped, 3);
    free(data);
}

/* ---- call stacks ---- */

static __attribute__((noinline)) uint32_t here(struct gc_stack_table *stacks)
{
    return gc_stacks_capture(stacks);
}

/* The text of a number, from its parts. */
static void read_text(const char *data, size_t bytes, uint32_t number, char text[600])
{
    struct gc_trace_reader reader;
    struct gc_trace_event event;
    const char *why;
    memset(text, 0, 600);
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_OK);
    while (gc_trace_reader_next_any(&reader, &event)) {
        if (event.op == GC_TRACE_TEXT && event.thread == number)
            memcpy(text + event.api, &event.address, GC_TRACE_PAYLOAD_BYTES);
    }
}

/* Texts and stacks are written once, before the first allocation that has them. */
static void stacks_are_written_once(void **state)
{
    struct gc_host_mem host = {0};
    struct gc_stack_table *stacks;
    struct gc_trace_reader reader;
    struct gc_trace_event event;
    unsigned counts[GC_TRACE_STACK + 1] = {0};
    uint32_t first_text = 0;
    char text[600];
    char wanted[GC_STACK_TEXT_BYTES];
    const char *why;
    size_t bytes;
    (void)state;
    assert_int_equal(gc_stacks_create(&host, &stacks), GC_OK);
    struct gc_trace *trace = open_trace();
    const uint32_t stack = here(stacks);
    assert_int_not_equal(stack, GC_STACK_NONE);
    for (uint64_t i = 1; i <= 3; i++)
        gc_trace_stacks_record(trace, stacks, stack, 2, i << 20, i);
    gc_trace_stacks_record(trace, stacks, GC_STACK_NONE, 2, 9 << 20, 9);
    gc_trace_stacks_record(NULL, stacks, stack, 2, 9 << 20, 9);
    gc_trace_close(trace);
    char *data = scratch_file(path, &bytes);
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_OK);
    assert_int_equal(reader.version, GC_TRACE_VERSION_STACKS);
    while (gc_trace_reader_next_any(&reader, &event)) {
        counts[event.op]++;
        if (event.op == GC_TRACE_FRAMES && event.api == 0) {
            assert_int_equal(event.thread, stack);
            first_text = (uint32_t)event.address;
        } else if (event.op == GC_TRACE_STACK) {
            assert_int_equal(event.bytes, stack);
            assert_int_equal(event.address, (uint64_t)counts[GC_TRACE_STACK] << 20);
            assert_int_equal(event.device, 2);
        }
    }
    assert_int_equal(reader.skipped, 0);
    assert_int_equal(counts[GC_TRACE_STACK], 3);
    assert_true(counts[GC_TRACE_TEXT] > 0 && counts[GC_TRACE_FRAMES] > 0);
    gc_stacks_on_alloc(stacks, 2, 77, 1, stack);
    assert_true(gc_stacks_frame(stacks, gc_stacks_find(stacks, 2, 77), 0, wanted));
    read_text(data, bytes, first_text, text);
    assert_string_equal(text, wanted);
    /* A reader of the program's events sees none of it; version 2 knows no stacks. */
    assert_int_equal(count_events(data, bytes, &reader), 0);
    data[8] = GC_TRACE_VERSION;
    assert_int_equal(count_events(data, bytes, &reader), 0);
    assert_int_equal(reader.skipped,
                     counts[GC_TRACE_STACK] + counts[GC_TRACE_TEXT] + counts[GC_TRACE_FRAMES]);
    free(data);
    gc_stacks_destroy(stacks);
}

static void stacks_beyond_the_bounds_are_skipped(void **state)
{
    static const struct gc_trace_file_record bad[] = {
        {.op = GC_TRACE_TEXT, .api = 24},                                 /* no number */
        {.op = GC_TRACE_TEXT, .thread = GC_TRACE_NUMBERS_MAX},            /* too high */
        {.op = GC_TRACE_TEXT, .thread = 1, .api = 23},                    /* between parts */
        {.op = GC_TRACE_TEXT, .thread = 1, .api = 528},                   /* too long */
        {.op = GC_TRACE_FRAMES, .thread = 1, .api = 5},                   /* between parts */
        {.op = GC_TRACE_FRAMES, .thread = 1, .api = GC_STACK_FRAMES_MAX}, /* too many */
        {.op = GC_TRACE_FRAMES, .thread = UINT32_MAX},                    /* too high */
        {.op = GC_TRACE_STACK, .bytes = 0},                               /* none */
        {.op = GC_TRACE_STACK, .bytes = UINT64_C(1) << 40},               /* too high */
    };
    struct gc_trace_reader reader;
    size_t bytes;
    (void)state;
    char *data = valid_trace(&bytes);
    data[8] = GC_TRACE_VERSION_STACKS;
    memcpy(data + bytes - 10 * sizeof(bad[0]), bad, sizeof(bad));
    assert_int_equal(count_events(data, bytes, &reader), 1);
    assert_int_equal(reader.skipped, sizeof(bad) / sizeof(bad[0]));
    free(data);
}

static void hostile_files_do_no_harm(void **state)
{
    struct gc_trace_reader reader;
    struct scratch_random random = {0x5eedbeef};
    size_t bytes;
    (void)state;
    char *data = valid_trace(&bytes);
    char *copy = malloc(bytes);
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, data, bytes);
        const unsigned changes = 1 + (unsigned)(scratch_next(&random) % 4);
        for (unsigned i = 0; i < changes; i++) {
            const size_t span =
                scratch_next(&random) % 2 == 0 ? sizeof(struct gc_trace_header) : bytes;
            copy[(size_t)(scratch_next(&random) % span)] = (char)scratch_next(&random);
        }
        (void)count_events(
            copy, scratch_next(&random) % 4 == 0 ? (size_t)(scratch_next(&random) % bytes) : bytes,
            &reader);
    }
    free(copy);
    free(data);
}

static void other_versions_are_named(void **state)
{
    struct gc_trace_reader reader;
    const char *why;
    size_t bytes;
    (void)state;
    char *data = valid_trace(&bytes);
    data[8] = GC_TRACE_VERSION_STACKS + 1;
    assert_int_equal(gc_trace_reader_init(&reader, data, bytes, &why), GC_FORMAT);
    assert_string_equal(why, "a trace of another version of gpucache");
    assert_int_equal(gc_trace_reader_init(&reader, "x", 1, &why), GC_FORMAT);
    assert_string_equal(why, "not a gpucache trace");
    free(data);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(records_come_back_in_order),
        TEST(threads_lose_nothing_and_keep_their_order),
        TEST(files_of_others_are_left_alone),
        TEST(an_old_trace_is_replaced_but_not_one_in_use),
        TEST(the_path_is_expanded),
        TEST(a_full_disk_stops_the_recording_once),
        TEST(a_killed_process_leaves_what_was_flushed),
        TEST(events_a_second_apart_are_written),
        TEST(none_is_no_trace),
        TEST(file_that_took_the_descriptor_is_left_alone),
        TEST(torn_files_are_read_up_to_the_tear),
        TEST(damaged_records_are_skipped),
        TEST(levels_are_recorded_when_they_change),
        TEST(levels_and_memory_are_distinguished),
        TEST(stacks_are_written_once),
        TEST(stacks_beyond_the_bounds_are_skipped),
        TEST(hostile_files_do_no_harm),
        TEST(other_versions_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
