/* Swap-out: check, choose the pages in use, wait for the context's work, copy, unmap, release.
 * Every step may fail; the extents and their mappings then record how far it got. */
#include "core/backing/copy.h"
#include "core/backing/kept.h"
#include "core/backing/unmap.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/pause/swap.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/release.h"

#include <stddef.h>

const char *gc_swap_refusal_text(enum gc_swap_refusal refusal)
{
    static const char *const texts[GC_SWAP_REFUSAL_COUNT] = {
        [GC_SWAP_OK] = "done",
        [GC_SWAP_AGAIN] = "it is paused already, or was not",
        [GC_SWAP_CAPTURES] = "a graph is being captured",
        [GC_SWAP_PEERS] = "other devices or contexts have access to the memory",
        [GC_SWAP_EXPORTED] = "other processes or devices may have the memory open",
        [GC_SWAP_NOT_MAPPED] = "the memory is not mapped page by page (backend `driver`)",
        [GC_SWAP_HOST] = "not enough host memory for the copy",
        [GC_SWAP_FULL] = "not enough free memory on the device, or within a limit",
        [GC_SWAP_BUSY] = "work under way did not complete in time",
        [GC_SWAP_UNSEEN] = "work may be submitted that the library does not see",
        [GC_SWAP_DRIVER] = "a driver call failed",
        [GC_SWAP_EMPTY] =
            "the rest is memory that cannot go: its context, code, driver allocations",
    };
    return (unsigned)refusal < GC_SWAP_REFUSAL_COUNT ? texts[refusal] : "?";
}

bool gc_swap_is_out(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_swapped = context->pool.pages.swap != NULL;
    gc_pool_release(&context->pool);
    return is_swapped;
}

/* ---- checks ---- */

static bool has_peers_locked(const struct gc_context *context)
{
    bool has_peers = context->is_crowded;
    /* A pause waits for all contexts of a device, so those may access the device's own pool. */
    for (uint32_t i = 0; i < context->peer_count; i++)
        has_peers |= !gc_context_is_dropped(context->peers[i]) &&
                     (!context->is_device || context->peers[i]->device != context->device);
    return has_peers;
}

static enum gc_swap_refusal check_locked(const struct gc_context *context)
{
    const struct gc_pool *pool = &context->pool;
    if (pool->pages.swap != NULL)
        return GC_SWAP_AGAIN;
    if (has_peers_locked(context))
        return GC_SWAP_PEERS;
    bool has_uncached = false;
    bool has_plain = false;
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        /* Memory on the host stays where it is. */
        if (segment->is_spilled)
            continue;
        has_uncached |=
            segment->size_class == GC_CLASS_UNCACHED && !segment->is_idle && !segment->is_plain;
        has_plain |= segment->arena == NULL;
    }
    if (pool->pages.arenas == NULL)
        return has_plain ? GC_SWAP_NOT_MAPPED : GC_SWAP_OK;
    return has_uncached || pool->pinned_count > 0 ? GC_SWAP_EXPORTED : GC_SWAP_OK;
}

enum gc_swap_refusal gc_swap_check(struct gc_context *context)
{
    if (gc_capture_is_of_context(context))
        return GC_SWAP_CAPTURES;
    gc_pool_acquire_plain(&context->pool);
    const enum gc_swap_refusal refusal = check_locked(context);
    gc_pool_release(&context->pool);
    return refusal;
}

/* ---- swap-out, a chunk of extents after the other ---- */

/* A swap-out under way. While the content of one chunk is copied, the one before is unmapped and
 * released. */
struct swapping_out {
    struct gc_context *context;
    struct gc_swap *swap;
    const struct gc_swap_spec *spec;
    struct gc_purge_list copied; /* complete in host memory, still mapped */
    struct gc_purge_list copying;
    uint64_t chosen_bytes;
    struct gc_swap_result *result;
};

static struct gc_swap *create_swap(struct gc_context *context)
{
    struct gc_swap *swap = gc_host_mem_map(&context->core->host, sizeof(*swap));
    if (swap != NULL)
        swap->host_bytes = sizeof(*swap);
    return swap;
}

/* The mappings of an extent in use that serve nobody are excluded first. False: records are
 * lacking; the extent stays. */
static bool choose_mappings_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = mapping->next) {
        if (mapping != extent->user && !gc_pages_try_exclude_locked(pool, mapping))
            return false;
    }
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = mapping->next)
        gc_pages_set_stage(mapping, GC_MAPPING_TO_UNMAP);
    return true;
}

/* Whether the content of the extent is in host memory already. */
static bool is_kept(const struct gc_pool *pool, const struct gc_extent *extent)
{
    return gc_kept_has(pool->context->core, gc_swap_address(pool, extent),
                       extent->page_count * pool->pages.page_bytes);
}

/* Adds extents in use to the purge list, up to `bytes`, at least one. Returns their bytes. */
static uint64_t choose_arena_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t bytes,
                                    bool of_kept, struct gc_purge_list *purge)
{
    uint64_t chosen = 0;
    for (uint64_t i = 0; i < arena->touched_count && chosen < bytes;
         i = gc_pages_run_end(arena, i, arena->touched_count)) {
        struct gc_extent *extent = arena->slots[i] != NULL ? arena->slots[i]->extent : NULL;
        if (extent == NULL || extent->user != arena->slots[i] || extent->is_away ||
            extent->is_host || (of_kept && !is_kept(pool, extent)) ||
            !choose_mappings_locked(pool, extent))
            continue;
        gc_pages_set_away_locked(pool, extent, true);
        chosen += extent->page_count * pool->pages.page_bytes;
        extent->next = purge->first;
        purge->first = extent;
    }
    return chosen;
}

/* Chooses the next chunk: first what needs no copy. */
static void choose(struct swapping_out *out, struct gc_purge_list *purge)
{
    const struct gc_swap_spec *spec = out->spec;
    struct gc_pool *pool = &out->context->pool;
    const uint64_t most =
        gc_min_u64(spec->chunk_bytes, gc_sub_or_zero_u64(spec->wanted_bytes, out->chosen_bytes));
    uint64_t chosen = 0;
    *purge = (struct gc_purge_list){.change = out->swap->change};
    gc_pool_acquire_to_exclude(pool);
    for (int of_kept = gc_kept_is_any(out->context->core) ? 1 : 0; of_kept >= 0; of_kept--)
        for (struct gc_arena *arena = pool->pages.arenas; arena != NULL && chosen < most;
             arena = arena->next)
            chosen += choose_arena_locked(pool, arena, most - chosen, of_kept != 0, purge);
    gc_pool_release(pool);
    out->chosen_bytes += chosen;
}

uint64_t gc_swap_address(const struct gc_pool *pool, const struct gc_extent *extent)
{
    return gc_pages_address_of(pool, extent->user);
}

struct gc_context *gc_swap_worker(struct gc_context *context)
{
    struct gc_context *worker = gc_context_worker(context);
    return worker != NULL ? worker : context;
}

/* Room for the content of the extent, of which some may be there already. NULL: no host memory. */
static struct gc_copy *create_copy(const struct swapping_out *out, const struct gc_extent *extent)
{
    struct gc_context *context = out->context;
    struct gc_context *worker = gc_swap_worker(context);
    const uint64_t address = gc_swap_address(&context->pool, extent);
    const uint64_t bytes = extent->page_count * context->pool.pages.page_bytes;
    struct gc_copy *copy;
    do {
        struct gc_copy *kept = gc_kept_take(context->core, address, bytes);
        copy = gc_copy_create(worker, address, bytes, kept);
    } while (copy == NULL && gc_kept_purge(context->core, bytes) > 0);
    return copy;
}

/* Starts to copy the content of the extents. */
static enum gc_swap_refusal save(const struct swapping_out *out, const struct gc_purge_list *purge)
{
    struct gc_context *worker = gc_swap_worker(out->context);
    for (struct gc_extent *extent = purge->first; extent != NULL; extent = extent->next) {
        if (!out->spec->keeps_content) {
            gc_kept_forget(worker->core, gc_swap_address(&out->context->pool, extent),
                           extent->page_count * out->context->pool.pages.page_bytes);
            continue;
        }
        extent->copy = create_copy(out, extent);
        if (extent->copy == NULL)
            return GC_SWAP_HOST;
        out->result->driver_code = gc_copy_start(worker, extent->copy, true);
        if (out->result->driver_code != 0)
            return GC_SWAP_DRIVER;
    }
    return GC_SWAP_OK;
}

void gc_swap_return_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    gc_pages_set_away_locked(pool, extent, false);
    if (extent->used_count == 0)
        gc_pages_make_idle_locked(pool, extent);
}

/* The user mapping of an extent that is mapped nowhere any more keeps its slots. */
static void detach_others_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    struct gc_mapping *user = extent->user;
    const bool is_out = gc_pages_stage(user) == GC_MAPPING_UNMAPPED;
    if (is_out) {
        gc_pages_set_stage(user, GC_MAPPING_TO_MAP);
        user->has_access = false;
    }
    struct gc_mapping *next;
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = next) {
        next = mapping->next;
        if (mapping != user || !is_out)
            (void)gc_unmap_settle_locked(pool, mapping);
    }
}

/* Divides the list: `out` are the extents that are unmapped everywhere. The others stay as they
 * are; `stayed` has their copies. */
static void divide(struct swapping_out *out, struct gc_purge_list *purge, struct gc_extent **gone,
                   struct gc_copy **stayed)
{
    struct gc_pool *pool = &out->context->pool;
    *gone = NULL;
    *stayed = NULL;
    gc_pool_acquire_plain(pool);
    const uint64_t before = pool->pages.idle_count;
    while (purge->first != NULL) {
        struct gc_extent *extent = purge->first;
        purge->first = extent->next;
        detach_others_locked(pool, extent);
        if (gc_pages_stage(extent->user) == GC_MAPPING_TO_MAP && extent->mapping_count == 1) {
            extent->next = *gone;
            *gone = extent;
            continue;
        }
        *stayed = gc_copy_join(*stayed, extent->copy);
        extent->copy = NULL;
        gc_swap_return_locked(pool, extent);
    }
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
}

/* Releases the extents; one that the driver does not release stays the swap's. */
static uint64_t release(struct swapping_out *out, struct gc_extent *gone)
{
    struct gc_context *context = out->context;
    struct gc_pool *pool = &context->pool;
    const struct gc_driver *driver = &context->core->driver;
    uint64_t count = 0;
    for (struct gc_extent *extent = gone, *next; extent != NULL; extent = next) {
        next = extent->next;
        extent->next = out->swap->extents;
        out->swap->extents = extent;
        if (driver->page_release(driver->self, context->handle, extent->driver_handle) != 0)
            continue;
        extent->driver_handle = 0;
        count += extent->page_count;
    }
    gc_pool_acquire_plain(pool);
    pool->pages.count -= count;
    gc_pool_release(pool);
    if (count > 0)
        gc_change_uncharge_pages(context, count);
    return count * pool->pages.page_bytes;
}

/* Unmaps and releases the extents, whose copies are complete; with `is_undone`, none. */
static void finish(struct swapping_out *out, struct gc_purge_list *purge, bool is_undone)
{
    struct gc_extent *gone;
    struct gc_copy *stayed;
    if (purge->first == NULL)
        return;
    if (!is_undone)
        gc_unmap_extents(purge);
    divide(out, purge, &gone, &stayed);
    gc_copy_free(out->context->core, stayed);
    const uint64_t bytes = gone == NULL ? 0 : release(out, gone);
    out->result->moved_bytes += bytes;
    if (bytes > 0 && out->spec->moved != NULL)
        out->spec->moved(out->spec->argument, bytes);
}

static enum gc_swap_refusal wait_copies(const struct swapping_out *out)
{
    if (out->copying.first == NULL || !out->spec->keeps_content)
        return GC_SWAP_OK;
    out->result->driver_code = gc_copy_wait(gc_swap_worker(out->context), true);
    return out->result->driver_code == 0 ? GC_SWAP_OK : GC_SWAP_DRIVER;
}

/* One chunk further: waits for the copies of a chunk, starts those of the next, releases the first.
 */
static enum gc_swap_refusal step(struct swapping_out *out)
{
    struct gc_purge_list next;
    enum gc_swap_refusal refusal = wait_copies(out);
    if (refusal != GC_SWAP_OK)
        return refusal;
    out->copied = out->copying;
    choose(out, &next);
    out->copying = next;
    refusal = save(out, &out->copying);
    if (refusal == GC_SWAP_OK)
        finish(out, &out->copied, false);
    return refusal;
}

/* After a failure: what is not released yet stays. */
static void undo(struct swapping_out *out)
{
    if (out->copying.first != NULL && out->spec->keeps_content)
        (void)wait_copies(out); /* they write to the copies */
    finish(out, &out->copied, true);
    finish(out, &out->copying, true);
}

static enum gc_swap_refusal swap_out(struct swapping_out *out)
{
    const enum gc_status status =
        out->spec->is_drained
            ? GC_OK
            : gc_fence_synchronize(out->context, GC_FOREVER, &out->result->driver_code);
    enum gc_swap_refusal refusal = GC_SWAP_OK;
    if (status != GC_OK)
        return status == GC_CAPTURING ? GC_SWAP_CAPTURES : GC_SWAP_DRIVER;
    do
        refusal = step(out);
    while (refusal == GC_SWAP_OK && out->copying.first != NULL);
    if (refusal != GC_SWAP_OK)
        undo(out);
    return refusal;
}

static bool fail(struct gc_swap_result *result, enum gc_swap_refusal refusal)
{
    result->refusal = refusal;
    return false;
}

/* The swap is the pool's, even without an extent: requests that need pages wait. After a failure
 * that left no extent it is no more. */
static void end_swap_out(struct swapping_out *out, struct gc_wait_set *set)
{
    struct gc_pool *pool = &out->context->pool;
    struct gc_swap *swap = out->swap;
    const bool is_any = swap->extents != NULL || out->result->refusal == GC_SWAP_OK;
    gc_pool_acquire_plain(pool);
    swap->is_moving = false;
    pool->pages.swap = is_any ? swap : NULL;
    pool->pages.is_changing = is_any;
    gc_lock_broadcast(&pool->pages.changed); /* requests that need no page go on */
    gc_pool_release(pool);
    if (!is_any)
        gc_change_free_swapped(out->context, swap);
    gc_peers_wait_end(set);
}

/* The first part of the pool. */
static bool begin_swap(struct swapping_out *out, struct gc_wait_set *set)
{
    struct gc_change change;
    struct gc_context *context = out->context;
    gc_kept_sweep(context->core);
    /* Blocks in thread caches count as used until they are in the pool. */
    (void)gc_reclaim_collect(context->device, context->quota, GC_RECLAIM_WAIT_NS);
    (void)gc_release_idle(context->device, context->quota, 0, UINT64_MAX);
    const enum gc_status status = gc_change_begin(context, &change);
    if (status != GC_OK)
        return fail(out->result, status == GC_DRIVER ? GC_SWAP_CAPTURES : GC_SWAP_AGAIN);
    out->swap = create_swap(context);
    if (out->swap == NULL) {
        gc_change_end(&change);
        return fail(out->result, GC_SWAP_HOST);
    }
    *set = change.set; /* it ends with this part */
    out->swap->change = change;
    out->swap->change.set = (struct gc_wait_set){.count = 0};
    return true;
}

/* A further part. */
static bool continue_swap(struct swapping_out *out, struct gc_wait_set *set)
{
    struct gc_pool *pool = &out->context->pool;
    gc_pool_acquire_plain(pool);
    struct gc_swap *swap = pool->pages.swap;
    const bool is_free = swap != NULL && !swap->is_moving;
    const bool may = is_free && gc_peers_wait_begin_locked(out->context, set);
    if (may) {
        swap->is_moving = true;
        gc_change_read_peers_locked(&swap->change);
    }
    gc_pool_release(pool);
    out->swap = swap;
    return may || fail(out->result, is_free ? GC_SWAP_CAPTURES : GC_SWAP_AGAIN);
}

bool gc_swap_out(struct gc_context *context, const struct gc_swap_spec *spec,
                 struct gc_swap_result *result)
{
    struct swapping_out out = {.context = context, .spec = spec, .result = result};
    struct gc_wait_set set = {.count = 0};
    const bool is_first = !gc_swap_is_out(context);
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    if (is_first)
        result->refusal = gc_swap_check(context);
    if (result->refusal != GC_SWAP_OK ||
        !(is_first ? begin_swap(&out, &set) : continue_swap(&out, &set)))
        return false;
    result->refusal = swap_out(&out);
    end_swap_out(&out, &set);
    return result->refusal == GC_SWAP_OK;
}
