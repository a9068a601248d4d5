#include "core/device/lookup.h"

#include "core/device/registry.h"
#include "core/device/wait.h"

#include <stddef.h>

/* Takes the lock of the candidate's pool. NULL: the record is another block's already. The acquires
 * pair with the releases in core/pool/, where a record is reused. */
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

/* The block that starts at the address, or else the nearest one below. */
static struct gc_block *nearest(const struct gc_core *core, uint64_t address, uint64_t *start)
{
    struct gc_block *block = gc_pagemap_get(&core->pagemap, address);
    *start = address;
    return block != NULL ? block : gc_pagemap_find(&core->pagemap, address, start);
}

/* No block in the pagemap contains the address. If a pool detached for a teardown may, waits for
 * the decision or, without `waits`, returns UNDECIDED at once. True: look up again, a pool may have
 * been reattached. `reattach_count` was read before the look-up. */
static bool must_repeat(struct gc_core *core, uint64_t address, bool waits, unsigned reattach_count,
                        enum gc_lookup *result)
{
    *result = GC_LOOKUP_UNDECIDED;
    if (!waits && atomic_load_explicit(&core->detached_count, memory_order_acquire) != 0)
        return false;
    const enum gc_detached detached = gc_wait_detached(core, address);
    if (detached == GC_DETACHED_STILL)
        return false;
    *result = GC_LOOKUP_NOT_OURS;
    return detached == GC_DETACHED_RESOLVED || gc_core_reattach_count(core) != reattach_count;
}

/* Whether the candidate is still the nearest block; the lock of its pool keeps it so. */
static bool is_nearest_locked(struct gc_core *core, uint64_t address, const struct gc_block *block)
{
    uint64_t start;
    return nearest(core, address, &start) == block && start == block->address;
}

enum gc_lookup gc_lookup_lock(struct gc_core *core, uint64_t address, bool waits,
                              struct gc_block **block)
{
    enum gc_lookup result;
    unsigned reattach_count;
    do {
        uint64_t start;
        struct gc_block *candidate;
        reattach_count = gc_core_reattach_count(core);
        while ((candidate = nearest(core, address, &start)) != NULL) {
            struct gc_pool *pool = lock_pool_of(candidate);
            if (pool == NULL)
                continue; /* its pool is being destroyed */
            const bool is_stable = is_nearest_locked(core, address, candidate);
            if (is_stable && address - candidate->address < candidate->bytes) {
                *block = candidate;
                return address == candidate->address ? GC_LOOKUP_START : GC_LOOKUP_INSIDE;
            }
            gc_pool_release(pool);
            if (is_stable)
                break;
        }
    } while (must_repeat(core, address, waits, reattach_count, &result));
    return result;
}

enum gc_status gc_lookup_lock_block(struct gc_core *core, uint64_t address, struct gc_block **block)
{
    switch (gc_lookup_lock(core, address, true, block)) {
    case GC_LOOKUP_NOT_OURS:
        return GC_NOT_OURS;
    case GC_LOOKUP_UNDECIDED:
        return GC_INVALID_POINTER;
    default:
        return GC_OK;
    }
}

/* Threads free to their caches and allocate from them without the pool's lock: the fields are valid
 * if the same block was live before and after the loads. */
static bool read_live(struct gc_block *block, uint64_t *requested_bytes, uint64_t *id)
{
    if (!gc_lookup_is_live(block))
        return false;
    *id = __atomic_load_n(&block->live.id, __ATOMIC_ACQUIRE);
    *requested_bytes = __atomic_load_n(&block->live.requested_bytes, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&block->live.id, __ATOMIC_RELAXED) == *id && gc_lookup_is_live(block);
}

bool gc_lookup_describe_locked(struct gc_block *block, uint64_t address, struct gc_block_info *info)
{
    const struct gc_segment *segment = gc_block_segment(block);
    struct gc_context *owner = gc_block_pool(block)->context;
    uint64_t requested_bytes, id;
    /* The bytes that rounding added belong to no block of the program. */
    if (block->is_held || !read_live(block, &requested_bytes, &id) ||
        address - block->address >= requested_bytes)
        return false;
    *info = (struct gc_block_info){
        .address = block->address,
        .bytes = requested_bytes,
        .capacity = block->bytes,
        .segment_address = segment->address,
        .segment_bytes = segment->bytes,
        .is_mapped = segment->arena != NULL,
        .is_dedicated = gc_pool_is_dedicated_locked(block),
        .context = owner->handle,
        .owner = owner,
        .id = id,
        .api = block->api,
        .is_plain = segment->is_plain,
        .is_spilled = segment->is_spilled || block->is_spilled,
        .is_ordered = block->is_ordered,
        .is_synchronous = block->is_synchronous,
    };
    return true;
}

enum gc_status gc_lookup_block(struct gc_core *core, uint64_t address, struct gc_block_info *info)
{
    struct gc_block *block;
    const enum gc_status status = gc_lookup_lock_block(core, address, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = gc_block_pool(block);
    const bool is_live = gc_lookup_describe_locked(block, address, info);
    gc_pool_release(pool);
    return is_live ? GC_OK : GC_INVALID_POINTER;
}
