/* Stream-ordered allocation and the pools behind it. */
#include "runtime.h"

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps),
               "pool properties are passed on");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc),
               "access descriptions are passed on");
_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation), "locations are passed on");
_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData),
               "export data is passed on");

RT_API_PT(context, cudaMallocAsync, ptsz, (void **devPtr, size_t size, cudaStream_t hStream),
          (devPtr, size, hStream))
{
    CUdeviceptr address;

    if (!devPtr)
        return cudaErrorInvalidValue;
    RT_TRY_CU(RT_PICK(cuMemAllocAsync, ptsz)(&address, size, hStream));
    *devPtr = (void *)(uintptr_t)address;
    return cudaSuccess;
}

RT_API_PT(context, cudaMallocFromPoolAsync, ptsz,
          (void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream),
          (ptr, size, memPool, stream))
{
    CUdeviceptr address;

    if (!ptr)
        return cudaErrorInvalidValue;
    RT_TRY_CU(RT_PICK(cuMemAllocFromPoolAsync, ptsz)(&address, size, memPool, stream));
    *ptr = (void *)(uintptr_t)address;
    return cudaSuccess;
}

RT_API_PT(context, cudaFreeAsync, ptsz, (void *devPtr, cudaStream_t hStream), (devPtr, hStream))
{
    return rt_result(RT_PICK(cuMemFreeAsync, ptsz)((CUdeviceptr)(uintptr_t)devPtr, hStream));
}

/* ---- a device's pools ---- */

RT_API(driver, cudaDeviceGetDefaultMemPool, (cudaMemPool_t * memPool, int device),
       (memPool, device))
{
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuDeviceGetDefaultMemPool(memPool, device));
}

RT_API(driver, cudaDeviceGetMemPool, (cudaMemPool_t * memPool, int device), (memPool, device))
{
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuDeviceGetMemPool(memPool, device));
}

RT_API(driver, cudaDeviceSetMemPool, (int device, cudaMemPool_t memPool), (device, memPool))
{
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuDeviceSetMemPool(device, memPool));
}

RT_API(driver, cudaMemGetDefaultMemPool,
       (cudaMemPool_t * memPool, struct cudaMemLocation *location, enum cudaMemAllocationType type),
       (memPool, location, type))
{
    return rt_result(rt_cu.cuMemGetDefaultMemPool(memPool, (CUmemLocation *)location,
                                                  (CUmemAllocationType)type));
}

RT_API(driver, cudaMemGetMemPool,
       (cudaMemPool_t * memPool, struct cudaMemLocation *location, enum cudaMemAllocationType type),
       (memPool, location, type))
{
    return rt_result(
        rt_cu.cuMemGetMemPool(memPool, (CUmemLocation *)location, (CUmemAllocationType)type));
}

RT_API(driver, cudaMemSetMemPool,
       (struct cudaMemLocation * location, enum cudaMemAllocationType type, cudaMemPool_t memPool),
       (location, type, memPool))
{
    return rt_result(
        rt_cu.cuMemSetMemPool((CUmemLocation *)location, (CUmemAllocationType)type, memPool));
}

/* ---- pools ---- */

RT_API(driver, cudaMemPoolCreate,
       (cudaMemPool_t * memPool, const struct cudaMemPoolProps *poolProps), (memPool, poolProps))
{
    if (!memPool || !poolProps)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuMemPoolCreate(memPool, (const CUmemPoolProps *)poolProps));
}

RT_API(driver, cudaMemPoolDestroy, (cudaMemPool_t memPool), (memPool))
{
    return rt_result(rt_cu.cuMemPoolDestroy(memPool));
}

RT_API(driver, cudaMemPoolTrimTo, (cudaMemPool_t memPool, size_t minBytesToKeep),
       (memPool, minBytesToKeep))
{
    return rt_result(rt_cu.cuMemPoolTrimTo(memPool, minBytesToKeep));
}

RT_API(driver, cudaMemPoolGetAttribute,
       (cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value), (memPool, attr, value))
{
    return rt_result(rt_cu.cuMemPoolGetAttribute(memPool, (CUmemPool_attribute)attr, value));
}

RT_API(driver, cudaMemPoolSetAttribute,
       (cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value), (memPool, attr, value))
{
    return rt_result(rt_cu.cuMemPoolSetAttribute(memPool, (CUmemPool_attribute)attr, value));
}

RT_API(driver, cudaMemPoolSetAccess,
       (cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList, size_t count),
       (memPool, descList, count))
{
    return rt_result(rt_cu.cuMemPoolSetAccess(memPool, (const CUmemAccessDesc *)descList, count));
}

RT_API(driver, cudaMemPoolGetAccess,
       (enum cudaMemAccessFlags * flags, cudaMemPool_t memPool, struct cudaMemLocation *location),
       (flags, memPool, location))
{
    CUmemAccess_flags access;

    if (!flags || !location)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuMemPoolGetAccess(&access, memPool, (CUmemLocation *)location));
    *flags = (enum cudaMemAccessFlags)access;
    return cudaSuccess;
}

RT_API(driver, cudaMemPoolExportToShareableHandle,
       (void *shareableHandle, cudaMemPool_t memPool, enum cudaMemAllocationHandleType handleType,
        unsigned flags),
       (shareableHandle, memPool, handleType, flags))
{
    return rt_result(rt_cu.cuMemPoolExportToShareableHandle(
        shareableHandle, memPool, (CUmemAllocationHandleType)handleType, flags));
}

RT_API(driver, cudaMemPoolImportFromShareableHandle,
       (cudaMemPool_t * memPool, void *shareableHandle, enum cudaMemAllocationHandleType handleType,
        unsigned flags),
       (memPool, shareableHandle, handleType, flags))
{
    return rt_result(rt_cu.cuMemPoolImportFromShareableHandle(
        memPool, shareableHandle, (CUmemAllocationHandleType)handleType, flags));
}

RT_API(driver, cudaMemPoolExportPointer, (struct cudaMemPoolPtrExportData * exportData, void *ptr),
       (exportData, ptr))
{
    return rt_result(rt_cu.cuMemPoolExportPointer((CUmemPoolPtrExportData *)exportData,
                                                  (CUdeviceptr)(uintptr_t)ptr));
}

RT_API(driver, cudaMemPoolImportPointer,
       (void **ptr, cudaMemPool_t memPool, struct cudaMemPoolPtrExportData *exportData),
       (ptr, memPool, exportData))
{
    CUdeviceptr address;

    if (!ptr)
        return cudaErrorInvalidValue;
    RT_TRY_CU(
        rt_cu.cuMemPoolImportPointer(&address, memPool, (CUmemPoolPtrExportData *)exportData));
    *ptr = (void *)(uintptr_t)address;
    return cudaSuccess;
}
