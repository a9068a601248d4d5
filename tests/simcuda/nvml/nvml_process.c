/* Processes that hold memory of a device. Contexts compute: there is no graphics, and no MPS. */
#include "nvml_inside.h"

#include <stdio.h>
#include <string.h>

#define PROCESSES_MAX 256

struct processes {
    unsigned count;
    unsigned pids[PROCESSES_MAX];
    uint64_t used[PROCESSES_MAX];
};

/* With too little room the caller learns how much it takes. */
static nvmlReturn_t processes_of(nvmlDevice_t device, unsigned *count, const void *infos,
                                 struct processes *found)
{
    unsigned room;
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    if (!count || (*count && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    room = *count;
    found->count = sim.processes(ordinal, PROCESSES_MAX, found->pids, found->used);
    if (found->count > PROCESSES_MAX)
        found->count = PROCESSES_MAX;
    *count = found->count;
    return found->count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_v1_t *infos)
{
    struct processes found;
    nvmlReturn_t result = processes_of(device, count, infos, &found);

    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < found.count; i++)
        infos[i] = (nvmlProcessInfo_v1_t){.pid = found.pids[i], .usedGpuMemory = found.used[i]};
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                 unsigned *count,
                                                                 nvmlProcessInfo_v2_t *infos)
{
    struct processes found;
    nvmlReturn_t result = processes_of(device, count, infos, &found);

    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < found.count; i++)
        infos[i] = (nvmlProcessInfo_v2_t){.pid = found.pids[i],
                                          .usedGpuMemory = found.used[i],
                                          .gpuInstanceId = ~0u,
                                          .computeInstanceId = ~0u};
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                 unsigned *count,
                                                                 nvmlProcessInfo_v2_t *infos)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

/* ---- of other kinds: none ---- */

static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned *count)
{
    int ordinal;
    nvmlReturn_t result = nvml_check(device, &ordinal);

    if (result != NVML_SUCCESS)
        return result;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

#define NO_PROCESSES(name, type)                                                                   \
    NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, type *infos)               \
    {                                                                                              \
        (void)infos;                                                                               \
        return no_processes(device, count);                                                        \
    }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t)

/* ---- of any kind ---- */

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                               nvmlProcessDetailList_v1_t *list)
{
    struct processes found;
    nvmlReturn_t result;

    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (!list)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (list->version != NVML_PROCESS_DETAIL_LIST_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (list->mode != 0)
        return list->mode > 2 ? NVML_ERROR_INVALID_ARGUMENT
                              : no_processes(device, &list->numProcArrayEntries);
    result = processes_of(device, &list->numProcArrayEntries, list->procArray, &found);
    for (unsigned i = 0; result == NVML_SUCCESS && i < found.count; i++)
        list->procArray[i] = (nvmlProcessDetail_v1_t){.pid = found.pids[i],
                                                      .usedGpuMemory = found.used[i],
                                                      .gpuInstanceId = ~0u,
                                                      .computeInstanceId = ~0u};
    return result;
}

/* ---- names ---- */

NVML_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[32], text[256] = "";
    FILE *file;

    if (!nvml_is_up())
        return NVML_ERROR_UNINITIALIZED;
    if (!name || length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    (void)snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    if (!fgets(text, sizeof(text), file)) /* the first argument ends with a zero byte */
        text[0] = '\0';
    (void)fclose(file);
    (void)snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}
