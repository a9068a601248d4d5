/* The end of a context.
 *
 * Begun before the driver is asked: what its pools have is hidden, so that no address of theirs is
 * known when the driver gives it to another context; then its door is closed. Finished after the
 * driver did it: all goes. Cancelled where it declined: what was hidden is shown again. */
#include "core/arena.h"
#include "core/check.h"
#include "core/debug.h"
#include "core/instance.h"
#include "core/magazine.h"
#include "core/range.h"

#include <stddef.h>
#include <time.h>

#define PAUSE_NS 50000
/* How long others wait for what comes of an end: at a process's end the thread may be stuck in a
 * driver that is no more. */
#define PATIENCE_NS UINT64_C(10000000000)

/* ---- hiding ---- */

/* What a hidden pool has, in the fields of the same names. */
struct gc_pool_hidden {
    struct gc_bins bins[GC_CLASS_COUNT];
    struct gc_segment *segments;
    struct gc_segment *planned;
    struct gc_segment *idle_oldest;
    struct gc_segment *idle_newest;
    struct gc_block *pending_first;
    struct gc_block *pending_last;
    uint64_t pending_bytes;
    struct gc_stream_list streams[GC_STREAM_LISTS];
};

static void empty_lists_locked(struct gc_pool *pool)
{
    for (unsigned class = 0; class < GC_CLASS_COUNT; class ++)
        pool->bins[class] = (struct gc_bins){.by_address = pool->bins[class].by_address};
    pool->segments = NULL;
    pool->planned = NULL;
    pool->idle_oldest = NULL;
    pool->idle_newest = NULL;
    pool->pending_first = NULL;
    pool->pending_last = NULL;
    pool->pending_bytes = 0;
    for (unsigned i = 0; i < GC_STREAM_LISTS; i++)
        pool->streams[i] = (struct gc_stream_list){0};
}

static void move_out_locked(struct gc_pool *pool, struct gc_pool_hidden *hidden)
{
    for (unsigned class = 0; class < GC_CLASS_COUNT; class ++)
        hidden->bins[class] = pool->bins[class];
    hidden->segments = pool->segments;
    hidden->planned = pool->planned;
    hidden->idle_oldest = pool->idle_oldest;
    hidden->idle_newest = pool->idle_newest;
    hidden->pending_first = pool->pending_first;
    hidden->pending_last = pool->pending_last;
    hidden->pending_bytes = pool->pending_bytes;
    for (unsigned i = 0; i < GC_STREAM_LISTS; i++)
        hidden->streams[i] = pool->streams[i];
    empty_lists_locked(pool);
}

static void move_back_locked(struct gc_pool *pool, const struct gc_pool_hidden *hidden)
{
    for (unsigned class = 0; class < GC_CLASS_COUNT; class ++)
        pool->bins[class] = hidden->bins[class];
    pool->segments = hidden->segments;
    pool->planned = hidden->planned;
    pool->idle_oldest = hidden->idle_oldest;
    pool->idle_newest = hidden->idle_newest;
    pool->pending_first = hidden->pending_first;
    pool->pending_last = hidden->pending_last;
    pool->pending_bytes = hidden->pending_bytes;
    for (unsigned i = 0; i < GC_STREAM_LISTS; i++)
        pool->streams[i] = hidden->streams[i];
}

static void discard_hidden(struct gc_core *core, struct gc_pool_hidden *hidden)
{
    if (hidden == NULL)
        return;
    atomic_fetch_sub_explicit(&core->hidden_count, 1, memory_order_release);
    gc_host_unmap(&core->host, hidden, sizeof(*hidden));
}

/* Takes every block of the pool out of the pagemap, or puts it back. */
static void set_known_locked(struct gc_pool *pool, bool is_known)
{
    for (struct gc_segment *segment = pool->segments; segment != NULL; segment = segment->next) {
        for (struct gc_block *block = segment->first; block != NULL; block = block->next) {
            if (is_known)
                gc_pagemap_set(pool->shared.pagemap, block->address, block);
            else
                gc_pagemap_clear(pool->shared.pagemap, block->address);
        }
    }
}

/* Stops the caches, so that nobody has a block of the pool in hand, and takes the pool's lock. A
 * change of mappings under way is waited for with nothing held: it may take long, and others go on
 * meanwhile. */
static void stop_and_lock(struct gc_context *context,
                          bool (*is_quiet_locked)(struct gc_pool *, void *), void *argument)
{
    struct gc_pool *pool = &context->pool;
    for (;;) {
        gc_caches_stop(context->core);
        gc_magazine_empty_context(context);
        gc_pool_acquire_plain(pool);
        if (is_quiet_locked(pool, argument))
            return;
        gc_pool_release(pool);
        gc_caches_resume(context->core);
        gc_arena_await_change(pool);
    }
}

static void unlock_and_resume(struct gc_context *context)
{
    gc_pool_release(&context->pool);
    gc_caches_resume(context->core);
}

static bool is_unchanged_locked(struct gc_pool *pool, void *unused)
{
    (void)unused;
    return !gc_arena_is_changing_locked(pool);
}

/* The pool is as if it were dropped: hands nothing out, takes nothing back, nothing of it is found.
 * Without host memory it stays as it is, and its addresses are forgotten a moment too late. */
static void hide_pool(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_pool_hidden *hidden = gc_host_map(&context->core->host, sizeof(*hidden));
    if (hidden == NULL)
        return;
    stop_and_lock(context, is_unchanged_locked, NULL);
    const bool is_hidden = !pool->is_dropped;
    if (is_hidden) {
        /* First: who does not find a block looks at this, then for the hidden. */
        atomic_fetch_add_explicit(&context->core->hidden_count, 1, memory_order_seq_cst);
        set_known_locked(pool, false);
        move_out_locked(pool, hidden);
        pool->hidden = hidden;
        pool->is_dropped = true;
    }
    unlock_and_resume(context);
    if (!is_hidden)
        gc_host_unmap(&context->core->host, hidden, sizeof(*hidden));
}

static void show_pool(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    struct gc_pool_hidden *hidden = pool->hidden;
    if (hidden != NULL) {
        move_back_locked(pool, hidden);
        set_known_locked(pool, true);
        atomic_fetch_add_explicit(&context->core->shown_count, 1, memory_order_release);
        pool->hidden = NULL;
        pool->is_dropped = false;
    }
    gc_pool_release(pool);
    discard_hidden(context->core, hidden);
}

/* ---- others meanwhile ---- */

/* Most often the driver destroys the context. Where it declines, or somebody holds a primary
 * context unseen, others may use it as ever, and must not be told that it is gone. */
void gc_context_lock_decided(struct gc_context *context)
{
    const struct timespec moment = {0, PAUSE_NS};
    gc_pool_acquire_plain(&context->pool);
    for (uint64_t waited = 0; context->pool.hidden != NULL && waited < PATIENCE_NS;
         waited += PAUSE_NS) {
        gc_pool_release(&context->pool);
        nanosleep(&moment, NULL);
        gc_pool_acquire_plain(&context->pool);
    }
}

bool gc_context_await_end(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_hidden = context->pool.hidden != NULL;
    gc_pool_release(&context->pool);
    if (!is_hidden)
        return false;
    gc_context_lock_decided(context);
    const bool stays = !context->pool.is_dropped;
    gc_pool_release(&context->pool);
    return stays;
}

static bool hides_locked(const struct gc_pool *pool, uint64_t address)
{
    const struct gc_segment *segment = pool->hidden == NULL ? NULL : pool->hidden->segments;
    while (segment != NULL && address - segment->address >= segment->bytes)
        segment = segment->next;
    return segment != NULL;
}

static bool await_address(struct gc_context *context, uint64_t address)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_hidden = hides_locked(&context->pool, address);
    gc_pool_release(&context->pool);
    if (!is_hidden)
        return false;
    gc_context_lock_decided(context);
    const bool is_decided = context->pool.hidden == NULL;
    gc_pool_release(&context->pool);
    return is_decided;
}

bool gc_core_await_hidden(struct gc_core *core, uint64_t address)
{
    if (atomic_load_explicit(&core->hidden_count, memory_order_acquire) == 0)
        return false;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            if (await_address(context, address))
                return true;
    }
    return false;
}

/* ---- dropping ---- */

/* Of a live block. */
static struct gc_entry entry_of(const struct gc_block *block)
{
    return (struct gc_entry){
        .address = block->address,
        .requested_bytes = block->live.requested_bytes,
        .bytes = block->bytes,
        .api = block->api,
    };
}

/* Takes a block out of all accounts; the next of its segment is returned. What was live is kept
 * in `vanished`, linked by `previous`, until it can be told with no lock held. */
static struct gc_block *drop_block_locked(struct gc_context *context, struct gc_block *block,
                                          struct gc_block **vanished)
{
    struct gc_pool *pool = &context->pool;
    struct gc_block *next = block->next;
    if (block->state == GC_BLOCK_PENDING)
        gc_gauge_sub(pool->shared.pending, block->bytes);
    /* A block that is being freed is settled by the thread that frees it. */
    if (block->state != GC_BLOCK_LIVE) {
        gc_pool_put_record_locked(pool, block);
        return next;
    }
    const struct gc_entry entry = entry_of(block);
    gc_share_uncount_vanished(context->device, context->share, &entry);
    if (block->is_ordered)
        gc_pool_uncount_ordered(&pool->shared, entry.requested_bytes);
    atomic_store_explicit(&block->segment, NULL, memory_order_release);
    block->previous = *vanished;
    *vanished = block;
    return next;
}

static void tell_vanished(struct gc_context *context, struct gc_block *block)
{
    while (block != NULL) {
        struct gc_block *next = block->previous;
        const struct gc_entry entry = entry_of(block);
        gc_device_observe(context->device, GC_TRACE_FREE, &entry);
        gc_slab_put(context->pool.shared.blocks, block);
        block = next;
    }
}

static bool take_remains_locked(struct gc_pool *pool, void *remains)
{
    return gc_arena_take_remains_locked(pool, remains);
}

/* Their memory went with the driver's context. */
static void put_segments(struct gc_device *device, struct gc_segment *segment)
{
    while (segment != NULL) {
        struct gc_segment *next = segment->next;
        gc_device_trace_memory(device, GC_TRACE_UNMAP, GC_TRACE_SEGMENT, segment->address,
                               segment->bytes);
        gc_slab_put(&device->segments, segment);
        segment = next;
    }
}

/* Takes all segments out of the pool and the accounts; those of the driver's own memory are
 * returned. */
static struct gc_segment *drop_segments_locked(struct gc_context *context,
                                               struct gc_block **vanished)
{
    struct gc_pool *pool = &context->pool;
    struct gc_segment *gone = NULL;
    struct gc_segment *next;
    for (struct gc_segment *segment = pool->segments; segment != NULL; segment = next) {
        next = segment->next;
        if (segment->is_idle)
            gc_pool_sub_idle(&pool->shared, segment->bytes);
        for (struct gc_block *block = segment->first; block != NULL;)
            block = drop_block_locked(context, block, vanished);
        atomic_store_explicit(&segment->pool, NULL, memory_order_release);
        if (segment->arena != NULL)
            continue; /* buried with the pages */
        gc_context_release(context, segment->bytes);
        segment->next = gone;
        gone = segment;
    }
    empty_lists_locked(pool);
    return gone;
}

static void put_spares_locked(struct gc_pool *pool)
{
    while (pool->spares != NULL) {
        struct gc_block *record = pool->spares;
        pool->spares = record->next;
        gc_slab_put(pool->shared.blocks, record);
    }
    pool->spare_count = 0;
}

/* Empties the pool for good. Mapped memory does not go with the driver's context. */
static void drop_pool(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_arena_remains remains;
    stop_and_lock(context, take_remains_locked, &remains);
    struct gc_pool_hidden *hidden = pool->hidden;
    if (hidden != NULL)
        move_back_locked(pool, hidden);
    else
        set_known_locked(pool, false);
    pool->hidden = NULL;
    pool->is_dropped = true;
    struct gc_block *vanished = NULL;
    struct gc_segment *gone = drop_segments_locked(context, &vanished);
    put_spares_locked(pool);
    context->peer_count = 0;
    unlock_and_resume(context);
    discard_hidden(context->core, hidden);
    tell_vanished(context, vanished);
    gc_fence_forget(context);
    put_segments(context->device, gone);
    gc_arena_bury(context, &remains);
}

static void drop_direct(void *argument, const struct gc_direct *direct)
{
    (void)argument;
    gc_direct_vanished(direct);
}

static void drop_record(struct gc_context *record)
{
    drop_pool(record);
    if (record->core->debug != NULL)
        gc_debug_drop_context(record);
}

bool gc_context_drop_record(struct gc_context *record)
{
    const bool is_mine = gc_context_claim_record(record);
    if (is_mine)
        drop_record(record);
    return is_mine;
}

/* ---- the end ---- */

struct gc_context *gc_core_end_begin(struct gc_core *core, uint64_t handle)
{
    struct gc_context *head = gc_core_find_context(core, handle);
    while (head != NULL && !gc_door_claim(&head->door))
        head = gc_core_find_context(core, handle); /* it went; another may have the handle now */
    if (head == NULL)
        return NULL;
    /* First, since who changes mappings may have to go in to end it. */
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        hide_pool(record);
    gc_door_close(&head->door);
    return head;
}

void gc_core_end_cancel(struct gc_context *head)
{
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        show_pool(record);
    gc_door_reopen(&head->door);
}

/* The driver may give the handle to another context at any moment: what goes by the handle goes
 * while it is still known for this one, whose door others wait at. */
void gc_core_end_finish(struct gc_context *head)
{
    if (head->handle != 0) /* 0 marks records that outlive contexts */
        gc_tracker_remove_context(&head->core->tracker, head->handle, drop_direct, NULL);
    struct gc_context *record = gc_context_claim_handle(head);
    gc_door_remove(&head->door);
    for (; record != NULL; record = record->next_dropped)
        drop_record(record);
    gc_range_return_given_up(head);
}

void gc_core_drop_context(struct gc_core *core, uint64_t handle)
{
    struct gc_context *head = gc_core_end_begin(core, handle);
    if (head != NULL)
        gc_core_end_finish(head);
}
