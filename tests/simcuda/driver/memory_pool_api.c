/* The entry points on pools themselves: create, destroy, trim, attributes, access, a device's
 * current pool.
 *
 * Sharing pools between processes is optional for a device
 * (CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES); this one supports no handle type, so those
 * entry points answer NOT_SUPPORTED. */
#include "memory_pool.h"

#include <string.h>

/* Runs `statement` on the pool of the handle with the lock held; an unknown handle is an invalid
 * value. */
#define WITH_POOL(handle, statement)                                                               \
    do {                                                                                           \
        struct sim_pool *found;                                                                    \
        CUresult outcome = sim_check_init();                                                       \
        if (outcome != CUDA_SUCCESS)                                                               \
            return outcome;                                                                        \
        pthread_rwlock_wrlock(&sim_use_lock);                                                      \
        pthread_mutex_lock(&sim_memory_lock);                                                      \
        found = sim_pool_find(handle);                                                             \
        outcome = found == NULL ? CUDA_ERROR_INVALID_VALUE : (statement);                          \
        pthread_mutex_unlock(&sim_memory_lock);                                                    \
        pthread_rwlock_unlock(&sim_use_lock);                                                      \
        return outcome;                                                                            \
    } while (0)

static CUresult check_props(const CUmemPoolProps *props)
{
    if (props == NULL || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (sim_device(props->location.id) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return props->handleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *poolProps), (pool, poolProps),
        "%p", pool == NULL || sim_result != CUDA_SUCCESS ? NULL : (void *)*pool)
{
    struct sim_pool *made;
    CUresult result = sim_check_init();

    if (result == CUDA_SUCCESS)
        result = pool == NULL ? CUDA_ERROR_INVALID_VALUE : check_props(poolProps);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&sim_memory_lock);
    made = sim_pool_new(sim_device(poolProps->location.id), poolProps);
    pthread_mutex_unlock(&sim_memory_lock);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = sim_pool_handle(made);
    return CUDA_SUCCESS;
}

static CUresult destroy(struct sim_pool *pool)
{
    if (pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    sim_pool_retire(pool);
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolDestroy, (CUmemoryPool pool), (pool), "%p", (void *)pool)
{
    WITH_POOL(pool, destroy(found));
}

static CUresult trim(struct sim_pool *pool, uint64_t keep)
{
    sim_pool_reap(pool);
    sim_pool_trim(pool, keep);
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t minBytesToKeep), (pool, minBytesToKeep),
        "%p %zu", (void *)pool, minBytesToKeep)
{
    WITH_POOL(pool, trim(found, minBytesToKeep));
}

/* ---- attributes ---- */

static int *find_switch(struct sim_pool *pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->follows_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->is_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->adds_dependencies;
    default:
        return NULL;
    }
}

static uint64_t *find_count(struct sim_pool *pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

/* High watermarks can only be reset, to what is current. */
static CUresult reset_high(struct sim_pool *pool, CUmemPool_attribute attribute, uint64_t value)
{
    if (value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_high = pool->used_bytes;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult set_attribute(struct sim_pool *pool, CUmemPool_attribute attribute,
                              const void *value)
{
    int *toggle = find_switch(pool, attribute);
    cuuint64_t count;

    if (toggle != NULL) {
        memcpy(toggle, value, sizeof *toggle);
        return CUDA_SUCCESS;
    }
    memcpy(&count, value, sizeof count);
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return reset_high(pool, attribute, count);
    pool->threshold = count;
    return CUDA_SUCCESS;
}

static CUresult get_attribute(struct sim_pool *pool, CUmemPool_attribute attribute, void *value)
{
    const int *toggle = find_switch(pool, attribute);
    const uint64_t *count = find_count(pool, attribute);

    if (toggle != NULL)
        memcpy(value, toggle, sizeof *toggle);
    else if (count != NULL)
        memcpy(value, count, sizeof *count);
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value),
        (pool, attr, value), "%p %d", (void *)pool, (int)attr)
{
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool, set_attribute(found, attr, value));
}

SIM_API(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value),
        (pool, attr, value), "%p %d", (void *)pool, (int)attr)
{
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool, get_attribute(found, attr, value));
}

/* ---- access ---- */

/* A pool's own device cannot lose its access. */
static CUresult set_access(struct sim_pool *pool, const CUmemAccessDesc *map, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bit = UINT64_C(1) << (map[i].location.id & 63);

        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        if (sim_device(map[i].location.id) == NULL)
            return CUDA_ERROR_INVALID_DEVICE;
        if (map[i].location.id == pool->device->ordinal) {
            if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                return CUDA_ERROR_INVALID_VALUE;
            continue;
        }
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ || !sim_settings()->has_peers)
            return CUDA_ERROR_INVALID_VALUE;
        pool->readers &= ~bit;
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            pool->readers |= bit;
        pool->writers = pool->readers;
    }
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count),
        (pool, map, count), "%p %zu", (void *)pool, count)
{
    if (map == NULL && count != 0)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool, set_access(found, map, count));
}

static CUresult get_access(const struct sim_pool *pool, CUmemAccess_flags *flags,
                           const CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(location->id) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags =
        location->id == pool->device->ordinal || (pool->writers >> (location->id & 63) & 1) != 0
            ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolGetAccess,
        (CUmemAccess_flags * flags, CUmemoryPool memPool, CUmemLocation *location),
        (flags, memPool, location), "%p", (void *)memPool)
{
    if (flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(memPool, get_access(found, flags, location));
}

/* ---- a device's pools ---- */

static CUresult get_pool(CUmemoryPool *out, CUdevice ordinal, bool is_default)
{
    struct sim_device *device;
    struct sim_pool *pool;
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&sim_memory_lock);
    pool = is_default ? sim_pool_default(device) : sim_pool_current(device);
    pthread_mutex_unlock(&sim_memory_lock);
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = sim_pool_handle(pool);
    return CUDA_SUCCESS;
}

/* A device's current pool must live on that device. */
static CUresult set_pool(struct sim_pool *pool, struct sim_device *device)
{
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    sim_pool_set_current(device, pool);
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool_out, CUdevice dev), (pool_out, dev), "%d",
        dev)
{
    return get_pool(pool_out, dev, true);
}

SIM_API(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice dev), (pool, dev), "%d", dev)
{
    return get_pool(pool, dev, false);
}

SIM_API(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool), (dev, pool), "%d %p", dev,
        (void *)pool)
{
    WITH_POOL(pool, set_pool(found, sim_device(dev)));
}

#if CUDA_VERSION >= 13000
static CUresult check_location(const CUmemLocation *location, CUmemAllocationType type)
{
    if (location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

SIM_API(cuMemGetDefaultMemPool,
        (CUmemoryPool * pool_out, CUmemLocation *location, CUmemAllocationType type),
        (pool_out, location, type), "%d", (int)type)
{
    CUresult result = check_location(location, type);

    return result != CUDA_SUCCESS ? result : get_pool(pool_out, location->id, true);
}

SIM_API(cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
        (pool, location, type), "%d", (int)type)
{
    CUresult result = check_location(location, type);

    return result != CUDA_SUCCESS ? result : get_pool(pool, location->id, false);
}

SIM_API(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),
        (location, type, pool), "%d %p", (int)type, (void *)pool)
{
    CUresult result = check_location(location, type);

    if (result != CUDA_SUCCESS)
        return result;
    WITH_POOL(pool, set_pool(found, sim_device(location->id)));
}
#endif

/* ---- sharing: not supported by this device ---- */

SIM_API(cuMemPoolExportToShareableHandle,
        (void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
         unsigned long long flags),
        (handle_out, pool, handleType, flags), "%p", (void *)pool)
{
    if (handle_out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void)handleType;
    WITH_POOL(pool, CUDA_ERROR_NOT_SUPPORTED);
}

SIM_API(cuMemPoolImportFromShareableHandle,
        (CUmemoryPool * pool_out, void *handle, CUmemAllocationHandleType handleType,
         unsigned long long flags),
        (pool_out, handle, handleType, flags), "%p", handle)
{
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    (void)handle;
    (void)handleType;
    return pool_out == NULL || flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API(cuMemPoolExportPointer, (CUmemPoolPtrExportData * shareData_out, CUdeviceptr ptr),
        (shareData_out, ptr), "0x%llx", ptr)
{
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    return shareData_out == NULL || ptr == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API(cuMemPoolImportPointer,
        (CUdeviceptr * ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData),
        (ptr_out, pool, shareData), "%p", (void *)pool)
{
    if (ptr_out == NULL || shareData == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool, CUDA_ERROR_NOT_SUPPORTED);
}
