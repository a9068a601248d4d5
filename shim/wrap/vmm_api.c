/* Virtual memory management: physical handles made here are charged until references and mappings
 * are gone (shim/account/physical.c); imported and multicast ones are recorded and not charged.
 * Address ranges cost nothing.
 *
 * The program sees the pool's memory, and blocks of other processes that it has open, as plain
 * memory, also where mappings lie beneath: calls about mappings return the result that they return
 * for plain memory. */
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/physical.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

typedef CUmemGenericAllocationHandle handle_t;

/* The device whose memory the handle takes; NULL: none. */
static struct gc_device *device_of(const CUmemAllocationProp *prop)
{
    return prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? gc_account_device(prop->location.id)
                                                              : NULL;
}

/* An address that no mapping can have, passed in place of a pool address: the driver then returns
 * its error for plain memory. */
#define ADDRESS_PLAIN ((CUdeviceptr)1 << 20)

static bool is_pool_memory(CUdeviceptr dptr)
{
    struct gc_block_info block;

    return gc_lookup_block(gc_shim.core, dptr, &block) != GC_NOT_OURS ||
           gc_import_find(gc_shim.core, dptr, &block);
}

GC_EXPORT
CUresult cuMemCreate(handle_t *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    if (!gc_life_ready() || handle == NULL || prop == NULL || bytes == 0)
        return GC_FORWARD(cuMemCreate, handle, bytes, prop, flags);
    struct gc_device *device = device_of(prop);
    if (device == NULL)
        return GC_FORWARD(cuMemCreate, handle, bytes, prop, flags);
    struct gc_direct_request request;
    GC_SET_CALLER();
    gc_direct_begin(&request, GC_API_cuMemCreate);
    request.device = device;
    CUresult result = gc_direct_charge(&request, bytes);
    if (result == CUDA_SUCCESS)
        result = GC_DIRECT_CALL(&request, bytes, cuMemCreate, handle, bytes, prop, flags);
    if (result == CUDA_SUCCESS && !gc_physical_add(&request, GC_DIRECT_HANDLE, *handle, bytes))
        result = GC_DIRECT_GIVE_BACK(&request, cuMemRelease, *handle);
    return gc_direct_end(&request, result);
}

GC_EXPORT
CUresult cuMemRelease(handle_t handle)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemRelease, handle);
    gc_shim_enter(GC_API_cuMemRelease);
    void *record = gc_physical_release_begin(handle);
    CUresult result = GC_CALL_RELIEVED(gc_account_current_device(), cuMemRelease, handle);
    gc_physical_release_end(record, handle, result == CUDA_SUCCESS);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemRetainAllocationHandle(handle_t *handle, void *address)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemRetainAllocationHandle, handle, address);
    gc_shim_enter(GC_API_cuMemRetainAllocationHandle);
    if (is_pool_memory((uintptr_t)address))
        address = (void *)(uintptr_t)ADDRESS_PLAIN;
    CUresult result =
        GC_CALL_RELIEVED(gc_account_current_device(), cuMemRetainAllocationHandle, handle, address);
    if (result == CUDA_SUCCESS && handle != NULL)
        gc_physical_retain(*handle, (uintptr_t)address);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemMap(CUdeviceptr dptr, size_t bytes, size_t offset, handle_t handle,
                  unsigned long long flags)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemMap, dptr, bytes, offset, handle, flags);
    struct gc_direct_request request;
    gc_direct_begin(&request, GC_API_cuMemMap);
    if (is_pool_memory(dptr))
        return gc_direct_end(&request, CUDA_ERROR_INVALID_VALUE);
    CUresult result = GC_DIRECT_CALL(&request, 0, cuMemMap, dptr, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        gc_physical_map(handle, dptr, bytes);
    return gc_direct_end(&request, result);
}

GC_EXPORT
CUresult cuMemUnmap(CUdeviceptr dptr, size_t bytes)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemUnmap, dptr, bytes);
    gc_shim_enter(GC_API_cuMemUnmap);
    if (is_pool_memory(dptr)) {
        gc_shim_leave();
        return CUDA_ERROR_INVALID_VALUE;
    }
    gc_physical_unmap_begin(dptr, bytes);
    CUresult result = GC_CALL_RELIEVED(gc_account_current_device(), cuMemUnmap, dptr, bytes);
    gc_physical_unmap_end(dptr, bytes, result == CUDA_SUCCESS);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemAddressFree(CUdeviceptr dptr, size_t bytes)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemAddressFree, dptr, bytes);
    gc_shim_enter(GC_API_cuMemAddressFree);
    CUresult result = is_pool_memory(dptr) ? CUDA_ERROR_INVALID_VALUE
                                           : GC_CALL_RELIEVED(gc_account_current_device(),
                                                              cuMemAddressFree, dptr, bytes);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemSetAccess(CUdeviceptr dptr, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemSetAccess, dptr, bytes, access, count);
    gc_shim_enter(GC_API_cuMemSetAccess);
    CUresult result = is_pool_memory(dptr)
                          ? CUDA_ERROR_INVALID_VALUE
                          : GC_CALL_RELIEVED(gc_account_current_device(), cuMemSetAccess, dptr,
                                             bytes, access, count);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr dptr)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemGetAccess, flags, location, dptr);
    gc_shim_enter(GC_API_cuMemGetAccess);
    CUresult result = GC_CALL_RELIEVED(gc_account_current_device(), cuMemGetAccess, flags, location,
                                       is_pool_memory(dptr) ? ADDRESS_PLAIN : dptr);
    gc_shim_leave();
    return result;
}

/* ---- sparse arrays ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 32);
}

/* Names a tile by its array, level, layer and offset. */
static uint64_t tile_of(const CUarrayMapInfo *info)
{
    uint64_t hash = mix((uint64_t)info->subresourceType, (uintptr_t)info->resource.array);

    if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
        return mix(mix(hash, info->subresource.miptail.layer), info->subresource.miptail.offset);
    hash = mix(mix(hash, info->subresource.sparseLevel.level), info->subresource.sparseLevel.layer);
    hash = mix(mix(hash, info->subresource.sparseLevel.offsetX),
               info->subresource.sparseLevel.offsetY);
    return mix(hash, info->subresource.sparseLevel.offsetZ);
}

static void follow_tiles(const CUarrayMapInfo *list, unsigned count)
{
    for (unsigned i = 0; list != NULL && i < count; i++) {
        if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
            gc_physical_map_tile(list[i].memHandle.memHandle, tile_of(&list[i]),
                                 (uintptr_t)list[i].resource.array);
        else
            gc_physical_unmap_tile(tile_of(&list[i]));
    }
}

#define MAP_ARRAY(symbol, is_per_thread)                                                           \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_SUBMIT_CALL_IF_OPEN(stream, is_per_thread, NOTHING,                          \
                                          GC_FORWARD(symbol, list, count, stream));                \
        gc_shim_enter(GC_API_##symbol);                                                            \
        CUresult result = GC_SUBMIT_CALL_IF_OPEN(                                                  \
            stream, is_per_thread, NOTHING,                                                        \
            GC_CALL_RELIEVED(gc_account_current_device(), symbol, list, count, stream));           \
        if (result == CUDA_SUCCESS)                                                                \
            follow_tiles(list, count);                                                             \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned count, CUstream stream)
{
    MAP_ARRAY(cuMemMapArrayAsync, false);
}

GC_EXPORT
CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned count, CUstream stream)
{
    MAP_ARRAY(cuMemMapArrayAsync_ptsz, true);
}

/* ---- shared with others ---- */

/* Memory that was exported lives on in its importers after it is released here; this process's
 * charge still ends with its own references and mappings. */
GC_EXPORT
CUresult cuMemExportToShareableHandle(void *shareable, handle_t handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemExportToShareableHandle, shareable, handle, type, flags);
    gc_shim_enter(GC_API_cuMemExportToShareableHandle);
    CUresult result = GC_CALL_RELIEVED(gc_account_current_device(), cuMemExportToShareableHandle,
                                       shareable, handle, type, flags);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemImportFromShareableHandle(handle_t *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMemImportFromShareableHandle, handle, os_handle, type);
    struct gc_direct_request request;
    gc_direct_begin(&request, GC_API_cuMemImportFromShareableHandle);
    CUresult result =
        GC_CALL_RELIEVED(request.device, cuMemImportFromShareableHandle, handle, os_handle, type);
    if (result == CUDA_SUCCESS && handle != NULL)
        gc_physical_add(&request, GC_DIRECT_IMPORT, *handle, 0);
    return gc_direct_end(&request, result);
}

GC_EXPORT
CUresult cuMulticastCreate(handle_t *handle, const CUmulticastObjectProp *prop)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuMulticastCreate, handle, prop);
    struct gc_direct_request request;
    gc_direct_begin(&request, GC_API_cuMulticastCreate);
    CUresult result = GC_CALL_RELIEVED(request.device, cuMulticastCreate, handle, prop);
    if (result == CUDA_SUCCESS && handle != NULL)
        gc_physical_add(&request, GC_DIRECT_IMPORT, *handle, 0);
    return gc_direct_end(&request, result);
}

/* Bound pages would stay bound after the block was freed. One wrapper body for both ABIs. */
#define BIND_ADDRESS(symbol, dptr, ...)                                                            \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        gc_shim_enter(GC_API_##symbol);                                                            \
        CUresult result = is_pool_memory(dptr) ? CUDA_ERROR_INVALID_VALUE                          \
                                               : GC_CALL_RELIEVED(gc_account_current_device(),     \
                                                                  symbol, __VA_ARGS__);            \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuMulticastBindAddr(handle_t handle, size_t offset, CUdeviceptr dptr, size_t bytes,
                             unsigned long long flags)
{
    BIND_ADDRESS(cuMulticastBindAddr, dptr, handle, offset, dptr, bytes, flags);
}

GC_EXPORT
CUresult cuMulticastBindAddr_v2(handle_t handle, CUdevice device, size_t offset, CUdeviceptr dptr,
                                size_t bytes, unsigned long long flags)
{
    BIND_ADDRESS(cuMulticastBindAddr_v2, dptr, handle, device, offset, dptr, bytes, flags);
}
