/* The advice of a report: each sentence with its figures, and none without them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/device/tenant.h"
#include "core/report/report.h"
#include "core/report/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note_sentence(void *argument, const char *sentence)
{
    char *all = argument;
    const size_t used = strlen(all);
    snprintf(all + used, 4096 - used, "%s\n", sentence);
}

static const struct gc_device_snapshot quiet = {
    .limit_bytes = UINT64_MAX, .group_limit_bytes = UINT64_MAX, .is_mapped = true};

static void assert_advice(const struct gc_device_snapshot *device, const char *wanted)
{
    char got[4096] = "";
    struct gc_device_snapshot copy = *device;
    struct gc_snapshot snapshot = {.device_count = 1, .devices = &copy};
    const struct gc_report report = {.snapshot = &snapshot};
    gc_report_advise(&report, note_sentence, got);
    assert_string_equal(got, wanted);
}

static void advice_names_the_size_that_would_have_fitted(void **state)
{
    struct gc_device_snapshot device = quiet;
    (void)state;
    assert_advice(&device, "");
    device.limit_bytes = UINT64_C(10) << 30;
    device.allocated.peak = UINT64_C(9) << 30;
    device.reserved = (struct gc_gauge){UINT64_C(10) << 30, UINT64_C(10) << 30};
    device.retry_count = 12;
    device.context.peak = device.direct_bytes[GC_DIRECT_CONTEXT] = UINT64_C(50) << 20;
    assert_advice(&device, "the limit was reached 12 times on device 0; idle memory was released; "
                           "the peak would fit in about 9.5 GiB\n");
    /* Non-pool memory is needed beside it. */
    device.direct_bytes[GC_DIRECT_POOL] = UINT64_C(350) << 20;
    assert_advice(&device, "the limit was reached 12 times on device 0; idle memory was released; "
                           "the peak would fit in about 9.9 GiB\n");
    device.direct_bytes[GC_DIRECT_POOL] = 0;
    device.retry_count = 0; /* an eighth less, or not worth a word */
    assert_advice(&device, "");
    device.allocated.peak = UINT64_C(8) << 30;
    assert_advice(&device,
                  "10.0 GiB were reserved on device 0, of which 8.0 GiB were in use at most; "
                  "the peak would fit in about 8.5 GiB\n");
    device.context.peak = device.direct_bytes[GC_DIRECT_CONTEXT] = 0;
    assert_advice(&device,
                  "10.0 GiB were reserved on device 0, of which 8.0 GiB were in use at most; "
                  "the peak would fit in about 8.4 GiB plus the context\n");
    device.reserved.current = UINT64_C(1) << 30; /* graphs may have had the rest */
    assert_advice(&device, "");
    device.reserved.current = device.reserved.peak;
    device.is_mapped = false; /* fragmentation takes more */
    assert_advice(&device, "");
}

static void advice_names_what_would_end_the_turns(void **state)
{
    struct gc_device_snapshot device = quiet;
    struct gc_snapshot snapshot = {.device_count = 1, .devices = &device, .takes_turns = true};
    struct gc_report report = {.snapshot = &snapshot,
                               .facts = {.duration_ns = UINT64_C(100000000000)}};
    static const struct {
        uint64_t exchanges, waited_ns, peak;
        const char *wanted;
    } rows[] = {
        {0, 0, 0, ""},
        {41, 999999999, UINT64_C(3) << 30, ""}, /* less than a hundredth of the run */
        {41, UINT64_C(12000000000), UINT64_C(3) << 30,
         "its memory was swapped 41 times, and it waited 12 % of the run for its turns: 3.0 GiB "
         "more in GPUCACHE_GROUP_LIMIT, or one process less in the group would keep it on the "
         "device\n"},
        {1, UINT64_C(1000000000), 0,
         "its memory was swapped 1 time, and it waited 1 % of the run for its turns: one process "
         "less in the group would keep it on the device\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char got[4096] = "";
        snapshot.turn = (struct gc_ledger_turn){.exchange_count = rows[i].exchanges,
                                                .waited_ns = rows[i].waited_ns};
        device.swapped.peak = rows[i].peak;
        gc_report_advise(&report, note_sentence, got);
        assert_string_equal(got, rows[i].wanted);
        snapshot.takes_turns = false;
        got[0] = '\0';
        gc_report_advise(&report, note_sentence, got);
        assert_string_equal(got, "");
        snapshot.takes_turns = true;
    }
}

static void advice_names_the_limit_that_ends_spilling(void **state)
{
    struct gc_device_snapshot device = quiet;
    (void)state;
    device.info.total_bytes = UINT64_C(16) << 30;
    device.limit_bytes = UINT64_C(8) << 30;
    device.allocated.peak = UINT64_C(10) << 30;
    device.reserved = (struct gc_gauge){UINT64_C(8) << 30, UINT64_C(8) << 30};
    device.spilled.peak = UINT64_C(3) << 30;
    device.context.peak = device.direct_bytes[GC_DIRECT_CONTEXT] = UINT64_C(50) << 20;
    assert_advice(&device, "3.0 GiB lay in host memory on device 0: a limit of 10.6 GiB would end "
                           "it\n");
    device.allocated.peak = UINT64_C(16) << 30;
    assert_advice(&device,
                  "3.0 GiB lay in host memory, which device 0 of 16.0 GiB has no room for: "
                  "request less, or use a larger device\n");
}

static void advice_names_a_full_device(void **state)
{
    struct gc_device_snapshot device = quiet;
    (void)state;
    device.allocated.peak = UINT64_C(8) << 30;
    device.reserved = (struct gc_gauge){UINT64_C(9) << 30, UINT64_C(9) << 30};
    device.info.total_bytes = UINT64_C(16) << 30;
    device.is_mapped = false;
    device.retry_count = 1;
    assert_advice(&device, "the device was full 1 time on device 0; idle memory was released\n");
    device.is_mapped = true;
    device.oom_count = 2; /* who knows what it needed */
    assert_advice(&device,
                  "2 requests ran out of memory on device 0: the program held at most 9.0 GiB "
                  "of 16.0 GiB; the program requested too much, or other programs use the rest\n"
                  "the device was full 1 time on device 0; idle memory was released\n");
}

static void advice_names_the_tenants_that_were_refused(void **state)
{
    struct gc_device_snapshot device = quiet;
    struct gc_tenant_figures tenants[] = {
        {.name = "one", .limit_bytes = UINT64_C(1) << 20, .oom_count = 2},
        {.name = "two", .limit_bytes = UINT64_MAX, .oom_count = 1},
        {.name = "three", .limit_bytes = UINT64_C(2) << 20}};
    (void)state;
    device.tenants = tenants;
    device.tenant_count = 3;
    device.oom_count = 3;
    device.limit_bytes = UINT64_C(1) << 30;
    assert_advice(&device,
                  "2 requests of tenant one ran out of memory on device 0: its limit is 1.0 "
                  "MiB\n1 request ran out of memory on device 0: raise GPUCACHE_LIMIT above "
                  "1.0 GiB, or request less\n");
    device.oom_count = 2;
    tenants[1].oom_count = 0;
    assert_advice(&device,
                  "2 requests of tenant one ran out of memory on device 0: its limit is 1.0 "
                  "MiB\n");
}

static void advice_on_plans_that_are_not_followed(void **state)
{
    struct gc_device_snapshot device = quiet;
    (void)state;
    device.plan.entry_count = 100;
    device.plan.followed_count = 900;
    device.plan.unmatched_count = 60;
    device.plan.occupied_count = 40;
    assert_advice(&device, "");
    device.plan.occupied_count = 80;
    assert_advice(
        &device,
        "140 of 1040 allocations did not follow the plan on device 0, 80 of "
        "them: place in use; make a plan of this run with GPUCACHE_TRACE and gpucache plan\n");
}

static void advice_on_frees_that_wait(void **state)
{
    static const struct gc_report_setting debug = {"GPUCACHE_DEBUG", "uaf"};
    struct gc_snapshot snapshot = {.free_latency = {.count = 3, .p50 = 720000}};
    struct gc_report report = {.snapshot = &snapshot, .facts = {.reuse = "sync"}};
    char got[4096] = "";
    (void)state;
    gc_report_advise(&report, note_sentence, got);
    assert_string_equal(
        got,
        "frees wait for the device (GPUCACHE_REUSE=sync), p50 720.0 us of 3 frees; GPUCACHE_REUSE=fence, the default, does not wait\n");
    got[0] = '\0';
    report.facts.settings = &debug; /* which wants it so */
    report.facts.setting_count = 1;
    gc_report_advise(&report, note_sentence, got);
    report.facts.setting_count = 0;
    report.facts.reuse = "fence";
    gc_report_advise(&report, note_sentence, got);
    assert_string_equal(got, "");
}

static void advice_on_fragmentation_and_misuse(void **state)
{
    struct gc_device_snapshot device = quiet;
    (void)state;
    device.free_bytes = UINT64_C(1) << 30;
    device.largest_free_bytes = UINT64_C(10) << 20;
    assert_advice(&device, "");
    device.is_mapped = false;
    assert_advice(&device,
                  "1.0 GiB are free in the cache on device 0, the largest free block 10.0 MiB: "
                  "GPUCACHE_BACKEND=vmm avoids that on devices that support it\n");
    device = quiet;
    device.invalid_free_count = 2;
    device.misuse_count = 1;
    device.leak_count = 1;
    device.leak_bytes = 2048;
    assert_advice(
        &device,
        "1 write to freed memory or past an end: the log on stderr names the blocks\n2 frees of "
        "addresses without a live allocation: a double free or a wrong address; "
        "GPUCACHE_DEBUG=uaf reports which\n1 allocation of 2.0 KiB was never freed on device "
        "0; GPUCACHE_STACKS=leaks shows their call stacks\n");
}

/* ---- call sites ---- */

static const char *const stacks[][5] = {
    {"/lib/x86_64-linux-gnu/libffi.so.8+0x6f7a", "ffi_call+0xcd (/lib/libffi.so.8+0x6b0d)",
     "step (/home/train.py:12)", "<module> (/home/train.py:90)", NULL},
    {"cudaMallocHelper+0x1 (/opt/app/libcudart.so.13+0x2)", "grow+0x10 (/opt/app/serve+0x345)",
     "main+0x4 (/opt/app/serve+0x99)", NULL},
    {"take (/usr/lib/python3/dist-packages/torch/cuda.py:7)",
     "empty (/home/me/venv/lib/python3.11/site-packages/torch/x.py:3)", "_run (<frozen runpy>:88)",
     NULL},
    {"malloc+0x3 (/lib64/libc.so.6+0x4)", "blas+0x3 (/usr/lib/libblas.so.3+0x4)",
     "/usr/bin/python3.11+0x77", NULL},
    {"/tmp/plugin.so+0x12", "load+0x1 (/usr/bin/app+0x2)", NULL},
    {"inner+0x1 (/usr/lib/x86_64-linux-gnu/libopencv.so.4+0x5)", "detect+0x2 (/home/me/app+0x9)",
     NULL},
    {"at+0x1 (/home/me/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so+0x5)",
     "scale+0x1 (/home/me/venv/lib/python3.11/site-packages/ops/_C.so+0x7)",
     "run+0x1 (/home/me/build/libmine.so+0x7)", NULL},
    {"0x7f0012", "/lib64/ld-linux-x86-64.so.2+0x1", NULL},
};

static bool stack_frame(const void *source, uint32_t site, uint32_t index,
                        char text[GC_STACK_TEXT_BYTES])
{
    (void)source;
    if (site == 0 || stacks[site - 1][index] == NULL)
        return false;
    snprintf(text, GC_STACK_TEXT_BYTES, "%s", stacks[site - 1][index]);
    return true;
}

static void a_site_is_named_by_the_programs_own_frame(void **state)
{
    static const char *const wanted[] = {"step (train.py:12)",   "grow+0x10 (serve)",
                                         "take (cuda.py:7)",     "blas+0x3 (libblas.so.3)",
                                         "plugin.so+0x12",       "detect+0x2 (app)",
                                         "run+0x1 (libmine.so)", "0x7f0012"};
    const struct gc_report report = {.stacks = {.frame = stack_frame}};
    char text[GC_STACK_TEXT_BYTES];
    (void)state;
    for (uint32_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        assert_true(gc_report_short_frame(&report, i + 1, text));
        assert_string_equal(text, wanted[i]);
    }
    assert_false(gc_report_short_frame(&report, 0, text));
}

static void leaks_are_grouped_by_site_and_entry_point(void **state)
{
    struct gc_leak_table table = {.slots = calloc(16, sizeof(*table.slots)), .slot_count = 16};
    (void)state;
    for (uint32_t i = 0; i < 512; i++)
        gc_leak_table_add(&table, &(struct gc_leak){.address = i, .bytes = 100, .site = 1});
    gc_leak_table_add(&table, &(struct gc_leak){.address = 600, .bytes = 90000, .site = 2});
    gc_leak_table_add(&table, &(struct gc_leak){.address = 601, .bytes = 7, .site = 2, .api = 3});
    gc_leak_table_add(&table, &(struct gc_leak){.address = 602, .bytes = 5, .api = 3});
    gc_leak_table_add(&table, &(struct gc_leak){.address = 603, .bytes = 5, .api = 3});
    gc_leak_table_add(&table, &(struct gc_leak){.address = 604, .bytes = 6, .api = 3});
    assert_int_equal(gc_leak_table_sort(&table), 5);
    const struct gc_leak_group *groups = table.slots;
    assert_int_equal(groups[0].bytes, 90000);
    assert_int_equal(groups[1].count, 512);
    assert_int_equal(groups[1].bytes, 51200);
    assert_int_equal(groups[1].largest_bytes, 100);
    assert_int_equal(groups[2].bytes, 10); /* without a stack: two of one size */
    assert_int_equal(groups[3].site, 2);
    assert_int_equal(groups[4].address, 604);
    free(table.slots);
    /* A table that is full leaves new groups out. */
    table = (struct gc_leak_table){.slots = calloc(4, sizeof(*table.slots)), .slot_count = 4};
    for (uint32_t i = 1; i <= 6; i++)
        gc_leak_table_add(&table, &(struct gc_leak){.bytes = i, .site = i});
    assert_int_equal(gc_leak_table_sort(&table), 3);
    free(table.slots);
}

/* ---- the verdict ---- */

static void assert_verdict(const struct gc_report *report, enum gc_verdict_kind kind,
                           const char *wanted)
{
    char text[GC_VERDICT_BYTES];
    assert_int_equal(gc_report_judge(report, text), kind);
    assert_string_equal(text, wanted);
}

/* Each problem is worse than those before it: it takes the verdict. */
static void the_worst_problem_is_the_verdict(void **state)
{
    const struct gc_leak_group groups[] = {{.count = 512, .bytes = UINT64_C(512) << 20, .site = 1},
                                           {.count = 1, .bytes = 9, .site = 2}};
    const struct gc_report_leaks leaks[] = {{.groups = groups, .group_count = 2}, {NULL}};
    const struct gc_report_estimate estimate = {.sizes = {.peak_bytes = UINT64_C(9) << 30},
                                                .budget_bytes = UINT64_C(8) << 30};
    struct gc_device_snapshot devices[] = {quiet, quiet};
    struct gc_snapshot snapshot = {
        .device_count = 2, .devices = devices, .free_latency = {.count = 3, .p50 = 720000}};
    struct gc_report report = {.snapshot = &snapshot,
                               .leaks = leaks,
                               .stacks = {.frame = stack_frame},
                               .facts = {.duration_ns = UINT64_C(100000000000)}};
    (void)state;
    devices[1].info.ordinal = 1;
    assert_verdict(&report, GC_VERDICT_NONE, "no problem found");
    report.facts.warning_count = 2;
    assert_verdict(&report, GC_VERDICT_NONE, "no problem found; 2 warnings");
    devices[1].retry_count = 3;
    assert_verdict(&report, GC_VERDICT_RETRIED,
                   "3 requests waited for idle memory to be released on device 1");
    report.facts.reuse = "sync";
    assert_verdict(&report, GC_VERDICT_WAITS,
                   "frees wait for the device, half of them 720.0 us and more");
    devices[0].plan =
        (struct gc_follow_figures){.entry_count = 9, .followed_count = 5, .occupied_count = 5};
    assert_verdict(&report, GC_VERDICT_PLAN,
                   "5 of 10 allocations did not follow the plan on device 0");
    devices[0].spilled.peak = UINT64_C(3) << 30;
    assert_verdict(&report, GC_VERDICT_SPILLED,
                   "3.0 GiB lay in host memory for want of room on device 0");
    snapshot.takes_turns = true;
    snapshot.turn =
        (struct gc_ledger_turn){.exchange_count = 41, .waited_ns = UINT64_C(12000000000)};
    assert_verdict(&report, GC_VERDICT_SWAPPED,
                   "waited for its turns 12 % of the run, its memory swapped 41 times");
    report.facts.estimate = &estimate;
    assert_verdict(&report, GC_VERDICT_GATE,
                   "the model's estimate of 9.0 GiB exceeds its budget of 8.0 GiB");
    devices[0].is_mapped = false;
    devices[0].free_bytes = UINT64_C(1) << 30;
    devices[0].largest_free_bytes = 10 << 20;
    assert_verdict(&report, GC_VERDICT_FRAGMENTATION,
                   "1.0 GiB are free in pieces of at most 10.0 MiB on device 0");
    devices[0].leak_count = 513;
    devices[0].leak_bytes = (UINT64_C(512) << 20) + 9;
    assert_verdict(&report, GC_VERDICT_LEAK,
                   "513 leaks of 512.0 MiB on device 0, 512 of them, 512.0 MiB, at step "
                   "(train.py:12)");
    devices[0].invalid_free_count = 1;
    assert_verdict(&report, GC_VERDICT_INVALID_FREE, "1 invalid free on device 0");
    devices[0].misuse_count = devices[1].misuse_count = 2;
    assert_verdict(&report, GC_VERDICT_MISUSE,
                   "2 writes to freed memory or past an end on device 0 (and 1 other)");
    devices[1].oom_count = 1;
    devices[1].info.total_bytes = UINT64_C(16) << 30;
    assert_verdict(&report, GC_VERDICT_REFUSED,
                   "out of memory: 1 request refused on device 1 of 16.0 GiB");
    devices[1].group_limit_bytes = UINT64_C(12) << 30;
    assert_verdict(&report, GC_VERDICT_REFUSED,
                   "out of memory: 1 request refused on device 1, limit of its group 12.0 GiB");
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advice_names_the_size_that_would_have_fitted),
        cmocka_unit_test(advice_names_what_would_end_the_turns),
        cmocka_unit_test(advice_names_the_limit_that_ends_spilling),
        cmocka_unit_test(advice_names_a_full_device),
        cmocka_unit_test(advice_names_the_tenants_that_were_refused),
        cmocka_unit_test(advice_on_plans_that_are_not_followed),
        cmocka_unit_test(advice_on_frees_that_wait),
        cmocka_unit_test(advice_on_fragmentation_and_misuse),
        cmocka_unit_test(a_site_is_named_by_the_programs_own_frame),
        cmocka_unit_test(leaks_are_grouped_by_site_and_entry_point),
        cmocka_unit_test(the_worst_problem_is_the_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
