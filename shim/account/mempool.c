/* Accounts of stream-ordered pools, by difference. The driver's
 * CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT is the size of a pool; a record keeps its charge. An update
 * reads the driver's figure without the lock and applies the difference under it; if another update
 * came between, it reads again.
 *
 * Calls of the library that name the pool are made inside its gate (core/base/gate.h); the thread
 * that destroys the pool closes the gate first.
 *
 * Records are linked once and never unlinked, so that a walk needs no lock; the record of a
 * destroyed pool is reused for the next new one.
 *
 * An allocation under way claims the part of a pool that it may take: idle memory, as far as its
 * stream may use that at once, and the growth of the pool. */
#include "shim/account/mempool.h"
#include "core/base/gate.h"
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/graph_memory.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/driver.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"

#define DEVICES_MAX 64
#define POOL_GRANULARITY (UINT64_C(2) << 20)
/* Reclaims per request: other threads may take the memory first. */
#define RECLAIM_ATTEMPTS 4
/* How long a request waits for memory that was freed in the order of streams. */
#define WAIT_NS UINT64_C(2000000000)

#define READ_ATTEMPTS 16
/* Values of freed_in that are no stream's. */
#define FREED_NOWHERE UINT64_C(0)
#define FREED_ANYWHERE UINT64_MAX

struct gc_mempool {
    struct gc_mempool *next;
    _Atomic(CUmemoryPool) handle; /* NULL once destroyed */
    struct gc_gate gate;          /* closed during the driver call that destroys it */
    struct gc_device *_Atomic device;
    /* Down to is_free: guarded by the handles' lock. */
    uint64_t charged;
    uint64_t ahead;    /* charged besides, for the growth that allocations under way may cause */
    uint64_t claimed;  /* the reserved_bytes of those allocations */
    uint64_t promised; /* their promised_bytes */
    uint64_t sequence;
    uint64_t live_count;
    bool is_free; /* serves no pool */
    /* The stream of the frees since all work was known to be done: their memory is idle for that
     * stream only. */
    _Atomic(uint64_t) freed_in;
};
_Static_assert(sizeof(struct gc_mempool) <= GC_HANDLE_RECORD_BYTES, "a pool fits a record");

static _Atomic(struct gc_mempool *) pools;
static atomic_uint_fast64_t charged_total; /* of all pools: nothing to update while 0 */

/* ---- the driver's pool, which another thread may be about to destroy ---- */

/* The handle stays valid until leave. NULL: the pool is destroyed; do not leave. */
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

/* False: the pool is destroyed or the driver returns no figure; *bytes is unchanged. No lock. */
static bool read_figure(struct gc_mempool *pool, CUmemPool_attribute attribute, uint64_t *bytes)
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
    gc_mempool_refresh_one(pool);
}

/* ---- records ---- */

static struct gc_mempool *alloc_record_locked(void)
{
    for (struct gc_mempool *pool = pools; pool != NULL; pool = pool->next)
        if (pool->is_free) {
            pool->is_free = false;
            gc_gate_renew(&pool->gate);
            return pool;
        }
    struct gc_mempool *pool = gc_handles_alloc_record_locked();
    if (pool != NULL) {
        pool->next = pools;
        atomic_store_explicit(&pools, pool, memory_order_release); /* pairs with first_pool */
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
        pool = alloc_record_locked();
        if (pool != NULL) {
            pool->live_count = 0;
            pool->freed_in = FREED_NOWHERE;
            pool->device = device;
            pool->handle = handle;
            gc_handles_set_locked(GC_HANDLE_POOL, (uintptr_t)handle, (uintptr_t)pool, 0);
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
    struct gc_device *current = gc_account_current_device();

    if (handle == NULL)
        return NULL;
    if (current != NULL && is_default_of(handle, current))
        return current;
    for (int i = 0; i < DEVICES_MAX; i++) {
        struct gc_device *device = gc_device_find(gc_shim.core, i);
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

/* ---- the charge ---- */

/* Sets the pool's charge to `bytes` under the lock, and ends a claim. Bytes that are charged and
 * not in the pool stay charged ahead, as far as the allocations under way may need them: an
 * allocation that claimed growth may have used the idle memory that another one was promised, or
 * the driver may have trimmed that memory; then the other allocation grows the pool. Returns the
 * change of the account. */
static int64_t set_charged_locked(struct gc_mempool *pool, uint64_t bytes,
                                  const struct gc_mempool_reservation *claim)
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
static int64_t follow(struct gc_mempool *pool, const struct gc_mempool_reservation *claim)
{
    for (int attempt = 0;; attempt++) {
        CUmemoryPool handle = pool->handle;
        gc_handles_lock();
        uint64_t sequence = pool->sequence;
        uint64_t bytes = pool->charged; /* unchanged if the driver returns no figure */
        gc_handles_unlock();
        (void)read_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
        gc_handles_lock();
        bool is_current =
            pool->handle == handle && (pool->sequence == sequence || attempt == READ_ATTEMPTS);
        int64_t change = is_current ? set_charged_locked(pool, bytes, claim) : 0;
        gc_handles_unlock();
        if (is_current)
            return change;
    }
}

bool gc_mempool_commit(struct gc_mempool *pool, struct gc_mempool_reservation *claim)
{
    struct gc_device *device = pool->device;

    if (device == NULL)
        return true;
    int64_t excess = follow(pool, claim);
    if (excess <= 0) {
        gc_direct_adjust(device, excess);
        return true;
    }
    if (gc_direct_try_charge(gc_shim.core, device, NULL, (uint64_t)excess))
        return true;
    gc_direct_adjust(device, excess);
    return false;
}

void gc_mempool_refresh_one(struct gc_mempool *pool)
{
    if (pool->device != NULL)
        gc_direct_adjust(pool->device, follow(pool, NULL));
}

static struct gc_mempool *first_pool(void)
{
    return atomic_load_explicit(&pools, memory_order_acquire); /* pairs with alloc_record_locked */
}

static bool holds_memory(void)
{
    return atomic_load_explicit(&charged_total, memory_order_relaxed) != 0;
}

void gc_mempool_refresh(const struct gc_device *device)
{
    if (!holds_memory())
        return;
    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next)
        if (device == NULL || pool->device == device)
            gc_mempool_refresh_one(pool);
}

static void trim_all(struct gc_device *device)
{
    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next)
        if (pool->device == device)
            gc_mempool_trim_one(pool);
}

/* Waits up to WAIT_NS for all work of the current context: then no memory freed before is
 * pending. */
static bool wait_for_frees(struct gc_device *device)
{
    const struct gc_context *context = gc_account_current_context();

    if (context == NULL)
        return false;
    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next)
        if (pool->device == device)
            atomic_store(&pool->freed_in, FREED_NOWHERE);
    if (gc_driver_wait(gc_context_handle(context), WAIT_NS) == CUDA_SUCCESS)
        return true;
    for (struct gc_mempool *pool = first_pool(); pool != NULL; pool = pool->next)
        atomic_store(&pool->freed_in, FREED_ANYWHERE);
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

/* Ends the charge of a destroyed pool with its last record; returns the bytes to uncharge. */
static int64_t free_if_done_locked(struct gc_mempool *pool)
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
    gc_mempool_refresh_one(pool);
    /* From here until the driver's result no call of the library names the pool. */
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
        change = free_if_done_locked(pool);
    } else if (is_prepared) {
        gc_handles_set_locked(GC_HANDLE_POOL, (uintptr_t)handle, (uintptr_t)pool, 0);
    }
    gc_handles_unlock();
    gc_direct_adjust(device, change);
}

void gc_mempool_record(struct gc_mempool *pool, uint64_t address)
{
    bool is_prepared = gc_handles_prepare();
    gc_handles_lock();
    const struct gc_handle *stale = gc_handles_find_locked(GC_HANDLE_ASYNC, address);
    if (stale != NULL) /* freed unseen, with its context */
        ((struct gc_mempool *)(uintptr_t)stale->value)->live_count--;
    if (is_prepared && gc_handles_set_locked(GC_HANDLE_ASYNC, address, (uintptr_t)pool, 0))
        pool->live_count++;
    gc_handles_unlock();
}

bool gc_mempool_remove(uint64_t address)
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
        change = free_if_done_locked(pool);
    }
    gc_handles_unlock();
    gc_direct_adjust(device, change);
    if (is_known && gc_direct_untrack(gc_shim.core, GC_DIRECT_ASYNC, address, &direct) != GC_OK)
        return true; /* the context's end removed core's record */
    return is_known;
}

/* ---- reclaim ---- */

bool gc_mempool_may_reclaim(void)
{
    return holds_memory() || gc_graph_is_expected();
}

bool gc_mempool_reclaim(struct gc_device *device)
{
    bool has_reclaimed = gc_mempool_trim(device);
    return gc_graph_trim(device) || has_reclaimed;
}

/* ---- the claims of allocations under way ---- */

/* A stream's identity; the per-thread stream is another one in each thread. Never a
 * FREED_ value.
 */
static uint64_t stream_key(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? (uintptr_t)&gc_thread : (uintptr_t)stream;
}

static void record_freed(struct gc_mempool *pool, uint64_t where)
{
    uint64_t seen = FREED_NOWHERE;

    if (!atomic_compare_exchange_strong(&pool->freed_in, &seen, where) && seen != where)
        atomic_store(&pool->freed_in, FREED_ANYWHERE);
}

void gc_mempool_on_free(uint64_t address, CUstream stream)
{
    struct gc_handle found;

    if (gc_handles_get(GC_HANDLE_ASYNC, address, &found))
        record_freed((struct gc_mempool *)(uintptr_t)found.value, stream_key(stream));
}

/* Whether an allocation in `stream` may use the pool's idle memory at once. */
static bool is_idle_for(const struct gc_mempool *pool, CUstream stream)
{
    uint64_t where = atomic_load(&pool->freed_in);
    return where == FREED_NOWHERE || where == stream_key(stream);
}

/* The pool's idle memory that is usable in `stream`, from figures between which no allocation was
 * committed; 0 if it is unknown, or if some of it was freed in another stream. Returns with the
 * lock held. */
static uint64_t read_idle_and_lock(struct gc_mempool *pool, CUstream stream)
{
    uint64_t reserved = 0, used = 0;

    for (int attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
        gc_handles_lock();
        uint64_t sequence = pool->sequence;
        gc_handles_unlock();
        bool is_read = is_idle_for(pool, stream) &&
                       read_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
                       read_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) &&
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
                         struct gc_mempool_reservation *claim)
{
    uint64_t idle = read_idle_and_lock(pool, claim->stream);

    idle = idle > pool->promised ? idle - pool->promised : 0;
    if (idle < bytes && !in_part)
        idle = 0;
    claim->promised_bytes = idle < bytes ? idle : bytes;
    pool->promised += claim->promised_bytes;
    gc_handles_unlock();
}

static void end_promise(struct gc_mempool *pool, struct gc_mempool_reservation *claim)
{
    if (claim->promised_bytes == 0)
        return;
    gc_handles_lock();
    pool->promised -= claim->promised_bytes;
    gc_handles_unlock();
    claim->promised_bytes = 0;
}

static void add_reservation(struct gc_mempool *pool, uint64_t bytes,
                            struct gc_mempool_reservation *claim)
{
    gc_handles_lock();
    pool->claimed += bytes;
    pool->ahead += bytes;
    gc_handles_unlock();
    claim->reserved_bytes = bytes;
}

static bool try_reserve(struct gc_mempool *pool, uint64_t bytes,
                        struct gc_mempool_reservation *claim)
{
    if (!gc_direct_try_charge(gc_shim.core, pool->device, NULL, bytes))
        return false;
    add_reservation(pool, bytes, claim);
    return true;
}

bool gc_mempool_reserve(struct gc_mempool *pool, uint64_t bytes,
                        struct gc_mempool_reservation *claim)
{
    struct gc_device *device = pool->device;

    if (device == NULL || gc_device_limit_bytes(device) == UINT64_MAX)
        return true;
    uint64_t rounded = bytes > UINT64_MAX - POOL_GRANULARITY
                           ? bytes
                           : (bytes + POOL_GRANULARITY - 1) & ~(POOL_GRANULARITY - 1);
    promise_idle(pool, rounded, false, claim);
    if (claim->promised_bytes != 0 || try_reserve(pool, rounded, claim))
        return true;
    bool may_fit = rounded <= gc_device_limit_bytes(device);
    for (int i = 0; may_fit && i < RECLAIM_ATTEMPTS && gc_mempool_reclaim(device); i++)
        if (try_reserve(pool, rounded, claim))
            return true;
    /* Idle memory that shares a segment with memory in use could not be released. */
    promise_idle(pool, rounded, true, claim);
    uint64_t growth = rounded - claim->promised_bytes;
    if (growth == 0 || gc_direct_charge_device(gc_shim.core, device, NULL, growth) == GC_OK) {
        add_reservation(pool, growth, claim);
        return true;
    }
    end_promise(pool, claim);
    return false;
}
