/* Measuring by difference: see measure.h. */
#include "shim/account/measure.h"
#include "shim/account/device.h"
#include "shim/account/helper.h"
#include "shim/account/primary.h"
#include "shim/deep.h"
#include "shim/driver/capture_guard.h"
#include "shim/real/nvml.h"
#include "shim/real/resolve.h"

#include <string.h>
#include <unistd.h>

#define PROCESSES_MAX 512

static atomic_flag unmeasured_logged = ATOMIC_FLAG_INIT;

/* ---- NVML ---- */

/* NVML counts its starts: a start and a stop leave the program's own start in force. */
static bool start_nvml(bool may_load)
{
    return gc_nvml_open(may_load) && GC_REAL(nvmlInit_v2) != NULL &&
           GC_REAL(nvmlShutdown) != NULL && GC_REAL(nvmlDeviceGetHandleByUUID) != NULL &&
           GC_REAL(nvmlDeviceGetMemoryInfo) != NULL && GC_REAL(nvmlInit_v2)() == GC_NVML_SUCCESS;
}

static void stop_nvml(void)
{
    (void)GC_REAL(nvmlShutdown)();
}

static struct nvmlDevice_st *find_device(const struct gc_device *device)
{
    char uuid[sizeof(((struct gc_device_info *)NULL)->uuid)];
    struct nvmlDevice_st *handle;

    memcpy(uuid, gc_device_get_info(device)->uuid, sizeof(uuid));
    int error = GC_REAL(nvmlDeviceGetHandleByUUID)(uuid, &handle);
    if (error != 0 && strncmp(uuid, "GPU-", 4) == 0) {
        memcpy(uuid, "MIG-", 4); /* the driver names an instance by its own UUID */
        error = GC_REAL(nvmlDeviceGetHandleByUUID)(uuid, &handle);
    }
    return error == 0 ? handle : NULL;
}

static bool read_nvml(const struct gc_device *device, uint64_t *free_bytes)
{
    struct nvmlDevice_st *handle = find_device(device);
    struct gc_nvml_memory memory;

    if (handle == NULL || GC_REAL(nvmlDeviceGetMemoryInfo)(handle, &memory) != 0)
        return false;
    *free_bytes = memory.free;
    return true;
}

struct search {
    const struct gc_device *device;
    uint64_t bytes;
    bool is_found;
};

/* NVML may not list this process: before its first context, or in another PID namespace. Call with
 * NVML started. */
static void find_process(void *argument)
{
    struct search *search = argument;
    struct nvmlDevice_st *handle = find_device(search->device);
    struct gc_nvml_process processes[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;

    if (handle == NULL || GC_REAL(nvmlDeviceGetComputeRunningProcesses_v3) == NULL ||
        GC_REAL(nvmlDeviceGetComputeRunningProcesses_v3)(handle, &count, processes) !=
            GC_NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < count && i < PROCESSES_MAX && !search->is_found; i++)
        if (processes[i].pid == (unsigned)getpid()) {
            search->bytes = processes[i].used;
            search->is_found = true;
        }
    if (search->bytes > gc_device_get_info(search->device)->total_bytes)
        search->is_found = false; /* all ones: not known */
}

/* Loading NVML takes time: only for a limit, or for an estimate that is compared with the
 * figure. */
static bool may_load(const struct gc_device *device)
{
    return gc_shim.has_model || gc_device_limit_bytes(device) != UINT64_MAX;
}

static bool read_process(const struct gc_device *device, uint64_t *bytes)
{
    struct search search = {.device = device};

    if (!start_nvml(may_load(device)))
        return false;
    gc_deep_run(find_process, &search);
    stop_nvml();
    *bytes = search.bytes;
    return search.is_found;
}

static bool begin_nvml(const struct gc_device *device, uint64_t *free_bytes)
{
    if (!start_nvml(may_load(device)))
        return false;
    if (read_nvml(device, free_bytes))
        return true;
    stop_nvml();
    return false;
}

static bool end_nvml(const struct gc_device *device, uint64_t *free_bytes)
{
    bool is_read = read_nvml(device, free_bytes);

    stop_nvml();
    return is_read;
}

/* ---- the driver ---- */

static bool read_current(struct gc_device *device, uint64_t *free_bytes)
{
    struct gc_capture_guard guard;
    size_t available = 0, total = 0;

    gc_capture_relax(&guard);
    CUresult result = GC_CALL(device, cuMemGetInfo_v2, &available, &total);
    gc_capture_restore(&guard);
    *free_bytes = available;
    if (result == CUDA_SUCCESS)
        gc_device_note_free(device, available);
    return result == CUDA_SUCCESS;
}

static void release_primary(struct gc_device *device, CUdevice ordinal)
{
    if (GC_HAVE(cuDevicePrimaryCtxRelease_v2))
        (void)GC_CALL(device, cuDevicePrimaryCtxRelease_v2, ordinal);
    else
        (void)GC_CALL(device, cuDevicePrimaryCtxRelease, ordinal);
}

/* Reads in the primary context if that is active; the reference keeps it from being destroyed. */
static bool read_primary_in_turn(struct gc_device *device, CUdevice ordinal, uint64_t *free_bytes)
{
    bool is_read = false;
    unsigned flags;
    int is_active = 0;
    CUcontext context;

    if (GC_USE(cuDevicePrimaryCtxGetState, ordinal, &flags, &is_active) != CUDA_SUCCESS ||
        !is_active)
        return false;
    if (GC_CALL(device, cuDevicePrimaryCtxRetain, &context, ordinal) != CUDA_SUCCESS)
        return false;
    if (GC_USE(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS) {
        is_read = read_current(device, free_bytes);
        (void)GC_USE(cuCtxPopCurrent_v2, &context);
    }
    release_primary(device, ordinal);
    return is_read;
}

static bool read_primary(struct gc_device *device, uint64_t *free_bytes)
{
    CUdevice ordinal = gc_device_get_info(device)->ordinal;

    gc_primary_lock(ordinal);
    const bool is_read = read_primary_in_turn(device, ordinal, free_bytes);
    gc_primary_unlock(ordinal);
    return is_read;
}

static bool is_current_device(const struct gc_device *device)
{
    CUdevice ordinal;

    return GC_USE(cuCtxGetDevice, &ordinal) == CUDA_SUCCESS &&
           ordinal == gc_device_get_info(device)->ordinal;
}

static bool read_driver(struct gc_device *device, uint64_t *free_bytes)
{
    return is_current_device(device) ? read_current(device, free_bytes)
                                     : read_primary(device, free_bytes);
}

/* ---- before and after ---- */

static void begin_shared(struct gc_measure *measure)
{
    /* A measurement that is compared with an estimate, or kept for the next one, must hold no
     * memory of other processes. */
    measure->is_shared = gc_shim.has_model || gc_group_shares_device(measure->device);
    if (measure->is_shared && !read_process(measure->device, &measure->process_bytes))
        measure->process_bytes = 0; /* no context there yet, or the end does not find it either */
}

void gc_measure_begin(struct gc_measure *measure, struct gc_device *device)
{
    *measure = (struct gc_measure){.device = device};
    if (device == NULL)
        return;
    measure->reserved_bytes = gc_device_reserved_bytes(device);
    begin_shared(measure);
    if (read_driver(device, &measure->free_bytes))
        measure->source = GC_MEASURE_DRIVER;
    else if (begin_nvml(device, &measure->free_bytes))
        measure->source = GC_MEASURE_NVML;
    else
        gc_log_once(&gc_shim.log, &unmeasured_logged, GC_LOG_INFO,
                    "device %d: the memory of a context cannot be measured; it is not charged",
                    gc_device_get_info(device)->ordinal);
}

void gc_measure_begin_current(struct gc_measure *measure)
{
    *measure = (struct gc_measure){.device = gc_account_current_device()};
    if (measure->device == NULL)
        return;
    measure->reserved_bytes = gc_device_reserved_bytes(measure->device);
    begin_shared(measure);
    if (read_current(measure->device, &measure->free_bytes))
        measure->source = GC_MEASURE_DRIVER;
}

int64_t gc_measure_end(struct gc_measure *measure)
{
    uint64_t free_bytes = 0;
    bool is_read = false;

    if (measure->source == GC_MEASURE_DRIVER)
        is_read = read_driver(measure->device, &free_bytes);
    else if (measure->source == GC_MEASURE_NVML)
        is_read = end_nvml(measure->device, &free_bytes);
    if (!is_read)
        return 0;
    uint64_t process_bytes;
    int64_t taken = (int64_t)(measure->free_bytes - free_bytes);
    measure->is_exact = measure->is_shared;
    if (measure->is_shared && read_process(measure->device, &process_bytes))
        taken = (int64_t)(process_bytes - measure->process_bytes);
    else
        measure->is_exact = false;
    return taken - (int64_t)(gc_device_reserved_bytes(measure->device) - measure->reserved_bytes);
}

/* ---- the process ---- */

static bool process_bytes(void *self, int ordinal, uint64_t *bytes)
{
    const struct gc_device *device = gc_device_find(gc_shim.core, ordinal);

    (void)self;
    return device != NULL && may_load(device) && read_process(device, bytes);
}

static void compare_soon(void *self, int ordinal)
{
    const struct gc_device *device = gc_device_find(gc_shim.core, ordinal);

    (void)self;
    if (device != NULL && may_load(device))
        gc_helper_compare();
}

void gc_measure_driver_init(struct gc_driver *driver)
{
    driver->process_bytes = process_bytes;
    driver->compare_soon = compare_soon;
}
