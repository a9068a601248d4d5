/* The entry points on pools themselves: create, destroy, trim, attributes, access, the current pool
 * of a place. Sharing between processes: memory_pool_share.c. */
#include "memory_pool.h"

#include <string.h>

static bool has_attribute(CUdevice_attribute attribute)
{
    const struct sim_device *device = sim_device(0);

    return device != NULL && sim_device_attribute(attribute, device) != 0;
}

static uint64_t most_bytes(const CUmemPoolProps *props)
{
#if CUDA_VERSION >= 12020
    return props->maxSize;
#else
    return 0;
#endif
}

/* "CUmemAllocationHandleType must be CU_MEM_HANDLE_TYPE_NONE since IPC is not supported. … maxSize
 * must be set to zero … usage should be zero … all devices on the system must have non-zero
 * concurrentManagedAccess." */
static CUresult check_managed(const CUmemPoolProps *props)
{
    if (sim_settings()->driver_version < 13000 || props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        most_bytes(props) != 0 || props->usage != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return has_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_NOT_SUPPORTED;
}

/* "Pools created with the type CU_MEM_LOCATION_TYPE_HOST are not IPC capable and handleTypes must
 * be 0." */
static CUresult check_props(const CUmemPoolProps *props)
{
    bool is_host;

    if (props == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if ((int)props->location.type == SIM_LOCATION_DEVICE && sim_device(props->location.id) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (sim_pool_place(&props->location, props->allocType) == SIM_POOL_PLACES)
        return CUDA_ERROR_INVALID_VALUE;
    if ((int)props->allocType == SIM_POOL_MANAGED)
        return check_managed(props);
    is_host = (int)props->location.type == SIM_LOCATION_HOST;
    if (is_host && props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    if ((is_host && !has_attribute((CUdevice_attribute)144)) ||
        ((int)props->location.type == SIM_LOCATION_NUMA && !has_attribute((CUdevice_attribute)142)))
        return CUDA_ERROR_NOT_SUPPORTED;
    return props->handleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                   props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
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
    made = sim_pool_new(poolProps);
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

/* The place where the pool's memory is cannot lose its access. */
static bool is_at_home(const struct sim_pool *pool, const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return pool->device != NULL && location->id == pool->device->ordinal;
    return sim_pool_is_host(pool) &&
           ((int)location->type == SIM_LOCATION_HOST || (int)location->type == SIM_LOCATION_NUMA);
}

static CUresult set_access(struct sim_pool *pool, const CUmemAccessDesc *map, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bit = UINT64_C(1) << (map[i].location.id & 63);

        if (is_at_home(pool, &map[i].location)) {
            if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                return CUDA_ERROR_INVALID_VALUE;
            continue;
        }
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        if (sim_device(map[i].location.id) == NULL)
            return CUDA_ERROR_INVALID_DEVICE;
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
            (pool->device != NULL && !sim_settings()->has_peers))
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
    bool is_open = is_at_home(pool, location) || sim_pool_is_managed(pool);

    if (!is_open && location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device(location->id) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = is_open || (pool->writers >> (location->id & 63) & 1) != 0
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

/* ---- the pools of a device and of other places ---- */

static CUresult get_pool(CUmemoryPool *out, unsigned place, bool is_default)
{
    struct sim_pool *pool;

    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_memory_lock);
    pool = is_default ? sim_pool_default(place) : sim_pool_current(place);
    pthread_mutex_unlock(&sim_memory_lock);
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = sim_pool_handle(pool);
    return CUDA_SUCCESS;
}

/* "The location and allocation type specified must match those of the pool"; "imported memory pools
 * may not be used". */
static CUresult set_pool(struct sim_pool *pool, unsigned place)
{
    if (pool->is_imported || sim_pool_place(&pool->props.location, pool->props.allocType) != place)
        return CUDA_ERROR_INVALID_VALUE;
    sim_pool_set_current(place, pool);
    return CUDA_SUCCESS;
}

static CUresult get_device_pool(CUmemoryPool *out, CUdevice ordinal, bool is_default)
{
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (out != NULL && sim_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return get_pool(out, (unsigned)ordinal, is_default);
}

SIM_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool_out, CUdevice dev), (pool_out, dev), "%d",
        dev)
{
    return get_device_pool(pool_out, dev, true);
}

SIM_API(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice dev), (pool, dev), "%d", dev)
{
    return get_device_pool(pool, dev, false);
}

SIM_API(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool), (dev, pool), "%d %p", dev,
        (void *)pool)
{
    WITH_POOL(pool,
              sim_device(dev) == NULL ? CUDA_ERROR_INVALID_DEVICE : set_pool(found, (unsigned)dev));
}

#if CUDA_VERSION >= 13000
static CUresult find_place(const CUmemLocation *location, CUmemAllocationType type, unsigned *place)
{
    CUmemPoolProps props = {.allocType = type};
    CUresult result = sim_check_init();

    if (result != CUDA_SUCCESS)
        return result;
    if (location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    props.location = *location;
    *place = sim_pool_place(location, type);
    return check_props(&props);
}

SIM_API(cuMemGetDefaultMemPool,
        (CUmemoryPool * pool_out, CUmemLocation *location, CUmemAllocationType type),
        (pool_out, location, type), "%d", (int)type)
{
    unsigned place;
    CUresult result = find_place(location, type, &place);

    return result != CUDA_SUCCESS ? result : get_pool(pool_out, place, true);
}

SIM_API(cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
        (pool, location, type), "%d", (int)type)
{
    unsigned place;
    CUresult result = find_place(location, type, &place);

    return result != CUDA_SUCCESS ? result : get_pool(pool, place, false);
}

SIM_API(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),
        (location, type, pool), "%d %p", (int)type, (void *)pool)
{
    unsigned place;
    CUresult result = find_place(location, type, &place);

    if (result != CUDA_SUCCESS)
        return result;
    WITH_POOL(pool, set_pool(found, place));
}
#endif
