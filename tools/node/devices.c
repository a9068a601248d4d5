#include "tools/node/devices.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"
#define PREFIX_LENGTH 4 /* "GPU-" or "MIG-": CUDA uses the former for instances, too */

struct memory {
    unsigned long long total, free, used;
};

static void open_nvml(struct node_devices *devices)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    int (*start)(void) = NULL;
    devices->is_tried = true;
    if (library == NULL)
        return;
    *(void **)&start = dlsym(library, "nvmlInit_v2");
    *(void **)&devices->find = dlsym(library, "nvmlDeviceGetHandleByUUID");
    *(void **)&devices->name = dlsym(library, "nvmlDeviceGetName");
    *(void **)&devices->memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
    devices->is_open = start != NULL && devices->find != NULL && devices->name != NULL &&
                       devices->memory != NULL && start() == 0;
}

static bool find(const struct node_devices *devices, const char *uuid,
                 struct nvmlDevice_st **device)
{
    char instance[GC_LEDGER_UUID_BYTES];
    if (devices->find(uuid, device) == 0)
        return true;
    if (strlen(uuid) <= PREFIX_LENGTH)
        return false;
    snprintf(instance, sizeof(instance), "MIG-%s", uuid + PREFIX_LENGTH);
    return devices->find(instance, device) == 0;
}

enum node_device_answer node_devices_check(struct node_devices *devices,
                                           struct gc_ledger_device *device)
{
    struct nvmlDevice_st *found = NULL;
    struct memory memory = {.total = 0};
    char name[GC_LEDGER_NAME_BYTES] = "";
    if (!devices->is_tried)
        open_nvml(devices);
    if (!devices->is_open)
        return NODE_DEVICE_NO_NVML;
    if (!find(devices, device->uuid, &found) || devices->memory(found, &memory) != 0)
        return NODE_DEVICE_UNKNOWN;
    device->total_bytes = memory.total;
    if (devices->name(found, name, sizeof(name)) == 0)
        snprintf(device->name, sizeof(device->name), "%s", name);
    return NODE_DEVICE_KNOWN;
}
