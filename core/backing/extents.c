/* Chooses extents for the slots of a block that lack mappings, and charges those to create.
 *
 * Policy: see change.h. Existing idle extents serve once the pools hold as much as the program
 * needs; until then new ones do, which stay where they are. */
#include "core/backing/extents.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>

/* Whether the block is at a place of a plan, where mappings may be replaced. */
static bool is_planned(const struct gc_map_op *map_op)
{
    return map_op->span.arena->segment->size_class == GC_CLASS_PLANNED;
}

static bool is_small(const struct gc_map_op *map_op)
{
    return map_op->span.arena->segment->size_class == GC_CLASS_SMALL;
}

/* Where memory is short a block may have several extents all the same. */
static bool wants_one(const struct gc_map_op *map_op)
{
    return !is_planned(map_op) && !map_op->is_thrifty &&
           gc_pool_wants_one_extent(map_op->pool, map_op->spec->bytes);
}

/* Whether idle extents may not stick out of the block. */
static bool is_exact(const struct gc_map_op *map_op)
{
    return map_op->pool->pages.is_exact && !is_small(map_op);
}

/* Sizes in pages, by which the plan for one block chooses extents. */
struct sizes {
    uint64_t held;  /* by the pools of the quota or the device, with what is planned */
    uint64_t most;  /* that they may hold while something is idle */
    uint64_t piece; /* the largest extent to create */
    uint64_t chunk; /* the size of an extent that may reach beyond the block; 0: none may */
};

/* The arena's slots below `end` were used. */
static void touch(const struct gc_map_op *map_op, uint64_t end)
{
    struct gc_arena *arena = map_op->span.arena;
    if (end <= arena->touched_count)
        return;
    gc_host_mem_count(map_op->pool->shared.host,
                      gc_arena_host_bytes(end) - gc_arena_host_bytes(arena->touched_count));
    arena->touched_count = end;
}

static void plan_unmap(struct gc_map_op *map_op, struct gc_mapping *mapping)
{
    gc_pages_set_stage(mapping, GC_MAPPING_TO_UNMAP);
    gc_pages_clear_slots_locked(mapping);
    mapping->link = map_op->unmaps;
    map_op->unmaps = mapping;
}

static bool has_block_records(struct gc_map_op *map_op, uint32_t count)
{
    map_op->lacks_blocks = !gc_pool_has_records_locked(map_op->pool, count);
    if (map_op->lacks_blocks)
        gc_pool_want_records_locked(map_op->pool);
    return !map_op->lacks_blocks;
}

/* A mapping of the extent beyond the most that one may have goes: the oldest. It serves nobody,
 * since the extent is used through the new one. */
static bool plan_unmap_oldest(struct gc_map_op *map_op, const struct gc_extent *extent)
{
    struct gc_mapping *oldest = extent->mappings;
    if (extent->mapping_count <= GC_MAPPINGS_PER_EXTENT)
        return true;
    while (oldest->next != NULL && gc_pages_stage(oldest->next) == GC_MAPPING_NONE)
        oldest = oldest->next;
    if (oldest == extent->user)
        return true;
    if (!has_block_records(map_op, 2))
        return false;
    (void)gc_pages_try_exclude_locked(map_op->pool, oldest);
    plan_unmap(map_op, oldest);
    return true;
}

/* The extent serves the slots from `first`; the block uses those of them that are its own. False:
 * no record. */
static bool plan_mapping(struct gc_map_op *map_op, struct gc_extent *extent, uint64_t first)
{
    struct gc_pool *pool = map_op->pool;
    struct gc_mapping *mapping = gc_slab_try_alloc(&map_op->context->device->mapping_records);
    const uint64_t end = first + extent->page_count;
    if (mapping == NULL)
        return false;
    *mapping = (struct gc_mapping){
        .extent = extent, .arena = map_op->span.arena, .first = first, .stage = GC_MAPPING_TO_MAP};
    touch(map_op, end);
    gc_pages_attach_locked(pool, mapping);
    gc_pages_use_locked(pool, &map_op->span, first, gc_min_u64(end, map_op->span.end));
    *map_op->maps_end = mapping;
    map_op->maps_end = &mapping->link;
    map_op->map_count++;
    map_op->end = gc_max_u64(map_op->end, end);
    return plan_unmap_oldest(map_op, extent);
}

static bool plan_new(struct gc_map_op *map_op, struct sizes *sizes, uint64_t first,
                     uint64_t page_count)
{
    struct gc_extent *extent = gc_slab_try_alloc(&map_op->context->device->extent_records);
    if (extent == NULL)
        return false;
    *extent = (struct gc_extent){.page_count = page_count, .is_fresh = true};
    if (!plan_mapping(map_op, extent, first)) {
        gc_slab_free(&map_op->context->device->extent_records, extent);
        return false;
    }
    map_op->create_count += page_count;
    sizes->held += page_count;
    return true;
}

/* The end of the slots without a mapping that the block has, or that are free behind it; at most
 * `most`. */
static uint64_t free_end(const struct gc_map_op *map_op, uint64_t most)
{
    const struct gc_arena *arena = map_op->span.arena;
    const struct gc_block *block = map_op->block;
    const uint64_t page_bytes = map_op->pool->pages.page_bytes;
    uint64_t end = map_op->wanted_end;
    if (block->next != NULL && block->next->state == GC_BLOCK_FREE && is_planned(map_op))
        block = block->next;
    const uint64_t last = gc_min_u64(arena->prepared_end, block->address + block->bytes);
    most = gc_min_u64(most, (last - arena->segment->address) / page_bytes);
    while (end < most && arena->slots[end] == NULL)
        end++;
    return end;
}

/* The end of the slots from `first` that one extent may serve: where room is short, a last slot
 * that the block fills in part has an extent of its own, which may serve others. */
static uint64_t piece_end(const struct gc_map_op *map_op, uint64_t first, uint64_t end)
{
    const bool is_partial = end == map_op->wanted_end && map_op->is_end_partial;
    return is_exact(map_op) && is_partial && end - first > 1 && !wants_one(map_op) ? end - 1 : end;
}

/* An idle extent for the slots [first, end): the largest that fits, or a larger one whose rest lies
 * over free addresses behind the block and may stick. NULL: none. */
static struct gc_extent *idle_of(const struct gc_map_op *map_op, bool of_small, uint64_t first,
                                 uint64_t end)
{
    struct gc_pool *pool = map_op->pool;
    struct gc_extent *extent = gc_pages_largest_idle_locked(pool, of_small, end - first);
    if (extent != NULL && wants_one(map_op) && extent->page_count < end - first)
        extent = NULL;
    if (extent != NULL || end != map_op->wanted_end || is_exact(map_op))
        return extent;
    extent = gc_pages_smallest_idle_locked(pool, of_small, end - first);
    return extent != NULL &&
                   extent->page_count - (end - first) <= gc_pages_may_stick(&pool->pages) &&
                   free_end(map_op, first + extent->page_count) == first + extent->page_count
               ? extent
               : NULL;
}

/* With room a large block takes no extent of small ones, except to save memory with a plan. */
static struct gc_extent *idle_for(const struct gc_map_op *map_op, uint64_t first, uint64_t end)
{
    struct gc_extent *extent = idle_of(map_op, is_small(map_op), first, end);
    const bool may_mix = is_small(map_op) || map_op->pool->content.planned != NULL;
    if (extent == NULL && (may_mix || map_op->is_thrifty))
        extent = idle_of(map_op, !is_small(map_op), first, end);
    return extent;
}

/* The pages of an extent to create for the slots [first, end): the last one of a block may reach
 * beyond it, for the requests to come. */
static uint64_t new_pages(const struct gc_map_op *map_op, const struct sizes *sizes, uint64_t first,
                          uint64_t end)
{
    const uint64_t pages = gc_min_u64(end - first, sizes->piece);
    const bool is_last = first + pages == map_op->wanted_end;
    if (!is_last || pages >= sizes->chunk || sizes->held + sizes->chunk > sizes->most)
        return pages;
    return free_end(map_op, first + sizes->chunk) - first;
}

/* Plans an extent for slots from `first`, of which `end` is the first that has a mapping or is
 * behind the block. False: no record. */
static bool plan_piece(struct gc_map_op *map_op, struct sizes *sizes, uint64_t first, uint64_t end)
{
    end = piece_end(map_op, first, end);
    if (map_op->is_thrifty || sizes->held + (end - first) > sizes->most) {
        struct gc_extent *extent = idle_for(map_op, first, end);
        if (extent != NULL)
            return plan_mapping(map_op, extent, first);
        map_op->has_surplus |=
            gc_pages_smallest_idle_locked(map_op->pool, is_small(map_op), 1) != NULL;
    }
    return plan_new(map_op, sizes, first, new_pages(map_op, sizes, first, end));
}

/* At a place of a plan: uses what the block can use as it is, and unmaps the rest. */
static void plan_uses(struct gc_map_op *map_op)
{
    const struct gc_span *span = &map_op->span;
    const uint64_t before = map_op->pool->pages.idle_count;
    uint64_t end;
    for (uint64_t i = span->first; i < span->end; i = end) {
        struct gc_mapping *mapping = span->arena->slots[i];
        end = gc_pages_run_end(span->arena, i, span->end);
        if (mapping == NULL)
            continue;
        if (gc_pages_can_serve(mapping))
            gc_pages_use_locked(map_op->pool, span, i, end);
        else
            plan_unmap(map_op, mapping);
    }
    gc_pages_publish_idle_locked(map_op->pool, before);
}

/* False: the records ran out. */
static bool plan_extents(struct gc_map_op *map_op, struct sizes *sizes)
{
    const struct gc_arena *arena = map_op->span.arena;
    uint64_t i = map_op->span.first;
    while (i < map_op->wanted_end) {
        const uint64_t end = gc_pages_run_end(arena, i, map_op->wanted_end);
        if (arena->slots[i] != NULL)
            i = end;
        else if (!plan_piece(map_op, sizes, i, end))
            return false;
    }
    return has_block_records(map_op, 2 * map_op->map_count + 1);
}

void gc_extents_reset(struct gc_map_op *map_op)
{
    map_op->maps_end = &map_op->maps;
    map_op->map_count = 0;
    map_op->create_count = 0;
    map_op->has_surplus = false;
    map_op->end = map_op->wanted_end;
}

/* Takes back the mappings that were planned; the driver knows nothing of them. */
static void unplan_locked(struct gc_map_op *map_op)
{
    struct gc_device *device = map_op->context->device;
    while (map_op->maps != NULL) {
        struct gc_mapping *mapping = map_op->maps;
        struct gc_extent *extent = mapping->extent;
        map_op->maps = mapping->link;
        gc_pages_drop_uses_locked(map_op->pool, extent);
        gc_pages_detach_locked(map_op->pool, mapping);
        gc_slab_free(&device->mapping_records, mapping);
        if (extent->is_fresh)
            gc_slab_free(&device->extent_records, extent);
        else
            gc_pages_make_idle_locked(map_op->pool, extent);
    }
    gc_extents_reset(map_op);
}

/* The largest extent for a block. The lower the program's peak, the more an extent in use may keep
 * from others. */
static uint64_t piece_pages(const struct gc_map_op *map_op, uint64_t peak)
{
    const uint64_t page_bytes = map_op->pool->pages.page_bytes;
    const uint64_t bytes = map_op->spec->bytes;
    if (is_small(map_op))
        return 1;
    const bool is_bounded = map_op->context->core->turns != NULL && !wants_one(map_op);
    if (bytes >= GC_EXTENT_WHOLE_BYTES && is_bounded)
        return gc_max_u64(1, GC_EXTENT_TURN_BYTES / page_bytes);
    if (bytes >= GC_EXTENT_WHOLE_BYTES || wants_one(map_op))
        return UINT64_MAX;
    const uint64_t common = gc_sub_or_zero_u64(peak, GC_EXTENT_PEAK_BYTES) / GC_EXTENTS_PER_PEAK;
    const uint64_t piece = common < GC_EXTENT_BYTES
                               ? common
                               : gc_max_u64(GC_EXTENT_BYTES, bytes / GC_EXTENTS_PER_BLOCK);
    return gc_max_u64(1, piece / page_bytes);
}

/* How much room a request finds, in bytes. */
struct room {
    uint64_t total; /* a limit, or the device */
    uint64_t peak;  /* of the program, with the request */
    uint64_t held;  /* mapped */
    uint64_t left;  /* to be charged */
};

/* Extents in use keep too much from others. */
static bool holds_too_much(const struct gc_pages *pages, const struct room *room)
{
    return pages->stuck_count > 0 && room->held > room->peak + room->peak / GC_SHORT_HELD_DIVISOR;
}

/* Whether room may become short: a limit, or the device, may be near. */
static bool may_become_short(const struct gc_map_op *map_op, const struct room *room)
{
    return room->total < map_op->context->device->info.total_bytes
               ? room->peak > room->total / GC_SHORT_LIMIT_DIVISOR
               : room->peak > room->total - room->total / GC_SHORT_DEVICE_DIVISOR;
}

/* Whether the peak has not risen for a while, in changes of the pool, and the room that is left is
 * more than what extents in use keep from others, now and at the peak. What is not mapped counts in
 * the limit, too: contexts, other memory of the process, other quotas. */
static bool has_settled(const struct gc_pages *pages, const struct room *room)
{
    return pages->change_count - pages->peak_change >
               pages->peak_change / GC_SETTLED_DIVISOR + GC_SETTLED_CHANGES &&
           room->held + room->left >= room->peak + room->total / GC_SETTLED_PEAK_DIVISOR &&
           room->left >= room->total / GC_SETTLED_LEFT_DIVISOR &&
           room->left >= pages->stuck_count * pages->page_bytes;
}

/* A pool's small blocks follow its large ones. */
static void measure_room(const struct gc_map_op *map_op, const struct room *room)
{
    struct gc_pages *pages = &map_op->pool->pages;
    if (is_small(map_op))
        return;
    const uint64_t unused = (pages->idle_count + pages->stuck_count) * pages->page_bytes;
    pages->stuck_most = (room->left + unused) / GC_STUCK_DIVISOR / pages->page_bytes;
    if (room->peak > pages->peak_bytes) {
        pages->peak_bytes = room->peak;
        pages->peak_change = pages->change_count;
    }
    const bool is_settled = has_settled(pages, room);
    const bool is_near = may_become_short(map_op, room);
    const bool is_full = holds_too_much(pages, room);
    pages->is_exact = is_near || is_full;
    pages->is_short = (is_near && !is_settled) || is_full;
}

/* What the pools may hold while something is idle: a little more than the program's peak. With a
 * plan less: it serves to save memory, and a request that deviates from it may never recur. */
static uint64_t most_bytes(const struct gc_map_op *map_op, uint64_t total, uint64_t peak)
{
    const bool has_plan = map_op->pool->content.planned != NULL;
    const unsigned percent = peak < GC_GROWTH_LOW_BYTES ? GC_GROWTH_LOW_PERCENT : GC_GROWTH_PERCENT;
    const uint64_t growth = has_plan ? peak / GC_GROWTH_PLANNED_DIVISOR : peak / 100 * percent;
    return gc_min_u64(total, gc_max_u64(map_op->segment_spec->expected_bytes, peak + growth));
}

static struct sizes sizes_of(struct gc_map_op *map_op)
{
    struct gc_pages *pages = &map_op->pool->pages;
    struct gc_device *device = map_op->context->device;
    struct gc_quota *quota = map_op->context->quota;
    const struct room room = {.total = gc_quota_total_bytes(device, quota),
                              .peak = gc_quota_peak_with(device, quota, map_op->spec->bytes),
                              .held = gc_quota_mapped_bytes(device, quota),
                              .left = gc_quota_left_bytes(device, quota)};
    measure_room(map_op, &room);
    map_op->most_bytes = most_bytes(map_op, room.total, room.peak);
    const uint64_t piece = piece_pages(map_op, room.peak);
    const bool has_chunk = piece > 1 && !is_exact(map_op) && !is_planned(map_op);
    return (struct sizes){
        .held = room.held / pages->page_bytes,
        .most = map_op->most_bytes / pages->page_bytes,
        .piece = piece,
        .chunk = has_chunk ? gc_min_u64(piece, GC_EXTENT_BYTES / pages->page_bytes) : 0};
}

static bool charge_new_pages(struct gc_map_op *map_op)
{
    return gc_context_charge(map_op->context, map_op->create_count * map_op->pool->pages.page_bytes,
                             &map_op->held, &map_op->failure->charge_failure);
}

/* On failure no mapping is planned. */
static enum gc_status plan_and_charge_locked(struct gc_map_op *map_op, bool is_thrifty)
{
    map_op->is_thrifty = is_thrifty;
    struct sizes sizes = sizes_of(map_op);
    map_op->lacks_records = !plan_extents(map_op, &sizes);
    if (!map_op->lacks_records && charge_new_pages(map_op)) {
        map_op->pool->pages.change_count++;
        return GC_OK;
    }
    unplan_locked(map_op);
    return map_op->lacks_records ? GC_NO_HOST_MEMORY : GC_OUT_OF_MEMORY;
}

/* The unmapped addresses behind the mappings are free again. */
static void return_rest_locked(struct gc_map_op *map_op)
{
    struct gc_block *block = map_op->block;
    const uint64_t end =
        map_op->span.arena->segment->address + map_op->end * map_op->pool->pages.page_bytes;
    gc_pool_return_unmapped_locked(map_op->pool, block, end - block->address);
    map_op->span = gc_pages_span_of_block_locked(map_op->pool, block);
}

enum gc_status gc_extents_plan_locked(struct gc_map_op *map_op, bool is_thrifty)
{
    if (is_planned(map_op))
        plan_uses(map_op);
    else
        gc_pages_use_all_locked(map_op->pool, &map_op->backed);
    const uint64_t before = map_op->pool->pages.idle_count;
    enum gc_status status = plan_and_charge_locked(map_op, is_thrifty);
    if (status == GC_OUT_OF_MEMORY && !is_thrifty)
        status = plan_and_charge_locked(map_op, true);
    gc_pages_publish_idle_locked(map_op->pool, before);
    if (!is_planned(map_op))
        return_rest_locked(map_op);
    map_op->pool->spares_kept = 2 * map_op->map_count + 1;
    return status;
}
