/* `gpucache top` on made-up readings: sums, order, cells and lines of any width, JSON. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/scratch.h"
#include "tools/live/top_look.h"
#include "tools/live/top_prompt.h"
#include "tools/live/top_text.h"

#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define MIB (UINT64_C(1) << 20)

static const struct top_order by_reserved = {.sort = TOP_SORT_RESERVED, .device = TOP_NONE};

static size_t add_process(struct top_view *view, int pid, const char *name, const char *group)
{
    struct top_subject subject = {.kind = TOP_PROCESS, .pid = pid, .key = (uint64_t)pid};
    snprintf(subject.name, sizeof(subject.name), "%s", name);
    snprintf(subject.group, sizeof(subject.group), "%s", group);
    return top_view_add(view, &subject);
}

static size_t add_named(struct top_view *view, enum top_kind kind, const char *name, size_t parent)
{
    struct top_subject subject = {
        .kind = kind, .parent = parent, .key = view->subject_count + 9999};
    snprintf(subject.name, sizeof(subject.name), "%s", name);
    if (kind == TOP_TENANT)
        memcpy(subject.group, view->subjects[parent].group, sizeof(subject.group));
    return top_view_add(view, &subject);
}

static void charge(struct top_view *view, size_t subject, size_t device, uint64_t mib,
                   uint64_t limit)
{
    const struct gc_ledger_figures figures = {.requested = mib * MIB / 2,
                                              .allocated = mib * MIB / 4 * 3,
                                              .reserved = mib * MIB,
                                              .idle = mib * MIB / 4,
                                              .limit = limit,
                                              .peak = 2 * mib * MIB,
                                              .hit_count = 3 * mib,
                                              .miss_count = mib};
    top_view_add_account(view, subject, device, &figures);
}

/* Two devices, a group of two processes with a limit on the first, one with tenants, one alone. */
static void make_view(struct top_view *view)
{
    top_view_init(view);
    top_view_add_device(view, &(struct top_device){.uuid = "GPU-0", .name = "First", .number = 0});
    top_view_add_device(view, &(struct top_device){.uuid = "GPU-1", .number = 4});
    const size_t group = add_named(view, TOP_GROUP, "train", 0);
    top_view_add_account(view, group, 0, &(struct gc_ledger_figures){.limit = 1024 * MIB});
    const size_t one = add_process(view, 100, "one", "train");
    charge(view, one, 0, 100, 200 * MIB);
    charge(view, one, 1, 300, TOP_NO_LIMIT);
    const size_t small = add_named(view, TOP_TENANT, "small", one);
    charge(view, small, 0, 10, TOP_NO_LIMIT);
    const size_t large = add_named(view, TOP_TENANT, "large", one);
    charge(view, large, 0, 90, 95 * MIB);
    charge(view, large, 1, 300, TOP_NO_LIMIT);
    charge(view, add_process(view, 200, "two", "train"), 0, 200, TOP_NO_LIMIT);
    charge(view, add_process(view, 300, "alone", ""), 1, 50, TOP_NO_LIMIT);
    assert_int_equal(top_view_close(view), GC_OK);
}

static const struct top_subject *subject_at(const struct top_view *view, size_t account)
{
    return &view->subjects[view->accounts[account].subject];
}

/* "name@device" of every row in order. */
static void order_is(const struct top_view *view, const struct top_order *order, const char *wanted)
{
    char text[1024] = "";
    size_t count;
    size_t *rows = top_view_sort(view, order, &count);
    assert_non_null(rows);
    for (size_t i = 0; i < count; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%s@%zu", i > 0 ? " " : "",
                 subject_at(view, rows[i])->name, view->accounts[rows[i]].device);
    }
    free(rows);
    assert_string_equal(text, wanted);
}

static const struct top_account *find_account(const struct top_view *view, const char *name,
                                              size_t device)
{
    for (size_t i = 0; i < view->account_count; i++) {
        if (strcmp(subject_at(view, i)->name, name) == 0 && view->accounts[i].device == device)
            return &view->accounts[i];
    }
    fail_msg("no account of %s on %zu", name, device);
    return NULL;
}

static void sums_are_of_processes_not_of_tenants(void **state)
{
    (void)state;
    struct top_view view;
    make_view(&view);
    const struct top_account *group = find_account(&view, "train", 0);
    assert_int_equal(group->figures.reserved, 300 * MIB);
    assert_int_equal(group->figures.limit, 1024 * MIB);
    assert_int_equal(group->figures.hit_count, 900);
    assert_int_equal(view.subjects[group->subject].process_count, 2);
    assert_int_equal(find_account(&view, "train", 1)->figures.reserved, 300 * MIB);
    assert_int_equal(find_account(&view, "train", 1)->figures.limit, TOP_NO_LIMIT);
    const struct top_account *device = find_account(&view, "GPU-1", 1);
    assert_int_equal(device->figures.reserved, 350 * MIB);
    assert_int_equal(view.subjects[device->subject].process_count, 2);
    assert_int_equal(find_account(&view, "First", 0)->figures.idle, 75 * MIB);
    top_view_fini(&view);
}

static void sums_saturate(void **state)
{
    (void)state;
    struct top_view view;
    top_view_init(&view);
    top_view_add_device(&view, &(struct top_device){.uuid = "GPU-0"});
    struct gc_ledger_figures all;
    memset(&all, 0xff, sizeof(all));
    for (int i = 0; i < 3; i++)
        top_view_add_account(&view, add_process(&view, i + 1, "x", ""), 0, &all);
    assert_int_equal(top_view_close(&view), GC_OK);
    assert_int_equal(find_account(&view, "GPU-0", 0)->figures.reserved, UINT64_MAX);
    assert_int_equal(top_hit_permille(&all), 500);
    top_view_fini(&view);
}

static void rows_come_in_order_with_tenants_beneath(void **state)
{
    (void)state;
    struct top_view view;
    make_view(&view);
    struct top_order order = by_reserved;
    order_is(&view, &order,
             "First@0 GPU-1@1 train@0 train@1 one@1 large@1 two@0 one@0 large@0 small@0 alone@1");
    order.reverse = true;
    order_is(&view, &order,
             "First@0 GPU-1@1 train@0 train@1 alone@1 one@0 small@0 large@0 two@0 one@1 large@1");
    order = (struct top_order){.sort = TOP_SORT_NAME, .device = 0, .hide_tenants = true};
    order_is(&view, &order, "First@0 train@0 one@0 two@0");
    order = (struct top_order){.sort = TOP_SORT_PID, .device = TOP_NONE, .group = ""};
    order_is(&view, &order, "First@0 GPU-1@1 alone@1");
    order = (struct top_order){.sort = TOP_SORT_LIMIT, .device = 0};
    order_is(&view, &order, "First@0 train@0 one@0 large@0 small@0 two@0");
    top_view_fini(&view);
}

static void an_account_without_a_device_is_shown(void **state)
{
    (void)state;
    struct top_view view;
    top_view_init(&view);
    const size_t process = add_process(&view, 5, "starting", "nowhere");
    top_view_add_account(&view, process, TOP_NONE,
                         &(struct gc_ledger_figures){.limit = TOP_NO_LIMIT});
    assert_int_equal(top_view_close(&view), GC_OK);
    char text[TOP_LINE_BYTES];
    struct top_layout layout;
    top_layout_init(&layout, &view, 80, false);
    top_text_row(&layout, &view, 0, NULL, text);
    assert_non_null(strstr(text, "    5     nowhere  starting"));
    top_view_fini(&view);
}

/* ---- cells ---- */

static void sizes_take_five_characters(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0"},
        {1, "1B"},
        {1023, "1023B"},
        {1024, "1.00K"},
        {1536 * 1024, "1.50M"},
        {10 * MIB, "10.0M"},
        {1023 * MIB, "1023M"},
        {1024 * MIB - 1, "1024M"},
        {16384 * MIB, "16.0G"},
        {141 * 1024 * MIB, "141G"},
        {(UINT64_C(1) << 50) - 1, "1024T"},
        {UINT64_MAX, "16.0E"},
    };
    char text[TOP_SIZE_BYTES];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(top_size(rows[i].bytes, text), rows[i].text);
    for (uint64_t bytes = 1; bytes < UINT64_C(1) << 62; bytes += bytes / 97 + 1)
        assert_in_range(strlen(top_size(bytes, text)), 2, 5);
}

static void fit_is(const char *name, unsigned columns, bool utf8, const char *wanted,
                   unsigned wanted_columns)
{
    char text[256];
    assert_int_equal(columns_fit(name, columns, utf8, text, sizeof(text)), wanted_columns);
    assert_string_equal(text, wanted);
}

static void names_are_cut_and_made_harmless(void **state)
{
    (void)state;
    fit_is("python", 8, true, "python", 6);
    fit_is("pythons1", 8, true, "pythons1", 8);
    fit_is("python3.11", 8, false, "python3~", 8);
    fit_is("python3.11", 8, true, "python3\u2026", 8);
    fit_is("python3.11", 1, false, "~", 1);
    fit_is("python3.11", 0, false, "", 0);
    fit_is("a\x1b[2Jb\n\r\tc\x7f", 20, true, "a?[2Jb???c?", 11);
    fit_is("caf\u00e9", 8, true, "caf\u00e9", 4);
    fit_is("caf\u00e9", 8, false, "caf?", 4);
    fit_is("\u6f22\u5b57", 8, true, "\u6f22\u5b57", 4);
    fit_is("\u6f22\u5b57", 4, true, "\u6f22\u5b57", 4);
    fit_is("\u6f22\u5b57", 3, true, "\u6f22\u2026", 3);
    fit_is("\u6f22\u5b57", 2, true, "\u2026", 1);
    /* C1 controls, a change of direction, overlong and broken sequences, a lone surrogate. */
    fit_is("a\xc2\x85"
           "b\u202ec",
           9, true, "a?b?c", 5);
    fit_is("\xc0\xaf\xe2\x82", 9, true, "????", 4);
    fit_is("\xed\xa0\x80x\xff", 9, true, "???x?", 5);
    fit_is("e\u0301", 9, true, "e\u0301", 1);
}

static void bars_show_parts_of_the_limit(void **state)
{
    (void)state;
    const struct top_samples samples = {.count = 4, .values = {0, 1, 4, 8}};
    char text[64];
    top_spark(&samples, 8, 8, false, text, sizeof(text));
    assert_string_equal(text, "_.=#");
    top_spark(&samples, TOP_NO_LIMIT, 2, true, text, sizeof(text));
    assert_string_equal(text, "\u2585\u2588");
    top_spark(&samples, 4, 1, false, text, sizeof(text));
    assert_string_equal(text, "#");
    top_spark(&samples, 0, 4, false, text, sizeof(text));
    assert_string_equal(text, "_...");
    const struct top_samples far_above = {.count = 1, .values = {UINT64_MAX}};
    top_spark(&far_above, 1, 1, false, text, sizeof(text));
    assert_string_equal(text, "#");
}

/* ---- lines ---- */

static unsigned display_width(const char *text)
{
    wchar_t wide[TOP_LINE_BYTES];
    const size_t count = mbstowcs(wide, text, TOP_LINE_BYTES);
    assert_true(count != (size_t)-1);
    const int width = wcswidth(wide, count);
    assert_true(width >= 0);
    return (unsigned)width;
}

static void lines_keep_within_any_width(void **state)
{
    (void)state;
    struct top_view view;
    make_view(&view);
    memcpy(view.subjects[1].name, "\u6f22\x1b[2J\u5b57\u6f22\u5b57 a long name indeed", 32);
    char text[TOP_LINE_BYTES];
    struct top_samples samples = {.count = TOP_SAMPLES, .values = {1, 2, 3}};
    for (unsigned width = 1; width <= TOP_WIDTH_MAX + 20; width++) {
        struct top_layout layout;
        top_layout_init(&layout, &view, width, true);
        const unsigned most = width < TOP_WIDTH_MAX ? width : TOP_WIDTH_MAX;
        unsigned taken = top_text_head(&layout, text);
        assert_int_equal(display_width(text), taken);
        assert_in_range(taken, 1, most);
        for (size_t i = 0; i < view.account_count; i++) {
            taken = top_text_row(&layout, &view, i, &samples, text);
            assert_int_equal(display_width(text), taken);
            assert_in_range(taken, 1, most);
            assert_null(strchr(text, '\x1b'));
        }
    }
    top_view_fini(&view);
}

static void narrow_screens_keep_what_matters(void **state)
{
    (void)state;
    struct top_view view;
    make_view(&view);
    char text[TOP_LINE_BYTES];
    struct top_layout layout;
    top_layout_init(&layout, &view, 80, false);
    top_text_head(&layout, text);
    assert_string_equal(
        text, "    PID DEV GROUP    NAME     S  LIVE RESVD  IDLE LIMIT  PEAK OOM  HIT% HISTORY");
    top_layout_init(&layout, &view, 40, false);
    top_text_head(&layout, text);
    assert_string_equal(text, "    PID DEV NAME        LIVE RESVD  HIT%");
    top_layout_init(&layout, &view, 14, false);
    top_text_head(&layout, text);
    assert_string_equal(text, "    PID RESVD");
    top_view_fini(&view);
}

static void durations_take_five_characters(void **state)
{
    (void)state;
    static const struct {
        uint64_t ms;
        const char *text;
    } rows[] = {
        {0, ""},         {1, "0.0s"},
        {999, "0.9s"},   {9999, "9.9s"},
        {10000, "10s"},  {119999, "119s"},
        {120000, "2m"},  {7199999, "119m"},
        {7200000, "2h"}, {UINT64_C(10) << 40, "9999h"},
    };
    char text[TOP_SIZE_BYTES];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(top_duration(rows[i].ms * 1000000, text), rows[i].text);
}

/* Column S of the process, and whether the columns of turns are there. */
static void state_is(enum top_state state, enum gc_turn_state turn, bool is_pinned,
                     const char *wanted)
{
    struct top_view view;
    struct top_layout layout;
    char text[TOP_LINE_BYTES];
    top_view_init(&view);
    const size_t process = add_process(&view, 5, "x", "g");
    view.subjects[process].state = state;
    view.subjects[process].takes_turns = true;
    view.subjects[process].turn = (struct gc_ledger_turn){
        .state = turn, .is_pinned = is_pinned, .waiting_ns = UINT64_C(1500000000)};
    top_view_add_account(&view, process, TOP_NONE,
                         &(struct gc_ledger_figures){.swapped = 2 * MIB, .limit = TOP_NO_LIMIT});
    assert_int_equal(top_view_close(&view), GC_OK);
    top_layout_init(&layout, &view, 0, false);
    layout.widths[TOP_COLUMN_HISTORY] = 0;
    top_text_head(&layout, text);
    assert_non_null(strstr(text, " IDLE  SWAP  WAIT RES% DRIVER"));
    top_text_row(&layout, &view, 0, NULL, text);
    char line[64];
    snprintf(line, sizeof(line), "x        %s     0     0     0 2.00M  1.5s", wanted);
    if (strstr(text, line) == NULL)
        fail_msg("%s: no %s", text, line);
    top_view_fini(&view);
}

static void turns_have_columns_of_their_own(void **state)
{
    (void)state;
    state_is(TOP_RUNNING, GC_TURN_IN, false, " ");
    state_is(TOP_RUNNING, GC_TURN_IN, true, "!");
    state_is(TOP_RUNNING, GC_TURN_LEAVING, true, "L");
    state_is(TOP_RUNNING, GC_TURN_AWAY, false, "A");
    state_is(TOP_RUNNING, GC_TURN_WAITING, false, "W");
    state_is(TOP_PAUSED, GC_TURN_AWAY, false, "P");
    state_is(TOP_STOPPED, GC_TURN_WAITING, false, "T");
}

static char *print_table(const struct top_view *view, unsigned width)
{
    struct gc_writer out;
    const int fd = scratch_fd();
    size_t bytes;
    gc_writer_init(&out, fd);
    assert_int_equal(top_text_print(&out, view, &by_reserved, width), GC_OK);
    assert_int_equal(gc_writer_flush(&out), GC_OK);
    char *text = scratch_read(fd, &bytes);
    close(fd);
    return text;
}

static void the_table_reads_so(void **state)
{
    (void)state;
    struct top_view view;
    setlocale(LC_CTYPE, "C");
    make_view(&view);
    char *text = print_table(&view, 0);
    assert_string_equal(
        text,
        "    PID DEV GROUP    NAME           S  LIVE RESVD  IDLE DRIVER LIMIT  PEAK OOM  HIT%\n"
        " device   0          First             150M  300M 75.0M      0     -     -   0  75.0\n"
        " device   4          GPU-1             175M  350M 87.5M      0     -     -   0  75.0\n"
        "  group   0 train    2 processes       150M  300M 75.0M      0 1.00G     -   0  75.0\n"
        "  group   4 train    2 processes       150M  300M 75.0M      0     -     -   0  75.0\n"
        "    100   4 train    one               150M  300M 75.0M      0     -  600M   0  75.0\n"
        " tenant   4 train    - large           150M  300M 75.0M      0     -  600M   0  75.0\n"
        "    200   0 train    two               100M  200M 50.0M      0     -  400M   0  75.0\n"
        "    100   0 train    one              50.0M  100M 25.0M      0  200M  200M   0  75.0\n"
        " tenant   0 train    - large          45.0M 90.0M 22.5M      0 95.0M  180M   0  75.0\n"
        " tenant   0 train    - small          5.00M 10.0M 2.50M      0     - 20.0M   0  75.0\n"
        "    300   4          alone            25.0M 50.0M 12.5M      0     -  100M   0  75.0\n");
    free(text);
    setlocale(LC_CTYPE, "C.UTF-8");
    top_view_fini(&view);
}

static void nothing_is_shown_as_a_head_alone(void **state)
{
    (void)state;
    struct top_view view;
    top_view_init(&view);
    assert_int_equal(top_view_close(&view), GC_OK);
    char *text = print_table(&view, 80);
    assert_non_null(strstr(text, "PID"));
    assert_non_null(strchr(text, '\n'));
    assert_string_equal(strchr(text, '\n'), "\n");
    free(text);
    char counts[96];
    top_text_counts(&view, counts, sizeof(counts));
    assert_string_equal(counts, "0 processes, 0 groups, 0 devices");
    top_view_fini(&view);
}

static void thousands_of_rows(void **state)
{
    (void)state;
    struct top_view view;
    struct top_history history = {.count = 0};
    for (int round = 0; round < 3; round++) {
        char name[16];
        top_view_init(&view);
        for (unsigned i = 0; i < TOP_DEVICES_MAX; i++)
            assert_int_equal(top_view_add_device(&view, &(struct top_device){.number = i}), i);
        assert_int_equal(top_view_add_device(&view, &(struct top_device){.number = 99}), TOP_NONE);
        for (int i = 0; i < 256; i++) {
            snprintf(name, sizeof(name), "g%d", i);
            add_named(&view, TOP_GROUP, name, 0);
        }
        for (int i = 0; i < 2048; i++) {
            snprintf(name, sizeof(name), "g%d", i % 256);
            const size_t process = add_process(&view, 10 + i, "worker", name);
            charge(&view, process, (size_t)i % TOP_DEVICES_MAX, (uint64_t)i + (uint64_t)round, 0);
            charge(&view, process, (size_t)(i + 1) % TOP_DEVICES_MAX, 1, 0);
        }
        assert_int_equal(top_view_close(&view), GC_OK);
        assert_int_equal(view.process_count, 2048);
        top_history_add(&history, &view);
        if (round < 2)
            top_view_fini(&view);
    }
    const struct top_account *account = NULL;
    for (size_t i = 0; i < view.account_count; i++) {
        if (subject_at(&view, i)->pid == 2057 && view.accounts[i].figures.reserved > MIB)
            account = &view.accounts[i];
    }
    assert_non_null(account);
    const struct top_samples *samples =
        top_history_find(&history, &view, (size_t)(account - view.accounts));
    assert_non_null(samples);
    assert_int_equal(samples->count, 3);
    assert_int_equal(samples->values[0], 2047 * MIB);
    assert_int_equal(samples->values[2], 2049 * MIB);
    top_history_fini(&history);
    top_view_fini(&view);
}

/* ---- JSON ---- */

static json_t *read_json(const struct top_view *view, const struct top_order *order)
{
    struct gc_writer out;
    json_error_t error;
    const int fd = scratch_fd();
    size_t bytes;
    gc_writer_init(&out, fd);
    assert_int_equal(top_json_print(&out, view, order, "/dev/shm/x", 77), GC_OK);
    assert_int_equal(gc_writer_flush(&out), GC_OK);
    char *text = scratch_read(fd, &bytes);
    close(fd);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL)
        fail_msg("%s in %s", error.text, text);
    free(text);
    return json;
}

static void json_has_the_figures(void **state)
{
    (void)state;
    struct top_view view;
    make_view(&view);
    view.subjects[1].age_ms = 12;
    view.subjects[1].state = TOP_PAUSED;
    memcpy(view.subjects[1].name, "o\"\x1b\xff", 5);
    json_t *json = read_json(&view, &by_reserved);
    assert_string_equal(json_string_value(json_object_get(json, "schema")), "gpucache-top/1");
    assert_int_equal(json_array_size(json_object_get(json, "devices")), 2);
    assert_int_equal(json_array_size(json_object_get(json, "groups")), 1);
    json_t *processes = json_object_get(json, "processes");
    assert_int_equal(json_array_size(processes), 3);
    json_t *one = json_array_get(processes, 0);
    assert_int_equal(json_integer_value(json_object_get(one, "pid")), 100);
    assert_int_equal(json_integer_value(json_object_get(one, "age_ms")), 12);
    assert_string_equal(json_string_value(json_object_get(one, "name")), "o\"\x1b\ufffd");
    assert_string_equal(json_string_value(json_object_get(one, "state")), "paused");
    assert_int_equal(json_array_size(json_object_get(one, "devices")), 2);
    json_t *second = json_array_get(json_object_get(one, "devices"), 1);
    assert_int_equal(json_integer_value(json_object_get(second, "limit_bytes")), 200 * MIB);
    assert_int_equal(json_integer_value(json_object_get(second, "idle_bytes")), 25 * MIB);
    assert_int_equal(json_integer_value(json_object_get(second, "peak_reserved_bytes")), 200 * MIB);
    json_t *tenants = json_object_get(one, "tenants");
    assert_int_equal(json_array_size(tenants), 2);
    assert_int_equal(json_array_size(json_object_get(json_array_get(tenants, 0), "devices")), 2);
    json_t *alone = json_array_get(processes, 2);
    assert_true(json_is_null(json_object_get(alone, "group")));
    json_decref(json);
    top_view_fini(&view);
}

static void json_of_nothing_is_whole(void **state)
{
    (void)state;
    struct top_view view;
    top_view_init(&view);
    assert_int_equal(top_view_close(&view), GC_OK);
    json_t *json = read_json(&view, &by_reserved);
    assert_int_equal(json_array_size(json_object_get(json, "processes")), 0);
    json_decref(json);
    top_view_fini(&view);
}

static void type(struct top_prompt *prompt, const char *keys)
{
    for (; *keys != '\0'; keys++)
        assert_int_equal(top_prompt_press(prompt, (unsigned char)*keys), TOP_PROMPT_OPEN);
}

static void a_line_is_typed(void **state)
{
    struct top_prompt prompt = {.used = 0};
    (void)state;
    type(&prompt, "\b\x7f"); /* nothing to take off */
    type(&prompt, "caf\xc3\xa9\x7f\x01\x1f");
    assert_string_equal(prompt.text, "caf");
    assert_int_equal(top_prompt_press(&prompt, 400), TOP_PROMPT_OPEN); /* a key that is no byte */
    assert_string_equal(prompt.text, "caf");
    for (int i = 0; i < 100; i++)
        type(&prompt, "x");
    assert_int_equal(strlen(prompt.text), TOP_PROMPT_BYTES - 1);
    type(&prompt, "\x15");
    assert_string_equal(prompt.text, "");
    type(&prompt, "8g");
    assert_int_equal(top_prompt_press(&prompt, '\r'), TOP_PROMPT_DONE);
    assert_string_equal(prompt.text, "8g");
    assert_int_equal(top_prompt_press(&prompt, 27), TOP_PROMPT_LEFT);
}

static void assert_kept(const struct top_view *view, const char *text, const char *wanted)
{
    char got[512] = "";
    size_t count;
    size_t *rows = top_view_sort(view, &by_reserved, &count);
    count = top_prompt_filter(view, text, rows, count);
    for (size_t i = 0; i < count; i++) {
        const struct top_subject *subject = subject_at(view, rows[i]);
        if (subject->kind == TOP_DEVICE)
            continue;
        const size_t used = strlen(got);
        snprintf(got + used, sizeof(got) - used, "%s ", subject->name);
    }
    assert_string_equal(got, wanted);
    free(rows);
}

static void a_filter_keeps_names_groups_and_pids(void **state)
{
    struct top_view view;
    (void)state;
    make_view(&view);
    assert_kept(&view, "alone", "alone ");
    assert_kept(&view, "ALO", "alone ");
    assert_kept(&view, "30", "alone ");
    assert_kept(&view, "00", "");          /* a PID begins with it */
    assert_kept(&view, "small", "small "); /* a tenant by its own name */
    assert_kept(&view, "nothing", "");
    assert_kept(&view, "100", "one large one large small "); /* with its tenants, on each device */
    assert_kept(&view, "two", "two ");
    top_view_fini(&view);
}

static void trouble_has_a_look_of_its_own(void **state)
{
    static const struct gc_ledger_figures quiet = {.reserved = 50 * MIB, .limit = 100 * MIB};
    struct top_subject subject = {.kind = TOP_PROCESS};
    struct gc_ledger_figures figures = quiet;
    (void)state;
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_NONE);
    figures.reserved = 95 * MIB;
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_NEAR);
    figures.idle = 10 * MIB; /* can be released */
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_NONE);
    subject.state = TOP_STOPPED;
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_STILL);
    subject.state = TOP_RUNNING;
    subject.takes_turns = true;
    subject.turn.waiting_ns = UINT64_C(11000000000);
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_WAITS);
    subject.turn.waiting_ns = UINT64_C(9000000000);
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_NONE);
    figures.oom_count = 1;
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_OVER);
    subject.kind = TOP_GROUP; /* its processes show it */
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_SUM);
    figures.reserved = 101 * MIB;
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_OVER);
    figures.limit = TOP_NO_LIMIT;
    assert_int_equal(top_look_of(&subject, &figures), TOP_LOOK_SUM);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_of_processes_not_of_tenants),
        cmocka_unit_test(sums_saturate),
        cmocka_unit_test(rows_come_in_order_with_tenants_beneath),
        cmocka_unit_test(an_account_without_a_device_is_shown),
        cmocka_unit_test(sizes_take_five_characters),
        cmocka_unit_test(names_are_cut_and_made_harmless),
        cmocka_unit_test(bars_show_parts_of_the_limit),
        cmocka_unit_test(lines_keep_within_any_width),
        cmocka_unit_test(durations_take_five_characters),
        cmocka_unit_test(turns_have_columns_of_their_own),
        cmocka_unit_test(narrow_screens_keep_what_matters),
        cmocka_unit_test(the_table_reads_so),
        cmocka_unit_test(nothing_is_shown_as_a_head_alone),
        cmocka_unit_test(thousands_of_rows),
        cmocka_unit_test(json_has_the_figures),
        cmocka_unit_test(json_of_nothing_is_whole),
        cmocka_unit_test(a_line_is_typed),
        cmocka_unit_test(a_filter_keeps_names_groups_and_pids),
        cmocka_unit_test(trouble_has_a_look_of_its_own),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
