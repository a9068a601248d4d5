/* Stream-ordered pools: made, destroyed, trimmed, imported. A pool on a device is charged for the
 * bytes that the driver reserves in it; pools of other processes and on the host are only recorded,
 * so that allocations from them are not charged. A pool of managed memory is by GPUCACHE_MANAGED
 * like these, or charged to the device that it names or is current, or refused. */
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/mempool.h"
#include "shim/driver/capture_guard.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"

/* CU_MEM_ALLOCATION_TYPE_MANAGED, of CUDA 13, which older headers lack. */
#define ALLOCATION_MANAGED ((CUmemAllocationType)2)

/* The device whose memory a pool of that place takes; NULL: none. */
static struct gc_device *device_at(const CUmemLocation *location, CUmemAllocationType type)
{
    const bool is_on_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;

    if (type == ALLOCATION_MANAGED && gc_shim.options->managed == GC_MANAGED_LIMIT &&
        (gc_shim.options->overcommit & GC_OVERCOMMIT_SPILL) == 0)
        return is_on_device ? gc_account_device(location->id) : gc_account_current_device();
    if (!is_on_device || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return NULL;
    return gc_account_device(location->id);
}

static bool is_denied(CUmemAllocationType type, enum gc_api api)
{
    return type == ALLOCATION_MANAGED && gc_direct_denies_managed(api);
}

GC_EXPORT
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    if (!gc_life_ready() || pool == NULL || props == NULL)
        return GC_FORWARD(cuMemPoolCreate, pool, props);
    gc_shim_enter(GC_API_cuMemPoolCreate);
    struct gc_device *device = device_at(&props->location, props->allocType);
    CUresult result = is_denied(props->allocType, GC_API_cuMemPoolCreate)
                          ? CUDA_ERROR_NOT_SUPPORTED
                          : GC_CALL_RELIEVED(device, cuMemPoolCreate, pool, props);
    if (result == CUDA_SUCCESS) {
        struct gc_mempool *record = gc_mempool_find(*pool, device);
        if (record != NULL)
            gc_mempool_refresh_one(record);
    }
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    if (!gc_life_ready() || pool == NULL)
        return GC_FORWARD(cuMemPoolDestroy, pool);
    gc_shim_enter(GC_API_cuMemPoolDestroy);
    struct gc_mempool *record = gc_mempool_destroy_begin(pool);
    CUresult result =
        GC_CALL_RELIEVED(record ? gc_mempool_device(record) : NULL, cuMemPoolDestroy, pool);
    gc_mempool_destroy_end(record, pool, result == CUDA_SUCCESS);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemPoolTrimTo, pool, keep_bytes);
    gc_shim_enter(GC_API_cuMemPoolTrimTo);
    CUresult result =
        GC_CALL_RELIEVED(gc_account_current_device(), cuMemPoolTrimTo, pool, keep_bytes);
    if (result == CUDA_SUCCESS) {
        gc_mempool_refresh(NULL);
        struct gc_device *device = gc_mempool_plain_device(pool);
        if (device != NULL && !gc_capture_is_any())
            gc_reclaim_trim(gc_shim.core, device, keep_bytes);
    }
    gc_shim_leave();
    return result;
}

/* The part of the default pool's figure that the cache serves. */
static uint64_t served(CUmemPool_attribute attribute, const struct gc_device *device)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return gc_core_ordered_bytes(device);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return gc_core_ordered_peak_bytes(device, GC_ORDERED_USED);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return gc_core_ordered_peak_bytes(device, GC_ORDERED_RESERVED);
    default:
        return 0;
    }
}

GC_EXPORT
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemPoolGetAttribute, pool, attribute, value);
    gc_shim_enter(GC_API_cuMemPoolGetAttribute);
    struct gc_device *device = gc_mempool_plain_device(pool);
    CUresult result = GC_CALL_RELIEVED(device, cuMemPoolGetAttribute, pool, attribute, value);
    const uint64_t bytes = device == NULL ? 0 : served(attribute, device);
    if (result == CUDA_SUCCESS && bytes != 0)
        *(cuuint64_t *)value += bytes;
    gc_shim_leave();
    return result;
}

/* Opens the allocations served for the pool to the devices to which the pool itself is opened.
 * Withdrawn access stays: work that was queued before may still use the memory. */
static void open_served(struct gc_device *device, const CUmemAccessDesc *access, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            gc_backing_open_ordered(device, access[i].location.id);
}

GC_EXPORT
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemPoolSetAccess, pool, access, count);
    gc_shim_enter(GC_API_cuMemPoolSetAccess);
    CUresult result =
        GC_CALL_RELIEVED(gc_account_current_device(), cuMemPoolSetAccess, pool, access, count);
    struct gc_device *device = result == CUDA_SUCCESS ? gc_mempool_plain_device(pool) : NULL;
    if (device != NULL)
        open_served(device, access, count);
    gc_shim_leave();
    return result;
}

/* A lower release threshold may release memory. A high one needs no clamp: idle pool memory is
 * trimmed as soon as other memory needs the space. */
GC_EXPORT
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemPoolSetAttribute, pool, attribute, value);
    gc_shim_enter(GC_API_cuMemPoolSetAttribute);
    CUresult result = GC_CALL_RELIEVED(gc_account_current_device(), cuMemPoolSetAttribute, pool,
                                       attribute, value);
    if (result == CUDA_SUCCESS) {
        gc_mempool_refresh(NULL);
        struct gc_device *device = gc_mempool_plain_device(pool);
        if (device != NULL && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            gc_core_reset_ordered_peak(device, GC_ORDERED_USED);
        else if (device != NULL && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
            gc_core_reset_ordered_peak(device, GC_ORDERED_RESERVED);
    }
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuDeviceSetMemPool, ordinal, pool);
    gc_shim_enter(GC_API_cuDeviceSetMemPool);
    struct gc_device *device = gc_account_device(ordinal);
    CUresult result = GC_CALL_RELIEVED(device, cuDeviceSetMemPool, ordinal, pool);
    if (result == CUDA_SUCCESS && pool != NULL && device != NULL)
        (void)gc_mempool_find(pool, device);
    gc_shim_leave();
    return result;
}

/* The driver makes the pool of a place when it is first asked for. Nothing but the place says whose
 * memory it takes. */
#define GET_POOL(name)                                                                             \
    do {                                                                                           \
        if (!gc_life_ready() || pool == NULL || location == NULL)                                  \
            return GC_FORWARD(name, pool, location, type);                                         \
        gc_shim_enter(GC_API_##name);                                                              \
        struct gc_device *device = device_at(location, type);                                      \
        CUresult result = is_denied(type, GC_API_##name)                                           \
                              ? CUDA_ERROR_NOT_SUPPORTED                                           \
                              : GC_CALL_RELIEVED(device, name, pool, location, type);              \
        if (result == CUDA_SUCCESS)                                                                \
            (void)gc_mempool_find(*pool, device);                                                  \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type)
{
    GET_POOL(cuMemGetDefaultMemPool);
}

GC_EXPORT
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    GET_POOL(cuMemGetMemPool);
}

GC_EXPORT
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    if (!gc_life_ready() || pool == NULL)
        return GC_FORWARD(cuMemPoolImportFromShareableHandle, pool, handle, type, flags);
    gc_shim_enter(GC_API_cuMemPoolImportFromShareableHandle);
    CUresult result = GC_CALL_RELIEVED(
        gc_account_current_device(), cuMemPoolImportFromShareableHandle, pool, handle, type, flags);
    if (result == CUDA_SUCCESS)
        (void)gc_mempool_find(*pool, NULL);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemPoolImportPointer(CUdeviceptr *dptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemPoolImportPointer, dptr, pool, data);
    struct gc_direct_request request;
    gc_direct_begin(&request, GC_API_cuMemPoolImportPointer);
    CUresult result = GC_CALL_RELIEVED(request.device, cuMemPoolImportPointer, dptr, pool, data);
    if (result == CUDA_SUCCESS && dptr != NULL)
        gc_direct_record(&request, GC_DIRECT_IMPORT, *dptr, 0);
    return gc_direct_end(&request, result);
}
