/* The buffers whose bytes a buffer reuses.
 *
 * Buffers are painted over the addresses in the order of their start; a buffer reuses the bytes of
 * those that it paints over. The painted addresses are runs of one colour, cut only at the ends of
 * buffers. The starts of runs are a set of small numbers, a bitmap tree with 64 children a node,
 * which finds the run at an address in a few steps. Each run that is painted over disappears: O(n
 * log n) for n buffers. */
#include "tools/plan/plan.h"

#include <stdlib.h>

#define LEVEL_MAX 6
#define NOBODY UINT32_MAX

struct marks {
    uint64_t *levels[LEVEL_MAX];
    unsigned level_count;
};

struct canvas {
    struct gc_region *region;
    uint64_t *cuts; /* addresses, ascending */
    uint32_t cut_count;
    uint32_t *owners; /* owner of the run that begins at a cut */
    struct marks starts;
};

struct order {
    uint64_t key;
    uint32_t index;
};

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int compare_order(const void *a, const void *b)
{
    const struct order *x = a;
    const struct order *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* ---- the set of starts ---- */

static bool init_marks(struct gc_region *region, uint32_t count, struct marks *marks)
{
    uint64_t words = count;
    marks->level_count = 0;
    do {
        words = words / 64 + 1;
        uint64_t *level = gc_region_alloc(region, words * sizeof(*level));
        if (level == NULL)
            return false;
        marks->levels[marks->level_count++] = level;
    } while (words > 1);
    return true;
}

static void add_mark(struct marks *marks, uint32_t at)
{
    for (unsigned i = 0; i < marks->level_count; i++, at /= 64)
        marks->levels[i][at / 64] |= UINT64_C(1) << (at % 64);
}

static void remove_mark(struct marks *marks, uint32_t at)
{
    for (unsigned i = 0; i < marks->level_count; i++, at /= 64) {
        marks->levels[i][at / 64] &= ~(UINT64_C(1) << (at % 64));
        if (marks->levels[i][at / 64] != 0)
            return;
    }
}

/* The lowest bit of the subtree below bit `at` of `level`, or the highest. */
static uint32_t descend(const struct marks *marks, unsigned level, uint32_t at, bool lowest)
{
    while (level-- > 0) {
        const uint64_t word = marks->levels[level][at];
        at = at * 64 +
             (lowest ? (unsigned)__builtin_ctzll(word) : 63U - (unsigned)__builtin_clzll(word));
    }
    return at;
}

/* The last mark at or before `at`; there is one, at 0. */
static uint32_t mark_before(const struct marks *marks, uint32_t at)
{
    for (unsigned i = 0; i < marks->level_count; i++) {
        const uint64_t mask =
            i == 0 ? UINT64_MAX >> (63 - at % 64) : (UINT64_C(1) << (at % 64)) - 1;
        const uint64_t word = marks->levels[i][at / 64] & mask;
        if (word != 0)
            return descend(marks, i, at / 64 * 64 + (63U - (unsigned)__builtin_clzll(word)), false);
        at /= 64;
    }
    return 0;
}

/* The first mark after `at`, or `none`. */
static uint32_t mark_after(const struct marks *marks, uint32_t at, uint32_t none)
{
    for (unsigned i = 0; i < marks->level_count; i++) {
        const uint64_t word = marks->levels[i][at / 64] & ~(UINT64_MAX >> (63 - at % 64));
        if (word != 0)
            return descend(marks, i, at / 64 * 64 + (unsigned)__builtin_ctzll(word), true);
        at /= 64;
    }
    return none;
}

/* ---- painting ---- */

static uint32_t find_cut(const struct canvas *canvas, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = canvas->cut_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (canvas->cuts[middle] <= address)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool init_canvas(struct canvas *canvas, const struct plan_subject *subject,
                        const uint64_t *offsets)
{
    const uint64_t room = (uint64_t)subject->count * 2 + 1;
    canvas->cuts = gc_region_alloc(canvas->region, room * sizeof(*canvas->cuts));
    canvas->owners = gc_region_alloc(canvas->region, room * sizeof(*canvas->owners));
    if (canvas->cuts == NULL || canvas->owners == NULL ||
        !init_marks(canvas->region, (uint32_t)room, &canvas->starts))
        return false;
    for (uint32_t i = 0; i < subject->count; i++) {
        canvas->cuts[2 * i] = offsets[i];
        canvas->cuts[2 * i + 1] = offsets[i] + subject->buffers[i].bytes;
    }
    canvas->cuts[room - 1] = 0;
    qsort(canvas->cuts, room, sizeof(*canvas->cuts), compare_u64);
    for (uint64_t i = 0; i < room; i++) {
        if (i == 0 || canvas->cuts[i] != canvas->cuts[canvas->cut_count - 1])
            canvas->cuts[canvas->cut_count++] = canvas->cuts[i];
    }
    canvas->owners[0] = NOBODY;
    add_mark(&canvas->starts, 0);
    return true;
}

static void cut_run(struct canvas *canvas, uint32_t at)
{
    const uint32_t run = mark_before(&canvas->starts, at);
    if (run == at)
        return;
    canvas->owners[at] = canvas->owners[run];
    add_mark(&canvas->starts, at);
}

/* The lists are consecutive in one growing array. */
struct lists {
    uint32_t *items;
    uint64_t count;
    uint64_t room;
    uint32_t *seen_by; /* the last buffer that listed this one */
};

static bool add_item(struct gc_region *region, struct lists *lists, uint32_t owner)
{
    if (lists->count == lists->room) {
        const uint64_t room = lists->room * 2 + 64;
        uint32_t *items = gc_region_grow(region, lists->items, lists->room * sizeof(*items),
                                         room * sizeof(*items));
        if (items == NULL)
            return false;
        lists->items = items;
        lists->room = room;
    }
    lists->items[lists->count++] = owner;
    return true;
}

static bool paint(struct canvas *canvas, struct lists *lists, uint32_t index, uint64_t from,
                  uint64_t to)
{
    const uint32_t first = find_cut(canvas, from);
    const uint32_t end = find_cut(canvas, to);
    if (first == end)
        return true;
    cut_run(canvas, first);
    if (end < canvas->cut_count)
        cut_run(canvas, end);
    for (uint32_t at = first; at < end; at = mark_after(&canvas->starts, at, end)) {
        const uint32_t owner = canvas->owners[at];
        if (at != first)
            remove_mark(&canvas->starts, at);
        if (owner == NOBODY || lists->seen_by[owner] == index)
            continue;
        lists->seen_by[owner] = index;
        if (!add_item(canvas->region, lists, owner))
            return false;
    }
    canvas->owners[first] = index;
    return true;
}

/* ---- the entry point ---- */

static struct order *order_by_start(struct plan_subject *subject)
{
    struct order *order =
        gc_region_alloc(&subject->region, (uint64_t)subject->count * sizeof(*order));
    if (order == NULL)
        return NULL;
    for (uint32_t i = 0; i < subject->count; i++)
        order[i] = (struct order){.key = subject->buffers[i].lower, .index = i};
    qsort(order, subject->count, sizeof(*order), compare_order);
    return order;
}

/* Copies the lists from the order of painting into the order of the buffers. */
static bool sort_lists(struct gc_region *region, const struct order *order, uint32_t count,
                       const struct lists *lists, const uint64_t *begins, struct plan_reuse *reuse)
{
    reuse->before = gc_region_alloc(region, lists->count * sizeof(*reuse->before));
    if (reuse->before == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        reuse->first[order[i].index + 1] = (uint32_t)(begins[i + 1] - begins[i]);
    for (uint32_t i = 0; i < count; i++)
        reuse->first[i + 1] += reuse->first[i];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *to = reuse->before + reuse->first[order[i].index];
        for (uint64_t j = begins[i]; j < begins[i + 1]; j++)
            *to++ = lists->items[j];
    }
    return true;
}

bool plan_reuse_find(struct plan_subject *subject, const struct plan_result *result,
                     struct plan_reuse *reuse)
{
    struct gc_region *region = &subject->region;
    const uint32_t count = subject->count;
    struct canvas canvas = {.region = region};
    struct lists lists = {.items = NULL};
    const struct order *order = order_by_start(subject);
    uint64_t *begins = gc_region_alloc(region, ((uint64_t)count + 1) * sizeof(*begins));
    lists.seen_by = gc_region_alloc(region, (uint64_t)count * sizeof(*lists.seen_by));
    reuse->first = gc_region_alloc(region, ((uint64_t)count + 1) * sizeof(*reuse->first));
    if (order == NULL || begins == NULL || lists.seen_by == NULL || reuse->first == NULL ||
        !init_canvas(&canvas, subject, result->offsets))
        return false;
    for (uint32_t i = 0; i < count; i++)
        lists.seen_by[i] = NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t index = order[i].index;
        const uint64_t from = result->offsets[index];
        if (!paint(&canvas, &lists, index, from, from + subject->buffers[index].bytes))
            return false;
        begins[i + 1] = lists.count;
    }
    return sort_lists(region, order, count, &lists, begins, reuse);
}
