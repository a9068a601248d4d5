#include "core/follow/unplanned.h"

#include <stddef.h>

#define UNPLANNED_BEST 16   /* the cheapest places, which are compared with the plan */
#define UNPLANNED_WINDOW 64 /* the plan's next entries, with which these are compared */

struct option {
    struct gc_place place;
    uint64_t cost;     /* pages that come into use */
    uint64_t rest;     /* bytes of the free block that stay free */
    uint32_t distance; /* entries until the plan needs the place; UNPLANNED_WINDOW: not soon */
};

struct choice {
    uint32_t count;
    struct option best[UNPLANNED_BEST]; /* the best first */
};

/* ---- the cost of a place ---- */

/* Pages that come into use with a block of `bytes` at the place. The free block's neighbours are in
 * use. */
static uint64_t page_cost(const struct gc_place *place, uint64_t bytes, uint64_t page)
{
    const uint64_t start = place->free_block->address;
    const uint64_t end = start + place->free_block->bytes;
    const uint64_t first = place->address / page;
    const uint64_t last = (place->address + bytes - 1) / page;
    const bool is_first_used = start % page != 0 && first == start / page;
    const bool is_last_used = end % page != 0 && last == end / page;
    const uint64_t count = last - first + 1;
    return count - gc_min_u64(count, (uint64_t)is_first_used + (uint64_t)is_last_used);
}

/* The end of the places. The arena behind it is for long-lived blocks. */
static uint64_t end_of_places(const struct gc_pool *pool, const struct gc_plan *plan)
{
    const struct gc_segment *planned = pool->content.planned;
    const uint64_t page = pool->pages.page_bytes;
    if (planned->arena == NULL)
        return planned->address + planned->bytes;
    return planned->address + (plan->peak_bytes + page - 1) / page * page;
}

/* `usable`: bytes of the free block that may be used. */
static struct option option_at(const struct gc_pool *pool, const struct gc_place *place,
                               uint64_t usable, uint64_t bytes)
{
    const struct gc_segment *segment =
        atomic_load_explicit(&place->free_block->segment, memory_order_relaxed);
    const uint64_t cost =
        segment->arena == NULL ? 0 : page_cost(place, bytes, pool->pages.page_bytes);
    return (struct option){.place = *place, .cost = cost, .rest = usable - bytes};
}

/* ---- the choice ---- */

static bool is_better(const struct option *option, const struct option *other)
{
    if (option->cost != other->cost)
        return option->cost < other->cost;
    if (option->distance != other->distance)
        return option->distance > other->distance;
    return option->rest < other->rest;
}

static void add_candidate(struct choice *choice, const struct option *option)
{
    uint32_t i = choice->count;
    if (i < UNPLANNED_BEST)
        choice->count++;
    else if (is_better(option, &choice->best[--i]))
        ;
    else
        return;
    for (; i > 0 && is_better(option, &choice->best[i - 1]); i--)
        choice->best[i] = choice->best[i - 1];
    choice->best[i] = *option;
}

/* Adds the start and the end of the free block's part between the places. */
static void add_free_block(struct choice *choice, const struct gc_pool *pool,
                           struct gc_block *free_block, uint64_t places_end, uint64_t bytes)
{
    const uint64_t usable =
        gc_min_u64(free_block->bytes, gc_sub_or_zero_u64(places_end, free_block->address));
    if (usable < bytes)
        return;
    const uint64_t rest = usable - bytes;
    for (unsigned i = 0; i < (rest == 0 ? 1 : 2); i++) {
        const struct gc_place place = {free_block, free_block->address + (i == 0 ? 0 : rest)};
        const struct option option = option_at(pool, &place, usable, bytes);
        add_candidate(choice, &option);
    }
}

/* The number of entries before the next one that needs the place. */
static uint32_t count_entries_before(const struct gc_match *match, uint64_t offset, uint64_t bytes)
{
    const struct gc_plan *plan = match->plan;
    uint32_t at = match->cursor;
    for (uint32_t n = 0; n < UNPLANNED_WINDOW; n++) {
        const struct gc_plan_entry *entry = &plan->entries[at];
        if (entry->offset < offset + bytes && offset < entry->offset + entry->bytes)
            return n;
        at = at + 1 < plan->count ? at + 1 : plan->loop_start;
    }
    return UNPLANNED_WINDOW;
}

static bool choose_planned(const struct gc_pool *pool, const struct gc_match *match, uint64_t bytes,
                           struct option *best)
{
    const struct gc_bins *bins = &pool->content.bins[GC_CLASS_PLANNED][GC_FREE_PLAIN];
    const uint64_t places_end = end_of_places(pool, match->plan);
    struct choice choice = {.count = 0};
    struct gc_block *free_block = gc_bins_first_fit(bins, 0, bytes);
    for (unsigned n = 0; free_block != NULL && n < GC_UNPLANNED_CANDIDATES; n++) {
        add_free_block(&choice, pool, free_block, places_end, bytes);
        free_block = gc_bins_next(bins, free_block);
    }
    for (uint32_t i = 0; i < choice.count; i++) {
        struct option *option = &choice.best[i];
        option->distance = count_entries_before(
            match, option->place.address - pool->content.planned->address, bytes);
        if (i == 0 || is_better(option, best))
            *best = *option;
    }
    return choice.count > 0;
}

/* ---- compared with the pool ---- */

static bool is_backed(struct gc_pool *pool, const struct gc_place *place, uint64_t bytes)
{
    const struct gc_segment *segment =
        atomic_load_explicit(&place->free_block->segment, memory_order_relaxed);
    return segment->arena == NULL ||
           gc_pages_are_backed_locked(pool, segment->arena, place->address, bytes);
}

static bool is_pool_better(struct gc_pool *pool, uint64_t bytes, const struct option *planned)
{
    const bool is_small = bytes <= GC_SMALL_MAX;
    const uint64_t page = pool->pages.page_bytes;
    struct gc_place place;
    if (pool->content.planned->arena == NULL)
        return false;
    const bool is_found =
        gc_pool_find_backed_locked(pool, is_small ? GC_CLASS_SMALL : GC_CLASS_LARGE, bytes, &place);
    const uint64_t cost = is_found ? option_at(pool, &place, place.free_block->bytes, bytes).cost
                                   : (bytes + page - 1) / page;
    if (cost != planned->cost)
        return cost < planned->cost;
    return is_small || (is_found && !is_backed(pool, &planned->place, bytes));
}

bool gc_unplanned_find_locked(struct gc_pool *pool, const struct gc_match *match, uint64_t bytes,
                              struct gc_place *place)
{
    struct option best = {.cost = 0};
    if (!choose_planned(pool, match, bytes, &best) ||
        (bytes <= GC_SMALL_MAX && best.distance < UNPLANNED_WINDOW) ||
        is_pool_better(pool, bytes, &best))
        return false;
    *place = best.place;
    return true;
}

/* ---- by lifetime ---- */

/* The addresses to use. A free block that reaches the span's end is used at its start only. */
struct span {
    uint64_t start;
    uint64_t end;
};

struct lifetime_choice {
    struct gc_place place; /* free_block NULL: none yet */
    uint64_t cost;
    uint64_t rest; /* bytes of the free block that stay free */
};

static void add_by_lifetime(struct lifetime_choice *choice, const struct gc_place *place,
                            uint64_t cost, uint64_t rest)
{
    if (choice->place.free_block != NULL &&
        (cost > choice->cost || (cost == choice->cost && rest >= choice->rest)))
        return;
    *choice = (struct lifetime_choice){.place = *place, .cost = cost, .rest = rest};
}

/* Tries the free block's start and its end, within the span. */
static void add_free_block_by_lifetime(struct lifetime_choice *choice, const struct gc_pool *pool,
                                       struct gc_block *free_block, const struct span *span,
                                       uint64_t bytes)
{
    const uint64_t page = pool->pages.page_bytes;
    const uint64_t start = gc_max_u64(free_block->address, span->start);
    const uint64_t end = gc_min_u64(free_block->address + free_block->bytes, span->end);
    if (end <= start || end - start < bytes)
        return;
    const uint64_t rest = end - start - bytes;
    const struct gc_place low = {free_block, start};
    const struct gc_place high = {free_block, end - bytes};
    add_by_lifetime(choice, &low, page_cost(&low, bytes, page), rest);
    if (end < span->end && rest > 0)
        add_by_lifetime(choice, &high, page_cost(&high, bytes, page), rest);
}

/* The free block that contains `address`, or the next one. */
static struct gc_block *first_free_block(const struct gc_bins *bins, uint64_t address)
{
    const struct gc_block key = {.address = address};
    struct gc_block *free_block = gc_bins_at(bins, address);
    return free_block != NULL && free_block->address + free_block->bytes > address
               ? free_block
               : gc_bins_next(bins, &key);
}

/* In a driver allocation any place costs the same, and none is behind the places: short-lived
 * blocks go to its lowest free addresses, long-lived ones to its highest. The last free block is
 * always compared. */
static bool find_in_segment(const struct gc_pool *pool, uint64_t bytes, bool is_long,
                            struct gc_place *place)
{
    const struct gc_segment *segment = pool->content.planned;
    const struct gc_bins *bins = &pool->content.bins[GC_CLASS_PLANNED][GC_FREE_PLAIN];
    struct gc_block *last = gc_bins_at(bins, segment->address + segment->bytes - 1);
    struct gc_block *found =
        is_long && last != NULL && last->bytes >= bytes ? last : gc_bins_first_fit(bins, 0, bytes);
    for (unsigned n = 0; is_long && found != last && n < GC_UNPLANNED_CANDIDATES; n++) {
        struct gc_block *next = found != NULL ? gc_bins_next_fit(bins, found, bytes) : NULL;
        if (next == NULL)
            break;
        found = next;
    }
    if (found == NULL)
        return false;
    *place =
        (struct gc_place){found, is_long ? found->address + found->bytes - bytes : found->address};
    return true;
}

/* The last free block of the span is always compared, even after GC_UNPLANNED_CANDIDATES others. */
bool gc_unplanned_find_by_lifetime_locked(const struct gc_pool *pool, const struct gc_plan *plan,
                                          uint64_t bytes, bool is_long, struct gc_place *place)
{
    const struct gc_bins *bins = &pool->content.bins[GC_CLASS_PLANNED][GC_FREE_PLAIN];
    const uint64_t border = end_of_places(pool, plan);
    const struct span span =
        is_long
            ? (struct span){border, pool->content.planned->address + pool->content.planned->bytes}
            : (struct span){pool->content.planned->address, border};
    struct lifetime_choice choice = {.place = {NULL, 0}};
    if (pool->content.planned->arena == NULL)
        return find_in_segment(pool, bytes, is_long, place);
    struct gc_block *free_block = first_free_block(bins, span.start);
    for (unsigned n = 0;
         free_block != NULL && free_block->address < span.end && n < GC_UNPLANNED_CANDIDATES; n++) {
        add_free_block_by_lifetime(&choice, pool, free_block, &span, bytes);
        free_block = gc_bins_next(bins, free_block);
    }
    if (free_block != NULL && free_block->address < span.end)
        add_free_block_by_lifetime(&choice, pool, gc_bins_at(bins, span.end - 1), &span, bytes);
    *place = choice.place;
    return choice.place.free_block != NULL;
}
