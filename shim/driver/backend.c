/* Selects the backend of a device: mapped memory where the driver and the device support it, unless
 * it is known to fail there, or a process that is not under the library may have to open the
 * program's memory. GPUCACHE_BACKEND=vmm selects it wherever it exists.
 *
 * For such a process every block is a whole allocation of the driver's; processes under the library
 * open mapped memory, too: see shim/wrap/ipc_api.c. */
#define _GNU_SOURCE
#include "shim/driver/backend.h"
#include "core/io/writer.h"
#include "shim/driver/tasks.h"
#include "shim/real/resolve.h"

#include "core/io/elf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MPS_FOLDER "/tmp/nvidia-mps"
/* CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older headers lack. */
#define ATTRIBUTE_MPS_ENABLED ((CUdevice_attribute)133)
/* CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK and CU_MEM_CREATE_USAGE_HW_DECOMPRESS,
 * likewise. */
#define ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK ((CUdevice_attribute)136)
#define USAGE_HW_DECOMPRESS 2
#define DEVICES_MAX 64

/* What the driver said once. */
enum answer { UNKNOWN, NO, YES, UNTRIED };

static int attribute(CUdevice ordinal, CUdevice_attribute which)
{
    int value = 0;

    return GC_USE(cuDeviceGetAttribute, &value, which, ordinal) == CUDA_SUCCESS ? value : 0;
}

static bool is_wsl(void)
{
    char release[128];
    ssize_t length = 0;
    int fd;

    if (access("/dev/dxg", F_OK) == 0)
        return true;
    fd = gc_writer_raise_fd(open("/proc/sys/kernel/osrelease", O_RDONLY | O_CLOEXEC));
    if (fd >= 0) {
        length = read(fd, release, sizeof(release) - 1);
        close(fd);
    }
    release[length > 0 ? length : 0] = '\0';
    return strstr(release, "microsoft") != NULL || strstr(release, "Microsoft") != NULL;
}

/* The driver reports MPS since CUDA 12.4. Before, the control pipe that this process would use
 * shows it. */
static bool is_under_mps(CUdevice ordinal)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char control[4096];

    if (attribute(ordinal, ATTRIBUTE_MPS_ENABLED) != 0)
        return true;
    if (gc_shim.driver_version >= 12040)
        return false;
    snprintf(control, sizeof(control), "%s/control", folder != NULL ? folder : MPS_FOLDER);
    return access(control, F_OK) == 0;
}

static const char *ipc_name(void)
{
    static const char *const names[] = {"cudaIpcGetMemHandle", "cuIpcGetMemHandle"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (gc_elf_program_imports(names[i]))
            return names[i];
    return NULL;
}

/* 0: the device cannot map memory. */
static uint64_t page_bytes(CUdevice ordinal)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
    };
    size_t bytes = 0;

    if (attribute(ordinal, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 ||
        GC_USE(cuMemGetAllocationGranularity, &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
            CUDA_SUCCESS)
        return 0;
    return bytes;
}

bool gc_backend_can_access(CUdevice device, CUdevice peer)
{
    static atomic_uchar known[DEVICES_MAX][DEVICES_MAX];
    atomic_uchar *slot = &known[(unsigned)device % DEVICES_MAX][(unsigned)peer % DEVICES_MAX];
    unsigned char answer = atomic_load_explicit(slot, memory_order_relaxed);
    int can = 0;

    if (answer == UNKNOWN) {
        answer =
            GC_USE(cuDeviceCanAccessPeer, &can, device, peer) == CUDA_SUCCESS && can ? YES : NO;
        atomic_store_explicit(slot, answer, memory_order_relaxed);
    }
    return answer == YES;
}

/* Copies between devices without peer access go through the host, and of mapped memory only
 * cuMemcpyPeer and its kin can do that: cuMemcpyDtoD, the unified and the shaped copies, a graph's
 * copies, and copies and fills in a context of the other device are errors. Driver allocations have
 * none of these limits, and an address cannot change its kind when a program first uses a second
 * device. A program that is shown one device alone (CUDA_VISIBLE_DEVICES) has no other. */
static bool find_device_without_access(CUdevice ordinal, CUdevice *other)
{
    int count = 0;

    if (GC_USE(cuDeviceGetCount, &count) != CUDA_SUCCESS)
        return false;
    for (*other = 0; *other < count; ++*other)
        if (*other != ordinal &&
            (!gc_backend_can_access(ordinal, *other) || !gc_backend_can_access(*other, ordinal)))
            return true;
    return false;
}

/* Whether processes without the library may have to open the program's memory: then `room` has the
 * reason. */
static bool may_give_away(char *room, size_t room_bytes)
{
    const char *ipc = ipc_name();

    if (ipc == NULL)
        return gc_tasks_find_stray(room, room_bytes);
    snprintf(room, room_bytes, "the program exports memory: it imports %s", ipc);
    return true;
}

/* The reason why pool memory is not mapped although it could be; NULL: it is mapped. `gives`:
 * `room` has may_give_away's reason. */
static const char *reason_not_mapped(const struct gc_device_info *info, bool gives, char *room,
                                     size_t room_bytes)
{
    CUdevice other;

    if (gc_shim.options->mode == GC_MODE_TRACK)
        return "GPUCACHE_MODE=track";
    if (gc_shim.options->backend == GC_BACKEND_WHOLE)
        return "GPUCACHE_BACKEND=whole";
    if (gc_shim.options->backend == GC_BACKEND_DRIVER)
        return "GPUCACHE_BACKEND=driver";
    if (gives && gc_shim.options->backend == GC_BACKEND_AUTO)
        return room;
    if (info->page_bytes == 0)
        return "the device or its driver cannot map memory";
    if (gc_shim.options->backend == GC_BACKEND_VMM)
        return NULL;
    if (is_wsl())
        return "this is the Windows Subsystem for Linux";
    if (is_under_mps(info->ordinal))
        return "the device is shared by a multi-process server";
    if (find_device_without_access(info->ordinal, &other)) {
        snprintf(room, room_bytes, "no peer access between it and device %d, which is visible",
                 other);
        return room;
    }
    return NULL;
}

void gc_backend_describe(struct gc_device_info *info)
{
    const enum gc_backend wanted = gc_shim.options->backend;
    char room[sizeof(info->backend_reason)];
    CUdevice other;

    info->page_bytes = page_bytes(info->ordinal);
    const bool gives = may_give_away(room, sizeof(room));
    const char *reason = reason_not_mapped(info, gives, room, sizeof(room));
    info->has_mapping = reason == NULL;
    info->is_dedicated = wanted == GC_BACKEND_WHOLE || (gives && reason != NULL);
    if (reason == NULL && wanted == GC_BACKEND_VMM &&
        find_device_without_access(info->ordinal, &other)) {
        snprintf(
            room, sizeof(room),
            "GPUCACHE_BACKEND=vmm, although most copies to and from device %d fail: no peer access",
            other);
        reason = room;
        gc_log_write(&gc_shim.log, GC_LOG_WARN,
                     "GPUCACHE_BACKEND=vmm: device %d has no peer access with device %d, which is "
                     "visible: most copies of mapped memory between them are errors; "
                     "GPUCACHE_BACKEND=auto serves driver allocations there",
                     info->ordinal, other);
    } else if (reason == NULL && wanted == GC_BACKEND_VMM)
        reason = "GPUCACHE_BACKEND=vmm";
    else if (reason == NULL)
        reason = "the device maps memory";
    snprintf(info->backend_reason, sizeof(info->backend_reason), "%s", reason);
}

/* ---- the flags of pages ---- */

/* Answers. `sharing`: other processes import the page by a descriptor. */
static atomic_uchar rdma[DEVICES_MAX], decompression[DEVICES_MAX], sharing[DEVICES_MAX];

/* What the attribute says, until a trial says otherwise. */
static unsigned char ask(atomic_uchar *slot, CUdevice ordinal, CUdevice_attribute which,
                         unsigned char yes)
{
    unsigned char answer = atomic_load_explicit(slot, memory_order_relaxed), none = UNKNOWN;

    if (answer == UNKNOWN) {
        answer = attribute(ordinal, which) != 0 ? yes : NO;
        if (!atomic_compare_exchange_strong_explicit(slot, &none, answer, memory_order_relaxed,
                                                     memory_order_relaxed))
            answer = none;
    }
    return answer;
}

static void set_sharing(CUmemAllocationProp *prop, unsigned slot)
{
    if (ask(&sharing[slot], prop->location.id,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, YES) != NO)
        prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

static void set_flags(CUmemAllocationProp *prop, unsigned slot)
{
    const CUdevice ordinal = prop->location.id;

    if (ask(&decompression[slot], ordinal, ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, YES) != NO)
        prop->allocFlags.usage |= USAGE_HW_DECOMPRESS;
    if (ask(&rdma[slot], ordinal, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            UNTRIED) != NO)
        prop->allocFlags.gpuDirectRDMACapable = 1;
}

/* As GC_CALL, but an error is an answer about flags: it does not make contexts faulted. */
#define TRY(device, symbol, ...)                                                                   \
    (gc_shim_count((device), GC_API_##symbol), GC_USE(symbol, __VA_ARGS__))

/* Maps the page at two addresses, as the pool maps pages. *is_stuck: a mapping remains. */
static CUresult try_page(struct gc_device *device, CUmemGenericAllocationHandle handle,
                         uint64_t bytes, CUdevice ordinal, bool *is_stuck)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr range = 0;
    uint64_t mapped = 0;
    CUresult result = TRY(device, cuMemAddressReserve, &range, (size_t)bytes * 2, 0, 0, 0);

    if (result != CUDA_SUCCESS)
        return result;
    for (; mapped < 2 * bytes && result == CUDA_SUCCESS; mapped += bytes) {
        result = TRY(device, cuMemMap, range + mapped, (size_t)bytes, 0, handle, 0);
        if (result != CUDA_SUCCESS)
            break;
        result = TRY(device, cuMemSetAccess, range + mapped, (size_t)bytes, &access, 1);
    }
    for (; mapped != 0; mapped -= bytes)
        *is_stuck |= TRY(device, cuMemUnmap, range + mapped - bytes, (size_t)bytes) != 0;
    (void)TRY(device, cuMemAddressFree, range, (size_t)bytes * 2);
    return result;
}

/* Devices report the flag and refuse memory that has it: under WSL2 at any address
 * (pytorch#192330), elsewhere maybe at a second one (third_party_p2p.c in NVIDIA's kernel modules
 * knows a handle by one address). */
static CUresult check_page(struct gc_device *device, const CUmemAllocationProp *prop,
                           CUmemGenericAllocationHandle handle, uint64_t bytes)
{
    atomic_uchar *slot = &rdma[(unsigned)prop->location.id % DEVICES_MAX];
    bool is_stuck = false;
    CUresult result;

    if (!prop->allocFlags.gpuDirectRDMACapable ||
        atomic_load_explicit(slot, memory_order_relaxed) == YES)
        return CUDA_SUCCESS;
    result = try_page(device, handle, bytes, prop->location.id, &is_stuck);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) /* which says nothing about the flag */
        atomic_store_explicit(slot, result == CUDA_SUCCESS ? YES : NO, memory_order_relaxed);
    if (result == CUDA_SUCCESS && !is_stuck)
        return CUDA_SUCCESS;
    if (GC_CALL(device, cuMemRelease, handle) != CUDA_SUCCESS || is_stuck)
        gc_direct_adjust_device(gc_shim.core, device, (int64_t)bytes); /* lost */
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* The driver refused a page with all that the device says it has: tries one for other processes
 * alone, then a plain one. */
static CUresult create_lesser_page(struct gc_device *device, CUmemAllocationProp prop,
                                   uint64_t bytes, CUmemGenericAllocationHandle *handle)
{
    const unsigned slot = (unsigned)prop.location.id % DEVICES_MAX;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    set_sharing(&prop, slot);
    if (prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
        result = TRY(device, cuMemCreate, handle, (size_t)bytes, &prop, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        result = GC_CALL(device, cuMemCreate, handle, (size_t)bytes, &prop, 0);
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&sharing[slot], NO, memory_order_relaxed);
    }
    if (result == CUDA_SUCCESS) {
        atomic_store_explicit(&rdma[slot], NO, memory_order_relaxed);
        atomic_store_explicit(&decompression[slot], NO, memory_order_relaxed);
    }
    return result;
}

CUresult gc_backend_create_page(struct gc_device *device, CUdevice ordinal, uint64_t bytes,
                                CUmemGenericAllocationHandle *handle)
{
    const unsigned slot = (unsigned)ordinal % DEVICES_MAX;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
    const CUmemAllocationProp plain = prop;
    CUresult result;

    set_sharing(&prop, slot);
    set_flags(&prop, slot);
    result = TRY(device, cuMemCreate, handle, (size_t)bytes, &prop, 0);
    const bool is_created = result == CUDA_SUCCESS;
    if (is_created)
        result = check_page(device, &prop, *handle, bytes);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    if (!is_created)
        return create_lesser_page(device, plain, bytes, handle);
    prop.allocFlags.gpuDirectRDMACapable = 0; /* the device has memory with the rest */
    return GC_CALL(device, cuMemCreate, handle, (size_t)bytes, &prop, 0);
}

bool gc_backend_is_shareable(CUdevice ordinal)
{
    return atomic_load_explicit(&sharing[(unsigned)ordinal % DEVICES_MAX], memory_order_relaxed) ==
           YES;
}
