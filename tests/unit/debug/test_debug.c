/* The debug aids: the memory that is filled, the writes that are reported, the addresses that stay
 * unmapped and for how long, and that nothing of it touches memory that work still uses or that a
 * capture needs. */
#include "core/base/bits.h"
#include "core/debug/debug.h"
#include "core/device/registry.h"
#include "core/io/log.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE GC_MIB(2)
#define BYTES 100000 /* of most blocks; rounded to CAPACITY */
#define CAPACITY 100352
#define KEPT_RANGES 65536 /* the manual's number */

struct fixture {
    struct workbench bench;
    struct gc_log log;
    FILE *file;       /* it goes there */
    char text[16384]; /* what was logged, once read */
};

static void open_with(struct fixture *f, unsigned debug, bool has_mapping)
{
    f->file = tmpfile();
    assert_non_null(f->file);
    f->log = (struct gc_log){.level = GC_LOG_WARN, .fd = fileno(f->file)};
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .debug = debug,
                                          .log = &f->log};
    workbench_open(&f->bench, &setup);
}

static void close_all(struct fixture *f)
{
    workbench_close(&f->bench);
    fclose(f->file);
}

static const char *logged(struct fixture *f)
{
    const ssize_t bytes = pread(f->log.fd, f->text, sizeof(f->text) - 1, 0);
    assert_true(bytes >= 0);
    f->text[bytes] = '\0';
    return f->text;
}

static void assert_logged(struct fixture *f, const char *what)
{
    if (strstr(logged(f), what) == NULL)
        fail_msg("no \"%s\" in: %s", what, f->text);
}

static unsigned count_logged(struct fixture *f, const char *what)
{
    unsigned count = 0;
    for (const char *at = strstr(logged(f), what); at != NULL; at = strstr(at + 1, what))
        count++;
    return count;
}

static uint64_t misuses(struct fixture *f)
{
    return workbench_figures(&f->bench).misuse_count;
}

static void assert_filled(struct fixture *f, uint64_t address, uint64_t bytes, uint8_t value)
{
    for (uint64_t i = 0; i < bytes; i += i + 64 < bytes ? 64 : 1)
        assert_int_equal(sim_driver_peek(&f->bench.sim, address + i), value);
}

/* ---- poison ---- */

static void freed_memory_is_filled_once_no_work_uses_it(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_POISON, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    sim_driver_submit(&f.bench.sim, 1, a, BYTES);
    workbench_free(&f.bench, a); /* filling it before would be a violation */
    assert_filled(&f, a, CAPACITY, GC_DEBUG_FREED);
    assert_string_equal(logged(&f), "");
    close_all(&f);
}

static void what_a_peer_works_with_is_waited_for(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_POISON, true);
    gc_backing_add_peer(f.bench.contexts[0], f.bench.contexts[1]);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    sim_driver_submit(&f.bench.sim, 2, a, BYTES);
    workbench_free(&f.bench, a);
    assert_filled(&f, a, CAPACITY, GC_DEBUG_FREED);
    close_all(&f);
}

static void a_write_after_the_free_is_reported_with_the_history(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_POISON, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    workbench_free(&f.bench, a);
    sim_driver_write(&f.bench.sim, a + 5, 3, 0x07);
    assert_int_equal(workbench_alloc(&f.bench, 0, BYTES), a);
    assert_logged(&f, "3 bytes were written after they were freed, the first 0x07 at byte 5 of");
    assert_logged(&f, "100000 bytes, allocated by malloc, freed by other in thread");
    assert_int_equal(misuses(&f), 1);
    workbench_free(&f.bench, a); /* reported once */
    assert_int_equal(workbench_alloc(&f.bench, 0, BYTES), a);
    assert_int_equal(misuses(&f), 1);
    workbench_free(&f.bench, a);
    close_all(&f);
}

static void a_write_in_the_rounded_part_is_reported(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_POISON, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    workbench_free(&f.bench, a);
    sim_driver_write(&f.bench.sim, a + CAPACITY - 1, 1, 0x01);
    assert_int_equal(workbench_alloc(&f.bench, 0, BYTES), a);
    assert_logged(&f,
                  "1 bytes were written after they were freed, the first 0x01 at byte 100351 of");
    workbench_free(&f.bench, a);
    close_all(&f);
}

static void what_a_smaller_block_leaves_is_still_watched(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_POISON, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    workbench_free(&f.bench, a);
    sim_driver_write(&f.bench.sim, a + 5000, 2, 0x07);
    const uint64_t b = workbench_alloc(&f.bench, 0, 4096); /* the front: nothing wrong there */
    assert_int_equal(b, a);
    assert_int_equal(misuses(&f), 0);
    sim_driver_write(&f.bench.sim, b, 4096, 0x55); /* the program's right */
    const uint64_t c = workbench_alloc(&f.bench, 0, BYTES - 8192);
    assert_int_equal(c, a + 4096);
    assert_logged(&f, "2 bytes were written after they were freed, the first 0x07 at byte 904 of");
    assert_int_equal(misuses(&f), 1);
    workbench_free(&f.bench, c);
    workbench_free(&f.bench, b);
    close_all(&f);
}

static void right_programs_are_not_accused(void **state)
{
    struct fixture f;
    uint64_t live[16] = {0};
    (void)state;
    open_with(&f, GC_DEBUG_POISON, true);
    srand(7);
    for (unsigned i = 0; i < 600; i++) {
        uint64_t *slot = &live[(unsigned)rand() % 16];
        if (*slot != 0)
            workbench_free(&f.bench, *slot);
        const uint64_t bytes = 1 + (uint64_t)rand() % 9000;
        *slot = workbench_alloc(&f.bench, (unsigned)rand() % 2, bytes);
        sim_driver_write(&f.bench.sim, *slot, bytes, 0x33);
    }
    for (unsigned i = 0; i < 16; i++)
        workbench_free(&f.bench, live[i]);
    assert_string_equal(logged(&f), "");
    assert_int_equal(misuses(&f), 0);
    close_all(&f);
}

static void memory_that_goes_back_is_looked_at(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_POISON, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    workbench_free(&f.bench, a);
    sim_driver_write(&f.bench.sim, a, 1, 0x07);
    assert_true(gc_reclaim_trim(f.bench.core, f.bench.device, 0) > 0);
    assert_int_equal(misuses(&f), 1);
    close_all(&f);
}

static void captures_see_no_fill_and_no_look(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_POISON, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    const uint64_t b = workbench_alloc(&f.bench, 0, BYTES);
    workbench_free(&f.bench, b);
    sim_driver_write(&f.bench.sim, a, BYTES, 0x11);
    workbench_capture(&f.bench, 0, true);
    workbench_free(&f.bench, a);
    workbench_free(&f.bench, workbench_alloc(&f.bench, 0, BYTES));
    workbench_capture(&f.bench, 0, false);
    workbench_free(&f.bench, workbench_alloc(&f.bench, 0, BYTES));
    workbench_free(&f.bench, workbench_alloc(&f.bench, 0, 2 * BYTES));
    assert_int_equal(misuses(&f), 0); /* `a` was not filled, so it is not looked at */
    assert_string_equal(logged(&f), "");
    close_all(&f);
}

/* ---- blocks with pages of their own ---- */

static void own_blocks_end_where_nothing_is(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_GUARD, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    struct sim_driver *sim = &f.bench.sim;
    assert_true(sim_driver_is_accessible(sim, a, CAPACITY));
    assert_false(sim_driver_is_accessible(sim, a + CAPACITY, 1));
    assert_true(sim_driver_is_accessible(sim, a + CAPACITY - PAGE, 1));
    assert_false(sim_driver_is_accessible(sim, a + CAPACITY - PAGE - 1, 1));
    assert_int_equal(sim->range_count, 1);
    assert_int_equal(sim->ranges[0].bytes, 3 * PAGE); /* nobody else comes beside it */
    workbench_free(&f.bench, a);
    assert_int_equal(sim->range_count, 0); /* without uaf the addresses go too */
    close_all(&f);
}

static void freed_blocks_are_not_there_and_their_place_is_not_had_again(void **state)
{
    struct fixture f;
    uint64_t before = 0;
    (void)state;
    open_with(&f, GC_DEBUG_UAF, true);
    for (unsigned i = 0; i < 50; i++) {
        const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
        sim_driver_submit(&f.bench.sim, 1, a, BYTES);
        assert_true(a != before);
        workbench_free(&f.bench, a); /* unmapping it with work queued would be a violation */
        assert_false(sim_driver_is_accessible(&f.bench.sim, a, 1));
        assert_int_equal(f.bench.sim.page_count, 0);
        before = a;
    }
    assert_int_equal(workbench_figures(&f.bench).reserved.current, 0);
    assert_int_equal(f.bench.sim.range_count, 50);
    close_all(&f);
}

/* So many ranges take more mappings of that sanitizer's than the kernel gives a process. */
#ifndef __SANITIZE_THREAD__
static void kept_addresses_are_bounded(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_UAF, true);
    const uint64_t first = workbench_alloc(&f.bench, 0, 512);
    workbench_free(&f.bench, first);
    for (unsigned i = 1; i < KEPT_RANGES; i++)
        workbench_free(&f.bench, workbench_alloc(&f.bench, 0, 512));
    assert_int_equal(f.bench.sim.range_count, KEPT_RANGES);
    assert_true(f.bench.sim.ranges[0].address < first);
    workbench_free(&f.bench, workbench_alloc(&f.bench, 0, 512));
    assert_int_equal(f.bench.sim.range_count, KEPT_RANGES);
    assert_true(f.bench.sim.ranges[0].address > first); /* the oldest went */
    assert_int_equal(f.bench.sim.page_count, 0);
    close_all(&f);
}
#endif

static void a_write_behind_the_end_is_reported(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_GUARD, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    const uint64_t b = workbench_alloc(&f.bench, 0, BYTES);
    sim_driver_write(&f.bench.sim, a, BYTES, 0x22); /* all of it, and no more */
    sim_driver_write(&f.bench.sim, b + BYTES + 2, 10, 0x07);
    workbench_free(&f.bench, a);
    assert_int_equal(misuses(&f), 0);
    workbench_free(&f.bench, b);
    assert_logged(&f, "10 bytes were written past the end, the first 0x07 2 bytes behind it, of");
    assert_int_equal(misuses(&f), 1);
    close_all(&f);
}

static void a_second_free_is_refused(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_UAF | GC_DEBUG_GUARD | GC_DEBUG_POISON, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    workbench_free(&f.bench, a);
    assert_true(workbench_try_free(&f.bench, a) != GC_OK);
    assert_int_equal(workbench_figures(&f.bench).free_count, 1);
    close_all(&f);
}

static void a_capture_gets_plain_memory(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_UAF, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    workbench_capture(&f.bench, 0, true);
    const uint64_t b = workbench_alloc(&f.bench, 0, BYTES);
    sim_driver_submit(&f.bench.sim, 1, a, BYTES);
    workbench_free(&f.bench, a); /* what was captured may use it */
    assert_true(sim_driver_is_accessible(&f.bench.sim, a, BYTES));
    workbench_free(&f.bench, b);
    workbench_capture(&f.bench, 0, false);
    const uint64_t c = workbench_alloc(&f.bench, 0, BYTES);
    assert_true(c != a);
    workbench_free(&f.bench, c);
    gc_reclaim_empty(f.bench.core, f.bench.device);
    assert_int_equal(f.bench.sim.page_count, 0);
    assert_int_equal(f.bench.sim.allocation_count, 0);
    close_all(&f);
}

/* A block's addresses go on behind its pages, so what would be cut from it has no memory. */
static void a_block_that_cannot_go_back_yet_serves_nobody(void **state)
{
    struct fixture f;
    uint64_t other[3];
    (void)state;
    open_with(&f, GC_DEBUG_UAF, true);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    workbench_capture(&f.bench, 0, true);
    workbench_free(&f.bench, a);
    for (unsigned i = 0; i < 3; i++) {
        other[i] = workbench_alloc(&f.bench, 0, BYTES);
        assert_true(other[i] < a || other[i] >= a + PAGE);
    }
    workbench_capture(&f.bench, 0, false);
    for (unsigned i = 0; i < 3; i++)
        workbench_free(&f.bench, other[i]);
    gc_reclaim_empty(f.bench.core, f.bench.device);
    assert_int_equal(f.bench.sim.page_count, 0);
    close_all(&f);
}

static void own_blocks_go_with_their_context(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_UAF, true);
    const uint64_t a = workbench_alloc(&f.bench, 1, BYTES);
    const uint64_t b = workbench_alloc(&f.bench, 0, BYTES);
    workbench_drop(&f.bench, 1);
    assert_false(sim_driver_is_accessible(&f.bench.sim, a, 1));
    assert_true(sim_driver_is_accessible(&f.bench.sim, b, BYTES));
    assert_int_equal(f.bench.sim.page_count, 1);
    workbench_free(&f.bench, b);
    close_all(&f);
}

static void without_mapping_poison_stands_in(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_UAF, false);
    assert_int_equal(count_logged(&f, "cannot map memory"), 1);
    const uint64_t a = workbench_alloc(&f.bench, 0, BYTES);
    workbench_free(&f.bench, a);
    assert_filled(&f, a, CAPACITY, GC_DEBUG_FREED);
    sim_driver_write(&f.bench.sim, a, 1, 0x07);
    workbench_free(&f.bench, workbench_alloc(&f.bench, 0, BYTES));
    assert_int_equal(misuses(&f), 1);
    close_all(&f);
}

static void the_report_has_the_backend(void **state)
{
    static const struct {
        unsigned debug;
        bool is_mapped;
        const char *reason;
    } rows[] = {
        {GC_DEBUG_POISON, false, "GPUCACHE_DEBUG finds freed memory by its address"},
        {GC_DEBUG_GUARD, true, "GPUCACHE_DEBUG gives each block pages of its own"},
        {GC_DEBUG_POISON | GC_DEBUG_UAF, true, "GPUCACHE_DEBUG gives each block pages of its own"},
        {0, true, ""},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        open_with(&f, rows[i].debug, true);
        const struct gc_device_snapshot figures = workbench_figures(&f.bench);
        assert_int_equal(figures.is_mapped, rows[i].is_mapped);
        assert_string_equal(figures.info.backend_reason, rows[i].reason);
        close_all(&f);
    }
}

/* ---- history, failures ---- */

static void a_fault_reports_the_last_frees_once(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, GC_DEBUG_UAF, true);
    for (unsigned i = 0; i < 20; i++)
        workbench_free(&f.bench, workbench_alloc(&f.bench, 0, 1000 + i));
    gc_debug_report_fault(f.bench.core);
    gc_debug_report_fault(f.bench.core);
    assert_int_equal(count_logged(&f, "the program accessed memory that is not mapped"), 1);
    assert_int_equal(count_logged(&f, "bytes, allocated by malloc, freed by other"), 12);
    const char *newest = strstr(f.text, "1019 bytes");
    assert_non_null(newest);
    assert_true(newest < strstr(f.text, "1008 bytes"));
    assert_null(strstr(f.text, "1007 bytes"));
    close_all(&f);
}

static void every_driver_call_may_fail(void **state)
{
    static const unsigned kinds[] = {GC_DEBUG_POISON, GC_DEBUG_UAF, GC_DEBUG_GUARD,
                                     GC_DEBUG_POISON | GC_DEBUG_GUARD | GC_DEBUG_UAF};
    (void)state;
    for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        bool fired = true;
        for (uint64_t n = 1; fired; n++) {
            struct fixture f;
            uint64_t a = 0, b = 0;
            open_with(&f, kinds[k], true);
            sim_driver_fail(&f.bench.sim, n, false, SIM_BROKEN);
            const bool has_a = workbench_try_alloc(&f.bench, 0, BYTES, &a) == GC_OK;
            const bool has_b = workbench_try_alloc(&f.bench, 0, 3 * PAGE + 1, &b) == GC_OK;
            bool is_freed = has_a && workbench_try_free(&f.bench, a) == GC_OK;
            workbench_check(&f.bench);
            fired = f.bench.sim.failed_count > 0;
            sim_driver_fail(&f.bench.sim, 0, false, 0);
            if (has_a && !is_freed)
                workbench_free(&f.bench, a); /* live as before */
            if (has_b)
                workbench_free(&f.bench, b);
            gc_reclaim_empty(f.bench.core, f.bench.device);
            assert_int_equal(workbench_figures(&f.bench).reserved.current, 0);
            assert_int_equal(f.bench.sim.used_bytes, 0);
            assert_int_equal(misuses(&f), 0);
            close_all(&f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_memory_is_filled_once_no_work_uses_it),
        cmocka_unit_test(what_a_peer_works_with_is_waited_for),
        cmocka_unit_test(a_write_after_the_free_is_reported_with_the_history),
        cmocka_unit_test(a_write_in_the_rounded_part_is_reported),
        cmocka_unit_test(what_a_smaller_block_leaves_is_still_watched),
        cmocka_unit_test(right_programs_are_not_accused),
        cmocka_unit_test(memory_that_goes_back_is_looked_at),
        cmocka_unit_test(captures_see_no_fill_and_no_look),
        cmocka_unit_test(own_blocks_end_where_nothing_is),
        cmocka_unit_test(freed_blocks_are_not_there_and_their_place_is_not_had_again),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(kept_addresses_are_bounded),
#endif
        cmocka_unit_test(a_write_behind_the_end_is_reported),
        cmocka_unit_test(a_second_free_is_refused),
        cmocka_unit_test(a_capture_gets_plain_memory),
        cmocka_unit_test(a_block_that_cannot_go_back_yet_serves_nobody),
        cmocka_unit_test(own_blocks_go_with_their_context),
        cmocka_unit_test(without_mapping_poison_stands_in),
        cmocka_unit_test(the_report_has_the_backend),
        cmocka_unit_test(a_fault_reports_the_last_frees_once),
        cmocka_unit_test(every_driver_call_may_fail),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("debug", tests, NULL, NULL);
}
