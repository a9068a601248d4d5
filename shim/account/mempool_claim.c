/* What allocations under way claim of a pool: its idle memory, as far as it is there for their
 * stream at once, and what the pool may grow by. */
#include "shim/account/handles.h"
#include "shim/account/mempool_record.h"

#define POOL_GRANULARITY (UINT64_C(2) << 20)
#define ROOM_ATTEMPTS 4

/* A stream's identity; the per-thread stream is another one in each thread. Never a
 * GC_MEMPOOL_FREED_ value.
 */
static uint64_t stream_key(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? (uintptr_t)&gc_thread : (uintptr_t)stream;
}

static void note_freed(struct gc_mempool *pool, uint64_t where)
{
    uint64_t seen = GC_MEMPOOL_FREED_NOWHERE;

    if (!atomic_compare_exchange_strong(&pool->freed_in, &seen, where) && seen != where)
        atomic_store(&pool->freed_in, GC_MEMPOOL_FREED_ANYWHERE);
}

void gc_mempool_note_free(uint64_t address, CUstream stream)
{
    struct gc_handle found;

    if (gc_handles_get(GC_HANDLE_ASYNC, address, &found))
        note_freed((struct gc_mempool *)(uintptr_t)found.value, stream_key(stream));
}

/* Whether the pool's idle memory is there for an allocation in `stream` at once. */
static bool is_idle_for(const struct gc_mempool *pool, CUstream stream)
{
    uint64_t where = atomic_load(&pool->freed_in);
    return where == GC_MEMPOOL_FREED_NOWHERE || where == stream_key(stream);
}

/* The pool's idle memory that is of use in `stream`, by figures between which no allocation was
 * settled; 0 if that cannot be said, or if some of it was freed in another stream. Returns with the
 * lock held. */
static uint64_t read_idle_and_lock(struct gc_mempool *pool, CUstream stream)
{
    uint64_t reserved = 0, used = 0;

    for (int attempt = 0; attempt < GC_MEMPOOL_LOOK_ATTEMPTS; attempt++) {
        gc_handles_lock();
        uint64_t sequence = pool->sequence;
        gc_handles_unlock();
        bool is_read =
            is_idle_for(pool, stream) &&
            gc_mempool_read_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
            gc_mempool_read_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) &&
            is_idle_for(pool, stream);
        gc_handles_lock();
        if (!is_read)
            return 0;
        if (pool->sequence == sequence)
            return reserved > used ? reserved - used : 0;
        gc_handles_unlock();
    }
    gc_handles_lock();
    return 0;
}

/* Promises idle memory of the pool, all of `bytes` or (`in_part`) as much as there is. */
static void promise_idle(struct gc_mempool *pool, uint64_t bytes, bool in_part,
                         struct gc_mempool_claim *claim)
{
    uint64_t idle = read_idle_and_lock(pool, claim->stream);

    idle = idle > pool->promised ? idle - pool->promised : 0;
    if (idle < bytes && !in_part)
        idle = 0;
    claim->promised_bytes = idle < bytes ? idle : bytes;
    pool->promised += claim->promised_bytes;
    gc_handles_unlock();
}

static void end_promise(struct gc_mempool *pool, struct gc_mempool_claim *claim)
{
    if (claim->promised_bytes == 0)
        return;
    gc_handles_lock();
    pool->promised -= claim->promised_bytes;
    gc_handles_unlock();
    claim->promised_bytes = 0;
}

static void add_claim(struct gc_mempool *pool, uint64_t bytes, struct gc_mempool_claim *claim)
{
    gc_handles_lock();
    pool->claimed += bytes;
    pool->ahead += bytes;
    gc_handles_unlock();
    claim->reserved_bytes = bytes;
}

static bool try_claim(struct gc_mempool *pool, uint64_t bytes, struct gc_mempool_claim *claim)
{
    if (!gc_core_try_reserve(gc_shim.core, pool->device, NULL, bytes))
        return false;
    add_claim(pool, bytes, claim);
    return true;
}

bool gc_mempool_claim(struct gc_mempool *pool, uint64_t bytes, struct gc_mempool_claim *claim)
{
    struct gc_device *device = pool->device;

    if (device == NULL || gc_device_limit_bytes(device) == UINT64_MAX)
        return true;
    uint64_t rounded = bytes > UINT64_MAX - POOL_GRANULARITY
                           ? bytes
                           : (bytes + POOL_GRANULARITY - 1) & ~(POOL_GRANULARITY - 1);
    promise_idle(pool, rounded, false, claim);
    if (claim->promised_bytes != 0 || try_claim(pool, rounded, claim))
        return true;
    bool may_fit = rounded <= gc_device_limit_bytes(device);
    for (int i = 0; may_fit && i < ROOM_ATTEMPTS && gc_direct_make_room(device); i++)
        if (try_claim(pool, rounded, claim))
            return true;
    /* What is idle but in one piece with what is in use could not go back. */
    promise_idle(pool, rounded, true, claim);
    uint64_t growth = rounded - claim->promised_bytes;
    if (growth == 0 || gc_core_reserve(gc_shim.core, device, NULL, growth) == GC_OK) {
        add_claim(pool, growth, claim);
        return true;
    }
    end_promise(pool, claim);
    return false;
}
