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
#include "core/schedule/run_problem.h"

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
                                 size_t count, uint32_t slot_count, struct gc_run_problem *problem)
{
    struct search search = {.region = region, .count = (uint32_t)count};
    uint32_t candidates[CANDIDATES];
    uint32_t candidate_count;
    if (count > GC_RUN_EVENTS_MAX)
        return GC_TOO_MANY;
    enum gc_status status = read_events(&search, events, slot_count);
    if (status == GC_OK)
        status = make_table(&search);
    if (status == GC_OK)
        status = find_candidates(&search, candidates, &candidate_count);
    if (status == GC_OK)
        choose(&search, candidates, candidate_count, &problem->steps);
    problem->run_peak_bytes = search.peak_bytes;
    return status;
}

/* ---- the problem ---- */

#define NO_ENTRY UINT32_MAX
#define PAIR_WINDOW 64U /* crossings that are compared with an entry from before the step */

struct making {
    const struct gc_run_event *events;
    size_t event_count;
    uint32_t slot_count;
    struct gc_region *region;
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

/* ---- what crosses the step's end ---- */

/* Extends the lives of the step's allocations that a later event frees. At most a step's length:
 * what lives longer lasts. */
static void follow_frees(struct making *making)
{
    struct gc_run_problem *problem = making->problem;
    for (size_t i = problem->end_time; i < making->event_count; i++) {
        const struct gc_run_event *event = &making->events[i];
        const uint32_t made = making->entry_of[event->slot];
        making->entry_of[event->slot] = NO_ENTRY; /* an allocation takes the slot from here on */
        if (event->bytes > 0 || made == NO_ENTRY || made < problem->loop_start)
            continue;
        struct gc_plan_entry *entry = &problem->entries[made];
        /* A life that ends with the step's last event crosses it, too: only what lasts ends there.
         */
        const uint32_t upper = (uint32_t)(i > problem->end_time ? i : i + 1);
        if (upper - entry->lower <= problem->end_time - problem->loop_time)
            entry->upper = upper;
    }
}

/* Gives each entry that was made before the step and freed in it the place of the allocation that
 * takes its part in later steps. Both are listed in the order in which they are made, so the search
 * begins behind the last match. */
static void pair(struct gc_run_problem *problem)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < problem->loop_start && problem->crossing_count > 0; i++) {
        const struct gc_plan_entry *entry = &problem->entries[i];
        if (entry->upper <= problem->loop_time || entry->upper == problem->end_time)
            continue;
        for (uint32_t n = 0; n < PAIR_WINDOW && n < problem->crossing_count; n++) {
            struct gc_run_crossing *crossing =
                &problem->crossings[(at + n) % problem->crossing_count];
            const struct gc_plan_entry *other = &problem->entries[crossing->entry];
            if (crossing->before != GC_RUN_NONE || other->bytes != entry->bytes ||
                other->lower < entry->upper)
                continue;
            crossing->before = i;
            at += n + 1;
            break;
        }
    }
}

/* A lasting allocation of the step has its place for the whole step. */
static enum gc_status sort_out(struct making *making)
{
    struct gc_run_problem *problem = making->problem;
    problem->crossings =
        gc_region_alloc(making->region, (uint64_t)problem->count * sizeof(*problem->crossings));
    if (problem->crossings == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++) {
        struct gc_plan_entry *entry = &problem->entries[i];
        if (entry->upper > problem->end_time) {
            problem->crossings[problem->crossing_count++] =
                (struct gc_run_crossing){i, GC_RUN_NONE};
            problem->crossing_bytes += entry->bytes;
        } else if (entry->upper == problem->end_time) {
            if (problem->steps.period != 0 && i >= problem->loop_start)
                entry->lower = problem->loop_time;
            problem->lasting_count++;
            problem->lasting_bytes += entry->bytes;
        }
    }
    pair(problem);
    return GC_OK;
}

/* ---- the bound ---- */

/* Adds an entry to the changes of the first pass and of later ones, by time. */
static void add_changes(const struct gc_run_problem *problem, uint32_t index, uint64_t *first,
                        uint64_t *later)
{
    const struct gc_plan_entry *entry = &problem->entries[index];
    const uint32_t end = problem->end_time;
    const uint32_t upper = entry->upper < end ? entry->upper : end;
    first[entry->lower] += entry->bytes;
    first[upper] -= entry->bytes;
    if (index < problem->loop_start && upper < end)
        return;
    later[gc_max_u64(entry->lower, problem->loop_time)] += entry->bytes;
    later[upper] -= entry->bytes;
    if (entry->upper > end) {
        later[problem->loop_time] += entry->bytes;
        later[problem->loop_time + (entry->upper - end)] -= entry->bytes;
    }
}

static enum gc_status find_live(struct making *making)
{
    struct gc_run_problem *problem = making->problem;
    const uint64_t room = ((uint64_t)problem->end_time + 1) * sizeof(uint64_t);
    uint64_t *first = gc_region_alloc(making->region, room);
    uint64_t *later = gc_region_alloc(making->region, room);
    uint64_t live[2] = {0, 0};
    if (first == NULL || later == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++)
        add_changes(problem, i, first, later);
    for (uint32_t i = 0; i < problem->end_time; i++) {
        live[0] += first[i];
        live[1] += later[i];
        problem->live_bytes = gc_max_u64(problem->live_bytes, gc_max_u64(live[0], live[1]));
    }
    return GC_OK;
}

static enum gc_status make_buffers(struct making *making)
{
    struct gc_run_problem *problem = making->problem;
    uint64_t total = 0;
    problem->buffers =
        gc_region_alloc(making->region, (uint64_t)problem->count * sizeof(*problem->buffers));
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

static void clear_slots(struct making *making)
{
    memset(making->entry_of, 0xff, ((uint64_t)making->slot_count + 1) * sizeof(uint32_t));
}

/* The number of steps that are planned as one. An allocation of a step that is freed after the next
 * step's own one is made needs as many buffers as steps overlap it, if the run has those steps. */
static uint32_t count_rounds(struct making *making)
{
    const struct gc_run_steps *steps = &making->problem->steps;
    const uint64_t period = steps->period;
    uint32_t rounds = 1;
    if (period == 0)
        return rounds;
    clear_slots(making);
    const uint64_t end = steps->start + (GC_RUN_ROUNDS_MAX + 1) * period;
    for (uint32_t i = steps->start; i < making->event_count && i < end; i++) {
        uint32_t *made = &making->entry_of[making->events[i].slot];
        if (making->events[i].bytes > 0) {
            *made = i < steps->start + period ? i : NO_ENTRY;
            continue;
        }
        const uint64_t life = *made == NO_ENTRY ? 0 : i - *made;
        const uint32_t needed = (uint32_t)((life + period - 1) / period);
        if (needed > rounds && needed <= GC_RUN_ROUNDS_MAX &&
            steps->start + needed * period <= making->event_count)
            rounds = needed;
    }
    return rounds;
}

/* Finds the planned part of the run, and allocates its lists. */
static enum gc_status prepare(struct making *making)
{
    struct gc_run_problem *problem = making->problem;
    const struct gc_run_steps *steps = &problem->steps;
    uint64_t allocs = 0;
    making->entry_of =
        gc_region_alloc(making->region, ((uint64_t)making->slot_count + 1) * sizeof(uint32_t));
    if (making->entry_of == NULL)
        return GC_NO_HOST_MEMORY;
    problem->rounds = count_rounds(making);
    clear_slots(making);
    problem->loop_time = steps->period == 0 ? 0 : steps->start;
    problem->end_time = steps->period == 0 ? (uint32_t)making->event_count
                                           : steps->start + problem->rounds * steps->period;
    for (uint32_t i = 0; i < problem->end_time; i++)
        allocs += making->events[i].bytes > 0;
    if (allocs == 0)
        return GC_FORMAT;
    if (allocs > GC_PLAN_ENTRIES_MAX)
        return GC_TOO_MANY;
    problem->entries = gc_region_alloc(making->region, allocs * sizeof(*problem->entries));
    problem->stream_count = 1;
    return problem->entries != NULL ? GC_OK : GC_NO_HOST_MEMORY;
}

static enum gc_status read_lives(struct making *making)
{
    struct gc_run_problem *problem = making->problem;
    for (uint32_t i = 0; i < problem->end_time; i++) {
        if (making->events[i].bytes == 0) {
            end_life(making, i);
            continue;
        }
        const enum gc_status status = begin_life(making, i);
        if (status != GC_OK)
            return status;
    }
    if (problem->loop_start == problem->count) { /* a step without allocations */
        problem->loop_start = 0;
        problem->loop_time = 0;
    } else if (problem->steps.period != 0) {
        follow_frees(making);
    }
    return GC_OK;
}

enum gc_status gc_run_problem_make(struct gc_region *region, const struct gc_run_event *events,
                                   size_t count, uint32_t slot_count,
                                   struct gc_run_problem *problem)
{
    struct making making = {.events = events,
                            .event_count = count,
                            .slot_count = slot_count,
                            .region = region,
                            .problem = problem};
    *problem = (struct gc_run_problem){.count = 0};
    enum gc_status status = find_steps(region, events, count, slot_count, problem);
    if (status == GC_OK)
        status = prepare(&making);
    if (status == GC_OK)
        status = read_lives(&making);
    if (status == GC_OK)
        status = sort_out(&making);
    if (status == GC_OK)
        status = make_buffers(&making);
    return status == GC_OK ? find_live(&making) : status;
}

void gc_run_problem_plan(struct gc_run_problem *problem, const uint64_t *offsets, int device,
                         struct gc_plan *plan)
{
    *plan = (struct gc_plan){.entries = problem->entries,
                             .count = problem->count,
                             .loop_start = problem->loop_start,
                             .loop_time = problem->loop_time,
                             .stream_count = problem->stream_count,
                             .end_time = problem->end_time,
                             .device = device < 0 ? GC_PLAN_DEVICE_ANY : device};
    for (uint32_t i = 0; i < problem->count; i++) {
        struct gc_plan_entry *entry = &problem->entries[i];
        entry->offset = offsets[i];
        plan->peak_bytes = gc_max_u64(plan->peak_bytes, offsets[i] + entry->bytes);
    }
}
