#include "core/follow/follow.h"

#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/device/registry.h"
#include "core/device/wait.h"
#include "core/follow/unplanned.h"
#include "core/plan/lifetimes.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

/* A run with more than one fallback in so many planned allocations does not follow the plan. */
#define FALLBACK_DIVISOR 32

/* Allowed deviations of an iteration: DEVIATED_MIN + matched requests / DEVIATED_DIVISOR. */
#define DEVIATED_MIN 2
#define DEVIATED_DIVISOR 16

/* The plan look-up of one request: its entry and the entry's place. */
struct lookup {
    struct gc_context *context;
    struct gc_follow *follow;
    const struct gc_alloc_spec *spec;
    uint32_t entry;   /* GC_PLAN_NONE: none */
    uint32_t similar; /* an entry whose lifetime is assumed; GC_PLAN_NONE: none */
    uint64_t address;
    enum gc_follow_reason reason; /* of the fallback, if the request gets no place */
    bool needs_driver;
    bool is_waiting; /* only pending blocks occupy the place */
};

/* ---- init and fini; the owner ---- */

static bool names_streams(const struct gc_plan *plan)
{
    uint64_t bytes[2] = {0, 0};
    for (uint32_t i = 0; i < plan->count; i++)
        bytes[plan->entries[i].stream != 0] += plan->entries[i].bytes;
    return bytes[true] > bytes[false];
}

enum gc_status gc_follow_init(struct gc_core *core)
{
    if (core->plan == NULL || core->mode != GC_MODE_CACHE)
        return GC_OK;
    if (core->options->debug != 0) {
        gc_log_write(core->log, GC_LOG_WARN,
                     "GPUCACHE_PLAN is not followed: GPUCACHE_DEBUG places blocks itself");
        return GC_OK;
    }
    struct gc_follow *follow = gc_host_mem_map(&core->host, sizeof(*follow));
    if (follow == NULL)
        return GC_NO_HOST_MEMORY;
    enum gc_status status = gc_lifetimes_find_peak(core->plan, &core->host, &follow->fullest);
    if (status == GC_OK)
        status = gc_match_init(&follow->match, core->plan, &core->host);
    if (status != GC_OK) {
        gc_host_mem_unmap(&core->host, follow, sizeof(*follow));
        return status;
    }
    follow->plan = core->plan;
    follow->names_streams = names_streams(core->plan);
    core->follow = follow;
    return GC_OK;
}

void gc_follow_fini(struct gc_core *core)
{
    struct gc_follow *follow = core->follow;
    if (follow == NULL)
        return;
    gc_match_fini(&follow->match);
    gc_host_mem_unmap(&core->host, follow, sizeof(*follow));
    core->follow = NULL;
}

static struct gc_context *owner_of(const struct gc_follow *follow)
{
    return atomic_load_explicit(&follow->owner, memory_order_acquire);
}

static bool is_owner(const struct gc_context *context)
{
    const struct gc_follow *follow = context->core->follow;
    return follow != NULL && owner_of(follow) == context;
}

bool gc_follow_has_segment(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    if (!is_owner(context))
        return false;
    gc_pool_acquire_plain(pool);
    const bool has_segment = pool->content.planned != NULL && pool->content.planned->arena == NULL;
    gc_pool_release(pool);
    return has_segment;
}

/* Whether the owner's teardown is final. The caller has locked the owner's pool. */
static bool is_torn_down(const struct gc_context *owner)
{
    return owner->pool.is_dropped && owner->pool.detached == NULL;
}

static bool lock_is_torn_down(struct gc_context *owner)
{
    gc_pool_acquire_plain(&owner->pool);
    const bool is_it = is_torn_down(owner);
    gc_pool_release(&owner->pool);
    return is_it;
}

/* Stream-ordered memory has its own pool, so a program may use two on a device. The pool that
 * serves most bytes of the plan replays it. */
static bool serves_plan(const struct gc_follow *follow, const struct gc_context *context,
                        const struct gc_alloc_spec *spec)
{
    return gc_device_ordered(context->device) == NULL ||
           follow->names_streams == (spec->stream != 0);
}

/* No request has deviated yet. */
static void begin_iteration_locked(struct gc_follow *follow)
{
    follow->iteration = follow->match.iteration_count;
    follow->matched_count = 0;
    follow->deviated_count = 0;
    follow->has_deviated = false;
}

/* Makes the context the owner if there is none, or if the former owner's teardown is final: once
 * that owner's pool is dropped, no other thread uses the match. */
static bool acquire_plan(struct gc_follow *follow, struct gc_context *context)
{
    struct gc_core *core = context->core;
    const int32_t device = follow->plan->device;
    if (context->tenant != NULL ||
        (device != GC_PLAN_DEVICE_ANY && device != context->device->info.ordinal))
        return false;
    struct gc_context *owner = owner_of(follow);
    if (owner != NULL && !gc_context_is_dropped(owner))
        return false;
    gc_lock_acquire(&core->registry);
    owner = owner_of(follow);
    const bool is_mine = owner == NULL || lock_is_torn_down(owner);
    if (is_mine) {
        gc_match_restart(&follow->match);
        follow->refused_iteration = 0;
        follow->is_opening = false; /* no thread of the former owner clears it later */
        begin_iteration_locked(follow);
        /* Release: pairs with the acquire in owner_of, whose caller sees the match restarted. */
        atomic_store_explicit(&follow->owner, context, memory_order_release);
        if (owner != NULL)
            atomic_store_explicit(&owner->follows_plan, false, memory_order_relaxed);
        atomic_store_explicit(&context->follows_plan, true, memory_order_relaxed);
    }
    gc_lock_release(&core->registry);
    if (is_mine)
        gc_context_size_tcache(context);
    return is_mine;
}

void gc_follow_close_stream_locked(struct gc_context *context, uint64_t stream)
{
    if (is_owner(context) && !is_torn_down(context))
        gc_match_close_stream(&context->core->follow->match, stream);
}

/* ---- figures ---- */

static void count_fallback(struct gc_follow *follow, enum gc_follow_reason reason, uint64_t bytes)
{
    gc_counter_add(&follow->fallback_count[reason], 1);
    gc_counter_add(&follow->fallback_bytes[reason], bytes);
}

static void count_followed(struct gc_follow *follow, const struct gc_plan_entry *entry)
{
    const uint64_t end = entry->offset + entry->bytes;
    uint_fast64_t used = atomic_load_explicit(&follow->used_bytes, memory_order_relaxed);
    gc_counter_add(&follow->followed_count, 1);
    gc_counter_add(&follow->followed_bytes, entry->bytes);
    while (used < end &&
           !atomic_compare_exchange_weak_explicit(&follow->used_bytes, &used, end,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

bool gc_follow_read(const struct gc_device *device, struct gc_follow_figures *figures)
{
    const struct gc_follow *follow = device->core->follow;
    const struct gc_context *owner = follow == NULL ? NULL : owner_of(follow);
    *figures = (struct gc_follow_figures){.entry_count = 0};
    if (owner == NULL || owner->device != device)
        return false;
    figures->entry_count = follow->plan->count;
    figures->peak_bytes = follow->plan->peak_bytes;
    figures->used_bytes = atomic_load_explicit(&follow->used_bytes, memory_order_relaxed);
    figures->followed_count = gc_counter_read(&follow->followed_count);
    figures->followed_bytes = gc_counter_read(&follow->followed_bytes);
#define GC_FOLLOW_REASON(name, key, text)                                                          \
    figures->key##_count = gc_counter_read(&follow->fallback_count[GC_FOLLOW_##name]);             \
    figures->key##_bytes = gc_counter_read(&follow->fallback_bytes[GC_FOLLOW_##name]);
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    figures->iterations = atomic_load_explicit(&follow->iterations, memory_order_relaxed);
    figures->resyncs = atomic_load_explicit(&follow->resyncs, memory_order_relaxed);
    return true;
}

/* ---- memory for the places: addresses with mapped memory, else one driver allocation ---- */

static enum gc_status open_arena(struct gc_context *context, uint64_t bytes)
{
    struct gc_change change;
    enum gc_status status = gc_change_begin(context, &change);
    if (status != GC_OK)
        return status;
    /* Another thread may have added the arena. */
    gc_pool_acquire_plain(&context->pool);
    const bool is_there = context->pool.content.planned != NULL;
    gc_pool_release(&context->pool);
    status = is_there ? GC_OK : gc_range_add_planned(context, bytes);
    gc_change_end(&change);
    return status;
}

static bool is_mapped(const struct gc_context *context)
{
    const struct gc_pages *pages = &context->pool.pages;
    return pages->page_bytes != 0 &&
           !atomic_load_explicit(&pages->is_refused, memory_order_relaxed);
}

static enum gc_status open_segment(struct gc_context *context, uint64_t bytes)
{
    const struct gc_segment_spec segment_spec = {
        .driver_bytes = bytes, .bytes = bytes, .size_class = GC_CLASS_PLANNED};
    struct gc_segment_failure failure = {.driver_code = 0};
    return gc_segment_create_free(context, &segment_spec, &failure);
}

static bool begin_opening_locked(struct gc_follow *follow)
{
    if (follow->is_opening || follow->refused_iteration == follow->match.iteration_count + 1)
        return false;
    follow->is_opening = true;
    return true;
}

static void open_places(struct gc_context *context)
{
    struct gc_follow *follow = context->core->follow;
    const uint64_t bytes = follow->plan->peak_bytes;
    const enum gc_status status =
        is_mapped(context) ? open_arena(context, bytes) : open_segment(context, bytes);
    gc_wait_lock_after_teardown(context);
    if (!context->pool.is_dropped) {
        follow->is_opening = false;
        follow->refused_iteration = status == GC_OK ? 0 : follow->match.iteration_count + 1;
    }
    gc_pool_release(&context->pool);
}

/* Mapped memory that the plan needs, in whole pages; 0: the run has not followed it so far. */
static uint64_t expected_bytes(const struct gc_context *context)
{
    const struct gc_follow *follow = context->core->follow;
    const uint64_t page = context->pool.pages.page_bytes;
    uint64_t fallback = 0;
    if (follow == NULL)
        return 0;
    for (unsigned i = 0; i < GC_FOLLOW_REASON_COUNT; i++)
        fallback += gc_counter_read(&follow->fallback_count[i]);
    return fallback > 1 + gc_counter_read(&follow->followed_count) / FALLBACK_DIVISOR
               ? 0
               : (follow->plan->peak_bytes + page - 1) / page * page;
}

/* ---- one place ---- */

/* The blocks at a place. */
struct view {
    bool is_occupied;
    uint64_t pending_bytes; /* whole size of the pending blocks that overlap it */
};

static struct view view_place_locked(const struct gc_pool *pool, uint64_t address, uint64_t bytes)
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

/* Frees the pending blocks of the request's stream at the place if no others occupy the place and
 * none extends beyond it. The caller must allocate the place before it releases the lock. */
static bool free_by_stream_locked(struct gc_pool *pool, uint64_t address,
                                  const struct gc_alloc_spec *spec, const struct view *view)
{
    struct gc_arena *arena = pool->content.planned->arena;
    struct gc_pending taken = {NULL, NULL};
    if (view->is_occupied ||
        (arena != NULL && !gc_pages_are_backed_locked(pool, arena, address, spec->bytes)) ||
        !gc_pending_remove_range_locked(pool, spec, address, view->pending_bytes, &taken))
        return false;
    (void)gc_pending_free_locked(pool, taken);
    return true;
}

/* Counts the block and sets the request's address. */
static void commit_locked(struct lookup *lookup, const struct gc_block *block)
{
    const struct gc_alloc_spec *spec = lookup->spec;
    const struct gc_entry entry = {block->address, spec->requested_bytes, block->bytes,
                                   spec->stream, spec->api};
    lookup->address = block->address;
    gc_context_count_alloc(lookup->context, &entry);
}

static bool alloc_locked(struct lookup *lookup)
{
    struct gc_pool *pool = &lookup->context->pool;
    const struct gc_alloc_spec *spec = lookup->spec;
    struct gc_place place;
    if (!gc_pool_find_at_locked(pool, lookup->address, spec->bytes, &place)) {
        const struct view view = view_place_locked(pool, lookup->address, spec->bytes);
        lookup->reason = view.is_occupied ? GC_FOLLOW_OCCUPIED : GC_FOLLOW_PENDING;
        lookup->is_waiting = !view.is_occupied;
        if (!free_by_stream_locked(pool, lookup->address, spec, &view) ||
            !gc_pool_find_at_locked(pool, lookup->address, spec->bytes, &place))
            return false;
    }
    const struct gc_block *block = gc_pool_alloc_at_locked(pool, &place, spec);
    lookup->is_waiting = false;
    lookup->needs_driver = block == NULL;
    lookup->reason = GC_FOLLOW_MEMORY;
    if (block != NULL)
        commit_locked(lookup, block);
    return block != NULL;
}

static bool uses_lifetime_locked(const struct lookup *lookup)
{
    return lookup->context->pool.content.planned != NULL && lookup->follow->has_deviated;
}

static void match_entry_locked(struct lookup *lookup, bool is_idle)
{
    struct gc_follow *follow = lookup->follow;
    const struct gc_alloc_spec *spec = lookup->spec;
    if (is_idle || follow->iteration != follow->match.iteration_count)
        begin_iteration_locked(follow);
    lookup->entry = gc_match_next(&follow->match, spec->bytes, spec->stream, is_idle);
    lookup->similar =
        lookup->entry != GC_PLAN_NONE ? lookup->entry : gc_match_guess(&follow->match, spec->bytes);
    follow->matched_count += lookup->entry != GC_PLAN_NONE;
    atomic_store_explicit(&follow->iterations, follow->match.iteration_count, memory_order_relaxed);
    atomic_store_explicit(&follow->resyncs, follow->match.resync_count, memory_order_relaxed);
}

/* Finds the request's entry. Whether the entry's place is to be used. */
static bool match_locked(struct lookup *lookup)
{
    struct gc_pool *pool = &lookup->context->pool;
    const struct gc_block *first =
        pool->content.planned == NULL ? NULL : pool->content.planned->first;
    match_entry_locked(lookup,
                       first == NULL || (first->next == NULL && first->state == GC_BLOCK_FREE));
    lookup->reason = GC_FOLLOW_UNMATCHED;
    if (lookup->entry == GC_PLAN_NONE)
        return false;
    /* A graph keeps using memory after the free. */
    lookup->reason = GC_FOLLOW_CAPTURE;
    if (gc_capture_is_of_context(lookup->context))
        return false;
    lookup->reason = GC_FOLLOW_REGISTERED;
    if (gc_pool_wants_one_extent(pool, lookup->spec->bytes))
        return false;
    lookup->reason = GC_FOLLOW_DEPARTED;
    return !uses_lifetime_locked(lookup);
}

/* Allocates the place if no driver call is needed. */
static bool try_alloc_locked(struct lookup *lookup)
{
    const struct gc_pool *pool = &lookup->context->pool;
    lookup->reason = GC_FOLLOW_MEMORY;
    lookup->needs_driver = false;
    lookup->is_waiting = false;
    if (pool->is_dropped || pool->is_closed || pool->content.planned == NULL)
        return false;
    lookup->address =
        pool->content.planned->address + lookup->follow->plan->entries[lookup->entry].offset;
    return alloc_locked(lookup);
}

static bool try_alloc(struct lookup *lookup)
{
    struct gc_pool *pool = &lookup->context->pool;
    if (gc_pool_acquire(pool) != GC_OK)
        return false;
    const bool is_served = try_alloc_locked(lookup);
    gc_pool_release(pool);
    return is_served;
}

/* Finds the entry and tries to allocate its place, under one hold of the lock. False: the request
 * gets no place. */
static bool begin(struct lookup *lookup, bool *must_open, bool *is_hit)
{
    struct gc_pool *pool = &lookup->context->pool;
    *must_open = false;
    *is_hit = false;
    if (gc_pool_acquire(pool) != GC_OK)
        return false;
    bool has_place = !pool->is_dropped && !pool->is_closed && match_locked(lookup);
    if (has_place && pool->content.planned == NULL) {
        lookup->reason = GC_FOLLOW_MEMORY;
        has_place = *must_open = begin_opening_locked(lookup->follow);
    } else if (has_place) {
        *is_hit = try_alloc_locked(lookup);
    }
    gc_pool_release(pool);
    return has_place;
}

/* Maps the pages that the place lacks. */
static enum gc_status map_place(struct lookup *lookup)
{
    struct gc_segment_failure failure = {.driver_code = 0};
    const struct gc_segment_spec segment_spec = {.size_class = GC_CLASS_PLANNED,
                                                 .bytes = lookup->spec->bytes,
                                                 .driver_bytes = lookup->spec->bytes,
                                                 .at = lookup->address,
                                                 .expected_bytes = expected_bytes(lookup->context)};
    return gc_map_alloc(lookup->context, &segment_spec, lookup->spec, &lookup->address, &failure);
}

static bool alloc_planned(struct lookup *lookup, bool *is_hit)
{
    bool must_open;
    if (!begin(lookup, &must_open, is_hit))
        return false;
    if (must_open) {
        open_places(lookup->context);
        *is_hit = try_alloc(lookup);
    }
    if (!*is_hit && lookup->is_waiting && gc_defer_reclaim(lookup->context, lookup->spec->bytes))
        *is_hit = try_alloc(lookup);
    return *is_hit || (lookup->needs_driver && map_place(lookup) == GC_OK);
}

/* ---- deviations ---- */

static void count_deviation_locked(const struct lookup *lookup)
{
    struct gc_follow *follow = lookup->follow;
    follow->deviated_count +=
        lookup->reason == GC_FOLLOW_UNMATCHED || lookup->reason == GC_FOLLOW_OCCUPIED;
    if (follow->deviated_count > DEVIATED_MIN + follow->matched_count / DEVIATED_DIVISOR)
        follow->has_deviated = true;
}

/* A free block for a request that has no place. Blocks of like lifetime lie together: a long-lived
 * block would occupy places, a short-lived one behind them would leave a gap. */
static bool find_free_block_locked(const struct lookup *lookup, struct gc_place *place)
{
    struct gc_pool *pool = &lookup->context->pool;
    const struct gc_follow *follow = lookup->follow;
    const uint64_t bytes = lookup->spec->bytes;
    const uint32_t similar = lookup->similar;
    if (!uses_lifetime_locked(lookup))
        return gc_unplanned_find_locked(pool, &follow->match, bytes, place);
    const bool is_long =
        similar != GC_PLAN_NONE &&
        gc_lifetimes_is_long(follow->plan, &follow->plan->entries[similar], follow->fullest);
    return gc_unplanned_find_by_lifetime_locked(pool, follow->plan, bytes, is_long, place);
}

/* Blocks freed in the stream come first, as in the pool: only that stream can reuse them yet. */
static bool try_unplanned_locked(struct lookup *lookup)
{
    struct gc_pool *pool = &lookup->context->pool;
    const struct gc_alloc_spec *spec = lookup->spec;
    struct gc_place place;
    lookup->needs_driver = false;
    if (pool->is_dropped || pool->is_closed || pool->content.planned == NULL)
        return false;
    struct gc_block *block = gc_pending_alloc_locked(pool, spec);
    if (block != NULL) {
        gc_pool_make_live_locked(pool, block, spec);
    } else if (find_free_block_locked(lookup, &place)) {
        block = gc_pool_alloc_at_locked(pool, &place, spec);
        lookup->address = place.address;
        lookup->needs_driver = block == NULL;
    }
    if (block != NULL)
        commit_locked(lookup, block);
    return block != NULL;
}

static bool try_unplanned(struct lookup *lookup, bool is_first)
{
    struct gc_pool *pool = &lookup->context->pool;
    lookup->needs_driver = false;
    if (gc_pool_acquire(pool) != GC_OK)
        return false;
    if (is_first && !pool->is_dropped)
        count_deviation_locked(lookup);
    const bool is_served = try_unplanned_locked(lookup);
    gc_pool_release(pool);
    return is_served;
}

static bool alloc_unplanned(struct lookup *lookup, bool *is_hit)
{
    *is_hit = false;
    if (lookup->reason == GC_FOLLOW_CAPTURE || lookup->reason == GC_FOLLOW_MEMORY ||
        gc_pool_wants_one_extent(&lookup->context->pool, lookup->spec->bytes))
        return false;
    *is_hit = try_unplanned(lookup, true);
    /* Pending blocks may have become idle, and their pages are mapped. */
    if (lookup->needs_driver && gc_defer_reclaim(lookup->context, lookup->spec->bytes))
        *is_hit = try_unplanned(lookup, false);
    return *is_hit || (lookup->needs_driver && map_place(lookup) == GC_OK);
}

/* ---- one request ---- */

enum gc_status gc_follow_alloc(struct gc_context *context, const struct gc_alloc_spec *spec,
                               uint64_t *address, bool *is_hit)
{
    struct gc_follow *follow = context->core->follow;
    struct lookup lookup = {
        .context = context, .follow = follow, .spec = spec, .reason = GC_FOLLOW_MEMORY};
    if (owner_of(follow) != context &&
        (!serves_plan(follow, context, spec) || !acquire_plan(follow, context)))
        return GC_OUT_OF_MEMORY;
    if (alloc_planned(&lookup, is_hit)) {
        count_followed(follow, &follow->plan->entries[lookup.entry]);
    } else {
        count_fallback(follow, lookup.reason, spec->bytes);
        if (!alloc_unplanned(&lookup, is_hit))
            return GC_OUT_OF_MEMORY;
    }
    *address = lookup.address;
    return GC_OK;
}
