/* The repeating part of a run: the steps of a training loop, the requests of a server.
 *
 * A run is a sequence of events: allocations and frees of one device. Its steps are found by
 * repeated short pieces (n-grams): the most frequent distances between equal pieces are candidates
 * for a step's length. A candidate is valid if two neighbouring windows of that length agree almost
 * everywhere, nearly all later pieces occur in the first window, and memory does not grow from step
 * to step. The valid candidate that describes the run with the fewest events wins (minimum
 * description length, Rissanen 1978). If none is valid the whole run is one step.
 *
 * The step begins where the least memory is live, so that few allocations live across its border.
 */
#include "core/planner/run_problem.h"

#include "core/base/bits.h"

#include <stdbool.h>
#include <string.h>

/* ---- the repeating part ---- */

#define PIECE 4 /* events that are compared as one */
#define CANDIDATES 48
#define STEP_EVENTS_MIN 4
/* So many of 100 events must agree with the next window. */
#define AGREE_PCT 95
/* So many of 100 pieces after the first step must occur in it. */
#define COVER_PCT 80
/* Steps may leak at most this fraction (1/n) of the peak, all together. */
#define GROWTH_DIVISOR 32
/* A plan with steps must be shorter than the whole run by this fraction (1/n). */
#define GAIN_DIVISOR 8

/* The search for the step's length. */
struct search {
    struct gc_region *region;
    uint32_t count;
    uint64_t *tokens; /* equal for equal events */
    uint64_t *live;   /* bytes after the event */
    uint64_t peak_bytes;
    uint32_t *table; /* of pieces: position + 1, by hash; 0: empty */
    uint32_t table_mask;
};

static uint64_t rounded(uint64_t bytes)
{
    uint64_t result;
    return gc_round_up_u64(bytes, GC_PLAN_UNIT_BYTES, &result) ? result : bytes;
}

static enum gc_status read_events(struct search *search, const struct gc_run_event *events,
                                  uint32_t slot_count)
{
    struct gc_region *region = search->region;
    uint64_t *sizes = gc_region_alloc(region, ((uint64_t)slot_count + 1) * sizeof(*sizes));
    uint64_t live = 0;
    search->tokens = gc_region_alloc(region, (uint64_t)search->count * sizeof(uint64_t));
    search->live = gc_region_alloc(region, (uint64_t)search->count * sizeof(uint64_t));
    if (sizes == NULL || search->tokens == NULL || search->live == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < search->count; i++) {
        const struct gc_run_event *event = &events[i];
        const bool is_alloc = event->bytes > 0;
        if (is_alloc)
            sizes[event->slot] = rounded(event->bytes);
        const uint64_t bytes = sizes[event->slot];
        live = is_alloc ? live + bytes : live - bytes;
        search->live[i] = live;
        search->peak_bytes = gc_max_u64(search->peak_bytes, live);
        search->tokens[i] = gc_mix_u64(bytes * 2 + is_alloc) ^ gc_mix_u64(~event->stream);
    }
    return GC_OK;
}

/* ---- pieces ---- */

static uint64_t piece_hash(const struct search *search, uint32_t at)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < PIECE; i++)
        hash = gc_mix_u64(hash + search->tokens[at + i]);
    return hash;
}

static bool is_same_piece(const struct search *search, uint32_t a, uint32_t b)
{
    return memcmp(&search->tokens[a], &search->tokens[b], PIECE * sizeof(uint64_t)) == 0;
}

static enum gc_status make_table(struct search *search)
{
    uint64_t room = 16;
    while (room < 2 * (uint64_t)search->count)
        room *= 2;
    search->table = gc_region_alloc(search->region, room * sizeof(*search->table));
    search->table_mask = (uint32_t)(room - 1);
    return search->table != NULL ? GC_OK : GC_NO_HOST_MEMORY;
}

static void clear_table(struct search *search)
{
    memset(search->table, 0, ((uint64_t)search->table_mask + 1) * sizeof(*search->table));
}

/* The table's entry for a piece equal to the one at `at`, or the empty entry for it. */
static uint32_t *find_piece(const struct search *search, uint32_t at)
{
    uint32_t i = (uint32_t)piece_hash(search, at) & search->table_mask;
    while (search->table[i] != 0 && !is_same_piece(search, search->table[i] - 1, at))
        i = (i + 1) & search->table_mask;
    return &search->table[i];
}

/* ---- candidates ---- */

/* Finds the distances between equal pieces, the most frequent first. */
static enum gc_status find_candidates(struct search *search, uint32_t *found, uint32_t *found_count)
{
    const uint32_t longest = search->count / 2;
    uint32_t *times = gc_region_alloc(search->region, ((uint64_t)longest + 1) * sizeof(*times));
    if (times == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i + PIECE <= search->count; i++) {
        uint32_t *entry = find_piece(search, i);
        const uint32_t distance = *entry == 0 ? 0 : i - (*entry - 1);
        if (distance <= longest)
            times[distance]++;
        *entry = i + 1;
    }
    for (*found_count = 0; *found_count < CANDIDATES; (*found_count)++) {
        uint32_t best = 0;
        times[0] = 0;
        for (uint32_t i = STEP_EVENTS_MIN; i <= longest; i++)
            best = times[i] > times[best] ? i : best;
        if (best == 0)
            break;
        found[*found_count] = best;
        times[best] = 0;
    }
    return GC_OK;
}

/* ---- validation of a candidate ---- */

/* The first window of `period` events that agrees with the next one. */
static bool find_start(const struct search *search, uint32_t period, uint32_t *start)
{
    const uint64_t needed = ((uint64_t)period * AGREE_PCT + 99) / 100;
    uint64_t agreeing = 0;
    for (uint32_t i = 0; (uint64_t)i + period < search->count; i++) {
        agreeing += search->tokens[i] == search->tokens[i + period];
        if (i >= period)
            agreeing -= search->tokens[i - period] == search->tokens[i];
        if (i + 1 < period || agreeing < needed)
            continue;
        *start = i + 1 - period;
        /* The events before the first step are not part of a step. */
        while ((uint64_t)*start + 2 * (uint64_t)period < search->count &&
               search->tokens[*start] != search->tokens[*start + period])
            (*start)++;
        return true;
    }
    return false;
}

/* Counts the pieces after the first step that do not occur in it. */
static uint32_t count_foreign(struct search *search, uint32_t start, uint32_t period)
{
    uint32_t foreign = 0;
    clear_table(search);
    for (uint32_t i = start; i < start + period && i + PIECE <= search->count; i++)
        *find_piece(search, i) = i + 1;
    for (uint32_t i = start + period; i + PIECE <= search->count; i++)
        foreign += *find_piece(search, i) == 0;
    return foreign;
}

static uint64_t least_live(const struct search *search, uint32_t from, uint32_t events,
                           uint32_t *where)
{
    *where = from;
    for (uint32_t i = from; i < from + events; i++)
        *where = search->live[i] < search->live[*where] ? i : *where;
    return search->live[*where];
}

/* Whether memory grows from the first step to the last whole one. */
static bool is_growing(const struct search *search, uint32_t start, uint32_t period)
{
    const uint32_t steps = (search->count - start) / period;
    uint32_t ignored;
    const uint64_t first = least_live(search, start, period, &ignored);
    const uint64_t last = least_live(search, start + (steps - 1) * period, period, &ignored);
    return last > first && last - first > search->peak_bytes / GROWTH_DIVISOR;
}

/* The number of events that describe the run with steps of that length; UINT32_MAX: not valid. */
static uint32_t cost_of(struct search *search, uint32_t period, uint32_t *start)
{
    if (!find_start(search, period, start) || is_growing(search, *start, period))
        return UINT32_MAX;
    const uint32_t rest = search->count - *start - period;
    const uint32_t foreign = count_foreign(search, *start, period);
    if ((uint64_t)foreign * 100 > (uint64_t)rest * (100 - COVER_PCT))
        return UINT32_MAX;
    return *start + period + foreign;
}

static void choose(struct search *search, const uint32_t *candidates, uint32_t count,
                   struct gc_run_steps *steps)
{
    uint32_t least = search->count - search->count / GAIN_DIVISOR;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t period = candidates[i];
        uint32_t start = 0;
        const uint32_t cost = cost_of(search, period, &start);
        if (cost > least || (cost == least && steps->period != 0 && period > steps->period))
            continue;
        least = cost;
        *steps = (struct gc_run_steps){.start = start, .period = period};
    }
    if (steps->period == 0)
        return;
    uint32_t lowest;
    const uint64_t before = steps->start == 0 ? 0 : search->live[steps->start - 1];
    const uint64_t least_bytes = least_live(search, steps->start, steps->period, &lowest);
    steps->count = (search->count - steps->start) / steps->period;
    if (least_bytes < before)
        steps->start = lowest + 1; /* after the event with the least live memory */
}

/* Slots are below `slot_count`. O(n) for each of a few dozen candidates; memory from `region`. */
static enum gc_status find_steps(struct gc_region *region, const struct gc_run_event *events,
                                 size_t count, uint32_t slot_count, struct gc_run_steps *steps)
{
    struct search search = {.region = region, .count = (uint32_t)count};
    uint32_t candidates[CANDIDATES];
    uint32_t candidate_count;
    *steps = (struct gc_run_steps){.start = 0};
    if (count > GC_RUN_EVENTS_MAX)
        return GC_TOO_MANY;
    enum gc_status status = read_events(&search, events, slot_count);
    if (status == GC_OK)
        status = make_table(&search);
    if (status == GC_OK)
        status = find_candidates(&search, candidates, &candidate_count);
    if (status == GC_OK)
        choose(&search, candidates, candidate_count, steps);
    return status;
}

/* ---- the problem ---- */

#define NO_ENTRY UINT32_MAX

struct making {
    const struct gc_run_event *events;
    struct gc_run_problem *problem;
    uint32_t *entry_of; /* by slot */
    uint64_t streams[GC_PLAN_STREAMS_MAX];
};

/* Numbers streams by first use; the null stream is 0. */
static uint32_t number_of(struct making *making, uint64_t stream)
{
    uint32_t *count = &making->problem->stream_count;
    uint32_t i = 0;
    while (i < *count && making->streams[i] != stream)
        i++;
    if (i < *count)
        return i;
    if (*count == GC_PLAN_STREAMS_MAX)
        return GC_PLAN_STREAMS_MAX - 1;
    making->streams[(*count)++] = stream;
    return i;
}

static enum gc_status begin_life(struct making *making, uint32_t time)
{
    struct gc_run_problem *problem = making->problem;
    const struct gc_run_event *event = &making->events[time];
    struct gc_plan_entry *entry = &problem->entries[problem->count];
    *entry = (struct gc_plan_entry){
        .lower = time, .upper = problem->end_time, .stream = number_of(making, event->stream)};
    if (!gc_round_up_u64(event->bytes, GC_PLAN_UNIT_BYTES, &entry->bytes) ||
        entry->bytes > INT64_MAX)
        return GC_FORMAT;
    if (problem->steps.period != 0 && time < problem->steps.start)
        problem->loop_start = problem->count + 1;
    making->entry_of[event->slot] = problem->count++;
    return GC_OK;
}

static void end_life(struct making *making, uint32_t time)
{
    const uint32_t slot = making->events[time].slot;
    if (making->entry_of[slot] != NO_ENTRY)
        making->problem->entries[making->entry_of[slot]].upper = time;
    making->entry_of[slot] = NO_ENTRY;
}

/* An allocation that the step leaves to the next one keeps its offset for the whole step. */
static void stretch(struct gc_run_problem *problem)
{
    for (uint32_t i = 0; i < problem->count; i++) {
        struct gc_plan_entry *entry = &problem->entries[i];
        if (entry->upper < problem->end_time)
            continue;
        if (problem->steps.period != 0 && i >= problem->loop_start)
            entry->lower = problem->steps.start;
        problem->lasting_count++;
        problem->lasting_bytes += entry->bytes;
    }
}

static enum gc_status make_buffers(struct gc_region *region, struct gc_run_problem *problem)
{
    uint64_t total = 0;
    problem->buffers =
        gc_region_alloc(region, (uint64_t)problem->count * sizeof(*problem->buffers));
    if (problem->buffers == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++) {
        const struct gc_plan_entry *entry = &problem->entries[i];
        problem->buffers[i] = (struct gc_placement_buffer){.lower = entry->lower,
                                                           .upper = entry->upper,
                                                           .bytes = entry->bytes,
                                                           .alignment = GC_PLAN_UNIT_BYTES,
                                                           .fixed = GC_PLACEMENT_FREE};
        if (!gc_add_u64(total, entry->bytes, &total) || total > INT64_MAX)
            return GC_FORMAT;
    }
    return GC_OK;
}

/* True if an allocation of a step is freed after the next step's own one is made, and the run has
 * two steps. Two buffers alternate, so two steps are planned as one. */
static bool overlaps_itself(const struct making *making, size_t count)
{
    const struct gc_run_steps *steps = &making->problem->steps;
    const uint64_t end = (uint64_t)steps->start + 2 * (uint64_t)steps->period;
    if (steps->period == 0 || end > count)
        return false;
    for (uint32_t i = steps->start; i < end; i++) {
        uint32_t *made = &making->entry_of[making->events[i].slot];
        if (making->events[i].bytes > 0)
            *made = i;
        else if (*made >= steps->start && *made < steps->start + steps->period &&
                 i - *made > steps->period)
            return true;
    }
    return false;
}

static void clear_slots(struct making *making, uint32_t slot_count)
{
    memset(making->entry_of, 0xff, ((uint64_t)slot_count + 1) * sizeof(uint32_t));
}

/* Finds the planned part of the run, and allocates its lists. */
static enum gc_status prepare(struct gc_region *region, struct making *making, size_t count,
                              uint32_t slot_count)
{
    struct gc_run_problem *problem = making->problem;
    struct gc_run_steps *steps = &problem->steps;
    uint64_t allocs = 0;
    making->entry_of = gc_region_alloc(region, ((uint64_t)slot_count + 1) * sizeof(uint32_t));
    if (making->entry_of == NULL)
        return GC_NO_HOST_MEMORY;
    clear_slots(making, slot_count);
    problem->rounds = overlaps_itself(making, count) ? 2 : 1;
    clear_slots(making, slot_count);
    problem->end_time =
        steps->period == 0 ? (uint32_t)count : steps->start + problem->rounds * steps->period;
    for (uint32_t i = 0; i < problem->end_time; i++)
        allocs += making->events[i].bytes > 0;
    if (allocs == 0)
        return GC_FORMAT;
    if (allocs > GC_PLAN_ENTRIES_MAX)
        return GC_TOO_MANY;
    problem->entries = gc_region_alloc(region, allocs * sizeof(*problem->entries));
    problem->stream_count = 1;
    return problem->entries != NULL ? GC_OK : GC_NO_HOST_MEMORY;
}

enum gc_status gc_run_problem_make(struct gc_region *region, const struct gc_run_event *events,
                                   size_t count, uint32_t slot_count,
                                   struct gc_run_problem *problem)
{
    struct making making = {.events = events, .problem = problem};
    *problem = (struct gc_run_problem){.count = 0};
    enum gc_status status = find_steps(region, events, count, slot_count, &problem->steps);
    if (status == GC_OK)
        status = prepare(region, &making, count, slot_count);
    for (uint32_t i = 0; status == GC_OK && i < problem->end_time; i++) {
        if (events[i].bytes > 0)
            status = begin_life(&making, i);
        else
            end_life(&making, i);
    }
    if (status != GC_OK)
        return status;
    if (problem->loop_start == problem->count)
        problem->loop_start = 0; /* a step without allocations */
    stretch(problem);
    return make_buffers(region, problem);
}

void gc_run_problem_plan(struct gc_run_problem *problem, const uint64_t *offsets, int device,
                         struct gc_plan *plan)
{
    *plan = (struct gc_plan){.entries = problem->entries,
                             .count = problem->count,
                             .loop_start = problem->loop_start,
                             .stream_count = problem->stream_count,
                             .end_time = problem->end_time,
                             .device = device < 0 ? GC_PLAN_DEVICE_ANY : device};
    for (uint32_t i = 0; i < problem->count; i++) {
        struct gc_plan_entry *entry = &problem->entries[i];
        entry->offset = offsets[i];
        plan->peak_bytes = gc_max_u64(plan->peak_bytes, offsets[i] + entry->bytes);
    }
}
