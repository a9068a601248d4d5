/* Selects the backend of a device: mapped memory where the driver and the device support it, unless
 * it is known to fail there, or the program is going to export its memory by handles that mapped
 * memory does not have. GPUCACHE_BACKEND=vmm selects it wherever it exists.
 *
 * Where a program may export handles every block is a whole allocation of the driver's: see
 * shim/wrap/ipc_api.c. */
#define _GNU_SOURCE
#include "shim/driver/backend.h"
#include "core/io/writer.h"
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

/* The reason why pool memory is not mapped although it could be; NULL: it is mapped. `ipc`: the
 * call by which the program exports memory, or NULL. */
static const char *reason_not_mapped(const struct gc_device_info *info, const char *ipc, char *room,
                                     size_t room_bytes)
{
    if (gc_shim.options->mode == GC_MODE_TRACK)
        return "GPUCACHE_MODE=track";
    if (gc_shim.options->backend == GC_BACKEND_WHOLE)
        return "GPUCACHE_BACKEND=whole";
    if (gc_shim.options->backend == GC_BACKEND_DRIVER)
        return "GPUCACHE_BACKEND=driver";
    if (ipc != NULL && gc_shim.options->backend == GC_BACKEND_AUTO) {
        snprintf(room, room_bytes, "the program exports memory: it imports %s", ipc);
        return room;
    }
    if (info->page_bytes == 0)
        return "the device or its driver cannot map memory";
    if (gc_shim.options->backend == GC_BACKEND_VMM)
        return NULL;
    if (is_wsl())
        return "this is the Windows Subsystem for Linux";
    if (is_under_mps(info->ordinal))
        return "the device is shared by a multi-process server";
    return NULL;
}

void gc_backend_describe(struct gc_device_info *info)
{
    const enum gc_backend wanted = gc_shim.options->backend;
    const char *ipc = ipc_name();
    char room[sizeof(info->backend_reason)];

    info->page_bytes = page_bytes(info->ordinal);
    const char *reason = reason_not_mapped(info, ipc, room, sizeof(room));
    info->has_mapping = reason == NULL;
    info->is_dedicated = wanted == GC_BACKEND_WHOLE || (ipc != NULL && reason != NULL);
    if (reason == NULL && wanted == GC_BACKEND_VMM)
        reason = "GPUCACHE_BACKEND=vmm";
    else if (reason == NULL)
        reason = "the device maps memory";
    snprintf(info->backend_reason, sizeof(info->backend_reason), "%s", reason);
}

bool gc_backend_has_rdma(CUdevice ordinal)
{
    static atomic_int known[64]; /* 0: unknown, 1: no, 2: yes */
    const unsigned slot = (unsigned)ordinal % 64;
    int answer = atomic_load_explicit(&known[slot], memory_order_relaxed);

    if (answer == 0) {
        answer =
            !is_wsl() && attribute(ordinal,
                                   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0
                ? 2
                : 1;
        atomic_store_explicit(&known[slot], answer, memory_order_relaxed);
    }
    return answer == 2;
}
