/* The memory order of submissions, fences and the gate (core/device/submit.h), checked by running
 * every execution of small programs: explicit-state search, as in herd's and GenMC's small tests.
 *
 * A program is a list of instructions for each thread. A thread may perform any of its instructions
 * that is not behind an earlier one; memory is one copy that all see. Two machines: in TSO a load
 * may pass earlier stores (x86: no thread here loads what it stored, so that a store buffer is the
 * same as a late store). WEAK is as ARMv8: all may pass each other but for dependencies, equal
 * addresses, fences, acquire and release. The barrier reaches another thread (BARRIER) between two
 * of its instructions: all before that point have been performed, none behind it.
 *
 * Each test also runs the programs with one thing left out, and must find what that breaks. */
#include "tests/unit/cmocka_all.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define THREADS 4
#define STEPS 12
#define REGS 4
#define CELLS 8
#define STATES (1U << 20)

enum op {
    OP_END,
    OP_STORE, /* cell = value */
    OP_PUT,   /* cell = reg */
    OP_LOAD,  /* reg = cell */
    OP_ADD,   /* reg = cell, cell += value */
    OP_RAISE, /* cell = max(cell, reg) */
    OP_FENCE,
    OP_BARRIER, /* thread `value` makes a fence */
    OP_AWAIT,   /* the execution counts only if the cell has the value */
};

enum order { RELAXED = 0, ACQUIRE = 1, RELEASE = 2, BOTH = 3 };

/* Whether an instruction is performed: always, or if a register of the thread has a value, or is
 * less than another one. */
enum when { ALWAYS, IF_IS, IF_LESS };

struct step {
    enum op op;
    uint8_t cell;
    uint8_t reg;
    uint8_t value;
    enum order order;
    enum when when;
    uint8_t a, b;
};

typedef struct step program_t[THREADS][STEPS];

struct state {
    uint16_t done[THREADS]; /* a bit for each instruction */
    uint8_t regs[THREADS][REGS];
    uint8_t cells[CELLS];
};

/* Whether the final state is wrong. */
typedef bool wrong_function(const struct state *state);

static struct {
    const program_t *program;
    bool is_weak;
    wrong_function *is_wrong;
    struct state seen[STATES];
    bool is_used[STATES];
    unsigned state_count;
    unsigned end_count;
    bool has_failed;
} search;

/* ---- what may pass what ---- */

static bool is_store(const struct step *step)
{
    return step->op == OP_STORE || step->op == OP_PUT;
}

static bool has_cell(const struct step *step)
{
    return step->op != OP_FENCE && step->op != OP_BARRIER;
}

static bool writes_reg(const struct step *step, uint8_t reg)
{
    return (step->op == OP_LOAD || step->op == OP_ADD) && step->reg == reg;
}

static bool depends(const struct step *later, const struct step *earlier)
{
    const bool uses_reg = later->op == OP_PUT || later->op == OP_RAISE;
    return (uses_reg && writes_reg(earlier, later->reg)) ||
           (later->when != ALWAYS && writes_reg(earlier, later->a)) ||
           (later->when == IF_LESS && writes_reg(earlier, later->b));
}

static bool may_pass(const struct step *later, const struct step *earlier)
{
    if (later->op == OP_BARRIER && earlier->op == OP_BARRIER)
        return true; /* one call reaches the threads in any order */
    if (!has_cell(later) || !has_cell(earlier) || later->cell == earlier->cell ||
        depends(later, earlier))
        return false;
    if (!search.is_weak)
        return later->op == OP_LOAD && is_store(earlier);
    return (earlier->order & ACQUIRE) == 0 && (later->order & RELEASE) == 0;
}

static bool is_prefix(uint16_t done)
{
    return (done & (done + 1U)) == 0;
}

static bool is_due(const struct step *step, const uint8_t *regs)
{
    return step->when == ALWAYS || (step->when == IF_IS && regs[step->a] == step->b) ||
           (step->when == IF_LESS && regs[step->a] < regs[step->b]);
}

static bool may_perform(const struct state *state, unsigned thread, unsigned index)
{
    const struct step *steps = (*search.program)[thread];
    if ((state->done[thread] >> index & 1U) != 0 || steps[index].op == OP_END)
        return false;
    for (unsigned i = 0; i < index; i++)
        if ((state->done[thread] >> i & 1U) == 0 && !may_pass(&steps[index], &steps[i]))
            return false;
    return steps[index].op != OP_BARRIER || !is_due(&steps[index], state->regs[thread]) ||
           is_prefix(state->done[steps[index].value]);
}

/* ---- one step ---- */

/* False: the execution does not count. */
static bool perform(struct state *state, unsigned thread, unsigned index)
{
    const struct step *step = &(*search.program)[thread][index];
    uint8_t *cell = &state->cells[step->cell];
    uint8_t *reg = &state->regs[thread][step->reg];
    state->done[thread] |= (uint16_t)(1U << index);
    if (!is_due(step, state->regs[thread]))
        return true;
    switch (step->op) {
    case OP_STORE:
        *cell = step->value;
        break;
    case OP_PUT:
        *cell = *reg;
        break;
    case OP_LOAD:
        *reg = *cell;
        break;
    case OP_ADD:
        *reg = *cell;
        *cell = (uint8_t)(*cell + step->value);
        break;
    case OP_RAISE:
        *cell = *reg > *cell ? *reg : *cell;
        break;
    case OP_AWAIT:
        return *cell == step->value;
    default:
        break;
    }
    return true;
}

/* ---- all executions ---- */

/* True for a state that was not seen yet. */
static bool remember(const struct state *state)
{
    uint64_t hash = UINT64_C(1469598103934665603);
    for (size_t i = 0; i < sizeof(*state); i++)
        hash = (hash ^ ((const uint8_t *)state)[i]) * UINT64_C(1099511628211);
    unsigned slot = (unsigned)(hash % STATES);
    while (search.is_used[slot]) {
        if (memcmp(&search.seen[slot], state, sizeof(*state)) == 0)
            return false;
        slot = (slot + 1) % STATES;
    }
    assert_true(search.state_count++ < STATES / 2);
    search.is_used[slot] = true;
    search.seen[slot] = *state;
    return true;
}

static void explore(const struct state *state)
{
    bool is_end = true;
    if (search.has_failed || !remember(state))
        return;
    for (unsigned thread = 0; thread < THREADS; thread++) {
        for (unsigned index = 0; index < STEPS; index++) {
            if (!may_perform(state, thread, index))
                continue;
            struct state next = *state;
            is_end = false;
            if (perform(&next, thread, index))
                explore(&next);
        }
    }
    if (!is_end)
        return;
    search.end_count++;
    search.has_failed |= search.is_wrong(state);
}

/* Whether some execution is wrong. */
static bool fails(const program_t program, bool is_weak, const uint8_t *cells,
                  wrong_function *is_wrong)
{
    struct state start = {0};
    memset(&search, 0, sizeof(search));
    search.program = (const program_t *)program;
    search.is_weak = is_weak;
    search.is_wrong = is_wrong;
    memcpy(start.cells, cells, CELLS);
    explore(&start);
    assert_true(search.end_count > 0);
    return search.has_failed;
}

static void expect(const program_t program, const uint8_t *cells, wrong_function *is_wrong,
                   bool fails_in_tso, bool fails_in_weak)
{
    assert_int_equal(fails(program, false, cells, is_wrong), fails_in_tso);
    assert_int_equal(fails(program, true, cells, is_wrong), fails_in_weak);
}

/* ---- the instructions of a program ---- */

#define STORE(where, what)                                                                         \
    {                                                                                              \
        .op = OP_STORE, .cell = (where), .value = (what)                                           \
    }
#define STORE_RELEASE(where, what)                                                                 \
    {                                                                                              \
        .op = OP_STORE, .cell = (where), .value = (what), .order = RELEASE                         \
    }
#define LOAD(to, where)                                                                            \
    {                                                                                              \
        .op = OP_LOAD, .cell = (where), .reg = (to)                                                \
    }
#define LOAD_ACQUIRE(to, where)                                                                    \
    {                                                                                              \
        .op = OP_LOAD, .cell = (where), .reg = (to), .order = ACQUIRE                              \
    }
#define LOAD_IF_IS(to, where, reg_is, what)                                                        \
    {                                                                                              \
        .op = OP_LOAD, .cell = (where), .reg = (to), .when = IF_IS, .a = (reg_is), .b = (what)     \
    }
#define COUNT_UP(to, where)                                                                        \
    {                                                                                              \
        .op = OP_ADD, .cell = (where), .reg = (to), .value = 1, .order = BOTH                      \
    }
#define COUNT_DOWN(to, where, in_order)                                                            \
    {                                                                                              \
        .op = OP_ADD, .cell = (where), .reg = (to), .value = UINT8_MAX, .order = (in_order)        \
    }
#define RAISE(where, from)                                                                         \
    {                                                                                              \
        .op = OP_RAISE, .cell = (where), .reg = (from), .order = RELEASE                           \
    }
#define RAISE_IF_LESS(where, from, less)                                                           \
    {                                                                                              \
        .op = OP_RAISE, .cell = (where), .reg = (from), .order = RELEASE, .when = IF_LESS,         \
        .a = (less), .b = (from)                                                                   \
    }
#define PUT_IF_LESS(where, from, less)                                                             \
    {                                                                                              \
        .op = OP_PUT, .cell = (where), .reg = (from), .order = RELEASE, .when = IF_LESS,           \
        .a = (less), .b = (from)                                                                   \
    }
#define FENCE()                                                                                    \
    {                                                                                              \
        .op = OP_FENCE                                                                             \
    }
#define BARRIER(thread)                                                                            \
    {                                                                                              \
        .op = OP_BARRIER, .value = (thread)                                                        \
    }
#define BARRIER_IF_IS(thread, reg_is, what)                                                        \
    {                                                                                              \
        .op = OP_BARRIER, .value = (thread), .when = IF_IS, .a = (reg_is), .b = (what)             \
    }
#define AWAIT(where, what)                                                                         \
    {                                                                                              \
        .op = OP_AWAIT, .cell = (where), .value = (what), .order = ACQUIRE                         \
    }

/* ---- epochs: threads 0 and 1 submit, thread 2 records a fence ---- */

enum { EPOCH, SUBMITTED, WORK_0, WORK_1, TOLD, LINES };
enum { CLOSED, SEEN_0, SEEN_1, NEW_EPOCH, LINE_COUNT = NEW_EPOCH }; /* registers of the fence */
enum { READ_EPOCH, READ_SUBMITTED, STAMP };                         /* of the others */

static const uint8_t epochs[CELLS] = {[EPOCH] = 1};

/* gc_submit_end; the driver has the work before. */
#define SUBMIT(work)                                                                               \
    STORE(work, 1), LOAD(READ_EPOCH, EPOCH), LOAD(READ_SUBMITTED, SUBMITTED),                      \
        RAISE_IF_LESS(SUBMITTED, READ_EPOCH, READ_SUBMITTED)
/* gc_submit_epoch_of_free */
#define FREE() LOAD_ACQUIRE(STAMP, SUBMITTED)
/* gc_submit_open_epoch, gc_submitter_barrier, the driver's record */
#define OPEN() COUNT_UP(CLOSED, EPOCH)
#define BARRIERS() BARRIER(0), BARRIER(1)
#define RECORD() LOAD(SEEN_0, WORK_0), LOAD(SEEN_1, WORK_1)

static bool is_free_uncovered(const struct state *state, unsigned thread, unsigned seen)
{
    return state->regs[thread][STAMP] <= state->regs[2][CLOSED] && state->regs[2][seen] == 0;
}

/* A block counts as idle, and its work is not behind the fence. */
static bool is_reused_early(const struct state *state)
{
    return is_free_uncovered(state, 0, SEEN_0) || is_free_uncovered(state, 1, SEEN_1);
}

static void a_fence_covers_the_epochs_that_it_closes(void **state)
{
#define SUBMITTERS                                                                                 \
    {SUBMIT(WORK_0), FREE()},                                                                      \
    {                                                                                              \
        SUBMIT(WORK_1), FREE()                                                                     \
    }
    static const program_t right = {SUBMITTERS, {OPEN(), BARRIERS(), RECORD()}};
    static const program_t no_barrier = {SUBMITTERS, {OPEN(), RECORD()}};
    static const program_t early_barrier = {SUBMITTERS, {BARRIERS(), OPEN(), RECORD()}};
    static const program_t own_fence = {SUBMITTERS, {OPEN(), FENCE(), RECORD()}};
    (void)state;
    expect(right, epochs, is_reused_early, false, false);
    expect(no_barrier, epochs, is_reused_early, true, true);
    expect(early_barrier, epochs, is_reused_early, true, true);
    expect(own_fence, epochs, is_reused_early, true, true);
}

/* A thread that comes late would store an older epoch than another one has stored. */
static void the_count_never_falls(void **state)
{
#define SUBMIT_PLAINLY(work)                                                                       \
    STORE(work, 1), LOAD(READ_EPOCH, EPOCH), LOAD(READ_SUBMITTED, SUBMITTED),                      \
        PUT_IF_LESS(SUBMITTED, READ_EPOCH, READ_SUBMITTED)
    static const program_t plain = {{SUBMIT_PLAINLY(WORK_0), FREE()},
                                    {SUBMIT_PLAINLY(WORK_1), FREE()},
                                    {OPEN(), BARRIERS(), RECORD()}};
    (void)state;
    expect(plain, epochs, is_reused_early, true, true);
}

/* Thread 3 frees the memory of thread 0's work, as thread 0 told it. */
static bool is_told_early(const struct state *state)
{
    return is_free_uncovered(state, 3, SEEN_0);
}

static void another_thread_frees(void **state)
{
#define TELL() STORE_RELEASE(TOLD, 1)
#define FREE_WHEN_TOLD() AWAIT(TOLD, 1), FREE()
    static const program_t right = {{SUBMIT(WORK_0), TELL()},
                                    {SUBMIT(WORK_1)},
                                    {OPEN(), BARRIERS(), RECORD()},
                                    {FREE_WHEN_TOLD()}};
    static const program_t no_barrier = {
        {SUBMIT(WORK_0), TELL()}, {SUBMIT(WORK_1)}, {OPEN(), RECORD()}, {FREE_WHEN_TOLD()}};
    static const program_t told_first = {{STORE(WORK_0, 1), TELL(), SUBMIT(WORK_0)},
                                         {SUBMIT(WORK_1)},
                                         {OPEN(), BARRIERS(), RECORD()},
                                         {FREE_WHEN_TOLD()}};
    (void)state;
    expect(right, epochs, is_told_early, false, false);
    expect(no_barrier, epochs, is_told_early, true, true);
    expect(told_first, epochs, is_told_early, true, true);
}

/* Where the kernel refuses the barrier: gc_submitter_raise. The other thread's fence alone does not
 * do: see own_fence above. */
static void threads_make_fences_of_their_own(void **state)
{
#define SUBMIT_FENCED(work)                                                                        \
    STORE(work, 1), FENCE(), LOAD(READ_EPOCH, EPOCH), RAISE(SUBMITTED, READ_EPOCH)
    static const program_t right = {{SUBMIT_FENCED(WORK_0), FREE()},
                                    {SUBMIT_FENCED(WORK_1), FREE()},
                                    {OPEN(), FENCE(), RECORD()}};
    (void)state;
    expect(right, epochs, is_reused_early, false, false);
}

/* gc_submitter_settle: a thread that submits for the first time takes a line, and counts it; the
 * thread that closes the epoch makes no barrier while it finds no line. */
static void a_new_thread_needs_no_barrier(void **state)
{
#define TAKE_LINE() COUNT_UP(READ_EPOCH, LINES), FENCE()
#define BARRIERS_IF_LINES()                                                                        \
    BARRIER_IF_IS(0, LINE_COUNT, 1), BARRIER_IF_IS(0, LINE_COUNT, 2),                              \
        BARRIER_IF_IS(1, LINE_COUNT, 1), BARRIER_IF_IS(1, LINE_COUNT, 2)
#define NEW_SUBMITTERS                                                                             \
    {TAKE_LINE(), SUBMIT(WORK_0), FREE()},                                                         \
    {                                                                                              \
        TAKE_LINE(), SUBMIT(WORK_1), FREE()                                                        \
    }
    static const program_t right = {
        NEW_SUBMITTERS,
        {OPEN(), FENCE(), LOAD_ACQUIRE(LINE_COUNT, LINES), BARRIERS_IF_LINES(), RECORD()}};
    static const program_t looks_first = {
        NEW_SUBMITTERS,
        {LOAD_ACQUIRE(LINE_COUNT, LINES), OPEN(), FENCE(), BARRIERS_IF_LINES(), RECORD()}};
    static const program_t not_counted = {
        SUBMITTERS,
        {OPEN(), FENCE(), LOAD_ACQUIRE(LINE_COUNT, LINES), BARRIERS_IF_LINES(), RECORD()}};
    (void)state;
    expect(right, epochs, is_reused_early, false, false);
    expect(looks_first, epochs, is_reused_early, true, true);
    expect(not_counted, epochs, is_reused_early, true, true);
}

/* gc_submitter_settle in a thread with a line: no barrier while it finds that line alone. */
#define SETTLE_WITH_LINE()                                                                         \
    FENCE(), LOAD_ACQUIRE(LINE_COUNT, LINES), BARRIER_IF_IS(0, LINE_COUNT, 2),                     \
        BARRIER_IF_IS(0, LINE_COUNT, 3), BARRIER_IF_IS(1, LINE_COUNT, 2),                          \
        BARRIER_IF_IS(1, LINE_COUNT, 3)

static void a_thread_whose_line_is_the_only_one_needs_no_barrier(void **state)
{
    static const uint8_t one_line[CELLS] = {[EPOCH] = 1, [LINES] = 1};
    static const program_t right = {NEW_SUBMITTERS, {OPEN(), SETTLE_WITH_LINE(), RECORD()}};
    static const program_t looks_first = {NEW_SUBMITTERS, {SETTLE_WITH_LINE(), OPEN(), RECORD()}};
    (void)state;
    expect(right, one_line, is_reused_early, false, false);
    expect(looks_first, one_line, is_reused_early, true, true);
    expect(right, epochs, is_reused_early, true, true); /* the only line may be another thread's */
}

/* gc_submitter_destroy: the count that lacks an ended thread's line shows its work. Thread 3 frees
 * the memory of that work once thread 0 has ended. */
static void an_ended_thread_needs_no_barrier(void **state)
{
#define END(in_order) COUNT_DOWN(READ_EPOCH, LINES, in_order)
    static const uint8_t two_lines[CELLS] = {[EPOCH] = 1, [LINES] = 2};
    static const program_t right = {{SUBMIT(WORK_0), END(RELEASE), TELL()},
                                    {TAKE_LINE(), SUBMIT(WORK_1)},
                                    {OPEN(), SETTLE_WITH_LINE(), RECORD()},
                                    {FREE_WHEN_TOLD()}};
    static const program_t in_no_order = {{SUBMIT(WORK_0), END(RELAXED), TELL()},
                                          {TAKE_LINE(), SUBMIT(WORK_1)},
                                          {OPEN(), SETTLE_WITH_LINE(), RECORD()},
                                          {FREE_WHEN_TOLD()}};
    (void)state;
    expect(right, two_lines, is_told_early, false, false);
    expect(in_no_order, two_lines, is_told_early, false, true);
}

/* ---- work that is not counted: a stream waits for other work, and a block is freed in its order
 * ---- */

static void a_stream_fence_covers_what_came_before_a_free(void **state)
{
#define FREERS                                                                                     \
    {STORE(WORK_0, 1), FREE()},                                                                    \
    {                                                                                              \
        STORE(WORK_1, 1), FREE()                                                                   \
    }
/* gc_submit_advance */
#define RAISE_NEW() LOAD(NEW_EPOCH, EPOCH), RAISE(SUBMITTED, NEW_EPOCH)
    static const program_t right = {FREERS, {OPEN(), RAISE_NEW(), BARRIERS(), RECORD()}};
    static const program_t not_raised = {FREERS, {OPEN(), BARRIERS(), RECORD()}};
    static const program_t raised_late = {FREERS, {OPEN(), BARRIERS(), RAISE_NEW(), RECORD()}};
    (void)state;
    expect(right, epochs, is_reused_early, false, false);
    expect(not_raised, epochs, is_reused_early, true, true);
    expect(raised_late, epochs, is_reused_early, true, true);
}

/* ---- contexts: thread 0 lists its context, then submits; thread 2 reads the list ---- */

static void the_set_of_a_fence_is_read_behind_the_barrier(void **state)
{
    /* WORK_0: the list of roaming contexts, or the end of single-stream mode. */
    static const program_t right = {SUBMITTERS, {OPEN(), BARRIERS(), RECORD()}};
    static const program_t read_before = {SUBMITTERS, {OPEN(), RECORD(), BARRIERS()}};
    (void)state;
    expect(right, epochs, is_reused_early, false, false);
    expect(read_before, epochs, is_reused_early, true, true);
}

/* ---- the gate: threads 0 and 1 submit, thread 2 closes it and moves memory ---- */

enum { WORD, INSIDE_0, INSIDE_1, MOVED };
enum { IS_CLOSED, FOUND_MOVED };

static const uint8_t gate[CELLS] = {0};

/* gc_submitter_enter_open, the work, the leave */
#define PASS(inside)                                                                               \
    STORE(inside, 1), LOAD_ACQUIRE(IS_CLOSED, WORD), LOAD_IF_IS(FOUND_MOVED, MOVED, IS_CLOSED, 0), \
        STORE_RELEASE(inside, 0)
#define PASSERS                                                                                    \
    {PASS(INSIDE_0)},                                                                              \
    {                                                                                              \
        PASS(INSIDE_1)                                                                             \
    }
/* gc_submitter_close_gate, gc_submitter_drain_gate; memory moves once no thread is inside. */
#define CLOSE() STORE_RELEASE(WORD, 1)
#define DRAIN() AWAIT(INSIDE_0, 0), AWAIT(INSIDE_1, 0)
#define MOVE() STORE(MOVED, 1)

static bool is_moved_under_work(const struct state *state)
{
    return state->regs[0][FOUND_MOVED] != 0 || state->regs[1][FOUND_MOVED] != 0;
}

static void no_thread_is_inside_a_closed_gate(void **state)
{
    static const program_t right = {PASSERS, {CLOSE(), BARRIERS(), DRAIN(), MOVE()}};
    static const program_t no_barrier = {PASSERS, {CLOSE(), DRAIN(), MOVE()}};
    static const program_t own_fence = {PASSERS, {CLOSE(), FENCE(), DRAIN(), MOVE()}};
    static const program_t not_drained = {PASSERS, {CLOSE(), BARRIERS(), MOVE()}};
    (void)state;
    expect(right, gate, is_moved_under_work, false, false);
    expect(no_barrier, gate, is_moved_under_work, true, true);
    expect(own_fence, gate, is_moved_under_work, true, true);
    expect(not_drained, gate, is_moved_under_work, true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fence_covers_the_epochs_that_it_closes),
        cmocka_unit_test(the_count_never_falls),
        cmocka_unit_test(another_thread_frees),
        cmocka_unit_test(threads_make_fences_of_their_own),
        cmocka_unit_test(a_new_thread_needs_no_barrier),
        cmocka_unit_test(a_thread_whose_line_is_the_only_one_needs_no_barrier),
        cmocka_unit_test(an_ended_thread_needs_no_barrier),
        cmocka_unit_test(a_stream_fence_covers_what_came_before_a_free),
        cmocka_unit_test(the_set_of_a_fence_is_read_behind_the_barrier),
        cmocka_unit_test(no_thread_is_inside_a_closed_gate),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("submit_model", tests, NULL, NULL);
}
