/* Every interleaving of three processes that take turns in the memory of a group, at the level of
 * their steps in the ledger: the library's own charges, tickets and ranks on a real ledger, with a
 * search over all states.
 *
 * Each process needs 2 units of a device with room for 4, the first one later 3. It works and
 * idles, its quantum ends, it leaves when asked, comes back when its work demands it, asks for
 * more, is killed at any step, is stopped and goes on. Checked:
 *   1. The sum of what is resident never passes the limit.
 *   2. A process runs only while all its memory is resident.
 *   3. Nobody waits for ever: where only the helpers' steps and the end of quanta happen, every
 *      sequence of them ends (no state comes back), and where it ends, no process that could fit
 *      waits. */
#include "core/ledger/account.h"
#include "core/ledger/turn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMBERS 3
#define LIMIT 4
#define KEY 7
#define NOW (UINT64_C(1) << 40)
#define STATES_MAX (1U << 24)

enum life { RUNS, STOPPED, DEAD };

struct member {
    uint8_t state; /* enum gc_turn_state: IN, AWAY, WAITING */
    uint8_t held;
    uint8_t size;   /* what it needs resident to run */
    uint8_t want;   /* a thread of it waits for so much more */
    uint8_t ticket; /* its place among the tickets; 0: none */
    uint8_t give;   /* asked for so much */
    uint8_t life;
    bool is_busy;
    bool is_over; /* its quantum */
    bool is_stuck;
    bool has_queued; /* since it drew its ticket, no turn of it has begun */
};

struct world {
    struct member members[MEMBERS];
};

/* ---- the ledger ---- */

static struct gc_ledger_file *file;
static struct gc_ledger ledgers[MEMBERS];
static struct gc_account accounts[MEMBERS];

static void open_ledger(void)
{
    file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file == MAP_FAILED)
        abort();
    atomic_store(&file->slot_high, MEMBERS);
    atomic_store(&file->devices[0].key, KEY);
    atomic_store(&file->groups[0].key, KEY);
    atomic_store(&file->groups[0].limits[0], LIMIT);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        atomic_store(&file->group_keys[i], KEY);
        ledgers[i] = (struct gc_ledger){.file = file, .fd = -1, .own = i};
        accounts[i] = (struct gc_account){
            .ledger = &ledgers[i], .device_key = KEY, .group_key = KEY, .takes_turns = true};
    }
}

static void put_word(gc_ledger_word *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint8_t need_of(const struct member *member)
{
    if (member->life == DEAD)
        return 0;
    if (member->state == GC_TURN_WAITING)
        return (uint8_t)(member->size - member->held);
    return member->state == GC_TURN_IN ? member->want : 0;
}

static void put(const struct world *world)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const struct member *member = &world->members[i];
        struct gc_ledger_turn_row *row = &file->slots[i].turn;
        put_word(&file->accounts[0][i], member->held);
        put_word(&row->ticket, member->ticket);
        put_word(&row->need[0], need_of(member));
        atomic_store_explicit(&row->state, member->life == DEAD ? GC_TURN_NONE : member->state,
                              memory_order_relaxed);
        put_word(&row->beat_ns, member->life == RUNS ? UINT64_MAX / 2 : 0);
        atomic_store_explicit(&row->is_stuck, member->is_stuck, memory_order_relaxed);
        put_word(&row->idle_ns, member->is_busy ? 0 : 1);
        put_word(&row->gap_ns, 1);
        put_word(&row->begin_ns, 0);
        put_word(&row->quantum_ns, member->is_over ? 1 : UINT64_MAX / 2);
    }
}

/* ---- all states ---- */

static struct world *worlds; /* by number */
static uint32_t *table;      /* hash table of numbers + 1 */
static uint32_t world_count;
static uint64_t failures;

static uint32_t hash(const struct world *world)
{
    const uint8_t *bytes = (const uint8_t *)world;
    uint32_t value = 2166136261U;
    for (size_t i = 0; i < sizeof(*world); i++)
        value = (value ^ bytes[i]) * 16777619U;
    return value;
}

/* The number of tickets before the member's, and one; 0: it has none. */
static uint8_t rank_of(const struct world *world, int i)
{
    unsigned rank = 1;
    for (int j = 0; j < MEMBERS; j++)
        rank +=
            world->members[j].ticket != 0 && world->members[j].ticket < world->members[i].ticket;
    return world->members[i].ticket == 0 ? 0 : (uint8_t)rank;
}

/* Tickets keep their order alone, and what means nothing in a state is 0. */
static void normalise(struct world *world)
{
    const struct world before = *world;
    for (int i = 0; i < MEMBERS; i++) {
        struct member *member = &world->members[i];
        member->ticket = rank_of(&before, i);
        member->is_busy &= member->state == GC_TURN_IN;
        member->is_over &= member->state == GC_TURN_IN;
        member->is_stuck &= member->state == GC_TURN_WAITING;
        member->has_queued &= member->ticket != 0;
    }
}

static uint32_t number_of(const struct world *world)
{
    uint32_t at = hash(world) & (2 * STATES_MAX - 1);
    while (table[at] != 0) {
        if (memcmp(&worlds[table[at] - 1], world, sizeof(*world)) == 0)
            return table[at] - 1;
        at = (at + 1) & (2 * STATES_MAX - 1);
    }
    if (world_count == STATES_MAX)
        abort();
    worlds[world_count] = *world;
    table[at] = ++world_count;
    return world_count - 1;
}

static void fail(const char *what, const struct world *world)
{
    if (failures++ >= 3)
        return;
    printf("# %s\n", what);
    for (int i = 0; i < MEMBERS; i++) {
        const struct member *m = &world->members[i];
        printf(
            "#   %d: state %d held %d of %d want %d ticket %d give %d life %d busy %d over %d stuck %d\n",
            i, m->state, m->held, m->size, m->want, m->ticket, m->give, m->life, m->is_busy,
            m->is_over, m->is_stuck);
    }
}

/* ---- steps ---- */

static uint8_t next_ticket(const struct world *world)
{
    uint8_t last = 0;
    for (int i = 0; i < MEMBERS; i++)
        last = world->members[i].ticket > last ? world->members[i].ticket : last;
    return last + 1;
}

static void draw(struct world *world, int i)
{
    if (world->members[i].ticket != 0)
        return;
    world->members[i].ticket = next_ticket(world);
    world->members[i].has_queued = true;
}

static uint64_t held_sum(const struct world *world)
{
    uint64_t sum = 0;
    for (int i = 0; i < MEMBERS; i++)
        sum += world->members[i].held;
    return sum;
}

/* The process to ask, by the library's own rule; -1: nobody. */
static int choose(const struct world *world, int asker, bool *has_hope)
{
    const struct gc_turn_need need = {KEY, 0, need_of(&world->members[asker]), LIMIT};
    const uint32_t chosen = gc_turn_choose(&ledgers[asker], &need, NOW, NULL, has_hope);
    return chosen == GC_LEDGER_NONE ? -1 : (int)chosen;
}

/* The helper is first, and there is no room for what it needs. */
static bool must_ask(const struct world *world, int i)
{
    const uint8_t need = need_of(&world->members[i]);
    return need > 0 && held_sum(world) + need > LIMIT &&
           !gc_turn_has_earlier(&ledgers[i], KEY, 0, LIMIT);
}

/* Nobody may be giving; true: it asked. */
static bool ask(struct world *world, int i)
{
    bool has_hope;
    if (!must_ask(world, i))
        return false;
    for (int j = 0; j < MEMBERS; j++)
        if (world->members[j].give > 0 && world->members[j].life == RUNS)
            return false;
    const int victim = choose(world, i, &has_hope);
    if (victim < 0)
        return false;
    world->members[victim].give = 1;
    world->members[i].is_stuck = false;
    return true;
}

/* A request that has queued is a turn, too. */
static void begin_turn(struct member *member)
{
    member->is_busy = true;
    member->is_over = false;
    member->has_queued = false;
}

/* The request is served, or refused. */
static void end_want(struct member *member)
{
    member->want = 0;
    if (member->has_queued)
        begin_turn(member);
    if (member->is_over)
        member->ticket = 0;
}

/* Where nobody can give a request is refused, and a process that would come back is stuck, while
 * that lasts. */
static bool despair(struct world *world, int i)
{
    struct member *member = &world->members[i];
    bool has_hope = true;
    if (must_ask(world, i))
        (void)choose(world, i, &has_hope);
    if (!has_hope && member->state == GC_TURN_IN) {
        end_want(member);
        return true;
    }
    if (member->is_stuck == !has_hope)
        return false;
    member->is_stuck = !has_hope;
    return true;
}

/* The helper gives one unit, or finds that it need not. */
static bool give(struct world *world, int i)
{
    struct member *member = &world->members[i];
    if (member->give == 0)
        return false;
    member->give = 0;
    if (member->state == GC_TURN_IN && member->is_busy && !member->is_over)
        return true;
    if (member->state == GC_TURN_IN) {
        member->state = member->want > 0 ? GC_TURN_WAITING : GC_TURN_AWAY;
        member->ticket = member->want > 0 ? member->ticket : 0;
    }
    if (member->held > 0)
        member->held--;
    return true;
}

/* A process that came back, or got what it wanted, runs. */
static void settle(struct member *member)
{
    if (member->state == GC_TURN_WAITING && member->held == member->size) {
        member->state = GC_TURN_IN;
        begin_turn(member);
    }
}

static bool charge(struct world *world, int i)
{
    struct member *member = &world->members[i];
    if (need_of(member) == 0 || member->is_stuck || !gc_account_try_charge(&accounts[i], 1))
        return false;
    gc_account_uncharge(&accounts[i], 1);
    member->held++;
    if (member->state == GC_TURN_IN) {
        member->size++;
        if (--member->want == 0)
            end_want(member);
    }
    settle(member);
    return true;
}

static bool end_quantum(struct world *world, int i)
{
    struct member *member = &world->members[i];
    if (member->state != GC_TURN_IN || member->is_over)
        return false;
    member->is_over = true;
    if (member->want == 0)
        member->ticket = 0;
    return true;
}

typedef bool step_function(struct world *world, int i);
static step_function *const helper_steps[] = {ask, despair, give, charge, end_quantum};
#define HELPER_STEPS (sizeof(helper_steps) / sizeof(helper_steps[0]))

/* ---- steps of programs, and of fate ---- */

static bool toggle_work(struct world *world, int i)
{
    struct member *member = &world->members[i];
    if (member->state != GC_TURN_IN)
        return false;
    member->is_busy = !member->is_busy;
    return true;
}

static bool demand(struct world *world, int i)
{
    struct member *member = &world->members[i];
    if (member->state != GC_TURN_AWAY)
        return false;
    member->state = GC_TURN_WAITING;
    draw(world, i);
    settle(member);
    return true;
}

static bool want_more(struct world *world, int i)
{
    struct member *member = &world->members[i];
    if (i != 0 || member->state != GC_TURN_IN || member->want > 0 || member->size >= 3)
        return false;
    member->want = 1;
    draw(world, i);
    return true;
}

static bool stop(struct world *world, int i)
{
    world->members[i].life = STOPPED;
    return true;
}

static bool die(struct world *world, int i)
{
    world->members[i] = (struct member){.life = DEAD, .state = GC_TURN_AWAY};
    return true;
}

static step_function *const other_steps[] = {toggle_work, demand, want_more, stop, die};
#define OTHER_STEPS (sizeof(other_steps) / sizeof(other_steps[0]))

static bool go_on(struct world *world, int i)
{
    if (world->members[i].life != STOPPED)
        return false;
    world->members[i].life = RUNS;
    return true;
}

static bool try_step(const struct world *world, step_function *step, int i, struct world *next)
{
    *next = *world;
    if (step != go_on && step != die && world->members[i].life != RUNS)
        return false;
    if (step == die && world->members[i].life == DEAD)
        return false;
    put(world);
    if (!step(next, i))
        return false;
    normalise(next);
    return true;
}

/* ---- checks ---- */

static void check_state(const struct world *world)
{
    if (held_sum(world) > LIMIT)
        fail("more is resident than the limit", world);
    for (int i = 0; i < MEMBERS; i++)
        if (world->members[i].life != DEAD && world->members[i].state == GC_TURN_IN &&
            world->members[i].held != world->members[i].size)
            fail("a process runs without all its memory", world);
}

/* What stopped processes hold cannot go. */
static bool could_fit(const struct world *world, int i)
{
    uint64_t stuck = 0;
    for (int j = 0; j < MEMBERS; j++)
        stuck += j != i && world->members[j].life == STOPPED ? world->members[j].held : 0;
    return stuck + world->members[i].held + need_of(&world->members[i]) <= LIMIT;
}

/* Where helpers have nothing left to do. */
static void check_end(const struct world *world)
{
    for (int i = 0; i < MEMBERS; i++)
        if (world->members[i].life == RUNS && need_of(&world->members[i]) > 0 &&
            could_fit(world, i) && world->members[i].state == GC_TURN_WAITING)
            fail("a process waits for ever", world);
}

/* The helpers' steps alone: depth first; a state that is on the path comes back. */
static uint8_t *colour; /* 1: on the path, 2: done */

static void walk(uint32_t number)
{
    bool is_end = true;
    colour[number] = 1;
    for (size_t s = 0; s < HELPER_STEPS; s++)
        for (int i = 0; i < MEMBERS; i++) {
            struct world next;
            const struct world world = worlds[number];
            if (!try_step(&world, helper_steps[s], i, &next))
                continue;
            is_end = false;
            const uint32_t to = number_of(&next);
            if (colour[to] == 1)
                fail("helpers go in a circle", &next);
            else if (colour[to] == 0)
                walk(to);
        }
    if (is_end)
        check_end(&worlds[number]);
    colour[number] = 2;
}

static void explore(void)
{
    for (uint32_t n = 0; n < world_count; n++) {
        const struct world world = worlds[n];
        struct world next;
        check_state(&world);
        for (int i = 0; i < MEMBERS; i++) {
            for (size_t s = 0; s < HELPER_STEPS; s++)
                if (try_step(&world, helper_steps[s], i, &next))
                    (void)number_of(&next);
            for (size_t s = 0; s < OTHER_STEPS; s++)
                if (try_step(&world, other_steps[s], i, &next))
                    (void)number_of(&next);
            if (try_step(&world, go_on, i, &next))
                (void)number_of(&next);
        }
    }
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

int main(void)
{
    struct world first = {0};
    open_ledger();
    worlds = map(STATES_MAX * sizeof(*worlds));
    table = map(2UL * STATES_MAX * sizeof(*table));
    colour = map(STATES_MAX);
    for (int i = 0; i < MEMBERS; i++)
        first.members[i] = (struct member){.state = i < 2 ? GC_TURN_IN : GC_TURN_AWAY,
                                           .held = i < 2 ? 2 : 0,
                                           .size = 2,
                                           .is_busy = true};
    (void)number_of(&first);
    explore();
    const uint32_t count = world_count;
    printf("1..2\n%sok 1 - %u states: the limit holds, and who runs has all its memory\n",
           failures != 0 ? "not " : "", count);
    const uint64_t before = failures;
    for (uint32_t n = 0; n < count; n++)
        if (colour[n] == 0)
            walk(n);
    printf("%sok 2 - nobody waits for ever\n", failures != before ? "not " : "");
    return failures != 0;
}
