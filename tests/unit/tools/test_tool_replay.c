/* Reading traces for a replay, each format's rules, and replaying them over the tool's device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/bits.h"
#include "tests/unit/scratch.h"
#include "tools/replay/replay_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct replay_trace trace;
static struct replay_error error;

static enum gc_status read_text(const char *text)
{
    return replay_trace_read(text, strlen(text), -1, &trace, &error);
}

static void refuses(const char *text, uint64_t line, const char *why)
{
    const enum gc_status status = read_text(text);
    replay_trace_fini(&trace);
    if (status != GC_FORMAT || error.line != line || strstr(error.text, why) == NULL)
        fail_msg("wanted line %llu: %s; got %d, line %llu: %s", (unsigned long long)line, why,
                 (int)status, (unsigned long long)error.line, error.text);
}

#define HEAD REPLAY_CSV_HEADER "\n"
#define RMM REPLAY_RMM_HEADER "\n"

/* ---- the CSV ---- */

static void a_csv_becomes_events_in_slots(void **state)
{
    (void)state;
    assert_int_equal(read_text(HEAD "a,10,100,0,5\r\na,11,200,7,6\n\nf,10,100,0,7\na,10,50,0,8\n"
                                    "f,11,0,7,9"),
                     GC_OK);
    assert_string_equal(trace.format, "CSV");
    assert_int_equal(trace.count, 6);
    assert_int_equal(trace.closing, 1);
    assert_int_equal(trace.allocs, 3);
    assert_int_equal(trace.slot_count, 2);
    assert_int_equal(trace.peak_live_bytes, 300);
    assert_int_equal(trace.events[0].bytes, 100);
    assert_int_equal(trace.events[1].stream, 7);
    assert_int_equal(trace.events[2].bytes, 0);
    assert_int_equal(trace.events[2].slot, trace.events[0].slot);
    assert_int_equal(trace.events[3].slot, trace.events[0].slot);
    assert_int_equal(trace.events[4].slot, trace.events[1].slot);
    assert_int_equal(trace.events[4].stream, 7);
    assert_int_equal(trace.events[5].slot, trace.events[0].slot);
    replay_trace_fini(&trace);
}

static void a_csv_with_a_mistake_names_its_line(void **state)
{
    (void)state;
    refuses("", 0, "the file is empty");
    refuses("hello\n", 0, "not a trace");
    refuses(REPLAY_CSV_HEADER ",more\n", 1, "the header is not");
    refuses(HEAD, 0, "has no allocation");
    refuses(HEAD "a,1,5,0\n", 2, "4 fields; accepted: op,id,bytes,stream,time_us");
    refuses(HEAD "a,1,5,0,0,0,0,0\n", 2, "8 fields");
    refuses(HEAD "b,1,5,0,0\n", 2, "op \"b\" is not valid; accepted: a (allocated), f (freed)");
    refuses(HEAD "a,1,5,0,0\n\na,-2,5,0,0\n", 4, "id \"-2\" is not valid");
    refuses(HEAD "a,1,0,0,0\n", 2, "bytes \"0\" is not valid");
    refuses(HEAD "a,1,18446744073709551616,0,0\n", 2, "bytes");
    refuses(HEAD "a,1,5,0x7,0\n", 2, "stream \"0x7\"");
    refuses(HEAD "a,1,5,0,\n", 2, "time_us \"\"");
    refuses(HEAD "a,1,5,0,0\na,1,5,0,0\n", 3, "allocation 1 is live already");
    refuses(HEAD "a,1,5,0,0\nf,1,5,0,0\nf,1,5,0,0\n", 4, "a free of 1, which is not live");
    refuses(HEAD "a,1,18446744073709551615,0,0\na,2,1,0,0\n", 0, "exceed 64 bits");
}

/* ---- RMM's log ---- */

static void an_rmm_log_is_read_as_what_happened(void **state)
{
    (void)state;
    assert_int_equal(read_text(RMM "1,10:00:00:000001,free,0x99,64,0\n"
                                   "1,10:00:00:000002,allocate,0x7f00,1000,0\n"
                                   "1,10:00:00:000003,allocate failure,(nil),99999,0x0\n"
                                   "2,10:00:00:000004,allocate,7A00,500,0x2a\n"
                                   "2,10:00:00:000005,allocate,(nil),0,0\n"
                                   "2,10:00:00:000006,allocate,0x7f00,10,0\n"
                                   "2,10:00:00:000007,free,0x7a00,500,42\n"),
                     GC_OK);
    assert_string_equal(trace.format, "RMM log");
    assert_int_equal(trace.allocs, 3);
    assert_int_equal(trace.unknown_frees, 1);
    assert_int_equal(trace.implied_frees, 1);
    assert_int_equal(trace.left_out, 2);
    assert_int_equal(trace.closing, 1);
    assert_int_equal(trace.peak_live_bytes, 1500);
    assert_int_equal(trace.events[1].stream, 42);
    replay_trace_fini(&trace);
    refuses(RMM "1,0,allocate,0x1\n", 2, "4 fields");
    refuses(RMM "1,0,realloc,0x1,5,0\n", 2, "action \"realloc\" is not valid; accepted: allocate");
    refuses(RMM "1,0,allocate,0xzz,5,0\n", 2, "pointer \"0xzz\"");
    refuses(RMM "1,0,allocate,0x11112222333344445,5,0\n", 2, "pointer");
    refuses(RMM "1,0,allocate,0x1,-5,0\n", 2, "size \"-5\"");
    refuses(RMM "1,0,allocate,0x1,5,beef\n", 2, "stream \"beef\"");
}

/* ---- the replay ---- */

static struct replay_result *result;

static struct replay_setup plain_setup(void)
{
    return (struct replay_setup){.mode = GC_MODE_CACHE,
                                 .backend = GC_BACKEND_DRIVER,
                                 .memory_bytes = GC_MIB(1024),
                                 .passes = 3,
                                 .threads = 1};
}

static void replay(const char *text, const struct replay_setup *setup)
{
    assert_int_equal(read_text(text), GC_OK);
    assert_int_equal(replay_run(&trace, setup, result), GC_OK);
    assert_null(result->fault);
}

#define THREE HEAD "a,1,4194304,0,0\na,2,1000,0,1\nf,1,0,0,2\na,3,4194304,0,3\nf,3,0,0,4\n"

static void the_driver_is_called_for_each_event_without_the_cache(void **state)
{
    struct replay_setup setup = plain_setup();
    (void)state;
    setup.mode = GC_MODE_TRACK;
    replay(THREE, &setup);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(result->passes[i].driver_calls, 6);
        assert_int_equal(result->passes[i].misses, 3);
        assert_int_equal(result->passes[i].hits, 0);
    }
    assert_int_equal(result->calls[REPLAY_CALL_ALLOC], 9);
    assert_int_equal(result->calls[REPLAY_CALL_FREE], 9);
    assert_int_equal(result->peak_live_bytes, 4194304 + 1000);
    assert_int_equal(result->peak_reserved_bytes, 4194304 + 1024);
    assert_int_equal(result->peak_handle_count, 2);
    replay_trace_fini(&trace);
}

static void the_cache_asks_for_memory_in_the_first_pass_only(void **state)
{
    struct replay_setup setup = plain_setup();
    (void)state;
    replay(THREE, &setup);
    assert_int_equal(result->passes[0].misses, 2);
    assert_int_equal(result->passes[0].hits, 1);
    assert_int_equal(result->passes[1].misses, 0);
    assert_int_equal(result->passes[1].hits, 3);
    assert_int_equal(result->peak_live_bytes, 4194304 + 1000);
    assert_int_equal(result->oom_count, 0);
    assert_true(result->limit_bytes == UINT64_MAX);
    replay_trace_fini(&trace);
}

static void a_limit_refuses_and_the_replay_goes_on(void **state)
{
    struct replay_setup setup = plain_setup();
    (void)state;
    setup.limit.count = 1;
    setup.limit.entries[0] = (struct gc_size_entry){.ordinal = -1, .bytes = GC_MIB(4)};
    replay(THREE, &setup);
    assert_int_equal(result->limit_bytes, GC_MIB(4));
    assert_true(result->peak_reserved_bytes <= GC_MIB(4));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(result->passes[i].ooms, 1);
    assert_int_equal(result->oom_count, 3);
    replay_trace_fini(&trace);
}

static void threads_replay_the_whole_trace_each(void **state)
{
    struct replay_setup setup = plain_setup();
    (void)state;
    setup.threads = 4;
    replay(THREE, &setup);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(result->passes[i].hits + result->passes[i].misses, 12);
    assert_true(result->peak_live_bytes <= 4 * (4194304 + 1000));
    replay_trace_fini(&trace);
}

/* ---- the device ---- */

static void the_device_refuses_what_a_driver_would(void **state)
{
    struct replay_device device;
    uint64_t range, page, other, calls, ns;
    const uint64_t unit = REPLAY_PAGE_BYTES;
    (void)state;
    replay_device_init(&device, 3 * unit);
    const struct gc_driver *driver = &device.table;
    assert_int_equal(driver->address_reserve(&device, 1, 4 * unit, unit, &range), 0);
    assert_int_equal(range % unit, 0);
    assert_int_equal(driver->page_create(&device, 1, unit, &page), 0);
    assert_int_equal(driver->page_create(&device, 1, unit, &other), 0);
    assert_int_equal(device.held_bytes, 2 * unit);
    assert_int_equal(driver->page_map(&device, 1, range, unit, page), 0);
    assert_int_equal(driver->page_map(&device, 1, range + unit, unit, page), 0); /* an alias */
    assert_int_equal(driver->page_set_access(&device, 1, range, 2 * unit, NULL, 0), 0);
    assert_null(device.first_fault);
    assert_int_not_equal(driver->page_map(&device, 1, range, unit, other), 0);
    assert_string_equal(device.first_fault, "a page mapped over another");
    assert_int_not_equal(driver->page_set_access(&device, 1, range, 3 * unit, NULL, 0), 0);
    assert_int_not_equal(driver->page_unmap(&device, 1, range, 3 * unit), 0);
    assert_int_equal(driver->page_release(&device, 1, page), 0);
    assert_int_not_equal(driver->page_release(&device, 1, page), 0);
    assert_int_equal(device.held_bytes, 2 * unit); /* still mapped */
    assert_int_equal(driver->page_unmap(&device, 1, range, unit), 0);
    assert_int_equal(device.held_bytes, 2 * unit);
    assert_int_equal(driver->page_unmap(&device, 1, range + unit, unit), 0);
    assert_int_equal(device.held_bytes, unit);
    assert_int_equal(driver->mem_alloc(&device, 1, 2 * unit + 1, &range), driver->out_of_memory);
    assert_int_equal(driver->mem_alloc(&device, 1, 2 * unit, &range), 0);
    assert_int_not_equal(driver->mem_free(&device, 1, range + 512), 0);
    assert_int_equal(driver->mem_free(&device, 1, range), 0);
    assert_int_equal(driver->mem_alloc(&device, 1, 2 * unit, &other), 0);
    assert_int_equal(other, range);
    assert_int_equal(device.peak_bytes, 3 * unit);
    assert_int_equal(device.fault_count, 5);
    replay_device_totals(&device, &calls, &ns);
    assert_int_equal(calls, 18);
    replay_device_fini(&device);
}

static uint64_t driver_us(struct replay_device *device)
{
    uint64_t calls, ns;
    replay_device_totals(device, &calls, &ns);
    return ns / 1000;
}

static void the_device_charges_by_the_handle_and_the_size(void **state)
{
    struct replay_device device;
    uint64_t range, one, two, plain;
    const uint64_t unit = REPLAY_PAGE_BYTES;
    uint64_t before;
    (void)state;
    replay_device_init(&device, GC_MIB(4096));
    const struct gc_driver *driver = &device.table;
    assert_int_equal(driver->address_reserve(&device, 1, 8 * unit, unit, &range), 0);
    assert_int_equal(driver_us(&device), 0);
    assert_int_equal(driver->page_create(&device, 1, unit, &one), 0);
    assert_int_equal(driver->page_create(&device, 1, GC_MIB(1024), &two), 0);
    assert_int_equal(driver->page_release(&device, 1, two), 0);
    before = driver_us(&device);
    assert_in_range(before, 29 + 29 + 23 + 350, 29 + 29 + 23 + 352);
    assert_int_equal(driver->page_create(&device, 1, 3 * unit, &two), 0);
    before = driver_us(&device);
    assert_int_equal(driver->page_map(&device, 1, range, unit, one), 0);
    assert_int_equal(driver->page_map(&device, 1, range + unit, 3 * unit, two), 0);
    assert_int_equal(driver_us(&device), before + 2 + 2);
    assert_int_equal(driver->page_set_access(&device, 1, range, 4 * unit, NULL, 0), 0);
    assert_int_equal(driver_us(&device), before + 4 + 38 + 38);
    assert_int_equal(driver->page_set_access(&device, 1, range + unit, 3 * unit, NULL, 0), 0);
    assert_int_equal(driver_us(&device), before + 80 + 38);
    assert_int_equal(driver->page_unmap(&device, 1, range, 4 * unit), 0);
    assert_int_equal(driver_us(&device), before + 118 + 34 + 34);
    assert_int_equal(device.peak_handle_count, 2);
    assert_int_equal(driver->mem_alloc(&device, 1, GC_MIB(1) + 1, &plain), 0);
    assert_int_equal(device.held_bytes, 4 * unit + unit);
    assert_int_equal(device.peak_handle_count, 3);
    before = driver_us(&device);
    assert_int_equal(driver->mem_free(&device, 1, plain), 0);
    assert_int_equal(driver_us(&device), before + 60);
    assert_null(device.first_fault);
    replay_device_fini(&device);
}

static int open_result(void **state)
{
    (void)state;
    result = calloc(1, sizeof(*result));
    return result == NULL;
}

static int close_result(void **state)
{
    (void)state;
    free(result);
    return 0;
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_csv_becomes_events_in_slots),
        cmocka_unit_test(a_csv_with_a_mistake_names_its_line),
        cmocka_unit_test(an_rmm_log_is_read_as_what_happened),
        cmocka_unit_test(the_driver_is_called_for_each_event_without_the_cache),
        cmocka_unit_test(the_cache_asks_for_memory_in_the_first_pass_only),
        cmocka_unit_test(a_limit_refuses_and_the_replay_goes_on),
        cmocka_unit_test(threads_replay_the_whole_trace_each),
        cmocka_unit_test(the_device_refuses_what_a_driver_would),
        cmocka_unit_test(the_device_charges_by_the_handle_and_the_size),
    };
    return cmocka_run_group_tests(tests, open_result, close_result);
}
