/* Accounts of stream-ordered pools. The driver's CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT is what a pool holds;
 * a record keeps what of it is charged. A look reads the driver's figure without the lock and applies the
 * difference under it, unless another look came between: then it reads again.
 *
 * Records are linked once and never unlinked, so that a walk needs no lock; the record of a pool that is
 * gone serves the next new one. */
#include "shim/mempool.h"

#include "shim/handles.h"

#define POOL_GRANULARITY (UINT64_C(2) << 20)
#define LOOK_ATTEMPTS 16

struct gc_mempool {
    struct gc_mempool *next;
    _Atomic(CUmemoryPool) handle; /* NULL once destroyed */
    struct gc_device *_Atomic device;
    uint64_t charged; /* these three: under the handles' lock */
    uint64_t sequence;
    uint64_t live_count;
    bool is_free; /* serves no pool */
};
_Static_assert(sizeof(struct gc_mempool) <= GC_HANDLE_RECORD_BYTES, "a pool fits a record");

static _Atomic(struct gc_mempool *) pools;
static atomic_uint_fast64_t charged_total; /* of all pools: nothing to look at while 0 */

static bool read_figure(CUmemoryPool handle, CUmemPool_attribute attribute, uint64_t *bytes)
{
    struct gc_capture_guard guard;
    cuuint64_t value = 0;

    gc_capture_relax(&guard);
    CUresult result = GC_USE(cuMemPoolGetAttribute, handle, attribute, &value);
    gc_capture_restore(&guard);
    *bytes = value;
    return result == CUDA_SUCCESS;
}

static struct gc_mempool *take_record_locked(void)
{
    for (struct gc_mempool *pool = pools; pool != NULL; pool = pool->next)
        if (pool->is_free)
            return pool;
    struct gc_mempool *pool = gc_handles_take_record_locked();
    if (pool != NULL) {
        pool->next = pools;
        atomic_store_explicit(&pools, pool, memory_order_release); /* with the loads of walks */
    }
    return pool;
}

struct gc_mempool *gc_mempool_find(CUmemoryPool handle, struct gc_device *device)
{
    struct gc_mempool *pool = NULL;

    bool is_prepared = gc_handles_prepare();
    gc_handles_lock();
    const struct gc_handle *found = gc_handles_find_locked(GC_HANDLE_POOL, (uintptr_t)handle);
    if (found != NULL) {
        pool = (struct gc_mempool *)(uintptr_t)found->value;
    } else if (is_prepared) {
        pool = take_record_locked();
        if (pool != NULL) {
            pool->is_free = false;
            pool->live_count = 0;
            pool->device = device;
            pool->handle = handle;
            gc_handles_put_locked(GC_HANDLE_POOL, (uintptr_t)handle, (uintptr_t)pool, 0);
        }
    }
    gc_handles_unlock();
    return pool;
}

struct gc_device *gc_mempool_device(const struct gc_mempool *pool)
{
    return pool->device;
}

uint64_t gc_mempool_growth(const struct gc_mempool *pool, uint64_t bytes)
{
    uint64_t reserved, used;
    CUmemoryPool handle = pool->handle;

    if (pool->device == NULL || gc_device_limit_bytes(pool->device) == UINT64_MAX)
        return 0;
    if (bytes > UINT64_MAX - POOL_GRANULARITY)
        return bytes;
    uint64_t rounded = (bytes + POOL_GRANULARITY - 1) & ~(POOL_GRANULARITY - 1);
    if (handle == NULL || !read_figure(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
        !read_figure(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
        return rounded;
    uint64_t idle = reserved > used ? reserved - used : 0;
    return rounded > idle ? rounded - idle : 0;
}

/* Sets what is charged to `bytes` under the lock; returns the difference. */
static int64_t set_charged_locked(struct gc_mempool *pool, uint64_t bytes)
{
    int64_t growth = (int64_t)(bytes - pool->charged);

    atomic_fetch_add_explicit(&charged_total, (uint64_t)growth, memory_order_relaxed);
    pool->charged = bytes;
    pool->sequence++;
    return growth;
}

/* Brings pool->charged up to date; returns by how much it changed. */
static int64_t follow(struct gc_mempool *pool)
{
    int64_t growth = 0;

    for (int attempt = 0; attempt < LOOK_ATTEMPTS; attempt++) {
        uint64_t bytes;
        CUmemoryPool handle = pool->handle;
        if (handle == NULL)
            return 0;
        gc_handles_lock();
        uint64_t sequence = pool->sequence;
        gc_handles_unlock();
        if (!read_figure(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes))
            return 0;
        gc_handles_lock();
        bool is_current = pool->handle == handle &&
                          (pool->sequence == sequence || attempt == LOOK_ATTEMPTS - 1);
        if (is_current)
            growth = set_charged_locked(pool, bytes);
        gc_handles_unlock();
        if (is_current)
            break;
    }
    return growth;
}

bool gc_mempool_settle(struct gc_mempool *pool, uint64_t *reserved)
{
    struct gc_device *device = pool->device;
    int64_t excess = 0;

    if (device == NULL)
        return true;
    excess = follow(pool) - (int64_t)*reserved;
    *reserved = 0;
    if (excess <= 0) {
        gc_direct_adjust(device, excess);
        return true;
    }
    if (gc_core_reserve(gc_shim.core, device, (uint64_t)excess) == GC_OK)
        return true;
    gc_direct_adjust(device, excess);
    return false;
}

void gc_mempool_look(struct gc_mempool *pool)
{
    if (pool->device != NULL)
        gc_direct_adjust(pool->device, follow(pool));
}

static struct gc_mempool *first_pool(void)
{
    return atomic_load_explicit(&pools, memory_order_acquire); /* with take_record_locked */
}

bool gc_mempool_holds_memory(void)
{
    return atomic_load_explicit(&charged_total, memory_order_relaxed) != 0;
}

void gc_mempool_refresh(const struct gc_device *device)
{
    if (!gc_mempool_holds_memory())
        return;
    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next)
        if (device == NULL || pool->device == device)
            gc_mempool_look(pool);
}

static void trim_all(struct gc_device *device)
{
    struct gc_capture_guard guard;

    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next) {
        CUmemoryPool handle = pool->handle;
        if (pool->device != device || handle == NULL)
            continue;
        gc_capture_relax(&guard);
        (void)GC_CALL(device, cuMemPoolTrimTo, handle, 0);
        gc_capture_restore(&guard);
        gc_mempool_look(pool);
    }
}

bool gc_mempool_trim(struct gc_device *device)
{
    uint64_t before = atomic_load_explicit(&charged_total, memory_order_relaxed);

    if (before == 0)
        return false;
    trim_all(device);
    if (atomic_load_explicit(&charged_total, memory_order_relaxed) < before)
        return true;
    if (gc_capture_is_any() || GC_CALL(device, cuCtxSynchronize) != CUDA_SUCCESS)
        return false;
    trim_all(device);
    return atomic_load_explicit(&charged_total, memory_order_relaxed) < before;
}

/* The last trace of a destroyed pool ends its charge; returns what to give back. */
static int64_t retire_if_done_locked(struct gc_mempool *pool)
{
    if (pool->handle != NULL || pool->live_count != 0 || pool->is_free)
        return 0;
    pool->is_free = true;
    return set_charged_locked(pool, 0);
}

struct gc_mempool *gc_mempool_destroy_begin(CUmemoryPool handle)
{
    struct gc_handle removed;

    gc_handles_lock();
    bool is_known = gc_handles_remove_locked(GC_HANDLE_POOL, (uintptr_t)handle, &removed);
    gc_handles_unlock();
    if (!is_known)
        return NULL;
    struct gc_mempool *pool = (struct gc_mempool *)(uintptr_t)removed.value;
    gc_mempool_look(pool);
    return pool;
}

void gc_mempool_destroy_end(struct gc_mempool *pool, CUmemoryPool handle, bool is_destroyed)
{
    int64_t change = 0;

    if (pool == NULL)
        return;
    struct gc_device *device = pool->device;
    bool is_prepared = is_destroyed || gc_handles_prepare();
    gc_handles_lock();
    if (is_destroyed) {
        pool->handle = NULL;
        change = retire_if_done_locked(pool);
    } else if (is_prepared) {
        gc_handles_put_locked(GC_HANDLE_POOL, (uintptr_t)handle, (uintptr_t)pool, 0);
    }
    gc_handles_unlock();
    gc_direct_adjust(device, change);
}

void gc_mempool_remember(struct gc_mempool *pool, uint64_t address)
{
    bool is_prepared = gc_handles_prepare();
    gc_handles_lock();
    const struct gc_handle *stale = gc_handles_find_locked(GC_HANDLE_ASYNC, address);
    if (stale != NULL) /* freed unseen, with its context */
        ((struct gc_mempool *)(uintptr_t)stale->value)->live_count--;
    if (is_prepared && gc_handles_put_locked(GC_HANDLE_ASYNC, address, (uintptr_t)pool, 0))
        pool->live_count++;
    gc_handles_unlock();
}

bool gc_mempool_forget(uint64_t address)
{
    struct gc_handle removed;
    struct gc_direct direct;
    int64_t change = 0;

    gc_handles_lock();
    bool is_known = gc_handles_remove_locked(GC_HANDLE_ASYNC, address, &removed);
    struct gc_mempool *pool = is_known ? (struct gc_mempool *)(uintptr_t)removed.value : NULL;
    struct gc_device *device = pool ? pool->device : NULL;
    if (pool != NULL && pool->live_count != 0) {
        pool->live_count--;
        change = retire_if_done_locked(pool);
    }
    gc_handles_unlock();
    gc_direct_adjust(device, change);
    if (is_known && gc_core_untrack(gc_shim.core, GC_DIRECT_ASYNC, address, &direct) != GC_OK)
        return true; /* its context went first */
    return is_known;
}
