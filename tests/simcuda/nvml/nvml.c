/* libnvidia-ml.so.1 of the simulated device: the same devices as the driver's, and their memory as
 * the driver accounts for it. It asks the driver through simcuda_* (driver/query.h), found at
 * nvmlInit; any other libcuda.so.1 has none of these, and nvmlInit reports that the driver is not
 * loaded.
 *
 * A device handle is the address of its ordinal's place in `handles`. SIMCUDA_NVML_ORDER=reverse
 * numbers the devices from the last: on a machine the order need not be the driver's. */
#include "nvml_inside.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64
#define UUID_LENGTH 40 /* "GPU-", 36 characters */

struct nvmlDevice_st {
    char unused;
};

static struct nvmlDevice_st handles[DEVICES_MAX];

struct nvml_driver sim;

static struct {
    pthread_mutex_t lock; /* guards init_count and the first look-up of the driver */
    unsigned init_count;
} life = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool find(void *library, const char *name, void *slot)
{
    void *function = dlsym(library, name);

    memcpy(slot, &function, sizeof(function));
    return function != NULL;
}

static bool find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    return library && find(library, "simcuda_device_count", &sim.count) &&
           find(library, "simcuda_driver_version", &sim.version) &&
           find(library, "simcuda_device_memory", &sim.memory) &&
           find(library, "simcuda_device_uuid", &sim.uuid) &&
           find(library, "simcuda_device_name", &sim.name) &&
           find(library, "simcuda_device_attribute", &sim.attribute) &&
           find(library, "simcuda_device_processes", &sim.processes);
}

bool nvml_is_up(void)
{
    bool up;

    pthread_mutex_lock(&life.lock);
    up = life.init_count > 0;
    pthread_mutex_unlock(&life.lock);
    return up;
}

/* ---- start and end ---- */

NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    nvmlReturn_t result = NVML_SUCCESS;

    (void)flags; /* they concern GPUs that cannot be reached: there are none */
    pthread_mutex_lock(&life.lock);
    if (life.init_count == 0 && !find_driver())
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    else
        life.init_count++;
    pthread_mutex_unlock(&life.lock);
    return result;
}

NVML_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

NVML_EXPORT nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

/* Documented to return NVML_ERROR_UNINITIALIZED where nothing was initialised; NVIDIA's, of CUDA
 * 12.2, returns success. */
NVML_EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&life.lock);
    if (life.init_count > 0)
        life.init_count--;
    pthread_mutex_unlock(&life.lock);
    return NVML_SUCCESS;
}

NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [0] = "Success",
        [1] = "Uninitialized",
        [2] = "Invalid Argument",
        [3] = "Not Supported",
        [4] = "Insufficient Permissions",
        [5] = "Already Initialized",
        [6] = "Not Found",
        [7] = "Insufficient Size",
        [8] = "Insufficient External Power",
        [9] = "Driver Not Loaded",
        [10] = "Timeout",
        [11] = "Interrupt Request Issue",
        [12] = "NVML Shared Library Not Found",
        [13] = "Function Not Found",
        [14] = "Corrupted infoROM",
        [15] = "GPU is lost",
        [16] = "GPU requires reset",
        [17] = "GPU access blocked by the operating system",
        [18] = "Driver/library version mismatch",
        [19] = "In use by another client",
        [20] = "Insufficient Memory",
        [21] = "No data",
        [22] = "vGPU ECC not supported",
        [23] = "Insufficient Resources",
        [24] = "Invalid Frequency",
        [25] = "Argument version mismatch",
        [26] = "Requested functionality has been deprecated",
        [27] = "System is not in ready state",
    };
    size_t code = (size_t)result;

    return code < sizeof(texts) / sizeof(texts[0]) ? texts[code] : "Unknown Error";
}

/* ---- the system ---- */

nvmlReturn_t nvml_put_text(char *to, unsigned length, const char *text)
{
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(to, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    char text[32];

    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    (void)snprintf(text, sizeof(text), "simulated-%d.%d", sim.version() / 1000,
                   sim.version() % 1000 / 10);
    return nvml_put_text(version, length, text);
}

/* A release branch, as r580_00 is one. */
NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_v1_t *branch,
                                                   unsigned length)
{
    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (!branch)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (branch->version != NVML_DRIVER_BRANCH_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (length > sizeof(branch->branch))
        length = sizeof(branch->branch);
    return nvml_put_text(branch->branch, length, "r000_00");
}

/* NVML's own, which needs no driver: in every state. */
NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    return nvml_put_text(version, length, "simulated");
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = sim.version();
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* ---- devices ---- */

int nvml_device_count(void)
{
    int count = sim.count();

    return count < DEVICES_MAX ? count : DEVICES_MAX;
}

/* The driver's number of the device that has this one here, and the other way round. */
static unsigned other_number(unsigned number)
{
    const char *order = getenv("SIMCUDA_NVML_ORDER");
    bool is_reverse = order && strcmp(order, "reverse") == 0;

    return is_reverse ? (unsigned)nvml_device_count() - 1 - number : number;
}

nvmlReturn_t nvml_check(nvmlDevice_t device, int *ordinal)
{
    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    for (int i = 0; i < nvml_device_count(); i++) {
        if (device == &handles[i]) {
            *ordinal = i;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned)nvml_device_count();
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= (unsigned)nvml_device_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &handles[other_number(index)];
    return NVML_SUCCESS;
}

nvmlDevice_t nvml_handle(int ordinal)
{
    return &handles[ordinal];
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void uuid_text(int ordinal, char text[UUID_LENGTH + 1])
{
    unsigned char u[16] = {0};

    (void)sim.uuid(ordinal, u);
    (void)snprintf(text, UUID_LENGTH + 1,
                   "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                   u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                   u[14], u[15]);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    char text[UUID_LENGTH + 1];

    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < nvml_device_count(); i++) {
        uuid_text(i, text);
        if (strcmp(text, uuid) == 0) {
            *device = &handles[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    char text[UUID_LENGTH + 1];
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    uuid_text(ordinal, text);
    return nvml_put_text(uuid, length, text);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    char text[96] = "";
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    (void)sim.name(ordinal, text, sizeof(text));
    return nvml_put_text(name, length, text);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = other_number((unsigned)ordinal);
    return NVML_SUCCESS;
}

/* ---- memory ---- */

static nvmlReturn_t memory_of(nvmlDevice_t device, nvmlMemory_t *memory)
{
    uint64_t used, total;
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!sim.memory(ordinal, &used, &total))
        return NVML_ERROR_UNKNOWN;
    *memory = (nvmlMemory_t){.total = total, .free = total - used, .used = used};
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    return memory_of(device, memory);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    nvmlReturn_t result;

    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (memory && memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = memory_of(device, memory ? &plain : NULL);
    if (result != NVML_SUCCESS)
        return result;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return NVML_SUCCESS;
}
