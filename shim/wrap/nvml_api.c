/* NVML's figures of a device's memory, in terms of the limit, as cuMemGetInfo and cuDeviceTotalMem
 * return them, and of a device's processes. No other call of NVML is wrapped, and NVML is never
 * started from here.
 *
 *     total  min(limit, the device's own)
 *     free   the most that a malloc could get: idle cache is free
 *     used   the rest. In the second ABI, under a limit: the bytes held of the limit; the rest
 *            is then `reserved`: others hold the device, so the limit cannot be used in full
 *
 * This process's row is a part of the memory row's used bytes, since programs print both side by
 * side: the driver's figure less its idle cache. In a group the other processes share the rest of
 * the group's used bytes, in NVML's order, since programs add the rows up. Elsewhere other
 * processes' rows are the driver's: they show who holds the device beside the limit.
 *
 * Devices are identified by their UUID. A process that has not started CUDA (nvidia-smi, a monitor)
 * has no accounts: there the limit comes from the options, read once, without a log line, and the
 * used bytes are those of the group, from the ledger. */
#define _GNU_SOURCE
#include "shim/account/device.h"
#include "shim/real/nvml.h"
#include "shim/real/resolve.h"

#include "core/device/device.h"
#include "core/ledger/ledger.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORDINALS 256         /* more than any driver has */
#define UUID_PREFIX_LENGTH 4 /* "GPU-", "MIG-": CUDA names an instance with the former */
#define ENDLESS (UINT64_MAX / 2)

struct figures {
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t used_bytes; /* as the limit counts */
    bool is_limited;
};

/* ---- a process that has started CUDA ---- */

static struct gc_device *find_known(const char *uuid)
{
    for (int i = 0; i < ORDINALS; i++) {
        struct gc_device *device = gc_device_find(gc_shim.core, i);

        if (device != NULL && strlen(uuid) > UUID_PREFIX_LENGTH &&
            strcmp(gc_device_get_info(device)->uuid + UUID_PREFIX_LENGTH,
                   uuid + UUID_PREFIX_LENGTH) == 0)
            return device;
    }
    return NULL;
}

/* Adds the devices by ordinal: core does not know those that the program has not used. */
static struct gc_device *find_device(const char *uuid)
{
    struct gc_device *device = find_known(uuid);

    if (device != NULL)
        return device;
    for (int i = 0; i < ORDINALS && gc_account_device(i) != NULL; i++)
        ;
    return find_known(uuid);
}

static void query_core(struct gc_device *device, struct figures *figures)
{
    const uint64_t own_total = figures->total_bytes;
    uint64_t endless = ENDLESS;

    gc_available_mem_info(gc_shim.core, device, NULL, &figures->free_bytes, &figures->total_bytes);
    figures->is_limited = figures->total_bytes < own_total;
    /* If ENDLESS bytes were free on the device, the limit less the held bytes would be free. */
    figures->used_bytes = own_total;
    gc_available_mem_info(gc_shim.core, device, NULL, &endless, &figures->used_bytes);
    figures->used_bytes -= endless;
}

/* ---- a process that has not started CUDA ---- */

/* Read at the first query, and kept. NULL: no host memory. */
static const struct gc_options *quiet_options(void)
{
    static _Atomic(struct gc_options *) kept;
    struct gc_options *options = atomic_load_explicit(&kept, memory_order_acquire);
    struct gc_options *present = NULL;

    if (options != NULL || gc_options_load(environ, NULL, &options) != GC_OK)
        return options;
    /* Release: pairs with the load above, in another thread. */
    if (atomic_compare_exchange_strong_explicit(&kept, &present, options, memory_order_acq_rel,
                                                memory_order_acquire))
        return options;
    gc_options_free(options);
    return present;
}

/* A limit for a device whose number is uncertain applies only if all numbers have the same
 * limit. */
static uint64_t limit_of(const struct gc_size_spec *spec, int ordinal, const char *uuid,
                         uint64_t total_bytes)
{
    uint64_t limit = gc_size_spec_resolve(spec, ordinal, uuid, total_bytes);
    unsigned count = 0;

    if (ordinal >= 0 || limit != UINT64_MAX || GC_REAL(nvmlDeviceGetCount_v2) == NULL ||
        GC_REAL(nvmlDeviceGetCount_v2)(&count) != GC_NVML_SUCCESS)
        return limit;
    limit = gc_size_spec_resolve(spec, 0, uuid, total_bytes);
    for (unsigned i = 1; i < count && i < GC_SIZE_SPEC_MAX; i++)
        if (gc_size_spec_resolve(spec, (int)i, uuid, total_bytes) != limit)
            return UINT64_MAX;
    return limit;
}

static void clamp_to_limit(uint64_t limit, uint64_t held, struct figures *figures)
{
    const uint64_t room = limit > held ? limit - held : 0;

    if (limit < figures->total_bytes)
        figures->total_bytes = limit;
    if (room < figures->free_bytes)
        figures->free_bytes = room;
}

static bool query_options(struct nvmlDevice_st *handle, const char *uuid, struct figures *figures)
{
    const struct gc_options *options = quiet_options();
    struct gc_ledger_group_use quota;
    char place[GC_LEDGER_PATH_BYTES];
    const uint64_t own_total = figures->total_bytes;

    if (options == NULL || options->mode == GC_MODE_OFF || options->refused)
        return false;
    const int ordinal = gc_nvml_ordinal(handle, uuid);
    clamp_to_limit(limit_of(&options->limit, ordinal, uuid, own_total), 0, figures);
    if (options->group[0] == '\0' ||
        !gc_ledger_read_group_use(gc_ledger_folder(options->ledger, options->node, place),
                                  options->group, uuid, &quota))
        quota = (struct gc_ledger_group_use){.member_count = 0};
    if (quota.member_count == 0) /* an ended group's limit does not hold for the next group */
        quota.limit_bytes = limit_of(&options->group_limit, ordinal, uuid, own_total);
    clamp_to_limit(quota.limit_bytes, quota.held_bytes, figures);
    figures->is_limited = figures->total_bytes < own_total;
    figures->used_bytes =
        quota.held_bytes < figures->total_bytes ? quota.held_bytes : figures->total_bytes;
    return figures->is_limited;
}

/* ---- a process of either kind ---- */

/* False: NVML's result stands. */
static bool translate(struct nvmlDevice_st *handle, struct figures *figures)
{
    char uuid[GC_NVML_UUID_BYTES];
    struct gc_device *device;

    if (GC_REAL(nvmlDeviceGetUUID) == NULL ||
        GC_REAL(nvmlDeviceGetUUID)(handle, uuid, sizeof(uuid)) != GC_NVML_SUCCESS)
        return false;
    switch (gc_shim_life()) {
    case GC_LIFE_READY:
        device = find_device(uuid);
        if (device == NULL)
            return query_options(handle, uuid, figures);
        query_core(device, figures);
        return true;
    case GC_LIFE_NEW:
        return query_options(handle, uuid, figures);
    default:
        return false;
    }
}

/* False inside NVML or a wrapper: those callers need the real figures. */
static bool enter(void)
{
    if (gc_thread.depth > 0 || gc_thread.is_starting)
        return false;
    gc_thread.depth++;
    return true;
}

GC_EXPORT
int nvmlDeviceGetMemoryInfo(struct nvmlDevice_st *device, struct gc_nvml_memory *memory)
{
    struct figures figures;

    if (!gc_nvml_find())
        return GC_NVML_ERROR_LIBRARY_NOT_FOUND;
    if (GC_REAL(nvmlDeviceGetMemoryInfo) == NULL)
        return GC_NVML_ERROR_FUNCTION_NOT_FOUND;
    int result = GC_REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    if (result != GC_NVML_SUCCESS || !enter())
        return result;
    figures.total_bytes = memory->total;
    figures.free_bytes = memory->free;
    if (translate(device, &figures)) {
        memory->total = figures.total_bytes;
        memory->free = figures.free_bytes;
        memory->used = figures.total_bytes - figures.free_bytes;
    }
    gc_shim_leave();
    return result;
}

GC_EXPORT
int nvmlDeviceGetMemoryInfo_v2(struct nvmlDevice_st *device, struct gc_nvml_memory_v2 *memory)
{
    struct figures figures;

    if (!gc_nvml_find())
        return GC_NVML_ERROR_LIBRARY_NOT_FOUND;
    if (GC_REAL(nvmlDeviceGetMemoryInfo_v2) == NULL)
        return GC_NVML_ERROR_FUNCTION_NOT_FOUND;
    int result = GC_REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (result != GC_NVML_SUCCESS || !enter())
        return result;
    figures.total_bytes = memory->total;
    figures.free_bytes = memory->free;
    if (translate(device, &figures)) {
        const uint64_t rest = figures.total_bytes - figures.free_bytes;

        if (!figures.is_limited)
            figures.used_bytes = rest > memory->reserved ? rest - memory->reserved : 0;
        else if (figures.used_bytes > rest)
            figures.used_bytes = rest;
        memory->total = figures.total_bytes;
        memory->free = figures.free_bytes;
        memory->used = figures.used_bytes;
        memory->reserved = rest - figures.used_bytes;
    }
    gc_shim_leave();
    return result;
}

/* ---- the processes of a device ---- */

/* The bytes that the rows share, and this process's idle cache. */
struct shares {
    unsigned long long rest;
    unsigned long long idle;
    unsigned self;
    bool has_group;
};

/* The memory row's used bytes, in both ABIs. False: NVML's own row stands, and those of the
 * processes. */
static bool find_shares(struct nvmlDevice_st *handle, struct shares *shares)
{
    char uuid[GC_NVML_UUID_BYTES];
    struct gc_nvml_memory memory;
    struct figures figures;
    const struct gc_device *device = NULL;

    if (GC_REAL(nvmlDeviceGetMemoryInfo) == NULL ||
        GC_REAL(nvmlDeviceGetMemoryInfo)(handle, &memory) != GC_NVML_SUCCESS)
        return false;
    figures.total_bytes = memory.total;
    figures.free_bytes = memory.free;
    if (!translate(handle, &figures))
        return false;
    if (gc_shim_life() == GC_LIFE_READY &&
        GC_REAL(nvmlDeviceGetUUID)(handle, uuid, sizeof(uuid)) == GC_NVML_SUCCESS)
        device = find_known(uuid);
    const uint64_t rest = figures.total_bytes - figures.free_bytes;
    *shares = (struct shares){
        .rest = figures.is_limited && figures.used_bytes < rest ? figures.used_bytes : rest,
        .idle = device != NULL ? gc_device_idle_bytes(device) : 0,
        .self = (unsigned)getpid(),
        .has_group = device != NULL && device->budget.account != NULL,
    };
    return true;
}

/* The row's bytes, which are then no one else's. */
static unsigned long long take_share(struct shares *shares, unsigned pid, unsigned long long used)
{
    const unsigned long long idle = pid == shares->self ? shares->idle : 0;
    unsigned long long share;

    if (used == GC_NVML_NO_VALUE || (pid != shares->self && !shares->has_group))
        return used;
    share = used > idle ? used - idle : 0;
    if (share > shares->rest)
        share = shares->rest;
    shares->rest -= share;
    return share;
}

/* This process's row first. */
#define TRANSLATE_ROWS(device, count, rows)                                                        \
    do {                                                                                           \
        struct shares shares_;                                                                     \
        bool is_found_ = find_shares(device, &shares_);                                            \
        for (unsigned turn_ = 0; is_found_ && turn_ < 2; turn_++)                                  \
            for (unsigned i_ = 0; i_ < (count); i_++)                                              \
                if (((rows)[i_].pid == shares_.self) == (turn_ == 0))                              \
                    (rows)[i_].used = take_share(&shares_, (rows)[i_].pid, (rows)[i_].used);       \
    } while (0)

/* NVML leaves the number of rows in `count`, and may make one of these calls for another. */
#define PROCESSES(symbol, type)                                                                    \
    GC_EXPORT                                                                                      \
    int symbol(struct nvmlDevice_st *device, unsigned *count, struct type *processes)              \
    {                                                                                              \
        if (!gc_nvml_find())                                                                       \
            return GC_NVML_ERROR_LIBRARY_NOT_FOUND;                                                \
        if (GC_REAL(symbol) == NULL)                                                               \
            return GC_NVML_ERROR_FUNCTION_NOT_FOUND;                                               \
        const bool is_own = enter();                                                               \
        const int result = GC_REAL(symbol)(device, count, processes);                              \
        if (is_own && result == GC_NVML_SUCCESS && processes != NULL)                              \
            TRANSLATE_ROWS(device, *count, processes);                                             \
        if (is_own)                                                                                \
            gc_shim_leave();                                                                       \
        return result;                                                                             \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, gc_nvml_process_v1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, gc_nvml_process)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, gc_nvml_process)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, gc_nvml_process_v1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, gc_nvml_process)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, gc_nvml_process)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, gc_nvml_process_v1)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, gc_nvml_process)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, gc_nvml_process)

GC_EXPORT
int nvmlDeviceGetRunningProcessDetailList(struct nvmlDevice_st *device,
                                          struct gc_nvml_process_details *list)
{
    if (!gc_nvml_find())
        return GC_NVML_ERROR_LIBRARY_NOT_FOUND;
    if (GC_REAL(nvmlDeviceGetRunningProcessDetailList) == NULL)
        return GC_NVML_ERROR_FUNCTION_NOT_FOUND;
    const bool is_own = enter();
    const int result = GC_REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
    if (is_own && result == GC_NVML_SUCCESS && list->processes != NULL)
        TRANSLATE_ROWS(device, list->count, list->processes);
    if (is_own)
        gc_shim_leave();
    return result;
}
