/* The advice of a report: each sentence with its figures, and none without them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/device/tenant.h"
#include "core/report/report.h"

#include <stdio.h>
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
        "140 of 1040 allocations did not follow the plan on device 0, most of "
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
        "frees wait for the device (GPUCACHE_REUSE=sync), p50 720.0 us; GPUCACHE_REUSE=fence, the default, does not wait\n");
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
        "2 frees of addresses without a live allocation: a double free or a wrong address; GPUCACHE_DEBUG=uaf reports which\n1 write to freed memory or past an end: the log on "
        "stderr names the blocks\n1 allocation of 2.0 KiB was never freed on device "
        "0; GPUCACHE_STACKS=leaks shows their call stacks\n");
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
