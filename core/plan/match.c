#include "core/plan/match.h"

#include "core/base/bits.h"
#include "core/base/sort.h"

#define ANY_STREAM (GC_PLAN_STREAMS_MAX - 1)
#define HASH_MASK (UINT64_MAX << 32)
#define GUESS_WINDOW 4 /* number of next entries that gc_match_guess considers */
#define GUESS_STEP 20  /* a later entry must be nearer by so many thousandths of the size */

/* ---- tracks: runs of GC_MATCH_TRACK sizes ---- */

static uint64_t track_hash(uint64_t first, uint64_t second, uint64_t third)
{
    return gc_mix_u64(gc_mix_u64(gc_mix_u64(first) + second) + third) & HASH_MASK;
}

/* The entry before `i` in the run's order, across the loop; GC_PLAN_NONE before the first. */
static uint32_t before(const struct gc_plan *plan, uint32_t i)
{
    if (i == plan->loop_start && i != 0)
        return plan->count - 1;
    return i == 0 ? GC_PLAN_NONE : i - 1;
}

static uint32_t after(const struct gc_plan *plan, uint32_t i)
{
    return i + 1 < plan->count ? i + 1 : plan->loop_start;
}

/* The predecessors cross the loop's start: a track may begin in one iteration and end in the
 * next. */
static bool make_track(const struct gc_plan *plan, uint32_t i, uint64_t *key)
{
    const uint32_t second = before(plan, i);
    const uint32_t first = second == GC_PLAN_NONE ? GC_PLAN_NONE : before(plan, second);
    if (first == GC_PLAN_NONE)
        return false;
    *key = track_hash(plan->entries[first].bytes, plan->entries[second].bytes,
                      plan->entries[i].bytes) |
           i;
    return true;
}

static void drop_ahead(struct gc_match *match)
{
    for (uint32_t i = 0; i < GC_MATCH_AHEAD; i++)
        match->matched_ahead[i] = GC_PLAN_NONE;
}

static uint64_t iterations_bytes(const struct gc_plan *plan)
{
    return (uint64_t)plan->count * sizeof(uint32_t);
}

static uint64_t tracks_bytes(const struct gc_plan *plan)
{
    return (uint64_t)plan->count * sizeof(uint64_t);
}

enum gc_status gc_match_init(struct gc_match *match, const struct gc_plan *plan,
                             struct gc_host_mem *host)
{
    *match = (struct gc_match){.plan = plan, .host = host, .iteration = 1, .other = GC_PLAN_NONE};
    match->iterations = gc_host_mem_map(host, iterations_bytes(plan));
    match->tracks = gc_host_mem_map(host, tracks_bytes(plan));
    if (match->iterations == NULL || match->tracks == NULL) {
        gc_match_fini(match);
        return GC_NO_HOST_MEMORY;
    }
    for (uint32_t i = 0; i < plan->count; i++)
        match->track_count += make_track(plan, i, &match->tracks[match->track_count]);
    gc_sort_keys(match->tracks, match->track_count);
    drop_ahead(match);
    return GC_OK;
}

void gc_match_fini(struct gc_match *match)
{
    if (match->iterations != NULL)
        gc_host_mem_unmap(match->host, match->iterations, iterations_bytes(match->plan));
    if (match->tracks != NULL)
        gc_host_mem_unmap(match->host, match->tracks, tracks_bytes(match->plan));
    match->iterations = NULL;
    match->tracks = NULL;
}

void gc_match_restart(struct gc_match *match)
{
    match->cursor = 0;
    match->iteration += 2; /* entries matched ahead do not belong to the new iteration */
    match->missed_count = 0;
    match->other = GC_PLAN_NONE;
    drop_ahead(match);
    for (uint32_t i = 0; i < GC_PLAN_STREAMS_MAX; i++)
        match->streams[i] = 0;
}

/* ---- streams ---- */

static bool is_bound(const struct gc_match *match, uint64_t stream)
{
    for (uint32_t i = 1; i < match->plan->stream_count; i++) {
        if (match->streams[i] == stream)
            return true;
    }
    return false;
}

static bool stream_fits(const struct gc_match *match, uint32_t number, uint64_t stream)
{
    if (number == 0 || stream == 0)
        return number == 0 && stream == 0;
    if (number == ANY_STREAM)
        return true;
    return match->streams[number] == stream ||
           (match->streams[number] == 0 && !is_bound(match, stream));
}

void gc_match_close_stream(struct gc_match *match, uint64_t stream)
{
    for (uint32_t i = 1; i < GC_PLAN_STREAMS_MAX; i++) {
        if (match->streams[i] == stream)
            match->streams[i] = 0;
    }
}

/* ---- matching ---- */

struct wanted {
    uint64_t bytes;
    uint64_t stream;
};

/* A position: an entry in an iteration. */
struct position {
    uint32_t entry;
    uint32_t iteration;
};

static bool fits(const struct gc_match *match, struct position position,
                 const struct wanted *wanted)
{
    const struct gc_plan_entry *entry = &match->plan->entries[position.entry];
    return entry->bytes == wanted->bytes &&
           match->iterations[position.entry] != position.iteration &&
           stream_fits(match, entry->stream, wanted->stream);
}

static struct position step(const struct gc_plan *plan, struct position position)
{
    const uint32_t next = after(plan, position.entry);
    return (struct position){next, position.iteration + (next <= position.entry)};
}

/* Skips entries that were matched out of order. */
static struct position skip_matched(const struct gc_match *match, struct position position)
{
    for (uint32_t n = 0;
         n <= 2 * GC_MATCH_WINDOW && match->iterations[position.entry] == position.iteration; n++)
        position = step(match->plan, position);
    return position;
}

static void set_matched(struct gc_match *match, struct position position,
                        const struct wanted *wanted)
{
    const uint32_t number = match->plan->entries[position.entry].stream;
    match->iterations[position.entry] = position.iteration;
    if (number != 0 && number != ANY_STREAM)
        match->streams[number] = wanted->stream;
    match->missed_count = 0;
}

/* Matches the entry and moves the cursor behind it. */
static uint32_t match_entry(struct gc_match *match, struct position position,
                            const struct wanted *wanted)
{
    set_matched(match, position, wanted);
    const struct position next = skip_matched(match, position);
    match->iteration_count += next.iteration - match->iteration;
    match->cursor = next.entry;
    match->iteration = next.iteration;
    match->other = GC_PLAN_NONE;
    return position.entry;
}

/* Matches an entry ahead of the cursor, which does not move. Either the allocation is not in the
 * plan and the cursor's entry is still to come, or the entries skipped are missing and the next
 * allocation follows the match (`other`). The next match decides. */
static uint32_t match_ahead(struct gc_match *match, struct position position,
                            const struct wanted *wanted)
{
    set_matched(match, position, wanted);
    const struct position next = skip_matched(match, position);
    match->matched_ahead[match->matched_ahead_next++ % GC_MATCH_AHEAD] = position.entry;
    match->other = next.entry;
    match->other_iteration = next.iteration;
    return position.entry;
}

/* Whether the cursor has passed an entry of this size that was matched ahead: probably by an
 * allocation that is not in the plan, which leaves this allocation without an entry. Each such
 * entry counts once. */
static bool was_matched_ahead(struct gc_match *match, const struct wanted *wanted)
{
    for (uint32_t i = 0; i < GC_MATCH_AHEAD; i++) {
        const uint32_t entry = match->matched_ahead[i];
        if (entry >= match->cursor || match->cursor - entry > 2 * GC_MATCH_WINDOW ||
            match->plan->entries[entry].bytes != wanted->bytes)
            continue;
        match->matched_ahead[i] = GC_PLAN_NONE;
        return true;
    }
    return false;
}

/* The entries matched ahead were in order after all. */
static void confirm_ahead(struct gc_match *match)
{
    for (uint32_t i = 0; i < GC_MATCH_AHEAD; i++) {
        if (match->matched_ahead[i] != GC_PLAN_NONE && match->matched_ahead[i] >= match->cursor)
            match->matched_ahead[i] = GC_PLAN_NONE;
    }
}

/* Finds the fitting entry nearest to the cursor, whose own entry does not fit; of two equally near
 * entries the one ahead. */
static uint32_t find_around(struct gc_match *match, const struct wanted *wanted)
{
    const struct gc_plan *plan = match->plan;
    struct position ahead = {match->cursor, match->iteration};
    struct position behind = ahead;
    /* Entries before the loop do not come again. */
    const uint32_t lowest = match->cursor >= plan->loop_start ? plan->loop_start : 0;
    for (uint32_t n = 1; n < GC_MATCH_WINDOW; n++) {
        ahead = step(plan, ahead);
        if (fits(match, ahead, wanted))
            return match_ahead(match, ahead, wanted);
        if (behind.entry > lowest)
            behind.entry--;
        if (fits(match, behind, wanted)) {
            set_matched(match, behind, wanted);
            return behind.entry;
        }
    }
    return GC_PLAN_NONE;
}

static uint32_t find_near(struct gc_match *match, const struct wanted *wanted)
{
    const struct position cursor = {match->cursor, match->iteration};
    const struct position other = {match->other, match->other_iteration};
    if (fits(match, cursor, wanted))
        return match_entry(match, cursor, wanted);
    if (other.entry != GC_PLAN_NONE && fits(match, other, wanted)) {
        confirm_ahead(match);
        return match_entry(match, other, wanted);
    }
    return was_matched_ahead(match, wanted) ? GC_PLAN_NONE : find_around(match, wanted);
}

/* Begins a new iteration at entry `i`: none of its entries is matched yet. */
static uint32_t resync(struct gc_match *match, uint32_t i, const struct wanted *wanted)
{
    const uint64_t iterations = match->iteration_count;
    match->resync_count++;
    (void)match_entry(match, (struct position){i, match->iteration + 2}, wanted);
    match->iteration_count = iterations;
    drop_ahead(match);
    return i;
}

static uint32_t first_track(const struct gc_match *match, uint64_t key)
{
    uint32_t low = 0;
    uint32_t high = match->track_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (match->tracks[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Finds the next position, from the cursor on and across the loop, at which the last missed sizes
 * and this one are consecutive. */
static uint32_t find_track(struct gc_match *match, const struct wanted *wanted)
{
    const uint64_t hash = track_hash(match->missed[0], match->missed[1], wanted->bytes);
    const uint32_t first = first_track(match, hash);
    uint32_t at = first_track(match, hash | match->cursor);
    if (first == match->track_count || (match->tracks[first] & HASH_MASK) != hash)
        return GC_PLAN_NONE;
    if (at == match->track_count || (match->tracks[at] & HASH_MASK) != hash)
        at = first;
    const uint32_t i = (uint32_t)match->tracks[at];
    const struct gc_plan_entry *entry = &match->plan->entries[i];
    if (entry->bytes != wanted->bytes || !stream_fits(match, entry->stream, wanted->stream))
        return GC_PLAN_NONE;
    return resync(match, i, wanted);
}

static void record_miss(struct gc_match *match, uint64_t bytes)
{
    match->missed[0] = match->missed[1];
    match->missed[1] = bytes;
    match->missed_count++;
}

uint32_t gc_match_next(struct gc_match *match, uint64_t bytes, uint64_t stream, bool is_idle)
{
    const struct wanted wanted = {bytes, stream};
    const struct gc_plan_entry *first = &match->plan->entries[0];
    const struct position cursor = {match->cursor, match->iteration};
    if (is_idle && !fits(match, cursor, &wanted) && first->bytes == bytes &&
        stream_fits(match, first->stream, stream))
        return resync(match, 0, &wanted);
    uint32_t found = find_near(match, &wanted);
    if (found == GC_PLAN_NONE && match->missed_count >= GC_MATCH_TRACK - 1)
        found = find_track(match, &wanted);
    if (found == GC_PLAN_NONE)
        record_miss(match, bytes);
    return found;
}

/* The difference of two sizes, in thousandths of `planned`; UINT64_MAX: over half of it. */
static uint64_t difference(uint64_t bytes, uint64_t planned)
{
    const uint64_t apart = bytes > planned ? bytes - planned : planned - bytes;
    if (apart > planned / 2)
        return UINT64_MAX;
    return apart / GC_PLAN_UNIT_BYTES * 1000 / (planned / GC_PLAN_UNIT_BYTES);
}

uint32_t gc_match_guess(const struct gc_match *match, uint64_t bytes)
{
    struct position position = {match->cursor, match->iteration};
    uint64_t least = UINT64_MAX;
    uint32_t found = GC_PLAN_NONE;
    for (uint64_t n = 0; n < GUESS_WINDOW; n++, position = step(match->plan, position)) {
        const uint64_t apart = difference(bytes, match->plan->entries[position.entry].bytes);
        if (match->iterations[position.entry] == position.iteration || apart == UINT64_MAX ||
            apart + n * GUESS_STEP >= least)
            continue;
        least = apart + n * GUESS_STEP;
        found = position.entry;
    }
    return found;
}
