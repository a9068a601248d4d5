/* Other queries of clients about a device: its place on the bus and its kind, from the driver;
 * modes as of a device nobody has set up; nothing to do. Properties that a simulated device cannot
 * have (heat, clocks, fans) are NOT_SUPPORTED, as NVML reports for devices without them:
 * not_supported.def. */
#include "nvml_inside.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Attributes of the driver. */
#define PCI_BUS_ID 33
#define PCI_DEVICE_ID 34
#define PCI_DOMAIN_ID 50
#define CAPABILITY_MAJOR 75
#define CAPABILITY_MINOR 76

#define GET(type, name, value)                                                                     \
    NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, type *to)                                   \
    {                                                                                              \
        int ordinal;                                                                               \
        nvmlReturn_t result = nvml_check(device, &ordinal);                                        \
                                                                                                   \
        if (result != NVML_SUCCESS)                                                                \
            return result;                                                                         \
        if (!to)                                                                                   \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
        *to = (value);                                                                             \
        return NVML_SUCCESS;                                                                       \
    }

/* ---- modes: off, default ---- */

GET(unsigned, nvmlDeviceGetPersistenceMode, 0)
GET(unsigned, nvmlDeviceGetComputeMode, 0)
GET(unsigned, nvmlDeviceGetDisplayMode, 0)
GET(unsigned, nvmlDeviceGetDisplayActive, 0)
GET(unsigned, nvmlDeviceIsMigDeviceHandle, 0)
GET(unsigned, nvmlDeviceGetMaxMigDeviceCount, 0)
GET(unsigned, nvmlDeviceGetMinorNumber, (unsigned)ordinal)
GET(nvmlUtilization_t, nvmlDeviceGetUtilizationRates, ((nvmlUtilization_t){0, 0}))

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current,
                                              unsigned *pending)
{
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = 0;
    return NVML_SUCCESS;
}

/* ---- what it is and where ---- */

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                            int *minor)
{
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = sim.attribute(ordinal, CAPABILITY_MAJOR);
    *minor = sim.attribute(ordinal, CAPABILITY_MINOR);
    return NVML_SUCCESS;
}

/* NVML_DEVICE_ARCH_VOLTA is 5; 7.5, Turing, is 6, Ampere 7, 8.9, Ada, 8, Hopper 9, Blackwell 10. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture)
{
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    if (!architecture)
        return NVML_ERROR_INVALID_ARGUMENT;
    int major = sim.attribute(ordinal, CAPABILITY_MAJOR);
    int minor = sim.attribute(ordinal, CAPABILITY_MINOR);
    *architecture = major >= 10  ? 10u
                    : major == 9 ? 9u
                    : major == 8 ? 7u + (minor == 9)
                                 : 5u + (minor == 5);
    return NVML_SUCCESS;
}

static void place(int ordinal, nvmlPciInfo_t *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->domain = (unsigned)sim.attribute(ordinal, PCI_DOMAIN_ID);
    pci->bus = (unsigned)sim.attribute(ordinal, PCI_BUS_ID);
    pci->device = (unsigned)sim.attribute(ordinal, PCI_DEVICE_ID);
    (void)snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0",
                   pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    (void)snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff,
                   pci->device & 0xff);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    if (!pci)
        return NVML_ERROR_INVALID_ARGUMENT;
    place(ordinal, pci);
    return NVML_SUCCESS;
}

/* The layouts agree up to where the older one has reserved words, which stay as they are. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t whole;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, pci ? &whole : NULL);

    if (result == NVML_SUCCESS)
        memcpy(pci, &whole, offsetof(nvmlPciInfo_v2_t, reserved));
    return result;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    return nvmlDeviceGetPciInfo_v2(device, pci);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device)
{
    nvmlPciInfo_t pci;

    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (!text || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < nvml_device_count(); i++) {
        place(i, &pci);
        if (strcasecmp(text, pci.busId) == 0 || strcasecmp(text, pci.busIdLegacy) == 0) {
            *device = nvml_handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

/* ---- what it is not ---- */

#define NOT_SUPPORTED(name)                                                                        \
    nvmlReturn_t name(nvmlDevice_t device);                                                        \
    NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device)                                             \
    {                                                                                              \
        int ordinal;                                                                               \
        nvmlReturn_t result = nvml_check(device, &ordinal);                                        \
                                                                                                   \
        return result != NVML_SUCCESS ? result : NVML_ERROR_NOT_SUPPORTED;                         \
    }
#include "not_supported.def"
