/* The slow path of an allocation in mapped memory: splits a block off free addresses whose slots
 * lack mappings, maps extents there and makes the block live; on failure everything is undone.
 *
 * Under the pool's lock: choose the place, use what is backed, plan extents for the rest and charge
 * those to create. Without it (gc_map_call_driver): unmap, create, map, grant access. Locked again:
 * commit the result to the records. */
#include "core/backing/map.h"

#include "core/backing/extents.h"
#include "core/backing/peers.h"
#include "core/backing/segment.h"
#include "core/backing/unmap.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>

/* ---- driver calls ---- */

static uint64_t bytes_of(const struct gc_map_op *map_op, const struct gc_mapping *mapping)
{
    return mapping->extent->page_count * map_op->pool->pages.page_bytes;
}

static enum gc_status fail(struct gc_map_op *map_op, int code)
{
    map_op->failure->driver_code = code;
    map_op->is_device_full = code == map_op->context->core->driver.out_of_memory;
    map_op->failure->charge_failure.is_quota_short = false;
    map_op->failure->charge_failure.is_driver_short = true;
    return map_op->is_device_full ? GC_OUT_OF_MEMORY : GC_DRIVER;
}

static int create_and_map(struct gc_map_op *map_op, struct gc_mapping *mapping)
{
    struct gc_context *context = map_op->context;
    const struct gc_driver *driver = &context->core->driver;
    struct gc_extent *extent = mapping->extent;
    const uint64_t bytes = bytes_of(map_op, mapping);
    int code = 0;
    if (extent->driver_handle == 0) {
        code = GC_CALL_IF_OPEN(context, driver->page_create(driver->self, context->handle, bytes,
                                                            &extent->driver_handle));
        if (code != 0) {
            extent->driver_handle = 0;
            return code;
        }
        map_op->create_count -= extent->page_count;
        gc_context_add_pages(context, bytes);
    }
    if (gc_pages_stage(mapping) != GC_MAPPING_TO_MAP) { /* not unmapped after an earlier attempt */
        gc_pages_set_stage(mapping, GC_MAPPING_MAPPED);
        return 0;
    }
    const uint64_t address = gc_pages_address_of(map_op->pool, mapping);
    code = GC_CALL_IF_OPEN(context, driver->page_map(driver->self, context->handle, address, bytes,
                                                     extent->driver_handle));
    if (code == 0) {
        gc_pages_set_stage(mapping, GC_MAPPING_MAPPED);
        gc_device_trace_memory(context->device, GC_TRACE_MAP, GC_TRACE_PAGES, address, bytes);
    }
    return code;
}

/* Grants access to the run of neighbours from `first` in one call. Returns the mapping after it. */
static struct gc_mapping *grant_run(struct gc_map_op *map_op, struct gc_mapping *first, int *code)
{
    const struct gc_driver *driver = &map_op->context->core->driver;
    const uint64_t address = gc_pages_address_of(map_op->pool, first);
    uint64_t bytes = 0;
    struct gc_mapping *end = first;
    for (; end != NULL && end->arena == first->arena &&
           gc_pages_address_of(map_op->pool, end) == address + bytes;
         end = end->link)
        bytes += bytes_of(map_op, end);
    *code = GC_CALL_IF_OPEN(map_op->context,
                            driver->page_set_access(driver->self, map_op->context->handle, address,
                                                    bytes, map_op->change.peers,
                                                    map_op->change.peer_count));
    for (; *code == 0 && first != end; first = first->link)
        gc_pages_set_stage(first, GC_MAPPING_ACCESSIBLE);
    return end;
}

enum gc_status gc_map_call_driver(struct gc_map_op *map_op)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    int code = 0;
    if (map_op->unmaps != NULL && !gc_submit_quiesce(map_op->context, &code))
        return code != 0 ? fail(map_op, code) : GC_OUT_OF_MEMORY;
    for (struct gc_mapping *mapping = map_op->unmaps; mapping != NULL && code == 0;
         mapping = mapping->link)
        code = gc_change_unmap(map_op->context, mapping);
    for (struct gc_mapping *mapping = map_op->maps; mapping != NULL && code == 0;
         mapping = mapping->link)
        code = create_and_map(map_op, mapping);
    for (struct gc_mapping *mapping = map_op->maps; mapping != NULL && code == 0;)
        mapping = grant_run(map_op, mapping, &code);
    return code == 0 ? GC_OK : fail(map_op, code);
}

uint64_t gc_map_undo_create(struct gc_map_op *map_op)
{
    struct gc_context *context = map_op->context;
    const struct gc_driver *driver = &context->core->driver;
    for (struct gc_mapping *mapping = map_op->maps; mapping != NULL; mapping = mapping->link) {
        struct gc_extent *extent = mapping->extent;
        if (!extent->is_fresh || extent->driver_handle == 0)
            continue;
        if (gc_pages_stage(mapping) != GC_MAPPING_TO_MAP && gc_change_unmap(context, mapping) == 0)
            gc_pages_set_stage(mapping, GC_MAPPING_TO_MAP);
        if (gc_pages_stage(mapping) != GC_MAPPING_TO_MAP ||
            driver->page_release(driver->self, context->handle, extent->driver_handle) != 0)
            continue; /* the extent stays, idle */
        extent->driver_handle = 0;
        map_op->create_count += extent->page_count;
        gc_context_sub_pages(context, bytes_of(map_op, mapping));
    }
    return map_op->create_count;
}

/* ---- the result ---- */

static void commit_unmaps_locked(struct gc_map_op *map_op)
{
    while (map_op->unmaps != NULL) {
        struct gc_mapping *mapping = map_op->unmaps;
        map_op->unmaps = mapping->link;
        if (!gc_unmap_settle_locked(map_op->pool, mapping))
            gc_pages_restore_slots_locked(map_op->pool, mapping);
    }
}

/* Makes the records of the mapping and its extent match the driver. */
static void commit_map_locked(struct gc_map_op *map_op, struct gc_mapping *mapping, bool is_done)
{
    struct gc_pool *pool = map_op->pool;
    struct gc_extent *extent = mapping->extent;
    const bool is_mapped = gc_pages_stage(mapping) == GC_MAPPING_MAPPED ||
                           gc_pages_stage(mapping) == GC_MAPPING_ACCESSIBLE;
    mapping->has_access = gc_pages_stage(mapping) == GC_MAPPING_ACCESSIBLE;
    gc_pages_set_stage(mapping, GC_MAPPING_NONE);
    if (!is_done)
        gc_pages_drop_uses_locked(pool, extent);
    if (!is_mapped) {
        gc_pages_detach_locked(pool, mapping);
        gc_slab_free(&map_op->context->device->mapping_records, mapping);
    }
    if (extent->driver_handle == 0) {
        gc_slab_free(&map_op->context->device->extent_records, extent);
        return;
    }
    if (extent->is_fresh)
        pool->pages.count += extent->page_count;
    extent->is_fresh = false;
    if (extent->used_count == 0)
        gc_pages_make_idle_locked(pool, extent);
}

void gc_map_commit_locked(struct gc_map_op *map_op, bool is_done)
{
    const uint64_t before = map_op->pool->pages.idle_count;
    while (map_op->maps != NULL) {
        struct gc_mapping *mapping = map_op->maps;
        map_op->maps = mapping->link;
        commit_map_locked(map_op, mapping, is_done);
    }
    commit_unmaps_locked(map_op);
    if (gc_pages_publish_idle_locked(map_op->pool, before))
        map_op->failure->charge_failure.rollback_count++;
}

static void abort_locked(struct gc_map_op *map_op)
{
    gc_map_commit_locked(map_op, false);
    /* Its neighbours may have changed meanwhile. */
    map_op->span = gc_pages_span_of_block_locked(map_op->pool, map_op->block);
    if (gc_pages_unuse_locked(map_op->pool, &map_op->span))
        map_op->failure->charge_failure.rollback_count++;
    gc_pool_unsplit_locked(map_op->pool, map_op->block);
    map_op->block = NULL;
}

static void uncharge_unused(struct gc_map_op *map_op, uint64_t count)
{
    if (count == 0)
        return;
    gc_context_uncharge(map_op->context, count * map_op->pool->pages.page_bytes);
    map_op->failure->charge_failure.rollback_count++;
}

static void count_alloc(const struct gc_map_op *map_op, const struct gc_block *block)
{
    const struct gc_alloc_spec *spec = map_op->spec;
    const struct gc_entry entry = {block->address, spec->requested_bytes, block->bytes,
                                   spec->stream, spec->api};
    gc_context_count_alloc(map_op->context, &entry);
}

static void make_live_locked(struct gc_map_op *map_op)
{
    const struct gc_alloc_spec *spec = map_op->spec;
    struct gc_block *block = map_op->block;
    gc_pool_trim_locked(map_op->pool, block, spec->bytes);
    gc_pool_make_live_locked(map_op->pool, block, spec);
    count_alloc(map_op, block);
}

/* ---- the place ---- */

/* The pagemap must be prepared up to the end of the block's last mapping, and for the start of the
 * block after it. */
static uint64_t end_to_prepare(const struct gc_map_op *map_op, const struct gc_arena *arena,
                               uint64_t end)
{
    const struct gc_context *context = map_op->context;
    uint64_t rounded;
    if (!gc_round_up_u64(end, map_op->pool->pages.page_bytes, &rounded))
        return end;
    if (arena->segment->size_class == GC_CLASS_LARGE &&
        gc_quota_peak_with(context->device, context->quota, map_op->spec->bytes) >=
            GC_EXTENT_PEAK_BYTES)
        rounded += GC_EXTENT_BYTES;
    return gc_min_u64(rounded + GC_GRANULE, arena->segment->address + arena->segment->bytes);
}

/* Called with the lock, returns without it: the caller must search for the place again. */
static enum gc_status prepare_unlock(struct gc_map_op *map_op, struct gc_arena *arena,
                                     const struct gc_place *place)
{
    struct gc_pool *pool = map_op->pool;
    const uint64_t end = end_to_prepare(map_op, arena, place->address + map_op->spec->bytes);
    /* From the arena's start: a search for interior pointers goes back as far as this. */
    const uint64_t start = arena->segment->address;
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
    struct gc_pool *pool = map_op->pool;
    const struct gc_segment_spec *segment_spec = map_op->segment_spec;
    const enum gc_size_class size_class = segment_spec->size_class;
    const enum gc_size_class other = size_class == GC_CLASS_SMALL ? GC_CLASS_LARGE : GC_CLASS_SMALL;
    const uint64_t bytes = map_op->spec->bytes;
    struct gc_search search = {.is_last_resort = false};
    if (segment_spec->at != 0)
        return gc_pool_find_at_locked(pool, segment_spec->at, bytes, place);
    const bool is_found =
        gc_pool_find_unmapped_locked(pool, size_class, bytes, segment_spec->is_tight, &search) ||
        (pool->pages.range_bytes != 0 &&
         gc_pool_find_unmapped_locked(pool, other, bytes, segment_spec->is_tight, &search));
    *place = search.place;
    return is_found;
}

/* Splits the block off, from an unmapped place with all that is unmapped behind it. */
static void split_locked(struct gc_map_op *map_op, struct gc_arena *arena,
                         const struct gc_place *place)
{
    struct gc_pool *pool = map_op->pool;
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t bytes = map_op->spec->bytes;
    const uint64_t offset = place->address - arena->segment->address;
    map_op->backed = gc_pages_span_of_place_locked(pool, place, bytes);
    if (gc_segment_has_kinds(arena->segment)) {
        const struct gc_block *free_block = place->free_block;
        const uint64_t backed_end = free_block->free_kind == GC_FREE_BACKED
                                        ? free_block->address + free_block->bytes
                                        : free_block->address;
        map_op->backed.end = (backed_end - arena->segment->address) / page_bytes;
        map_op->backed.own_end = map_op->backed.end;
        map_op->block = gc_pool_split_unmapped_locked(pool, place);
    } else {
        map_op->block = gc_pool_split_locked(pool, place, bytes);
    }
    map_op->span = gc_pages_span_of_block_locked(pool, map_op->block);
    map_op->wanted_end = (offset + bytes + page_bytes - 1) / page_bytes;
    map_op->is_end_partial = (offset + bytes) % page_bytes != 0;
}

/* A place that needs no driver call: the block is live then. */
static bool alloc_backed_locked(struct gc_map_op *map_op)
{
    map_op->block = map_op->segment_spec->at != 0
                        ? NULL
                        : gc_pool_alloc_backed_locked(
                              map_op->pool, map_op->segment_spec->size_class, false, map_op->spec);
    return map_op->block != NULL;
}

/* Called without the lock where there is no place. GC_OK: there may be one now. */
static enum gc_status make_place(struct gc_map_op *map_op, bool *has_cleared)
{
    if (map_op->segment_spec->at != 0)
        return GC_OUT_OF_MEMORY;
    if (map_op->pool->pages.range_bytes != 0 && !*has_cleared) {
        *has_cleared = true;
        gc_unmap_useless(map_op->context);
        return GC_OK;
    }
    const enum gc_status status =
        gc_range_add(map_op->context, map_op->segment_spec->size_class, map_op->spec->bytes);
    /* All addresses of the tenant are in use: only its own frees help. */
    map_op->failure->charge_failure.is_quota_short = status == GC_OUT_OF_MEMORY;
    map_op->failure->charge_failure.is_range_short = status == GC_OUT_OF_MEMORY;
    map_op->failure->charge_failure.is_driver_short = false;
    return status;
}

/* True: the block is split off, or live. False: the place must be prepared, without the lock. */
static bool take_place_locked(struct gc_map_op *map_op, struct gc_arena *arena,
                              const struct gc_place *place)
{
    if (end_to_prepare(map_op, arena, place->address + map_op->spec->bytes) > arena->prepared_end)
        return false;
    map_op->block = gc_pool_alloc_at_locked(map_op->pool, place, map_op->spec);
    if (map_op->block == NULL)
        split_locked(map_op, arena, place);
    return true;
}

/* GC_OK: the lock is held, and the block is split off, or live already; else not. */
static enum gc_status split_and_lock(struct gc_map_op *map_op)
{
    struct gc_pool *pool = map_op->pool;
    struct gc_place place;
    bool has_cleared = false;
    enum gc_status status = GC_OK;
    while (status == GC_OK) {
        status = gc_pool_acquire(pool);
        if (status != GC_OK)
            return status;
        if (pool->is_closed) {
            gc_pool_release(pool);
            return GC_INVALID_ARGUMENT;
        }
        if (alloc_backed_locked(map_op))
            return GC_OK;
        if (!find_place_locked(map_op, &place)) {
            gc_pool_release(pool);
            status = make_place(map_op, &has_cleared);
            continue;
        }
        struct gc_arena *arena = gc_block_segment(place.free_block)->arena;
        if (arena == NULL) { /* planned places of driver memory */
            map_op->block = gc_pool_alloc_at_locked(pool, &place, map_op->spec);
            return GC_OK;
        }
        if (take_place_locked(map_op, arena, &place))
            return GC_OK;
        status = prepare_unlock(map_op, arena, &place);
    }
    return status;
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
    map_op->pool->spares_kept = 0;
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

/* One attempt; the caller has the change. `is_thrifty`: creates no extent while one is idle. */
static enum gc_status map_block(struct gc_map_op *map_op, bool is_thrifty, uint64_t *address)
{
    map_op->block = NULL;
    enum gc_status status = split_and_lock(map_op);
    if (status != GC_OK)
        return status;
    *address = map_op->block->address;
    if (map_op->block->state == GC_BLOCK_LIVE) {
        count_alloc(map_op, map_op->block);
        gc_pool_release(map_op->pool);
        return GC_OK;
    }
    gc_extents_reset(map_op);
    status = gc_extents_plan_locked(map_op, is_thrifty);
    if (map_op->maps == NULL || status != GC_OK) {
        finish_locked(map_op, status);
        return status;
    }
    gc_pool_release(map_op->pool);
    return map_block_unlocked(map_op);
}

static bool grow_records(struct gc_device *device)
{
    return gc_slab_grow(&device->extent_records) && gc_slab_grow(&device->mapping_records);
}

/* Attempts until the records suffice: each failure for lack of records adds some. */
static enum gc_status map_block_with_records(struct gc_map_op *map_op, bool is_thrifty,
                                             uint64_t *address)
{
    struct gc_device *device = map_op->context->device;
    for (;;) {
        map_op->lacks_records = false;
        map_op->lacks_blocks = false;
        const enum gc_status status = map_block(map_op, is_thrifty, address);
        if (!map_op->lacks_records || (!map_op->lacks_blocks && !grow_records(device)))
            return status;
    }
}

/* Idle extents that served nothing while new ones were created go, as far as the pools are larger
 * than the program needs. */
static void release_surplus(struct gc_map_op *map_op)
{
    struct gc_context *context = map_op->context;
    struct gc_device *device = context->device;
    const uint64_t held = gc_quota_mapped_bytes(device, context->quota);
    if (held <= map_op->most_bytes)
        return;
    gc_device_release_begin(device, context->quota);
    (void)gc_unmap_release_idle(context, held - map_op->most_bytes);
    gc_device_release_end(device, context->quota);
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
        status = map_block_with_records(&map_op, false, address);
        if (status == GC_OUT_OF_MEMORY && map_op.may_be_thrifty)
            status = map_block_with_records(&map_op, true, address);
        gc_change_end(&map_op.change);
        if (status == GC_OK && map_op.has_surplus)
            release_surplus(&map_op);
    }
    /* A capture, or a driver that maps nothing more: a segment may still succeed. */
    return status == GC_DRIVER && segment_spec->at == 0
               ? gc_segment_create(context, segment_spec, spec, address, failure)
               : status;
}
