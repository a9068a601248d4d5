/* The validator: a sweep over time with the set of live buffers ordered by address. Each beginning
 * buffer is compared with its two neighbours in the set. The set is a tree of bitmaps over the
 * buffers' ranks by offset, 64 children to a word: a neighbour is a few words away. O(n log n).
 *
 * Before the first fault live buffers are disjoint: of those below, the nearest has the highest
 * end. Buffers of 0 bytes take no space and overlap nothing. */
#include "core/base/bits.h"
#include "core/plan/placement.h"

#include <stddef.h>
#include <string.h>

#define LEVELS_MAX 6 /* 64^6 ranks are more than 32 bits count */
#define NO_RANK UINT32_MAX

struct live_set {
    uint64_t *words[LEVELS_MAX]; /* the lowest level first */
    unsigned level_count;
};

#define DIGITS 256U

struct sorted {
    uint64_t key;
    uint32_t buffer;
};

struct checker {
    const struct gc_placement_problem *problem;
    const uint64_t *offsets; /* NULL: only the fixed ones */
    struct gc_placement_fault *fault;
    uint32_t *taking;      /* buffers that take space */
    struct sorted *sorted; /* twice as many */
    uint32_t *by_offset;   /* rank → buffer */
    uint32_t *ranks;       /* buffer → rank */
    uint32_t *by_lower;
    uint32_t *by_upper;
    uint32_t count;
    struct live_set live;
};

/* ---- order ---- */

typedef uint64_t key_of(const struct checker *checker, uint32_t buffer);

static uint64_t offset_of(const struct checker *checker, uint32_t buffer)
{
    return checker->offsets != NULL ? checker->offsets[buffer]
                                    : checker->problem->buffers[buffer].fixed;
}

static uint64_t lower_of(const struct checker *checker, uint32_t buffer)
{
    return checker->problem->buffers[buffer].lower;
}

static uint64_t upper_of(const struct checker *checker, uint32_t buffer)
{
    return checker->problem->buffers[buffer].upper;
}

/* The end of the digits below each one, or false if all keys have the same digit. */
static bool count_digits(const struct sorted *from, uint32_t count, unsigned shift,
                         uint32_t begins[DIGITS])
{
    uint32_t sum = 0;
    memset(begins, 0, DIGITS * sizeof(begins[0]));
    for (uint32_t i = 0; i < count; i++)
        begins[from[i].key >> shift & (DIGITS - 1)]++;
    if (begins[from[0].key >> shift & (DIGITS - 1)] == count)
        return false;
    for (unsigned digit = 0; digit < DIGITS; digit++) {
        const uint32_t here = begins[digit];
        begins[digit] = sum;
        sum += here;
    }
    return true;
}

/* By key, then by number: eight bits at a time from the lowest, each stable. */
static void sort(const struct checker *checker, uint32_t *order, key_of *key)
{
    const uint32_t count = checker->count;
    struct sorted *from = checker->sorted;
    struct sorted *to = checker->sorted + count;
    uint32_t begins[DIGITS];
    for (uint32_t i = 0; i < count; i++)
        from[i] = (struct sorted){key(checker, checker->taking[i]), checker->taking[i]};
    for (unsigned shift = 0; count > 0 && shift < 64; shift += 8) {
        if (!count_digits(from, count, shift, begins))
            continue;
        for (uint32_t i = 0; i < count; i++)
            to[begins[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        struct sorted *const swapped = from;
        from = to;
        to = swapped;
    }
    for (uint32_t i = 0; i < count; i++)
        order[i] = from[i].buffer;
}

/* ---- the live set ---- */

static bool live_init(struct live_set *live, struct gc_region *region, uint32_t count)
{
    uint64_t words = count;
    do {
        words = words / 64 + 1;
        live->words[live->level_count] = gc_region_alloc(region, words * sizeof(uint64_t));
        if (live->words[live->level_count] == NULL)
            return false;
        live->level_count++;
    } while (words > 1);
    return true;
}

static void live_add(struct live_set *live, uint32_t rank)
{
    uint64_t at = rank;
    for (unsigned level = 0; level < live->level_count; level++, at /= 64)
        live->words[level][at / 64] |= UINT64_C(1) << at % 64;
}

static void live_remove(struct live_set *live, uint32_t rank)
{
    uint64_t at = rank;
    for (unsigned level = 0; level < live->level_count; level++, at /= 64) {
        live->words[level][at / 64] &= ~(UINT64_C(1) << at % 64);
        if (live->words[level][at / 64] != 0)
            break;
    }
}

/* The nearest rank below, or NO_RANK. */
static uint32_t live_below(const struct live_set *live, uint32_t rank)
{
    uint64_t at = rank;
    for (unsigned level = 0; level < live->level_count; level++, at /= 64) {
        uint64_t word = live->words[level][at / 64] & ((UINT64_C(1) << at % 64) - 1);
        if (word == 0)
            continue;
        at = at / 64 * 64 + gc_top_bit_u64(word);
        while (level > 0) {
            word = live->words[--level][at];
            at = at * 64 + gc_top_bit_u64(word);
        }
        return (uint32_t)at;
    }
    return NO_RANK;
}

/* The nearest rank above, or NO_RANK. */
static uint32_t live_above(const struct live_set *live, uint32_t rank)
{
    uint64_t at = rank;
    for (unsigned level = 0; level < live->level_count; level++, at /= 64) {
        uint64_t word = live->words[level][at / 64] & ~((UINT64_C(2) << at % 64) - 1);
        if (word == 0)
            continue;
        at = at / 64 * 64 + (uint64_t)__builtin_ctzll(word);
        while (level > 0) {
            word = live->words[--level][at];
            at = at * 64 + (uint64_t)__builtin_ctzll(word);
        }
        return (uint32_t)at;
    }
    return NO_RANK;
}

/* ---- the rules ---- */

static bool fail(struct checker *checker, uint32_t first, uint32_t second, const char *what)
{
    *checker->fault = (struct gc_placement_fault){first, second, what};
    return false;
}

static bool buffer_is_right(struct checker *checker, uint32_t i)
{
    const struct gc_placement_buffer *buffer = &checker->problem->buffers[i];
    const bool is_fixed = buffer->fixed != GC_PLACEMENT_FREE;
    const uint64_t offset = offset_of(checker, i);
    uint64_t end;
    if (buffer->lower >= buffer->upper)
        return fail(checker, i, i, "no lifetime");
    if (checker->offsets == NULL && !is_fixed)
        return true;
    if (is_fixed && offset != buffer->fixed)
        return fail(checker, i, i, "not at its fixed offset");
    if (buffer->alignment > 1 && offset % buffer->alignment != 0)
        return fail(checker, i, i, "its offset is no multiple of its alignment");
    if (!gc_add_u64(offset, buffer->bytes, &end))
        return fail(checker, i, i, "beyond 64 bits");
    return true;
}

/* Checks every buffer by itself; computes the peak; collects the buffers that take space. */
static bool gather(struct checker *checker, uint64_t *peak_bytes)
{
    for (uint32_t i = 0; i < checker->problem->count; i++) {
        const struct gc_placement_buffer *buffer = &checker->problem->buffers[i];
        if (!buffer_is_right(checker, i))
            return false;
        if (buffer->bytes == 0 || (checker->offsets == NULL && buffer->fixed == GC_PLACEMENT_FREE))
            continue;
        *peak_bytes = gc_max_u64(*peak_bytes, offset_of(checker, i) + buffer->bytes);
        checker->taking[checker->count++] = i;
    }
    return true;
}

static bool is_apart(struct checker *checker, uint32_t below, uint32_t above)
{
    if (below == NO_RANK || above == NO_RANK)
        return true;
    const uint32_t low = checker->by_offset[below];
    const uint32_t high = checker->by_offset[above];
    if (offset_of(checker, low) + checker->problem->buffers[low].bytes <= offset_of(checker, high))
        return true;
    return fail(checker, low < high ? low : high, low < high ? high : low, "overlap");
}

static bool sweep(struct checker *checker)
{
    const struct gc_placement_buffer *buffers = checker->problem->buffers;
    uint32_t ended = 0;
    for (uint32_t i = 0; i < checker->count; i++) {
        const uint32_t buffer = checker->by_lower[i];
        const uint32_t rank = checker->ranks[buffer];
        while (buffers[checker->by_upper[ended]].upper <= buffers[buffer].lower)
            live_remove(&checker->live, checker->ranks[checker->by_upper[ended++]]);
        if (!is_apart(checker, live_below(&checker->live, rank), rank) ||
            !is_apart(checker, rank, live_above(&checker->live, rank)))
            return false;
        live_add(&checker->live, rank);
    }
    return true;
}

static enum gc_status check(struct checker *checker, struct gc_region *region, uint64_t *peak_bytes)
{
    const uint64_t bytes = checker->problem->count * sizeof(uint32_t);
    checker->taking = gc_region_alloc(region, bytes);
    checker->sorted =
        gc_region_alloc(region, 2 * (uint64_t)checker->problem->count * sizeof(struct sorted));
    checker->by_offset = gc_region_alloc(region, bytes);
    checker->ranks = gc_region_alloc(region, bytes);
    checker->by_lower = gc_region_alloc(region, bytes);
    checker->by_upper = gc_region_alloc(region, bytes);
    if (checker->taking == NULL || checker->sorted == NULL || checker->by_offset == NULL ||
        checker->ranks == NULL || checker->by_lower == NULL || checker->by_upper == NULL ||
        !live_init(&checker->live, region, checker->problem->count))
        return GC_NO_HOST_MEMORY;
    if (!gather(checker, peak_bytes))
        return GC_INVALID_ARGUMENT;
    sort(checker, checker->by_offset, offset_of);
    sort(checker, checker->by_lower, lower_of);
    sort(checker, checker->by_upper, upper_of);
    for (uint32_t i = 0; i < checker->count; i++)
        checker->ranks[checker->by_offset[i]] = i;
    return sweep(checker) ? GC_OK : GC_INVALID_ARGUMENT;
}

enum gc_status gc_placement_check(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const uint64_t *offsets, uint64_t *peak_bytes,
                                  struct gc_placement_fault *fault)
{
    struct checker checker = {.problem = problem, .offsets = offsets, .fault = fault};
    struct gc_region scratch;
    *peak_bytes = 0;
    *fault = (struct gc_placement_fault){0};
    gc_region_init(&scratch, gc_sub_or_zero_u64(region->bytes_max, gc_region_bytes(region)));
    const enum gc_status status = check(&checker, &scratch, peak_bytes);
    gc_region_fini(&scratch);
    return status;
}
