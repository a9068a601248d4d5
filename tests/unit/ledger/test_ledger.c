/* The ledger's file and its slots, with real processes: refused files, live processes, requests and
 * responses, and that garbage in it is harmless. */
#define _GNU_SOURCE
#include "core/ledger/account.h"
#include "core/ledger/process.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 12
#define LIMIT 1000
#define PATIENCE_MS 60000

static char base[256];
static char folder[300];
static char path[400];
static char reason[GC_LEDGER_REASON_BYTES];
static struct gc_ledger ledger;

static int set_up(void **state)
{
    (void)state;
    scratch_folder(base, sizeof(base));
    scratch_path(folder, sizeof(folder), base, "ledger");
    snprintf(path, sizeof(path), "%s/ledger-%d", folder, GC_LEDGER_VERSION);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gc_ledger_close(&ledger);
    unlink(path);
    rmdir(folder);
    unlink(folder);
    scratch_remove(base);
    return 0;
}

static void open_ledger(struct gc_ledger *opened)
{
    if (gc_ledger_open(folder, true, opened, reason) != GC_OK)
        fail_msg("%s", reason);
}

/* ---- the default folder ---- */

static void default_folder_is_of_the_node_where_its_place_is_sticky(void **state)
{
    char place[GC_LEDGER_PATH_BYTES], users[300], own[400], fallback[64];
    (void)state;
    snprintf(users, sizeof(users), "%s/users", base);
    snprintf(own, sizeof(own), "%s/%lu", users, (unsigned long)geteuid());
    snprintf(fallback, sizeof(fallback), "/dev/shm/gpucache-%lu", (unsigned long)geteuid());
    assert_string_equal(gc_ledger_folder("/given", base, place), "/given");
    assert_string_equal(gc_ledger_folder("", base, place), fallback);
    assert_int_equal(mkdir(users, 0755), 0);
    assert_string_equal(gc_ledger_folder("", base, place), fallback);
    assert_int_equal(chmod(users, 01777), 0);
    assert_string_equal(gc_ledger_folder("", base, place), own);
    if (gc_ledger_open(own, true, &ledger, reason) != GC_OK)
        fail_msg("%s", reason);
    struct gc_ledger other;
    assert_int_equal(gc_ledger_open_of(own, geteuid(), &other, reason), GC_OK);
    gc_ledger_close(&other);
    assert_int_equal(gc_ledger_open_of(own, geteuid() + 1, &other, reason), GC_IO);
}

/* ---- what is refused ---- */

static void expect_refused(const char *word)
{
    struct gc_ledger refused;
    struct stat before, after;
    const bool is_there = lstat(path, &before) == 0;
    for (int create = 0; create < 2; create++) {
        const enum gc_status status = gc_ledger_open(folder, create != 0, &refused, reason);
        assert_true(status == GC_IO || status == GC_FORMAT);
        assert_null(refused.file);
        assert_int_equal(refused.fd, -1);
        if (strstr(reason, word) == NULL || strstr(reason, "accepted") == NULL)
            fail_msg("\"%s\" does not say \"%s\" and what is accepted", reason, word);
    }
    assert_int_equal(lstat(path, &after) == 0, is_there);
    if (is_there) {
        assert_int_equal(after.st_ino, before.st_ino);
        assert_int_equal(after.st_size, before.st_size);
        assert_int_equal(after.st_mode, before.st_mode);
        assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    }
}

static void expect_refused_with_mode(const char *name, mode_t mode, const char *word)
{
    assert_int_equal(chmod(name, mode), 0);
    expect_refused(word);
}

/* As far as this user may give things away. */
static void expect_refused_of_another(const char *name)
{
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(name, 1, 1), 0);
    expect_refused("another user");
    assert_int_equal(chown(name, 0, 0), 0);
}

/* A good one, then closed. */
static void make_file(void)
{
    struct gc_ledger made;
    open_ledger(&made);
    gc_ledger_close(&made);
}

static void nobody_there_is_no_error(void **state)
{
    struct gc_ledger none;
    (void)state;
    assert_int_equal(gc_ledger_open(folder, false, &none, reason), GC_NOT_OURS);
    assert_false(scratch_exists(folder));
}

static void folders_of_others_are_refused(void **state)
{
    char other[300];
    (void)state;
    assert_int_equal(mkdir(folder, 0755), 0);
    expect_refused("others may enter");
    expect_refused_with_mode(folder, 0720, "others may enter");
    assert_int_equal(chmod(folder, 0700), 0);
    expect_refused_of_another(folder);
    rmdir(folder);
    scratch_path(other, sizeof(other), base, "other");
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(symlink(other, folder), 0);
    expect_refused("symbolic link");
    unlink(folder);
    rmdir(other);
    scratch_write(folder, "x", 1);
    expect_refused("not a folder");
}

static void files_that_are_no_ledger_are_refused(void **state)
{
    char other[300];
    (void)state;
    make_file();
    expect_refused_with_mode(path, 0640, "mode is not 0600");
    expect_refused_with_mode(path, 04600, "mode is not 0600");
    assert_int_equal(chmod(path, 0600), 0);
    expect_refused_of_another(path);
    scratch_path(other, sizeof(other), base, "other");
    assert_int_equal(link(path, other), 0);
    expect_refused("other names");
    unlink(path);
    assert_int_equal(symlink(other, path), 0);
    expect_refused("symbolic link");
    unlink(path);
    unlink(other);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused("not a regular file");
    unlink(path);
    assert_int_equal(mkdir(path, 0600), 0);
    expect_refused("accepted");
    rmdir(path);
}

static void files_of_another_layout_are_refused(void **state)
{
    static const struct {
        size_t offset;
        const char *word;
    } fields[] = {
        {offsetof(struct gc_ledger_file, magic), "not a ledger"},
        {offsetof(struct gc_ledger_file, version), "another version"},
        {offsetof(struct gc_ledger_file, slot_bytes), "another layout"},
        {offsetof(struct gc_ledger_file, file_bytes), "another layout"},
        {offsetof(struct gc_ledger_file, slot_count), "another layout"},
        {offsetof(struct gc_ledger_file, device_count), "another layout"},
        {offsetof(struct gc_ledger_file, group_count), "another layout"},
    };
    const off_t size = sizeof(struct gc_ledger_file);
    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        unsigned char byte;
        make_file();
        const int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, (off_t)fields[i].offset), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)fields[i].offset), 1);
        close(fd);
        expect_refused(fields[i].word);
        unlink(path);
    }
    for (off_t wrong = 0; wrong < 4; wrong++) {
        const off_t sizes[] = {0, 1, size - 1, size + 1};
        make_file();
        assert_int_equal(truncate(path, sizes[wrong]), 0);
        expect_refused("size is wrong");
        unlink(path);
    }
}

/* ---- processes ---- */

/* Runs `body` in a child that keeps nothing of the parent's ledger. */
static pid_t run_child(void (*body)(unsigned number), unsigned number)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (ledger.fd >= 0)
            close(ledger.fd);
        ledger = (struct gc_ledger){.fd = -1, .own = GC_LEDGER_NONE};
        alarm(120);
        body(number);
        _exit(0);
    }
    return pid;
}

static void expect_good_end(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void require(bool condition, int line)
{
    if (!condition) {
        fprintf(stderr, "child: line %d\n", line);
        _exit(1);
    }
}
#define REQUIRE(condition) require((condition), __LINE__)

/* As the library fills its slot in. */
static void identify(struct gc_ledger *own)
{
    struct gc_ledger_slot *slot = gc_ledger_own_slot(own);
    atomic_store(&slot->start_ticks, gc_ledger_start_ticks((uint32_t)getpid()));
    atomic_store(&slot->pid_namespace, gc_ledger_pid_namespace());
    atomic_store(&slot->pid, (uint32_t)getpid());
}

static void open_and_claim(unsigned number)
{
    (void)number;
    REQUIRE(gc_ledger_open(folder, true, &ledger, reason) == GC_OK);
    REQUIRE(gc_ledger_acquire_slot(&ledger));
}

static void claim_and_sleep(unsigned number)
{
    open_and_claim(number);
    identify(&ledger);
    pause();
}

static void all_make_the_same_file(void **state)
{
    pid_t pids[CHILDREN];
    struct stat facts;
    (void)state;
    for (unsigned i = 0; i < CHILDREN; i++)
        pids[i] = run_child(open_and_claim, i);
    for (unsigned i = 0; i < CHILDREN; i++)
        expect_good_end(pids[i]);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_nlink, 1);
    open_ledger(&ledger);
    assert_in_range(gc_ledger_slot_high(&ledger), 1, CHILDREN);
    for (uint32_t i = 0; i < CHILDREN; i++)
        assert_false(gc_ledger_is_held(&ledger, i));
}

static void await_process(uint32_t slot, struct gc_ledger_process *process)
{
    while (!gc_ledger_read_process(&ledger, slot, process))
        usleep(1000);
}

static void a_killed_process_leaves_its_slot(void **state)
{
    struct gc_ledger_process first, second;
    (void)state;
    open_ledger(&ledger);
    pid_t pid = run_child(claim_and_sleep, 0);
    await_process(0, &first);
    assert_int_equal(first.pid, pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_false(gc_ledger_is_held(&ledger, 0));
    assert_false(gc_ledger_read_process(&ledger, 0, &second));
    pid = run_child(claim_and_sleep, 0);
    do /* the slot may be held again, and not be cleared yet */
        await_process(0, &second);
    while (second.pid != pid);
    assert_int_equal(second.slot, first.slot);
    assert_int_not_equal(second.generation, first.generation);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int lifeline[2]; /* ends when the test has looked */

/* The grandchild outlives the owner of the slot, which ends once the grandchild has let go. */
static void claim_and_fork(unsigned number)
{
    int closed[2];
    char byte;
    open_and_claim(number);
    REQUIRE(pipe(closed) == 0);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    close(lifeline[1]);
    close(closed[pid == 0 ? 0 : 1]);
    if (pid == 0) {
        close(ledger.fd); /* as the library's handler does */
        REQUIRE(write(closed[1], "", 1) == 1);
        REQUIRE(read(lifeline[0], &byte, 1) == 0);
    } else {
        REQUIRE(read(closed[0], &byte, 1) == 1);
    }
}

static void a_forked_child_does_not_hold_the_slot(void **state)
{
    (void)state;
    if (getenv("GC_TEST_EMULATED") != NULL)
        skip(); /* qemu's user mode does not keep mappings from a fork's child */
    assert_int_equal(pipe(lifeline), 0);
    expect_good_end(run_child(claim_and_fork, 0));
    open_ledger(&ledger);
    assert_int_equal(gc_ledger_slot_high(&ledger), 1);
    assert_false(gc_ledger_is_held(&ledger, 0));
    close(lifeline[0]);
    close(lifeline[1]);
}

static void slots_are_one_each(void **state)
{
    struct gc_ledger others[3];
    (void)state;
    open_ledger(&ledger);
    assert_true(gc_ledger_acquire_slot(&ledger));
    for (int i = 0; i < 3; i++) {
        open_ledger(&others[i]);
        assert_true(gc_ledger_acquire_slot(&others[i]));
        assert_int_equal(others[i].own, ledger.own + (uint32_t)i + 1);
        assert_true(gc_ledger_is_held(&ledger, others[i].own));
        assert_true(gc_ledger_is_held(&others[i], ledger.own));
    }
    gc_ledger_close(&others[1]);
    assert_false(gc_ledger_is_held(&ledger, ledger.own + 2));
    assert_true(gc_ledger_is_held(&ledger, ledger.own + 3));
    gc_ledger_close(&others[0]);
    gc_ledger_close(&others[2]);
}

static void a_closed_descriptor_is_noticed(void **state)
{
    struct gc_ledger other;
    (void)state;
    open_ledger(&ledger);
    assert_true(gc_ledger_acquire_slot(&ledger));
    identify(&ledger);
    open_ledger(&other);
    assert_true(gc_ledger_is_intact(&ledger));
    const int null = open("/dev/null", O_RDWR);
    const int stranger = ledger.fd; /* its number serves again */
    close(ledger.fd);
    assert_false(gc_ledger_is_intact(&ledger));
    assert_int_equal(dup2(null, stranger), stranger);
    close(null);
    assert_false(gc_ledger_is_intact(&ledger));
    assert_true(gc_ledger_is_held(&other, ledger.own));
    assert_true(gc_ledger_repair(&ledger));
    assert_true(gc_ledger_is_intact(&ledger));
    assert_int_equal(fcntl(stranger, F_GETFD), 0); /* not closed */
    close(stranger);
    assert_true(gc_ledger_is_held(&other, ledger.own));
    assert_false(gc_ledger_is_held(&ledger, ledger.own + 1));
    gc_ledger_close(&other);
}

/* It must not write to a file that it does not know, nor take rows from who may well live. */
static void a_strangers_descriptor_is_left_alone(void **state)
{
    const struct gc_ledger_device any = {.uuid = "GPU-any"};
    struct stat facts;
    char name[400];
    (void)state;
    open_ledger(&ledger);
    assert_true(gc_ledger_acquire_slot(&ledger));
    scratch_path(name, sizeof(name), base, "stranger");
    const int file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(file >= 0);
    const int stranger = ledger.fd;
    assert_int_equal(dup2(file, stranger), stranger);
    close(file);
    assert_int_equal(gc_ledger_find_or_add_device(&ledger, &any), GC_LEDGER_NONE);
    for (uint32_t i = 0; i < GC_LEDGER_GROUPS; i++)
        atomic_store(&ledger.file->groups[i].key, 1000 + i);
    assert_int_equal(gc_ledger_find_or_add_group(&ledger, "g"), GC_LEDGER_NONE);
    assert_int_equal(fstat(stranger, &facts), 0);
    assert_int_equal(facts.st_size, 0);
    assert_int_equal(facts.st_blocks, 0);
    assert_true(gc_ledger_repair(&ledger));
    assert_int_not_equal(gc_ledger_find_or_add_device(&ledger, &any), GC_LEDGER_NONE);
    assert_int_not_equal(gc_ledger_find_or_add_group(&ledger, "g"), GC_LEDGER_NONE);
    close(stranger);
    unlink(name);
}

static void a_removed_file_is_noticed(void **state)
{
    struct gc_ledger other;
    (void)state;
    open_ledger(&ledger);
    assert_false(gc_ledger_is_removed(&ledger));
    assert_int_equal(unlink(path), 0);
    assert_true(gc_ledger_is_removed(&ledger));
    assert_true(gc_ledger_is_intact(&ledger));
    open_ledger(&other);
    assert_true(gc_ledger_is_removed(&ledger));
    assert_false(gc_ledger_is_removed(&other));
    gc_ledger_close(&other);
}

static void a_full_ledger_is_reported(void **state)
{
    struct gc_ledger filler, one_more;
    (void)state;
    open_ledger(&filler);
    struct flock all = {.l_type = F_WRLCK,
                        .l_whence = SEEK_SET,
                        .l_start = GC_LEDGER_LOCK_BASE,
                        .l_len = GC_LEDGER_SLOTS};
    assert_int_equal(fcntl(filler.fd, F_OFD_SETLK, &all), 0);
    open_ledger(&one_more);
    assert_false(gc_ledger_acquire_slot(&one_more));
    gc_ledger_close(&filler);
    assert_true(gc_ledger_acquire_slot(&one_more));
    gc_ledger_close(&one_more);
}

static void a_thousand_processes_have_room(void **state)
{
    static struct gc_ledger many[1100];
    struct rlimit files;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    const size_t count = files.rlim_cur >= 1200 ? 1100 : files.rlim_cur - 64;
    for (size_t i = 0; i < count; i++) {
        open_ledger(&many[i]);
        assert_true(gc_ledger_acquire_slot(&many[i]));
        assert_int_equal(many[i].own, i);
    }
    for (size_t i = 0; i < count; i++)
        gc_ledger_close(&many[i]);
}

/* ---- accounts ---- */

static const struct gc_ledger_device device = {.uuid = "GPU-test", .total_bytes = 1 << 20};

static void open_account(struct gc_ledger *opened, struct gc_account *account)
{
    open_ledger(opened);
    assert_true(gc_ledger_acquire_slot(opened));
    identify(opened);
    atomic_store(&opened->file->group_keys[opened->own], gc_ledger_key("g"));
    assert_true(gc_account_open(account, opened, &device, "g"));
}

static void members_share_a_limit(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, theirs;
    (void)state;
    open_account(&ledger, &mine);
    open_account(&other, &theirs);
    assert_int_equal(gc_account_limit(&mine), UINT64_MAX);
    gc_account_set_limit(&mine, LIMIT);
    assert_false(gc_account_set_first_limit(&theirs, LIMIT * 2));
    assert_int_equal(gc_account_limit(&theirs), LIMIT);
    assert_true(gc_account_try_charge(&mine, 600));
    assert_false(gc_account_try_charge(&theirs, 401));
    assert_true(gc_account_try_charge(&theirs, 400));
    assert_int_equal(gc_account_held(&mine), LIMIT);
    gc_account_force_charge(&theirs, 50);
    assert_int_equal(gc_account_held(&mine), LIMIT + 50);
    gc_account_uncharge(&mine, 600);
    assert_int_equal(gc_account_of(&mine, mine.ledger->own), 0);
    assert_int_equal(gc_account_held(&mine), 450);
    gc_account_uncharge(&theirs, 1000);
    assert_int_equal(gc_account_held(&mine), 0);
    gc_ledger_close(&other);
}

static void a_groups_peak_outlives_its_processes(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, theirs;
    struct gc_ledger_group group;
    (void)state;
    open_account(&ledger, &mine);
    open_account(&other, &theirs);
    gc_account_set_limit(&mine, LIMIT);
    assert_true(gc_account_try_charge(&mine, 600));
    assert_false(gc_account_try_charge(&theirs, 401));
    assert_true(gc_account_try_charge(&theirs, 300));
    gc_account_uncharge(&theirs, 300);
    assert_true(gc_account_try_charge(&theirs, 200));
    gc_ledger_close(&other);
    const uint32_t row = gc_ledger_find_group(&ledger, "g");
    const uint32_t at = atomic_load(&mine.device_row);
    assert_true(gc_ledger_read_group(&ledger, row, &group));
    assert_int_equal(group.held[at], 600);
    assert_int_equal(group.peaks[at], 900);
    gc_account_force_charge(&mine, LIMIT);
    assert_true(gc_ledger_read_group(&ledger, row, &group));
    assert_int_equal(group.peaks[at], 600 + LIMIT);
}

/* ---- counters ---- */

static void count(struct gc_ledger *of, uint32_t at, enum gc_ledger_figure figure, uint64_t by)
{
    atomic_fetch_add(&gc_ledger_own_slot(of)->figures[at].words[figure], by);
}

static struct gc_ledger_totals totals_of(const char *group, uint32_t at)
{
    static struct gc_ledger_totals totals[GC_LEDGER_DEVICES];
    struct gc_ledger_turn_totals turns;
    const uint32_t row = group != NULL ? gc_ledger_find_group(&ledger, group) : GC_LEDGER_GROUPS;
    gc_ledger_read_totals(&ledger, row, totals, &turns);
    return totals[at];
}

static void counters_outlive_their_process(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, theirs;
    (void)state;
    open_account(&ledger, &mine);
    open_account(&other, &theirs);
    const uint32_t at = gc_account_row(&mine);
    count(&ledger, at, GC_LEDGER_FIGURE_alloc_count, 5);
    count(&other, at, GC_LEDGER_FIGURE_alloc_count, 7);
    count(&other, at, GC_LEDGER_FIGURE_oom_count, 2);
    assert_int_equal(totals_of("g", at).alloc_count, 12);
    for (int i = 0; i < 3; i++) { /* its slot is taken again and again */
        gc_ledger_close(&other);
        assert_int_equal(totals_of("g", at).alloc_count, 12 + 7 * i);
        open_account(&other, &theirs);
        assert_int_equal(totals_of("g", at).alloc_count, 12 + 7 * i);
        count(&other, at, GC_LEDGER_FIGURE_alloc_count, 7);
    }
    assert_int_equal(totals_of("g", at).alloc_count, 33);
    assert_int_equal(totals_of("g", at).oom_count, 2);
    assert_int_equal(totals_of(NULL, at).alloc_count, 0);
    gc_ledger_close(&other);
}

/* Children take slots, count and are gone, while a reader looks: no total is ever below an earlier
 * one, and at the end it has all. */
static void counters_never_fall_while_processes_come_and_go(void **state)
{
    struct gc_account mine;
    uint64_t before = 0;
    int status;
    (void)state;
    open_account(&ledger, &mine);
    const uint32_t at = gc_account_row(&mine);
    for (int i = 0; i < CHILDREN; i++)
        if (fork() == 0) {
            for (int k = 0; k < 200; k++) {
                struct gc_ledger own;
                struct gc_account account;
                open_account(&own, &account);
                count(&own, at, GC_LEDGER_FIGURE_hit_count, 3);
                gc_ledger_close(&own);
            }
            _exit(0);
        }
    for (int left = CHILDREN; left > 0;) {
        const uint64_t now = totals_of("g", at).hit_count;
        assert_true(now >= before);
        before = now;
        left -= waitpid(-1, &status, WNOHANG) > 0 ? 1 : 0;
    }
    assert_int_equal(totals_of("g", at).hit_count, CHILDREN * 200 * 3);
}

/* ---- guarantees ---- */

static void a_guarantee_is_kept_free(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, theirs;
    (void)state;
    open_account(&ledger, &mine);
    open_account(&other, &theirs);
    gc_account_set_limit(&mine, LIMIT);
    gc_account_set_guarantee(&mine, 400);
    assert_true(gc_account_try_charge(&theirs, 600));
    assert_false(gc_account_has_room(&theirs, 1));
    assert_false(gc_account_try_charge(&theirs, 1));
    assert_int_equal(gc_account_kept(&theirs, 1), 400);
    assert_true(gc_account_try_charge(&mine, 400));
    assert_false(gc_account_try_charge(&mine, 1));
    gc_account_uncharge(&theirs, 200);
    gc_account_set_guarantee(&theirs, 500); /* 400 of it used */
    assert_true(gc_account_try_charge(&mine, 100));
    assert_false(gc_account_try_charge(&mine, 1)); /* 500 and their 500 */
    assert_true(gc_account_try_charge(&theirs, 100));
    gc_account_uncharge(&mine, 500);
    assert_true(gc_account_try_charge(&theirs, 100)); /* beyond its own */
    assert_false(gc_account_try_charge(&theirs, 1));
    gc_ledger_close(&other);
}

static void a_dead_process_guarantees_nothing(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, theirs;
    bool has_dying;
    (void)state;
    open_account(&ledger, &mine);
    open_account(&other, &theirs);
    gc_account_set_limit(&mine, LIMIT);
    gc_account_set_guarantee(&theirs, 700);
    assert_false(gc_account_try_charge(&mine, 400));
    gc_ledger_close(&other);
    while (gc_account_reap(&ledger, gc_account_row(&mine), mine.group_key, &has_dying) == 0 &&
           has_dying)
        usleep(1000);
    assert_true(gc_account_try_charge(&mine, 400));
}

/* Children with guarantees that sum to the limit charge and uncharge at random, beyond them, too: a
 * charge within a guarantee never fails, and the sum stays within the limit. */
static void what_is_guaranteed_can_be_had_at_any_time(void **state)
{
    enum { PEERS = 4, SHARE = LIMIT / PEERS };
    struct gc_account mine;
    int status;
    (void)state;
    atomic_uint *ready =
        mmap(NULL, sizeof(*ready), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ready != MAP_FAILED);
    open_account(&ledger, &mine);
    gc_account_set_limit(&mine, LIMIT);
    for (unsigned i = 0; i < PEERS; i++)
        if (fork() == 0) {
            struct scratch_random random = {i + 1};
            struct gc_ledger own;
            struct gc_account account;
            uint64_t held = 0;
            open_account(&own, &account);
            gc_account_set_guarantee(&account, SHARE);
            atomic_fetch_add(ready, 1);
            while (atomic_load(ready) < PEERS)
                usleep(100);
            for (int k = 0; k < 30000; k++) {
                const uint64_t bytes = 1 + scratch_next(&random) % SHARE;
                if (scratch_next(&random) % 2 == 0 && held > 0) {
                    const uint64_t less = 1 + scratch_next(&random) % held;
                    gc_account_uncharge(&account, less);
                    held -= less;
                } else if (gc_account_try_charge(&account, bytes)) {
                    held += bytes;
                } else if (held + bytes <= SHARE) {
                    _exit(1);
                }
            }
            _exit(0);
        }
    for (int i = 0; i < PEERS; i++) {
        assert_true(waitpid(-1, &status, 0) > 0);
        assert_int_equal(status, 0);
    }
    munmap(ready, sizeof(*ready));
}

static void a_tentative_charge_of_another_is_no_failure(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, theirs;
    (void)state;
    open_account(&other, &theirs);
    open_account(&ledger, &mine);
    gc_account_set_limit(&mine, LIMIT);
    /* As if it stood still in the middle of a reservation. */
    gc_account_force_charge(&theirs, LIMIT);
    gc_ledger_word *tentative = &ledger.file->tentative[atomic_load(&mine.device_row)][other.own];
    atomic_fetch_add(tentative, LIMIT);
    assert_false(gc_account_try_charge(&mine, 1)); /* after a bounded number of attempts */
    assert_int_equal(gc_account_of(&mine, mine.ledger->own), 0);
    gc_account_uncharge(&theirs, LIMIT);
    atomic_fetch_sub(tentative, LIMIT);
    assert_true(gc_account_try_charge(&mine, LIMIT));
    gc_ledger_close(&other);
}

/* A child announces all of the limit; 100 ms later, as if preempted, it decides against itself, or
 * ends undecided. */
static void a_charge_waits_for_one_that_is_undecided(void **state)
{
    struct gc_account mine;
    (void)state;
    open_account(&ledger, &mine);
    gc_account_set_limit(&mine, LIMIT);
    for (int ends = 0; ends < 2; ends++) {
        const pid_t pid = fork();
        if (pid == 0) {
            struct gc_ledger own;
            struct gc_account account;
            open_account(&own, &account);
            gc_ledger_word *tentative =
                &own.file->tentative[atomic_load(&account.device_row)][own.own];
            atomic_fetch_add(tentative, LIMIT);
            gc_account_force_charge(&account, LIMIT);
            usleep(100000);
            if (ends)
                _exit(0);
            gc_account_uncharge(&account, LIMIT);
            atomic_fetch_sub(tentative, LIMIT);
            _exit(0);
        }
        while (gc_account_held(&mine) == 0)
            usleep(100);
        assert_true(gc_account_try_charge(&mine, LIMIT));
        gc_account_uncharge(&mine, LIMIT);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

static void rows_that_were_taken_away_are_taken_again(void **state)
{
    struct gc_account mine;
    (void)state;
    open_account(&ledger, &mine);
    gc_account_set_limit(&mine, LIMIT);
    assert_true(gc_account_try_charge(&mine, 300));
    atomic_store(&ledger.file->devices[atomic_load(&mine.device_row)].key, 77);
    atomic_store(&ledger.file->groups[atomic_load(&mine.group_row)].key, 78);
    assert_false(gc_account_try_charge(&mine, 701));
    assert_true(gc_account_try_charge(&mine, 700));
    assert_int_equal(gc_account_limit(&mine), LIMIT);
    assert_int_equal(gc_account_of(&mine, mine.ledger->own), LIMIT);
}

static atomic_uint_fast64_t *physical; /* what all hold now, shared with the children */

static void reserve_at_random(unsigned number)
{
    struct gc_account account;
    unsigned seed = number;
    open_and_claim(number);
    identify(&ledger);
    atomic_store(&ledger.file->group_keys[ledger.own], gc_ledger_key("g"));
    REQUIRE(gc_account_open(&account, &ledger, &device, "g"));
    for (int i = 0; i < 20000; i++) {
        const uint64_t bytes = (uint64_t)rand_r(&seed) % (LIMIT / 2) + 1;
        if (!gc_account_try_charge(&account, bytes))
            continue;
        REQUIRE(atomic_fetch_add(physical, bytes) + bytes <= LIMIT);
        atomic_fetch_sub(physical, bytes);
        gc_account_uncharge(&account, bytes);
    }
    pause();
}

static uint64_t decided_sum(const struct gc_account *account)
{
    bool has_dying;
    gc_account_reap(&ledger, atomic_load(&account->device_row), account->group_key, &has_dying);
    assert_false(has_dying);
    return gc_account_sum(&ledger, atomic_load(&account->device_row), account->group_key);
}

static void the_sum_never_exceeds_the_limit(void **state)
{
    struct gc_account account;
    pid_t pids[CHILDREN];
    (void)state;
    physical = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    open_account(&ledger, &account);
    gc_account_set_limit(&account, LIMIT);
    for (unsigned i = 0; i < CHILDREN; i++)
        pids[i] = run_child(reserve_at_random, i + 1);
    usleep(1500000);
    for (unsigned i = 0; i < CHILDREN; i++) {
        assert_int_equal(waitpid(pids[i], NULL, WNOHANG), 0); /* none saw anything wrong */
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    assert_int_equal(decided_sum(&account), 0);
    assert_true(gc_account_try_charge(&account, LIMIT));
    munmap((void *)physical, 4096);
}

static void reserve_and_be_killed(unsigned number)
{
    struct gc_account account;
    unsigned seed = number;
    open_and_claim(number);
    identify(&ledger);
    atomic_store(&ledger.file->group_keys[ledger.own], gc_ledger_key("g"));
    REQUIRE(gc_account_open(&account, &ledger, &device, "g"));
    for (;;) {
        const uint64_t bytes = (uint64_t)rand_r(&seed) % (LIMIT / 2) + 1;
        if (gc_account_try_charge(&account, bytes) && rand_r(&seed) % 4 != 0)
            gc_account_uncharge(&account, bytes);
    }
}

static void nothing_stays_of_who_is_killed_anywhere(void **state)
{
    struct gc_account account;
    (void)state;
    open_account(&ledger, &account);
    gc_account_set_limit(&account, LIMIT);
    for (unsigned round = 0; round < 60; round++) {
        pid_t pids[3];
        for (unsigned i = 0; i < 3; i++)
            pids[i] = run_child(reserve_and_be_killed, round * 3 + i + 1);
        usleep(1000 + round * 97 % 5000);
        for (unsigned i = 0; i < 3; i++) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], NULL, 0);
        }
        assert_int_equal(decided_sum(&account), 0);
        assert_true(gc_account_try_charge(&account, LIMIT));
        gc_account_uncharge(&account, LIMIT);
    }
}

/* Whose slot it was. */
static void pretend(uint32_t slot, uint32_t pid)
{
    atomic_store(&gc_ledger_get_slot(&ledger, slot)->start_ticks, gc_ledger_start_ticks(pid));
    atomic_store(&gc_ledger_get_slot(&ledger, slot)->pid, pid);
}

/* An equal number, started at the same time, and nobody holds the slot: it was this process. */
static void what_it_held_before_it_executed_another_program_is_gone(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, before;
    bool has_dying;
    (void)state;
    open_account(&other, &before);
    open_account(&ledger, &mine);
    gc_account_set_limit(&mine, LIMIT);
    assert_true(gc_account_try_charge(&before, LIMIT));
    gc_ledger_close(&other);
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), LIMIT);
    assert_false(has_dying);
    assert_true(gc_account_try_charge(&mine, LIMIT));
}

static void a_death_noted_late_is_not_the_next_owners(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, theirs;
    bool has_dying;
    (void)state;
    open_account(&ledger, &mine);
    open_account(&other, &theirs);
    gc_account_force_charge(&theirs, 500);
    const uint32_t slot = other.own;
    /* Long ago, of the owner before this one. */
    atomic_store(&gc_ledger_get_slot(&ledger, slot)->death_ns, (uint64_t)1 << 17 | 0x7777);
    gc_ledger_close(&other);
    pretend(slot, (uint32_t)getppid());
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), 0);
    assert_true(has_dying);
    atomic_store(&gc_ledger_get_slot(&ledger, slot)->start_ticks, 1);
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), 500);
}

static void what_a_new_owner_holds_is_not_reaped(void **state)
{
    struct gc_ledger other;
    struct gc_account mine, theirs;
    bool has_dying;
    (void)state;
    open_account(&ledger, &mine);
    open_account(&other, &theirs);
    gc_account_force_charge(&theirs, 500);
    gc_ledger_close(&other);
    /* The kernel still shows its process: say, the one that runs this. */
    pretend(ledger.own + 1, (uint32_t)getppid());
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), 0);
    assert_true(has_dying);
    struct gc_ledger third;
    open_ledger(&third);
    assert_true(gc_ledger_acquire_slot(&third));
    assert_int_equal(third.own, ledger.own + 2); /* not given to others either */
    gc_ledger_close(&third);
    atomic_store(&gc_ledger_get_slot(&ledger, ledger.own + 1)->start_ticks, 1); /* it is no more */
    open_account(&other, &theirs);
    assert_int_equal(other.own, ledger.own + 1);
    assert_int_equal(gc_account_of(&theirs, theirs.ledger->own), 0);
    gc_account_force_charge(&theirs, 300);
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), 0);
    assert_int_equal(gc_account_of(&theirs, theirs.ledger->own), 300);
    /* A process of another namespace: while it holds its slot it is never given up for dead. */
    atomic_store(&gc_ledger_own_slot(&other)->pid_namespace, 1);
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), 0);
    usleep(150000);
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), 0);
    assert_false(has_dying);
    /* It is gone: after a while. */
    gc_ledger_close(&other);
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), 0);
    usleep(150000);
    assert_int_equal(gc_account_reap(&ledger, 0, mine.group_key, &has_dying), 300);
}

/* ---- asking ---- */

static void serve_two_requests(unsigned number)
{
    open_and_claim(number);
    struct gc_ledger_slot *slot = gc_ledger_own_slot(&ledger);
    uint32_t served = atomic_load(&slot->served);
    identify(&ledger);
    for (int i = 0; i < 2; i++) {
        while (atomic_load(&slot->control) == served)
            gc_ledger_wait_request(&ledger, served, UINT32_MAX);
        const uint32_t control = atomic_load(&slot->control);
        const uint32_t requests = atomic_exchange(&slot->requests, 0);
        if ((requests & 1U << GC_REQUEST_TRIM) != 0)
            gc_ledger_respond(&ledger, GC_REQUEST_TRIM, GC_RESPONSE_DONE, "trimmed");
        if ((requests & 1U << GC_REQUEST_PAUSE) != 0)
            gc_ledger_respond(&ledger, GC_REQUEST_PAUSE, GC_RESPONSE_REFUSED, slot->request_tenant);
        gc_ledger_set_served(&ledger, served = control);
    }
    pause();
}

static void requests_are_answered(void **state)
{
    struct gc_ledger_process process;
    struct gc_ledger_ticket ticket;
    struct gc_ledger_request request = {.kind = GC_REQUEST_TRIM};
    char text[GC_LEDGER_RESPONSE_BYTES];
    (void)state;
    open_ledger(&ledger);
    const pid_t pid = run_child(serve_two_requests, 0);
    await_process(0, &process);
    assert_true(gc_ledger_send_request(&ledger, 0, process.generation, &request, &ticket));
    assert_int_equal(gc_ledger_wait_response(&ledger, &ticket, PATIENCE_MS, text),
                     GC_RESPONSE_DONE);
    assert_string_equal(text, "trimmed");
    request = (struct gc_ledger_request){.kind = GC_REQUEST_PAUSE, .tenant = "llama"};
    assert_true(gc_ledger_send_request(&ledger, 0, process.generation, &request, &ticket));
    assert_int_equal(gc_ledger_wait_response(&ledger, &ticket, PATIENCE_MS, text),
                     GC_RESPONSE_REFUSED);
    assert_string_equal(text, "llama");
    /* It listens no more. */
    assert_true(gc_ledger_send_request(&ledger, 0, process.generation, &request, &ticket));
    assert_int_equal(gc_ledger_wait_response(&ledger, &ticket, 30, text), GC_RESPONSE_NONE);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(gc_ledger_wait_response(&ledger, &ticket, PATIENCE_MS, text),
                     GC_RESPONSE_ENDED);
    assert_false(gc_ledger_send_request(&ledger, 0, process.generation, &request, &ticket));
}

/* ---- garbage ---- */

static void read_everything(void)
{
    struct gc_ledger_process process;
    struct gc_ledger_figures figures;
    struct gc_ledger_tenant tenant;
    struct gc_ledger_device found;
    static struct gc_ledger_group group;
    for (uint32_t i = 0; i <= GC_LEDGER_SLOTS; i += 37) {
        (void)gc_ledger_read_process(&ledger, i, &process);
        for (uint32_t j = 0; j <= GC_LEDGER_DEVICES; j += 16)
            (void)gc_ledger_read_figures(&ledger, i, j, &figures);
        for (uint32_t j = 0; j <= GC_LEDGER_TENANTS; j++)
            if (gc_ledger_read_tenant(&ledger, i, j, &tenant))
                assert_true(strlen(tenant.name) < sizeof(tenant.name));
    }
    for (uint32_t i = 0; i <= GC_LEDGER_DEVICES; i++)
        if (gc_ledger_read_device(&ledger, i, &found))
            assert_true(strlen(found.uuid) < sizeof(found.uuid));
    for (uint32_t i = 0; i <= GC_LEDGER_GROUPS; i += 51)
        if (gc_ledger_read_group(&ledger, i, &group))
            assert_true(strlen(group.name) < sizeof(group.name));
}

static void garbage_harms_nobody(void **state)
{
    struct scratch_random random = {42};
    struct gc_account account;
    (void)state;
    open_account(&ledger, &account);
    gc_account_set_limit(&account, LIMIT);
    unsigned char *bytes = (unsigned char *)ledger.file;
    for (int round = 0; round < 3; round++) {
        for (size_t i = offsetof(struct gc_ledger_file, slot_high);
             i < sizeof(struct gc_ledger_file); i += round == 0 ? 1 : 4096 - 8) {
            bytes[i] = (unsigned char)scratch_next(&random);
            if (round > 0)
                memset(bytes + i, (int)scratch_next(&random),
                       sizeof(struct gc_ledger_file) - i < 64 ? 1 : 64);
            if (round == 0 &&
                i > offsetof(struct gc_ledger_file, slots) + 4 * sizeof(struct gc_ledger_slot))
                break;
        }
        read_everything();
        (void)gc_account_try_charge(&account, 10);
        gc_account_force_charge(&account, UINT64_MAX);
        gc_account_uncharge(&account, UINT64_MAX);
        assert_true(gc_account_of(&account, account.ledger->own) <= GC_LEDGER_BYTES_MASK);
        (void)gc_ledger_find_or_add_group(&ledger, "another");
        (void)gc_ledger_limit_group(&ledger, "another", GC_LEDGER_NONE, 1);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(default_folder_is_of_the_node_where_its_place_is_sticky),
        CASE(nobody_there_is_no_error),
        CASE(folders_of_others_are_refused),
        CASE(files_that_are_no_ledger_are_refused),
        CASE(files_of_another_layout_are_refused),
        CASE(all_make_the_same_file),
        CASE(a_killed_process_leaves_its_slot),
        CASE(a_forked_child_does_not_hold_the_slot),
        CASE(slots_are_one_each),
        CASE(a_closed_descriptor_is_noticed),
        CASE(a_strangers_descriptor_is_left_alone),
        CASE(a_removed_file_is_noticed),
        CASE(a_full_ledger_is_reported),
        CASE(a_thousand_processes_have_room),
        CASE(members_share_a_limit),
        CASE(a_groups_peak_outlives_its_processes),
        CASE(counters_outlive_their_process),
        CASE(counters_never_fall_while_processes_come_and_go),
        CASE(a_guarantee_is_kept_free),
        CASE(a_dead_process_guarantees_nothing),
        CASE(what_is_guaranteed_can_be_had_at_any_time),
        CASE(a_tentative_charge_of_another_is_no_failure),
        CASE(a_charge_waits_for_one_that_is_undecided),
        CASE(rows_that_were_taken_away_are_taken_again),
        CASE(the_sum_never_exceeds_the_limit),
        CASE(nothing_stays_of_who_is_killed_anywhere),
        CASE(what_it_held_before_it_executed_another_program_is_gone),
        CASE(a_death_noted_late_is_not_the_next_owners),
        CASE(what_a_new_owner_holds_is_not_reaped),
        CASE(requests_are_answered),
        CASE(garbage_harms_nobody),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
