/* Blocks by address. The pagemap gives a candidate without a lock; the candidate is checked again
 * under its pool's lock. */
#include "core/device/lookup.h"

#include "core/device/registry.h"
#include "core/device/wait.h"

#include <stddef.h>

/* Takes the lock of the candidate's pool; NULL: the candidate is stale. The acquires pair with the
 * releases in core/pool, where a record is reused. */
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

/* For an address that was not found. GC_OK: look it up again. GC_BUSY: its context has an undecided
 * teardown, and the driver may still destroy the memory around it. `reattach_count` was read before
 * the look-up. May wait. */
static enum gc_status resolve_detached(struct gc_core *core, uint64_t address,
                                       unsigned reattach_count)
{
    const enum gc_detached detached = gc_wait_detached(core, address);
    if (detached == GC_DETACHED_STILL)
        return GC_BUSY;
    return detached == GC_DETACHED_RESOLVED || gc_core_reattach_count(core) != reattach_count
               ? GC_OK
               : GC_NOT_OURS;
}

/* A thread that has stopped the thread caches does not wait for a teardown, which needs them; no
 * teardown starts meanwhile. */
static bool must_retry(struct gc_core *core, bool waits)
{
    return !waits && atomic_load_explicit(&core->detached_count, memory_order_acquire) != 0;
}

enum gc_status gc_lookup_lock(struct gc_core *core, uint64_t address, bool interior, bool waits,
                              struct gc_block **block)
{
    for (;;) {
        const unsigned reattach_count = gc_core_reattach_count(core);
        uint64_t start;
        struct gc_block *found = nearest(core, address, &start);
        if (found == NULL) {
            const enum gc_status status =
                must_retry(core, waits) ? GC_BUSY : resolve_detached(core, address, reattach_count);
            if (status != GC_OK)
                return status;
            continue;
        }
        struct gc_pool *pool = lock_pool_of(found);
        if (pool == NULL)
            continue; /* another thread is removing it */
        /* Under the lock the pool's blocks are stable; is it still the nearest? */
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
            must_retry(core, waits) ? GC_BUSY : resolve_detached(core, address, reattach_count);
        if (status != GC_OK)
            return status;
    }
}

enum gc_status gc_lookup_lock_block(struct gc_core *core, uint64_t address, bool interior,
                                    struct gc_block **block)
{
    const enum gc_status status = gc_lookup_lock(core, address, interior, true, block);
    return status == GC_BUSY ? GC_INVALID_POINTER : status;
}

/* Threads free and allocate without the pool's lock: the values read are valid if the block was
 * live with one id before and after. */
static bool read_claim(struct gc_block *block, uint64_t *requested_bytes, uint64_t *id)
{
    if (!gc_lookup_is_live(block))
        return false;
    *id = __atomic_load_n(&block->live.id, __ATOMIC_ACQUIRE);
    *requested_bytes = __atomic_load_n(&block->live.requested_bytes, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&block->live.id, __ATOMIC_RELAXED) == *id && gc_lookup_is_live(block);
}

enum gc_status gc_core_find_block(struct gc_core *core, uint64_t address,
                                  struct gc_block_info *info)
{
    struct gc_block *block;
    enum gc_status status = gc_lookup_lock_block(core, address, true, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    const struct gc_segment *segment = gc_block_segment(block);
    uint64_t requested_bytes, id;
    const bool is_live = read_claim(block, &requested_bytes, &id);
    /* The bytes that rounding added belong to no allocation. */
    if (is_live && address - block->address < requested_bytes) {
        *info = (struct gc_block_info){
            .address = block->address,
            .bytes = requested_bytes,
            .capacity = block->bytes,
            .segment_address = segment->address,
            .segment_bytes = segment->bytes,
            .is_mapped = segment->arena != NULL,
            .is_dedicated = gc_pool_is_dedicated_locked(block),
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
