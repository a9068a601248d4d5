/* Accounts of stream-ordered pools. The driver's CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT is what a
 * pool holds; a record keeps what of it is charged. A look reads the driver's figure without the
 * lock and applies the difference under it, unless another look came between: then it reads again.
 *
 * Calls of ours that name the pool are made inside its gate (core/base/gate.h), which whoever
 * destroys the pool closes first.
 *
 * Records are linked once and never unlinked, so that a walk needs no lock; the record of a pool
 * that is gone serves the next new one. What allocations under way claim: mempool_claim.c. */
#include "shim/account/handles.h"
#include "shim/account/mempool_record.h"

#define DEVICES_MAX 64
/* How long a request waits for memory that was freed in the order of streams. */
#define WAIT_NS UINT64_C(2000000000)

static _Atomic(struct gc_mempool *) pools;
static atomic_uint_fast64_t charged_total; /* of all pools: nothing to look at while 0 */

/* ---- the driver's pool, which another thread may be about to destroy ---- */

/* The handle stays good until leave. NULL: the pool is gone, and there is nothing to leave. */
static CUmemoryPool enter(struct gc_mempool *pool)
{
    if (pool->handle == NULL || !gc_gate_enter(&pool->gate))
        return NULL;
    CUmemoryPool handle = pool->handle;
    if (handle == NULL)
        gc_gate_leave(&pool->gate);
    return handle;
}

static void leave(struct gc_mempool *pool)
{
    gc_gate_leave(&pool->gate);
}

bool gc_mempool_read_figure(struct gc_mempool *pool, CUmemPool_attribute attribute, uint64_t *bytes)
{
    struct gc_capture_guard guard;
    cuuint64_t value = 0;
    CUmemoryPool handle = enter(pool);

    if (handle == NULL)
        return false;
    gc_capture_relax(&guard);
    CUresult result = GC_USE(cuMemPoolGetAttribute, handle, attribute, &value);
    gc_capture_restore(&guard);
    leave(pool);
    if (result == CUDA_SUCCESS)
        *bytes = value;
    return result == CUDA_SUCCESS;
}

void gc_mempool_trim_one(struct gc_mempool *pool)
{
    struct gc_capture_guard guard;
    CUmemoryPool handle = enter(pool);

    if (handle == NULL)
        return;
    gc_capture_relax(&guard);
    (void)GC_CALL(pool->device, cuMemPoolTrimTo, handle, 0);
    gc_capture_restore(&guard);
    leave(pool);
    gc_mempool_look(pool);
}

/* ---- records ---- */

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
            gc_gate_set(&pool->gate, GC_GATE_OPEN);
            pool->live_count = 0;
            pool->freed_in = GC_MEMPOOL_FREED_NOWHERE;
            pool->device = device;
            pool->handle = handle;
            gc_handles_put_locked(GC_HANDLE_POOL, (uintptr_t)handle, (uintptr_t)pool, 0);
        }
    }
    gc_handles_unlock();
    return pool;
}

static bool is_default_of(CUmemoryPool handle, const struct gc_device *device)
{
    CUmemoryPool plain = NULL;

    return GC_USE(cuDeviceGetDefaultMemPool, &plain, gc_device_get_info(device)->ordinal) ==
               CUDA_SUCCESS &&
           plain == handle;
}

struct gc_device *gc_mempool_plain_device(CUmemoryPool handle)
{
    struct gc_device *current = gc_shim_current_device();

    if (handle == NULL)
        return NULL;
    if (current != NULL && is_default_of(handle, current))
        return current;
    for (int i = 0; i < DEVICES_MAX; i++) {
        struct gc_device *device = gc_core_find_device(gc_shim.core, i);
        if (device != NULL && device != current && is_default_of(handle, device))
            return device;
    }
    return NULL;
}

bool gc_mempool_is_plain(CUmemoryPool handle, const struct gc_device *device)
{
    return handle != NULL && is_default_of(handle, device);
}

struct gc_device *gc_mempool_device(const struct gc_mempool *pool)
{
    return pool->device;
}

/* ---- looks ---- */

/* Sets what is charged to `bytes` under the lock, and ends a claim. What was charged and is not in
 * the pool stays charged ahead, as far as the allocations under way may need it: one that claimed
 * growth may have got the idle memory another was promised, or the driver may have trimmed that;
 * then the other grows the pool. Returns by how much the account must change. */
static int64_t set_charged_locked(struct gc_mempool *pool, uint64_t bytes,
                                  const struct gc_mempool_claim *claim)
{
    uint64_t before = pool->charged + pool->ahead;

    if (claim != NULL) {
        pool->claimed -= claim->reserved_bytes;
        pool->promised -= claim->promised_bytes;
    }
    pool->ahead = before > bytes ? before - bytes : 0;
    if (pool->ahead > pool->claimed + pool->promised)
        pool->ahead = pool->claimed + pool->promised;
    atomic_fetch_add_explicit(&charged_total, bytes - pool->charged, memory_order_relaxed);
    pool->charged = bytes;
    pool->sequence++;
    return (int64_t)(pool->charged + pool->ahead - before);
}

/* Brings the record up to date and ends a claim, if any; returns by how much the account must
 * change. */
static int64_t follow(struct gc_mempool *pool, const struct gc_mempool_claim *claim)
{
    for (int attempt = 0;; attempt++) {
        CUmemoryPool handle = pool->handle;
        gc_handles_lock();
        uint64_t sequence = pool->sequence;
        uint64_t bytes = pool->charged; /* unchanged where the driver does not say */
        gc_handles_unlock();
        (void)gc_mempool_read_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
        gc_handles_lock();
        bool is_current = pool->handle == handle &&
                          (pool->sequence == sequence || attempt == GC_MEMPOOL_LOOK_ATTEMPTS);
        int64_t change = is_current ? set_charged_locked(pool, bytes, claim) : 0;
        gc_handles_unlock();
        if (is_current)
            return change;
    }
}

bool gc_mempool_settle(struct gc_mempool *pool, struct gc_mempool_claim *claim)
{
    struct gc_device *device = pool->device;

    if (device == NULL)
        return true;
    int64_t excess = follow(pool, claim);
    if (excess <= 0) {
        gc_direct_adjust(device, excess);
        return true;
    }
    if (gc_core_try_reserve(gc_shim.core, device, NULL, (uint64_t)excess))
        return true;
    gc_direct_adjust(device, excess);
    return false;
}

void gc_mempool_look(struct gc_mempool *pool)
{
    if (pool->device != NULL)
        gc_direct_adjust(pool->device, follow(pool, NULL));
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
    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next)
        if (pool->device == device)
            gc_mempool_trim_one(pool);
}

/* Waits for all work of the current context, for a while: then nothing that was freed before is
 * pending. */
static bool wait_for_frees(struct gc_device *device)
{
    const struct gc_context *context = gc_shim_current_context();

    if (context == NULL)
        return false;
    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next)
        if (pool->device == device)
            atomic_store(&pool->freed_in, GC_MEMPOOL_FREED_NOWHERE);
    if (gc_driver_await(gc_context_handle(context), WAIT_NS) == CUDA_SUCCESS)
        return true;
    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next)
        atomic_store(&pool->freed_in, GC_MEMPOOL_FREED_ANYWHERE);
    return false;
}

bool gc_mempool_trim(struct gc_device *device)
{
    uint64_t before = atomic_load_explicit(&charged_total, memory_order_relaxed);

    if (before == 0)
        return false;
    trim_all(device);
    if (atomic_load_explicit(&charged_total, memory_order_relaxed) < before)
        return true;
    if (gc_capture_is_any() || !wait_for_frees(device))
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
    return set_charged_locked(pool, 0, NULL);
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
    /* From here on until it is decided no call of ours names the pool. */
    if (gc_gate_claim(&pool->gate))
        gc_gate_close(&pool->gate);
    return pool;
}

void gc_mempool_destroy_end(struct gc_mempool *pool, CUmemoryPool handle, bool is_destroyed)
{
    int64_t change = 0;

    if (pool == NULL)
        return;
    struct gc_device *device = pool->device;
    bool is_prepared = is_destroyed || gc_handles_prepare();
    if (is_destroyed)
        gc_gate_set(&pool->gate, GC_GATE_GONE);
    else
        gc_gate_set(&pool->gate, GC_GATE_OPEN);
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
