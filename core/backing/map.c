/* The slow path of an allocation in mapped memory: splits a block off a free block whose slots lack
 * pages, maps pages there and makes the block live; on failure everything is undone.
 *
 * Under the pool's lock: choose the place (best fit), pin its slots, pop idle pages, charge the
 * pages to create. Without it (gc_map_call_driver): create pages, unmap, map, grant access. Locked
 * again: commit the result to the records. At most one driver call per run of slots in one stage,
 * plus one create and one map call per page. */
#include "core/backing/map.h"

#include "core/backing/peers.h"
#include "core/backing/segment.h"
#include "core/base/assert.h"
#include "core/device/registry.h"

#include <stddef.h>

static bool is_small(const struct gc_map_op *map_op)
{
    return map_op->arena->segment->size_class == GC_CLASS_SMALL;
}

/* ---- driver calls: a run of adjacent slots in one stage advances to the next ---- */

static uint64_t address_of(const struct gc_map_op *map_op, uint64_t i)
{
    return map_op->arena->segment->address + i * map_op->pool->pages.page_bytes;
}

static enum gc_status fail(struct gc_map_op *map_op, int code)
{
    map_op->failure->driver_code = code;
    map_op->is_device_full = code == map_op->context->core->driver.out_of_memory;
    map_op->failure->charge_failure.is_quota_short = false;
    return map_op->is_device_full ? GC_OUT_OF_MEMORY : GC_DRIVER;
}

static enum gc_status create_pages(struct gc_map_op *map_op)
{
    struct gc_context *context = map_op->context;
    const struct gc_driver *driver = &context->core->driver;
    for (uint64_t i = map_op->first; i < map_op->end; i++) {
        struct gc_slot *slot = gc_map_slot(map_op, i);
        if (slot->stage != GC_SLOT_PENDING || slot->planned != NULL)
            continue;
        struct gc_page *page = gc_slab_alloc(&context->device->page_records);
        if (page == NULL)
            return GC_NO_HOST_MEMORY;
        *page = (struct gc_page){.user = slot, .is_fresh = true};
        const int code = GC_CALL_IF_OPEN(
            context, driver->page_create(driver->self, context->handle,
                                         map_op->pool->pages.page_bytes, &page->handle));
        if (code != 0) {
            gc_slab_free(&context->device->page_records, page);
            return fail(map_op, code);
        }
        slot->planned = page;
        map_op->create_count--;
        gc_context_add_pages(context, map_op->pool->pages.page_bytes);
    }
    return GC_OK;
}

/* The end of the run of slots in `stage` that starts at `i`: all with a page, or all without. */
static uint64_t run_end(const struct gc_map_op *map_op, uint64_t i, enum gc_slot_stage stage)
{
    const bool has_page = gc_map_slot(map_op, i)->page != NULL;
    while (i < map_op->end && gc_map_slot(map_op, i)->stage == stage &&
           (stage != GC_SLOT_PENDING || (gc_map_slot(map_op, i)->page != NULL) == has_page))
        i++;
    return i;
}

static void set_stage(const struct gc_map_op *map_op, uint64_t i, uint64_t end,
                      enum gc_slot_stage stage)
{
    for (; i < end; i++)
        gc_map_slot(map_op, i)->stage = (uint8_t)stage;
}

static void trace_run(const struct gc_map_op *map_op, enum gc_trace_op op, uint64_t i, uint64_t end)
{
    if (i < end)
        gc_device_trace_memory(map_op->context->device, op, GC_TRACE_PAGES, address_of(map_op, i),
                               (end - i) * map_op->pool->pages.page_bytes);
}

static int unmap_run(struct gc_map_op *map_op, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &map_op->context->core->driver;
    if (gc_map_slot(map_op, i)->page == NULL)
        return 0;
    const int code =
        driver->page_unmap(driver->self, map_op->context->handle, address_of(map_op, i),
                           (end - i) * map_op->pool->pages.page_bytes);
    if (code == 0)
        trace_run(map_op, GC_TRACE_UNMAP, i, end);
    return code;
}

static int map_run(struct gc_map_op *map_op, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &map_op->context->core->driver;
    const uint64_t first = i;
    int code = 0;
    for (; i < end; i++) {
        code = GC_CALL_IF_OPEN(
            map_op->context, driver->page_map(driver->self, map_op->context->handle,
                                              address_of(map_op, i), map_op->pool->pages.page_bytes,
                                              gc_map_slot(map_op, i)->planned->handle));
        if (code != 0)
            break;
        set_stage(map_op, i, i + 1, GC_SLOT_MAPPED);
    }
    trace_run(map_op, GC_TRACE_MAP, first, i);
    return code;
}

static int grant_run(struct gc_map_op *map_op, uint64_t i, uint64_t end)
{
    const struct gc_driver *driver = &map_op->context->core->driver;
    return GC_CALL_IF_OPEN(
        map_op->context,
        driver->page_set_access(driver->self, map_op->context->handle, address_of(map_op, i),
                                (end - i) * map_op->pool->pages.page_bytes, map_op->change.peers,
                                map_op->change.peer_count));
}

typedef int step_run(struct gc_map_op *map_op, uint64_t i, uint64_t end);

/* Advances each run of slots from one stage to the next. */
static enum gc_status advance(struct gc_map_op *map_op, enum gc_slot_stage from, step_run *step)
{
    for (uint64_t i = map_op->first; i < map_op->end; i++) {
        if (gc_map_slot(map_op, i)->stage != from)
            continue;
        const uint64_t end = run_end(map_op, i, from);
        const int code = step(map_op, i, end);
        if (code != 0)
            return fail(map_op, code);
        set_stage(map_op, i, end, from + 1);
        i = end - 1;
    }
    return GC_OK;
}

enum gc_status gc_map_call_driver(struct gc_map_op *map_op)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    int code = 0;
    if (map_op->must_unmap && !gc_submit_quiesce(map_op->context, &code))
        return code != 0 ? fail(map_op, code) : GC_OUT_OF_MEMORY;
    enum gc_status status = create_pages(map_op);
    if (status == GC_OK)
        status = advance(map_op, GC_SLOT_PENDING, unmap_run);
    if (status == GC_OK)
        status = advance(map_op, GC_SLOT_UNMAPPED, map_run);
    if (status == GC_OK)
        status = advance(map_op, GC_SLOT_MAPPED, grant_run);
    return status;
}

uint64_t gc_map_undo_create(struct gc_map_op *map_op)
{
    struct gc_context *context = map_op->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page_bytes = map_op->pool->pages.page_bytes;
    for (uint64_t i = map_op->first; i < map_op->end; i++) {
        struct gc_slot *slot = gc_map_slot(map_op, i);
        struct gc_page *page = slot->planned;
        if (page == NULL || !page->is_fresh)
            continue;
        if (slot->stage >= GC_SLOT_MAPPED &&
            driver->page_unmap(driver->self, context->handle, address_of(map_op, i), page_bytes) ==
                0) {
            slot->stage = GC_SLOT_UNMAPPED;
            trace_run(map_op, GC_TRACE_UNMAP, i, i + 1);
        }
        if (slot->stage >= GC_SLOT_MAPPED ||
            driver->page_release(driver->self, context->handle, page->handle) != 0)
            continue; /* the page stays, idle */
        slot->planned = NULL;
        gc_slab_free(&context->device->page_records, page);
        map_op->create_count++;
        gc_context_sub_pages(context, page_bytes);
    }
    return map_op->create_count;
}

/* ---- the choice of pages ---- */

/* Bytes above the peak that the pool may hold. Less with a plan: a plan serves to save memory, and
 * an allocation that deviates from the plan may never recur. */
static uint64_t slack_bytes(const struct gc_map_op *map_op, uint64_t peak)
{
    return map_op->pool->content.planned != NULL
               ? peak >> GC_PAGE_SLACK_PLANNED_SHIFT
               : (peak >> GC_PAGE_SLACK_SHIFT) + GC_PAGE_SLACK_BYTES;
}

/* Chooses an idle or a new page for each slot. An earlier choice stays. */
static void choose_pages_locked(struct gc_map_op *map_op, bool is_thrifty)
{
    struct gc_pages *pages = &map_op->pool->pages;
    struct gc_device *device = map_op->context->device;
    struct gc_quota *quota = map_op->context->quota;
    struct gc_victim_search search = GC_VICTIM_SEARCH_START;
    const uint64_t before = pages->idle_count;
    const uint64_t peak = gc_quota_peak_with(device, quota, map_op->spec->bytes);
    const uint64_t slack = slack_bytes(map_op, peak);
    uint64_t mapped = gc_quota_mapped_bytes(device, quota);
    map_op->create_count = 0;
    for (uint64_t i = map_op->first; i < map_op->end; i++) {
        struct gc_slot *slot = gc_map_slot(map_op, i);
        if (slot->stage != GC_SLOT_PENDING || slot->planned != NULL)
            continue;
        const bool is_plain =
            slot->page == NULL && !is_small(map_op) && pages->idle_count > pages->small_idle_count;
        const uint64_t most =
            gc_max_u64(map_op->segment_spec->expected_bytes, is_plain ? peak : peak + slack);
        const bool may_create = !is_thrifty && mapped + pages->page_bytes <= most;
        if (may_create || pages->idle_count == 0) {
            map_op->create_count++;
            mapped += pages->page_bytes;
        } else {
            slot->planned = gc_pages_remap_locked(map_op->pool, &search, slot);
        }
    }
    gc_pages_publish_idle_locked(map_op->pool, before);
}

static bool charge_new_pages(struct gc_map_op *map_op)
{
    return gc_context_charge(map_op->context, map_op->create_count * map_op->pool->pages.page_bytes,
                             &map_op->held, &map_op->failure->charge_failure);
}

static enum gc_status choose_and_charge_locked(struct gc_map_op *map_op, bool is_thrifty)
{
    map_op->must_unmap = false;
    for (uint64_t i = map_op->first; i < map_op->end; i++)
        map_op->must_unmap |= gc_map_slot(map_op, i)->stage == GC_SLOT_PENDING &&
                              gc_map_slot(map_op, i)->page != NULL;
    choose_pages_locked(map_op, is_thrifty);
    if (charge_new_pages(map_op))
        return GC_OK;
    choose_pages_locked(map_op, true);
    if (charge_new_pages(map_op))
        return GC_OK;
    map_op->create_count = 0;
    return GC_OUT_OF_MEMORY;
}

/* ---- the result ---- */

/* Makes the records of the slot and its page match the driver. */
static void commit_slot_locked(struct gc_map_op *map_op, struct gc_slot *slot, bool is_done)
{
    struct gc_pool *pool = map_op->pool;
    struct gc_page *page = slot->planned;
    if (slot->page != NULL && slot->stage > GC_SLOT_PENDING)
        gc_pages_detach_locked(pool, slot);
    if (page != NULL) {
        pool->pages.count += page->is_fresh;
        page->is_fresh = false;
        if (slot->stage >= GC_SLOT_MAPPED)
            gc_pages_attach_locked(slot, page, slot->stage == GC_SLOT_ACCESSIBLE, is_small(map_op));
        if (!is_done)
            gc_pages_make_idle_locked(pool, page);
    }
    slot->planned = NULL;
    slot->stage = GC_SLOT_NONE;
    slot->is_changing = false;
}

void gc_map_commit_locked(struct gc_map_op *map_op, bool is_done)
{
    const uint64_t before = map_op->pool->pages.idle_count;
    for (uint64_t i = map_op->first; i < map_op->end; i++) {
        if (gc_map_slot(map_op, i)->stage != GC_SLOT_NONE)
            commit_slot_locked(map_op, gc_map_slot(map_op, i), is_done);
    }
    if (gc_pages_publish_idle_locked(map_op->pool, before))
        map_op->failure->charge_failure.rollback_count++;
}

static void abort_locked(struct gc_map_op *map_op)
{
    struct gc_block *block = map_op->block;
    gc_map_commit_locked(map_op, false);
    if (gc_pages_unuse_locked(map_op->pool, map_op->arena, block->address, block->bytes))
        map_op->failure->charge_failure.rollback_count++;
    gc_pool_unsplit_locked(map_op->pool, block);
    map_op->block = NULL;
}

static void uncharge_unused(struct gc_map_op *map_op, uint64_t count)
{
    if (count == 0)
        return;
    gc_context_uncharge(map_op->context, count * map_op->pool->pages.page_bytes);
    map_op->failure->charge_failure.rollback_count++;
}

static void make_live_locked(struct gc_map_op *map_op)
{
    const struct gc_alloc_spec *spec = map_op->spec;
    struct gc_block *block = map_op->block;
    gc_pool_make_live_locked(map_op->pool, block, spec);
    const struct gc_entry entry = {block->address, spec->requested_bytes, block->bytes,
                                   spec->stream, spec->api};
    gc_context_count_alloc(map_op->context, &entry);
}

/* ---- the place ---- */

/* The pagemap must be prepared up to the end of the block's last page, and for the start of the
 * block after it. */
static uint64_t end_to_prepare(const struct gc_pool *pool, const struct gc_arena *arena,
                               uint64_t end)
{
    uint64_t rounded;
    if (!gc_round_up_u64(end, pool->pages.page_bytes, &rounded))
        return end;
    return gc_min_u64(rounded + GC_GRANULE, arena->segment->address + arena->segment->bytes);
}

/* Called with the lock, returns without it: the caller must search for the place again. */
static enum gc_status prepare_unlock(struct gc_map_op *map_op, const struct gc_place *place)
{
    struct gc_pool *pool = map_op->pool;
    struct gc_arena *arena = map_op->arena;
    const uint64_t end = end_to_prepare(pool, arena, place->address + map_op->spec->bytes);
    const uint64_t start = place->address;
    gc_pool_release(pool);
    const enum gc_status status =
        gc_pagemap_prepare(&map_op->context->core->pagemap, start, end - start);
    if (status == GC_OK) /* only the thread that has the change writes prepared_end */
        arena->prepared_end = gc_max_u64(arena->prepared_end, end);
    return status;
}

/* A pool that cannot add addresses also uses those of the other class. */
static bool find_place_locked(const struct gc_map_op *map_op, struct gc_place *place)
{
    const struct gc_pool *pool = map_op->pool;
    const enum gc_size_class size_class = map_op->segment_spec->size_class;
    const enum gc_size_class other = size_class == GC_CLASS_SMALL ? GC_CLASS_LARGE : GC_CLASS_SMALL;
    const uint64_t bytes = map_op->spec->bytes;
    if (map_op->segment_spec->at != 0)
        return gc_pool_find_at_locked(pool, map_op->segment_spec->at, bytes, place);
    return gc_pool_find_place_locked(pool, size_class, bytes, map_op->segment_spec->is_tight,
                                     place) ||
           (pool->pages.range_bytes != 0 &&
            gc_pool_find_place_locked(pool, other, bytes, map_op->segment_spec->is_tight, place));
}

/* Splits the block off. GC_OK: the lock is held; else not. */
static enum gc_status split_and_lock(struct gc_map_op *map_op)
{
    struct gc_pool *pool = map_op->pool;
    struct gc_place place;
    for (;;) {
        enum gc_status status = gc_pool_acquire(pool);
        if (status != GC_OK)
            return status;
        if (pool->is_closed) {
            gc_pool_release(pool);
            return GC_INVALID_ARGUMENT;
        }
        if (find_place_locked(map_op, &place)) {
            map_op->arena =
                atomic_load_explicit(&place.free_block->segment, memory_order_relaxed)->arena;
            if (map_op->arena == NULL ||
                end_to_prepare(pool, map_op->arena, place.address + map_op->spec->bytes) <=
                    map_op->arena->prepared_end) {
                map_op->block = gc_pool_split_locked(pool, &place, map_op->spec->bytes);
                return GC_OK;
            }
            status = prepare_unlock(map_op, &place);
        } else if (map_op->segment_spec->at != 0) {
            gc_pool_release(pool);
            status = GC_OUT_OF_MEMORY;
        } else {
            gc_pool_release(pool);
            status = gc_range_add(map_op->context, map_op->segment_spec->size_class,
                                  map_op->spec->bytes);
            /* All addresses of the tenant are in use: only its own frees help. */
            map_op->failure->charge_failure.is_quota_short = status == GC_OUT_OF_MEMORY;
        }
        if (status != GC_OK)
            return status;
    }
}

static void finish_locked(struct gc_map_op *map_op, enum gc_status status)
{
    if (status == GC_OK) {
        gc_map_commit_locked(map_op, true);
        make_live_locked(map_op);
    } else {
        map_op->may_be_thrifty = map_op->is_device_full && map_op->pool->pages.idle_count > 0;
        abort_locked(map_op);
    }
    gc_pool_release(map_op->pool);
}

/* Called without the lock: calls the driver, then commits or undoes. */
static enum gc_status map_block_unlocked(struct gc_map_op *map_op)
{
    uint64_t unused = 0;
    const enum gc_status status = gc_map_call_driver(map_op);
    if (status == GC_OK)
        gc_context_commit(map_op->context, &map_op->held);
    else
        unused = gc_map_undo_create(map_op);
    gc_pool_acquire_plain(map_op->pool);
    finish_locked(map_op, status);
    uncharge_unused(map_op, unused);
    return status;
}

/* One attempt; the caller has the change. `is_thrifty`: creates no page while one is idle. */
static enum gc_status map_block(struct gc_map_op *map_op, bool is_thrifty, uint64_t *address)
{
    struct gc_pool *pool = map_op->pool;
    enum gc_status status = split_and_lock(map_op);
    uint64_t needed = 0;
    if (status != GC_OK)
        return status;
    *address = map_op->block->address;
    map_op->first = 0; /* a second attempt may find a free block of a plain segment */
    map_op->end = 0;
    if (map_op->arena != NULL) {
        gc_pages_slots(pool, map_op->arena, *address, map_op->block->bytes, &map_op->first,
                       &map_op->end);
        needed = gc_pages_use_locked(pool, map_op->arena, *address, map_op->block->bytes);
    }
    if (needed > 0)
        status = choose_and_charge_locked(map_op, is_thrifty);
    if (needed == 0 || status != GC_OK) {
        finish_locked(map_op, status);
        return status;
    }
    gc_pool_release(pool);
    return map_block_unlocked(map_op);
}

static bool has_arenas(const struct gc_context *context)
{
    return context->pool.pages.page_bytes != 0 &&
           !atomic_load_explicit(&context->pool.pages.is_refused, memory_order_relaxed);
}

enum gc_status gc_map_alloc(struct gc_context *context, const struct gc_segment_spec *segment_spec,
                            const struct gc_alloc_spec *spec, uint64_t *address,
                            struct gc_segment_failure *failure)
{
    struct gc_map_op map_op = {.context = context,
                               .pool = &context->pool,
                               .segment_spec = segment_spec,
                               .spec = spec,
                               .failure = failure};
    if (!has_arenas(context))
        return segment_spec->at != 0
                   ? GC_OUT_OF_MEMORY
                   : gc_segment_create(context, segment_spec, spec, address, failure);
    enum gc_status status = gc_change_begin(context, &map_op.change);
    if (status == GC_OK) {
        gc_peers_grant_rest(&map_op.change);
        status = map_block(&map_op, false, address);
        if (status == GC_OUT_OF_MEMORY && map_op.may_be_thrifty)
            status = map_block(&map_op, true, address);
        gc_change_end(&map_op.change);
    }
    /* A capture, or a driver that maps nothing more: a segment may still succeed. */
    return status == GC_DRIVER && segment_spec->at == 0
               ? gc_segment_create(context, segment_spec, spec, address, failure)
               : status;
}
