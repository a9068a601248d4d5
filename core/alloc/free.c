/* Blocks by their address: how they are found while other threads take and free, freed, and told
 * of. */
#include "core/debug/debug.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

/* ---- find ---- */

/* A candidate that was found without a lock: takes its pool's lock. NULL if it is stale. The
 * acquires pair with the releases in pool.c, where a record is put to a new use. */
static struct gc_pool *lock_pool_of(struct gc_block *block)
{
    struct gc_segment *segment = atomic_load_explicit(&block->segment, memory_order_acquire);
    struct gc_pool *pool =
        segment == NULL ? NULL : atomic_load_explicit(&segment->pool, memory_order_acquire);
    if (pool == NULL)
        return NULL;
    gc_pool_acquire_plain(pool);
    if (atomic_load_explicit(&block->segment, memory_order_acquire) == segment &&
        atomic_load_explicit(&segment->pool, memory_order_acquire) == pool)
        return pool;
    gc_pool_release(pool);
    return NULL;
}

static struct gc_block *nearest(const struct gc_core *core, uint64_t address, uint64_t *start)
{
    struct gc_block *block = gc_pagemap_get(&core->pagemap, address);
    *start = address;
    return block != NULL ? block : gc_pagemap_find(&core->pagemap, address, start);
}

/* What to make of an address that was not found: GC_OK where it may be known now, GC_BUSY where it
 * is of a context of which nobody knows whether it goes: the driver may still free what lies around
 * it. `shown_count` was read before. May wait. */
static enum gc_status ask_hidden(struct gc_core *core, uint64_t address, unsigned shown_count)
{
    const enum gc_hidden hidden = gc_core_await_hidden(core, address);
    if (hidden == GC_HIDDEN_STILL)
        return GC_BUSY;
    return hidden == GC_HIDDEN_DECIDED || gc_core_shown_count(core) != shown_count ? GC_OK
                                                                                   : GC_NOT_OURS;
}

/* Who has stopped the caches waits for no context to end, which needs them: nor does any begin to.
 */
static bool must_come_again(struct gc_core *core, bool waits)
{
    return !waits && atomic_load_explicit(&core->hidden_count, memory_order_acquire) != 0;
}

/* As gc_core_lock_block. GC_BUSY: it is not known whether it is a block's, with `waits` even after
 * waiting for it. */
static enum gc_status lock_block(struct gc_core *core, uint64_t address, bool interior, bool waits,
                                 struct gc_block **block)
{
    for (;;) {
        const unsigned shown_count = gc_core_shown_count(core);
        uint64_t start;
        struct gc_block *found = nearest(core, address, &start);
        if (found == NULL) {
            const enum gc_status status =
                must_come_again(core, waits) ? GC_BUSY : ask_hidden(core, address, shown_count);
            if (status != GC_OK)
                return status;
            continue;
        }
        struct gc_pool *pool = lock_pool_of(found);
        if (pool == NULL)
            continue; /* it is vanishing this moment */
        /* With the lock the pool's blocks stand still; is it the nearest one now? */
        uint64_t start_now;
        const bool is_stable =
            nearest(core, address, &start_now) == found && start_now == found->address;
        const bool is_inside = is_stable && address - start_now < found->bytes;
        if (is_inside && (interior || address == start_now)) {
            *block = found;
            return GC_OK;
        }
        gc_pool_release(pool);
        if (!is_stable)
            continue;
        if (is_inside)
            return GC_INVALID_POINTER;
        const enum gc_status status =
            must_come_again(core, waits) ? GC_BUSY : ask_hidden(core, address, shown_count);
        if (status != GC_OK)
            return status;
    }
}

enum gc_status gc_core_lock_block(struct gc_core *core, uint64_t address, bool interior,
                                  struct gc_block **block)
{
    const enum gc_status status = lock_block(core, address, interior, true, block);
    return status == GC_BUSY ? GC_INVALID_POINTER : status;
}

static enum gc_status refuse_free(struct gc_core *core, uint64_t address)
{
    struct gc_block *block;
    if (gc_core_lock_block(core, address, true, &block) == GC_OK) {
        struct gc_pool *pool = gc_block_pool(block);
        gc_pool_release(pool);
        gc_counter_add(&pool->context->device->stats.invalid_free_count, 1);
    }
    return GC_INVALID_POINTER;
}

/* Takes a live block from the program, with its pool's lock; *is_cached: it is in a magazine.
 * `waits`: as for lock_block. */
static enum gc_status take_live(struct gc_core *core, uint64_t address, bool waits,
                                struct gc_block **block, bool *is_cached)
{
    const enum gc_status status = lock_block(core, address, false, waits, block);
    uint8_t state = GC_BLOCK_LIVE;
    *is_cached = false;
    if (status != GC_OK)
        return status;
    /* Against a thread that frees it without the lock. */
    if (atomic_compare_exchange_strong_explicit(&(*block)->state, &state, GC_BLOCK_FREEING,
                                                memory_order_acq_rel, memory_order_relaxed))
        return GC_OK;
    *is_cached = state == GC_BLOCK_CACHED;
    gc_pool_release(gc_block_pool(*block));
    return GC_INVALID_POINTER;
}

/* One that is in a magazine may be there for a moment only: another thread, that frees an address
 * twice, had found a record which is this block's by now. It gives way. */
static enum gc_status take_freed(struct gc_core *core, uint64_t address, struct gc_block **block)
{
    for (;;) {
        bool is_cached;
        enum gc_status status = take_live(core, address, true, block, &is_cached);
        if (!is_cached)
            return status;
        gc_caches_stop(core);
        status = take_live(core, address, false, block, &is_cached);
        gc_caches_resume(core);
        if (status != GC_BUSY)
            return status;
    }
}

static enum gc_status free_block(struct gc_core *core, uint64_t address, struct gc_context *worker,
                                 uint64_t stream, int *driver_code)
{
    const uint64_t start_ns = gc_core_now_ns(core);
    struct gc_block *block;
    enum gc_status status = take_freed(core, address, &block);
    if (status == GC_BUSY)
        return GC_INVALID_POINTER;
    if (status == GC_INVALID_POINTER)
        return refuse_free(core, address);
    if (status != GC_OK)
        return status;
    struct gc_context *context = gc_block_pool(block)->context;
    status = gc_reuse_free_unlock(context, block, worker, stream, driver_code);
    if (status == GC_OK) {
        const uint64_t end_ns = gc_core_now_ns(core);
        gc_hist_add(&core->free_ns, end_ns - start_ns);
        gc_member_write(context->device, end_ns);
        gc_member_write_record(context);
    }
    return status;
}

/* A free is counted for the device; figures by entry point are those of allocations. */
enum gc_status gc_core_free(struct gc_core *core, uint64_t address, uint16_t api, int *driver_code)
{
    if (core->debug != NULL)
        gc_debug_before_free(core, address, api);
    return free_block(core, address, NULL, GC_STREAM_NONE, driver_code);
}

enum gc_status gc_core_free_ordered(struct gc_core *core, uint64_t address,
                                    struct gc_context *worker, uint64_t stream, uint16_t api,
                                    int *driver_code)
{
    /* What is looked at when it is idle must not serve before. */
    const bool is_looked_at = core->debug != NULL && core->mode == GC_MODE_CACHE;
    const bool is_named = stream != GC_STREAM_NONE && !is_looked_at;
    if (core->debug != NULL)
        gc_debug_before_free(core, address, api);
    return free_block(core, address, worker, is_named ? stream : GC_STREAM_OTHER, driver_code);
}

static bool is_live_now(struct gc_block *block)
{
    const uint8_t state = atomic_load_explicit(&block->state, memory_order_acquire);
    return state == GC_BLOCK_LIVE || state == GC_BLOCK_FREEING;
}

/* Threads free and allocate without the pool's lock: what was read counts if the block was the same
 * live one before and after. */
static bool read_claim(struct gc_block *block, uint64_t *requested_bytes, uint64_t *id)
{
    if (!is_live_now(block))
        return false;
    *id = __atomic_load_n(&block->live.id, __ATOMIC_ACQUIRE);
    *requested_bytes = __atomic_load_n(&block->live.requested_bytes, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&block->live.id, __ATOMIC_RELAXED) == *id && is_live_now(block);
}

enum gc_status gc_core_find_block(struct gc_core *core, uint64_t address,
                                  struct gc_block_info *info)
{
    struct gc_block *block;
    enum gc_status status = gc_core_lock_block(core, address, true, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    const struct gc_segment *segment = gc_block_segment(block);
    uint64_t requested_bytes, id;
    const bool is_live = read_claim(block, &requested_bytes, &id);
    /* What rounding added is nobody's. */
    if (is_live && address - block->address < requested_bytes) {
        *info = (struct gc_block_info){
            .address = block->address,
            .bytes = requested_bytes,
            .capacity = block->bytes,
            .segment_address = segment->address,
            .segment_bytes = segment->bytes,
            .is_mapped = segment->arena != NULL,
            .is_whole = gc_pool_is_whole_locked(block),
            .context = pool->context->handle,
            .owner = pool->context,
            .id = id,
            .api = block->api,
            .is_plain = segment->is_plain,
            .is_ordered = block->is_ordered,
            .is_synchronous = block->is_synchronous,
        };
    } else {
        status = GC_INVALID_POINTER;
    }
    gc_pool_release(pool);
    return status;
}

enum gc_status gc_core_record_stream(struct gc_core *core, uint64_t address, uint64_t stream)
{
    struct gc_block *block;
    (void)stream; /* which one does not matter: the free waits for all */
    const enum gc_status status = gc_core_lock_block(core, address, false, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    const bool is_live = is_live_now(block);
    if (is_live)
        block->is_shared = true;
    gc_pool_release(pool);
    return is_live ? GC_OK : GC_INVALID_POINTER;
}
