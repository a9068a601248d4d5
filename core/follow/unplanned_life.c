/* Places by lifetime: what lasts, behind the places; what is brief, among them. */
#include "core/follow/unplanned.h"

#include <stddef.h>

/* Among which addresses; a hole that goes on beyond the end is filled from its start. */
struct span {
    uint64_t start;
    uint64_t end;
};

struct choice {
    struct gc_place place; /* hole NULL: none yet */
    uint64_t cost;
    uint64_t rest; /* of the hole, in bytes */
};

uint64_t gc_stray_places_end(const struct gc_pool *pool, const struct gc_run_plan *plan)
{
    const struct gc_segment *planned = pool->planned;
    const uint64_t page = pool->pages.page_bytes;
    if (planned->arena == NULL)
        return planned->address + planned->bytes;
    return planned->address + (plan->peak_bytes + page - 1) / page * page;
}

static void offer(struct choice *choice, const struct gc_place *place, uint64_t cost, uint64_t rest)
{
    if (choice->place.hole != NULL &&
        (cost > choice->cost || (cost == choice->cost && rest >= choice->rest)))
        return;
    *choice = (struct choice){.place = *place, .cost = cost, .rest = rest};
}

/* At its start, and at its end. */
static void offer_hole(struct choice *choice, const struct gc_pool *pool, struct gc_block *hole,
                       const struct span *span, uint64_t bytes)
{
    const uint64_t page = pool->pages.page_bytes;
    const uint64_t start = gc_max_u64(hole->address, span->start);
    const uint64_t end = gc_min_u64(hole->address + hole->bytes, span->end);
    if (end <= start || end - start < bytes)
        return;
    const uint64_t rest = end - start - bytes;
    const struct gc_place low = {hole, start};
    const struct gc_place high = {hole, end - bytes};
    offer(choice, &low, gc_stray_page_cost(&low, bytes, page), rest);
    if (end < span->end && rest > 0)
        offer(choice, &high, gc_stray_page_cost(&high, bytes, page), rest);
}

/* The hole that holds `address`, or the next one. */
static struct gc_block *first_hole(const struct gc_bins *bins, uint64_t address)
{
    const struct gc_block key = {.address = address};
    struct gc_block *hole = gc_bins_at(bins, address);
    return hole != NULL && hole->address + hole->bytes > address ? hole : gc_bins_next(bins, &key);
}

/* The hole at the end is looked at however many there are before it. */
bool gc_stray_find_by_life_locked(const struct gc_pool *pool, const struct gc_run_plan *plan,
                                  uint64_t bytes, bool lasts, struct gc_place *place)
{
    const struct gc_bins *bins = &pool->bins[GC_CLASS_PLANNED];
    const uint64_t border = gc_stray_places_end(pool, plan);
    const struct span span =
        lasts ? (struct span){border, pool->planned->address + pool->planned->bytes}
              : (struct span){pool->planned->address, border};
    struct choice choice = {.place = {NULL, 0}};
    struct gc_block *hole = first_hole(bins, span.start);
    for (unsigned n = 0; hole != NULL && hole->address < span.end && n < GC_STRAY_HOLES; n++) {
        offer_hole(&choice, pool, hole, &span, bytes);
        hole = gc_bins_next(bins, hole);
    }
    if (hole != NULL && hole->address < span.end)
        offer_hole(&choice, pool, gc_bins_at(bins, span.end - 1), &span, bytes);
    *place = choice.place;
    return choice.place.hole != NULL;
}
