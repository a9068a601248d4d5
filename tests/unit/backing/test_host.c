/* Host memory for swapped content: growth, reuse, pinning and its failures, the bound, trims. */
#include "core/backing/host.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECES 200
#define TEXT_BYTES 1024
#define CHUNK GC_HOST_CHUNK_BYTES
#define UNIT GC_HOST_UNIT_BYTES

struct fixture {
    struct workbench bench;
    FILE *file; /* the log's */
    struct gc_log log;
};

static void open_with(struct fixture *fixture, uint64_t limit_bytes, double limit_percent)
{
    fixture->file = tmpfile();
    assert_non_null(fixture->file);
    fixture->log = (struct gc_log){.level = GC_LOG_INFO, .fd = fileno(fixture->file)};
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true,
                                          .host_limit_bytes = limit_bytes,
                                          .host_limit_percent = limit_percent,
                                          .log = &fixture->log};
    workbench_open(&fixture->bench, &setup);
}

static void open_fixture(struct fixture *fixture, uint64_t limit_bytes)
{
    open_with(fixture, limit_bytes, 0);
}

static void close_fixture(struct fixture *fixture)
{
    workbench_close(&fixture->bench);
    fclose(fixture->file);
}

static struct gc_context *worker_of(struct fixture *fixture)
{
    return fixture->bench.contexts[0];
}

static struct gc_host_piece take(struct fixture *fixture, uint64_t bytes)
{
    struct gc_host_piece piece;
    assert_true(gc_host_take(worker_of(fixture), bytes, &piece));
    assert_true(piece.bytes > 0 && piece.bytes <= bytes);
    assert_int_equal((uintptr_t)piece.memory % UNIT, 0);
    return piece;
}

static void give(struct fixture *fixture, const struct gc_host_piece *piece)
{
    gc_host_give(fixture->bench.core, piece);
}

static uint64_t held(const struct fixture *fixture)
{
    return gc_host_bytes(fixture->bench.core);
}

static uint64_t limit_of(struct fixture *fixture)
{
    return gc_host_budget_limit(&fixture->bench.core->host_budget);
}

static unsigned count_lines(const struct fixture *fixture, const char *words)
{
    char text[TEXT_BYTES] = {0};
    unsigned count = 0;
    (void)!pread(fixture->log.fd, text, sizeof(text) - 1, 0);
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        count++;
    return count;
}

static void chunks_come_as_they_are_needed_and_stay(void **state)
{
    struct fixture fixture;
    struct gc_host_piece pieces[3];
    (void)state;
    open_fixture(&fixture, 0);
    assert_int_equal(held(&fixture), 0);
    pieces[0] = take(&fixture, GC_MIB(40));
    assert_int_equal(pieces[0].bytes, GC_MIB(40));
    assert_int_equal(held(&fixture), CHUNK);
    pieces[1] = take(&fixture, GC_MIB(40)); /* what the chunk has left */
    assert_int_equal(pieces[1].bytes, GC_MIB(24));
    assert_ptr_equal(pieces[1].memory, pieces[0].memory + pieces[0].bytes);
    pieces[2] = take(&fixture, GC_MIB(400));
    assert_int_equal(pieces[2].bytes, CHUNK);
    assert_int_equal(held(&fixture), 2 * CHUNK);
    memset(pieces[2].memory, 1, pieces[2].bytes);
    for (unsigned i = 0; i < 3; i++)
        give(&fixture, &pieces[i]);
    assert_int_equal(held(&fixture), 2 * CHUNK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(take(&fixture, CHUNK).bytes, CHUNK);
    assert_int_equal(held(&fixture), 2 * CHUNK);
    assert_int_equal(fixture.bench.sim.calls[SIM_HOST_PIN], 2);
    assert_int_equal(fixture.bench.sim.pinned_bytes, 2 * CHUNK);
    close_fixture(&fixture);
}

static void a_part_of_a_piece_is_given_back(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture, CHUNK);
    const struct gc_host_piece whole = take(&fixture, CHUNK);
    struct gc_host_piece part = whole, refused;
    part.memory += 3 * UNIT;
    part.bytes = 2 * UNIT;
    assert_false(gc_host_take(worker_of(&fixture), UNIT, &refused));
    give(&fixture, &part);
    const struct gc_host_piece again = take(&fixture, CHUNK);
    assert_ptr_equal(again.memory, part.memory);
    assert_int_equal(again.bytes, part.bytes);
    close_fixture(&fixture);
}

static void the_bound_is_kept_to_the_last_unit(void **state)
{
    struct fixture fixture;
    struct gc_host_piece piece;
    uint64_t sum = 0;
    (void)state;
    open_fixture(&fixture, CHUNK + 5 * UNIT + 1);
    assert_int_equal(limit_of(&fixture), CHUNK + 5 * UNIT + 1);
    assert_int_equal(count_lines(&fixture, "host memory is full"), 0);
    while (gc_host_take(worker_of(&fixture), CHUNK, &piece))
        sum += piece.bytes;
    assert_int_equal(sum, CHUNK + 5 * UNIT);
    assert_int_equal(held(&fixture), sum);
    assert_false(gc_host_take(worker_of(&fixture), CHUNK, &piece));
    gc_host_log_full(worker_of(&fixture)->core);
    gc_host_log_full(worker_of(&fixture)->core);
    assert_int_equal(count_lines(&fixture, "host memory is full: 74 of 74 MiB"), 1);
    assert_int_equal(count_lines(&fixture, "host memory is full"), 1);
    close_fixture(&fixture);
}

static void a_percentage_is_of_the_machine(void **state)
{
    struct fixture fixture;
    (void)state;
    open_with(&fixture, 0, 50);
    const uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    assert_int_equal(limit_of(&fixture), half);
    close_fixture(&fixture);
}

/* What is taken would be free without it. */
static void the_default_leaves_half_of_what_is_free(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture, 0);
    struct gc_host_budget *budget = &fixture.bench.core->host_budget;
    const uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t limit = limit_of(&fixture);
    assert_true(limit > 0 && limit <= total / 2);
    assert_true(gc_host_budget_try_charge(budget, limit / 2, false)); /* and not taken */
    assert_true(limit_of(&fixture) > limit + limit / 8);
    assert_false(gc_host_budget_try_charge(budget, total, false));
    gc_host_budget_uncharge(budget, limit / 2);
    close_fixture(&fixture);
}

/* ---- pinning ---- */

static void memory_that_cannot_be_pinned_serves_too(void **state)
{
    struct fixture fixture;
    struct gc_host_piece pieces[3];
    (void)state;
    open_fixture(&fixture, 0);
    sim_driver_fail(&fixture.bench.sim, 1, true, SIM_BROKEN);
    for (unsigned i = 0; i < 3; i++) {
        pieces[i] = take(&fixture, CHUNK);
        memset(pieces[i].memory, 1, UNIT);
    }
    assert_int_equal(fixture.bench.sim.calls[SIM_HOST_PIN], 1); /* remembered */
    assert_int_equal(count_lines(&fixture, "cannot be pinned (code 999)"), 1);
    sim_driver_fail(&fixture.bench.sim, 0, false, 0);
    for (unsigned i = 0; i < 3; i++)
        give(&fixture, &pieces[i]);
    assert_int_equal(gc_host_trim(fixture.bench.core), 3 * CHUNK);
    assert_int_equal(fixture.bench.sim.calls[SIM_HOST_UNPIN], 0);
    close_fixture(&fixture);
}

static void a_platform_that_pins_nothing_is_asked_nothing(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture, 0);
    fixture.bench.core->driver.host_pin = NULL;
    (void)take(&fixture, CHUNK);
    assert_int_equal(fixture.bench.sim.calls[SIM_HOST_PIN], 0);
    assert_int_equal(count_lines(&fixture, "pinned"), 0);
    close_fixture(&fixture);
}

/* Its registrations went with the context; the chunks stay, and another context pins them. */
static void another_context_pins_what_a_destroyed_one_had(void **state)
{
    struct fixture fixture;
    struct gc_host_piece piece, rest;
    (void)state;
    open_fixture(&fixture, 2 * CHUNK);
    piece = take(&fixture, GC_MIB(32));
    rest = take(&fixture, GC_MIB(32));
    (void)take(&fixture, CHUNK);
    workbench_drop(&fixture.bench, 0);
    assert_int_equal(fixture.bench.sim.pinned_bytes, 0);
    give(&fixture, &piece);
    assert_true(gc_host_take(fixture.bench.contexts[1], GC_MIB(32), &piece));
    assert_int_equal(fixture.bench.sim.pinned_bytes, 0); /* the other half may be copied now */
    give(&fixture, &piece);
    give(&fixture, &rest);
    assert_true(gc_host_take(fixture.bench.contexts[1], GC_MIB(32), &piece));
    assert_int_equal(fixture.bench.sim.pinned_bytes, CHUNK);
    give(&fixture, &piece);
    assert_int_equal(gc_host_trim(fixture.bench.core), CHUNK);
    assert_int_equal(fixture.bench.sim.pinned_bytes, 0);
    close_fixture(&fixture);
}

/* ---- trims ---- */

static void a_trim_takes_the_chunks_without_content(void **state)
{
    struct fixture fixture;
    struct gc_host_piece kept, piece;
    (void)state;
    open_fixture(&fixture, 0);
    const uint64_t before = gc_host_mem_bytes(&fixture.bench.core->host);
    kept = take(&fixture, UNIT);
    piece = take(&fixture, CHUNK);
    const struct gc_host_piece whole = take(&fixture, CHUNK);
    memset(kept.memory, 7, kept.bytes);
    give(&fixture, &whole);
    give(&fixture, &piece);
    assert_int_equal(gc_host_trim(fixture.bench.core), CHUNK);
    assert_int_equal(held(&fixture), CHUNK);
    assert_int_equal(kept.memory[0], 7);
    assert_int_equal(kept.memory[kept.bytes - 1], 7);
    assert_int_equal(gc_host_trim(fixture.bench.core), 0);
    give(&fixture, &kept);
    assert_int_equal(gc_host_trim(fixture.bench.core), CHUNK);
    assert_int_equal(held(&fixture), 0);
    assert_int_equal(fixture.bench.sim.pinned_bytes, 0);
    assert_true(gc_host_mem_bytes(&fixture.bench.core->host) < before + UNIT);
    close_fixture(&fixture);
}

static void a_chunk_that_stays_pinned_is_kept(void **state)
{
    struct fixture fixture;
    (void)state;
    open_fixture(&fixture, CHUNK);
    struct gc_host_piece piece = take(&fixture, CHUNK);
    give(&fixture, &piece);
    sim_driver_fail(&fixture.bench.sim, 1, false, SIM_BROKEN);
    assert_int_equal(gc_host_trim(fixture.bench.core), 0);
    assert_int_equal(held(&fixture), CHUNK);
    piece = take(&fixture, CHUNK);
    memset(piece.memory, 1, piece.bytes);
    assert_int_equal(fixture.bench.sim.calls[SIM_HOST_PIN], 1);
    give(&fixture, &piece);
    assert_int_equal(gc_host_trim(fixture.bench.core), CHUNK);
    close_fixture(&fixture);
}

/* A child that reached the memory would be killed by the access. */
static void a_forked_child_has_none_of_it(void **state)
{
    struct fixture fixture;
    int status;
    (void)state;
    open_fixture(&fixture, 0);
    const struct gc_host_piece piece = take(&fixture, UNIT);
    memset(piece.memory, 1, piece.bytes);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0)
        _exit(write(ends[1], piece.memory, 1) == 1 ? 1 : 0); /* EFAULT */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(ends[0]);
    close(ends[1]);
    close_fixture(&fixture);
}

/* ---- at random, against a plain model ---- */

static bool is_inside(const struct gc_host_piece *a, const struct gc_host_piece *b)
{
    return a->memory < b->memory + b->bytes && b->memory < a->memory + a->bytes;
}

static void pieces_at_random_are_apart_and_keep_their_content(void **state)
{
    struct fixture fixture;
    struct gc_host_piece pieces[PIECES];
    unsigned count = 0;
    const unsigned seed = (unsigned)getpid();
    (void)state;
    print_message("# seed %u\n", seed);
    srandom(seed);
    open_fixture(&fixture, 5 * CHUNK);
    for (unsigned round = 0; round < 3000; round++) {
        const bool gives = count == PIECES || random() % 3 == 0;
        if (gives && count > 0) {
            const unsigned i = (unsigned)random() % count;
            assert_int_equal(*(uint64_t *)(void *)pieces[i].memory,
                             (uintptr_t)pieces[i].memory + pieces[i].bytes);
            give(&fixture, &pieces[i]);
            pieces[i] = pieces[--count];
        } else if (count < PIECES &&
                   gc_host_take(worker_of(&fixture), (1 + (uint64_t)random() % 40) * UNIT,
                                &pieces[count])) {
            for (unsigned i = 0; i < count; i++)
                assert_false(is_inside(&pieces[i], &pieces[count]));
            *(uint64_t *)(void *)pieces[count].memory =
                (uintptr_t)pieces[count].memory + pieces[count].bytes;
            count++;
        }
        if (random() % 100 == 0)
            (void)gc_host_trim(fixture.bench.core);
        assert_true(held(&fixture) <= 5 * CHUNK);
        assert_int_equal(fixture.bench.sim.pinned_bytes, held(&fixture));
    }
    while (count > 0)
        give(&fixture, &pieces[--count]);
    (void)gc_host_trim(fixture.bench.core);
    assert_int_equal(held(&fixture), 0);
    close_fixture(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_come_as_they_are_needed_and_stay),
        cmocka_unit_test(a_part_of_a_piece_is_given_back),
        cmocka_unit_test(the_bound_is_kept_to_the_last_unit),
        cmocka_unit_test(a_percentage_is_of_the_machine),
        cmocka_unit_test(the_default_leaves_half_of_what_is_free),
        cmocka_unit_test(memory_that_cannot_be_pinned_serves_too),
        cmocka_unit_test(a_platform_that_pins_nothing_is_asked_nothing),
        cmocka_unit_test(another_context_pins_what_a_destroyed_one_had),
        cmocka_unit_test(a_trim_takes_the_chunks_without_content),
        cmocka_unit_test(a_chunk_that_stays_pinned_is_kept),
        cmocka_unit_test(a_forked_child_has_none_of_it),
        cmocka_unit_test(pieces_at_random_are_apart_and_keep_their_content),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("host memory", tests, NULL, NULL);
}
