#include "core/context.h"

#include "core/arena.h"
#include "core/check.h"
#include "core/debug.h"
#include "core/instance.h"
#include "core/magazine.h"

#include <stddef.h>
#include <time.h>

/* How long a capture waits for a synchronisation under way: 2 s in all. */
#define CAPTURE_PAUSE_NS 50000
#define CAPTURE_PAUSES_MAX 40000

static _Atomic(struct gc_context *) *bucket_of(struct gc_core *core, uint64_t handle)
{
    return &core->buckets[gc_mix_u64(handle) % GC_CONTEXT_BUCKETS];
}

/* Acquire everywhere a link is followed: pairs with the release in link_context. */
static struct gc_context *follow(const _Atomic(struct gc_context *) *link)
{
    return atomic_load_explicit(link, memory_order_acquire);
}

struct gc_context *gc_core_find_context(struct gc_core *core, uint64_t handle)
{
    struct gc_context *context = follow(bucket_of(core, handle));
    while (context != NULL && (context->handle != handle || gc_context_is_dropped(context)))
        context = follow(&context->next_in_bucket);
    return context;
}

static struct gc_context *create_context(struct gc_core *core, uint64_t handle,
                                         struct gc_device *device)
{
    struct gc_context *context = gc_host_map(&core->host, sizeof(*context));
    if (context == NULL)
        return NULL;
    context->core = core;
    context->device = device;
    context->handle = handle;
    /* Work of earlier days does not use memory that this pool is still to take. */
    atomic_init(&context->retired,
                atomic_load_explicit(&core->work.submitted, memory_order_acquire));
    const struct gc_pool_shared shared = {
        .pagemap = &core->pagemap,
        .blocks = &device->blocks,
        .segments = &device->segments,
        .next_block_id = &core->next_block_id,
        .idle_bytes = &device->idle_bytes,
        .generation = &device->generation,
        .pending = &device->stats.pending,
        .ordered = &device->stats.ordered,
        .ordered_marks = device->ordered_marks,
        .page_bytes = device->page_bytes,
    };
    gc_pool_init(&context->pool, context, &shared);
    gc_magazine_size(context);
    return context;
}

static void destroy_context(struct gc_core *core, struct gc_context *context)
{
    gc_pool_fini(&context->pool);
    gc_host_unmap(&core->host, context, sizeof(*context));
}

static void link_context(struct gc_core *core, struct gc_context *context)
{
    _Atomic(struct gc_context *) *bucket = bucket_of(core, context->handle);
    _Atomic(struct gc_context *) *list = &context->device->contexts;
    context->next_of_all = core->all_contexts;
    core->all_contexts = context;
    atomic_store_explicit(&context->next_in_bucket, follow(bucket), memory_order_relaxed);
    atomic_store_explicit(&context->next_in_device, follow(list), memory_order_relaxed);
    /* Release: a reader that finds the context sees it filled in. */
    atomic_store_explicit(bucket, context, memory_order_release);
    atomic_store_explicit(list, context, memory_order_release);
}

enum gc_status gc_core_add_context(struct gc_core *core, uint64_t handle, struct gc_device *device,
                                   struct gc_context **context)
{
    *context = gc_core_find_context(core, handle);
    if (*context != NULL)
        return GC_OK;
    bool is_second = false;
    struct gc_context *created = create_context(core, handle, device);
    if (created == NULL)
        return GC_NO_HOST_MEMORY;
    gc_lock_acquire(&core->registry);
    *context = gc_core_find_context(core, handle);
    if (*context == NULL) {
        if (core->all_contexts != NULL)
            atomic_store_explicit(&core->has_several_contexts, true, memory_order_relaxed);
        if (core->context_count < UINT16_MAX)
            created->number = ++core->context_count;
        link_context(core, created);
        *context = created;
        is_second = ++core->live_contexts > 1;
    }
    gc_lock_release(&core->registry);
    if (*context != created)
        destroy_context(core, created);
    int ignored; /* work that comes before memory is idle is held up */
    if (is_second)
        (void)gc_work_leave_single(core, &ignored);
    return GC_OK;
}

bool gc_core_has_several_contexts(const struct gc_core *core)
{
    return atomic_load_explicit(&core->has_several_contexts, memory_order_relaxed);
}

/* The dropped context keeps its own links: readers that stand on it go on to what is behind. */
static void unlink_context_locked(struct gc_core *core, struct gc_context *context)
{
    _Atomic(struct gc_context *) *link = bucket_of(core, context->handle);
    while (follow(link) != context)
        link = &follow(link)->next_in_bucket;
    atomic_store_explicit(link, follow(&context->next_in_bucket), memory_order_release);
    link = &context->device->contexts;
    while (follow(link) != context)
        link = &follow(link)->next_in_device;
    atomic_store_explicit(link, follow(&context->next_in_device), memory_order_release);
}

/* ---- the end of a context ---- */

/* Takes a block out of all accounts and of the pagemap; the next of its segment is returned. */
static struct gc_block *drop_block_locked(struct gc_device *device, struct gc_pool *pool,
                                          struct gc_block *block)
{
    struct gc_block *next = block->next;
    const struct gc_entry entry = {
        .address = block->address,
        .requested_bytes = block->state == GC_BLOCK_LIVE ? block->live.requested_bytes : 0,
        .bytes = block->bytes,
        .api = block->api,
    };
    if (block->state == GC_BLOCK_LIVE) {
        gc_device_note_vanished(device, &entry);
        if (block->is_ordered)
            gc_pool_uncount_ordered(&pool->shared, entry.requested_bytes);
    }
    if (block->state == GC_BLOCK_PENDING)
        gc_gauge_sub(&device->stats.pending, block->bytes);
    /* A block that is being freed is settled by the thread that frees it. */
    gc_pagemap_clear(pool->shared.pagemap, block->address);
    gc_pool_put_record_locked(pool, block);
    return next;
}

/* Empties the pool for good. Mapped memory does not go with the driver's context. */
static void drop_pool(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_device *device = context->device;
    struct gc_arena_remains remains;
    gc_caches_stop(context->core); /* nobody has a block of it in hand meanwhile */
    gc_magazine_empty_context(context);
    gc_pool_acquire_plain(pool);
    gc_arena_take_remains_locked(pool, &remains);
    pool->is_dropped = true;
    while (pool->segments != NULL) {
        struct gc_segment *segment = pool->segments;
        pool->segments = segment->next;
        if (segment->is_idle)
            atomic_fetch_sub_explicit(&device->idle_bytes, segment->bytes, memory_order_relaxed);
        for (struct gc_block *block = segment->first; block != NULL;)
            block = drop_block_locked(device, pool, block);
        atomic_store_explicit(&segment->pool, NULL, memory_order_release);
        if (segment->arena != NULL)
            continue; /* buried below */
        gc_device_release(device, segment->bytes);
        gc_slab_put(&device->segments, segment);
    }
    for (unsigned class = 0; class < GC_CLASS_COUNT; class ++)
        pool->bins[class] = (struct gc_bins){.root = NULL};
    pool->idle_oldest = NULL;
    pool->idle_newest = NULL;
    pool->pending_first = NULL;
    pool->pending_last = NULL;
    pool->pending_bytes = 0;
    for (unsigned i = 0; i < GC_STREAM_LISTS; i++)
        pool->streams[i] = (struct gc_stream_list){0};
    while (pool->spares != NULL) {
        struct gc_block *record = pool->spares;
        pool->spares = record->next;
        gc_slab_put(&device->blocks, record);
    }
    pool->spare_count = 0;
    context->peer_count = 0;
    gc_pool_release(pool);
    gc_caches_resume(context->core);
    gc_fence_forget(context);
    gc_arena_bury(context, &remains);
}

static void drop_direct(void *argument, const struct gc_direct *direct)
{
    (void)argument;
    gc_direct_vanished(direct);
}

void gc_core_drop_context(struct gc_core *core, uint64_t handle)
{
    gc_lock_acquire(&core->registry);
    struct gc_context *context = gc_core_find_context(core, handle);
    if (context != NULL) {
        atomic_store_explicit(&context->is_dropped, true, memory_order_release);
        unlink_context_locked(core, context);
        core->live_contexts--;
    }
    gc_lock_release(&core->registry);
    if (context != NULL)
        drop_pool(context);
    if (context != NULL && core->debug != NULL)
        gc_debug_drop_context(context);
    if (handle != 0) /* 0 marks records that outlive contexts */
        gc_tracker_remove_context(&core->tracker, handle, drop_direct, NULL);
}

bool gc_context_is_dropped(const struct gc_context *context)
{
    return atomic_load_explicit(&context->is_dropped, memory_order_acquire);
}

struct gc_device *gc_context_device(const struct gc_context *context)
{
    return context->device;
}

uint64_t gc_context_handle(const struct gc_context *context)
{
    return context->handle;
}

/* ---- captures and peers ---- */

void gc_context_capture_begin(struct gc_context *context)
{
    struct timespec pause = {0, CAPTURE_PAUSE_NS};
    int ignored;
    (void)gc_work_leave_single(context->core, &ignored); /* inside the capture it could not wait */
    atomic_fetch_add_explicit(&context->capture_count, 1, memory_order_seq_cst);
    atomic_fetch_add_explicit(&context->core->capture_count, 1, memory_order_seq_cst);
    /* A synchronisation of ours that ended inside the capture would invalidate it. No wait begins
     * any more; those under way are the device's to end, so not for ever. */
    for (unsigned i = 0; i < CAPTURE_PAUSES_MAX; i++) {
        if (atomic_load_explicit(&context->wait_count, memory_order_seq_cst) == 0 &&
            atomic_load_explicit(&context->core->everyone_count, memory_order_seq_cst) == 0)
            return;
        nanosleep(&pause, NULL);
    }
}

void gc_context_capture_end(struct gc_context *context)
{
    unsigned count = atomic_load_explicit(&context->capture_count, memory_order_relaxed);
    while (count > 0 &&
           !atomic_compare_exchange_weak_explicit(&context->capture_count, &count, count - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    if (count > 0)
        atomic_fetch_sub_explicit(&context->core->capture_count, 1, memory_order_relaxed);
}

bool gc_context_is_capturing(const struct gc_context *context)
{
    return atomic_load_explicit(&context->capture_count, memory_order_relaxed) > 0;
}

/* What is mapped from now on is shared anyhow. */
static void share_mappings(struct gc_context *context)
{
    int code = 0;
    if (gc_arena_share(context, &code) != GC_OK)
        gc_log_write(context->core->log, GC_LOG_WARN,
                     "memory of device %d that is mapped already is not open to a peer (driver "
                     "code %d)",
                     context->device->info.ordinal, code);
}

/* A peer on whose device there is another one. */
static uint32_t find_twin_locked(const struct gc_context *context)
{
    for (uint32_t i = 1; i < context->peer_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (context->peers[k]->device == context->peers[i]->device)
                return i;
        }
    }
    return 0;
}

/* Those that are gone make room. One too many takes the place of another one of its device, so that
 * all devices that use the memory stay listed, and all contexts are waited for from now on. */
static void list_peer_locked(struct gc_context *context, struct gc_context *peer)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < context->peer_count; i++) {
        if (!gc_context_is_dropped(context->peers[i]))
            context->peers[kept++] = context->peers[i];
    }
    context->peer_count = kept;
    if (kept < GC_PEER_MAX) {
        context->peers[context->peer_count++] = peer;
        return;
    }
    context->is_crowded = true;
    context->peers[find_twin_locked(context)] = peer;
}

static bool is_listed_locked(const struct gc_context *context, const struct gc_context *peer)
{
    bool is_listed = false;
    for (uint32_t i = 0; i < context->peer_count; i++) {
        const struct gc_context *known = context->peers[i];
        is_listed |= !gc_context_is_dropped(known) &&
                     (known == peer || (context->is_crowded && known->device == peer->device));
    }
    return is_listed;
}

void gc_context_add_peer(struct gc_context *context, struct gc_context *peer)
{
    int ignored;
    if (peer == context)
        return;
    (void)gc_work_leave_single(context->core, &ignored);
    gc_pool_acquire_plain(&context->pool);
    const bool is_listed = is_listed_locked(context, peer);
    if (!is_listed) {
        list_peer_locked(context, peer);
        /* Fences that do not cover the peer must not answer for what is freed from now on, though
         * nothing was submitted since. */
        gc_work_end(&context->core->work);
    }
    gc_pool_release(&context->pool);
    if (!is_listed && peer->device != context->device) {
        share_mappings(context);
        if (context->core->debug != NULL)
            gc_debug_share(context);
    }
}

/* Announces a wait, unless the context captures. The order of the two words matters: either this
 * sees the capture, or gc_context_capture_begin sees the wait. */
static bool announce_wait(struct gc_context *context, struct gc_wait_set *set)
{
    atomic_fetch_add_explicit(&context->wait_count, 1, memory_order_seq_cst);
    set->contexts[set->count++] = context;
    return atomic_load_explicit(&context->capture_count, memory_order_seq_cst) == 0;
}

static bool announce_everyone(struct gc_core *core, struct gc_wait_set *set)
{
    atomic_fetch_add_explicit(&core->everyone_count, 1, memory_order_seq_cst);
    set->everyone = core;
    return atomic_load_explicit(&core->capture_count, memory_order_seq_cst) == 0;
}

bool gc_context_wait_begin_locked(struct gc_context *context, struct gc_wait_set *set)
{
    set->count = 0;
    set->everyone = NULL;
    bool may_wait = announce_wait(context, set);
    for (uint32_t i = 0; may_wait && i < context->peer_count; i++) {
        if (!gc_context_is_dropped(context->peers[i]))
            may_wait = announce_wait(context->peers[i], set);
    }
    if (may_wait && context->is_crowded)
        may_wait = announce_everyone(context->core, set);
    if (!may_wait)
        gc_context_wait_end(set);
    return may_wait;
}

void gc_context_wait_end(struct gc_wait_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        atomic_fetch_sub_explicit(&set->contexts[i]->wait_count, 1, memory_order_seq_cst);
    if (set->everyone != NULL)
        atomic_fetch_sub_explicit(&set->everyone->everyone_count, 1, memory_order_seq_cst);
    set->count = 0;
    set->everyone = NULL;
}

uint64_t gc_context_epoch(struct gc_context *context)
{
    /* Acquire: what is counted was submitted before the program's wait begins. */
    return atomic_load_explicit(&context->core->work.submitted, memory_order_acquire);
}

void gc_context_raise_retired(struct gc_context *context, uint64_t mark)
{
    uint_fast64_t retired = atomic_load_explicit(&context->retired, memory_order_relaxed);
    while (retired < mark &&
           !atomic_compare_exchange_weak_explicit(&context->retired, &retired, mark,
                                                  memory_order_release, memory_order_relaxed))
        ;
}
