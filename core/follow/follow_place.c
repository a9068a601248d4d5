/* A place of the plan is taken, or what departs gets one between. */
#include "core/follow/follow_place.h"
#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/device/registry.h"
#include "core/follow/unplanned.h"
#include "core/plan/lifetimes.h"
#include "core/reclaim/defer.h"

#include <stddef.h>

/* A round has departed from the plan with this many requests, and one in so many. */
#define STRAYED_MIN 2
#define STRAYED_SHARE 16

/* ---- one place ---- */

/* What stands at a place. */
struct view {
    bool is_occupied;
    uint64_t pending_bytes; /* of blocks that touch it, whole */
};

static struct view look_locked(const struct gc_pool *pool, uint64_t address, uint64_t bytes)
{
    struct view view = {.is_occupied = false};
    uint64_t start;
    const struct gc_block *block = gc_pagemap_find(pool->shared.pagemap, address, &start);
    for (; block != NULL && block->address < address + bytes && !view.is_occupied;
         block = block->next) {
        if (block->state == GC_BLOCK_FREE)
            continue;
        view.is_occupied = block->state != GC_BLOCK_PENDING;
        view.pending_bytes += block->bytes;
    }
    return view;
}

/* The stream's own pending blocks, if they are all that is in the way and none reaches beyond it.
 * They are free for this moment only: the place is taken under the same hold of the lock. */
static bool clear_by_stream_locked(struct gc_pool *pool, uint64_t address,
                                   const struct gc_claim *claim, const struct view *view)
{
    const struct gc_arena *arena = pool->planned->arena;
    struct gc_pending taken = {NULL, NULL};
    if (view->is_occupied ||
        (arena != NULL && !gc_pages_are_backed_locked(pool, arena, address, claim->bytes)) ||
        !gc_stream_take_range_locked(pool, claim->stream, address, claim->bytes,
                                     view->pending_bytes, &taken))
        return false;
    (void)gc_pool_give_pending_locked(pool, taken);
    return true;
}

/* The claim has its block. */
static void settle_locked(struct gc_pursuit *pursuit, const struct gc_block *block)
{
    const struct gc_claim *claim = pursuit->claim;
    const struct gc_entry entry = {block->address, claim->requested_bytes, block->bytes,
                                   claim->stream, claim->api};
    pursuit->address = block->address;
    gc_context_note_alloc(pursuit->context, &entry);
}

static bool take_locked(struct gc_pursuit *pursuit)
{
    struct gc_pool *pool = &pursuit->context->pool;
    const struct gc_claim *claim = pursuit->claim;
    struct gc_place place;
    if (!gc_pool_find_at_locked(pool, pursuit->address, claim->bytes, &place)) {
        const struct view view = look_locked(pool, pursuit->address, claim->bytes);
        pursuit->reason = view.is_occupied ? GC_FOLLOW_OCCUPIED : GC_FOLLOW_PENDING;
        pursuit->is_waiting = !view.is_occupied;
        if (!clear_by_stream_locked(pool, pursuit->address, claim, &view) ||
            !gc_pool_find_at_locked(pool, pursuit->address, claim->bytes, &place))
            return false;
    }
    const struct gc_block *block = gc_pool_take_place_locked(pool, &place, claim);
    pursuit->is_waiting = false;
    pursuit->needs_driver = block == NULL;
    pursuit->reason = GC_FOLLOW_MEMORY;
    if (block != NULL)
        settle_locked(pursuit, block);
    return block != NULL;
}

void gc_follow_begin_round_locked(struct gc_follow *follow)
{
    follow->round = follow->match.round_count;
    follow->matched_count = 0;
    follow->strayed_count = 0;
    follow->has_departed = false;
}

/* In plain memory all that is there is there: a place is as good as any. */
static bool goes_by_life_locked(const struct gc_pursuit *pursuit)
{
    const struct gc_pool *pool = &pursuit->context->pool;
    return pool->planned != NULL && pool->planned->arena != NULL && pursuit->follow->has_departed;
}

static void match_entry_locked(struct gc_pursuit *pursuit, bool is_idle)
{
    struct gc_follow *follow = pursuit->follow;
    const struct gc_claim *claim = pursuit->claim;
    if (is_idle || follow->round != follow->match.round_count)
        gc_follow_begin_round_locked(follow);
    pursuit->entry = gc_run_match_next(&follow->match, claim->bytes, claim->stream, is_idle);
    pursuit->alike = pursuit->entry != GC_RUN_NONE
                         ? pursuit->entry
                         : gc_run_match_guess(&follow->match, claim->bytes);
    follow->matched_count += pursuit->entry != GC_RUN_NONE;
    atomic_store_explicit(&follow->rounds, follow->match.round_count, memory_order_relaxed);
    atomic_store_explicit(&follow->jumps, follow->match.jump_count, memory_order_relaxed);
}

/* The entry of the claim, and whether its place is asked for. */
static bool match_locked(struct gc_pursuit *pursuit)
{
    struct gc_pool *pool = &pursuit->context->pool;
    const struct gc_block *first = pool->planned == NULL ? NULL : pool->planned->first;
    match_entry_locked(pursuit,
                       first == NULL || (first->next == NULL && first->state == GC_BLOCK_FREE));
    pursuit->reason = GC_FOLLOW_UNMATCHED;
    if (pursuit->entry == GC_RUN_NONE)
        return false;
    /* What a graph uses stays in use when it is freed. */
    pursuit->reason = GC_FOLLOW_CAPTURE;
    if (gc_context_is_capturing(pursuit->context))
        return false;
    pursuit->reason = GC_FOLLOW_DEPARTED;
    return !goes_by_life_locked(pursuit);
}

/* The place is taken, if it can be without the driver. */
static bool try_take_locked(struct gc_pursuit *pursuit)
{
    const struct gc_pool *pool = &pursuit->context->pool;
    pursuit->reason = GC_FOLLOW_MEMORY;
    pursuit->needs_driver = false;
    pursuit->is_waiting = false;
    if (pool->is_dropped || pool->is_closed || pool->planned == NULL)
        return false;
    pursuit->address =
        pool->planned->address + pursuit->follow->plan->entries[pursuit->entry].offset;
    return take_locked(pursuit);
}

static bool try_take(struct gc_pursuit *pursuit)
{
    struct gc_pool *pool = &pursuit->context->pool;
    if (gc_pool_acquire(pool) != GC_OK)
        return false;
    const bool is_taken = try_take_locked(pursuit);
    gc_pool_release(pool);
    return is_taken;
}

/* Finds the entry and, where nothing more is to be done, takes its place: one lock. False: it has
 * none. */
static bool begin(struct gc_pursuit *pursuit, bool *must_open, bool *is_hit)
{
    struct gc_pool *pool = &pursuit->context->pool;
    *must_open = false;
    *is_hit = false;
    if (gc_pool_acquire(pool) != GC_OK)
        return false;
    bool goes_on = !pool->is_dropped && !pool->is_closed && match_locked(pursuit);
    if (goes_on && pool->planned == NULL) {
        pursuit->reason = GC_FOLLOW_MEMORY;
        goes_on = *must_open = gc_follow_begin_opening_locked(pursuit->follow);
    } else if (goes_on) {
        *is_hit = try_take_locked(pursuit);
    }
    gc_pool_release(pool);
    return goes_on;
}

/* The place has no pages, or not all of them. */
static enum gc_status ask_driver(struct gc_pursuit *pursuit)
{
    struct gc_segment_refusal refusal = {.driver_code = 0};
    const struct gc_segment_plan plan = {.class = GC_CLASS_PLANNED,
                                         .bytes = pursuit->claim->bytes,
                                         .driver_bytes = pursuit->claim->bytes,
                                         .at = pursuit->address,
                                         .expected_bytes =
                                             gc_follow_expected_bytes(pursuit->context)};
    return gc_arena_create(pursuit->context, &plan, pursuit->claim, &pursuit->address, &refusal);
}

bool gc_pursuit_follow(struct gc_pursuit *pursuit, bool *is_hit)
{
    bool must_open;
    if (!begin(pursuit, &must_open, is_hit))
        return false;
    if (must_open) {
        gc_follow_open_places(pursuit->context);
        *is_hit = try_take(pursuit);
    }
    if (!*is_hit && pursuit->is_waiting &&
        gc_reuse_resolve(pursuit->context, pursuit->claim->bytes))
        *is_hit = try_take(pursuit);
    return *is_hit || (pursuit->needs_driver && ask_driver(pursuit) == GC_OK);
}

/* ---- what departs ---- */

static void note_strayed_locked(const struct gc_pursuit *pursuit)
{
    struct gc_follow *follow = pursuit->follow;
    follow->strayed_count +=
        pursuit->reason == GC_FOLLOW_UNMATCHED || pursuit->reason == GC_FOLLOW_OCCUPIED;
    if (follow->strayed_count > STRAYED_MIN + follow->matched_count / STRAYED_SHARE)
        follow->has_departed = true;
}

/* Among the places it would stand in their way, or leave gaps behind, so it goes where its like
 * are.
 */
static bool find_hole_locked(const struct gc_pursuit *pursuit, struct gc_place *place)
{
    const struct gc_pool *pool = &pursuit->context->pool;
    const struct gc_follow *follow = pursuit->follow;
    const uint64_t bytes = pursuit->claim->bytes;
    const uint32_t alike = pursuit->alike;
    if (!goes_by_life_locked(pursuit))
        return gc_stray_find_locked(pool, &follow->match, bytes, place);
    const bool lasts =
        alike != GC_RUN_NONE && gc_run_entry_lasts(&follow->plan->entries[alike], follow->fullest);
    return gc_stray_find_by_life_locked(pool, follow->plan, bytes, lasts, place);
}

/* What the stream freed itself comes first, as in the pool: it is of use to no other. */
static bool try_stray_locked(struct gc_pursuit *pursuit)
{
    struct gc_pool *pool = &pursuit->context->pool;
    const struct gc_claim *claim = pursuit->claim;
    struct gc_place place;
    pursuit->needs_driver = false;
    if (pool->is_dropped || pool->is_closed || pool->planned == NULL)
        return false;
    struct gc_block *block = gc_stream_take_locked(pool, claim->stream, claim->bytes);
    if (block != NULL) {
        gc_pool_make_live_locked(pool, block, claim);
    } else if (find_hole_locked(pursuit, &place)) {
        block = gc_pool_take_place_locked(pool, &place, claim);
        pursuit->address = place.address;
        pursuit->needs_driver = block == NULL;
    }
    if (block != NULL)
        settle_locked(pursuit, block);
    return block != NULL;
}

static bool try_stray(struct gc_pursuit *pursuit, bool is_first)
{
    struct gc_pool *pool = &pursuit->context->pool;
    pursuit->needs_driver = false;
    if (gc_pool_acquire(pool) != GC_OK)
        return false;
    if (is_first && !pool->is_dropped)
        note_strayed_locked(pursuit);
    const bool is_taken = try_stray_locked(pursuit);
    gc_pool_release(pool);
    return is_taken;
}

bool gc_pursuit_depart(struct gc_pursuit *pursuit, bool *is_hit)
{
    *is_hit = false;
    if (pursuit->reason == GC_FOLLOW_CAPTURE || pursuit->reason == GC_FOLLOW_MEMORY)
        return false;
    *is_hit = try_stray(pursuit, true);
    /* What is pending may have become idle, and is there already. */
    if (pursuit->needs_driver && gc_reuse_resolve(pursuit->context, pursuit->claim->bytes))
        *is_hit = try_stray(pursuit, false);
    return *is_hit || (pursuit->needs_driver && ask_driver(pursuit) == GC_OK);
}
