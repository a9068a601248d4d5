/* The properties of a device: attributes, properties, its place on the bus, and the versions. None
 * of these calls makes a context. */
#include "runtime.h"

#include <stdio.h>
#include <string.h>

struct property {
    size_t offset;
    size_t bytes;
    CUdevice_attribute attribute;
};

static const struct property properties[] = {
#define RT_PROPERTY(field, attribute)                                                              \
    {offsetof(struct cudaDeviceProp, field), sizeof(((struct cudaDeviceProp *)NULL)->field),       \
     CU_DEVICE_ATTRIBUTE_##attribute},
#include "properties.def"
#undef RT_PROPERTY
};

static void property_put(struct cudaDeviceProp *prop, const struct property *property, int value)
{
    char *field = (char *)prop + property->offset;
    size_t wide = value < 0 ? 0 : (size_t)value;

    if (property->bytes == sizeof(size_t))
        memcpy(field, &wide, sizeof(wide));
    else
        memcpy(field, &value, sizeof(value));
}

RT_API(driver, cudaGetDeviceProperties, (struct cudaDeviceProp * prop, int device), (prop, device))
{
    CUuuid uuid;

    if (!prop)
        return cudaErrorInvalidValue;
    RT_TRY(rt_check_device(device));
    memset(prop, 0, sizeof(*prop));
    RT_TRY_CU(rt_cu.cuDeviceGetName(prop->name, (int)sizeof(prop->name), device));
    RT_TRY_CU(rt_cu.cuDeviceTotalMem_v2(&prop->totalGlobalMem, device));
    if (rt_cu.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS)
        memcpy(&prop->uuid, &uuid, sizeof(uuid));
    for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        int value = 0;

        /* An attribute that this driver does not know stays 0. */
        if (rt_cu.cuDeviceGetAttribute(&value, properties[i].attribute, device) == CUDA_SUCCESS)
            property_put(prop, &properties[i], value);
    }
    return cudaSuccess;
}

RT_API(driver, cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr attr, int device),
       (value, attr, device))
{
    if (!value)
        return cudaErrorInvalidValue;
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuDeviceGetAttribute(value, (CUdevice_attribute)attr, device));
}

RT_API(driver, cudaDeviceGetP2PAttribute,
       (int *value, enum cudaDeviceP2PAttr attr, int source, int destination),
       (value, attr, source, destination))
{
    if (!value)
        return cudaErrorInvalidValue;
    RT_TRY(rt_check_device(source));
    RT_TRY(rt_check_device(destination));
    return rt_result(
        rt_cu.cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attr, source, destination));
}

RT_API(driver, cudaDeviceGetByPCIBusId, (int *device, const char *pciBusId), (device, pciBusId))
{
    if (!device || !pciBusId)
        return cudaErrorInvalidValue;
    return rt_result(rt_cu.cuDeviceGetByPCIBusId(device, pciBusId));
}

RT_API(driver, cudaDeviceGetPCIBusId, (char *pciBusId, int length, int device),
       (pciBusId, length, device))
{
    if (!pciBusId || length <= 0)
        return cudaErrorInvalidValue;
    RT_TRY(rt_check_device(device));
    return rt_result(rt_cu.cuDeviceGetPCIBusId(pciBusId, length, device));
}

RT_API(driver, cudaChooseDevice, (int *device, const struct cudaDeviceProp *prop), (device, prop))
{
    if (!device || !prop)
        return cudaErrorInvalidValue;
    /* All simulated devices are alike: the first is as good a match as any. */
    *device = 0;
    return rt_check_device(0);
}

/* ---- versions ---- */

RT_API(nothing, cudaRuntimeGetVersion, (int *version), (version))
{
    if (!version)
        return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
}

RT_API(nothing, cudaDriverGetVersion, (int *version), (version))
{
    if (!version)
        return cudaErrorInvalidValue;
    /* Documented: 0, and no error, where there is no driver. */
    *version = 0;
    if (rt_driver_load() == cudaErrorInsufficientDriver && !rt_cu.cuDriverGetVersion)
        return cudaSuccess;
    return rt_result(rt_cu.cuDriverGetVersion(version));
}

/* ---- the driver's entry points ---- */

static cudaError_t entry_point(bool per_thread, const char *symbol, void **function,
                               unsigned version, unsigned long long flags,
                               enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result;

    if (!symbol || !function || flags > cudaEnablePerThreadDefaultStream)
        return cudaErrorInvalidValue;
    if (flags == cudaEnableDefault)
        flags = per_thread ? cudaEnablePerThreadDefaultStream : cudaEnableLegacyStream;
    result = rt_cu.cuGetProcAddress_v2(symbol, function, (int)version, flags, &found);
    if (result != CUDA_SUCCESS)
        *function = NULL;
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return result == CUDA_ERROR_NOT_FOUND ? cudaSuccess : rt_result(result);
}

RT_API_PT(driver, cudaGetDriverEntryPoint, ptsz,
          (const char *symbol, void **funcPtr, unsigned long long flags,
           enum cudaDriverEntryPointQueryResult *driverStatus),
          (symbol, funcPtr, flags, driverStatus))
{
    return entry_point(per_thread, symbol, funcPtr, CUDART_VERSION, flags, driverStatus);
}

RT_API_PT(driver, cudaGetDriverEntryPointByVersion, ptsz,
          (const char *symbol, void **funcPtr, unsigned cudaVersion, unsigned long long flags,
           enum cudaDriverEntryPointQueryResult *driverStatus),
          (symbol, funcPtr, cudaVersion, flags, driverStatus))
{
    return entry_point(per_thread, symbol, funcPtr, cudaVersion, flags, driverStatus);
}

/* ---- profiler: nothing to start here, and the driver decides the result ---- */

cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

RT_API_VOID(context, cudaProfilerStart)
{
    return rt_result(rt_cu.cuProfilerStart());
}

RT_API_VOID(context, cudaProfilerStop)
{
    return rt_result(rt_cu.cuProfilerStop());
}
