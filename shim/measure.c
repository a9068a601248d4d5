/* Measuring by difference: see measure.h. NVML's few functions are looked up once; NVML stays
 * loaded. */
#define _GNU_SOURCE
#include "shim/measure.h"

#include "shim/direct.h"
#include "shim/elf.h"

#include <string.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

struct nvml_memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

struct nvml {
    int (*init)(void);
    int (*get_handle)(const char *uuid, void **handle);
    int (*get_memory)(void *handle, struct nvml_memory *memory);
};

enum { NVML_UNKNOWN, NVML_USABLE, NVML_ABSENT };

static struct nvml nvml; /* written once, before nvml_state says USABLE */
static atomic_int nvml_state;
static atomic_flag unmeasured_said = ATOMIC_FLAG_INIT;

/* ---- NVML ---- */

/* Several threads may do this at once and find the same; NVML counts its initialisations. */
static bool load_nvml(struct nvml *found, bool may_load)
{
    const struct gc_libc *libc = gc_elf_libc();
    void *library = libc == NULL ? NULL : libc->dlopen(NVML_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);

    if (library == NULL && libc != NULL && may_load)
        library = libc->dlopen(NVML_LIBRARY, RTLD_LAZY);
    if (library == NULL)
        return false;
    *(void **)&found->init = libc->dlsym(library, "nvmlInit_v2");
    *(void **)&found->get_handle = libc->dlsym(library, "nvmlDeviceGetHandleByUUID");
    *(void **)&found->get_memory = libc->dlsym(library, "nvmlDeviceGetMemoryInfo");
    if (found->init == NULL || found->get_handle == NULL || found->get_memory == NULL ||
        found->init() != 0) {
        libc->dlclose(library);
        return false;
    }
    return true;
}

static bool have_nvml(bool may_load)
{
    struct nvml found;
    int state =
        atomic_load_explicit(&nvml_state, memory_order_acquire); /* with the release below */

    if (state != NVML_UNKNOWN)
        return state == NVML_USABLE;
    if (load_nvml(&found, may_load)) {
        __atomic_store(&nvml.get_handle, &found.get_handle, __ATOMIC_RELAXED);
        __atomic_store(&nvml.get_memory, &found.get_memory, __ATOMIC_RELAXED);
        atomic_store_explicit(&nvml_state, NVML_USABLE, memory_order_release);
        return true;
    }
    if (may_load)
        atomic_store_explicit(&nvml_state, NVML_ABSENT, memory_order_release);
    return false;
}

static bool read_nvml(const struct gc_device *device, uint64_t *free_bytes)
{
    char uuid[sizeof(((struct gc_device_info *)NULL)->uuid)];
    struct nvml_memory memory;
    void *handle;

    if (!have_nvml(gc_device_limit_bytes(device) != UINT64_MAX))
        return false;
    memcpy(uuid, gc_device_get_info(device)->uuid, sizeof(uuid));
    int error = nvml.get_handle(uuid, &handle);
    if (error != 0 && strncmp(uuid, "GPU-", 4) == 0) {
        memcpy(uuid, "MIG-", 4); /* the driver names an instance by its own UUID */
        error = nvml.get_handle(uuid, &handle);
    }
    if (error != 0 || nvml.get_memory(handle, &memory) != 0)
        return false;
    *free_bytes = memory.free;
    return true;
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
    return result == CUDA_SUCCESS;
}

static void release_primary(struct gc_device *device, CUdevice ordinal)
{
    if (GC_HAVE(cuDevicePrimaryCtxRelease_v2))
        (void)GC_CALL(device, cuDevicePrimaryCtxRelease_v2, ordinal);
    else
        (void)GC_CALL(device, cuDevicePrimaryCtxRelease, ordinal);
}

/* In the primary context, if there is one: retained, so that it cannot go meanwhile. */
static bool read_primary(struct gc_device *device, uint64_t *free_bytes)
{
    CUdevice ordinal = gc_device_get_info(device)->ordinal;
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

void gc_measure_begin(struct gc_measure *measure, struct gc_device *device)
{
    *measure = (struct gc_measure){.device = device};
    if (device == NULL)
        return;
    measure->reserved_bytes = gc_device_reserved_bytes(device);
    if (read_driver(device, &measure->free_bytes))
        measure->source = GC_MEASURE_DRIVER;
    else if (read_nvml(device, &measure->free_bytes))
        measure->source = GC_MEASURE_NVML;
    else
        gc_log_once(&gc_shim.log, &unmeasured_said, GC_LOG_INFO,
                    "device %d: no way to measure what a context takes; it is not counted",
                    gc_device_get_info(device)->ordinal);
}

void gc_measure_begin_current(struct gc_measure *measure)
{
    *measure = (struct gc_measure){.device = gc_shim_current_device()};
    if (measure->device == NULL)
        return;
    measure->reserved_bytes = gc_device_reserved_bytes(measure->device);
    if (read_current(measure->device, &measure->free_bytes))
        measure->source = GC_MEASURE_DRIVER;
}

int64_t gc_measure_end(const struct gc_measure *measure)
{
    uint64_t free_bytes = 0;
    bool is_read = false;

    if (measure->source == GC_MEASURE_DRIVER)
        is_read = read_driver(measure->device, &free_bytes);
    else if (measure->source == GC_MEASURE_NVML)
        is_read = read_nvml(measure->device, &free_bytes);
    if (!is_read)
        return 0;
    int64_t taken = (int64_t)(measure->free_bytes - free_bytes);
    return taken - (int64_t)(gc_device_reserved_bytes(measure->device) - measure->reserved_bytes);
}
