/* Available host memory, from files of both layouts. */
#include "core/io/meminfo.h"
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static char root[64];

static void run(const char *command)
{
    assert_int_equal(system(command), 0); /* NOLINT: the test's own words */
}

static void put(const char *path, const char *text)
{
    char whole[512];
    char command[1100];
    (void)snprintf(whole, sizeof(whole), "%s/%s", root, path);
    (void)snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", whole);
    run(command);
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/gpucache-room-XXXXXX");
    if (mkdtemp(root) == NULL)
        return -1;
    put("proc/meminfo",
        "MemTotal: 67108864 kB\nMemFree: 1024 kB\nMemAvailable:   33554432 kB\nBuffers: 1 kB\n");
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
    run(command);
    return 0;
}

static void without_groups_it_is_the_machines(void **state)
{
    (void)state;
    assert_int_equal(gc_meminfo_available_under(root), 32 * GIB);
    put("proc/self/cgroup", "0::/\n");
    assert_int_equal(gc_meminfo_available_under(root), 32 * GIB);
}

static void the_kernel_without_figures(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 67108864 kB\n");
    assert_int_equal(gc_meminfo_available_under(root), 0);
}

static void a_container_sees_its_own_group(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "1073741824\n");
    put("sys/fs/cgroup/memory.current", "805306368\n");
    assert_int_equal(gc_meminfo_available_under(root), 256 * MIB);
    put("sys/fs/cgroup/memory.stat", "anon 1\ninactive_anon 7\ninactive_file 268435456\nx 1\n");
    assert_int_equal(gc_meminfo_available_under(root), 512 * MIB);
    put("sys/fs/cgroup/memory.current", "2073741824\n"); /* over it: lowered meanwhile */
    assert_int_equal(gc_meminfo_available_under(root), 0);
    put("sys/fs/cgroup/memory.max", "max\n");
    assert_int_equal(gc_meminfo_available_under(root), 32 * GIB);
}

static void a_group_above_counts(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
    put("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
    put("sys/fs/cgroup/slurm/job_7/step_0/memory.current", "4096\n");
    put("sys/fs/cgroup/slurm/job_7/memory.max", "4294967296\n");
    put("sys/fs/cgroup/slurm/job_7/memory.current", "1073741824\n");
    put("sys/fs/cgroup/slurm/memory.max", "8589934592\n");
    put("sys/fs/cgroup/slurm/memory.current", "0\n");
    assert_int_equal(gc_meminfo_available_under(root), 3 * GIB);
    put("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "1073741824\n");
    assert_int_equal(gc_meminfo_available_under(root), GIB - 4096);
}

static void the_older_layout(void **state)
{
    (void)state;
    put("proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n0::/\n");
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2147483648\n");
    put("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    assert_int_equal(gc_meminfo_available_under(root), MIB);
}

static void strange_files_are_no_limit(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/../..//a\n");
    put("sys/fs/cgroup/memory.max", "99999999999999999999999999\n");
    put("sys/fs/cgroup/memory.current", "x\n");
    assert_int_equal(gc_meminfo_available_under(root), 32 * GIB);
    char longest[6000];
    memset(longest, 'a', sizeof(longest) - 1);
    memcpy(longest, "0::/", 4);
    longest[sizeof(longest) - 1] = '\0';
    put("proc/self/cgroup", longest);
    assert_int_equal(gc_meminfo_available_under(root), 32 * GIB);
}

static void this_machine_has_some(void **state)
{
    (void)state;
    assert_true(gc_meminfo_available_bytes() > MIB);
    assert_true(gc_meminfo_available_bytes() < UINT64_C(1) << 60);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(without_groups_it_is_the_machines),
        CASE(the_kernel_without_figures),
        CASE(a_container_sees_its_own_group),
        CASE(a_group_above_counts),
        CASE(the_older_layout),
        CASE(strange_files_are_no_limit),
        CASE(this_machine_has_some),
    };
    return cmocka_run_group_tests_name("host_room", tests, NULL, NULL);
}
