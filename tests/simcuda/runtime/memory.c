/* Device, host and managed memory, what a pointer is, and memory shared between processes. */
#include "runtime.h"

#include <string.h>

/* cuMemAllocPitch pads rows for accesses of this many bytes. */
#define PITCH_ELEMENT_BYTES 4

static CUdeviceptr device_pointer(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static void *host_view(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

RT_API(context, cudaMalloc, (void **devPtr, size_t size), (devPtr, size))
{
    CUdeviceptr address = 0;

    if (!devPtr)
        return cudaErrorInvalidValue;
    /* The driver refuses 0 bytes; the runtime gives NULL and succeeds. */
    if (size)
        RT_TRY_CU(rt_cu.cuMemAlloc_v2(&address, size));
    *devPtr = host_view(address);
    return cudaSuccess;
}

RT_API(context, cudaFree, (void *devPtr), (devPtr))
{
    return devPtr ? rt_result(rt_cu.cuMemFree_v2(device_pointer(devPtr))) : cudaSuccess;
}

static cudaError_t alloc_pitch(void **pointer, size_t *pitch, size_t width, size_t rows)
{
    CUdeviceptr address = 0;

    *pitch = 0;
    if (width && rows)
        RT_TRY_CU(rt_cu.cuMemAllocPitch_v2(&address, pitch, width, rows, PITCH_ELEMENT_BYTES));
    *pointer = host_view(address);
    return cudaSuccess;
}

RT_API(context, cudaMallocPitch, (void **devPtr, size_t *pitch, size_t width, size_t height),
       (devPtr, pitch, width, height))
{
    if (!devPtr || !pitch)
        return cudaErrorInvalidValue;
    return alloc_pitch(devPtr, pitch, width, height);
}

RT_API(context, cudaMalloc3D, (struct cudaPitchedPtr * pitched, struct cudaExtent extent),
       (pitched, extent))
{
    size_t rows;

    if (!pitched)
        return cudaErrorInvalidValue;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
        return cudaErrorMemoryAllocation;
    RT_TRY(alloc_pitch(&pitched->ptr, &pitched->pitch, extent.width, rows));
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    return cudaSuccess;
}

RT_API(context, cudaMemGetInfo, (size_t * free, size_t *total), (free, total))
{
    if (!free || !total)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuMemGetInfo_v2(free, total));
}

/* ---- managed ---- */

RT_API(context, cudaMallocManaged, (void **devPtr, size_t size, unsigned flags),
       (devPtr, size, flags))
{
    CUdeviceptr address;

    if (!devPtr || !size || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuMemAllocManaged(&address, size, flags));
    *devPtr = host_view(address);
    return cudaSuccess;
}

static CUmemLocation driver_location(struct cudaMemLocation location)
{
    CUmemLocation same = {.type = (CUmemLocationType)location.type, .id = location.id};

    return same;
}

RT_API_PT(context, cudaMemPrefetchAsync, ptsz,
          (const void *devPtr, size_t count, struct cudaMemLocation location, unsigned flags,
           cudaStream_t stream),
          (devPtr, count, location, flags, stream))
{
    return rt_result(RT_PICK(cuMemPrefetchAsync_v2, ptsz)(
        device_pointer(devPtr), count, driver_location(location), flags, stream));
}

RT_API(context, cudaMemAdvise,
       (const void *devPtr, size_t count, enum cudaMemoryAdvise advice,
        struct cudaMemLocation location),
       (devPtr, count, advice, location))
{
    return rt_result(rt_cu.cuMemAdvise_v2(device_pointer(devPtr), count, (CUmem_advise)advice,
                                          driver_location(location)));
}

RT_API(context, cudaMemRangeGetAttribute,
       (void *data, size_t dataSize, enum cudaMemRangeAttribute attribute, const void *devPtr,
        size_t count),
       (data, dataSize, attribute, devPtr, count))
{
    return rt_result(rt_cu.cuMemRangeGetAttribute(data, dataSize, (CUmem_range_attribute)attribute,
                                                  device_pointer(devPtr), count));
}

/* ---- host ---- */

static cudaError_t host_alloc(void **pointer, size_t size, unsigned flags)
{
    if (!pointer)
        return cudaErrorInvalidValue;
    if (!size) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return rt_result(rt_cu.cuMemHostAlloc(pointer, size, flags));
}

RT_API(context, cudaMallocHost, (void **ptr, size_t size), (ptr, size))
{
    return host_alloc(ptr, size, cudaHostAllocDefault);
}

RT_API(context, cudaHostAlloc, (void **pHost, size_t size, unsigned flags), (pHost, size, flags))
{
    if (flags &
        ~(unsigned)(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return cudaErrorInvalidValue;
    return host_alloc(pHost, size, flags);
}

RT_API(context, cudaFreeHost, (void *ptr), (ptr))
{
    return ptr ? rt_result(rt_cu.cuMemFreeHost(ptr)) : cudaSuccess;
}

RT_API(context, cudaHostRegister, (void *ptr, size_t size, unsigned flags), (ptr, size, flags))
{
    return rt_result(rt_cu.cuMemHostRegister_v2(ptr, size, flags));
}

RT_API(context, cudaHostUnregister, (void *ptr), (ptr))
{
    return rt_result(rt_cu.cuMemHostUnregister(ptr));
}

RT_API(context, cudaHostGetDevicePointer, (void **pDevice, void *pHost, unsigned flags),
       (pDevice, pHost, flags))
{
    CUdeviceptr address;

    if (!pDevice || flags)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuMemHostGetDevicePointer_v2(&address, pHost, flags));
    *pDevice = host_view(address);
    return cudaSuccess;
}

RT_API(context, cudaHostGetFlags, (unsigned *pFlags, void *pHost), (pFlags, pHost))
{
    return pFlags ? rt_result(rt_cu.cuMemHostGetFlags(pFlags, pHost)) : cudaErrorInvalidValue;
}

/* ---- what a pointer is ---- */

static enum cudaMemoryType memory_type(unsigned type, unsigned is_managed)
{
    if (is_managed)
        return cudaMemoryTypeManaged;
    if (type == CU_MEMORYTYPE_HOST)
        return cudaMemoryTypeHost;
    return type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
}

RT_API(context, cudaPointerGetAttributes,
       (struct cudaPointerAttributes * attributes, const void *ptr), (attributes, ptr))
{
    unsigned type = 0, is_managed = 0;
    int ordinal = cudaInvalidDeviceId;
    CUdeviceptr device = 0;
    void *host = NULL;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *values[] = {&type, &is_managed, &ordinal, &device, &host};

    if (!attributes)
        return cudaErrorInvalidValue;
    RT_TRY_CU(rt_cu.cuPointerGetAttributes(sizeof(names) / sizeof(names[0]), names, values,
                                           device_pointer(ptr)));
    memset(attributes, 0, sizeof(*attributes));
    attributes->type = memory_type(type, is_managed);
    if (attributes->type == cudaMemoryTypeUnregistered) {
        attributes->device = cudaInvalidDeviceId;
        /* Not checked: by the header it may be invalid. */
        attributes->hostPointer = (void *)(uintptr_t)ptr;
        return cudaSuccess;
    }
    attributes->device = ordinal;
    attributes->devicePointer = host_view(device);
    attributes->hostPointer = host;
    return cudaSuccess;
}

/* ---- between processes ---- */

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle),
               "IPC memory handles are passed on as they are");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle),
               "IPC event handles are passed on");

RT_API(context, cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *devPtr), (handle, devPtr))
{
    if (!handle)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuIpcGetMemHandle((CUipcMemHandle *)handle, device_pointer(devPtr)));
}

RT_API(context, cudaIpcOpenMemHandle, (void **devPtr, cudaIpcMemHandle_t handle, unsigned flags),
       (devPtr, handle, flags))
{
    CUipcMemHandle same;
    CUdeviceptr address;

    if (!devPtr)
        return cudaErrorInvalidValue;
    memcpy(&same, &handle, sizeof(same));
    RT_TRY_CU(rt_cu.cuIpcOpenMemHandle_v2(&address, same, flags));
    *devPtr = host_view(address);
    return cudaSuccess;
}

RT_API(context, cudaIpcCloseMemHandle, (void *devPtr), (devPtr))
{
    return rt_result(rt_cu.cuIpcCloseMemHandle(device_pointer(devPtr)));
}

RT_API(context, cudaIpcGetEventHandle, (cudaIpcEventHandle_t * handle, cudaEvent_t event),
       (handle, event))
{
    if (!handle)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuIpcGetEventHandle((CUipcEventHandle *)handle, event));
}

RT_API(context, cudaIpcOpenEventHandle, (cudaEvent_t * event, cudaIpcEventHandle_t handle),
       (event, handle))
{
    CUipcEventHandle same;

    if (!event)
        return cudaErrorInvalidValue;
    memcpy(&same, &handle, sizeof(same));
    return rt_result(rt_cu.cuIpcOpenEventHandle(event, same));
}
