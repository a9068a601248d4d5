#define _GNU_SOURCE
#include "core/base/clock.h"
#include "core/share/wire.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char base[64], path[512];
static int folder = -1;

/* A folder whose path is longer than a socket's address. */
static int set_up(void **state)
{
    char name[300];
    (void)state;
    strcpy(base, "/tmp/test-wire-XXXXXX");
    assert_non_null(mkdtemp(base));
    memset(name, 'n', 200);
    name[200] = '\0';
    snprintf(path, sizeof(path), "%s/%s", base, name);
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/ledger");
    folder = gc_wire_open_folder(path);
    assert_true(folder >= 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(folder);
    scratch_remove(base);
    return 0;
}

static bool is_there(const char *name)
{
    return faccessat(folder, name, F_OK, 0) == 0;
}

/* Both ends of a connection. */
static void connect_both(struct gc_wire_end *listener, struct gc_wire_end *here,
                         struct gc_wire_end *there)
{
    uint32_t pid = 0;
    assert_true(gc_wire_listen(folder, 0xabc, listener));
    assert_true(gc_wire_connect(folder, 0xabc, here));
    assert_true(gc_wire_accept(listener, there, &pid));
    assert_int_equal(pid, getpid());
}

static void messages_carry_descriptors(void **state)
{
    struct gc_wire_end listener, here, there;
    int sent[GC_WIRE_FDS], received[GC_WIRE_FDS];
    uint32_t count = 0;
    char text[8] = "";
    (void)state;
    connect_both(&listener, &here, &there);
    for (int i = 0; i < GC_WIRE_FDS; i++) {
        sent[i] = memfd_create("sent", MFD_CLOEXEC);
        assert_int_equal(write(sent[i], &i, sizeof(i)), sizeof(i));
    }
    assert_true(gc_wire_send(&here, "message", 8, sent, GC_WIRE_FDS));
    assert_true(gc_wire_receive(&there, text, 8, received, &count));
    assert_string_equal(text, "message");
    assert_int_equal(count, GC_WIRE_FDS);
    for (int i = 0; i < GC_WIRE_FDS; i++) {
        int value = -1;
        assert_int_equal(pread(received[i], &value, sizeof(value), 0), sizeof(value));
        assert_int_equal(value, i);
        assert_true((fcntl(received[i], F_GETFD) & FD_CLOEXEC) != 0);
        close(sent[i]);
        close(received[i]);
    }
    gc_wire_close(&here);
    assert_false(gc_wire_receive(&there, text, 8, received, &count));
    gc_wire_close(&there);
    gc_wire_close(&listener);
}

static void other_messages_are_refused(void **state)
{
    struct gc_wire_end listener, here, there;
    const int fd = dup(0);
    const int next = dup(0);
    char text[8];
    (void)state;
    close(next);
    connect_both(&listener, &here, &there);
    assert_true(gc_wire_send(&here, "short", 5, NULL, 0));
    assert_false(gc_wire_receive(&there, text, 8, NULL, NULL));
    assert_true(gc_wire_send(&here, "too long", 9, NULL, 0));
    assert_false(gc_wire_receive(&there, text, 8, NULL, NULL));
    assert_true(gc_wire_send(&here, "message", 8, &fd, 1));
    assert_false(gc_wire_receive(&there, text, 8, NULL, NULL));
    gc_wire_close(&here);
    gc_wire_close(&there);
    gc_wire_close(&listener);
    const int again = dup(0); /* no descriptor is left */
    assert_int_equal(again, next);
    close(again);
    close(fd);
}

static void a_socket_of_an_ended_process_is_removed(void **state)
{
    struct gc_wire_end ended, listener, here;
    (void)state;
    assert_true(gc_wire_listen(folder, 1, &ended));
    assert_true(gc_wire_listen(folder, 2, &listener));
    close(openat(folder, "ipc-0000000000000003", O_CREAT | O_WRONLY, 0600)); /* not a socket */
    close(openat(folder, "ledger-1", O_CREAT | O_WRONLY, 0600));
    gc_wire_close(&ended);
    assert_true(is_there("ipc-0000000000000001"));
    gc_wire_sweep(folder);
    assert_false(is_there("ipc-0000000000000001"));
    assert_true(is_there("ipc-0000000000000002"));
    assert_true(is_there("ledger-1"));
    assert_true(gc_wire_connect(folder, 2, &here));
    gc_wire_close(&here);
    gc_wire_close(&listener);
    assert_false(gc_wire_connect(folder, 2, &here));
    assert_false(is_there("ipc-0000000000000002"));
    assert_false(gc_wire_connect(folder, 4, &here));
}

/* As a process leaves it that is killed before the socket has its name. */
static void make_hidden(const char *name, time_t age_s)
{
    const struct timespec times[2] = {{time(NULL) - age_s, 0}, {time(NULL) - age_s, 0}};
    assert_int_equal(mknodat(folder, name, S_IFSOCK | 0600, 0), 0);
    assert_int_equal(utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void a_socket_that_got_no_name_is_removed(void **state)
{
    (void)state;
    make_hidden(".ipc-0000000000000001", 100);
    make_hidden(".ipc-0000000000000002", 1); /* may be about to get it */
    make_hidden(".ipc-3", 100);
    gc_wire_sweep(folder);
    assert_false(is_there(".ipc-0000000000000001"));
    assert_true(is_there(".ipc-0000000000000002"));
    assert_true(is_there(".ipc-3"));
}

static void a_descriptor_of_the_program_is_left_alone(void **state)
{
    struct gc_wire_end listener;
    (void)state;
    assert_true(gc_wire_listen(folder, 5, &listener));
    const int number = listener.fd;
    assert_int_equal(dup2(0, number), number); /* the program closed it, and got the number */
    assert_false(gc_wire_is_intact(&listener));
    gc_wire_close(&listener);
    assert_true(fcntl(number, F_GETFD) >= 0);
    close(number);
}

static void a_folder_of_others_is_refused(void **state)
{
    (void)state;
    assert_int_equal(fchmod(folder, 0750), 0);
    assert_int_equal(gc_wire_open_folder(path), -1);
    assert_int_equal(fchmod(folder, 0700), 0);
    assert_int_equal(gc_wire_open_folder("/none/there/ledger"), -1);
    assert_int_equal(gc_wire_open_folder("ledger"), -1);
}

static void each_byte_of_a_handle_counts(void **state)
{
    struct gc_wire_handle handle = {
        GC_WIRE_MAGIC, gc_wire_random(), gc_wire_random(), 4, 5, 6, 7, 0};
    (void)state;
    handle.check = gc_wire_check_of(&handle);
    for (size_t i = 0; i < sizeof(handle); i++) {
        struct gc_wire_handle other = handle;
        ((unsigned char *)&other)[i] ^= 0x10;
        assert_int_not_equal(gc_wire_check_of(&other), other.check);
    }
}

/* The thread that waits for connections sees one that it cannot take again at once. */
static void a_connection_without_a_descriptor_left_is_no_busy_loop(void **state)
{
    enum { TRIES = 5 };
    struct gc_wire_end listener, here, there;
    struct rlimit limit, none;
    uint32_t pid = 0;
    (void)state;
    assert_true(gc_wire_listen(folder, 0xabc, &listener));
    assert_true(gc_wire_connect(folder, 0xabc, &here));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){0, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const uint64_t start_ns = gc_clock_ns();
    for (int i = 0; i < TRIES; i++)
        assert_false(gc_wire_accept(&listener, &there, &pid));
    const uint64_t passed_ns = gc_clock_ns() - start_ns;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(passed_ns >= TRIES * UINT64_C(1000000));
    assert_true(gc_wire_accept(&listener, &there, &pid)); /* it was kept */
    gc_wire_close(&there);
    gc_wire_close(&here);
    gc_wire_close(&listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_carry_descriptors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_messages_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_socket_of_an_ended_process_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_socket_that_got_no_name_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_descriptor_of_the_program_is_left_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_connection_without_a_descriptor_left_is_no_busy_loop,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_of_others_is_refused, set_up, tear_down),
        cmocka_unit_test(each_byte_of_a_handle_counts),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
