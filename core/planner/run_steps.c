#include "core/planner/run_steps.h"

#include "core/base/bits.h"
#include "core/plan/plan.h"

#include <stdbool.h>
#include <string.h>

#define PIECE 4 /* events that are compared as one */
#define CANDIDATES 48
#define STEP_EVENTS_MIN 4
/* Of a window and the next one, this many of 100 events must agree. */
#define AGREE_PCT 95
/* Of what follows the first step, this many of 100 pieces must be its own. */
#define COVER_PCT 80
/* Memory that steps may leave behind altogether: this share of the most that is live. */
#define GROWTH_SHARE 32
/* A plan with steps must be shorter than the whole run by this share. */
#define GAIN_SHARE 8

/* What is known of each event. */
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

/* Where a piece like the one at `at` is kept, or would be. */
static uint32_t *find_piece(const struct search *search, uint32_t at)
{
    uint32_t i = (uint32_t)piece_hash(search, at) & search->table_mask;
    while (search->table[i] != 0 && !is_same_piece(search, search->table[i] - 1, at))
        i = (i + 1) & search->table_mask;
    return &search->table[i];
}

/* ---- candidates ---- */

/* The distances at which pieces come again, the most frequent first. Returns how many. */
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

/* ---- judging one ---- */

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
        /* What stands before the steps is not to count as one's beginning. */
        while ((uint64_t)*start + 2 * (uint64_t)period < search->count &&
               search->tokens[*start] != search->tokens[*start + period])
            (*start)++;
        return true;
    }
    return false;
}

/* The pieces behind the first step that it does not have. */
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

/* From the first step to the last whole one. */
static bool is_growing(const struct search *search, uint32_t start, uint32_t period)
{
    const uint32_t steps = (search->count - start) / period;
    uint32_t ignored;
    const uint64_t first = least_live(search, start, period, &ignored);
    const uint64_t last = least_live(search, start + (steps - 1) * period, period, &ignored);
    return last > first && last - first > search->peak_bytes / GROWTH_SHARE;
}

/* How many events tell the run with steps of that length; UINT32_MAX: it has none. */
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
    uint32_t least = search->count - search->count / GAIN_SHARE;
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
        steps->start = lowest + 1; /* behind the event that leaves the least */
}

enum gc_status gc_run_find_steps(struct gc_region *region, const struct gc_run_event *events,
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
