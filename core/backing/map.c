/* A request whose place is not backed: its block is carved, its slots get pages, and it becomes
 * live; or all is as it was.
 *
 * Under the lock: choose the place, count the use, take idle pages, reserve the budget of the
 * others. Without it (gc_lend_ask_driver): create pages, unmap what was lent, map, give access.
 * Under the lock again: make pages and slots say what the driver did. */
#include "core/backing/map.h"

#include "core/backing/peers.h"
#include "core/backing/segment.h"
#include "core/base/assert.h"
#include "core/device/registry.h"

#include <stddef.h>

static bool is_small(const struct gc_lending *lending)
{
    return lending->arena->segment->class == GC_CLASS_SMALL;
}

/* ---- the driver's part: slots go from stage to stage, neighbours that are alike in one call ----
 */

static uint64_t address_of(const struct gc_lending *lending, uint64_t i)
{
    return lending->arena->segment->address + i * lending->pool->pages.page_bytes;
}

static enum gc_status refuse(struct gc_lending *lending, int code)
{
    lending->refusal->driver_code = code;
    lending->is_device_full = code == lending->context->core->driver.out_of_memory;
    lending->refusal->decline.is_share_short = false;
    return lending->is_device_full ? GC_OUT_OF_MEMORY : GC_DRIVER;
}

static enum gc_status create_pages(struct gc_lending *lending)
{
    struct gc_context *context = lending->context;
    const struct gc_driver *driver = &context->core->driver;
    for (uint64_t i = lending->first; i < lending->end; i++) {
        struct gc_slot *slot = gc_lend_slot(lending, i);
        if (slot->stage != GC_SLOT_NEEDS || slot->planned != NULL)
            continue;
        struct gc_page *page = gc_slab_take(&context->device->page_records);
        if (page == NULL)
            return GC_NO_HOST_MEMORY;
        *page = (struct gc_page){.user = slot, .is_fresh = true};
        const int code = GC_IN_CONTEXT(context, driver->page_create(driver->self, context->handle,
                                                                    lending->pool->pages.page_bytes,
                                                                    &page->handle));
        if (code != 0) {
            gc_slab_put(&context->device->page_records, page);
            return refuse(lending, code);
        }
        slot->planned = page;
        lending->create_count--;
        gc_context_add_pages(context, lending->pool->pages.page_bytes);
    }
    return GC_OK;
}

/* The end of the run of slots in `stage` that starts at `i`, all with a page or all without. */
static uint64_t run_end(const struct gc_lending *lending, uint64_t i, enum gc_slot_stage stage)
{
    const bool has_page = gc_lend_slot(lending, i)->page != NULL;
    while (i < lending->end && gc_lend_slot(lending, i)->stage == stage &&
           (stage != GC_SLOT_NEEDS || (gc_lend_slot(lending, i)->page != NULL) == has_page))
        i++;
    return i;
}

static void set_stage(const struct gc_lending *lending, uint64_t i, uint64_t end,
                      enum gc_slot_stage stage)
{
    for (; i < end; i++)
        gc_lend_slot(lending, i)->stage = (uint8_t)stage;
}

static void trace_run(const struct gc_lending *lending, enum gc_trace_op op, uint64_t i,
                      uint64_t end)
{
    if (i < end)
        gc_device_trace_memory(lending->context->device, op, GC_TRACE_PAGES, address_of(lending, i),
                               (end - i) * lending->pool->pages.page_bytes);
}

static int unmap_run(struct gc_lending *lending, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &lending->context->core->driver;
    if (gc_lend_slot(lending, i)->page == NULL)
        return 0;
    const int code =
        driver->page_unmap(driver->self, lending->context->handle, address_of(lending, i),
                           (end - i) * lending->pool->pages.page_bytes);
    if (code == 0)
        trace_run(lending, GC_TRACE_UNMAP, i, end);
    return code;
}

static int map_run(struct gc_lending *lending, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &lending->context->core->driver;
    const uint64_t first = i;
    int code = 0;
    for (; i < end; i++) {
        code =
            GC_IN_CONTEXT(lending->context,
                          driver->page_map(driver->self, lending->context->handle,
                                           address_of(lending, i), lending->pool->pages.page_bytes,
                                           gc_lend_slot(lending, i)->planned->handle));
        if (code != 0)
            break;
        set_stage(lending, i, i + 1, GC_SLOT_MAPPED);
    }
    trace_run(lending, GC_TRACE_MAP, first, i);
    return code;
}

static int share_run(struct gc_lending *lending, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &lending->context->core->driver;
    return GC_IN_CONTEXT(
        lending->context,
        driver->page_set_access(driver->self, lending->context->handle, address_of(lending, i),
                                (end - i) * lending->pool->pages.page_bytes, lending->change.peers,
                                lending->change.peer_count));
}

typedef int step_run(struct gc_lending *lending, uint64_t i, uint64_t end);

/* Takes each run of slots from one stage to the next. */
static enum gc_status advance(struct gc_lending *lending, enum gc_slot_stage from, step_run *step)
{
    for (uint64_t i = lending->first; i < lending->end; i++) {
        if (gc_lend_slot(lending, i)->stage != from)
            continue;
        const uint64_t end = run_end(lending, i, from);
        const int code = step(lending, i, end);
        if (code != 0)
            return refuse(lending, code);
        set_stage(lending, i, end, from + 1);
        i = end - 1;
    }
    return GC_OK;
}

enum gc_status gc_lend_ask_driver(struct gc_lending *lending)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    int code = 0;
    if (lending->must_unmap && !gc_reuse_quiesce(lending->context, &code))
        return code != 0 ? refuse(lending, code) : GC_OUT_OF_MEMORY;
    enum gc_status status = create_pages(lending);
    if (status == GC_OK)
        status = advance(lending, GC_SLOT_NEEDS, unmap_run);
    if (status == GC_OK)
        status = advance(lending, GC_SLOT_EMPTY, map_run);
    if (status == GC_OK)
        status = advance(lending, GC_SLOT_MAPPED, share_run);
    return status;
}

uint64_t gc_lend_uncreate(struct gc_lending *lending)
{
    struct gc_context *context = lending->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page_bytes = lending->pool->pages.page_bytes;
    for (uint64_t i = lending->first; i < lending->end; i++) {
        struct gc_slot *slot = gc_lend_slot(lending, i);
        struct gc_page *page = slot->planned;
        if (page == NULL || !page->is_fresh)
            continue;
        if (slot->stage >= GC_SLOT_MAPPED &&
            driver->page_unmap(driver->self, context->handle, address_of(lending, i), page_bytes) ==
                0) {
            slot->stage = GC_SLOT_EMPTY;
            trace_run(lending, GC_TRACE_UNMAP, i, i + 1);
        }
        if (slot->stage >= GC_SLOT_MAPPED ||
            driver->page_release(driver->self, context->handle, page->handle) != 0)
            continue; /* it stays, idle */
        slot->planned = NULL;
        gc_slab_put(&context->device->page_records, page);
        lending->create_count++;
        gc_context_sub_pages(context, page_bytes);
    }
    return lending->create_count;
}

/* ---- the plan ---- */

/* More than the peak that may be held. A plan is to save memory, and what departs from it is not
 * known to come again. */
static uint64_t slack_bytes(const struct gc_lending *lending, uint64_t peak)
{
    return lending->pool->content.planned != NULL
               ? peak >> GC_PAGE_SLACK_PLANNED_SHIFT
               : (peak >> GC_PAGE_SLACK_SHIFT) + GC_PAGE_SLACK_BYTES;
}

/* Chooses for each slot whether it gets an idle page or a new one. What was chosen before stays. */
static void plan_pages_locked(struct gc_lending *lending, bool is_thrifty)
{
    struct gc_pages *pages = &lending->pool->pages;
    struct gc_device *device = lending->context->device;
    struct gc_share *share = lending->context->share;
    struct gc_donor_search search = GC_DONOR_SEARCH_START;
    const uint64_t before = pages->idle_count;
    const uint64_t peak = gc_share_need_with(device, share, lending->claim->bytes);
    const uint64_t slack = slack_bytes(lending, peak);
    uint64_t mapped = gc_share_mapped_bytes(device, share);
    lending->create_count = 0;
    for (uint64_t i = lending->first; i < lending->end; i++) {
        struct gc_slot *slot = gc_lend_slot(lending, i);
        if (slot->stage != GC_SLOT_NEEDS || slot->planned != NULL)
            continue;
        const bool is_plain =
            slot->page == NULL && !is_small(lending) && pages->idle_count > pages->small_idle_count;
        const uint64_t most =
            gc_max_u64(lending->plan->expected_bytes, is_plain ? peak : peak + slack);
        const bool may_create = !is_thrifty && mapped + pages->page_bytes <= most;
        if (may_create || pages->idle_count == 0) {
            lending->create_count++;
            mapped += pages->page_bytes;
        } else {
            slot->planned = gc_pages_lend_locked(lending->pool, &search, slot);
        }
    }
    gc_pages_settle_locked(lending->pool, before);
}

static bool reserve_budget(struct gc_lending *lending)
{
    return gc_context_reserve(lending->context,
                              lending->create_count * lending->pool->pages.page_bytes,
                              &lending->held, &lending->refusal->decline);
}

static enum gc_status plan_locked(struct gc_lending *lending, bool is_thrifty)
{
    lending->must_unmap = false;
    for (uint64_t i = lending->first; i < lending->end; i++)
        lending->must_unmap |= gc_lend_slot(lending, i)->stage == GC_SLOT_NEEDS &&
                               gc_lend_slot(lending, i)->page != NULL;
    plan_pages_locked(lending, is_thrifty);
    if (reserve_budget(lending))
        return GC_OK;
    plan_pages_locked(lending, true);
    if (reserve_budget(lending))
        return GC_OK;
    lending->create_count = 0;
    return GC_OUT_OF_MEMORY;
}

/* ---- what came of it ---- */

/* Pages and slots say what the driver did. */
static void commit_slot_locked(struct gc_lending *lending, struct gc_slot *slot, bool is_done)
{
    struct gc_pool *pool = lending->pool;
    struct gc_page *page = slot->planned;
    if (slot->page != NULL && slot->stage > GC_SLOT_NEEDS)
        gc_pages_detach_locked(pool, slot);
    if (page != NULL) {
        pool->pages.count += page->is_fresh;
        page->is_fresh = false;
        if (slot->stage >= GC_SLOT_MAPPED)
            gc_pages_attach_locked(slot, page, slot->stage == GC_SLOT_READY, is_small(lending));
        if (!is_done)
            gc_pages_idle_locked(pool, page);
    }
    slot->planned = NULL;
    slot->stage = GC_SLOT_STAYS;
    slot->is_changing = false;
}

void gc_lend_commit_locked(struct gc_lending *lending, bool is_done)
{
    const uint64_t before = lending->pool->pages.idle_count;
    for (uint64_t i = lending->first; i < lending->end; i++) {
        if (gc_lend_slot(lending, i)->stage != GC_SLOT_STAYS)
            commit_slot_locked(lending, gc_lend_slot(lending, i), is_done);
    }
    if (gc_pages_settle_locked(lending->pool, before))
        lending->refusal->decline.rollback_count++;
}

static void give_up_locked(struct gc_lending *lending)
{
    struct gc_block *block = lending->block;
    gc_lend_commit_locked(lending, false);
    if (gc_pages_unuse_locked(lending->pool, lending->arena, block->address, block->bytes))
        lending->refusal->decline.rollback_count++;
    gc_pool_uncarve_locked(lending->pool, block);
    lending->block = NULL;
}

static void release_budget(struct gc_lending *lending, uint64_t count)
{
    if (count == 0)
        return;
    gc_context_release(lending->context, count * lending->pool->pages.page_bytes);
    lending->refusal->decline.rollback_count++;
}

static void make_live_locked(struct gc_lending *lending)
{
    const struct gc_claim *claim = lending->claim;
    struct gc_block *block = lending->block;
    gc_pool_make_live_locked(lending->pool, block, claim);
    const struct gc_entry entry = {block->address, claim->requested_bytes, block->bytes,
                                   claim->stream, claim->api};
    gc_context_note_alloc(lending->context, &entry);
}

/* ---- the place ---- */

/* What lies behind a block in its last page, and the block after it, must be in the pagemap too. */
static uint64_t end_to_prepare(const struct gc_pool *pool, const struct gc_arena *arena,
                               uint64_t end)
{
    uint64_t rounded;
    if (!gc_round_up_u64(end, pool->pages.page_bytes, &rounded))
        return end;
    return gc_min_u64(rounded + GC_GRANULE, arena->segment->address + arena->segment->bytes);
}

/* Comes with the lock and goes without: the place must be looked for again. */
static enum gc_status prepare_unlock(struct gc_lending *lending, const struct gc_place *place)
{
    struct gc_pool *pool = lending->pool;
    struct gc_arena *arena = lending->arena;
    const uint64_t end = end_to_prepare(pool, arena, place->address + lending->claim->bytes);
    const uint64_t start = place->address;
    gc_pool_release(pool);
    const enum gc_status status =
        gc_pagemap_prepare(&lending->context->core->pagemap, start, end - start);
    if (status == GC_OK) /* the holder's own */
        arena->prepared_end = gc_max_u64(arena->prepared_end, end);
    return status;
}

/* Where addresses cannot be added those of the other class are better than none. */
static bool find_place_locked(const struct gc_lending *lending, struct gc_place *place)
{
    const struct gc_pool *pool = lending->pool;
    const enum gc_class class = lending->plan->class;
    const enum gc_class other = class == GC_CLASS_SMALL ? GC_CLASS_LARGE : GC_CLASS_SMALL;
    const uint64_t bytes = lending->claim->bytes;
    if (lending->plan->at != 0)
        return gc_pool_find_at_locked(pool, lending->plan->at, bytes, place);
    return gc_pool_find_place_locked(pool, class, bytes, lending->plan->is_tight, place) ||
           (pool->pages.range_bytes != 0 &&
            gc_pool_find_place_locked(pool, other, bytes, lending->plan->is_tight, place));
}

/* Carves the block: with GC_OK the lock is held, else not. */
static enum gc_status carve_lock(struct gc_lending *lending)
{
    struct gc_pool *pool = lending->pool;
    struct gc_place place;
    for (;;) {
        enum gc_status status = gc_pool_acquire(pool);
        if (status != GC_OK)
            return status;
        if (pool->is_closed) {
            gc_pool_release(pool);
            return GC_INVALID_ARGUMENT;
        }
        if (find_place_locked(lending, &place)) {
            lending->arena =
                atomic_load_explicit(&place.hole->segment, memory_order_relaxed)->arena;
            if (lending->arena == NULL ||
                end_to_prepare(pool, lending->arena, place.address + lending->claim->bytes) <=
                    lending->arena->prepared_end) {
                lending->block = gc_pool_carve_locked(pool, &place, lending->claim->bytes);
                return GC_OK;
            }
            status = prepare_unlock(lending, &place);
        } else if (lending->plan->at != 0) {
            gc_pool_release(pool);
            status = GC_OUT_OF_MEMORY;
        } else {
            gc_pool_release(pool);
            status = gc_arena_add(lending->context, lending->plan->class, lending->claim->bytes);
            /* Its addresses are all in use: only what the tenant frees itself makes room. */
            lending->refusal->decline.is_share_short = status == GC_OUT_OF_MEMORY;
        }
        if (status != GC_OK)
            return status;
    }
}

static void finish_locked(struct gc_lending *lending, enum gc_status status)
{
    if (status == GC_OK) {
        gc_lend_commit_locked(lending, true);
        make_live_locked(lending);
    } else {
        lending->may_be_thrifty = lending->is_device_full && lending->pool->pages.idle_count > 0;
        give_up_locked(lending);
    }
    gc_pool_release(lending->pool);
}

/* The driver does its part. */
static enum gc_status lend_unlocked(struct gc_lending *lending)
{
    uint64_t unused = 0;
    const enum gc_status status = gc_lend_ask_driver(lending);
    if (status == GC_OK)
        gc_context_confirm(lending->context, &lending->held);
    else
        unused = gc_lend_uncreate(lending);
    gc_pool_acquire_plain(lending->pool);
    finish_locked(lending, status);
    release_budget(lending, unused);
    return status;
}

/* One attempt; the change is begun. */
static enum gc_status lend(struct gc_lending *lending, bool is_thrifty, uint64_t *address)
{
    struct gc_pool *pool = lending->pool;
    enum gc_status status = carve_lock(lending);
    uint64_t needed = 0;
    if (status != GC_OK)
        return status;
    *address = lending->block->address;
    lending->first = 0; /* a second attempt may find a hole of a plain segment */
    lending->end = 0;
    if (lending->arena != NULL) {
        gc_arena_slots(pool, lending->arena, *address, lending->block->bytes, &lending->first,
                       &lending->end);
        needed = gc_pages_use_locked(pool, lending->arena, *address, lending->block->bytes);
    }
    if (needed > 0)
        status = plan_locked(lending, is_thrifty);
    if (needed == 0 || status != GC_OK) {
        finish_locked(lending, status);
        return status;
    }
    gc_pool_release(pool);
    return lend_unlocked(lending);
}

static bool has_arenas(const struct gc_context *context)
{
    return context->pool.pages.page_bytes != 0 &&
           !atomic_load_explicit(&context->pool.pages.is_refused, memory_order_relaxed);
}

enum gc_status gc_arena_create(struct gc_context *context, const struct gc_segment_plan *plan,
                               const struct gc_claim *claim, uint64_t *address,
                               struct gc_segment_refusal *refusal)
{
    struct gc_lending lending = {.context = context,
                                 .pool = &context->pool,
                                 .plan = plan,
                                 .claim = claim,
                                 .refusal = refusal};
    if (!has_arenas(context))
        return plan->at != 0 ? GC_OUT_OF_MEMORY
                             : gc_segment_create(context, plan, claim, address, refusal);
    enum gc_status status = gc_arena_change_begin(context, &lending.change);
    if (status == GC_OK) {
        gc_arena_share_rest(&lending.change);
        status = lend(&lending, false, address);
        if (status == GC_OUT_OF_MEMORY && lending.may_be_thrifty)
            status = lend(&lending, true, address);
        gc_arena_change_end(&lending.change);
    }
    /* A capture, or a driver that maps no more: plain memory still has its chance. */
    return status == GC_DRIVER && plan->at == 0
               ? gc_segment_create(context, plan, claim, address, refusal)
               : status;
}
