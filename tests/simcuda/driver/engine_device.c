/* The properties of devices. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine.h"
#include "tests/simcuda/driver/query.h"
#include "tests/simcuda/driver/settings.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct attribute {
    int number, value;
} attributes[] = {
#define SIM_ATTRIBUTE(number, name, value) {number, value},
#include "tests/simcuda/driver/attributes.def"
#undef SIM_ATTRIBUTE
};

static CUresult device_attribute(int number, CUdevice device, int *value)
{
    const struct sim_private_settings *changes = sim_private_settings();

    for (size_t i = 0; i < changes->attribute_count; i++)
        if (changes->attributes[i].number == number) {
            *value = changes->attributes[i].value;
            return CUDA_SUCCESS;
        }
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
        if (attributes[i].number == number) {
            *value = number == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? device + 1 : attributes[i].value;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

int sim_device_attribute(CUdevice_attribute attribute, const struct sim_device *device)
{
    int value = 0;

    return device_attribute(attribute, device->ordinal, &value) == CUDA_SUCCESS ? value : 0;
}

/* The checks all of these share: initialised, the device exists, somewhere to put the answer. */
static CUresult check(CUdevice ordinal, const void *answer, struct sim_device **device)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    *device = sim_device(ordinal);
    if (!*device)
        return CUDA_ERROR_INVALID_DEVICE;
    return answer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuDeviceGetCount, (int *count), (count), "%p", (void *)count)
{
    CUresult result = sim_check_init();
    if (result)
        return result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = engine_device_count();
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal), "%d", ordinal)
{
    struct sim_device *found;
    CUresult result = check(ordinal, device, &found);
    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

SIM_API(cuDeviceGetName, (char *name, int length, CUdevice ordinal), (name, length, ordinal), "%d",
        ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, name, &device);
    if (result)
        return result;
    if (length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", device->name);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, uuid, &device);
    if (result == CUDA_SUCCESS)
        *uuid = device->uuid;
    return result;
}

SIM_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device), (uuid, device), "%d", device)
{
    return get_uuid(uuid, device);
}

SIM_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), (uuid, device), "%d", device)
{
    return get_uuid(uuid, device);
}

SIM_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice ordinal), (bytes, ordinal), "%d", ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, bytes, &device);
    if (result == CUDA_SUCCESS)
        *bytes = sim_settings()->memory_bytes;
    return result;
}

/* The 32-bit ABI saturates. */
SIM_API(cuDeviceTotalMem, (unsigned int *bytes, CUdevice ordinal), (bytes, ordinal), "%d", ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, bytes, &device);
    if (result == CUDA_SUCCESS)
        *bytes = sim_settings()->memory_bytes > UINT32_MAX ? UINT32_MAX
                                                           : (unsigned)sim_settings()->memory_bytes;
    return result;
}

SIM_API(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice ordinal),
        (value, attribute, ordinal), "%d %d", (int)attribute, ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, value, &device);
    return result ? result : device_attribute((int)attribute, ordinal, value);
}

SIM_API(cuDeviceComputeCapability, (int *major, int *minor, CUdevice ordinal),
        (major, minor, ordinal), "%d", ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, major && minor ? major : NULL, &device);
    if (result == CUDA_SUCCESS)
        result = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal, major);
    return result ? result
                  : device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal, minor);
}

SIM_API(cuDeviceGetProperties, (CUdevprop * properties, CUdevice ordinal), (properties, ordinal),
        "%d", ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, properties, &device);
    if (result)
        return result;
    const struct {
        CUdevice_attribute attribute;
        int *value;
    } rows[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &properties->maxThreadsPerBlock},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &properties->maxThreadsDim[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &properties->maxThreadsDim[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &properties->maxThreadsDim[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &properties->maxGridSize[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &properties->maxGridSize[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &properties->maxGridSize[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &properties->sharedMemPerBlock},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, &properties->totalConstantMemory},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &properties->SIMDWidth},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, &properties->memPitch},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &properties->regsPerBlock},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &properties->clockRate},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &properties->textureAlign},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && result == CUDA_SUCCESS; i++)
        result = device_attribute((int)rows[i].attribute, ordinal, rows[i].value);
    return result;
}

SIM_API(cuDeviceGetPCIBusId, (char *text, int length, CUdevice ordinal), (text, length, ordinal),
        "%d", ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, text, &device);
    if (result)
        return result;
    if (length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)ordinal + 1);
    return CUDA_SUCCESS;
}

/* [domain]:[bus]:[device].[function], [domain]:[bus]:[device] or [bus]:[device].[function] */
SIM_API(cuDeviceGetByPCIBusId, (CUdevice * device, const char *text), (device, text), "%s",
        text ? text : "(null)")
{
    unsigned domain = 0, bus, slot, function = 0;
    CUresult result = sim_check_init();
    if (result)
        return result;
    if (!device || !text)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) != 3)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (domain || slot || function || bus == 0 || !sim_device((CUdevice)bus - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = (CUdevice)bus - 1;
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetLuid, (char *luid, unsigned int *node_mask, CUdevice ordinal),
        (luid, node_mask, ordinal), "%d", ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, luid && node_mask ? luid : NULL, &device);
    return result ? result : CUDA_ERROR_NOT_SUPPORTED; /* Windows only */
}

SIM_API(cuDeviceGetExecAffinitySupport,
        (int *is_supported, CUexecAffinityType type, CUdevice ordinal),
        (is_supported, type, ordinal), "%d %d", (int)type, ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, is_supported, &device);
    if (result == CUDA_SUCCESS)
        *is_supported = 0;
    return result;
}

SIM_API(cuDeviceGetTexture1DLinearMaxWidth,
        (size_t * elements, CUarray_format format, unsigned channels, CUdevice ordinal),
        (elements, format, channels, ordinal), "%d %u %d", (int)format, channels, ordinal)
{
    struct sim_device *device;
    CUresult result = check(ordinal, elements, &device);
    int width = 0;
    if (result == CUDA_SUCCESS)
        result =
            device_attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, ordinal, &width);
    if (result == CUDA_SUCCESS)
        *elements = (size_t)width;
    return result;
}

__attribute__((visibility("default"))) int simcuda_device_attribute(int ordinal, int attribute)
{
    int value;

    return sim_device(ordinal) && !device_attribute(attribute, ordinal, &value) ? value : -1;
}
