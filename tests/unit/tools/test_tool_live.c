/* gpucache limit, trim, pause, resume and top --json on a ledger of made-up members: whom a word
 * means, what is printed, every way not to get an answer. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/ledger_members.h"
#include "tests/unit/scratch.h"
#include "tools/live/live.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define MEMBERS_MAX 8

static char folder[256];
static pid_t members[MEMBERS_MAX];
static size_t member_count;
static char *output, *errors; /* by the last command */

static pid_t start(const struct member *member)
{
    assert_true(member_count < MEMBERS_MAX);
    return members[member_count++] = member_start(folder, member);
}

static pid_t start_plain(enum member_manner manner, const char *name, const char *group)
{
    return start(&(struct member){
        .manner = manner, .name = name, .group = group, .requested = 100 * MIB, .idle = 50 * MIB});
}

static int set_up(void **state)
{
    char base[200];
    (void)state;
    scratch_folder(base, sizeof(base));
    snprintf(folder, sizeof(folder), "%s/ledger", base);
    setenv("GPUCACHE_LEDGER", folder, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    while (member_count > 0)
        member_end(members[--member_count]);
    free(output);
    free(errors);
    output = errors = NULL;
    if (access(folder, F_OK) == 0)
        scratch_remove(folder);
    *strrchr(folder, '/') = '\0';
    scratch_remove(folder);
    return 0;
}

/* Runs a command with up to four arguments; what it wrote is in `output` and `errors`. */
static int run(const struct tool_command *command, const char *a, const char *b, const char *c,
               const char *d)
{
    char *words[] = {(char *)(uintptr_t)command->name,
                     (char *)(uintptr_t)a,
                     (char *)(uintptr_t)b,
                     (char *)(uintptr_t)c,
                     (char *)(uintptr_t)d,
                     NULL};
    int count = 0;
    size_t bytes;
    while (words[count] != NULL)
        count++;
    const int out = dup(STDOUT_FILENO), error = dup(STDERR_FILENO);
    const int out_file = scratch_fd(), error_file = scratch_fd();
    dup2(out_file, STDOUT_FILENO);
    dup2(error_file, STDERR_FILENO);
    const int status = command->run(count, words);
    dup2(out, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    free(output);
    free(errors);
    output = scratch_read(out_file, &bytes);
    errors = scratch_read(error_file, &bytes);
    close(out);
    close(error);
    close(out_file);
    close(error_file);
    return status;
}

static const char *text_of(pid_t pid)
{
    static char text[16];
    snprintf(text, sizeof(text), "%d", (int)pid);
    return text;
}

/* `text` with every %d in `format` being pid. */
static void is_output(const char *text, const char *format, pid_t pid)
{
    char wanted[1024];
    size_t used = 0;
    for (const char *at = format; *at != '\0'; at++) {
        if (at[0] == '%' && at[1] == 'd') {
            used += (size_t)snprintf(wanted + used, sizeof(wanted) - used, "%d", (int)pid);
            at++;
        } else {
            wanted[used++] = *at;
        }
    }
    wanted[used] = '\0';
    assert_string_equal(text, wanted);
}

static void a_limit_is_set_and_reported(void **state)
{
    (void)state;
    const pid_t pid = start_plain(MEMBER_ANSWERS, "worker", "train");
    assert_int_equal(run(&tool_command_limit, text_of(pid), "4GiB", NULL, NULL), TOOL_DONE);
    is_output(
        output,
        "process %d (worker), device 0: limit none -> 4.0 GiB, reserved 150.0 MiB -> 150.0 MiB, "
        "idle 50.0 MiB -> 50.0 MiB\n",
        pid);
    assert_string_equal(errors, "");
    assert_int_equal(run(&tool_command_limit, text_of(pid), "120MiB", "--device", "0"), TOOL_DONE);
    is_output(
        output,
        "process %d (worker), device 0: limit 4.0 GiB -> 120.0 MiB, reserved 150.0 MiB -> 100.0 "
        "MiB, idle 50.0 MiB -> 0 B\n",
        pid);
    assert_int_equal(run(&tool_command_limit, "--device", "GPU-0", text_of(pid), "50%"), TOOL_DONE);
    assert_non_null(strstr(output, "limit 120.0 MiB -> 8.0 GiB"));
    assert_int_equal(run(&tool_command_limit, text_of(pid), "25%", NULL, NULL), TOOL_DONE);
    assert_non_null(strstr(output, "limit 8.0 GiB -> 4.0 GiB"));
    assert_int_equal(run(&tool_command_limit, text_of(pid), "none", NULL, NULL), TOOL_DONE);
    assert_non_null(strstr(output, "limit 4.0 GiB -> none"));
}

static void a_group_is_limited_and_trimmed(void **state)
{
    (void)state;
    start_plain(MEMBER_ANSWERS, "one", "train");
    start_plain(MEMBER_ANSWERS, "two", "train");
    const pid_t other = start_plain(MEMBER_ANSWERS, "three", "other");
    assert_int_equal(run(&tool_command_limit, "train", "1GiB", NULL, NULL), TOOL_DONE);
    assert_string_equal(output,
                        "group train, device 0: limit none -> 1.0 GiB, reserved 300.0 MiB -> "
                        "300.0 MiB\n");
    assert_int_equal(run(&tool_command_limit, "train", "250MiB", NULL, NULL), TOOL_DONE);
    assert_non_null(strstr(output,
                           "(one), device 0: reserved 150.0 MiB -> 100.0 MiB, idle 50.0 MiB "
                           "-> 0 B\n"));
    assert_non_null(strstr(output,
                           "group train, device 0: limit 1.0 GiB -> 250.0 MiB, reserved 300.0 "
                           "MiB -> 200.0 MiB\n"));
    assert_null(strstr(output, "three"));
    assert_int_equal(run(&tool_command_trim, "other", NULL, NULL, NULL), TOOL_DONE);
    is_output(
        output,
        "process %d (three), device 0: reserved 150.0 MiB -> 100.0 MiB, idle 50.0 MiB -> 0 B\n",
        other);
}

static void a_number_that_is_both_is_refused(void **state)
{
    (void)state;
    char name[16], word[32];
    const pid_t pid = start_plain(MEMBER_ANSWERS, "one", NULL);
    snprintf(name, sizeof(name), "%d", (int)pid);
    start_plain(MEMBER_ANSWERS, "two", name);
    assert_int_equal(run(&tool_command_trim, name, NULL, NULL, NULL), TOOL_FAILED);
    is_output(errors, "gpucache trim: %d is a process and a group: write pid:%d or group:%d\n",
              pid);
    snprintf(word, sizeof(word), "pid:%s", name);
    assert_int_equal(run(&tool_command_trim, word, NULL, NULL, NULL), TOOL_DONE);
    assert_non_null(strstr(output, "(one)"));
    assert_null(strstr(output, "(two)"));
    snprintf(word, sizeof(word), "group:%s", name);
    assert_int_equal(run(&tool_command_trim, word, NULL, NULL, NULL), TOOL_DONE);
    assert_non_null(strstr(output, "(two)"));
    /* A group whose name is a number that is no process's. */
    start_plain(MEMBER_ANSWERS, "three", "4194999");
    assert_int_equal(run(&tool_command_trim, "4194999", NULL, NULL, NULL), TOOL_DONE);
    assert_non_null(strstr(output, "(three)"));
}

static void no_process_is_reported(void **state)
{
    (void)state;
    /* First without a ledger, then with one. */
    for (int round = 0; round < 2; round++) {
        assert_int_equal(run(&tool_command_limit, "nobody", "1g", NULL, NULL), TOOL_FAILED);
        assert_string_equal(errors, "gpucache limit: no group is called nobody\n");
        assert_int_equal(run(&tool_command_limit, "4194999", "1g", NULL, NULL), TOOL_FAILED);
        assert_string_equal(errors, "gpucache limit: no process has the PID 4194999\n");
        assert_int_equal(run(&tool_command_trim, text_of(getpid()), NULL, NULL, NULL), TOOL_FAILED);
        is_output(errors, "gpucache trim: process %d uses no device under the library\n", getpid());
        assert_int_equal(run(&tool_command_pause, "no\x1bone", NULL, NULL, NULL), TOOL_FAILED);
        assert_string_equal(errors, "gpucache pause: no tenant is called no?one\n");
        start_plain(MEMBER_ANSWERS, "one", NULL);
    }
    assert_int_equal(run(&tool_command_limit, text_of(members[0]), "1g", "--device", "7"),
                     TOOL_FAILED);
    assert_string_equal(errors, "gpucache limit: no device is 7; gpucache top --once lists them\n");
}

static void a_process_of_another_user_is_refused(void **state)
{
    (void)state;
    const pid_t pid = geteuid() == 0 ? fork() : -1;
    if (pid < 0)
        skip();
    if (pid == 0) {
        if (setresuid(65534, 65534, 65534) != 0)
            _exit(1);
        pause();
        _exit(0);
    }
    for (int i = 0; i < 6000; i++) {
        usleep(10000);
        (void)run(&tool_command_trim, text_of(pid), NULL, NULL, NULL);
        if (strstr(errors, "another user") != NULL)
            break;
    }
    is_output(errors, "gpucache trim: process %d belongs to another user: --all-users\n", pid);
    member_end(pid);
}

static void no_answer_is_reported_within_the_time(void **state)
{
    (void)state;
    const pid_t silent = start_plain(MEMBER_SILENT, "busy", "g");
    assert_int_equal(run(&tool_command_trim, text_of(silent), "--timeout", "0.3", NULL),
                     TOOL_FAILED);
    is_output(errors,
              "gpucache trim: process %d (busy) did not answer within 0.3 s: it is busy, and the "
              "request stays\n",
              silent);
    const pid_t late = start_plain(MEMBER_LATE, "quiet", NULL);
    assert_int_equal(run(&tool_command_limit, text_of(late), "1g", "--timeout", "0.2"),
                     TOOL_FAILED);
    assert_int_equal(run(&tool_command_trim, text_of(late), "--timeout=0.2", NULL, NULL),
                     TOOL_FAILED);
    is_output(
        errors,
        "gpucache trim: process %d (quiet) did not answer within 0.2 s: it has no group, so it "
        "answers when it next allocates or submits work; the request stays\n",
        late);
    assert_int_equal(run(&tool_command_trim, text_of(late), "--timeout=0", NULL, NULL), TOOL_DONE);
    is_output(output, "process %d (quiet): request left, answer not awaited\n", late);
    const pid_t stopped = start_plain(MEMBER_ANSWERS, "stopped", "g");
    kill(stopped, SIGSTOP);
    waitpid(stopped, NULL, WUNTRACED);
    assert_int_equal(run(&tool_command_trim, text_of(stopped), "--timeout", "0.2", NULL),
                     TOOL_FAILED);
    is_output(errors,
              "gpucache trim: process %d (stopped) did not answer within 0.2 s: it is stopped by a "
              "signal, and answers when it goes on; the request stays\n",
              stopped);
}

static void refusal_and_death_are_reported(void **state)
{
    (void)state;
    const pid_t refuses = start_plain(MEMBER_REFUSES, "shared", NULL);
    assert_int_equal(run(&tool_command_pause, text_of(refuses), NULL, NULL, NULL), TOOL_FAILED);
    is_output(errors, "gpucache pause: process %d (shared) refused: because of peers\n", refuses);
    const pid_t dies = start_plain(MEMBER_DIES, "short", NULL);
    assert_int_equal(run(&tool_command_limit, text_of(dies), "1g", NULL, NULL), TOOL_FAILED);
    is_output(errors, "gpucache limit: process %d (short) ended before it answered\n", dies);
}

static void pause_finds_tenants(void **state)
{
    (void)state;
    const pid_t whole = start_plain(MEMBER_ANSWERS, "llama", NULL);
    const pid_t part = start(&(struct member){
        .manner = MEMBER_ANSWERS, .name = "server", .tenant = "qwen", .requested = MIB});
    assert_int_equal(run(&tool_command_pause, "llama", NULL, NULL, NULL), TOOL_DONE);
    is_output(output, "process %d (llama): paused ?[2J\n", whole);
    assert_int_equal(run(&tool_command_pause, "qwen", "--drop", NULL, NULL), TOOL_DONE);
    is_output(output, "tenant qwen of process %d (server): paused qwen, dropped?[2J\n", part);
    assert_int_equal(run(&tool_command_pause, text_of(part), "--timeout", "60", NULL), TOOL_DONE);
    is_output(output, "process %d (server): paused ?[2J\n", part);
    assert_int_equal(run(&tool_command_resume, "tenant:qwen", NULL, NULL, NULL), TOOL_DONE);
    is_output(output, "tenant qwen of process %d (server): resumed\n", part);
    assert_int_equal(run(&tool_command_resume, "qwen", "--drop", NULL, NULL), TOOL_USAGE);
}

static void a_process_is_pinned_and_evicted(void **state)
{
    (void)state;
    static struct gc_ledger ledger;
    char reason[GC_LEDGER_REASON_BYTES];
    struct gc_ledger_turn turn;
    const pid_t pid = start(&(struct member){.manner = MEMBER_ANSWERS,
                                             .name = "llama",
                                             .group = "g",
                                             .tenant = "qwen",
                                             .turn = GC_TURN_IN,
                                             .requested = 3});
    assert_int_equal(gc_ledger_open(folder, false, &ledger, reason), GC_OK);
    assert_int_equal(run(&tool_command_pin, "llama", NULL, NULL, NULL), TOOL_DONE);
    is_output(output, "process %d (llama): pinned: no other process gets its memory\n", pid);
    assert_true(gc_ledger_read_turn(&ledger, 0, 1, &turn) && turn.is_pinned);
    assert_int_equal(run(&tool_command_pin, text_of(pid), "--off", NULL, NULL), TOOL_DONE);
    assert_true(gc_ledger_read_turn(&ledger, 0, 1, &turn) && !turn.is_pinned);
    assert_int_equal(run(&tool_command_evict, text_of(pid), NULL, NULL, NULL), TOOL_DONE);
    is_output(output, "process %d (llama): gave 3\n", pid);
    assert_int_equal(run(&tool_command_evict, "qwen", NULL, NULL, NULL), TOOL_FAILED);
    is_output(errors,
              "gpucache evict: tenant qwen of process %d (llama): a process takes its turns as a "
              "whole: give its PID\n",
              pid);
    const pid_t plain = start_plain(MEMBER_ANSWERS, "plain", "g");
    for (int i = 0; i < 2; i++) {
        const struct tool_command *command = i == 0 ? &tool_command_pin : &tool_command_evict;
        assert_int_equal(run(command, text_of(plain), NULL, NULL, NULL), TOOL_FAILED);
        assert_non_null(strstr(errors, "takes no turns: it was not started with a group and "
                                       "GPUCACHE_OVERCOMMIT=swap\n"));
    }
    const pid_t refuses = start(&(struct member){.manner = MEMBER_REFUSES,
                                                 .name = "peer",
                                                 .group = "g",
                                                 .turn = GC_TURN_IN,
                                                 .requested = MIB});
    assert_int_equal(run(&tool_command_evict, "peer", NULL, NULL, NULL), TOOL_FAILED);
    is_output(errors, "gpucache evict: process %d (peer) refused: because of peers\n", refuses);
    gc_ledger_close(&ledger);
}

static void top_shows_turns(void **state)
{
    (void)state;
    json_error_t error;
    const char *name = NULL;
    int waiting_ms = 0, waited_ms = 0, priority = 0, count = 0, out_bytes = 0, swapped = 0;
    int pinned = -1;
    const pid_t pid = start(&(struct member){.manner = MEMBER_ANSWERS,
                                             .name = "waits",
                                             .group = "g",
                                             .turn = GC_TURN_WAITING,
                                             .waits_ms = 65000,
                                             .swapped = 3 * MIB,
                                             .requested = MIB});
    assert_int_equal(run(&tool_command_top, "--once", NULL, NULL, NULL), TOOL_DONE);
    assert_non_null(strstr(output, " SWAP  WAIT"));
    assert_non_null(strstr(output, "waits          W 1.00M 1.00M     0 3.00M   65s"));
    assert_int_equal(run(&tool_command_top, "--json", NULL, NULL, NULL), TOOL_DONE);
    json_t *json = json_loads(output, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(json);
    assert_int_equal(json_unpack(json_array_get(json_object_get(json, "processes"), 0),
                                 "{s:{s:s, s:i, s:b, s:i, s:i, s:i, s:i}, s:[{s:i}]}", "turn",
                                 "state", &name, "priority", &priority, "is_pinned", &pinned,
                                 "waiting_ms", &waiting_ms, "waited_ms", &waited_ms,
                                 "exchange_count", &count, "out_bytes", &out_bytes, "devices",
                                 "swapped_bytes", &swapped),
                     0);
    assert_string_equal(name, "waiting");
    assert_int_equal(priority, 5);
    assert_int_equal(pinned, 0);
    assert_in_range(waiting_ms, 65000, 65000 + 60000);
    assert_int_equal(waited_ms, waiting_ms + 2000);
    assert_int_equal(count, 7);
    assert_int_equal(out_bytes, 70);
    assert_int_equal(swapped, 3 * MIB);
    json_decref(json);
    (void)pid;
}

static void top_shows_what_the_ledger_has(void **state)
{
    (void)state;
    json_error_t error;
    const pid_t pid = start(&(struct member){.manner = MEMBER_ANSWERS,
                                             .name = "we\x1b[2Jird",
                                             .group = "train",
                                             .tenant = "qwen",
                                             .requested = 100 * MIB,
                                             .idle = 50 * MIB,
                                             .limit = 200 * MIB});
    const pid_t late = start_plain(MEMBER_LATE, "late", NULL);
    kill(late, SIGSTOP);
    waitpid(late, NULL, WUNTRACED);
    assert_int_equal(run(&tool_command_top, "--once", NULL, NULL, NULL), TOOL_DONE);
    assert_null(strchr(output, '\x1b'));
    assert_non_null(strstr(output, "we?[2Jird"));
    assert_int_equal(run(&tool_command_top, "--json", "--sort=pid", NULL, NULL), TOOL_DONE);
    json_t *json = json_loads(output, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(json);
    int found = 0, number = 0, idle = 0, limit = 0, group_bytes = 0;
    const char *first_state, *second_state, *tenant;
    json_int_t group_limit = 0;
    json_t *processes = json_object_get(json, "processes");
    const size_t first = late < pid;
    assert_int_equal(json_unpack(json_array_get(processes, first),
                                 "{s:i, s:s, s:[{s:i, s:i, s:i}], s:[{s:s}]}", "pid", &found,
                                 "state", &first_state, "devices", "device", &number, "idle_bytes",
                                 &idle, "limit_bytes", &limit, "tenants", "name", &tenant),
                     0);
    assert_int_equal(found, pid);
    assert_int_equal(idle, 50 * MIB);
    assert_int_equal(limit, 200 * MIB);
    assert_string_equal(first_state, "running");
    assert_string_equal(tenant, "qwen");
    assert_int_equal(
        json_unpack(json_array_get(processes, !first), "{s:s}", "state", &second_state), 0);
    assert_string_equal(second_state, "stopped");
    assert_int_equal(
        json_unpack(json, "{s:[{s:[{s:i}]}]}", "groups", "devices", "reserved_bytes", &group_bytes),
        0);
    assert_int_equal(group_bytes, 150 * MIB);
    assert_int_equal(json_unpack(json, "{s:[{s:I}]}", "devices", "total_bytes", &group_limit), 0);
    assert_int_equal(group_limit, MEMBER_DEVICE_BYTES);
    json_decref(json);
}

static void scramble(void *at, size_t bytes, struct scratch_random *random)
{
    unsigned char *byte = at;
    for (size_t i = 0; i < bytes; i++)
        byte[i] = (unsigned char)(scratch_next(random) >> 32);
}

/* Whatever other processes write: three slots, the devices, the groups. */
static void garbage_is_shown_without_harm(void **state)
{
    (void)state;
    static struct gc_ledger ledgers[3];
    struct scratch_random random = {.state = 20261121};
    char reason[GC_LEDGER_REASON_BYTES];
    const struct member member = {.name = "x", .group = "g", .tenant = "t", .requested = MIB};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gc_ledger_open(folder, true, &ledgers[i], reason), GC_OK);
        member_join(&ledgers[i], &member);
    }
    struct gc_ledger_file *file = ledgers[0].file;
    for (int round = 0; round < 8; round++) {
        json_error_t error;
        scramble(file->devices, sizeof(file->devices), &random);
        scramble(file->groups, sizeof(file->groups), &random);
        scramble(file->group_keys, sizeof(file->group_keys), &random);
        for (int i = 0; i < 3; i++)
            scramble(&file->slots[i], sizeof(file->slots[i]), &random);
        /* Some parts as they should be, so that others are looked at. */
        for (int i = 0; i < 3; i++) {
            if (round % 2 == 0)
                file->slots[i].pid = (uint32_t)getpid();
            if (round % 4 == 0)
                file->slots[i].flags = 0;
        }
        assert_int_equal(run(&tool_command_top, "--once", NULL, NULL, NULL), TOOL_DONE);
        for (const char *at = output; *at != '\0'; at++)
            assert_true((unsigned char)*at >= ' ' || *at == '\n');
        assert_int_equal(run(&tool_command_top, "--json", NULL, NULL, NULL), TOOL_DONE);
        json_t *json = json_loads(output, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
        if (json == NULL)
            fail_msg("round %d: %s", round, error.text);
        json_decref(json);
        (void)run(&tool_command_limit, text_of(getpid()), "25%", "--timeout", "0.05");
        (void)run(&tool_command_trim, text_of(getpid()), "--timeout", "0.05", NULL);
        (void)run(&tool_command_resume, "t", "--timeout", "0.05", NULL);
        (void)run(&tool_command_pin, "t", NULL, NULL, NULL);
        (void)run(&tool_command_evict, text_of(getpid()), "--timeout", "0.05", NULL);
    }
    for (int i = 0; i < 3; i++)
        gc_ledger_close(&ledgers[i]);
}

/* --members FOLDER COUNT, --turns FOLDER COUNT: stays until its input ends, for tests of the
 * screen. Of those with turns the first one's memory is away. */
static int be_members(const char *path, int count, bool has_turns)
{
    for (int i = 0; i < count; i++) {
        static struct gc_ledger ledgers[512];
        char reason[GC_LEDGER_REASON_BYTES], name[32], group[32];
        struct member member = {.manner = MEMBER_LATE,
                                .name = name,
                                .group = i % 3 != 0 ? group : NULL,
                                .tenant = i % 10 == 0 ? "\u6f22\u5b57" : NULL,
                                .requested = (uint64_t)(i + 1) * MIB,
                                .idle = MIB,
                                .limit = i % 2 != 0 ? (uint64_t)(i + 2) * MIB : 0,
                                .pid = 100000 + i};
        snprintf(name, sizeof(name), i % 7 == 0 ? "caf\u00e9\x1b[2J%d" : "worker%d", i);
        snprintf(group, sizeof(group), "g%d", i % 5);
        if (has_turns)
            member.turn = i == 0 ? GC_TURN_AWAY : GC_TURN_IN;
        if (i >= 512 || gc_ledger_open(path, true, &ledgers[i], reason) != GC_OK)
            return 1;
        member_join(&ledgers[i], &member);
    }
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--members") == 0)
        return be_members(argv[2], atoi(argv[3]), false);
    if (argc == 4 && strcmp(argv[1], "--turns") == 0)
        return be_members(argv[2], atoi(argv[3]), true);
    cmocka_set_message_output(CM_OUTPUT_TAP);
#define LIVE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LIVE_TEST(a_limit_is_set_and_reported),
        LIVE_TEST(a_group_is_limited_and_trimmed),
        LIVE_TEST(a_number_that_is_both_is_refused),
        LIVE_TEST(no_process_is_reported),
        LIVE_TEST(a_process_of_another_user_is_refused),
        LIVE_TEST(no_answer_is_reported_within_the_time),
        LIVE_TEST(refusal_and_death_are_reported),
        LIVE_TEST(pause_finds_tenants),
        LIVE_TEST(a_process_is_pinned_and_evicted),
        LIVE_TEST(top_shows_turns),
        LIVE_TEST(top_shows_what_the_ledger_has),
        LIVE_TEST(garbage_is_shown_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
