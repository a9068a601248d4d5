/* A move, while no work is under way: choose blocks, then for one extent after the other copy it to
 * a page of host memory, exchange the mappings, and release the device's page.
 *
 * Until the exchange nothing that the program sees has changed. An exchange that fails is undone by
 * mapping the device's page again, which still has the content: the page is released only once the
 * other is mapped.
 *
 * Choice: first fit by age, then without those that the rest can do without. */
#include "core/pause/move.h"

#include "core/backing/change.h"
#include "core/backing/copy.h"
#include "core/backing/spill.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/lookup.h"
#include "core/device/registry.h"
#include "core/pause/pause.h"
#include "core/pause/swap.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

#define TIMEOUT_MS 1000

/* ---- the choice ---- */

/* A block that may move. It may be freed at any time. */
struct candidate {
    struct gc_context *context;
    uint64_t address;
    uint64_t id;
    uint64_t bytes; /* that can move */
};

struct choice {
    uint64_t least_bytes; /* of a candidate */
    uint64_t bytes;       /* of all that are chosen */
    unsigned count;
    struct candidate blocks[GC_MOVE_BLOCKS_MAX]; /* the oldest first */
};

/* An extent that lies in the block, whole, and has no other address. */
static bool is_movable(const struct gc_span *span, const struct gc_mapping *mapping)
{
    return mapping != NULL && mapping->first >= span->whole_first &&
           gc_pages_end_of(mapping) <= span->whole_end && mapping->extent->user == mapping &&
           mapping->extent->mapping_count == 1 && !mapping->extent->is_away &&
           mapping->has_access && gc_pages_stage(mapping) == GC_MAPPING_NONE;
}

static uint64_t movable_bytes(const struct gc_pool *pool, const struct gc_block *block)
{
    const struct gc_span span = gc_pages_span_of_block_locked(pool, block);
    uint64_t pages = 0;
    for (uint64_t i = span.first; i < span.end; i = gc_pages_run_end(span.arena, i, span.end))
        if (is_movable(&span, span.arena->slots[i]))
            pages += span.arena->slots[i]->extent->page_count;
    return pages * pool->pages.page_bytes;
}

static bool may_move(const struct gc_block *block)
{
    return atomic_load_explicit(&block->state, memory_order_acquire) == GC_BLOCK_LIVE &&
           !block->is_pinned && !block->is_exported && !block->is_synchronous && !block->is_spilled;
}

/* Keeps the oldest. */
static void add_candidate(struct choice *choice, const struct candidate *candidate)
{
    unsigned at = choice->count;
    while (at > 0 && choice->blocks[at - 1].id > candidate->id)
        at--;
    if (at == GC_MOVE_BLOCKS_MAX)
        return;
    choice->count = (unsigned)gc_min_u64(choice->count + 1, GC_MOVE_BLOCKS_MAX);
    for (unsigned i = choice->count - 1; i > at; i--)
        choice->blocks[i] = choice->blocks[i - 1];
    choice->blocks[at] = *candidate;
}

/* A thread may free the block to its cache meanwhile: the identifier is compared again. */
static void gather_block_locked(struct gc_context *context, const struct gc_block *block,
                                struct choice *choice)
{
    const uint64_t bytes = may_move(block) ? movable_bytes(&context->pool, block) : 0;
    if (bytes == 0 || bytes < choice->least_bytes)
        return;
    const uint64_t id = __atomic_load_n(&block->live.id, __ATOMIC_RELAXED);
    add_candidate(choice, &(struct candidate){context, block->address, id, bytes});
}

static void gather_locked(struct gc_context *context, struct choice *choice)
{
    const struct gc_arena *arena = context->pool.pages.arenas;
    for (; arena != NULL; arena = arena->next) {
        const struct gc_block *block = arena->segment->first;
        for (; block != NULL && arena->segment->size_class == GC_CLASS_LARGE; block = block->next)
            gather_block_locked(context, block, choice);
    }
}

static void gather(const struct gc_context *context, struct choice *choice)
{
    struct gc_context *other = gc_context_first(context->device);
    for (; other != NULL; other = gc_context_next(other)) {
        if (gc_context_is_dropped(other) || other->quota != context->quota ||
            other->pool.pages.page_bytes == 0 || gc_swap_check(other) != GC_SWAP_OK)
            continue;
        gc_pool_acquire_plain(&other->pool);
        gather_locked(other, choice);
        gc_pool_release(&other->pool);
    }
}

static void drop_candidate(struct choice *choice, unsigned i)
{
    choice->bytes -= choice->blocks[i].bytes;
    choice->count--;
    for (; i < choice->count; i++)
        choice->blocks[i] = choice->blocks[i + 1];
}

/* False: all together are too little. */
static bool choose(const struct gc_context *context, uint64_t need_bytes, struct choice *choice)
{
    *choice = (struct choice){.least_bytes = need_bytes / GC_MOVE_BLOCKS_MAX};
    gather(context, choice);
    unsigned count = 0;
    while (count < choice->count && choice->bytes < need_bytes)
        choice->bytes += choice->blocks[count++].bytes;
    choice->count = count;
    for (unsigned i = count; i-- > 0 && choice->bytes >= need_bytes;)
        if (choice->bytes - choice->blocks[i].bytes >= need_bytes)
            drop_candidate(choice, i);
    return count > 0 && choice->bytes >= need_bytes;
}

/* ---- one block ---- */

struct move {
    struct gc_context *context;
    struct gc_change change;
    struct gc_block *block;
    struct gc_extent *extents; /* linked by `next` */
    uint64_t bytes;            /* of these */
    uint64_t largest_bytes;
    uint64_t most_bytes; /* of host memory that is charged */
    uint64_t aside;      /* addresses for the copies */
    bool is_stuck;       /* they are mapped still: the driver does not unmap them */
    struct gc_moved moved;
};

/* From now on the block's free waits for all streams, and its memory serves nobody else. */
static void mark_block(struct move *move)
{
    struct gc_block *block = move->block;
    block->is_spilled = true;
    block->is_shared = true;
    atomic_store_explicit(&block->tcache_number, 0, memory_order_relaxed);
    move->moved = (struct gc_moved){
        .address = block->address, .block_bytes = block->bytes, .api = block->api};
}

static void take_extents_locked(struct move *move)
{
    struct gc_pool *pool = &move->context->pool;
    const struct gc_span span = gc_pages_span_of_block_locked(pool, move->block);
    for (uint64_t i = span.first; i < span.end; i = gc_pages_run_end(span.arena, i, span.end)) {
        struct gc_mapping *mapping = span.arena->slots[i];
        if (!is_movable(&span, mapping))
            continue;
        struct gc_extent *extent = mapping->extent;
        const uint64_t bytes = extent->page_count * pool->pages.page_bytes;
        gc_pages_set_stage(mapping, GC_MAPPING_TO_UNMAP);
        gc_pages_set_away_locked(pool, extent, true);
        extent->next = move->extents;
        move->extents = extent;
        move->bytes += bytes;
        move->largest_bytes = gc_max_u64(move->largest_bytes, bytes);
    }
}

/* The thread caches are stopped: a live block is the program's. */
static bool take_block(struct move *move, const struct candidate *candidate)
{
    struct gc_pool *pool = &move->context->pool;
    struct gc_block *block;
    const enum gc_lookup found =
        gc_lookup_lock(move->context->core, candidate->address, false, &block);
    if (found != GC_LOOKUP_START && found != GC_LOOKUP_INSIDE)
        return false;
    struct gc_pool *locked = gc_block_pool(block);
    const bool is_it = found == GC_LOOKUP_START && locked == pool && may_move(block) &&
                       block->live.id == candidate->id;
    const uint64_t bytes = is_it ? movable_bytes(pool, block) : 0;
    const bool is_taken = bytes > 0 && bytes <= move->most_bytes;
    if (is_taken) {
        move->block = block;
        mark_block(move);
        take_extents_locked(move);
    }
    gc_pool_release(locked);
    return is_taken;
}

/* Nothing moves. The block may have been freed meanwhile: its extents are idle then. */
static void untake_block(struct move *move)
{
    struct gc_pool *pool = &move->context->pool;
    gc_pool_acquire_plain(pool);
    const uint64_t before = pool->pages.idle_count;
    for (struct gc_extent *extent = move->extents, *next; extent != NULL; extent = next) {
        next = extent->next;
        gc_pages_set_stage(extent->user, GC_MAPPING_NONE);
        extent->user->has_access = true;
        gc_swap_return_locked(pool, extent);
    }
    if (move->moved.moved_bytes == 0 && move->block->address == move->moved.address)
        move->block->is_spilled = false;
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
}

/* ---- the copies ---- */

static uint64_t bytes_of(const struct move *move, const struct gc_extent *extent)
{
    return extent->page_count * move->context->pool.pages.page_bytes;
}

static bool copy_extent(const struct move *move, const struct gc_extent *extent)
{
    struct gc_context *worker = gc_swap_worker(move->context);
    const uint64_t from = gc_swap_address(&move->context->pool, extent);
    const bool is_started = gc_copy_across(worker, from, move->aside, bytes_of(move, extent)) == 0;
    return gc_copy_wait(worker, true) == 0 && is_started;
}

/* A page of host memory with the extent's content; it is mapped nowhere. 0: a failure, which leaves
 * nothing unless the driver does not take it back (*is_stuck). */
static uint64_t copy_to_host(struct move *move, const struct gc_extent *extent, bool *is_stuck)
{
    struct gc_context *context = move->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t bytes = bytes_of(move, extent);
    uint64_t handle = 0;
    int code = GC_CALL_IF_OPEN(
        context, driver->page_create_host(driver->self, context->handle, bytes, &handle));
    if (code != 0)
        return 0;
    bool is_copied = false;
    if (gc_spill_map(&move->change, move->aside, bytes, handle, &move->is_stuck) == 0) {
        is_copied = copy_extent(move, extent);
        move->is_stuck = !gc_spill_unmap(context, move->aside, bytes);
    }
    if (is_copied && !move->is_stuck)
        return handle;
    *is_stuck = move->is_stuck || driver->page_release(driver->self, context->handle, handle) != 0;
    return 0;
}

/* ---- the exchange ---- */

enum exchange { EXCHANGED, AS_BEFORE, LOST };

static bool map_at(const struct move *move, const struct gc_extent *extent, uint64_t handle)
{
    bool ignored; /* what stays mapped there lets nothing else be mapped */
    return gc_spill_map(&move->change, gc_swap_address(&move->context->pool, extent),
                        bytes_of(move, extent), handle, &ignored) == 0;
}

/* The extent's addresses show the page on the host instead of the device's. */
static enum exchange exchange(const struct move *move, struct gc_extent *extent, uint64_t handle)
{
    if (gc_change_unmap(move->context, extent->user) != 0)
        return AS_BEFORE;
    if (map_at(move, extent, handle))
        return EXCHANGED;
    return map_at(move, extent, extent->driver_handle) ? AS_BEFORE : LOST;
}

/* The driver maps neither page at addresses that it has just unmapped: work that uses them fails.
 * The extent stays away, so that it never serves another block. */
static void lose(const struct move *move, const struct gc_extent *extent)
{
    struct gc_pool *pool = &move->context->pool;
    gc_pool_acquire_plain(pool);
    gc_pages_set_stage(extent->user, GC_MAPPING_NONE);
    extent->user->has_access = false;
    gc_pool_release(pool);
    gc_log_write(move->context->core->log, GC_LOG_ERROR,
                 "device %d: the driver does not map memory at 0x%llx again, where it was mapped; "
                 "work that uses it will fail",
                 move->context->device->info.ordinal,
                 (unsigned long long)gc_swap_address(pool, extent));
    gc_context_set_faulted(move->context, true);
}

static void commit(struct move *move, struct gc_extent *extent, uint64_t handle)
{
    struct gc_context *context = move->context;
    struct gc_pool *pool = &context->pool;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t device_handle = extent->driver_handle;
    gc_pool_acquire_plain(pool);
    extent->driver_handle = handle;
    extent->is_host = true;
    gc_pages_set_stage(extent->user, GC_MAPPING_NONE);
    extent->next = pool->pages.hosted;
    pool->pages.hosted = extent;
    pool->pages.count -= extent->page_count;
    gc_pool_release(pool);
    move->moved.moved_bytes += bytes_of(move, extent);
    /* A page that the driver keeps stays charged. */
    if (driver->page_release(driver->self, context->handle, device_handle) != 0)
        return;
    gc_change_uncharge_pages(context, extent->page_count);
    move->moved.device_bytes += bytes_of(move, extent);
}

static enum exchange move_extent(struct move *move, struct gc_extent *extent, bool *is_stuck)
{
    struct gc_context *context = move->context;
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t handle = copy_to_host(move, extent, is_stuck);
    if (handle == 0)
        return AS_BEFORE;
    const enum exchange result = exchange(move, extent, handle);
    if (result == EXCHANGED) {
        commit(move, extent, handle);
        return EXCHANGED;
    }
    *is_stuck = driver->page_release(driver->self, context->handle, handle) != 0;
    if (result == LOST)
        lose(move, extent);
    return result;
}

/* One extent after the other: a failure leaves those before it moved. Returns the bytes of host
 * memory that stay taken. */
static uint64_t move_extents(struct move *move)
{
    bool is_stuck = false;
    uint64_t stuck_bytes = 0;
    while (move->extents != NULL) {
        struct gc_extent *extent = move->extents;
        struct gc_extent *next = extent->next;
        const enum exchange result = move_extent(move, extent, &is_stuck);
        if (result != AS_BEFORE)
            move->extents = next;
        if (result != EXCHANGED) {
            stuck_bytes = is_stuck ? bytes_of(move, extent) : 0;
            break;
        }
    }
    return move->moved.moved_bytes + stuck_bytes;
}

static uint64_t move_taken(struct move *move)
{
    struct gc_context *context = move->context;
    const struct gc_driver *driver = &context->core->driver;
    uint64_t taken = 0;
    int ignored;
    if (gc_fence_synchronize(context, GC_FOREVER, &ignored) != GC_OK ||
        GC_CALL_IF_OPEN(context,
                        driver->address_reserve(driver->self, context->handle, move->largest_bytes,
                                                context->pool.pages.page_bytes, &move->aside)) != 0)
        return 0;
    taken = move_extents(move);
    if (!move->is_stuck)
        (void)driver->address_free(driver->self, context->handle, move->aside, move->largest_bytes);
    return taken;
}

/* Returns the bytes of host memory that stay taken. *is_going: another block may follow. */
static uint64_t move_block(const struct candidate *candidate, uint64_t most_bytes,
                           struct gc_moved *moved, bool *is_going)
{
    struct gc_context *context = candidate->context;
    struct move move = {.context = context, .most_bytes = most_bytes};
    uint64_t taken = 0;
    *moved = (struct gc_moved){.address = 0};
    *is_going = false;
    if (gc_swap_check(context) != GC_SWAP_OK || gc_change_begin(context, &move.change) != GC_OK)
        return 0;
    gc_tcache_stop_all(context->core);
    gc_tcache_flush_context(context);
    const bool is_taken = take_block(&move, candidate);
    gc_tcache_resume_all(context->core);
    if (is_taken)
        taken = move_taken(&move);
    *is_going = move.extents == NULL;
    if (move.extents != NULL)
        untake_block(&move);
    gc_change_end(&move.change);
    gc_spill_collect(context); /* the block may have been freed meanwhile */
    *moved = move.moved;
    return taken;
}

/* ---- as a whole ---- */

struct moving {
    struct gc_device *device;
    struct choice choice;
    gc_move_function *told;
    void *argument;
};

static bool move_all(void *argument)
{
    struct moving *moving = argument;
    const struct choice *choice = &moving->choice;
    uint64_t left = choice->bytes; /* of what is charged */
    bool is_any = false;
    bool is_going = true;
    for (unsigned i = 0; i < choice->count && is_going; i++) {
        struct gc_moved moved;
        left -= move_block(&choice->blocks[i], left, &moved, &is_going);
        if (moved.moved_bytes == 0)
            continue;
        is_any = true;
        moving->told(moving->argument, &moved);
    }
    gc_core_sub_spilled(moving->device, left);
    return is_any;
}

static bool move_charged(void *argument)
{
    struct moving *moving = argument;
    const struct choice *choice = &moving->choice;
    return gc_spill_try_hold(choice->blocks[0].context, choice->bytes) && move_all(moving);
}

bool gc_move_blocks(struct gc_context *context, uint64_t need_bytes, gc_move_function *told,
                    void *argument)
{
    struct moving moving = {.device = context->device, .told = told, .argument = argument};
    GC_ASSERT(gc_lock_held_count() == 0);
    return context->core->driver.copy_across != NULL && need_bytes > 0 &&
           choose(context, need_bytes, &moving.choice) &&
           gc_pause_during(context->core, TIMEOUT_MS, move_charged, &moving);
}
