/* Walking a trace: numbers, matched frees, sums; the ledger against a naive model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/observe/trace_format.h"
#include "tests/unit/scratch.h"
#include "tools/trace/trace_export.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORDS_MAX 32

/* A trace in memory, made here and not by the recorder. */
static struct {
    struct gc_trace_header header;
    char names[16];
    struct gc_trace_file_record records[RECORDS_MAX];
} file;
static size_t record_count;

static void begin(void)
{
    memset(&file, 0, sizeof(file));
    memcpy(file.header.magic, GC_TRACE_MAGIC, sizeof(file.header.magic));
    file.header.version = GC_TRACE_VERSION;
    file.header.header_bytes = sizeof(file.header) + sizeof(file.names);
    file.header.record_bytes = sizeof(struct gc_trace_file_record);
    file.header.api_count = 2;
    memcpy(file.names, "alloc\0free\0", 12);
    record_count = 0;
}

static void add(uint8_t op, uint64_t address, uint64_t bytes, uint64_t time_us)
{
    file.records[record_count++] =
        (struct gc_trace_file_record){.op = op,
                                      .api = op == GC_TRACE_FREE,
                                      .address = address,
                                      .bytes = bytes,
                                      .stream = 9,
                                      .time_ns = 5000000 + time_us * 1000};
}

static char *walk(struct trace_sum *sum)
{
    struct gc_trace_reader reader;
    struct gc_writer csv;
    const char *why;
    const size_t bytes = sizeof(file.header) + sizeof(file.names) +
                         record_count * sizeof(struct gc_trace_file_record);
    assert_int_equal(gc_trace_reader_init(&reader, &file, bytes, &why), GC_OK);
    gc_writer_init(&csv, scratch_fd());
    assert_int_equal(trace_export_csv(reader, &csv), GC_OK);
    assert_int_equal(gc_writer_flush(&csv), GC_OK);
    assert_int_equal(trace_walk(&reader, NULL, sum), GC_OK);
    char *text = scratch_read(csv.fd, NULL);
    close(csv.fd);
    return text;
}

static void allocations_are_numbered_and_frees_matched(void **state)
{
    struct trace_sum sum;
    (void)state;
    begin();
    add(GC_TRACE_ALLOC, 0x1000, 100, 0);
    add(GC_TRACE_ALLOC, 0x2000, 200, 5);
    add(GC_TRACE_FREE, 0x1000, 0, 7);
    add(GC_TRACE_FREE, 0x1000, 0, 8);
    add(GC_TRACE_OOM, 0, 999, 9);
    add(GC_TRACE_ALLOC, 0x1000, 50, 10);
    add(GC_TRACE_ALLOC, 0x2000, 10, 11);
    char *text = walk(&sum);
    assert_string_equal(
        text, "op,id,bytes,stream,time_us\n"
              "a,1,100,9,0\na,2,200,9,5\nf,1,100,9,7\na,3,50,9,10\nf,2,200,9,11\na,4,10,9,11\n");
    free(text);
    assert_int_equal(sum.events, 7);
    assert_int_equal(sum.allocs, 4);
    assert_int_equal(sum.frees, 1);
    assert_int_equal(sum.unknown_frees, 1);
    assert_int_equal(sum.implied_frees, 1);
    assert_int_equal(sum.ooms, 1);
    assert_int_equal(sum.peak_bytes, 300);
    assert_int_equal(sum.peak_count, 2);
    assert_int_equal(sum.live_bytes, 60);
    assert_int_equal(sum.live_count, 2);
    assert_int_equal(sum.last_ns - sum.first_ns, 11000);
    assert_int_equal(sum.apis[0].count, 4);
    assert_int_equal(sum.apis[0].bytes, 360);
    trace_sum_fini(&sum);
}

static void an_empty_trace_has_only_its_head(void **state)
{
    struct trace_sum sum;
    (void)state;
    begin();
    char *text = walk(&sum);
    assert_string_equal(text, "op,id,bytes,stream,time_us\n");
    assert_int_equal(sum.events, 0);
    free(text);
    trace_sum_fini(&sum);
}

static void the_ledger_agrees_with_a_naive_model(void **state)
{
    enum { ADDRESSES = 3000 };
    static uint64_t ids[ADDRESSES]; /* 0: not live */
    const uint64_t seed = 0x5eed0001;
    struct scratch_random random = {seed};
    struct trace_ledger ledger = {.slots = NULL};
    struct trace_allocation got;
    size_t live = 0;
    (void)state;
    for (uint64_t step = 1; step <= 200000; step++) {
        const size_t which = (size_t)(scratch_next(&random) % ADDRESSES);
        const uint64_t address = (uint64_t)which << 9 | UINT64_C(0x7f0000000000);
        if (ids[which] == 0) {
            const struct trace_allocation added = {.address = address, .id = step, .bytes = which};
            assert_false(trace_ledger_remove(&ledger, address, &got));
            assert_int_equal(trace_ledger_add(&ledger, &added), GC_OK);
            ids[which] = step;
            live++;
        } else {
            assert_true(trace_ledger_remove(&ledger, address, &got));
            if (got.id != ids[which] || got.bytes != which)
                fail_msg("seed %llx, step %llu", (unsigned long long)seed,
                         (unsigned long long)step);
            ids[which] = 0;
            live--;
        }
        assert_int_equal(ledger.count, live);
    }
    trace_ledger_fini(&ledger);
}

/* ---- the address space ---- */

#define CELLS 64
#define CELL UINT64_C(4096)

/* Each cell is nothing, a segment's (its number, from 2) or a page (1). */
static void assert_space(const struct trace_space *space, const unsigned *cells)
{
    size_t at = 0;
    for (uint64_t i = 0; i < CELLS;) {
        uint64_t end = i + 1;
        while (end < CELLS && cells[end] == cells[i])
            end++;
        const struct trace_range *found = trace_space_find(space, i * CELL);
        if (cells[i] == 0) {
            assert_null(found);
        } else {
            assert_non_null(found);
            assert_ptr_equal(found, &space->ranges[at]);
            assert_ptr_equal(trace_space_find(space, end * CELL - 1), found);
            assert_int_equal(found->address, i * CELL);
            assert_int_equal(found->bytes, (end - i) * CELL);
            assert_int_equal(found->is_pages, cells[i] == 1);
            at++;
        }
        i = end;
    }
    assert_int_equal(space->count, at);
}

static void a_space_is_what_a_naive_one_is(void **state)
{
    struct scratch_random random = {0x5face};
    struct trace_space space = {.ranges = NULL};
    unsigned cells[CELLS] = {0};
    unsigned next = 2;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        const uint64_t first = scratch_next(&random) % CELLS;
        const uint64_t count = 1 + scratch_next(&random) % (CELLS - first);
        const bool is_pages = scratch_next(&random) % 2 == 0;
        const bool is_added = scratch_next(&random) % 2 == 0;
        const unsigned kind = !is_added ? 0 : is_pages ? 1 : next++;
        const enum gc_status status =
            is_added ? trace_space_add(&space, first * CELL, count * CELL, is_pages)
                     : trace_space_remove(&space, first * CELL, count * CELL);
        assert_int_equal(status, GC_OK);
        for (uint64_t i = first; i < first + count; i++)
            cells[i] = kind;
        assert_space(&space, cells);
    }
    assert_int_equal(space.left_out, 0);
    trace_space_fini(&space);
}

static void a_space_takes_so_many_ranges(void **state)
{
    struct trace_space space = {.ranges = NULL};
    (void)state;
    for (uint64_t i = 0; i < TRACE_SPACE_MAX + 3; i++)
        assert_int_equal(trace_space_add(&space, 2 * i * CELL, CELL, true), GC_OK);
    assert_int_equal(space.count, TRACE_SPACE_MAX);
    assert_int_equal(space.left_out, 3);
    trace_space_fini(&space);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_numbered_and_frees_matched),
        cmocka_unit_test(an_empty_trace_has_only_its_head),
        cmocka_unit_test(the_ledger_agrees_with_a_naive_model),
        cmocka_unit_test(a_space_is_what_a_naive_one_is),
        cmocka_unit_test(a_space_takes_so_many_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
