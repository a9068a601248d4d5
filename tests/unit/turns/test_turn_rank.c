/* Who is asked for memory, in which order, and whose ticket comes first: core/ledger/turn.h on a
 * ledger that the test fills. */
#include "core/base/clock.h"
#include "core/ledger/turn.h"
#include "tests/unit/cmocka_all.h"

#include <string.h>
#include <sys/mman.h>

#define KEY 7
#define LIMIT 1000
#define SLOTS 4

static struct gc_ledger ledger;

static struct gc_ledger_turn_row *turn_of(uint32_t slot)
{
    return &ledger.file->slots[slot].turn;
}

/* All but the first, which asks, hold 10, run and have work; their quantum is over. */
static int open_ledger(void **state)
{
    (void)state;
    void *memory = mmap(NULL, sizeof(*ledger.file), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    ledger = (struct gc_ledger){.file = memory, .fd = -1};
    atomic_store(&ledger.file->slot_high, SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        atomic_store(&ledger.file->group_keys[i], KEY);
        atomic_store(&ledger.file->accounts[0][i], i == 0 ? 0 : 10);
        atomic_store(&turn_of(i)->state, GC_TURN_IN);
        atomic_store(&turn_of(i)->beat_ns, gc_clock_ns());
        atomic_store(&turn_of(i)->begin_ns, 1);
        atomic_store(&turn_of(i)->quantum_ns, 1);
    }
    return 0;
}

static int close_ledger(void **state)
{
    (void)state;
    munmap(ledger.file, sizeof(*ledger.file));
    return 0;
}

static enum gc_turn_obstacle rate(uint32_t slot, struct gc_turn_rank *rank)
{
    return gc_turn_rate(&ledger, slot, 0, gc_clock_ns(), rank);
}

static void assert_before(uint32_t a, uint32_t b)
{
    struct gc_turn_rank first;
    struct gc_turn_rank second;
    assert_int_equal(rate(a, &first), GC_TURN_MAY_GIVE);
    assert_int_equal(rate(b, &second), GC_TURN_MAY_GIVE);
    assert_true(gc_turn_is_before(&first, &second));
    assert_false(gc_turn_is_before(&second, &first));
}

static void idle_ones_first_then_those_that_wait_then_busy_ones(void **state)
{
    (void)state;
    const uint64_t now_ns = gc_clock_ns();
    atomic_store(&turn_of(1)->idle_ns, now_ns - 10 * GC_NS_PER_S);
    atomic_store(&turn_of(2)->state, GC_TURN_WAITING);
    atomic_store(&turn_of(2)->ticket, 5);
    atomic_store(&turn_of(0)->ticket, 4);
    assert_before(1, 2);
    assert_before(2, 3);
    /* The longest idle first; of those that are as long, the lower priority. */
    atomic_store(&turn_of(3)->idle_ns, now_ns - 20 * GC_NS_PER_S);
    assert_before(3, 1);
    atomic_store(&turn_of(3)->idle_ns, atomic_load(&turn_of(1)->idle_ns));
    atomic_store(&turn_of(1)->priority, 2);
    assert_before(3, 1);
    /* The last ticket first. */
    atomic_store(&turn_of(3)->state, GC_TURN_WAITING);
    atomic_store(&turn_of(3)->ticket, 6);
    assert_before(3, 2);
}

static void busy_ones_by_priority_and_by_turn(void **state)
{
    (void)state;
    atomic_store(&turn_of(1)->begin_ns, 300);
    atomic_store(&turn_of(2)->begin_ns, 200);
    assert_before(2, 1);
    atomic_store(&turn_of(2)->priority, 1);
    assert_before(1, 2);
}

static void who_cannot_give(void **state)
{
    struct gc_turn_rank rank;
    (void)state;
    atomic_store(&ledger.file->accounts[0][1], 0);
    assert_int_equal(rate(1, &rank), GC_TURN_HOLDS_NOTHING);
    atomic_store(&ledger.file->accounts[0][1], 10);
    atomic_store(&turn_of(1)->quantum_ns, UINT64_MAX / 2);
    assert_int_equal(rate(1, &rank), GC_TURN_IN_QUANTUM);
    atomic_store(&turn_of(1)->idle_ns, gc_clock_ns());
    atomic_store(&turn_of(1)->gap_ns, GC_NS_PER_S); /* a gap in its work */
    assert_int_equal(rate(1, &rank), GC_TURN_IN_QUANTUM);
    atomic_store(&turn_of(1)->gap_ns, 0);
    assert_int_equal(rate(1, &rank), GC_TURN_MAY_GIVE);
    atomic_store(&turn_of(1)->not_before_ns, UINT64_MAX);
    assert_int_equal(rate(1, &rank), GC_TURN_REFUSED);
    atomic_store(&turn_of(1)->is_pinned, 1);
    assert_int_equal(rate(1, &rank), GC_TURN_PINNED);
    atomic_store(&turn_of(1)->beat_ns, gc_clock_ns() - 2 * GC_TURN_STOPPED_NS);
    assert_int_equal(rate(1, &rank), GC_TURN_STOPPED);
    atomic_store(&turn_of(1)->state, GC_TURN_NONE);
    assert_int_equal(rate(1, &rank), GC_TURN_NO_PART);
    atomic_store(&turn_of(2)->state, GC_TURN_WAITING);
    atomic_store(&turn_of(2)->ticket, 3);
    atomic_store(&turn_of(0)->ticket, 4);
    assert_int_equal(rate(2, &rank), GC_TURN_EARLIER);
    atomic_store(&turn_of(2)->is_stuck, 1);
    assert_int_equal(rate(2, &rank), GC_TURN_MAY_GIVE);
}

static bool has_earlier(void)
{
    return gc_turn_has_earlier(&ledger, KEY, 0, LIMIT);
}

static void tickets_are_served_in_order(void **state)
{
    (void)state;
    assert_false(has_earlier());
    atomic_store(&turn_of(1)->ticket, 3);
    assert_false(has_earlier()); /* it needs nothing here */
    atomic_store(&turn_of(1)->need[1], 1);
    assert_false(has_earlier());
    atomic_store(&turn_of(1)->need[0], 1);
    assert_true(has_earlier()); /* this one has no ticket */
    atomic_store(&turn_of(0)->ticket, 2);
    assert_false(has_earlier());
    atomic_store(&turn_of(0)->ticket, 3);
    assert_false(has_earlier()); /* the lower slot */
    atomic_store(&turn_of(0)->ticket, 4);
    assert_true(has_earlier());
    atomic_store(&turn_of(1)->need[0], LIMIT - 9);
    assert_false(has_earlier()); /* it could not fit alone */
    atomic_store(&turn_of(1)->need[0], LIMIT - 10);
    assert_true(has_earlier());
    atomic_store(&turn_of(1)->is_stuck, 1);
    assert_false(has_earlier());
    atomic_store(&turn_of(1)->is_stuck, 0);
    atomic_store(&turn_of(1)->beat_ns, gc_clock_ns() - 2 * GC_TURN_STOPPED_NS);
    assert_false(has_earlier());
    atomic_store(&ledger.file->group_keys[1], KEY + 1);
    atomic_store(&turn_of(1)->beat_ns, gc_clock_ns());
    assert_false(has_earlier()); /* of another group */
}

static void a_ticket_is_drawn_after_all_others(void **state)
{
    (void)state;
    atomic_store(&ledger.file->groups[2].ticket, 41);
    gc_turn_draw(&ledger, 2);
    assert_int_equal(atomic_load(&turn_of(0)->ticket), 42);
    gc_turn_drop(&ledger);
    gc_turn_draw(&ledger, 2);
    assert_int_equal(atomic_load(&turn_of(0)->ticket), 43);
    gc_turn_drop(&ledger);
    assert_int_equal(atomic_load(&turn_of(0)->ticket), 0);
}

static uint64_t largest_other(void)
{
    return gc_turn_largest_other(&ledger, KEY, 0, LIMIT);
}

static void another_has_what_is_resident_and_away_but_not_twice(void **state)
{
    (void)state;
    atomic_store(&ledger.file->accounts[0][1], 200);
    assert_int_equal(largest_other(), 200);
    atomic_store(&turn_of(1)->away[0], 400);
    assert_int_equal(largest_other(), 600);
    /* A part of the 400 has come back, and is counted in both. */
    atomic_store(&ledger.file->accounts[0][1], 300);
    assert_int_equal(largest_other(), 700);
    atomic_store(&ledger.file->slots[1].device_mask, 1);
    atomic_store(&ledger.file->slots[1].figures[0].words[GC_LEDGER_FIGURE_peak], 600);
    assert_int_equal(largest_other(), 600);
    /* It has grown since it published its peak. */
    atomic_store(&turn_of(1)->away[0], 0);
    atomic_store(&ledger.file->accounts[0][1], 650);
    assert_int_equal(largest_other(), 650);
    /* Tenants', which are not in at once. */
    atomic_store(&turn_of(1)->away[0], LIMIT);
    assert_int_equal(largest_other(), 10);
}

static void those_within_their_guarantee_go_last_and_come_first(void **state)
{
    struct gc_turn_rank rank;
    (void)state;
    const uint64_t now_ns = gc_clock_ns();
    atomic_store(&ledger.file->guarantees[0][1], 10);
    assert_int_equal(rate(1, &rank), GC_TURN_GUARANTEED); /* it has work */
    atomic_store(&turn_of(1)->need[0], 1);
    assert_int_equal(rate(1, &rank), GC_TURN_MAY_GIVE); /* beyond it */
    atomic_store(&turn_of(1)->need[0], 0);
    atomic_store(&turn_of(1)->idle_ns, now_ns - 10 * GC_NS_PER_S);
    assert_before(3, 1); /* before an idle one */
    /* The first slot waits, with a late ticket; the third one has an earlier ticket. */
    atomic_store(&turn_of(0)->ticket, 9);
    atomic_store(&turn_of(0)->need[0], 5);
    atomic_store(&turn_of(2)->ticket, 3);
    atomic_store(&turn_of(2)->need[0], 5);
    assert_true(has_earlier());
    atomic_store(&ledger.file->guarantees[0][0], 5);
    assert_false(has_earlier());
    atomic_store(&turn_of(3)->begin_ns, now_ns);
    atomic_store(&turn_of(3)->quantum_ns, 100 * GC_NS_PER_S);
    assert_int_equal(rate(3, &rank), GC_TURN_MAY_GIVE);
    atomic_store(&ledger.file->guarantees[0][0], 4);
    assert_true(has_earlier());
    assert_int_equal(rate(3, &rank), GC_TURN_IN_QUANTUM);
}

static void one_in_its_quantum_yields_to_one_within_its_guarantee(void **state)
{
    (void)state;
    atomic_store(&turn_of(2)->ticket, 3);
    atomic_store(&turn_of(2)->need[0], 5);
    assert_false(gc_turn_must_yield(&ledger, KEY, 0, LIMIT));
    atomic_store(&ledger.file->guarantees[0][2], 15);
    assert_true(gc_turn_must_yield(&ledger, KEY, 0, LIMIT));
    atomic_store(&ledger.file->guarantees[0][2], 14);
    assert_false(gc_turn_must_yield(&ledger, KEY, 0, LIMIT));
    atomic_store(&ledger.file->guarantees[0][2], 15);
    atomic_store(&ledger.file->accounts[0][0], 10);
    atomic_store(&ledger.file->guarantees[0][0], 10); /* it is within its own */
    assert_false(gc_turn_must_yield(&ledger, KEY, 0, LIMIT));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_ledger, close_ledger)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(idle_ones_first_then_those_that_wait_then_busy_ones),
        TEST(busy_ones_by_priority_and_by_turn),
        TEST(who_cannot_give),
        TEST(tickets_are_served_in_order),
        TEST(another_has_what_is_resident_and_away_but_not_twice),
        TEST(those_within_their_guarantee_go_last_and_come_first),
        TEST(one_in_its_quantum_yields_to_one_within_its_guarantee),
        TEST(a_ticket_is_drawn_after_all_others),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
