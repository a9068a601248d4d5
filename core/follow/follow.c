#include "core/follow/follow.h"

#include "core/device/registry.h"
#include "core/follow/follow_place.h"
#include "core/plan/lifetimes.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

/* A run that finds more than one in so many allocations elsewhere does not keep to the plan. */
#define KEPT_SHARE 32

/* ---- life ---- */

static bool names_streams(const struct gc_run_plan *plan)
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
                     "GPUCACHE_PLAN is not followed: GPUCACHE_DEBUG places blocks by itself");
        return GC_OK;
    }
    struct gc_follow *follow = gc_host_map(&core->host, sizeof(*follow));
    if (follow == NULL)
        return GC_NO_HOST_MEMORY;
    enum gc_status status = gc_run_find_fullest(core->plan, &core->host, &follow->fullest);
    if (status == GC_OK)
        status = gc_run_match_init(&follow->match, core->plan, &core->host);
    if (status != GC_OK) {
        gc_host_unmap(&core->host, follow, sizeof(*follow));
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
    gc_run_match_fini(&follow->match);
    gc_host_unmap(&core->host, follow, sizeof(*follow));
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
    const bool has_segment = pool->planned != NULL && pool->planned->arena == NULL;
    gc_pool_release(pool);
    return has_segment;
}

/* For good. The owner's pool is locked. */
static bool is_over(const struct gc_context *owner)
{
    return owner->pool.is_dropped && owner->pool.hidden == NULL;
}

static bool look_whether_over(struct gc_context *owner)
{
    gc_pool_acquire_plain(&owner->pool);
    const bool is_it = is_over(owner);
    gc_pool_release(&owner->pool);
    return is_it;
}

/* Stream-ordered memory has a pool of its own, so a program may have two on a device: the one that
 * most of the plan is for follows it. */
static bool is_for(const struct gc_follow *follow, const struct gc_context *context,
                   const struct gc_claim *claim)
{
    return gc_device_ordered(context->device) == NULL ||
           follow->names_streams == (claim->stream != 0);
}

/* The context follows the plan if nobody does. Where the former owner's pool is dropped nobody but
 * this thread touches the match. */
static bool claim_plan(struct gc_follow *follow, struct gc_context *context)
{
    struct gc_core *core = context->core;
    const int32_t device = follow->plan->device;
    if (context->tenant != NULL ||
        (device != GC_RUN_DEVICE_ANY && device != context->device->info.ordinal))
        return false;
    struct gc_context *owner = owner_of(follow);
    if (owner != NULL && !gc_context_is_dropped(owner))
        return false;
    gc_lock_acquire(&core->registry);
    owner = owner_of(follow);
    const bool is_mine = owner == NULL || look_whether_over(owner);
    if (is_mine) {
        gc_run_match_restart(&follow->match);
        follow->refused_round = 0;
        follow->is_opening = false; /* the former owner's thread leaves it alone by now */
        gc_follow_begin_round_locked(follow);
        /* Release: pairs with the acquire in owner_of, whose reader finds the match as it is now.
         */
        atomic_store_explicit(&follow->owner, context, memory_order_release);
        if (owner != NULL)
            atomic_store_explicit(&owner->follows_plan, false, memory_order_relaxed);
        atomic_store_explicit(&context->follows_plan, true, memory_order_relaxed);
    }
    gc_lock_release(&core->registry);
    if (is_mine)
        gc_magazine_size(context);
    return is_mine;
}

void gc_follow_close_stream_locked(struct gc_context *context, uint64_t stream)
{
    if (is_owner(context) && !is_over(context))
        gc_run_match_close_stream(&context->core->follow->match, stream);
}

/* ---- figures ---- */

static void note_fallback(struct gc_follow *follow, enum gc_follow_reason reason, uint64_t bytes)
{
    gc_counter_add(&follow->fallback_count[reason], 1);
    gc_counter_add(&follow->fallback_bytes[reason], bytes);
}

static void note_followed(struct gc_follow *follow, const struct gc_run_entry *entry)
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

uint64_t gc_follow_expected_bytes(const struct gc_context *context)
{
    const struct gc_follow *follow = context->core->follow;
    const uint64_t page = context->pool.pages.page_bytes;
    uint64_t fallback = 0;
    if (follow == NULL)
        return 0;
    for (unsigned i = 0; i < GC_FOLLOW_REASON_COUNT; i++)
        fallback += gc_counter_read(&follow->fallback_count[i]);
    return fallback > 1 + gc_counter_read(&follow->followed_count) / KEPT_SHARE
               ? 0
               : (follow->plan->peak_bytes + page - 1) / page * page;
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
    figures->rounds = atomic_load_explicit(&follow->rounds, memory_order_relaxed);
    figures->jumps = atomic_load_explicit(&follow->jumps, memory_order_relaxed);
    return true;
}

/* ---- one request ---- */

enum gc_status gc_follow_alloc(struct gc_context *context, const struct gc_claim *claim,
                               uint64_t *address, bool *is_hit)
{
    struct gc_follow *follow = context->core->follow;
    struct gc_pursuit pursuit = {
        .context = context, .follow = follow, .claim = claim, .reason = GC_FOLLOW_MEMORY};
    if (owner_of(follow) != context &&
        (!is_for(follow, context, claim) || !claim_plan(follow, context)))
        return GC_OUT_OF_MEMORY;
    if (gc_pursuit_follow(&pursuit, is_hit)) {
        note_followed(follow, &follow->plan->entries[pursuit.entry]);
    } else {
        note_fallback(follow, pursuit.reason, claim->bytes);
        if (!gc_pursuit_depart(&pursuit, is_hit))
            return GC_OUT_OF_MEMORY;
    }
    *address = pursuit.address;
    return GC_OK;
}
